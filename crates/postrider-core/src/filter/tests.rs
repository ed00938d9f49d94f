//! Tables of the published syntax, and of what it leaves open.

use serde_json::{Value, json};

use super::*;

/// Matches within `data`, which is where most filters look.
fn data_matches(filter: &Value, data: &Value) -> bool {
    let filter = Filter::compile(&json!({ "data": filter })).unwrap_or_else(|invalid| panic!("{invalid}"));
    filter.is_none_or(|filter| filter.matches(&json!({ "data": data })))
}

fn check(table: Vec<(Value, Value, bool)>) {
    for (filter, data, wanted) in table {
        assert_eq!(data_matches(&filter, &data), wanted, "{filter} on {data}");
        let inverse = json!({ "$not": filter });
        assert_eq!(data_matches(&inverse, &data), !wanted, "{inverse} on {data}");
    }
}

fn message(filter: &Value) -> String {
    match Filter::compile(filter) {
        Ok(compiled) => panic!("{filter} was accepted as {compiled:?}"),
        Err(invalid) => invalid.to_string(),
    }
}

#[test]
fn an_empty_filter_is_none() {
    assert_eq!(Filter::compile(&json!({})), Ok(None));
    assert_eq!(Filter::compile(&Value::Null), Ok(None));
}

#[test]
fn values_are_equal_or_not() {
    check(vec![
        (json!({"type": "created"}), json!({"type": "created"}), true),
        (json!({"type": "created"}), json!({}), false),
        (json!({"type": "created"}), json!({"type": "updated"}), false),
        (json!({"type": "created"}), json!({"type": 1}), false),
        (json!({"count": 1}), json!({"count": 1, "type": "created"}), true),
        (json!({"count": 1, "type": "created"}), json!({"count": 1}), false),
        (
            json!({"type": {"kind": "created"}}),
            json!({"type": {"kind": "created", "more": 1}}),
            true,
        ),
        (json!({"type": 1}), json!({"type": {"kind": "created"}}), false),
        (json!({"flag": true}), json!({"flag": true}), true),
        (json!({"flag": false}), json!({"flag": null}), false),
        (json!({"flag": null}), json!({"flag": null}), true),
        (json!({"flag": null}), json!({}), false),
        (json!({"count": "1"}), json!({"count": 1}), false),
        (json!({"test": {"inner": "text"}}), json!({"test": "text"}), false),
        (json!({"test": {}}), json!({"test": {"any": 1}}), true),
        (json!({"test": {}}), json!({"test": 1}), false),
        (json!({"test": {}}), json!({}), false),
    ]);
}

#[test]
fn arrays_are_matched_by_what_they_contain() {
    check(vec![
        (json!({"tags": "test"}), json!({"tags": ["test", "other"]}), true),
        (json!({"tags": "nope"}), json!({"tags": ["test", "other"]}), false),
        (json!({"tags": "deep"}), json!({"tags": [["deep"], 1]}), true),
        (
            json!({"tags": ["test", "other"]}),
            json!({"tags": ["more", "other", "test"]}),
            true,
        ),
        (
            json!({"tags": ["test", "absent"]}),
            json!({"tags": ["test", "other"]}),
            false,
        ),
        (json!({"tags": ["test"]}), json!({"tags": "test"}), false),
        (
            json!({"tags": {"$eq": ["a", "b"]}}),
            json!({"tags": ["a", "b"]}),
            true,
        ),
        (
            json!({"tags": {"$eq": ["a", "b"]}}),
            json!({"tags": ["b", "a"]}),
            false,
        ),
        (json!({"tags": {"$eq": 3}}), json!({"tags": [1, 2, 3]}), false),
        (json!({"tags": [{"$gt": 2}]}), json!({"tags": [1, 2, 3]}), true),
        (json!({"tags": {"$gt": 2}}), json!({"tags": [1, 2, 3]}), false),
        (
            json!({"items": {"sku": "a"}}),
            json!({"items": [{"sku": "b"}, {"sku": "a"}]}),
            true,
        ),
        (
            json!({"items": {"sku": "a", "qty": 2}}),
            json!({"items": [{"sku": "a", "qty": 1}, {"qty": 2}]}),
            false,
        ),
        (
            json!({"items": {"qty": {"$lte": 10}}}),
            json!({"items": [{"qty": 12}, {"qty": 9}]}),
            true,
        ),
        (
            json!({"items": {"qty": {"$lte": 10}}}),
            json!({"items": [{"qty": 12}, {"qty": 11}]}),
            false,
        ),
        (
            json!({"items": {"sku": "a"}}),
            json!({"items": [[{"sku": "a"}]]}),
            true,
        ),
        (json!({"items": {}}), json!({"items": [{}]}), true),
        (json!({"items": {}}), json!({"items": []}), false),
    ]);
}

#[test]
fn logic_over_arrays() {
    check(vec![
        (json!({"tags": {"$not": "a"}}), json!({"tags": ["a", "b"]}), false),
        (json!({"tags": {"$not": "c"}}), json!({"tags": ["a", "b"]}), true),
        (
            json!({"tags": {"$and": ["a", "b"]}}),
            json!({"tags": ["a", "b"]}),
            true,
        ),
        (
            json!({"tags": {"$or": ["c", "b"]}}),
            json!({"tags": ["a", "b"]}),
            true,
        ),
        (
            json!({"tags": {"$exist": true, "$not": "a"}}),
            json!({"tags": ["b"]}),
            true,
        ),
        (
            json!({"items": {"sku": "a", "$not": {"qty": 0}}}),
            json!({"items": [{"sku": "a", "qty": 0}, {"sku": "b", "qty": 1}]}),
            false,
        ),
        (
            json!({"items": {"sku": "a", "$or": [{"qty": 1}, {"qty": 2}]}}),
            json!({"items": [{"sku": "a", "qty": 2}]}),
            true,
        ),
    ]);
}

#[test]
fn comparisons() {
    check(vec![
        (json!({"n": {"$lt": 1}}), json!({"n": 0}), true),
        (json!({"n": {"$lt": 1}}), json!({"n": 1}), false),
        (json!({"n": {"$lte": 1}}), json!({"n": 1}), true),
        (json!({"n": {"$gte": 1}}), json!({"n": 0.999}), false),
        (json!({"n": {"$gt": 1, "$lt": 3}}), json!({"n": 2}), true),
        (json!({"n": {"$gt": 1, "$lt": 3}}), json!({"n": 4}), false),
        (json!({"n": {"$eq": 2}}), json!({"n": 2.0}), true),
        (json!({"n": {"$neq": 2}}), json!({"n": 2}), false),
        (json!({"n": {"$neq": 2}}), json!({"n": "2"}), true),
        (json!({"n": {"$eq": null}}), json!({"n": null}), true),
        (json!({"n": {"$neq": null}}), json!({"n": null}), false),
        (json!({"s": {"$gt": "b"}}), json!({"s": "c"}), true),
        (json!({"s": {"$gt": "b"}}), json!({"s": "a"}), false),
        (json!({"s": {"$gt": 1}}), json!({"s": "2"}), false),
        (json!({"s": {"$gt": "1"}}), json!({"s": 2}), false),
        (
            json!({"o": {"$eq": {"a": 1, "b": [2]}}}),
            json!({"o": {"b": [2], "a": 1.0}}),
            true,
        ),
        (
            json!({"o": {"$eq": {"a": 1}}}),
            json!({"o": {"a": 1, "b": 2}}),
            false,
        ),
    ]);
}

#[test]
fn case_61_large_integers_are_not_rounded() {
    check(vec![
        (
            json!({"n": 9_007_199_254_740_993_u64}),
            json!({"n": 9_007_199_254_740_993_u64}),
            true,
        ),
        (
            json!({"n": 9_007_199_254_740_993_u64}),
            json!({"n": 9_007_199_254_740_992_u64}),
            false,
        ),
        (
            json!({"n": {"$gt": 9_007_199_254_740_992_u64}}),
            json!({"n": 9_007_199_254_740_993_u64}),
            true,
        ),
        (
            json!({"n": {"$in": [9_007_199_254_740_992.0]}}),
            json!({"n": 9_007_199_254_740_993_u64}),
            false,
        ),
    ]);
}

#[test]
fn membership() {
    check(vec![
        (
            json!({"s": {"$in": ["some-text", "other"]}}),
            json!({"s": "some-text"}),
            true,
        ),
        (
            json!({"s": {"$in": ["some", "text"]}}),
            json!({"s": "some-text"}),
            false,
        ),
        (json!({"s": {"$in": "text"}}), json!({"s": "some-text"}), true),
        (json!({"s": {"$nin": "some"}}), json!({"s": "some-text"}), false),
        (json!({"n": {"$in": [123, 456]}}), json!({"n": 123}), true),
        (json!({"n": {"$nin": [123, 456]}}), json!({"n": 123}), false),
        (json!({"n": {"$nin": [123, 456]}}), json!({"n": 7}), true),
        (json!({"n": {"$in": []}}), json!({"n": 7}), false),
        (json!({"tags": {"$in": "a"}}), json!({"tags": ["a", "b"]}), true),
        (json!({"tags": {"$nin": "a"}}), json!({"tags": ["a", "b"]}), false),
        (
            json!({"tags": {"$in": ["a", "x"]}}),
            json!({"tags": ["a", "b"]}),
            true,
        ),
        (
            json!({"tags": {"$nin": ["x"]}}),
            json!({"tags": ["a", "b"]}),
            true,
        ),
        (json!({"n": {"$in": "1"}}), json!({"n": 1}), false),
    ]);
}

#[test]
fn beginnings_and_ends() {
    check(vec![
        (
            json!({"s": {"$startsWith": "some"}}),
            json!({"s": "some-text"}),
            true,
        ),
        (
            json!({"s": {"$endsWith": "some"}}),
            json!({"s": "some-text"}),
            false,
        ),
        (
            json!({"s": {"$endsWith": ["text", "else"]}}),
            json!({"s": "some-text"}),
            true,
        ),
        (
            json!({"s": {"$startsWith": ["none", "else"]}}),
            json!({"s": "some-text"}),
            false,
        ),
        (
            json!({"s": {"$startsWith": "some"}}),
            json!({"s": {"more": true}}),
            false,
        ),
    ]);
}

#[test]
fn what_is_missing() {
    check(vec![
        (json!({"a": {"$exist": true}}), json!({"a": null}), true),
        (json!({"a": {"$exist": false}}), json!({"a": null}), false),
        (json!({"a": {"$exist": true}}), json!({"b": 1}), false),
        (json!({"a": {"$exist": false}}), json!({"b": 1}), true),
        (
            json!({"a": {"b": {"$exist": false}}}),
            json!({"a": {"c": 1}}),
            true,
        ),
        (json!({"a": {"b": {"$exist": false}}}), json!({}), true),
        (json!({"a": {"$exist": true}}), json!({"a": [1]}), true),
        (
            json!({"a": {"$exist": true, "$in": "el"}}),
            json!({"a": "else"}),
            true,
        ),
        (
            json!({"a": {"$exist": true, "$or": ["else", "not"]}}),
            json!({"a": "else1"}),
            false,
        ),
        (json!({"a": {"$neq": 1}}), json!({}), false),
        (json!({"a": {"$nin": [1]}}), json!({}), false),
        (json!({"a": {"$not": {"$eq": 1}}}), json!({}), true),
    ]);
}

#[test]
fn logic_at_every_level() {
    let event = json!({"id": "evt_1", "topic": "order.paid", "metadata": {"source": "api"},
        "data": {"test1": "else", "test2": "not"}});
    let table = [
        (
            json!({"$or": [{"data": {"test1": "x"}}, {"topic": "order.paid"}]}),
            true,
        ),
        (
            json!({"$or": [{"data": {"test1": "x"}}, {"topic": "order.sent"}]}),
            false,
        ),
        (
            json!({"$and": [{"data": {"test1": "else"}}, {"metadata": {"source": "api"}}]}),
            true,
        ),
        (
            json!({"$not": {"data": {"test1": "else"}}, "$and": [{"data": {"test2": "not"}}]}),
            false,
        ),
        (
            json!({"$not": {"data": {"test1": "else2"}}, "$or": [{"data": {"test3": {"$exist": true}}}, {"data": {"test2": "not"}}]}),
            true,
        ),
        (
            json!({"id": {"$startsWith": "evt_"}, "data": {"test1": {"$not": {"$in": ["a", "b"]}}}}),
            true,
        ),
    ];
    for (filter, wanted) in table {
        assert_eq!(
            Filter::compile(&filter).unwrap().unwrap().matches(&event),
            wanted,
            "{filter}"
        );
    }
}

#[test]
fn time_is_compared_as_an_instant() {
    let filter = json!({"time": {"$gte": "2025-01-01T00:00:00Z", "$lt": "2025-02-01T01:00:00+01:00"}});
    let filter = Filter::compile(&filter).unwrap().unwrap();
    for (time, wanted) in [
        ("2025-01-01T00:00:00.000Z", true),
        ("2025-01-01T00:00:00Z", true),
        ("2024-12-31T23:59:59.999Z", false),
        ("2025-01-31T23:59:59.999Z", true),
        ("2025-02-01T00:00:00.000Z", false),
        ("yesterday", false),
    ] {
        assert_eq!(filter.matches(&json!({"time": time})), wanted, "{time}");
    }
    let exact = Filter::compile(&json!({"time": "2025-01-01"})).unwrap().unwrap();
    assert!(exact.matches(&json!({"time": "2025-01-01T00:00:00.000Z"})));
    assert!(message(&json!({"time": {"$gte": "tomorrow"}})).starts_with("time.$gte must be an instant"));
    let too_early = message(&json!({"time": "1969-12-31"}));
    assert_eq!(too_early, "time must lie in the years 1970 to 9999");
    assert!(Filter::compile(&json!({"time": {"$lte": "9999-12-31T23:59:59.999Z"}})).is_ok());
}

#[test]
fn refusals_name_the_path_and_the_operator() {
    let table = [
        (json!([]), "must be an object"),
        (json!("paid"), "must be an object"),
        (json!({"status": "paid"}), "status is no field of an event"),
        (
            json!({"$or": [{"status": "paid"}]}),
            "$or[0].status is no field of an event",
        ),
        (json!({"$or": ["paid"]}), "$or[0] must be an object"),
        (json!({"$eq": 1}), "$eq cannot stand here"),
        (
            json!({"data": {"amount": {"$gtee": 1}}}),
            "data.amount.$gtee is no operator",
        ),
        (
            json!({"data": {"a": {"$exists": true}}}),
            "data.a.$exists is no operator",
        ),
        (
            json!({"data": {"a": {"$ref": "b"}}}),
            "data.a.$ref is not supported",
        ),
        (
            json!({"data": {"a": {"$gt": [1]}}}),
            "data.a.$gt must be a number or a text",
        ),
        (
            json!({"data": {"a": {"$lte": null}}}),
            "data.a.$lte must be a number or a text",
        ),
        (
            json!({"data": {"a": {"$in": {"b": 1}}}}),
            "data.a.$in must be an array",
        ),
        (
            json!({"data": {"a": {"$startsWith": 1}}}),
            "data.a.$startsWith must be a text",
        ),
        (
            json!({"data": {"a": {"$endsWith": ["x", 1]}}}),
            "data.a.$endsWith must be a text",
        ),
        (
            json!({"data": {"a": {"$exist": "yes"}}}),
            "data.a.$exist must be true or false",
        ),
        (
            json!({"data": {"a": {"$or": []}}}),
            "data.a.$or must be an array of one or more",
        ),
        (json!({"data": {"$and": {"a": 1}}}), "data.$and must be an array"),
        (
            json!({"data": {"a b": {"$x": 1}}}),
            "data.\"a b\".$x is no operator",
        ),
        (json!({"time": {"hour": 1}}), "time.hour has no fields"),
    ];
    for (filter, wanted) in table {
        let message = message(&filter);
        assert!(message.starts_with(wanted), "{filter}: {message}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert!(Filter::compile(&json!({"data": nested(31)})).is_ok());
    assert!(message(&json!({"data": nested(32)})).contains("deeper than 32"));
    assert!(message(&json!({"data": {"$eq": nested(40)}})).contains("deeper than 32"));
    let list = |count: usize| json!({"data": {"a": {"$in": vec![1; count]}}});
    assert!(Filter::compile(&list(1_997)).is_ok());
    assert!(message(&list(1_998)).contains("2000 fields"));
    assert!(message(&json!({"data": {"a": "x".repeat(32_769)}})).contains("32768 bytes"));
}

#[test]
fn no_event_makes_it_panic() {
    let deep = (0..100).fold(json!("x"), |inner, _| json!([inner]));
    let filters = [
        json!({"data": "x"}),
        json!({"data": ["x", {"$gt": 1}]}),
        json!({"data": {"a": {"$eq": [1, {"b": null}]}, "$or": [{"$exist": false}, "y"]}}),
        json!({"time": {"$lt": "2026-01-01T00:00:00Z"}}),
    ];
    for filter in &filters {
        let filter = Filter::compile(filter).unwrap().unwrap();
        for event in [
            json!(null),
            json!([]),
            json!(1),
            json!({}),
            json!({"data": deep.clone(), "time": deep.clone()}),
        ] {
            let _ = filter.matches(&event);
        }
    }
    assert!(
        Filter::compile(&filters[0])
            .unwrap()
            .unwrap()
            .matches(&json!({ "data": deep }))
    );
}
