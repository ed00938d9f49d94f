//! Named retry policies and the log of their changes.

use postrider_store::record::{
    Changed, Created, Destination, NamedPolicy, PolicyChange, PolicyDeleted, PolicyPut,
};

use super::{Harness, NOW, at, destination, tenant};

const SLOW: &str = r#"{"backoff":{"base":"30s"}}"#;
const SLOWER: &str = r#"{ "backoff": {"base":"60s"} }"#;

fn change(seconds: u64, old: Option<&str>, new: Option<&str>) -> PolicyChange {
    PolicyChange {
        at: at(seconds),
        name: "slow".to_owned(),
        old: old.map(str::to_owned),
        new: new.map(str::to_owned),
    }
}

pub(crate) async fn a_named_policy_is_put_and_changed<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let created = NamedPolicy {
        name: "slow".to_owned(),
        policy: SLOW.to_owned(),
        created_at: NOW,
        updated_at: NOW,
        revision: 1,
    };
    let put = store.put_retry_policy("slow", SLOW, 10, NOW).await.unwrap();
    assert_eq!(put, PolicyPut::Created(created.clone()));
    let same = store.put_retry_policy("slow", SLOW, 10, at(1)).await.unwrap();
    assert_eq!(same, PolicyPut::Updated(created.clone()), "nothing has changed");
    let changed = NamedPolicy {
        policy: SLOWER.to_owned(),
        updated_at: at(2),
        revision: 2,
        ..created
    };
    let put = store.put_retry_policy("slow", SLOWER, 10, at(2)).await.unwrap();
    assert_eq!(put, PolicyPut::Updated(changed.clone()));
    store.put_retry_policy("quick", "{}", 10, at(3)).await.unwrap();

    drop(store);
    let harness = harness.restart().await;
    let all = harness.store().retry_policies().await.unwrap();
    let names: Vec<_> = all.iter().map(|policy| &*policy.name).collect();
    assert_eq!(names, ["quick", "slow"]);
    assert_eq!(all[1], changed, "the text is kept byte by byte");
}

pub(crate) async fn changes_of_policies_are_logged<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    for (seconds, policy) in [(0, SLOW), (1, SLOW), (2, SLOWER)] {
        store
            .put_retry_policy("slow", policy, 10, at(seconds))
            .await
            .unwrap();
    }
    store.put_retry_policy("quick", "{}", 10, at(3)).await.unwrap();
    for expected in [PolicyDeleted::Deleted, PolicyDeleted::Missing] {
        assert_eq!(store.delete_retry_policy("slow", at(4)).await.unwrap(), expected);
    }
    assert_eq!(store.retry_policies().await.unwrap().len(), 1);
    let log = [
        change(4, Some(SLOWER), None),
        change(2, Some(SLOW), Some(SLOWER)),
        change(0, None, Some(SLOW)),
    ];
    let changes = async |name: &str, limit| store.retry_policy_changes(name, limit).await.unwrap();
    assert_eq!(changes("slow", 10).await, log, "newest first, and kept");
    assert_eq!(changes("slow", 2).await, log[..2]);
    assert_eq!(changes("other", 10).await, []);
}

pub(crate) async fn a_policy_in_use_stays<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    store.put_retry_policy("slow", SLOW, 10, NOW).await.unwrap();
    let mut live = Vec::new();
    for (id, policy) in [
        ("by_name", r#""slow""#),
        ("by_name_too", r#""slow""#),
        ("inline", SLOW),
        ("other", r#""slower""#),
    ] {
        let draft = Destination {
            retry_policy: Some(policy.to_owned()),
            ..destination(acme, id)
        };
        match store.create_destination(draft, 10).await.unwrap() {
            Created::Created(destination) => live.push(destination),
            refused => panic!("{refused:?}"),
        }
    }
    let delete = async || store.delete_retry_policy("slow", at(1)).await.unwrap();
    assert_eq!(delete().await, PolicyDeleted::InUse(2));
    assert_eq!(store.retry_policies().await.unwrap().len(), 1);
    assert_eq!(
        store.retry_policy_changes("slow", 10).await.unwrap().len(),
        1,
        "a refusal is no change"
    );
    store.delete_destination(acme, live[0].key, at(1)).await.unwrap();
    assert_eq!(
        delete().await,
        PolicyDeleted::InUse(1),
        "deleted ones do not count"
    );
    let without = Destination {
        retry_policy: None,
        ..live[1].clone()
    };
    assert!(matches!(
        store.change_destination(without).await.unwrap(),
        Changed::Changed(_)
    ));
    assert_eq!(delete().await, PolicyDeleted::Deleted);
}

pub(crate) async fn there_are_only_so_many<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let put = async |name: &str, policy: &str| store.put_retry_policy(name, policy, 2, NOW).await.unwrap();
    put("a", "{}").await;
    put("b", "{}").await;
    assert_eq!(put("c", "{}").await, PolicyPut::LimitReached);
    assert!(
        matches!(put("b", SLOW).await, PolicyPut::Updated(_)),
        "it is there already"
    );
    store.delete_retry_policy("a", NOW).await.unwrap();
    assert!(matches!(put("c", "{}").await, PolicyPut::Created(_)));
}
