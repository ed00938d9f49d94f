//! Dead letters that come back from an archive.

use postrider_core::delivery::{DeadReason, DeliveryStatus};
use postrider_core::outcome::Category;
use postrider_store::Store;
use postrider_store::letter::{DeadLetterFilter, Imported, ImportedLetter};
use postrider_store::record::{AttemptQuery, Metadata, NewEvent, Next};

use super::listing::{all_attempts, all_deliveries};
use super::{
    Harness, NOW, at, attempt, bury, context, create, delivery_id, event, letters, pending, publish, settle,
    settlement, tenant,
};

fn letter(event: &str, destination: &str) -> ImportedLetter {
    ImportedLetter {
        tenant_id: "acme".to_owned(),
        destination_id: destination.to_owned(),
        event_id: event.to_owned(),
        topic: "order.paid".to_owned(),
        time: at(5),
        metadata: [("k".to_owned(), "v".to_owned())].into(),
        data: bytes::Bytes::from_static(b"\xff\0{ }"),
        retryable: true,
        reason: DeadReason::ExhaustedRetries,
        category: Category::Http5xx,
        attempts: vec![attempt(1, 500, at(6)), attempt(2, 503, at(7))],
        context: Some(context("then")),
    }
}

async fn import(store: &dyn Store, letters: Vec<ImportedLetter>) -> Vec<Imported> {
    store.import_dead_letters(letters, at(1_000)).await.unwrap()
}

pub(crate) async fn a_letter_comes_back_as_it_was<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let answers = import(&*store, vec![letter("evt_old", "des_1")]).await;
    let [Imported::Imported(id)] = &answers[..] else {
        panic!("{answers:?}")
    };
    drop(store);
    let harness = harness.restart().await;
    let store = harness.store();
    let detail = store.dead_letter(id).await.unwrap().unwrap();
    assert_eq!(detail.event.id, "evt_old");
    assert_eq!(detail.event.data, &b"\xff\0{ }"[..]);
    assert_eq!(
        (detail.event.time, detail.event.topic.as_str()),
        (at(5), "order.paid")
    );
    assert_eq!(detail.event.metadata["k"], "v");
    assert_eq!(detail.context, Some(context("then")));
    let kept = detail.letter;
    assert_eq!(
        (kept.reason, kept.category, kept.code, kept.attempts, kept.died_at),
        (
            DeadReason::ExhaustedRetries,
            Category::Http5xx,
            Some(503),
            2,
            at(1_000)
        )
    );
    assert_eq!(kept.error.as_deref(), Some("503: answer"));
    let attempts = AttemptQuery {
        delivery_ids: vec![id.clone()],
        ..all_attempts()
    };
    let page = store.attempts(attempts).await.unwrap();
    let recorded: Vec<_> = page.rows.iter().map(|row| row.recorded.clone()).collect();
    assert_eq!(recorded, letter("evt_old", "des_1").attempts);
    let left: Vec<_> = page.rows.iter().map(|row| row.left).collect();
    assert_eq!(left, [DeliveryStatus::Pending, DeliveryStatus::Dead]);
    let stats = store.stats(NOW).await.unwrap();
    assert_eq!((stats.pending, stats.dead), (0, 1));
    store
        .retry(Some("acme"), "evt_old", key, at(2_000))
        .await
        .unwrap();
    let row = pending(&*store, key).await[0];
    settle(
        &*store,
        vec![settlement(row, 200, Next::Succeeded, at(2_001))],
        at(2_001),
    )
    .await
    .unwrap();
    assert_eq!(store.stats(NOW).await.unwrap().dead, 0, "it can be sent");
}

pub(crate) async fn importing_again_adds_nothing<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    for destination in ["des_1", "des_2"] {
        create(&*store, acme, destination).await;
    }
    let both = || {
        vec![
            letter("evt_1", "des_1"),
            letter("evt_2", "des_1"),
            letter("evt_1", "des_1"),
        ]
    };
    let answers = import(&*store, both()).await;
    assert!(matches!(
        answers[..],
        [Imported::Imported(_), Imported::Imported(_), Imported::Duplicate]
    ));
    assert_eq!(import(&*store, both()).await, vec![Imported::Duplicate; 3]);
    let later = import(&*store, vec![letter("evt_1", "des_2")]).await;
    assert!(
        matches!(later[..], [Imported::Imported(_)]),
        "another destination of the same event"
    );
    assert_eq!(letters(&*store, DeadLetterFilter::default()).await.len(), 3);
    let deliveries = store.deliveries(all_deliveries()).await.unwrap().rows;
    assert_eq!(deliveries.len(), 3);
    let attempts = store.attempts(all_attempts()).await.unwrap().rows;
    assert_eq!(attempts.len(), 6);
}

pub(crate) async fn a_letter_needs_its_tenant_and_destination<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let nobody = ImportedLetter {
        tenant_id: "nobody".to_owned(),
        ..letter("evt_1", "des_1")
    };
    let answers = import(&*store, vec![nobody, letter("evt_1", "des_9")]).await;
    assert_eq!(answers, [Imported::TenantMissing, Imported::DestinationMissing]);
    assert_eq!(store.stats(NOW).await.unwrap().dead, 0);

    // One that was purged comes back into its place; its event was there all the time.
    let buried = bury(&*store, "acme", key, 500, at(1)).await;
    let there = letters(&*store, DeadLetterFilter::default()).await;
    let back = || ImportedLetter {
        metadata: Metadata::new(),
        data: event("acme", &[]).data,
        ..letter(&there[0].event_id, "des_1")
    };
    assert_eq!(import(&*store, vec![back()]).await, [Imported::Duplicate]);
    store
        .purge_dead_letters(DeadLetterFilter::default(), 0, there[0].serial, 10)
        .await
        .unwrap();
    let id = delivery_id(&*store, &buried);
    assert_eq!(
        import(&*store, vec![back()]).await,
        [Imported::Imported(id.clone())]
    );
    let detail = store.dead_letter(&id).await.unwrap().unwrap();
    assert_ne!(
        detail.event.time,
        back().time,
        "the event that is there is not changed"
    );
    assert_eq!(detail.event.deliveries.len(), 1);
    create(&*store, acme, "des_2").await;
    let crowded = ImportedLetter {
        destination_id: "des_2".to_owned(),
        ..back()
    };
    assert_eq!(import(&*store, vec![crowded]).await, [Imported::NoPlace]);
}

pub(crate) async fn a_letter_of_another_event_with_that_id_is_refused<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    for destination in ["des_1", "des_2"] {
        create(&*store, acme, destination).await;
    }
    let first = import(&*store, vec![letter("evt_1", "des_1")]).await;
    assert!(matches!(first[..], [Imported::Imported(_)]));
    for destination in ["des_1", "des_2"] {
        let there = || letter("evt_1", destination);
        let others = vec![
            ImportedLetter {
                data: bytes::Bytes::from_static(b"\xff\0{ "),
                ..there()
            },
            ImportedLetter {
                data: bytes::Bytes::from_static(b"\xff\0{_}"),
                ..there()
            },
            ImportedLetter {
                topic: "order.lost".to_owned(),
                ..there()
            },
            ImportedLetter {
                metadata: Metadata::new(),
                ..there()
            },
            ImportedLetter {
                metadata: [("k".to_owned(), "w".to_owned())].into(),
                ..there()
            },
        ];
        let answers = import(&*store, others).await;
        assert_eq!(answers, vec![Imported::EventDiffers; 5], "{destination}");
    }
    let same = import(&*store, vec![letter("evt_1", "des_2")]).await;
    assert!(matches!(same[..], [Imported::Imported(_)]), "{same:?}");
}

pub(crate) async fn an_event_of_a_former_tenant_is_not_the_letters<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    create(&*store, acme, "des_1").await;
    let chosen = NewEvent {
        id: Some("evt_1".to_owned()),
        ..event("acme", &[])
    };
    publish(&*store, chosen, at(1)).await;
    let issued = publish(&*store, event("acme", &[]), at(1)).await.id;
    store.delete_tenant("acme", at(2)).await.unwrap();
    store.upsert_tenant("acme", None, at(3)).await.unwrap();
    let acme = tenant(&*store, "acme").await;
    create(&*store, acme, "des_1").await;
    for id in ["evt_1", issued.as_str()] {
        let back = import(&*store, vec![letter(id, "des_1")]).await;
        let [Imported::Imported(delivery)] = &back[..] else {
            panic!("{id}: {back:?}")
        };
        let detail = store.dead_letter(delivery).await.unwrap().unwrap();
        assert_eq!(detail.event.data, letter(id, "des_1").data, "{id}");
        let again = import(&*store, vec![letter(id, "des_1")]).await;
        assert_eq!(again, [Imported::Duplicate], "{id}");
    }
}
