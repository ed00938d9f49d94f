//! Files of dead letters: out of the server, and back.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::super::client;
use super::super::options::{Server, ServerArgs};
use super::super::output::{Reported, complain, say};
use super::filter::FilterArgs;
use crate::letters::archive::lines;

/// Bytes and lines of one request of an import.
const MAX_CHUNK_BYTES: usize = 4 << 20;
const MAX_CHUNK_LINES: usize = 500;

/// Options of `export`.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Compress with zstd [default: when the file's name ends with .zst]
    #[arg(long)]
    zstd: bool,
    /// File to write, such as letters.jsonl or letters.jsonl.zst; standard output without it
    file: Option<PathBuf>,
}

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

pub(super) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let path = format!("/api/v1/dead-letters/export?{}", args.filter.query().trim_start_matches('&'));
    let is_zst = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "zst");
    let compress = args.zstd || args.file.as_ref().is_some_and(is_zst);
    let Some(file) = &args.file else {
        return write(&server, &path, io::stdout().lock(), compress).map(drop);
    };
    // Beside its place until it is whole, so that a file of this name is always complete.
    let temporary = temporary(file);
    let exported = File::create(&temporary)
        .map_err(anyhow::Error::from)
        .and_then(|output| {
            let lines = write(&server, &path, &output, compress)?;
            output.sync_all()?;
            std::fs::rename(&temporary, file)?;
            Ok(lines)
        })
        .with_context(|| format!("export to {}", file.display()));
    match exported {
        Ok(lines) => {
            complain(&format!("{lines} dead letters written to {}", file.display()));
            Ok(())
        }
        Err(error) => {
            drop(std::fs::remove_file(&temporary));
            Err(error)
        }
    }
}

fn temporary(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    file.with_file_name(name)
}

/// Writes everything; how many lines that was.
fn write(server: &Server, path: &str, output: impl Write, compress: bool) -> anyhow::Result<usize> {
    let mut count = 0;
    let mut download = |output: &mut dyn Write| {
        client::download(server, path, |piece| {
            count += piece.iter().filter(|byte| **byte == b'\n').count();
            Ok(output.write_all(piece)?)
        })
    };
    if compress {
        let mut encoder = zstd::Encoder::new(output, 0)?;
        encoder.include_checksum(true)?;
        download(&mut encoder)?;
        encoder.finish()?.flush()?;
    } else {
        let mut output = output;
        download(&mut output)?;
        output.flush()?;
    }
    Ok(count)
}

/// What became of the lines.
#[derive(Debug, Default)]
struct Tally {
    imported: u64,
    duplicates: u64,
    refused: u64,
}

pub(super) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let source: Box<dyn io::BufRead> = if args.file == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let file = File::open(&args.file).with_context(|| format!("open {}", args.file.display()))?;
        Box::new(BufReader::new(file))
    };
    let mut tally = Tally::default();
    let (mut chunk, mut first, mut count) = (Vec::new(), 1, 0);
    for line in lines(source).context("read the file")? {
        let line = line.context("read the file to its end; what came before was imported")?;
        if count > 0 && (chunk.len() + line.len() > MAX_CHUNK_BYTES || count == MAX_CHUNK_LINES) {
            send(&server, std::mem::take(&mut chunk), first, &mut tally)?;
            (first, count) = (first + count, 0);
        }
        chunk.extend_from_slice(&line);
        chunk.push(b'\n');
        count += 1;
    }
    if count > 0 {
        send(&server, chunk, first, &mut tally)?;
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

fn send(server: &Server, chunk: Vec<u8>, first: usize, tally: &mut Tally) -> anyhow::Result<()> {
    let answer = client::request(server, Method::POST, "/api/v1/dead-letters/import", chunk)
        .and_then(|answer| answer.json())
        .with_context(|| format!("import from line {first} on"))?;
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    tally.imported += count("imported");
    tally.duplicates += count("duplicates");
    tally.refused += count("refused");
    let refused = answer["results"].as_array().into_iter().flatten();
    for result in refused.filter(|result| result["status"] == "refused") {
        let place = result["line"].as_u64().map_or(first, |line| {
            first + usize::try_from(line.saturating_sub(1)).unwrap_or_default()
        });
        let reason = result["reason"].as_str().map_or_else(|| Value::Null.to_string(), super::super::output::plain);
        complain(&format!("line {place} {reason}"));
    }
    Ok(())
}
