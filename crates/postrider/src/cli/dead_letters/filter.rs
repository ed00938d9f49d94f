//! Flags that say which dead letters are meant, the same for every command.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Map, Value, json};

use super::super::client::encoded;
use super::super::output::{Reported, complain};

/// Which dead letters. All that are given must hold; one that may be repeated admits any of its values.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct FilterArgs {
    /// Only of this tenant (repeatable)
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    tenant: Vec<String>,
    /// Only for this destination (repeatable)
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    destination: Vec<String>,
    /// Only with this topic (repeatable)
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    topic: Vec<String>,
    /// Only dead for this reason, such as permanent_failure (repeatable)
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    reason: Vec<String>,
    /// Only with a last outcome of this category, such as http_4xx or timeout (repeatable)
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    category: Vec<String>,
    /// Only with this status code (repeatable)
    #[arg(long, value_parser = code)]
    code: Vec<u16>,
    /// Only dead since this time: RFC 3339 or YYYY-MM-DD
    #[arg(long, value_name = "TIME", value_parser = NonEmptyStringValueParser::new())]
    died_since: Option<String>,
    /// Only dead before this time
    #[arg(long, value_name = "TIME", value_parser = NonEmptyStringValueParser::new())]
    died_before: Option<String>,
    /// Only with this text in the last error, in any case of letters
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    text: Option<String>,
    /// Only this delivery (repeatable)
    #[arg(long, value_name = "DELIVERY", value_parser = NonEmptyStringValueParser::new())]
    id: Vec<String>,
}

impl FilterArgs {
    /// As parameters of a query, each preceded by `&`.
    #[must_use]
    pub(super) fn query(&self) -> String {
        let mut query = String::new();
        for (name, values) in self.lists() {
            for value in values {
                query.push_str(&format!("&{name}[]={}", encoded(&value)));
            }
        }
        for (name, value) in [
            ("died_at[gte]", &self.died_since),
            ("died_at[lt]", &self.died_before),
            ("text", &self.text),
        ] {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        query
    }

    /// As fields of a body.
    pub(super) fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        for (name, values) in self.lists() {
            if !values.is_empty() {
                body.insert(name.to_owned(), json!(values));
            }
        }
        let mut died = Map::new();
        for (name, value) in [("gte", &self.died_since), ("lt", &self.died_before)] {
            died.extend(value.as_ref().map(|value| (name.to_owned(), json!(value))));
        }
        if !died.is_empty() {
            body.insert("died_at".to_owned(), died.into());
        }
        body.extend(self.text.as_ref().map(|text| ("text".to_owned(), json!(text))));
        body
    }

    /// As fields of a body that changes something: all of them must be meant by a word of its own.
    ///
    /// # Errors
    /// [`Reported`] when nothing says which are meant.
    pub(super) fn meant(&self, all: bool) -> Result<Map<String, Value>, Reported> {
        let mut body = self.body();
        if body.is_empty() && !all {
            complain(
                "postrider: no dead letters are named: give at least one filter, or --all to mean all of them",
            );
            return Err(Reported(2));
        }
        body.insert("all".to_owned(), all.into());
        Ok(body)
    }

    fn lists(&self) -> [(&'static str, Vec<String>); 7] {
        [
            ("tenant_id", self.tenant.clone()),
            ("destination_id", self.destination.clone()),
            ("topic", self.topic.clone()),
            ("reason", self.reason.clone()),
            ("category", self.category.clone()),
            ("code", self.code.iter().map(ToString::to_string).collect()),
            ("id", self.id.clone()),
        ]
    }
}

fn code(text: &str) -> Result<u16, String> {
    let code = text.parse().ok().filter(|code| (100..=999).contains(code));
    code.ok_or_else(|| "a code is a number from 100 to 999".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn no_flag_may_be_empty() {
        #[derive(Debug, clap::Parser)]
        struct Flags {
            #[command(flatten)]
            filter: FilterArgs,
        }
        for flag in [
            "tenant",
            "destination",
            "topic",
            "reason",
            "category",
            "died-since",
            "died-before",
            "text",
            "id",
        ] {
            let parsed = Flags::try_parse_from(["test".to_owned(), format!("--{flag}"), String::new()]);
            let error = parsed.map(|flags| flags.filter.body()).unwrap_err().to_string();
            assert!(error.contains("a value is required"), "{flag}: {error}");
        }
    }

    #[test]
    fn flags_become_the_words_of_the_api() {
        let args = FilterArgs {
            tenant: vec!["a&b".to_owned()],
            code: vec![401, 403],
            died_since: Some("2026-01-01".to_owned()),
            text: Some("token expired".to_owned()),
            ..FilterArgs::default()
        };
        let right =
            "&tenant_id[]=a%26b&code[]=401&code[]=403&died_at[gte]=2026%2D01%2D01&text=token%20expired";
        assert_eq!(args.query(), right);
        let right = json!({ "tenant_id": ["a&b"], "code": ["401", "403"], "died_at": { "gte": "2026-01-01" },
            "text": "token expired" });
        assert_eq!(Value::from(args.body()), right);
        assert!(FilterArgs::default().body().is_empty());
    }
}
