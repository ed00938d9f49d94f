//! Errors of sockets, TLS and HTTP as an [`ErrorKind`] and a sentence for the destination's owner.
//!
//! The kind decides about retries, so it follows what happened on the wire; the sentence says what to do about it. Both
//! come from types and error numbers, never from the wording of somebody else's message.

use std::error::Error;
use std::io;
use std::time::Duration;

use postrider_core::outcome::ErrorKind;

use super::tls;
use super::wire::Vitals;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) detail: String,
}

impl Failure {
    pub(super) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// A name that gave no address.
    pub(super) fn resolve(host: &str, error: &io::Error) -> Self {
        if let Some(failure) = Self::local(error) {
            return failure;
        }
        Self::new(
            ErrorKind::Dns,
            format!("the name {host} cannot be resolved: {error}"),
        )
    }

    /// A TCP connect that failed.
    pub(super) fn connect(error: &io::Error) -> Self {
        if let Some(failure) = Self::local(error) {
            return failure;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::new(
                ErrorKind::ConnectRefused,
                "connection refused: nothing listens on this port",
            ),
            io::ErrorKind::TimedOut => Self::new(
                ErrorKind::ConnectTimeout,
                "the address did not answer the connection attempt",
            ),
            _ => Self::new(ErrorKind::ConnectFailed, format!("cannot connect: {error}")),
        }
    }

    /// A TLS handshake that failed.
    pub(super) fn handshake(error: &io::Error) -> Self {
        if let Some(error) = source_of::<rustls::Error>(error) {
            return Self::new(ErrorKind::Tls, tls::explain(error));
        }
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::new(
                ErrorKind::Tls,
                "the receiver reset the connection during the TLS handshake",
            ),
            io::ErrorKind::UnexpectedEof => Self::new(
                ErrorKind::Tls,
                "the receiver closed the connection during the TLS handshake",
            ),
            _ => Self::new(ErrorKind::Tls, format!("TLS handshake failed: {error}")),
        }
    }

    /// A request that ended without a final status line. `answered_bytes` of an answer had arrived.
    pub(super) fn exchange(error: &hyper::Error, vitals: &Vitals, answered_bytes: u64) -> Self {
        if let Some(error) = source_of::<rustls::Error>(error) {
            return Self::new(ErrorKind::Tls, tls::explain(error));
        }
        if let Some(error) = source_of::<h2::Error>(error) {
            return Self::stream(error);
        }
        if error.is_parse() {
            return Self::new(
                ErrorKind::Protocol,
                format!("the answer is not HTTP: {}", chain(error)),
            );
        }
        let progress = match answered_bytes {
            0 => "before an answer",
            _ => "in the middle of the answer's head",
        };
        match vitals.last_error() {
            Some(
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted,
            ) => Self::new(
                ErrorKind::ConnectionReset,
                format!("the receiver reset the connection {progress}"),
            ),
            Some(io::ErrorKind::UnexpectedEof) => Self::closed(progress),
            Some(io::ErrorKind::TimedOut) => Self::new(
                ErrorKind::Timeout,
                format!("the network gave the connection up {progress}"),
            ),
            Some(_) => Self::new(
                ErrorKind::ConnectionReset,
                format!("connection lost {progress}: {}", chain(error)),
            ),
            None if is_end(error) => Self::closed(progress),
            None if error.is_user() => Self::new(ErrorKind::Internal, chain(error)),
            None => Self::new(
                ErrorKind::Protocol,
                format!("the answer broke HTTP: {}", chain(error)),
            ),
        }
    }

    fn closed(progress: &str) -> Self {
        Self::new(
            ErrorKind::ConnectionClosed,
            format!("the receiver closed the connection {progress}"),
        )
    }

    /// The whole request's time is over.
    pub(super) fn timeout(limit: Duration, connected: bool) -> Self {
        let doing = if connected {
            "waiting for an answer"
        } else {
            "connecting"
        };
        Self::new(
            ErrorKind::Timeout,
            format!("no answer within {limit:?} ({doing})"),
        )
    }

    fn stream(error: &h2::Error) -> Self {
        let reason = error
            .reason()
            .map_or_else(String::new, |reason| format!(" ({reason:?})"));
        if let Some(io) = error.get_io() {
            return match io.kind() {
                io::ErrorKind::ConnectionReset => Self::new(
                    ErrorKind::ConnectionReset,
                    "the receiver reset the connection before an answer",
                ),
                _ => Self::new(
                    ErrorKind::ConnectionClosed,
                    "the receiver closed the connection before an answer",
                ),
            };
        }
        if error.is_remote() && error.is_go_away() {
            return Self::new(
                ErrorKind::ConnectionClosed,
                format!("the receiver sent GOAWAY{reason}"),
            );
        }
        if error.is_remote() && error.is_reset() {
            return Self::new(
                ErrorKind::ConnectionReset,
                format!("the receiver reset the HTTP/2 stream{reason}"),
            );
        }
        Self::new(ErrorKind::Protocol, format!("the answer broke HTTP/2: {error}"))
    }

    /// What is our machine's fault, whatever we were doing.
    fn local(error: &io::Error) -> Option<Self> {
        use rustix::io::Errno;
        let errno = Errno::from_io_error(error)?;
        let exhausted = match errno {
            Errno::MFILE | Errno::NFILE => "file descriptors",
            Errno::NOBUFS | Errno::NOMEM => "memory for sockets",
            Errno::ADDRNOTAVAIL => "local ports",
            _ => return None,
        };
        Some(Self::new(
            ErrorKind::LocalResources,
            format!("Postrider ran out of {exhausted}"),
        ))
    }
}

/// Whether hyper says, of a socket without an error, that it ended too early. HTTP/2 has a broken pipe for it.
fn is_end(error: &hyper::Error) -> bool {
    error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || source_of::<io::Error>(error).is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether a request that was sent and got this error was certainly not processed, so that sending it again is no repeat:
/// a refused stream (RFC 9113 §8.7), or a stream above the last one that a GOAWAY names (§6.8). Streams at or below
/// it end with another error.
pub(super) fn is_unprocessed(error: &hyper::Error) -> bool {
    source_of::<h2::Error>(error).is_some_and(|error| {
        error.is_remote()
            && (error.is_go_away() || error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// An error with all its causes in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

fn source_of<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        // An `io::Error` does not count what it wraps as its source's beginning, but as itself.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            next = Some(inner);
            continue;
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_descriptors_are_our_fault() {
        for errno in [
            rustix::io::Errno::MFILE,
            rustix::io::Errno::NFILE,
            rustix::io::Errno::ADDRNOTAVAIL,
        ] {
            let failure = Failure::connect(&io::Error::from(errno));
            assert_eq!(failure.kind, ErrorKind::LocalResources, "{errno}");
            assert!(!failure.kind.blames_receiver());
        }
    }

    #[test]
    fn kinds_of_connect_errors() {
        let table = [
            (rustix::io::Errno::CONNREFUSED, ErrorKind::ConnectRefused),
            (rustix::io::Errno::HOSTUNREACH, ErrorKind::ConnectFailed),
            (rustix::io::Errno::NETUNREACH, ErrorKind::ConnectFailed),
            (rustix::io::Errno::TIMEDOUT, ErrorKind::ConnectTimeout),
            (rustix::io::Errno::CONNRESET, ErrorKind::ConnectFailed),
        ];
        for (errno, kind) in table {
            assert_eq!(Failure::connect(&io::Error::from(errno)).kind, kind, "{errno}");
        }
    }
}
