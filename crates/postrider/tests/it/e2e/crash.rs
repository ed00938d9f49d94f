//! The crash oracle: the server is killed under full load, again and again, and must neither lose nor flood.
//!
//! Publishers note every event that was acknowledged; the receiver notes every event that it took. After the last kill
//! everything acknowledged must have been taken, and what was taken twice must fit into what a crash may repeat. The
//! moments of the kills are drawn from a seed and expressed in acknowledged events, so they do not depend on the machine.
//! `cargo xtask crash --rounds N --seed S` sets both from outside.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use postrider::engine::EngineConfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::{Api, Connection, event};
use super::receiver::{Received, Receiver, Reply};
use super::server::Server;
use super::wait::eventually;

const BOUND: Duration = Duration::from_secs(180);
const PUBLISHERS: usize = 16;
const DESTINATIONS: usize = 4;
/// Of the destination that always fails.
const MAX_ATTEMPTS: usize = 3;

/// What one kill may repeat: attempts in flight, and results that were not committed.
pub(super) fn repeats_per_kill() -> usize {
    let bounds = EngineConfig::default().dispatcher;
    bounds.max_in_flight + bounds.max_unsettled
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only way for `cargo xtask crash` to reach a test"
)]
pub(super) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}: a number"))
    })
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What the publishers know.
#[derive(Debug, Default)]
struct Acknowledged {
    ids: Mutex<Vec<String>>,
    count: AtomicUsize,
    stop: AtomicBool,
}

/// Publishes one event after the other. One whose answer was lost in a kill is published again with the same id.
async fn publish(api: Api, publisher: usize, acknowledged: Arc<Acknowledged>) {
    let mut connection = None;
    for number in 0.. {
        if acknowledged.stop.load(Ordering::Relaxed) {
            return;
        }
        let id = format!("p{publisher}-{number}");
        let topic = format!("t{}", (publisher + number) % DESTINATIONS);
        let body = event(
            "acme",
            &id,
            &topic,
            r#"{"why":"a payload of some length","items":[1,2,3,4,5,6,7,8]}"#,
        );
        let acknowledging = async {
            while acknowledge(&api, &mut connection, &body).await.is_none() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(BOUND, acknowledging)
            .await
            .expect("a publish is acknowledged");
        acknowledged.ids.lock().push(id);
        acknowledged.count.fetch_add(1, Ordering::Relaxed);
    }
}

async fn acknowledge(api: &Api, kept: &mut Option<Connection>, body: &str) -> Option<()> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => api.connect().await.ok()?,
    };
    let answer = connection
        .call(Method::POST, "/api/v1/publish", body)
        .await
        .ok()?;
    assert!(matches!(answer.status, 202 | 503), "{answer:?}");
    *kept = Some(connection);
    (answer.status == 202).then_some(())
}

/// Planned attempts by delivery: number of attempts made, and when the next one is due.
async fn schedule(api: &Api) -> HashMap<String, (Value, Value)> {
    let list = api.get("/api/v1/deliveries?status=pending&limit=1000").await;
    let retries = list["models"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|delivery| delivery["attempts"] != 0);
    retries
        .map(|delivery| {
            let id = delivery["id"].as_str().unwrap().to_owned();
            (
                id,
                (delivery["attempts"].clone(), delivery["next_attempt_at"].clone()),
            )
        })
        .collect()
}

/// One in five fails, evenly at each destination: a breaker that opens at five failures of ten has no reason to.
fn one_in_five_fails(taken: Arc<Mutex<HashMap<String, usize>>>) -> impl Fn(&Received, usize) -> Reply {
    let before = Mutex::new(HashMap::<String, usize>::new());
    move |request, _| {
        let number = {
            let mut before = before.lock();
            let number = before.entry(request.path.clone()).or_default();
            *number += 1;
            *number
        };
        if number % 5 == 0 {
            return Reply::Status(500, "");
        }
        *taken
            .lock()
            .entry(request.header("webhook-id").to_owned())
            .or_default() += 1;
        Reply::Status(200, "")
    }
}

/// A server under load, and what stands around it.
struct Trial {
    server: Server,
    receiver: Receiver,
    /// How often the receiver took each event.
    taken: Arc<Mutex<HashMap<String, usize>>>,
    /// A destination that never takes anything.
    broken: Receiver,
    acknowledged: Arc<Acknowledged>,
    publishers: JoinSet<()>,
}

impl Trial {
    async fn start() -> Self {
        let server = Server::start().await;
        let taken = Arc::new(Mutex::new(HashMap::new()));
        let receiver = Receiver::start(one_in_five_fails(taken.clone())).await;
        for number in 0..DESTINATIONS {
            let (id, topic) = (format!("d{number}"), format!("t{number}"));
            let url = format!("{}/{number}", receiver.url());
            server.api.subscribe("acme", &id, &topic, &url).await;
        }
        let broken = Receiver::always(500).await;
        let policy = json!({
            "max_attempts": MAX_ATTEMPTS, "jitter": "none", "immediate": { "retries": 0 },
            "backoff": { "base": "50ms", "multiplier": 2.0, "max_delay": "1s" },
        });
        let url = broken.url();
        server
            .api
            .subscribe_with("acme", "broken", "broken", &url, &policy)
            .await;
        let acknowledged = Arc::new(Acknowledged::default());
        let publishers = (0..PUBLISHERS)
            .map(|number| publish(server.api.clone(), number, acknowledged.clone()))
            .collect();
        Self {
            server,
            receiver,
            taken,
            broken,
            acknowledged,
            publishers,
        }
    }

    /// Waits for `more` acknowledged events, then kills the server and starts it again; answers how many planned attempts
    /// could be compared.
    async fn round(&mut self, round: u64, more: usize) -> usize {
        let count = || self.acknowledged.count.load(Ordering::Relaxed);
        let moment = count() + more;
        eventually("more is acknowledged", BOUND, async || {
            (count() >= moment).then_some(())
        })
        .await;
        self.server
            .api
            .publish("acme", &format!("broken-{round}"), "broken", "{}")
            .await;
        let before = schedule(&self.server.api).await;
        self.server.kill();
        self.server.start_again().await;
        let after = schedule(&self.server.api).await;
        // Deliveries that were attempted between the two looks have another plan rightly.
        let same = before
            .iter()
            .filter_map(|(id, plan)| Some((id, plan, after.get(id)?)));
        let mut compared = 0;
        for (id, plan, found) in same.filter(|(_, plan, found)| plan.0 == found.0) {
            assert_eq!(found, plan, "{id}: the schedule moved");
            compared += 1;
        }
        compared
    }

    /// Stops the load and waits until the server has nothing left to do for it; answers what was acknowledged.
    async fn finish(&mut self) -> HashSet<String> {
        self.acknowledged.stop.store(true, Ordering::Relaxed);
        while let Some(publisher) = self.publishers.join_next().await {
            publisher.unwrap();
        }
        let ids: HashSet<_> = self.acknowledged.ids.lock().iter().cloned().collect();
        eventually("every acknowledged event is delivered", BOUND, async || {
            let taken = self.taken.lock();
            ids.iter().all(|id| taken.contains_key(id)).then_some(())
        })
        .await;
        let topics: String = (0..DESTINATIONS)
            .map(|number| format!("&topic[]=t{number}"))
            .collect();
        let path = format!("/api/v1/deliveries?status=pending&limit=1{topics}");
        eventually("everything is settled", BOUND, async || {
            let pending = self.server.api.get(&path).await;
            pending["models"].as_array().unwrap().is_empty().then_some(())
        })
        .await;
        ids
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_delivered() {
    let rounds = setting("XTASK_CRASH_ROUNDS", 3);
    let seed = setting("XTASK_CRASH_SEED", 1);
    println!("{rounds} rounds, seed {seed}");
    let mut random = Random(seed);
    let mut trial = Trial::start().await;
    for round in 1..=rounds {
        let compared = trial
            .round(round, 50 + usize::try_from(random.below(950)).unwrap())
            .await;
        println!("round {round}: {compared} plans unmoved");
    }
    let ids = trial.finish().await;

    let kills = usize::try_from(rounds).unwrap();
    let repeats: usize = trial.taken.lock().values().map(|times| times - 1).sum();
    println!(
        "{} events, {} requests, {repeats} repeats",
        ids.len(),
        trial.receiver.count()
    );
    let bound = repeats_per_kill() * kills;
    assert!(
        repeats <= bound,
        "{repeats} repeats, at most {bound} (seed {seed})"
    );
    for (id, attempts) in attempts_by_event(&trial.broken.requests()) {
        assert!(
            attempts <= MAX_ATTEMPTS + kills,
            "{attempts} attempts of {id} (seed {seed})"
        );
    }
}

fn attempts_by_event(requests: &[Received]) -> HashMap<&str, usize> {
    let mut attempts = HashMap::new();
    for request in requests {
        *attempts.entry(request.header("webhook-id")).or_default() += 1;
    }
    attempts
}
