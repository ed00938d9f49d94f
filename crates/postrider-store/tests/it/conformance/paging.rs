//! Pages are exact: each row that was there is seen once, whatever arrives meanwhile.

use postrider_store::page::{Cursor, PageRequest};
use postrider_store::record::{DeliveryQuery, EventQuery, NewEvent};

use super::listing::{NEWEST, OLDEST, all_deliveries, all_events, texts};
use super::{Harness, at, create, event, tenant};

/// Pages in both directions, with filters, while rows arrive: each row that was there is seen once.
pub(crate) async fn pages_are_exact_while_rows_arrive<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let other = tenant(&*store, "other").await;
    let mine = create(&*store, acme, "des_1").await;
    let theirs = create(&*store, other, "des_2").await;
    let batch = |from: usize| -> Vec<NewEvent> {
        (from..from + 200)
            .map(|n| {
                let (tenant, key) = if n % 3 == 0 {
                    ("acme", mine)
                } else {
                    ("other", theirs)
                };
                NewEvent {
                    id: Some(n.to_string()),
                    ..event(tenant, &[key])
                }
            })
            .collect()
    };
    for n in 0..8 {
        store.accept(batch(n * 200), at(n as u64)).await.unwrap();
    }
    let query = EventQuery {
        tenant_ids: texts(&["acme"]),
        page: PageRequest { limit: 37, ..NEWEST },
        ..all_events()
    };
    let by_destination = EventQuery {
        tenant_ids: vec![],
        destination_ids: texts(&["des_1"]),
        ..query.clone()
    };
    let mut arrived = 1_600;
    for query in [query, by_destination] {
        let before = arrived;
        let mut seen = Vec::new();
        let mut cursor = Cursor::Start;
        let mut last_prev = None;
        loop {
            let page = PageRequest { cursor, ..query.page };
            let page = store
                .events(EventQuery {
                    page,
                    ..query.clone()
                })
                .await
                .unwrap();
            seen.extend(page.rows.into_iter().map(|event| event.id));
            store.accept(batch(arrived), at(100)).await.unwrap();
            arrived += 200;
            last_prev = page.prev.or(last_prev);
            let Some(next) = page.next else { break };
            cursor = Cursor::After(next);
        }
        let expected: Vec<String> = (0..before)
            .filter(|n| n % 3 == 0)
            .rev()
            .map(|n| n.to_string())
            .collect();
        assert_eq!(seen, expected);

        let mut back = Vec::new();
        let mut before_key = last_prev;
        while let Some(key) = before_key {
            let page = PageRequest {
                cursor: Cursor::Before(key),
                ..query.page
            };
            let page = store
                .events(EventQuery {
                    page,
                    ..query.clone()
                })
                .await
                .unwrap();
            back.splice(0..0, page.rows.into_iter().map(|event| event.id));
            before_key = page.prev;
        }
        let last_page = expected.len() % 37;
        let now_there: Vec<String> = (0..arrived)
            .filter(|n| n % 3 == 0)
            .rev()
            .map(|n| n.to_string())
            .collect();
        assert_eq!(
            back,
            now_there[..now_there.len() - last_page],
            "backwards, what arrived is there too"
        );
    }
    let all = DeliveryQuery {
        tenant_ids: texts(&["other"]),
        page: PageRequest { limit: 301, ..OLDEST },
        ..all_deliveries()
    };
    let mut count = 0;
    let mut cursor = Cursor::Start;
    loop {
        let page = store
            .deliveries(DeliveryQuery {
                page: PageRequest { cursor, ..all.page },
                ..all.clone()
            })
            .await
            .unwrap();
        count += page.rows.len();
        let Some(next) = page.next else { break };
        cursor = Cursor::After(next);
    }
    assert_eq!(count, (0..arrived).filter(|n| n % 3 != 0).count());
}
