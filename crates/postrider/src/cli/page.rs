//! Lists that come in pages: the options of their commands, and where the next page begins.

use clap::Args;
use serde_json::Value;

use super::client::encoded;
use super::output::say;

/// Options of a command that shows one page.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// How many at most, 1 to 1000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Go on from here: the cursor that the page before ended with
    #[arg(long, value_name = "CURSOR")]
    next: Option<String>,
    /// Print the server's answer as it is
    #[arg(long)]
    pub json: bool,
}

impl PageArgs {
    /// As the first parameters of a query.
    #[must_use]
    pub fn query(&self) -> String {
        let next = self.next.as_deref().map(encoded);
        let next = next.map_or_else(String::new, |next| format!("&next={next}"));
        format!("limit={}{next}", self.limit)
    }
}

/// Says how to see more, when there is more.
///
/// # Errors
/// When standard output cannot be written.
pub fn say_more(page: &Value) -> anyhow::Result<()> {
    let Some(next) = page["pagination"]["next"].as_str() else {
        return Ok(());
    };
    Ok(say(&format!("more with --next {next}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_for_by_its_cursor() {
        let page = |next: Option<&str>| PageArgs {
            limit: 20,
            next: next.map(ToOwned::to_owned),
            json: false,
        };
        assert_eq!(page(None).query(), "limit=20");
        assert_eq!(page(Some("a+b")).query(), "limit=20&next=a%2Bb");
    }
}
