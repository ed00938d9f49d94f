//! `postrider doctor`: can this machine and configuration serve?

use std::fmt;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::Path;

use clap::Args;
use postrider_store::sqlite::{check_seal_key, inspect};

use super::options::ConfigArgs;
use super::output::{Reported, say};
use super::serve::{advised, ca_file_refused, seal_key};
use crate::clock::{Clock, SystemClock};
use crate::config::settings::Settings;
use crate::courier::tls::count_certificates;
use crate::telemetry::process;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Sockets and files besides API connections and deliveries: store, log, resolver, spare.
const OTHER_DESCRIPTORS: u64 = 128;
/// 2025-01-01: this program is younger.
const EARLIEST_MILLIS: i64 = 1_735_689_600_000;

/// What to check.
#[derive(Debug, Args)]
#[command(
    after_help = "Each line is ok, warn or fail. Exit code 0 without a fail, 1 with one.\n\nExample:\n  postrider doctor --config /etc/postrider.toml"
)]
pub struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// With the defaults of `postrider dev`
    #[arg(long)]
    dev: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Finding {
    Ok(String),
    Warn(String),
    Fail(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match self {
            Self::Ok(text) => ("ok", text),
            Self::Warn(text) => ("warn", text),
            Self::Fail(text) => ("fail", text),
        };
        write!(f, "{word:<4}  {text}")
    }
}

/// Checks everything and prints one line each.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let config = match args.config.load(args.dev) {
        Ok(config) => config,
        Err(error) => {
            for problem in error.problems {
                say(&Finding::Fail(format!("configuration: {problem}")).to_string())?;
            }
            return Err(Reported(super::FAILED).into());
        }
    };
    let settings = &config.settings;
    let findings = [
        Finding::Ok("configuration: readable, and every value is right".to_owned()),
        api_keys(settings, args.dev),
        data_dir(&settings.data_dir),
        database(settings),
        archive(settings),
        disk_space(&settings.data_dir),
        descriptors(settings),
        port(settings),
        ca_file(settings),
        tls_roots(),
        clock(),
    ];
    for finding in &findings {
        say(&finding.to_string())?;
    }
    let failed = findings.iter().any(|finding| matches!(finding, Finding::Fail(_)));
    if failed {
        Err(Reported(super::FAILED).into())
    } else {
        Ok(())
    }
}

fn api_keys(settings: &Settings, dev: bool) -> Finding {
    if dev && settings.api_keys.is_empty() {
        return Finding::Ok("API keys: postrider dev makes one".to_owned());
    }
    if let Err(problem) = settings.require_api_key() {
        return Finding::Fail(format!("API keys: {problem}"));
    }
    let short = settings
        .api_keys
        .iter()
        .filter(|key| key.expose().len() < 16)
        .count();
    if short > 0 {
        return Finding::Warn(format!(
            "API keys: {short} have fewer than 16 characters and could be guessed; `openssl rand -hex 24` makes a good one"
        ));
    }
    Finding::Ok(format!("API keys: {}", settings.api_keys.len()))
}

fn data_dir(dir: &Path) -> Finding {
    let shown = dir.display();
    if !dir.exists() {
        let parent = dir
            .ancestors()
            .find(|ancestor| ancestor.exists())
            .unwrap_or(Path::new("."));
        return match write_test(parent) {
            Ok(()) => Finding::Ok(format!("data directory: {shown} will be made at the first start")),
            Err(error) => Finding::Fail(format!(
                "data directory: {shown} cannot be made: {error}; name a writable one by --data-dir"
            )),
        };
    }
    match write_test(dir) {
        Ok(()) => Finding::Ok(format!("data directory: {shown} is writable")),
        Err(error) => Finding::Fail(format!(
            "data directory: {shown} cannot be written: {error}; make it writable or name another by --data-dir"
        )),
    }
}

fn write_test(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!(".postrider-doctor-{}", std::process::id()));
    let mut file = std::fs::File::create_new(&path)?;
    let written = file.write_all(b"postrider").and_then(|()| file.sync_all());
    std::fs::remove_file(&path)?;
    written
}

fn database(settings: &Settings) -> Finding {
    let version = match inspect(&settings.data_dir) {
        Ok(None) => return Finding::Ok("database: none yet".to_owned()),
        Ok(Some(version)) => version,
        Err(error) => return Finding::Fail(format!("database: failed to {:#}", advised(error))),
    };
    // There is a database, so no key is made here.
    let opens = seal_key(settings).and_then(|key| check_seal_key(&settings.data_dir, &key).map_err(advised));
    match opens {
        Ok(()) => Finding::Ok(format!(
            "database: schema version {version}, and the seal key opens its secrets"
        )),
        Err(error) => Finding::Fail(format!("database: failed to {error:#}")),
    }
}

fn archive(settings: &Settings) -> Finding {
    let Some(archive) = &settings.retention.archive else {
        return Finding::Ok("archive: none".to_owned());
    };
    match archive.check_writable() {
        Ok(()) => Finding::Ok(format!("archive: {archive}")),
        Err(error) => Finding::Fail(format!(
            "archive: failed to {:#}; make it writable, or name another by retention.archive",
            anyhow::Error::from(error)
        )),
    }
}

fn disk_space(dir: &Path) -> Finding {
    let existing = dir
        .ancestors()
        .find(|ancestor| ancestor.exists() && !ancestor.as_os_str().is_empty());
    match rustix::fs::statvfs(existing.unwrap_or(Path::new("."))) {
        Ok(space) => judge_space(space.f_bavail.saturating_mul(space.f_frsize)),
        Err(error) => Finding::Warn(format!("disk space: not known: {error}")),
    }
}

fn judge_space(free: u64) -> Finding {
    let text = format!("disk space: {} MiB free", free / MIB);
    match free {
        0..=104_857_600 => Finding::Fail(format!(
            "{text}; publishes will be refused when it is used up, free some"
        )),
        _ if free < GIB => Finding::Warn(format!("{text}; less than 1 GiB")),
        _ => Finding::Ok(text),
    }
}

fn descriptors(settings: &Settings) -> Finding {
    let limit = process::descriptor_limit();
    let incoming = u64::try_from(settings.server.max_connections).unwrap_or(u64::MAX);
    let outgoing = settings
        .courier
        .max_connections
        .map_or(limit / 2, |most| u64::try_from(most).unwrap_or(u64::MAX));
    let needed = incoming
        .saturating_add(outgoing)
        .saturating_add(OTHER_DESCRIPTORS);
    let text = format!("file descriptors: limit {limit}");
    if limit < 256 {
        Finding::Fail(format!(
            "{text}; raise it to at least 1024 (ulimit -n, LimitNOFILE=)"
        ))
    } else if limit < needed {
        Finding::Warn(format!(
            "{text}, up to {needed} may be needed; raise it (ulimit -n, LimitNOFILE=) or lower server.max_connections and courier.max_connections"
        ))
    } else {
        Finding::Ok(text)
    }
}

fn port(settings: &Settings) -> Finding {
    let listen = settings.listen;
    match TcpListener::bind(listen) {
        Ok(_) => Finding::Ok(format!("listen: {listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Finding::Fail(format!(
            "listen: {listen} is in use (is Postrider running already?); stop the other or choose another by --listen"
        )),
        Err(error) => Finding::Fail(format!(
            "listen: {listen} cannot be used: {error}; choose another by --listen"
        )),
    }
}

fn ca_file(settings: &Settings) -> Finding {
    let Some(path) = &settings.courier.ca_file else {
        return Finding::Ok("own TLS roots: none".to_owned());
    };
    match count_certificates(path) {
        Ok(count) => Finding::Ok(format!("own TLS roots: {count} in {}", path.display())),
        Err(error) => Finding::Fail(format!("own TLS roots: failed to {}", ca_file_refused(error))),
    }
}

fn tls_roots() -> Finding {
    let loaded = rustls_native_certs::load_native_certs();
    match (loaded.certs.len(), loaded.errors.first()) {
        (0, _) => Finding::Fail("TLS roots: the system has none, so that no https destination can be verified; install ca-certificates".to_owned()),
        (count, Some(error)) => Finding::Warn(format!("TLS roots: {count}, but some cannot be read: {error}")),
        (count, None) => Finding::Ok(format!("TLS roots: {count}")),
    }
}

fn clock() -> Finding {
    let now = SystemClock.now();
    if now.as_millis() < EARLIEST_MILLIS {
        Finding::Fail(format!(
            "clock: {now} is in the past; signatures carry the time, so receivers would refuse them; set the clock"
        ))
    } else {
        Finding::Ok(format!("clock: {now}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_warns_and_almost_none_fails() {
        assert!(matches!(judge_space(50 * MIB), Finding::Fail(_)));
        assert!(matches!(judge_space(500 * MIB), Finding::Warn(_)));
        assert_eq!(
            judge_space(2 * GIB),
            Finding::Ok("disk space: 2048 MiB free".to_owned())
        );
    }

    #[test]
    fn a_directory_that_cannot_be_written_fails() {
        assert!(matches!(data_dir(Path::new("/proc/self")), Finding::Fail(_)));
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(data_dir(dir.path()), Finding::Ok(_)));
        assert!(matches!(data_dir(&dir.path().join("new/er")), Finding::Ok(_)));
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "nothing is left behind"
        );
    }
}
