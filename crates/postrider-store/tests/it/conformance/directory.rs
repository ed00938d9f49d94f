//! Tenants and destinations.

use std::collections::BTreeMap;

use postrider_core::id::{DestinationKey, TenantKey};
use postrider_store::page::{Cursor, Direction, PageRequest};
use postrider_store::record::{Changed, Created, Destination, Disabled, TenantQuery, Upserted};

use super::{Harness, NOW, at, create, destination, tenant};

pub(crate) async fn tenants_come_and_go<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    assert_eq!(store.tenant("acme").await.unwrap(), None);
    let metadata = BTreeMap::from([("plan".to_owned(), "pro".to_owned())]);
    let Upserted::Created(created) = store
        .upsert_tenant("acme", Some(metadata.clone()), NOW)
        .await
        .unwrap()
    else {
        panic!("it is new");
    };
    assert_eq!(created.metadata, Some(metadata));
    assert_eq!((created.created_at, created.updated_at), (NOW, NOW));
    assert_eq!(store.tenant("acme").await.unwrap(), Some(created.clone()));

    let Upserted::Updated(updated) = store.upsert_tenant("acme", None, at(5)).await.unwrap() else {
        panic!("it was there");
    };
    assert_eq!(updated.metadata, None, "omitted metadata are cleared");
    assert_eq!((updated.created_at, updated.updated_at), (NOW, at(5)));

    let key = create(&*store, created.key, "des_1").await;
    assert_eq!(store.delete_tenant("acme", at(6)).await.unwrap(), Some(vec![key]));
    assert_eq!(store.delete_tenant("acme", at(6)).await.unwrap(), None);
    assert_eq!(store.tenant("acme").await.unwrap(), None);
    assert_eq!(store.directory().await.unwrap(), (vec![], vec![]));

    assert!(matches!(
        store.upsert_tenant("acme", None, at(7)).await.unwrap(),
        Upserted::Created(_)
    ));
    assert_eq!(
        store.directory().await.unwrap().1,
        vec![],
        "its old destinations stay deleted"
    );
}

pub(crate) async fn pages_of_tenants_are_in_order_of_creation<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    for id in ["e", "d", "c", "b", "a"] {
        tenant(&*store, id).await;
    }
    store.delete_tenant("d", NOW).await.unwrap();
    tenant(&*store, "d").await;
    let page = |limit, direction, cursor| {
        let store = store.clone();
        async move {
            let query = TenantQuery {
                ids: vec![],
                page: PageRequest {
                    limit,
                    direction,
                    cursor,
                },
            };
            let (page, total) = store.tenants(query).await.unwrap();
            let ids: String = page.rows.iter().map(|tenant| tenant.id.as_str()).collect();
            assert_eq!(total, 5);
            (ids, page.next, page.prev)
        }
    };
    let (first, next, prev) = page(2, Direction::Ascending, Cursor::Start).await;
    assert_eq!((first.as_str(), prev), ("ec", None));
    let (second, next, _) = page(2, Direction::Ascending, Cursor::After(next.unwrap())).await;
    assert_eq!(second, "ba");
    let (third, end, prev) = page(2, Direction::Ascending, Cursor::After(next.unwrap())).await;
    assert_eq!(
        (third.as_str(), end),
        ("d", None),
        "created again, so it is the last"
    );
    let (back, _, prev) = page(2, Direction::Ascending, Cursor::Before(prev.unwrap())).await;
    assert_eq!(back, "ba");
    let (front, _, prev) = page(2, Direction::Ascending, Cursor::Before(prev.unwrap())).await;
    assert_eq!((front.as_str(), prev), ("ec", None));
    assert_eq!(
        page(9, Direction::Descending, Cursor::Start).await,
        ("dabce".to_owned(), None, None)
    );

    let ids = ["a", "nobody", "e", "a"].map(str::to_owned).to_vec();
    let query = TenantQuery {
        ids,
        page: PageRequest { limit: 1, ..all() },
    };
    let (first, total) = store.tenants(query).await.unwrap();
    assert_eq!((first.rows[0].id.as_str(), total), ("a", 2), "newest first");
    assert!(first.next.is_some());
}

fn all() -> PageRequest {
    PageRequest {
        limit: 100,
        direction: Direction::Descending,
        cursor: Cursor::Start,
    }
}

pub(crate) async fn destinations_keep_everything<H: Harness>() {
    let harness = H::start().await;
    let tenant = tenant(&*harness.store(), "acme").await;
    let full = Destination {
        filter: Some(r#"{"data":{"amount":{"$gte":100}}}"#.to_owned()),
        topics: vec!["order.*".to_owned(), "user.created".to_owned()],
        delivery_metadata: Some(BTreeMap::from([("source".to_owned(), "billing".to_owned())])),
        metadata: Some(BTreeMap::new()),
        retry_policy: Some("\"batch\"".to_owned()),
        disabled: Some(Disabled {
            at: at(3),
            reason: "410 Gone".to_owned(),
        }),
        ..destination(tenant, "des_é")
    };
    let Created::Created(created) = harness
        .store()
        .create_destination(full.clone(), 10)
        .await
        .unwrap()
    else {
        panic!("it is new");
    };
    assert_eq!(created.revision, 1);
    assert_eq!(
        Destination {
            key: DestinationKey(0),
            revision: 0,
            ..created.clone()
        },
        full
    );
    let harness = harness.restart().await;
    assert_eq!(harness.store().directory().await.unwrap().1, vec![created]);
}

pub(crate) async fn creation_refuses_what_it_must<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let other = tenant(&*store, "other").await;
    let first = create(&*store, acme, "des_1").await;
    assert_eq!(
        store
            .create_destination(destination(acme, "des_1"), 10)
            .await
            .unwrap(),
        Created::Exists
    );
    assert_eq!(
        store
            .create_destination(destination(acme, "des_2"), 1)
            .await
            .unwrap(),
        Created::LimitReached
    );
    let missing = store
        .create_destination(destination(TenantKey(999), "des_1"), 10)
        .await
        .unwrap();
    assert_eq!(missing, Created::TenantMissing);
    let theirs = create(&*store, other, "des_1").await;
    assert_ne!(first, theirs, "ids are unique within a tenant only");

    assert!(
        !store.delete_destination(other, first, NOW).await.unwrap(),
        "not theirs"
    );
    assert!(store.delete_destination(acme, first, NOW).await.unwrap());
    assert!(!store.delete_destination(acme, first, NOW).await.unwrap());
    let again = create(&*store, acme, "des_1").await;
    assert!(again > theirs, "a key is never used twice");
    store.delete_tenant("acme", NOW).await.unwrap();
    let gone = store
        .create_destination(destination(acme, "des_9"), 10)
        .await
        .unwrap();
    assert_eq!(gone, Created::TenantMissing);
}

pub(crate) async fn a_change_names_the_revision_it_read<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    create(&*store, acme, "des_1").await;
    let read = store.directory().await.unwrap().1.remove(0);
    let mine = Destination {
        topics: vec!["mine".to_owned()],
        ..read.clone()
    };
    let Changed::Changed(changed) = store.change_destination(mine.clone()).await.unwrap() else {
        panic!("nobody else changed it");
    };
    assert_eq!(changed, Destination { revision: 2, ..mine });
    let stale = Destination {
        topics: vec!["stale".to_owned()],
        ..read.clone()
    };
    assert_eq!(store.change_destination(stale).await.unwrap(), Changed::Conflict);
    assert_eq!(store.directory().await.unwrap().1, vec![changed.clone()]);
    store.delete_destination(acme, read.key, NOW).await.unwrap();
    assert_eq!(store.change_destination(changed).await.unwrap(), Changed::Missing);
}

pub(crate) async fn everything_is_there_after_a_restart<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    create(&*store, acme, "des_1").await;
    create(&*store, acme, "des_2").await;
    let before = store.directory().await.unwrap();
    let id = store.ids().encode(postrider_core::id::IdKind::Event, 7);
    drop(store);
    let harness = harness.restart().await;
    assert_eq!(harness.store().directory().await.unwrap(), before);
    assert_eq!(
        harness.store().ids().encode(postrider_core::id::IdKind::Event, 7),
        id,
        "ids stay the same"
    );
}
