//! What protects receivers, with the real engine: over restarts, in seconds and in days.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider::directory::{Rules, Shares};
use postrider::engine::EngineConfig;
use postrider_core::breaker::BreakerState;
use postrider_core::delivery::{DeadReason, DeliveryStatus, WaitCause};
use postrider_core::dispatcher::{DispatcherConfig, Protection, Share, Standing};
use postrider_core::id::DestinationKey;

use super::HOUR;
use super::world::{Behaviour, START, TENANT, World};

const DAY: Duration = Duration::from_secs(86_400);

/// The destination gets so many requests a second from now on.
async fn limit(world: &World, destination: &str, per_second: &str) {
    let limit = ("rate_limit_per_second".to_owned(), per_second.to_owned());
    let edit = |record: &mut postrider_store::record::Destination| {
        record.config.extend([limit]);
        Vec::new()
    };
    let now = world.clock.now();
    world
        .directory
        .change(TENANT, destination, now, edit)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_an_open_breaker_open_and_its_probe_single() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let down = world.destination("down", Behaviour::Hangs, None).await;
    world.publish(&[down], 40).await;
    // Four hang for 15 s, then two more: the fifth failure opens it after 30 s, for 30 to 36 s.
    tokio::time::sleep(Duration::from_secs(40)).await;
    let before = world.control().view(down).await.unwrap();
    assert_eq!(before.standing, Standing::Open, "{before:?}");
    let until = before.until.unwrap();
    let kept = world.store.protections().await.unwrap();
    let kept_until = |(_, kept): &(_, Protection)| kept.breaker.as_ref().map(|breaker| breaker.until);
    assert_eq!(kept.iter().map(kept_until).collect::<Vec<_>>(), [Some(until)]);
    world.stop(Duration::ZERO).await;
    let sent = world.seen(down).len();
    world.start();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let after = world.control().view(down).await.unwrap();
    assert_eq!((after.standing, after.until), (Standing::Open, Some(until)));
    assert_eq!(after.opening, before.opening);
    assert_eq!(after.failures, 6, "that of one that was out when it opened, too");
    let left = until.since(world.clock.now());
    tokio::time::sleep(left.saturating_sub(Duration::from_millis(5))).await;
    assert_eq!(world.seen(down).len(), sent, "open means no traffic");
    // The probe hangs for 15 s; everything else waits for it.
    tokio::time::sleep(Duration::from_secs(14)).await;
    let seen = world.seen(down);
    assert_eq!(seen.len(), sent + 1, "one probe");
    assert_eq!(seen[sent].at, until);
    let probing = world.control().view(down).await.unwrap();
    assert_eq!((probing.standing, probing.in_flight), (Standing::Probing, 1));
}

/// Four start at once; the first is answered with 429 after 20 ms and asks for 600 s. In whole seconds, rounded up, that ends
/// 601 s after the start.
async fn held_for_ten_minutes(world: &World) -> DestinationKey {
    let limits = Behaviour::LimitsOnce(0, Duration::from_secs(600));
    let held = world.destination("held", limits, None).await;
    world.publish(&[held], 40).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let view = world.control().view(held).await.unwrap();
    assert_eq!(view.standing, Standing::Held, "{view:?}");
    assert_eq!(view.until, Some(START.plus(Duration::from_millis(600_020))));
    assert_eq!(world.seen(held).len(), 4);
    held
}

/// Nothing is sent while it is held, and then one, two, three at a time, since four were out before.
async fn is_held_to_the_end(world: &World, held: DestinationKey) {
    let end = START.plus(Duration::from_secs(601));
    let view = world.control().view(held).await.unwrap();
    assert_eq!((view.standing, view.until), (Standing::Held, Some(end)));
    let left = end.since(world.clock.now());
    tokio::time::sleep(left.saturating_sub(Duration::from_millis(5))).await;
    assert_eq!(world.seen(held).len(), 4, "held means no traffic");
    world.settle(HOUR).await;
    let seen = world.seen(held);
    let after = |n: usize| seen[n].at.since(end).as_millis();
    assert_eq!(
        [after(4), after(5), after(6), after(7), after(9), after(10)],
        [0, 20, 20, 40, 40, 60],
        "one, two, three"
    );
    assert_eq!(world.store.protections().await.unwrap(), vec![], "and forgotten");
    let written = world.held.protections_written.load(Ordering::SeqCst);
    assert_eq!(written, 2, "one write for a hold, one to forget it");
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_a_hold_for_every_delivery() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let held = held_for_ten_minutes(&world).await;
    world.stop(Duration::ZERO).await;
    world.start();
    tokio::time::sleep(Duration::from_millis(10)).await;
    is_held_to_the_end(&world, held).await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_is_started_again_keeps_a_hold_for_every_delivery() {
    let world = World::new(1, EngineConfig::default()).await;
    let held = held_for_ten_minutes(&world).await;
    let works = Behaviour::Works(Duration::from_millis(20));
    let works = world.destination("works", works, None).await;
    world.held.dies_once.store(true, Ordering::SeqCst);
    world.publish(&[works], 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.seen(works).len(), 2, "its result died with the loop");
    is_held_to_the_end(&world, held).await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_somebody_ended_is_not_there_after_a_restart() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let held = held_for_ten_minutes(&world).await;
    world.stop(Duration::ZERO).await;
    world.start();
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.control().reset(held).await.unwrap();
    world.stop(Duration::ZERO).await;
    assert_eq!(world.store.protections().await.unwrap(), vec![]);
    world.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        world.seen(held).len(),
        40,
        "all but the second of the one that is to wait"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_its_owner_shortens_is_as_short_after_a_restart() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let held = held_for_ten_minutes(&world).await;
    let edit = |record: &mut postrider_store::record::Destination| {
        record.retry_policy = Some(r#"{"retry_after_max":"30s"}"#.to_owned());
        Vec::new()
    };
    let now = world.clock.now();
    assert_eq!(now, START.plus(Duration::from_secs(10)));
    world.directory.change(TENANT, "held", now, edit).await.unwrap();
    world.control().changed(held, false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let end = START.plus(Duration::from_secs(40));
    let kept = world.store.protections().await.unwrap();
    assert_eq!(kept[0].1.hold_until, Some(end), "written at once");
    world.stop(Duration::ZERO).await;
    world.start();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let view = world.control().view(held).await.unwrap();
    assert_eq!((view.standing, view.until), (Standing::Held, Some(end)));
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(world.seen(held)[4].at, end, "the first after four");
}

#[tokio::test(start_paused = true)]
async fn the_lane_of_a_deleted_destination_goes_although_it_last_failed() {
    let world = World::new(1, EngineConfig::default()).await;
    let open = world.destination("open", Behaviour::Status(500), None).await;
    let hangs = world.destination("hangs", Behaviour::Hangs, None).await;
    let limits = Behaviour::LimitsOnce(0, Duration::from_secs(3_600));
    let held = world.destination("held", limits, None).await;
    world.publish(&[open, hangs, held], 20).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (census, _) = world.control().census(Vec::new()).await.unwrap();
    assert_eq!(
        (census.breakers, census.held),
        ([2, 1, 0], 1),
        "and one has requests out"
    );
    let now = world.clock.now();
    for id in ["open", "hangs", "held"] {
        world.directory.delete(TENANT, id, now).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (census, _) = world.control().census(Vec::new()).await.unwrap();
    assert_eq!(
        (census.breakers, census.held),
        ([3, 0, 0], 0),
        "no trouble is left"
    );
    // The requests that are out hang for 15 s.
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(world.control().ranks().await.unwrap(), []);
    assert_eq!(world.store.protections().await.unwrap(), vec![]);
}

/// Four failures open no breaker and tell nobody.
#[tokio::test(start_paused = true)]
async fn the_beginning_of_failures_an_hour_ago_outlives_a_restart() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let policy = r#"{"immediate": {"retries": 0}, "backoff": {"schedule": ["30m"]}, "jitter": "none"}"#;
    let fails = world
        .destination("fails", Behaviour::Status(500), Some(policy))
        .await;
    world.publish(&[fails], 1).await;
    tokio::time::sleep(HOUR - Duration::from_secs(60)).await;
    assert_eq!(
        world.store.protections().await.unwrap(),
        vec![],
        "after half an hour"
    );
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.held.protections_written.load(Ordering::SeqCst), 1);
    world.stop(Duration::ZERO).await;
    world.start();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let view = world.control().view(fails).await.unwrap();
    assert_eq!(view.failing_since, Some(START), "{view:?}");
    assert_eq!(view.breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_closed_is_not_open_after_a_restart() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let back = world
        .destination("back", Behaviour::Out(500, Duration::from_secs(5)), None)
        .await;
    world.publish(&[back], 20).await;
    world.settle(HOUR).await;
    assert_eq!(world.store.protections().await.unwrap(), vec![]);
    world.stop(Duration::ZERO).await;
    world.start();
    let view = world.control().view(back).await.unwrap();
    assert_eq!((view.standing, view.failures), (Standing::Idle, 0));
}

#[tokio::test(start_paused = true)]
async fn somebody_can_close_a_breaker() {
    let world = World::new(1, EngineConfig::default()).await;
    let fixed = world
        .destination("fixed", Behaviour::Out(500, Duration::from_secs(5)), None)
        .await;
    world.publish(&[fixed], 20).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let open = world.control().view(fixed).await.unwrap();
    assert_eq!(open.standing, Standing::Open, "{open:?}");
    let worst = world.control().worst(5).await.unwrap();
    assert_eq!(worst[0].destination, fixed);
    let reset = world.control().reset(fixed).await.unwrap();
    assert_eq!((reset.opening, reset.failures), (None, 0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = world.seen(fixed);
    assert!(
        seen.iter()
            .any(|one| one.at >= START.plus(Duration::from_secs(6))),
        "it flows at once"
    );
    assert_eq!(world.store.protections().await.unwrap(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn a_live_event_does_not_stand_behind_an_old_backlog() {
    let world = World::new(1, EngineConfig::default()).await;
    let out = Behaviour::Out(500, Duration::from_secs(60));
    let back = world.destination("back", out, None).await;
    limit(&world, "back", "50").await;
    world.publish(&[back], 5_000).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.control().reset(back).await.unwrap();
    // While the backlog takes 100 s at 50 a second, four events a second come in.
    let began = world.clock.now();
    for _ in 0..200 {
        world.publish(&[back], 1).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let pending = world.statuses().await[&DeliveryStatus::Pending];
    assert!(
        (1_000..4_000).contains(&pending),
        "{pending} of the backlog are left"
    );
    let live: Vec<_> = world
        .seen(back)
        .iter()
        .filter(|seen| seen.delivery.created_at() >= began)
        .map(|seen| seen.at.since(seen.delivery.created_at()))
        .collect();
    let longest = live.iter().max().unwrap();
    assert!(live.len() >= 199, "{} went out", live.len());
    assert!(*longest <= Duration::from_millis(100), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_ten_a_second_is_never_more_than_eleven_in_any_second() {
    let world = World::new(1, EngineConfig::default()).await;
    let limited = world
        .destination("limited", Behaviour::Works(Duration::from_millis(5)), None)
        .await;
    limit(&world, "limited", "10").await;
    world.publish(&[limited], 1_000).await;
    world.settle(HOUR).await;
    let seen = world.seen(limited);
    assert_eq!(seen.len(), 1_000);
    for (n, first) in seen.iter().enumerate() {
        let end = first.at.plus(Duration::from_secs(1));
        let within = seen[n..].iter().take_while(|one| one.at < end).count();
        assert!(within <= 11, "{within} in the second from {}", first.at);
    }
    let took = seen[999].at.since(seen[0].at);
    assert!(took <= Duration::from_secs(101), "and it is used: {took:?}");
}

/// Case 145: what is said of it carries code, body excerpt and since when.
#[tokio::test(start_paused = true)]
async fn five_days_of_nothing_but_failure_disable_a_destination() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let gone = world
        .destination("gone", Behaviour::Status(500), Some("\"three_tier\""))
        .await;
    let fine = world
        .destination("fine", Behaviour::Works(Duration::from_millis(5)), None)
        .await;
    for day in 0..6 {
        assert!(!world.directory.target(gone).unwrap().disabled, "day {day}");
        world.publish(&[gone, fine], 1).await;
        tokio::time::sleep(DAY - HOUR).await;
        // Restarts forget none of it.
        world.stop(Duration::ZERO).await;
        world.start();
    }
    let entry = world.directory.destination(TENANT, "gone").unwrap();
    let disabled = entry.record.disabled.clone().unwrap();
    let age = disabled.at.since(START);
    assert!((DAY * 5..DAY * 5 + HOUR * 2).contains(&age), "{age:?}");
    let reason = disabled.reason;
    assert!(
        reason.starts_with(&format!("nothing but failures since {START}, ")),
        "{reason}"
    );
    assert!(
        reason.ends_with(" in a row; the last: 500 \"out of order\""),
        "{reason}"
    );
    assert!(!world.directory.target(fine).unwrap().disabled);
}

#[tokio::test(start_paused = true)]
async fn an_ordered_stop_keeps_failures_in_a_row() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let fails = world.destination("fails", Behaviour::Status(404), None).await;
    world.publish(&[fails], 3).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.control().view(fails).await.unwrap();
    assert_eq!(before.failures, 3);
    world.stop(Duration::from_secs(1)).await;
    world.start();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let after = world.control().view(fails).await.unwrap();
    assert_eq!((after.failures, after.failing_since), (3, before.failing_since));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_whose_quota_is_used_up_is_held_where_the_policy_says_so() {
    let world = World::new(1, EngineConfig::default()).await;
    let minute = Duration::from_secs(60);
    let quota = Behaviour::Quota(10, minute);
    let policy = r#"{"rate_limit_fields": "hold"}"#;
    let held = world.destination("held", quota.clone(), Some(policy)).await;
    let ignored = world.destination("ignored", quota, None).await;
    world.publish(&[held, ignored], 30).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.seen(ignored).len(), 30, "off by default");
    let first = world.seen(held).len();
    assert!(
        (10..=18).contains(&first),
        "ten, and what was out when the tenth was answered: {first}"
    );
    let view = world.control().view(held).await.unwrap();
    assert_eq!(view.standing, Standing::Held);
    world.settle(HOUR).await;
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 60);
    let seen = world.seen(held);
    let pause = seen[first].at.since(seen[first - 1].at);
    assert!(pause >= minute, "{pause:?}");
}

/// Case 143: what was pending when a destination was disabled waits, what comes meanwhile is dead or discarded as configured;
/// nothing is sent, and nothing is dropped silently.
#[tokio::test(start_paused = true)]
async fn case_143_events_for_a_disabled_destination_are_dead_letters_or_discarded() {
    let world = World::new(1, EngineConfig::default()).await;
    let out = Behaviour::Out(500, Duration::from_secs(2));
    let discard = r#"{"on_disabled": "discard", "immediate": {"retries": 0}, "backoff": {"base": "30s"}, "jitter": "none"}"#;
    let keep = discard.replace("discard", "dead_letter");
    let mut keys = Vec::new();
    for (id, policy) in [("discards", discard), ("keeps", &*keep)] {
        let key = world.destination(id, out.clone(), Some(policy)).await;
        world.publish(&[key], 1).await;
        keys.push(key);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for key in &keys {
        let now = world.clock.now();
        world.directory.disable(*key, "by hand".to_owned(), now).await;
    }
    world.publish_by_directory(3).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(
        world.seen(keys[0]).len() + world.seen(keys[1]).len(),
        2,
        "never sent while disabled"
    );
    let statuses = |deliveries: &[postrider_store::record::Delivery], id: &str| {
        let mut statuses: Vec<_> = deliveries
            .iter()
            .filter(|one| one.destination_id == id)
            .map(|one| (one.status, one.reason))
            .collect();
        statuses.sort();
        statuses
    };
    let deliveries = world.deliveries().await;
    let dead = (DeliveryStatus::Dead, Some(DeadReason::DestinationDisabled));
    let canceled = (DeliveryStatus::Canceled, None);
    let waiting = (DeliveryStatus::Pending, None);
    assert_eq!(statuses(&deliveries, "keeps"), [waiting, dead, dead, dead]);
    assert_eq!(
        statuses(&deliveries, "discards"),
        [waiting, canceled, canceled, canceled]
    );
    let ended = world.store.stats(world.clock.now()).await.unwrap().ended;
    assert_eq!(ended.canceled, 3, "counted");
    for id in ["discards", "keeps"] {
        let enable = |record: &mut postrider_store::record::Destination| {
            record.disabled = None;
            Vec::new()
        };
        let now = world.clock.now();
        world.directory.change(TENANT, id, now, enable).await.unwrap();
    }
    world.settle(HOUR).await;
    assert_eq!(
        world.statuses().await[&DeliveryStatus::Succeeded],
        2,
        "what waited is sent"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tenants_ten_a_second_are_never_more_than_eleven_over_all_its_destinations() {
    let share = Share {
        rate_limit: NonZeroU32::new(10),
        ..Share::default()
    };
    let shares = Shares {
        special: BTreeMap::from([(TENANT.to_owned(), share)]),
        ..Shares::default()
    };
    let rules = Rules {
        shares,
        ..Rules::default()
    };
    let world = World::with_rules(1, EngineConfig::default(), rules).await;
    let mut keys = Vec::new();
    for n in 0..20 {
        let works = Behaviour::Works(Duration::from_millis(5));
        keys.push(world.destination(&format!("d{n}"), works, None).await);
    }
    world.publish(&keys, 50).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waits = world.control().view(keys[7]).await.unwrap();
    assert_eq!(waits.standing, Standing::RateLimited);
    assert!(waits.waits_for_tenant);
    world.settle(HOUR).await;
    let seen = world.script.seen.lock().clone();
    assert_eq!(seen.len(), 1_000);
    for (n, first) in seen.iter().enumerate() {
        let end = first.at.plus(Duration::from_secs(1));
        let within = seen[n..].iter().take_while(|one| one.at < end).count();
        assert!(within <= 11, "{within} in the second from {}", first.at);
    }
    let took = seen[999].at.since(seen[0].at);
    assert!(took <= Duration::from_secs(101), "and it is used: {took:?}");
    let causes: Vec<_> = world
        .attempts()
        .await
        .iter()
        .map(|one| one.recorded.waited_for)
        .collect();
    let limited = causes
        .iter()
        .filter(|cause| **cause == Some(WaitCause::RateLimit))
        .count();
    assert!(limited >= 990, "and each says what it waited for: {limited}");
}

/// 40 hang, and there are 16 slots, of which slow receivers may have 14. The first 16 requests take all until they time out; then
/// the one that has answered before goes on at once, beside all the others that hang.
#[tokio::test(start_paused = true)]
async fn more_that_hang_than_slots_delay_one_that_answers_by_one_timeout() {
    let config = EngineConfig {
        dispatcher: DispatcherConfig {
            max_in_flight: 16,
            ..DispatcherConfig::default()
        },
        ..EngineConfig::default()
    };
    let world = World::new(1, config).await;
    let works = Behaviour::Works(Duration::from_millis(20));
    let works = world.destination("works", works, None).await;
    world.publish(&[works], 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut hanging = Vec::new();
    for number in 0..40 {
        let name = format!("hangs-{number}");
        hanging.push(world.destination(&name, Behaviour::Hangs, None).await);
    }
    let trouble = world.clock.now();
    world.publish(&hanging, 5).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.publish(&[works], 5).await;
    tokio::time::sleep(Duration::from_secs(19)).await;
    let out: usize = world.script.in_flight.lock().values().map(|(now, _)| now).sum();
    assert_eq!(out, 14);
    world.publish(&[works], 5).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = world.seen(works).into_iter().skip(1);
    let at: Vec<_> = seen.map(|seen| seen.at.since(trouble).as_millis()).collect();
    assert_eq!(
        at,
        [
            15_000, 15_020, 15_040, 15_060, 15_080, 20_000, 20_020, 20_040, 20_060, 20_080
        ],
        "one at a time, its share"
    );
}
