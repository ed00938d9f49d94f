//! A file of dead letters out of the server.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;

use super::super::client;
use super::super::options::{Server, ServerArgs};
use super::super::output::complain;
use super::filter::FilterArgs;

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
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// File to write, such as letters.jsonl or letters.jsonl.zst; `-`, or none, is standard output
    file: Option<PathBuf>,
}

pub(super) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let path = format!(
        "/api/v1/dead-letters/export?{}",
        args.filter.query().trim_start_matches('&')
    );
    let Some(file) = args.file.as_deref().filter(|file| *file != Path::new("-")) else {
        let lines = write(&server, &path, io::stdout().lock(), args.zstd)?;
        complain(&format!("{lines} dead letters written to standard output"));
        return Ok(());
    };
    let compress = args.zstd || file.extension().is_some_and(|extension| extension == "zst");
    if file.exists() && !args.force {
        return Err(anyhow!(
            "export to {}: it exists; name another file, or replace it with --force",
            file.display()
        ));
    }
    // Beside its place until it is whole, so that a file of this name is always complete.
    let temporary = temporary(file);
    let exported = create(&temporary)
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

/// For its owner only: payloads are the customers' data.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    // One that was left by a command that was killed keeps its mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters.jsonl.part");
        std::fs::write(&path, "left over").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        for _ in 0..2 {
            let file = create(&path).unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(file.metadata().unwrap().len(), 0);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
