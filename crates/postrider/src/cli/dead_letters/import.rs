//! A file of dead letters back into a server.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::super::client;
use super::super::options::{Server, ServerArgs};
use super::super::output::{Reported, complain, say};
use crate::letters::archive::lines;

/// Bytes and lines of one request of an import.
const MAX_CHUNK_BYTES: usize = 4 << 20;
const MAX_CHUNK_LINES: usize = 500;

/// Options of `import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
    /// File to read, compressed or not; `-` is standard input
    file: PathBuf,
}

/// What became of the lines.
#[derive(Debug, Default)]
struct Tally {
    imported: u64,
    duplicates: u64,
    refused: u64,
}

pub(super) fn run(args: &ImportArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let source: Box<dyn io::BufRead> = if args.file == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let file = File::open(&args.file).with_context(|| format!("open {}", args.file.display()))?;
        Box::new(BufReader::new(file))
    };
    let mut tally = Tally::default();
    let (mut chunk, mut numbers) = (Vec::new(), Vec::new());
    let mut lines = lines(source).context("read the file")?;
    while let Some(line) = lines.next() {
        let line = line.context("read the file to its end; what came before was imported")?;
        let is_full = chunk.len() + line.len() > MAX_CHUNK_BYTES || numbers.len() == MAX_CHUNK_LINES;
        if is_full && !numbers.is_empty() {
            send(&server, &chunk, &numbers, &mut tally)?;
            chunk.clear();
            numbers.clear();
        }
        chunk.extend_from_slice(&line);
        chunk.push(b'\n');
        numbers.push(lines.number());
    }
    if !numbers.is_empty() {
        send(&server, &chunk, &numbers, &mut tally)?;
    }
    let Tally {
        imported,
        duplicates,
        refused,
    } = tally;
    if args.json {
        say(&json!({ "imported": imported, "duplicates": duplicates, "refused": refused }).to_string())?;
    } else {
        say(&format!(
            "{imported} imported, {duplicates} were there already, {refused} refused"
        ))?;
    }
    if refused > 0 {
        return Err(Reported(1).into());
    }
    Ok(())
}

/// `numbers` are those of the lines in the file.
fn send(server: &Server, chunk: &[u8], numbers: &[usize], tally: &mut Tally) -> anyhow::Result<()> {
    let first = numbers.first().copied().unwrap_or_default();
    // Twice is like once, but counts as duplicates what came in before the answer was lost.
    let answer = client::persist(server, &Method::POST, "/api/v1/dead-letters/import", chunk)
        .with_context(|| format!("import from line {first} on"))?;
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    tally.imported += count("imported");
    tally.duplicates += count("duplicates");
    tally.refused += count("refused");
    let refused = answer["results"].as_array().into_iter().flatten();
    for result in refused.filter(|result| result["status"] == "refused") {
        let at = result["line"]
            .as_u64()
            .and_then(|line| usize::try_from(line).ok());
        let place = at
            .and_then(|line| numbers.get(line.checked_sub(1)?))
            .unwrap_or(&first);
        let reason = result["reason"]
            .as_str()
            .map_or_else(|| Value::Null.to_string(), super::super::output::plain);
        complain(&format!("line {place} {reason}"));
    }
    Ok(())
}
