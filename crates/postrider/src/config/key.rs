//! Every key of the configuration: its name, its kind with bounds, its default, and what it is for.
//!
//! One table, from which everything else follows: which keys are known, the environment's names, the defaults, the
//! list that `postrider config` prints, and the reference in `docs/configuration.md` (a test compares the two).

use std::time::Duration;

/// Prefix of everything in the environment that is meant for Postrider.
pub const ENVIRONMENT_PREFIX: &str = "POSTRIDER_";

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Dotted path, as in the file: `server.grace` is `grace` in section `[server]`.
    pub path: &'static str,
    /// What a value must be.
    pub kind: Kind,
    /// The default as it would be written in the environment; empty means none, or an empty list.
    pub default: &'static str,
    /// What it is for, one line.
    pub about: &'static str,
}

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A file or directory.
    Path,
    /// `ADDRESS:PORT`.
    Address,
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Count(u64, u64),
    /// A number of bytes within bounds, with or without unit (`16KiB`, `1MiB`).
    Bytes(u64, u64),
    /// A time span within bounds, always with unit (`5s`, `1m30s`).
    Span(Duration, Duration),
    /// A time span within bounds, or `off`.
    SpanOrOff(Duration, Duration),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Texts: an array in the file, separated by commas elsewhere.
    List,
    /// A text that is never shown.
    Secret,
    /// Texts that are never shown.
    Secrets,
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const YEARS: Duration = Duration::from_secs(10_000 * 86_400);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// All keys but those of `[retry]`, in the order in which they are documented.
pub const KEYS: &[Key] = &[
    key(
        "listen",
        Kind::Address,
        "127.0.0.1:3333",
        "Address and port of the HTTP API.",
    ),
    key(
        "data_dir",
        Kind::Path,
        "./postrider-data",
        "Directory of the database and the key file.",
    ),
    key(
        "api_keys",
        Kind::Secrets,
        "",
        "Keys that may use the API; at least one is needed to serve.",
    ),
    key(
        "secret_key",
        Kind::Secret,
        "",
        "Key that seals secrets at rest: 32 bytes in base64. Without it, a key file in the data directory is made and used.",
    ),
    key(
        "topics",
        Kind::List,
        "",
        "Topics that may be published and subscribed to, each once and without `*`; empty allows any.",
    ),
    key(
        "max_destinations_per_tenant",
        Kind::Count(1, 1_000_000),
        "100000",
        "Destinations that one tenant may have.",
    ),
    key(
        "log.format",
        Kind::Choice(&["auto", "text", "json"]),
        "auto",
        "Form of the log: `auto` is text on a terminal and JSON otherwise.",
    ),
    key(
        "log.level",
        Kind::Text,
        "info",
        "Least level that is logged: `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,postrider::courier=debug`.",
    ),
    key(
        "server.max_connections",
        Kind::Count(1, 1_000_000),
        "10000",
        "API connections open at once; more wait to be accepted.",
    ),
    key(
        "server.header_read_timeout",
        Kind::Span(SECOND, HOUR),
        "30s",
        "How long a connection may take to send a request's headers, which is also how long it may idle.",
    ),
    key(
        "server.request_timeout",
        Kind::Span(SECOND, HOUR),
        "1m",
        "How long an API request may take, its body included.",
    ),
    key(
        "server.grace",
        Kind::Span(Duration::ZERO, HOUR),
        "15s",
        "How long a shutdown waits for what is under way before it gives it back; it ends 10 s later at the latest.",
    ),
    key(
        "server.max_body_bytes",
        Kind::Bytes(KIB, GIB),
        "1MiB",
        "Longest body of a request, and of one event in a batch.",
    ),
    key(
        "server.max_batch_bytes",
        Kind::Bytes(KIB, GIB),
        "16MiB",
        "Longest body of a batch of events.",
    ),
    key(
        "store.wal_autocheckpoint",
        Kind::Count(100, 1_000_000),
        "2000",
        "Pages of 8 KiB in the log that start a checkpoint, twice as many while work waits: fewer make shorter stalls, more make higher throughput.",
    ),
    key(
        "store.readers",
        Kind::Count(1, 64),
        "3",
        "Connections for reading by the API; the engine has two of its own.",
    ),
    key(
        "store.read_time_limit",
        Kind::Span(SECOND, HOUR),
        "5s",
        "The longest that one read may take.",
    ),
    key(
        "store.queue_rows",
        Kind::Count(100, 10_000_000),
        "16384",
        "Rows that may wait for the writer; more are answered with 503.",
    ),
    key(
        "store.queue_bytes",
        Kind::Bytes(MIB, 64 * GIB),
        "64MiB",
        "Payload bytes that may wait for the writer.",
    ),
    key(
        "store.writer_cache_bytes",
        Kind::Bytes(MIB, 64 * GIB),
        "16MiB",
        "The writer's page cache at most.",
    ),
    key(
        "store.reader_cache_bytes",
        Kind::Bytes(MIB, 64 * GIB),
        "8MiB",
        "Each reader's page cache at most.",
    ),
    key(
        "store.max_bytes",
        Kind::Bytes(16 * MIB, 16_384 * GIB),
        "",
        "The largest that the database may grow; beyond, publishes are answered with 503. Without it, as large as the disk.",
    ),
    key(
        "engine.max_in_flight",
        Kind::Count(1, 100_000),
        "1024",
        "Requests under way at once, over all destinations. From 8 on, receivers whose last request took more than a second have at most seven eighths of them together.",
    ),
    key(
        "engine.max_unsettled",
        Kind::Count(1, 1_000_000),
        "4096",
        "Results not committed yet; with `max_in_flight`, what a crash can repeat. A power failure repeats the last 20 ms, too.",
    ),
    key(
        "engine.max_queued",
        Kind::Count(1_000, 10_000_000),
        "200000",
        "Deliveries that wait in memory, over all destinations; the rest waits in the store.",
    ),
    key(
        "engine.max_lane",
        Kind::Count(16, 1_000_000),
        "1024",
        "Deliveries of one destination that wait in memory.",
    ),
    key(
        "engine.max_payload_bytes",
        Kind::Bytes(MIB, 64 * GIB),
        "64MiB",
        "Payload bytes that wait in memory; beyond, payloads are read from the store when they are sent.",
    ),
    key(
        "engine.max_refills",
        Kind::Count(1, 64),
        "4",
        "Reads of the store for waiting deliveries at once.",
    ),
    key(
        "engine.max_read_bytes",
        Kind::Bytes(64 * KIB, GIB),
        "8MiB",
        "Payload bytes that one such read may bring.",
    ),
    key(
        "breaker.failures",
        Kind::Count(0, 64),
        "5",
        "So many failures among the last `breaker.last_attempts` open a destination's circuit breaker; 0 turns this trigger off.",
    ),
    key(
        "breaker.last_attempts",
        Kind::Count(1, 64),
        "10",
        "How many attempts `breaker.failures` looks at.",
    ),
    key(
        "breaker.failures_in_a_row",
        Kind::Count(1, 64),
        "4",
        "So many of the newest of them must all have failed (at most `breaker.failures`), so that a receiver that fails now and then is not stopped; 1 asks for nothing.",
    ),
    key(
        "breaker.rate_percent",
        Kind::Count(0, 99),
        "50",
        "A larger share of failures than this opens it; 0 turns this trigger off.",
    ),
    key(
        "breaker.rate_min_attempts",
        Kind::Count(1, 1_000_000),
        "10",
        "Fewer attempts than this within `breaker.look_back` say nothing about the share.",
    ),
    key(
        "breaker.slow_p95",
        Kind::Span(Duration::ZERO, MINUTE),
        "10s",
        "A 95th percentile of latencies above this opens it; `0s` turns this trigger off.",
    ),
    key(
        "breaker.slow_min_attempts",
        Kind::Count(1, 1_000_000),
        "20",
        "Fewer attempts than this within `breaker.look_back` say nothing about latencies.",
    ),
    key(
        "breaker.permanent_run",
        Kind::Count(0, 1_000_000),
        "10",
        "So many permanent failures (such as 401 or 404) without a success between them open it; 0 turns this trigger off.",
    ),
    key(
        "breaker.look_back",
        Kind::Span(SECOND, HOUR),
        "1m",
        "The time over which shares and latencies are taken.",
    ),
    key(
        "breaker.open",
        Kind::Span(SECOND, HOUR),
        "30s",
        "How long it stays open before one request goes out as a probe; up to a fifth is added by jitter.",
    ),
    key(
        "breaker.max_open",
        Kind::Span(SECOND, DAY),
        "10m",
        "The longest that it stays open: each failed probe doubles the time up to here.",
    ),
    key(
        "window.floor",
        Kind::Count(1, 10_000),
        "1",
        "Requests to one destination that may always be under way at once.",
    ),
    key(
        "window.initial",
        Kind::Count(1, 10_000),
        "4",
        "Requests to a destination at once, before anything is known about it.",
    ),
    key(
        "window.ceiling",
        Kind::Count(1, 10_000),
        "64",
        "Requests to one destination at once, however well it takes them.",
    ),
    key(
        "tenant.weight",
        Kind::Count(1, 1_000),
        "1",
        "Turns of a tenant when requests of several tenants have to wait for each other: twice the weight is twice the requests.",
    ),
    key(
        "tenant.rate_limit_per_second",
        Kind::Count(0, 100_000),
        "0",
        "Requests per second to all destinations of one tenant together, evenly spread; 0 is any number.",
    ),
    key(
        "failures.alert_at",
        Kind::Count(0, 1_000_000),
        "100",
        "So many failures in a row at one destination are alarming: an alert is raised at 50 % of it and worse at 70, 90 and 100; 0 never does.",
    ),
    key(
        "failures.disable_after",
        Kind::Span(Duration::ZERO, YEAR),
        "5d",
        "A destination is disabled after so long (and at least 10 attempts) with nothing but failures; `0s` never does.",
    ),
    key(
        "courier.timeout",
        Kind::Span(SECOND, MINUTE),
        "15s",
        "How long a request to a destination may take, unless the destination says otherwise.",
    ),
    key(
        "courier.connect_timeout",
        Kind::Span(Duration::from_millis(100), MINUTE),
        "5s",
        "How long name resolution, TCP and TLS may take together.",
    ),
    key(
        "courier.max_captured_body_bytes",
        Kind::Bytes(0, 16 * MIB),
        "16KiB",
        "Bytes of a response's body that are kept.",
    ),
    key(
        "courier.max_captured_header_bytes",
        Kind::Bytes(0, MIB),
        "8KiB",
        "Bytes of a response's headers that are kept.",
    ),
    key(
        "courier.max_connections",
        Kind::Count(8, 1_000_000),
        "",
        "Connections to destinations open at once; half of the file-descriptor limit without it.",
    ),
    key(
        "courier.max_idle_per_host",
        Kind::Count(0, 10_000),
        "1024",
        "Idle connections kept for one host.",
    ),
    key(
        "courier.idle_timeout",
        Kind::Span(Duration::ZERO, HOUR),
        "50s",
        "How long an idle connection is kept.",
    ),
    key(
        "courier.dns_cache",
        Kind::Span(Duration::ZERO, HOUR),
        "5s",
        "How long a resolved name is used again; the addresses are checked each time.",
    ),
    key(
        "courier.header_mode",
        Kind::Choice(&["standard", "outpost"]),
        "standard",
        "Names of the headers: `standard` sends `webhook-*` (Standard Webhooks), `outpost` sends `x-outpost-*`.",
    ),
    key(
        "courier.allow_addresses",
        Kind::List,
        "",
        "Addresses and CIDR blocks that destinations may have although they are private or special, such as `10.0.0.0/8`. `postrider dev` allows loopback.",
    ),
    key(
        "courier.require_https",
        Kind::Flag,
        "false",
        "Whether destinations must have an https URL.",
    ),
    key(
        "courier.ca_file",
        Kind::Path,
        "",
        "PEM file of certificates to trust besides the system's.",
    ),
    key(
        "retention.events",
        Kind::SpanOrOff(MINUTE, YEARS),
        "30d",
        "How long events are kept, and as long an id that is published again is a duplicate. Those with pending deliveries or dead letters stay as long as these.",
    ),
    key(
        "retention.attempts",
        Kind::SpanOrOff(MINUTE, YEARS),
        "30d",
        "How long attempts are kept; those of pending deliveries and dead letters stay as long as these. Not longer than `retention.events`.",
    ),
    key(
        "retention.dead_letters",
        Kind::SpanOrOff(MINUTE, YEARS),
        "30d",
        "How long dead letters are kept.",
    ),
    key(
        "retention.archive",
        Kind::Text,
        "",
        "Where dead letters are written before retention deletes them: a directory, or `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` (credentials in the environment variables of these services' own tools).",
    ),
    key(
        "alerts.webhook_url",
        Kind::Text,
        "",
        "Where alerts are sent, signed and retried like every event; without it they are in the log and at `GET /api/v1/alerts`.",
    ),
    key(
        "alerts.webhook_secret",
        Kind::Secret,
        "",
        "Signs what is sent there: `whsec_` and base64, as for every destination; needed with `alerts.webhook_url`.",
    ),
    key(
        "alerts.dead_letters",
        Kind::Count(0, 1_000_000_000),
        "1000",
        "So many dead letters in the queue are an alert; 0 turns it off.",
    ),
    key(
        "alerts.dead_letters_per_destination",
        Kind::Count(0, 1_000_000_000),
        "100",
        "So many of one destination are an alert; 0 turns it off.",
    ),
    key(
        "alerts.dead_letter_growth",
        Kind::Count(0, 1_000_000_000),
        "200",
        "So many dead letters that came within an hour, and are still there, are an alert; 0 turns it off.",
    ),
    key(
        "alerts.dead_letter_growth_per_destination",
        Kind::Count(0, 1_000_000_000),
        "50",
        "So many of one destination within an hour are an alert; 0 turns it off.",
    ),
    key(
        "alerts.time_to_success_p99",
        Kind::Span(Duration::ZERO, YEAR),
        "5m",
        "When 1 in 100 deliveries of the last 10 minutes took longer from publish to success, it is an alert; `0s` turns it off.",
    ),
    key(
        "alerts.oldest_due_age",
        Kind::Span(Duration::ZERO, YEAR),
        "15m",
        "A delivery that has been due for so long without being sent is an alert; `0s` turns it off.",
    ),
    key(
        "alerts.breaker_open",
        Kind::Flag,
        "true",
        "Whether a circuit breaker that is open is an alert.",
    ),
    key(
        "alerts.destination_disabled",
        Kind::Flag,
        "true",
        "Whether a destination that was disabled, but not by request, is an alert.",
    ),
    key(
        "alerts.retries_exhausted",
        Kind::Flag,
        "true",
        "Whether deliveries that used up all attempts are an alert, once an hour for each destination and when it becomes critical.",
    ),
    key(
        "metrics.destination_label",
        Kind::Choice(&["top", "off"]),
        "top",
        "Whether attempts are counted by destination (`top`: the busiest, the rest as `other`) or together (`off`).",
    ),
    key(
        "metrics.destination_top",
        Kind::Count(1, 10_000),
        "100",
        "How many destinations have a label of their own.",
    ),
    key(
        "metrics.require_key",
        Kind::Flag,
        "false",
        "Whether `GET /metrics` asks for an API key, too.",
    ),
];

const fn key(path: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key {
        path,
        kind,
        default,
        about,
    }
}

/// The key with this path.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

impl Key {
    /// Its name in the environment: `server.grace` is `POSTRIDER_SERVER__GRACE`.
    #[must_use]
    pub fn environment_name(&self) -> String {
        environment_name(self.path)
    }

    /// Whether its value must not be shown.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret | Kind::Secrets)
    }
}

/// The environment's name of a path.
#[must_use]
pub fn environment_name(path: &str) -> String {
    format!(
        "{ENVIRONMENT_PREFIX}{}",
        path.replace('.', "__").to_ascii_uppercase()
    )
}

#[cfg(test)]
mod tests;
