//! What an operator may set about outgoing requests.

use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::CertificateDer;

/// Names of the headers that describe the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderMode {
    /// `webhook-id`, `webhook-timestamp`, `webhook-signature` of the Standard Webhooks specification, and
    /// `webhook-topic`, `webhook-attempt`.
    #[default]
    Standard,
    /// `x-outpost-event-id`, `x-outpost-timestamp`, `x-outpost-topic`, `x-outpost-signature`; metadata with the same
    /// prefix.
    Outpost,
}

/// Bounds and trust of outgoing requests.
#[derive(Debug, Clone)]
pub struct CourierConfig {
    /// Name resolution, TCP and TLS together.
    pub connect_timeout: Duration,
    /// Response body bytes kept; a longer body is cut here and its connection closed.
    pub max_captured_body_bytes: usize,
    /// Response header bytes kept, names and values together; later headers are left out.
    pub max_captured_header_bytes: usize,
    /// Open connections at most, idle ones included; `None` takes half of what the process may open.
    pub max_connections: Option<usize>,
    /// Idle connections kept for one host at most.
    pub max_idle_per_host: usize,
    /// How long an idle connection is kept: shorter than what common servers allow, since a request that meets a
    /// closing connection has to be repeated.
    pub idle_timeout: Duration,
    /// How long a resolved name is used again. Every address is checked by the guard at each use.
    pub dns_cache: Duration,
    /// Header names.
    pub header_mode: HeaderMode,
    /// PEM file with certificates to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificates to trust besides the system's.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

impl Default for CourierConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            max_captured_body_bytes: 16 * 1024,
            max_captured_header_bytes: 8 * 1024,
            max_connections: None,
            max_idle_per_host: 1_024,
            idle_timeout: Duration::from_secs(50),
            dns_cache: Duration::from_secs(5),
            header_mode: HeaderMode::Standard,
            ca_file: None,
            extra_roots: Vec::new(),
        }
    }
}

/// Raises the soft limit of open descriptors to the hard one, at most 65,536, as many as the default of
/// [`CourierConfig::max_connections`] can use. For the start of a process; what cannot be raised stays.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(MAX_DESCRIPTORS, |hard| hard.min(MAX_DESCRIPTORS));
    if limit.current.is_some_and(|soft| soft < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open descriptors stays as it is");
        }
    }
}

const MAX_DESCRIPTORS: u64 = 65_536;

/// Half of the descriptors that this process may open: the other half is for incoming connections, the store and logs.
pub(super) fn connections_within_descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(MAX_DESCRIPTORS);
    usize::try_from(limit.min(MAX_DESCRIPTORS) / 2)
        .unwrap_or(8)
        .max(8)
}
