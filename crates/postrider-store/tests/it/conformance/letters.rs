//! Dead letters: what they say, who finds them, and that they are counted right.

use postrider_core::delivery::{DeadReason, Plan};
use postrider_core::id::{DestinationKey, IdKind};
use postrider_core::outcome::{Category, ErrorKind};
use postrider_store::Store;
use postrider_store::letter::{DeadLetter, DeadLetterFilter, DeadLetterGroup, DeadLetterQuery};
use postrider_store::page::{Cursor, PageRequest, TimeRange};
use postrider_store::record::{AttemptQuery, NewDelivery, NewEvent, Next, Retried, Settlement};

use super::listing::{NEWEST, OLDEST, all_attempts, all_deliveries, texts};
use super::{
    Harness, NOW, at, bury, context, create, death, delivery_id, event, letters, newest_pending, pending,
    publish, settle, settlement, tenant,
};

pub(crate) async fn a_dead_letter_says_what_happened<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let published = publish(&*store, event("acme", &[key]), NOW).await;
    let delivery = newest_pending(&*store, key).await;
    let plan = Plan::first(at(5));
    let retry = Next::Retry(plan, delivery.progress.attempted(&delivery.plan));
    settle(&*store, vec![settlement(delivery, 503, retry, at(1))], at(1))
        .await
        .unwrap();
    let second = newest_pending(&*store, key).await;
    let dead = death(second, 401, "{\"error\":\n\"token expired\"}", at(9));
    settle(&*store, vec![dead], at(9)).await.unwrap();
    drop(store);
    let harness = harness.restart().await;
    let store = harness.store();
    let id = delivery_id(&*store, &delivery);
    let detail = store.dead_letter(&id).await.unwrap().unwrap();
    let kept = detail.letter.context.unwrap();
    let expected = DeadLetter {
        serial: detail.letter.serial,
        key: delivery.key,
        id: id.clone(),
        event_id: published.id.clone(),
        topic: "order.paid".to_owned(),
        tenant_id: "acme".to_owned(),
        destination: key,
        destination_id: "des_1".to_owned(),
        reason: DeadReason::PermanentFailure,
        category: Category::Http4xx,
        code: Some(401),
        error: Some("401: {\"error\": \"token expired\"}".to_owned()),
        attempts: 2,
        created_at: NOW,
        died_at: at(9),
        context: Some(kept),
    };
    assert_eq!(detail.letter, expected);
    assert_eq!(letters(&*store, DeadLetterFilter::default()).await, [expected]);
    assert_eq!(detail.event.id, published.id);
    assert_eq!(detail.event.data, r#"{"order":1}"#);
    let in_force = context(&format!("in force at {}", at(9).as_seconds()));
    assert_eq!(detail.context.as_ref(), Some(&in_force));
    assert_eq!(store.dead_context(kept).await.unwrap(), Some(in_force));
    assert_eq!(format!("{:?}", detail.context), "Some(***)");
    let attempts = AttemptQuery {
        delivery_ids: vec![id],
        ..all_attempts()
    };
    let page = store.attempts(attempts).await.unwrap();
    let statuses: Vec<_> = page.rows.iter().map(|row| row.recorded.status).collect();
    assert_eq!(statuses, [Some(503), Some(401)]);
    let other = store.ids().encode(IdKind::Delivery, 77);
    for unknown in ["", "dlv_x", &other, &published.id] {
        assert_eq!(store.dead_letter(unknown).await.unwrap(), None, "{unknown}");
    }
}

/// Five letters: 401 and 500 to `des_1`, a timeout to `des_2`, one for the disabled `des_3`, and one that expired after a 503.
async fn five(store: &dyn Store) -> [DestinationKey; 3] {
    let acme = tenant(store, "acme").await;
    let other = tenant(store, "other").await;
    let keys = [
        create(store, acme, "des_1").await,
        create(store, acme, "des_2").await,
        create(store, other, "des_3").await,
    ];
    bury(store, "acme", keys[0], 401, at(10)).await;
    bury(store, "acme", keys[0], 500, at(20)).await;
    publish(store, event("acme", &[keys[1]]), at(30)).await;
    let delivery = newest_pending(store, keys[1]).await;
    let mut timeout = death(delivery, 0, "", at(30));
    timeout.next = Next::Dead(DeadReason::ExhaustedRetries, Category::Timeout);
    if let Some(attempt) = &mut timeout.attempt {
        attempt.status = None;
        attempt.error = Some(ErrorKind::Timeout);
        attempt.detail = Some("No Answer within 15s".to_owned());
    }
    settle(store, vec![timeout], at(30)).await.unwrap();
    let disabled = NewEvent {
        topic: "order.lost".to_owned(),
        destinations: vec![NewDelivery {
            destination: keys[2],
            dead: Some(DeadReason::DestinationDisabled),
            discarded: false,
            context: Some(context("disabled")),
        }],
        ..event("other", &[])
    };
    publish(store, disabled, at(40)).await;
    publish(store, event("acme", &[keys[1]]), at(50)).await;
    let delivery = newest_pending(store, keys[1]).await;
    let retry = Next::Retry(Plan::first(at(51)), delivery.progress.attempted(&delivery.plan));
    settle(store, vec![settlement(delivery, 503, retry, at(50))], at(50))
        .await
        .unwrap();
    let expired = Settlement {
        delivery: newest_pending(store, keys[1]).await,
        attempt: None,
        next: Next::Dead(DeadReason::Expired, Category::NotAttempted),
        context: None,
    };
    settle(store, vec![expired], at(60)).await.unwrap();
    keys
}

pub(crate) async fn filters_of_dead_letters<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    five(&*store).await;
    let all = letters(&*store, DeadLetterFilter::default()).await;
    let errors: Vec<_> = all.iter().map(|letter| letter.error.as_deref()).collect();
    assert_eq!(
        errors,
        [
            Some("401: no"),
            Some("500: no"),
            Some("timeout: No Answer within 15s"),
            None,
            Some("503: answer")
        ]
    );
    assert_eq!(
        (all[4].reason, all[4].category, all[4].code),
        (DeadReason::Expired, Category::Http5xx, Some(503)),
        "told by the last attempt that was made"
    );
    assert_eq!(all[3].category, Category::NotAttempted);
    let no = DeadLetterFilter::default;
    let died = |gte: Option<u64>, lt: Option<u64>| TimeRange {
        gte: gte.map(at),
        lt: lt.map(at),
        ..TimeRange::default()
    };
    let cases: Vec<(DeadLetterFilter, &[usize])> = vec![
        (
            DeadLetterFilter {
                tenant_ids: texts(&["acme"]),
                ..no()
            },
            &[0, 1, 2, 4],
        ),
        (
            DeadLetterFilter {
                tenant_ids: texts(&["nobody"]),
                ..no()
            },
            &[],
        ),
        (
            DeadLetterFilter {
                destination_ids: texts(&["des_2", "des_3"]),
                ..no()
            },
            &[2, 3, 4],
        ),
        (
            DeadLetterFilter {
                tenant_ids: texts(&["other"]),
                destination_ids: texts(&["des_2"]),
                ..no()
            },
            &[],
        ),
        (
            DeadLetterFilter {
                topics: texts(&["order.lost"]),
                ..no()
            },
            &[3],
        ),
        (
            DeadLetterFilter {
                reasons: vec![DeadReason::Expired, DeadReason::DestinationDisabled],
                ..no()
            },
            &[3, 4],
        ),
        (
            DeadLetterFilter {
                categories: vec![Category::Http5xx],
                ..no()
            },
            &[1, 4],
        ),
        (
            DeadLetterFilter {
                codes: vec![401, 503],
                ..no()
            },
            &[0, 4],
        ),
        (
            DeadLetterFilter {
                text: Some("no answer".to_owned()),
                ..no()
            },
            &[2],
        ),
        (
            DeadLetterFilter {
                text: Some("NO".to_owned()),
                ..no()
            },
            &[0, 1, 2],
        ),
        (
            DeadLetterFilter {
                died: died(Some(20), Some(40)),
                ..no()
            },
            &[1, 2],
        ),
        (
            DeadLetterFilter {
                died: died(None, Some(10)),
                ..no()
            },
            &[],
        ),
        (
            DeadLetterFilter {
                ids: vec![all[4].id.clone(), all[1].id.clone(), "dlv_x".to_owned()],
                ..no()
            },
            &[1, 4],
        ),
        (
            DeadLetterFilter {
                ids: texts(&["dlv_x"]),
                ..no()
            },
            &[],
        ),
        (
            DeadLetterFilter {
                ids: vec![all[4].id.clone(), all[1].id.clone()],
                codes: vec![500],
                ..no()
            },
            &[1],
        ),
    ];
    for (filter, expected) in cases {
        let found: Vec<_> = letters(&*store, filter.clone())
            .await
            .iter()
            .map(|letter| letter.serial)
            .collect();
        let wanted: Vec<_> = expected.iter().map(|&n| all[n].serial).collect();
        assert_eq!(found, wanted, "{filter:?}");
        let counted = store.count_dead_letters(filter.clone(), i64::MAX).await.unwrap();
        assert_eq!(counted, expected.len() as u64, "{filter:?}");
        let upper = all[2].serial;
        let counted = store.count_dead_letters(filter.clone(), upper).await.unwrap();
        let count = expected.iter().filter(|&&n| n <= 2).count() as u64;
        assert_eq!(counted, count, "up to the third: {filter:?}");
    }
}

pub(crate) async fn a_summary_counts_groups<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let [first, second, third] = five(&*store).await;
    bury(&*store, "acme", first, 401, at(3_700)).await;
    bury(&*store, "acme", first, 401, at(3_800)).await;
    let group =
        |(destination, id): (DestinationKey, &str), category, code, count, died: (u64, u64), last_hour| {
            DeadLetterGroup {
                tenant_id: if id == "des_3" { "other" } else { "acme" }.to_owned(),
                destination,
                destination_id: id.to_owned(),
                category,
                code,
                count,
                first_died_at: at(died.0),
                last_died_at: at(died.1),
                last_hour,
            }
        };
    let expected = [
        group((first, "des_1"), Category::Http4xx, Some(401), 3, (10, 3_800), 2),
        group((first, "des_1"), Category::Http5xx, Some(500), 1, (20, 20), 0),
        group((second, "des_2"), Category::Http5xx, Some(503), 1, (60, 60), 0),
        group((second, "des_2"), Category::Timeout, None, 1, (30, 30), 0),
        group((third, "des_3"), Category::NotAttempted, None, 1, (40, 40), 0),
    ];
    let summary = |filter| store.dead_letter_summary(filter, at(4_000));
    assert_eq!(summary(DeadLetterFilter::default()).await.unwrap(), expected);
    let filter = DeadLetterFilter {
        codes: vec![401],
        ..DeadLetterFilter::default()
    };
    assert_eq!(summary(filter).await.unwrap(), expected[..1]);
}

pub(crate) async fn pages_are_exact_while_letters_come_and_go<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for base in [NEWEST, OLDEST] {
        let mut ids = Vec::new();
        for n in 0..60 {
            bury(&*store, "acme", key, 500 + n % 2, at(u64::from(n))).await;
        }
        let there = letters(&*store, DeadLetterFilter::default()).await;
        let mut cursor = Cursor::Start;
        let mut gone = Vec::new();
        loop {
            let query = DeadLetterQuery {
                filter: DeadLetterFilter {
                    codes: vec![500],
                    ..DeadLetterFilter::default()
                },
                page: PageRequest {
                    limit: 4,
                    cursor,
                    ..base
                },
            };
            let page = store.dead_letters(query).await.unwrap();
            ids.extend(page.rows.iter().map(|letter| letter.serial));
            // One that was shown, one that may be ahead, and a new one.
            let last = page.rows.last().unwrap();
            let ahead = there
                .iter()
                .find(|letter| !ids.contains(&letter.serial) && !gone.contains(&letter.serial));
            for letter in [Some(last), ahead].into_iter().flatten() {
                let retried = store.retry(None, &letter.event_id, key, at(100)).await.unwrap();
                assert_eq!(retried, Retried::Scheduled);
                gone.push(letter.serial);
            }
            bury(&*store, "acme", key, 501, at(200)).await;
            match page.next {
                Some(next) => cursor = Cursor::After(next),
                None => break,
            }
        }
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ids.len(), "none is shown twice");
        let left: Vec<_> = there
            .iter()
            .filter(|letter| letter.code == Some(500) && !gone.contains(&letter.serial))
            .map(|letter| letter.serial)
            .collect();
        assert!(
            left.iter().all(|serial| ids.contains(serial)),
            "none that stayed is missed"
        );
        let upper = store.last_dead_letter().await.unwrap();
        store
            .purge_dead_letters(DeadLetterFilter::default(), 0, upper, 1_000)
            .await
            .unwrap();
    }
}

pub(crate) async fn every_way_to_and_from_dead_is_counted<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let counts = async || {
        let stats = store.stats(NOW).await.unwrap();
        let listed = store
            .count_dead_letters(DeadLetterFilter::default(), i64::MAX)
            .await
            .unwrap();
        assert_eq!(stats.dead, listed);
        (stats.pending, stats.dead)
    };
    let settled = bury(&*store, "acme", key, 404, at(1)).await;
    let mut at_accept = event("acme", &[key]);
    at_accept.destinations[0].dead = Some(DeadReason::DestinationDisabled);
    let disabled = publish(&*store, at_accept, at(2)).await;
    assert_eq!(counts().await, (0, 2));
    let late = vec![settlement(settled, 200, Next::Succeeded, at(3))];
    settle(&*store, late, at(3)).await.unwrap();
    assert_eq!(counts().await, (0, 1), "it had arrived");
    store.retry(None, &disabled.id, key, at(4)).await.unwrap();
    assert_eq!(counts().await, (1, 0));
    let again = newest_pending(&*store, key).await;
    settle(&*store, vec![death(again, 404, "", at(5))], at(5))
        .await
        .unwrap();
    assert_eq!(counts().await, (0, 1));
    publish(&*store, event("acme", &[key]), at(6)).await;
    publish(&*store, event("acme", &[key]), at(6)).await;
    store.delete_destination(acme, key, at(7)).await.unwrap();
    assert_eq!(counts().await, (0, 1), "dead letters outlive their destination");
    let ended = store.stats(NOW).await.unwrap().ended;
    assert_eq!(
        (
            ended.canceled,
            ended.dead(DeadReason::DestinationDisabled),
            ended.dead(DeadReason::PermanentFailure)
        ),
        (2, 1, 0),
        "what the engine settled is not counted by the store"
    );
    drop(store);
    let harness = harness.restart().await;
    assert_eq!(harness.store().stats(NOW).await.unwrap().dead, 1);
}

pub(crate) async fn a_purge_removes_what_there_was<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let mut buried = Vec::new();
    for n in 0..10 {
        buried.push(bury(&*store, "acme", key, 500 + n % 2, at(u64::from(n))).await);
    }
    let filter = DeadLetterFilter {
        codes: vec![500],
        ..DeadLetterFilter::default()
    };
    let counted = store.count_dead_letters(filter.clone(), i64::MAX).await.unwrap();
    assert_eq!(counted, 5);
    let upper = store.last_dead_letter().await.unwrap();
    let later = bury(&*store, "acme", key, 500, at(20)).await;
    assert!(store.last_dead_letter().await.unwrap() > upper);
    let (mut removed, mut after, mut steps) = (0, 0, 0);
    loop {
        let purged = store
            .purge_dead_letters(filter.clone(), after, upper, 2)
            .await
            .unwrap();
        removed += purged.removed;
        steps += 1;
        match purged.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!((removed, steps), (5, 3));
    let left: Vec<_> = letters(&*store, DeadLetterFilter::default())
        .await
        .iter()
        .map(|letter| letter.key)
        .collect();
    let odd = buried.iter().skip(1).step_by(2).chain([&later]);
    assert_eq!(left, odd.map(|delivery| delivery.key).collect::<Vec<_>>());
    let gone = delivery_id(&*store, &buried[0]);
    assert_eq!(store.delivery(&gone).await.unwrap(), None);
    let attempts = store.attempts(all_attempts()).await.unwrap();
    assert_eq!(attempts.rows.len(), 6, "one for each that is left");
    let deliveries = store.deliveries(all_deliveries()).await.unwrap();
    assert_eq!(deliveries.rows.len(), 6);
    assert!(
        store.payload(buried[0].event).await.unwrap().is_some(),
        "the event stays"
    );
    assert_eq!(store.stats(NOW).await.unwrap().dead, 6);
    let late = vec![settlement(buried[0], 200, Next::Succeeded, at(30))];
    settle(&*store, late, at(30)).await.unwrap();
    assert_eq!(store.delivery(&gone).await.unwrap(), None, "gone is gone");
    assert_eq!(pending(&*store, key).await, []);
}
