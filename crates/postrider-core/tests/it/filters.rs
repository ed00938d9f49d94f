//! The examples of "Topics and filters" in `docs/api.md`: each does what its row says.

use postrider_core::filter::Filter;
use postrider_core::topic::TopicSet;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../../docs/api.md");

/// The rows of the section's table whose head begins with `first`, without it.
fn rows(first: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split("\n### Topics and filters\n").nth(1);
    let section = section.and_then(|rest| rest.split("\n### ").next());
    let lines = section.unwrap_or_default().lines();
    let table = lines.skip_while(|line| !line.starts_with(&format!("| {first} |")));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// What a cell has in code.
fn code(cell: &'static str) -> Vec<&'static str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn check(cells: &[&'static str]) {
    let [.., filter, met, unmet] = cells else {
        panic!("{cells:?}");
    };
    let read = |cell: &&'static str| -> Value { serde_json::from_str(code(cell)[0]).expect(cell) };
    let compiled = Filter::compile(&json!({ "data": read(filter) })).expect(filter);
    let compiled = compiled.expect("not empty");
    for (data, wanted) in [(met, true), (unmet, false)] {
        assert_eq!(
            compiled.matches(&json!({ "data": read(data) })),
            wanted,
            "{filter} and {data}"
        );
    }
}

#[test]
fn patterns_take_what_the_page_says() {
    let rows = rows("pattern");
    assert_eq!(rows.len(), 5);
    for cells in rows {
        let pattern = code(cells[0])[0];
        let topics = TopicSet::new(vec![pattern.to_owned()]).expect(pattern);
        for (cell, wanted) in [(cells[1], true), (cells[2], false)] {
            for topic in code(cell) {
                assert_eq!(topics.matches(topic), wanted, "{pattern} and {topic}");
            }
        }
    }
}

#[test]
fn every_operator_has_an_example_that_is_true() {
    let rows = rows("in a filter");
    let unknown = Filter::compile(&json!({ "data": { "a": { "$none": 1 } } })).expect_err("unknown");
    let known = unknown.0.split(": those are ").nth(1).expect("the operators");
    for operator in known.split(", ") {
        let has_row = rows.iter().any(|cells| code(cells[0]).first() == Some(&operator));
        assert!(has_row, "no row for {operator}");
    }
    rows.iter().for_each(|cells| check(cells));
}

#[test]
fn every_rule_has_an_example_that_is_true() {
    let rows = rows("rule");
    assert_eq!(rows.len(), 11);
    rows.iter().for_each(|cells| check(cells));
}

#[test]
fn the_example_of_a_whole_filter_is_true() {
    let after = PAGE
        .split("Everything in an\nobject must hold:")
        .nth(1)
        .expect("the sentence");
    let block = after
        .split("```")
        .nth(1)
        .and_then(|block| block.strip_prefix("json\n"));
    let filter: Value = serde_json::from_str(block.expect("a block")).expect("JSON");
    let filter = Filter::compile(&filter).expect("a filter").expect("not empty");
    let event = |amount: i64| {
        json!({ "id": "a", "topic": "order.paid", "time": "2026-01-01T00:00:00.000Z", "metadata": { "region": "eu" },
            "data": { "amount": amount, "status": "paid" } })
    };
    for (amount, wanted) in [(99, false), (100, true), (999, true), (1_000, false)] {
        assert_eq!(filter.matches(&event(amount)), wanted, "{amount}");
    }
}
