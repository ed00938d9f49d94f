//! From the JSON of a filter to conditions, or to the path of what is wrong.

use serde_json::{Map, Value};

use super::{
    Clauses, Comparison, Condition, InvalidFilter, Logic, MAX_DEPTH, MAX_NODES, MAX_TEXT_BYTES, Membership,
    Operand, Test,
};
use crate::time::{ParseTimestampError, Timestamp};

/// The members of an event that a filter can ask for.
const EVENT_FIELDS: [&str; 5] = ["id", "topic", "time", "metadata", "data"];

const OPERATORS: &str =
    "$eq, $neq, $gt, $gte, $lt, $lte, $in, $nin, $startsWith, $endsWith, $exist, $or, $and, $not";

type Compiled<T> = Result<T, InvalidFilter>;

pub(super) fn root(fields: &Map<String, Value>) -> Compiled<Condition> {
    let mut compiler = Compiler {
        path: Vec::new(),
        nodes: 0,
        text_bytes: 0,
    };
    compiler.clauses(fields, Place::Event)
}

/// Which part of the event a condition is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The event itself, whose members are known.
    Event,
    /// Its `time`, which is compared as an instant.
    Time,
    /// Anywhere in it.
    Inside,
}

struct Compiler {
    path: Vec<String>,
    nodes: usize,
    text_bytes: usize,
}

impl Compiler {
    fn fail<T>(&self, why: impl std::fmt::Display) -> Compiled<T> {
        let mut path = String::new();
        for step in &self.path {
            if !path.is_empty() && !step.starts_with('[') {
                path.push('.');
            }
            path.push_str(step);
        }
        let space = if path.is_empty() { "" } else { " " };
        Err(InvalidFilter(format!("{path}{space}{why}")))
    }

    fn at<T>(
        &mut self,
        step: impl Into<String>,
        inner: impl FnOnce(&mut Self) -> Compiled<T>,
    ) -> Compiled<T> {
        self.path.push(step.into());
        if self.path.len() > MAX_DEPTH {
            // The path itself would be too long to be read.
            self.path.truncate(4);
            return self.fail(format_args!("is nested deeper than {MAX_DEPTH} levels"));
        }
        let result = inner(self);
        self.path.pop();
        result
    }

    fn count(&mut self, nodes: usize, text: &str) -> Compiled<()> {
        self.nodes += nodes;
        self.text_bytes += text.len();
        if self.nodes > MAX_NODES {
            return self.fail(format_args!(
                "exceeds the {MAX_NODES} fields, operators and values of a filter"
            ));
        }
        if self.text_bytes > MAX_TEXT_BYTES {
            return self.fail(format_args!(
                "exceeds the {MAX_TEXT_BYTES} bytes of text of a filter"
            ));
        }
        Ok(())
    }

    fn condition(&mut self, schema: &Value, place: Place) -> Compiled<Condition> {
        match schema {
            Value::Object(members) => self.clauses(members, place),
            Value::Array(items) => {
                let items = self.conditions(items, place)?;
                Ok(Condition::Has(items))
            }
            _ if place == Place::Event => {
                self.fail("must be an object, as {\"data\": {\"status\": \"paid\"}}")
            }
            scalar => self.operand(scalar, place).map(Condition::Is),
        }
    }

    fn conditions(&mut self, items: &[Value], place: Place) -> Compiled<Vec<Condition>> {
        let each = items.iter().enumerate();
        each.map(|(index, item)| self.at(format!("[{index}]"), |inner| inner.condition(item, place)))
            .collect()
    }

    fn clauses(&mut self, members: &Map<String, Value>, place: Place) -> Compiled<Condition> {
        let mut clauses = Clauses::default();
        for (name, schema) in members {
            self.count(1, name)?;
            self.at(shown(name), |inner| {
                inner.member(name, schema, place, &mut clauses)
            })?;
        }
        Ok(Condition::All(clauses))
    }

    fn member(&mut self, name: &str, schema: &Value, place: Place, clauses: &mut Clauses) -> Compiled<()> {
        match name {
            "$or" => clauses
                .logic
                .push(Logic::Or(self.list_of_conditions(schema, place)?)),
            "$and" => clauses
                .logic
                .push(Logic::And(self.list_of_conditions(schema, place)?)),
            "$not" => clauses
                .logic
                .push(Logic::Not(Box::new(self.condition(schema, place)?))),
            _ if name.starts_with('$') => {
                if place == Place::Event {
                    return self
                        .fail("cannot stand here: name a field of the event first, as {\"data\": {...}}");
                }
                clauses.tests.push(self.test(name, schema, place)?);
            }
            _ => {
                let inside = self.place_of(name, place)?;
                clauses
                    .fields
                    .push((name.to_owned(), self.condition(schema, inside)?));
            }
        }
        Ok(())
    }

    fn place_of(&self, name: &str, place: Place) -> Compiled<Place> {
        match place {
            Place::Event if name == "time" => Ok(Place::Time),
            Place::Event if EVENT_FIELDS.contains(&name) => Ok(Place::Inside),
            Place::Event => self.fail(format_args!(
                "is no field of an event: those are {}; for a field of the payload write {{\"data\": {{...}}}}",
                EVENT_FIELDS.join(", ")
            )),
            Place::Time => self.fail("has no fields: time is one instant"),
            Place::Inside => Ok(Place::Inside),
        }
    }

    fn list_of_conditions(&mut self, schema: &Value, place: Place) -> Compiled<Vec<Condition>> {
        match schema.as_array() {
            Some(items) if !items.is_empty() => self.conditions(items, place),
            _ => self.fail("must be an array of one or more conditions"),
        }
    }

    fn test(&mut self, operator: &str, schema: &Value, place: Place) -> Compiled<Test> {
        match operator {
            "$exist" => match schema {
                Value::Bool(wanted) => Ok(Test::Exist(*wanted)),
                _ => self.fail("must be true or false"),
            },
            "$eq" => self.operand(schema, place).map(Test::Eq),
            "$neq" => self.operand(schema, place).map(Test::Neq),
            "$gt" => self.order(Comparison::Greater, schema, place),
            "$gte" => self.order(Comparison::GreaterOrEqual, schema, place),
            "$lt" => self.order(Comparison::Less, schema, place),
            "$lte" => self.order(Comparison::LessOrEqual, schema, place),
            "$in" => self
                .membership(schema, place)
                .map(|set| Test::In { wanted: true, set }),
            "$nin" => self
                .membership(schema, place)
                .map(|set| Test::In { wanted: false, set }),
            "$startsWith" => self.texts(schema).map(Test::StartsWith),
            "$endsWith" => self.texts(schema).map(Test::EndsWith),
            "$ref" => self.fail("is not supported: a filter compares with fixed values"),
            _ => self.fail(format_args!("is no operator: those are {OPERATORS}")),
        }
    }

    fn order(&mut self, comparison: Comparison, schema: &Value, place: Place) -> Compiled<Test> {
        match schema {
            Value::Number(_) | Value::String(_) => self
                .operand(schema, place)
                .map(|operand| Test::Order(comparison, operand)),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.fail("must be a number or a text")
            }
        }
    }

    fn membership(&mut self, schema: &Value, place: Place) -> Compiled<Membership> {
        match schema {
            Value::Array(items) => {
                let each = items.iter().enumerate();
                each.map(|(index, item)| self.at(format!("[{index}]"), |inner| inner.operand(item, place)))
                    .collect::<Compiled<_>>()
                    .map(Membership::List)
            }
            Value::Object(_) => self.fail("must be an array, or a text to be contained"),
            // A part of the time as it is written is no instant.
            scalar if place == Place::Time => self.operand(scalar, Place::Inside).map(Membership::Part),
            scalar => self.operand(scalar, place).map(Membership::Part),
        }
    }

    fn texts(&mut self, schema: &Value) -> Compiled<Vec<String>> {
        let items = match schema {
            Value::Array(items) if !items.is_empty() => items.as_slice(),
            Value::String(_) => std::slice::from_ref(schema),
            _ => return self.fail("must be a text, or an array of texts"),
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let Some(text) = item.as_str() else {
                return self.fail("must be a text, or an array of texts");
            };
            self.count(1, text)?;
            texts.push(text.to_owned());
        }
        Ok(texts)
    }

    fn operand(&mut self, value: &Value, place: Place) -> Compiled<Operand> {
        self.measure(value)?;
        match (value, place) {
            (Value::String(text), Place::Time) => match Timestamp::parse(text) {
                Ok(instant) => Ok(Operand::Instant(instant)),
                Err(ParseTimestampError::Malformed(_)) => {
                    self.fail("must be an instant, as 2026-01-31T12:00:00Z")
                }
                Err(ParseTimestampError::OutOfRange(_)) => self.fail("must lie in the years 1970 to 9999"),
            },
            _ => Ok(Operand::Json(value.clone())),
        }
    }

    /// Counts a value with all that is in it.
    fn measure(&mut self, value: &Value) -> Compiled<()> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.count(1, ""),
            Value::String(text) => self.count(1, text),
            Value::Array(items) => {
                self.count(1, "")?;
                items
                    .iter()
                    .try_for_each(|item| self.at("[]", |inner| inner.measure(item)))
            }
            Value::Object(members) => {
                self.count(1, "")?;
                members.iter().try_for_each(|(name, item)| {
                    self.count(0, name)?;
                    self.at(shown(name), |inner| inner.measure(item))
                })
            }
        }
    }
}

/// A step of a path for a message: quoted when it would be misread, and shortened.
fn shown(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    let is_plain = !short.is_empty() && short.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c));
    if is_plain { short } else { format!("{short:?}") }
}
