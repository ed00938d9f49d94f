//! Alerts: kept over a restart, read in pages, and not more than there may be; and the levels that some are about.

use postrider_core::alert::{AlertKind, AlertState, Severity};
use postrider_core::delivery::DeadReason;
use postrider_core::id::{AlertKey, DestinationKey};
use postrider_store::Store;
use postrider_store::alerts::{Alert, AlertQuery, AlertSubject, DeadLetterLevel, MAX_ALERTS};
use postrider_store::page::{Cursor, Direction, PageRequest};

use super::{Harness, at, create, event, publish, tenant};

/// Raised so many seconds after the start.
fn raised(kind: AlertKind, seconds: u64, subject: Option<(&str, &str)>) -> Alert {
    Alert {
        key: AlertKey(0),
        kind,
        subject: subject.map(|(tenant_id, destination_id)| AlertSubject {
            destination: DestinationKey(7),
            tenant_id: tenant_id.to_owned(),
            destination_id: destination_id.to_owned(),
        }),
        severity: Severity::Warning,
        since: at(seconds),
        updated_at: at(seconds),
        cleared_at: None,
        value: 120,
        threshold: 100,
        text: "so it is".to_owned(),
        todo: "do this".to_owned(),
        version: 1,
        published: 0,
    }
}

fn cleared(alert: &Alert, seconds: u64) -> Alert {
    Alert {
        cleared_at: Some(at(seconds)),
        updated_at: at(seconds),
        severity: Severity::Critical,
        value: 400,
        version: 2,
        ..alert.clone()
    }
}

fn query(limit: usize, cursor: Cursor) -> AlertQuery {
    AlertQuery {
        kinds: Vec::new(),
        state: None,
        tenant_ids: Vec::new(),
        destination_ids: Vec::new(),
        page: PageRequest {
            limit,
            direction: Direction::Descending,
            cursor,
        },
    }
}

async fn keep(store: &dyn Store, alert: Alert, seconds: u64) -> Alert {
    let keys = store.keep_alerts(vec![alert.clone()], at(seconds)).await.unwrap();
    Alert {
        key: keys[0],
        ..alert
    }
}

pub(crate) async fn an_alert_outlives_a_restart_until_it_is_over_and_published<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let overall = keep(&*store, raised(AlertKind::DeadLetterDepth, 5, None), 5).await;
    let one = raised(AlertKind::BreakerOpen, 6, Some(("acme", "des_1")));
    let one = keep(&*store, one, 6).await;
    assert!(overall.key.0 > 0 && one.key > overall.key);
    drop(store);
    let harness = harness.restart().await;
    let store = harness.store();
    assert_eq!(store.open_alerts().await.unwrap(), [overall.clone(), one.clone()]);

    let over = keep(&*store, cleared(&overall, 9), 9).await;
    store.note_published(vec![(one.key, 1)]).await.unwrap();
    store.note_published(vec![(one.key, 0)]).await.unwrap();
    let published = Alert { published: 1, ..one };
    assert_eq!(over.key, overall.key, "replaced, not added");
    assert_eq!(
        store.open_alerts().await.unwrap(),
        [over.clone(), published.clone()],
        "over, but its end is not published"
    );
    let told = Alert { published: 2, ..over };
    store.keep_alerts(vec![told.clone()], at(10)).await.unwrap();
    assert_eq!(
        store.open_alerts().await.unwrap(),
        std::slice::from_ref(&published)
    );
    let page = store.alerts(query(10, Cursor::Start)).await.unwrap();
    assert_eq!(page.rows, [published, told]);
}

pub(crate) async fn alerts_are_listed_with_those_that_fire_first<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let mut kept = Vec::new();
    for n in 0..6 {
        let subject = [None, Some(("acme", "des_1")), Some(("beta", "des_2"))][n % 3];
        let kind = [
            AlertKind::OldestDueAge,
            AlertKind::BreakerOpen,
            AlertKind::RetriesExhausted,
        ][n % 3];
        let n = u64::try_from(n).unwrap();
        kept.push(keep(&*store, raised(kind, n, subject), n).await);
    }
    for n in [1, 3, 5] {
        kept[n] = keep(&*store, cleared(&kept[n], 20), 20).await;
    }
    // By the numbers of `kept`.
    let order = [4, 2, 0, 5, 3, 1].map(|n| kept[n].clone());
    let all = store.alerts(query(10, Cursor::Start)).await.unwrap();
    assert_eq!((&all.rows[..], all.next, all.prev), (&order[..], None, None));

    let first = store.alerts(query(2, Cursor::Start)).await.unwrap();
    assert_eq!((&first.rows[..], first.prev), (&order[..2], None));
    // One that comes meanwhile is before the first page, not on the second.
    let news = raised(AlertKind::DeadLetterDepth, 30, None);
    let news = keep(&*store, news, 30).await;
    let second = store
        .alerts(query(2, Cursor::After(first.next.unwrap())))
        .await
        .unwrap();
    assert_eq!(second.rows, order[2..4]);
    let third = store
        .alerts(query(2, Cursor::After(second.next.unwrap())))
        .await
        .unwrap();
    assert_eq!((&third.rows[..], third.next), (&order[4..], None));
    let back = store
        .alerts(query(2, Cursor::Before(second.prev.unwrap())))
        .await
        .unwrap();
    assert_eq!(back.rows, order[..2]);
    let before = store
        .alerts(query(2, Cursor::Before(back.prev.unwrap())))
        .await
        .unwrap();
    assert_eq!((before.rows, before.prev), (vec![news.clone()], None));

    let mut ascending = query(10, Cursor::Start);
    ascending.page.direction = Direction::Ascending;
    let mut reversed = vec![news];
    reversed.extend_from_slice(&order);
    reversed.reverse();
    assert_eq!(store.alerts(ascending).await.unwrap().rows, reversed);

    let filtered = [
        AlertQuery {
            state: Some(AlertState::Cleared),
            ..query(10, Cursor::Start)
        },
        AlertQuery {
            kinds: vec![AlertKind::OldestDueAge],
            ..query(10, Cursor::Start)
        },
        AlertQuery {
            tenant_ids: vec!["acme".to_owned()],
            ..query(10, Cursor::Start)
        },
        AlertQuery {
            destination_ids: vec!["des_2".to_owned()],
            ..query(10, Cursor::Start)
        },
        AlertQuery {
            tenant_ids: vec!["nobody".to_owned()],
            ..query(10, Cursor::Start)
        },
    ];
    let right: [&[usize]; 5] = [&[5, 3, 1], &[0, 3], &[4, 1], &[2, 5], &[]];
    for (query, numbers) in filtered.into_iter().zip(right) {
        let wanted: Vec<_> = numbers.iter().map(|n| kept[*n].clone()).collect();
        let text = format!("{query:?}");
        assert_eq!(store.alerts(query).await.unwrap().rows, wanted, "{text}");
    }
}

pub(crate) async fn only_so_many_alerts_are_kept_and_none_that_fires_goes<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let firing = keep(
        &*store,
        raised(AlertKind::BreakerOpen, 0, Some(("acme", "des_1"))),
        0,
    )
    .await;
    let over = cleared(&raised(AlertKind::BreakerOpen, 1, None), 2);
    store
        .keep_alerts(vec![over; MAX_ALERTS + 5], at(2))
        .await
        .unwrap();
    let mut count = 0;
    let mut cursor = Cursor::Start;
    loop {
        let page = store.alerts(query(1_000, cursor)).await.unwrap();
        if count == 0 {
            assert_eq!(page.rows[0], firing);
        }
        count += page.rows.len();
        match page.next {
            Some(next) => cursor = Cursor::After(next),
            None => break,
        }
    }
    assert_eq!(count, MAX_ALERTS + 1);
}

pub(crate) async fn a_key_of_an_alert_grows_when_the_clock_went_back<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let first = keep(&*store, raised(AlertKind::OldestDueAge, 100, None), 100).await;
    drop(store);
    let harness = harness.restart().await;
    let store = harness.store();
    let second = keep(&*store, raised(AlertKind::OldestDueAge, 0, None), 0).await;
    assert!(second.key > first.key, "{second:?} {first:?}");
}

pub(crate) async fn dead_letters_are_counted_by_destination_and_age<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let one = create(&*store, acme, "des_1").await;
    let two = create(&*store, acme, "des_2").await;
    let level = |destination, depth, recent| DeadLetterLevel {
        destination,
        depth,
        recent,
    };
    assert_eq!(store.dead_letter_levels(at(0)).await.unwrap(), []);
    for (destination, seconds) in [(one, 10), (two, 20), (two, 30), (one, 40), (two, 50)] {
        let mut dead = event("acme", &[destination]);
        dead.destinations[0].dead = Some(DeadReason::DestinationDisabled);
        publish(&*store, dead, at(seconds)).await;
    }
    let counted = store.dead_letter_levels(at(30)).await.unwrap();
    assert_eq!(counted, [level(two, 3, 2), level(one, 2, 1)]);
    let later = store.dead_letter_levels(at(60)).await.unwrap();
    assert_eq!(later, [level(two, 3, 0), level(one, 2, 0)]);
}
