//! `postrider config`: the configuration in effect, and where each value comes from.

use clap::Args;

use super::options::ConfigArgs;
use super::output::{plain, say, table};
use crate::config::resolve::Resolved;

/// Whose configuration.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  postrider config\n  postrider config --dev\n  postrider config --config postrider.toml --json"
)]
pub struct ShowArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// With the defaults of `postrider dev`
    #[arg(long)]
    dev: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Prints it; secrets only as `***`.
pub fn run(args: &ShowArgs) -> anyhow::Result<()> {
    let config = args.config.load(args.dev)?;
    let rows = rows(&config.resolved);
    if args.json {
        let json: serde_json::Map<_, _> = rows
            .into_iter()
            .map(|[key, value, origin]| (key, serde_json::json!({ "value": value, "origin": origin })))
            .collect();
        say(&serde_json::to_string_pretty(&json)?)?;
    } else {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| plain(cell)).collect())
            .collect();
        say(&table(&["KEY", "VALUE", "FROM"], &rows))?;
    }
    Ok(())
}

fn rows(resolved: &Resolved) -> Vec<[String; 3]> {
    let keys = resolved
        .rows()
        .map(|(key, value, origin)| [key.path.to_owned(), value.shown(), origin.to_string()]);
    let retry = resolved.retry_leaves().into_iter().map(|leaf| {
        [
            format!("retry.{}", leaf.path),
            leaf.value.to_string(),
            leaf.origin.to_string(),
        ]
    });
    let tenants = resolved
        .tenants()
        .iter()
        .map(|leaf| [leaf.path(), leaf.value.to_string(), leaf.origin.to_string()]);
    keys.chain(retry).chain(tenants).collect()
}
