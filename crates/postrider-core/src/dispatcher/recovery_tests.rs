//! A receiver that works on so many requests at once and refuses the rest, with a backlog before it.

use std::collections::BTreeMap;

use super::*;

const CAPACITY: usize = 50;
const BACKLOG: i64 = 20_000;

/// What such a receiver saw.
#[derive(Debug, Default)]
struct Saw {
    served: usize,
    refused: usize,
    longest_over: Duration,
    took: Duration,
}

/// Sends the whole backlog once; each request takes 15 to 25 ms, different for each `seed`.
fn drain(dispatcher: &mut Dispatcher<Bytes>, seed: u64) -> Saw {
    let mut saw = Saw::default();
    let mut out = BTreeMap::new();
    let mut over_since = None;
    let mut now = START;
    loop {
        while let Some(delivery) = started(dispatcher.next_action(now)) {
            let key = delivery.key;
            let status = if out.len() < CAPACITY { 200 } else { 503 };
            let latency = Duration::from_micros(15_000 + hash::mix(seed, key.0.unsigned_abs()) % 10_000);
            out.insert((now.plus(latency), key), (delivery, status, latency));
            if out.len() > CAPACITY {
                over_since.get_or_insert(now);
            }
        }
        let Some(((then, _), (delivery, status, latency))) = out.pop_first() else {
            break;
        };
        now = then;
        if out.len() == CAPACITY
            && let Some(since) = over_since.take()
        {
            saw.longest_over = saw.longest_over.max(now.since(since));
        }
        saw.served += usize::from(status == 200);
        saw.refused += usize::from(status == 503);
        let finished = Finished {
            latency,
            ..answered(delivery, status)
        };
        let learned = dispatcher.finished(finished, now);
        assert_eq!(
            learned.change,
            Change::None,
            "seed {seed}: it is busy, not broken"
        );
        dispatcher.settled([(delivery.destination, delivery.key)], now);
    }
    saw.took = now.since(START);
    saw
}

#[test]
fn a_receiver_of_little_capacity_is_kept_busy_and_never_overrun_for_long() {
    for seed in 0..20 {
        let mut dispatcher = Dispatcher::new(DispatcherConfig {
            max_lane: 32_768,
            ..DispatcherConfig::default()
        });
        for key in 0..BACKLOG {
            dispatcher.accepted(pending(key, 1, START), None, START);
        }
        let saw = drain(&mut dispatcher, seed);
        // 50 at once, 20 ms each: 2,500 a second, so 8 s for all of it.
        assert!(
            saw.took * 10 < Duration::from_secs(8) * 11,
            "seed {seed}: within a tenth of its capacity: {saw:?}"
        );
        assert!(
            saw.longest_over <= Duration::from_millis(25),
            "seed {seed}: one round trip: {saw:?}"
        );
        assert!(saw.refused * 25 < saw.served, "seed {seed}: {saw:?}");
    }
}
