//! Whether an event meets the conditions of a filter.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{Clauses, Comparison, Condition, Logic, Membership, Operand, Test, number};
use crate::time::Timestamp;

/// `value` is `None` where the event has nothing. Recursion ends with the filter or, in nested arrays, with the event,
/// whose depth its parser bounds.
pub(super) fn matches(condition: &Condition, value: Option<&Value>) -> bool {
    match (condition, value) {
        (Condition::Is(operand), Some(Value::Array(items))) => {
            items.iter().any(|item| is_or_contains(operand, item))
        }
        (Condition::Is(operand), Some(value)) => equals(operand, value),
        (Condition::Has(conditions), Some(Value::Array(items))) => conditions
            .iter()
            .all(|condition| items.iter().any(|item| matches(condition, Some(item)))),
        (Condition::Is(_), None) | (Condition::Has(_), _) => false,
        (Condition::All(clauses), Some(Value::Array(items))) => matches_array(clauses, value, items),
        (Condition::All(clauses), value) => matches_clauses(clauses, value),
    }
}

fn is_or_contains(operand: &Operand, value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| is_or_contains(operand, item)),
        _ => equals(operand, value),
    }
}

fn matches_clauses(clauses: &Clauses, value: Option<&Value>) -> bool {
    let members: Option<&Map<String, Value>> = value.and_then(Value::as_object);
    let is_empty = clauses.tests.is_empty() && clauses.fields.is_empty() && clauses.logic.is_empty();
    (!is_empty || members.is_some())
        && clauses.tests.iter().all(|test| passes(test, value))
        && clauses
            .fields
            .iter()
            .all(|(name, condition)| matches(condition, members.and_then(|members| members.get(name))))
        && clauses.logic.iter().all(|logic| holds(logic, value))
}

/// Operators look at the array as a whole. Fields look for one element that has them all, and then what is combined
/// with them is about the same element; otherwise it is about the whole again.
fn matches_array(clauses: &Clauses, whole: Option<&Value>, items: &[Value]) -> bool {
    if !clauses.tests.iter().all(|test| passes(test, whole)) {
        return false;
    }
    if clauses.fields.is_empty() {
        let is_empty = clauses.tests.is_empty() && clauses.logic.is_empty();
        return if is_empty {
            items.iter().any(|item| matches_clauses(clauses, Some(item)))
        } else {
            clauses.logic.iter().all(|logic| holds(logic, whole))
        };
    }
    some_element_has(clauses, items)
}

/// Whether there is one object, in arrays within arrays too, that has all fields and all that is combined with them.
fn some_element_has(clauses: &Clauses, items: &[Value]) -> bool {
    items.iter().any(|item| match item {
        Value::Array(inner) => some_element_has(clauses, inner),
        Value::Object(members) => {
            clauses
                .fields
                .iter()
                .all(|(name, condition)| matches(condition, members.get(name)))
                && clauses.logic.iter().all(|logic| holds(logic, Some(item)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    })
}

fn holds(logic: &Logic, value: Option<&Value>) -> bool {
    match logic {
        Logic::Or(conditions) => conditions.iter().any(|condition| matches(condition, value)),
        Logic::And(conditions) => conditions.iter().all(|condition| matches(condition, value)),
        Logic::Not(condition) => !matches(condition, value),
    }
}

/// Where the event has nothing, only `$exist: false` is true.
fn passes(test: &Test, value: Option<&Value>) -> bool {
    let Some(value) = value else {
        return *test == Test::Exist(false);
    };
    match test {
        Test::Exist(wanted) => *wanted,
        Test::Eq(operand) => equals(operand, value),
        Test::Neq(operand) => !equals(operand, value),
        Test::Order(comparison, operand) => {
            compare(value, operand).is_some_and(|ordering| is_ordered(*comparison, ordering))
        }
        Test::In { wanted, set } => contains(set, value) == *wanted,
        Test::StartsWith(texts) => value
            .as_str()
            .is_some_and(|text| texts.iter().any(|start| text.starts_with(start))),
        Test::EndsWith(texts) => value
            .as_str()
            .is_some_and(|text| texts.iter().any(|end| text.ends_with(end))),
    }
}

fn is_ordered(comparison: Comparison, ordering: Ordering) -> bool {
    match comparison {
        Comparison::Greater => ordering == Ordering::Greater,
        Comparison::GreaterOrEqual => ordering != Ordering::Less,
        Comparison::Less => ordering == Ordering::Less,
        Comparison::LessOrEqual => ordering != Ordering::Greater,
    }
}

fn contains(set: &Membership, value: &Value) -> bool {
    match (set, value) {
        (Membership::List(operands), Value::Array(items)) => operands
            .iter()
            .any(|operand| equals(operand, value) || items.iter().any(|item| equals(operand, item))),
        (Membership::List(operands), _) => operands.iter().any(|operand| equals(operand, value)),
        (Membership::Part(operand), Value::Array(items)) => items.iter().any(|item| equals(operand, item)),
        (Membership::Part(Operand::Json(Value::String(part))), Value::String(text)) => text.contains(part),
        (Membership::Part(_), _) => false,
    }
}

/// Numbers by what they are worth, texts by their bytes; nothing equals a value of another type.
fn equals(operand: &Operand, value: &Value) -> bool {
    match operand {
        Operand::Json(json) => deep_equals(json, value),
        Operand::Instant(instant) => instant_of(value) == Some(*instant),
    }
}

fn deep_equals(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => number::compare(left, right) == Some(Ordering::Equal),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| deep_equals(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, left)| right.get(name).is_some_and(|right| deep_equals(left, right)))
        }
        (Value::Null | Value::Bool(_) | Value::String(_), _) => left == right,
        (Value::Number(_) | Value::Array(_) | Value::Object(_), _) => false,
    }
}

fn compare(value: &Value, operand: &Operand) -> Option<Ordering> {
    match (value, operand) {
        (_, Operand::Instant(instant)) => instant_of(value).map(|value| value.cmp(instant)),
        (Value::Number(value), Operand::Json(Value::Number(operand))) => number::compare(value, operand),
        (Value::String(value), Operand::Json(Value::String(operand))) => Some(value.cmp(operand)),
        (_, Operand::Json(_)) => None,
    }
}

fn instant_of(value: &Value) -> Option<Timestamp> {
    value.as_str().and_then(|text| Timestamp::parse(text).ok())
}
