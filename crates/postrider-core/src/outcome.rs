//! What an attempt saw. The courier reports it, [`crate::policy`] judges it.

use std::time::Duration;

use crate::words::words;

/// The result of one HTTP request of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A final status line arrived. Nothing that comes after it changes the verdict.
    Answered(Answer),
    /// No final status line arrived.
    Failed(ErrorKind),
}

/// What of an answer the policy looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Final status code, 200 to 999.
    pub status: u16,
    /// `Retry-After` as a delay from the moment of the answer, when there was a valid one; not yet capped.
    pub retry_after: Option<Duration>,
    /// For how long nothing remains of the receiver's quota, by its RateLimit fields; not yet capped.
    pub used_up: Option<Duration>,
    /// `Location` of a redirect, for the reason text only: it is never followed.
    pub location: Option<String>,
}

impl Outcome {
    /// An answer with nothing but a status.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self::Answered(Answer {
            status,
            retry_after: None,
            used_up: None,
            location: None,
        })
    }

    /// The status code, when one arrived.
    #[must_use]
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Answered(answer) => Some(answer.status),
            Self::Failed(_) => None,
        }
    }

    /// Whether the receiver took the event: any 2xx.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(
            self,
            Self::Answered(Answer {
                status: 200..=299,
                ..
            })
        )
    }

    /// The category under which people look for it.
    #[must_use]
    pub const fn category(&self) -> Category {
        match self {
            Self::Answered(answer) => match answer.status {
                200..=299 => Category::Success,
                300..=399 => Category::Redirect,
                429 => Category::RateLimited,
                400..=499 => Category::Http4xx,
                _ => Category::Http5xx,
            },
            Self::Failed(kind) => kind.category(),
        }
    }
}

words! {
    /// Why no answer arrived.
    pub enum ErrorKind {
        /// The name does not resolve, or the resolver did not answer.
        Dns = 1 => "dns",
        /// TCP connect was refused.
        ConnectRefused = 2 => "connect_refused",
        /// No route, network or host unreachable, or another failure to connect.
        ConnectFailed = 3 => "connect_failed",
        /// TCP or TLS did not finish within the connect timeout.
        ConnectTimeout = 4 => "connect_timeout",
        /// The TLS handshake failed; the detail says how (expired, wrong name, unknown issuer, ...).
        Tls = 5 => "tls",
        /// The whole request did not finish within its timeout.
        Timeout = 6 => "timeout",
        /// The connection was reset after it was made.
        ConnectionReset = 7 => "connection_reset",
        /// The connection was closed before a final status line.
        ConnectionClosed = 8 => "connection_closed",
        /// The answer was not HTTP, or broke a bound (header size, endless 1xx).
        Protocol = 9 => "protocol",
        /// The address guard refused every address of the name.
        BlockedAddress = 10 => "blocked_address",
        /// The request could not be built from the destination and the event.
        InvalidRequest = 11 => "invalid_request",
        /// Our own resources ran out (file descriptors, memory): not the receiver's fault.
        LocalResources = 12 => "local_resources",
        /// A bug of ours: retried, reported, not the receiver's fault.
        Internal = 13 => "internal",
    }
}

impl ErrorKind {
    /// The category under which people look for it.
    #[must_use]
    pub const fn category(self) -> Category {
        match self {
            Self::Dns => Category::Dns,
            Self::ConnectRefused | Self::ConnectFailed => Category::Connect,
            Self::ConnectTimeout | Self::Timeout => Category::Timeout,
            Self::Tls => Category::Tls,
            Self::ConnectionReset | Self::ConnectionClosed => Category::Closed,
            Self::Protocol => Category::Protocol,
            Self::BlockedAddress => Category::BlockedAddress,
            Self::InvalidRequest => Category::InvalidRequest,
            Self::LocalResources | Self::Internal => Category::Internal,
        }
    }

    /// Whether the receiver is to blame: only then do breaker and window hear of it, and an attempt is charged.
    #[must_use]
    pub const fn blames_receiver(self) -> bool {
        !matches!(
            self,
            Self::LocalResources | Self::Internal | Self::BlockedAddress | Self::InvalidRequest
        )
    }
}

words! {
    /// Coarse kind of an outcome, for filters, summaries and metric labels.
    pub enum Category {
        /// 2xx.
        Success = 0 => "success",
        /// 3xx, never followed.
        Redirect = 1 => "redirect",
        /// 4xx other than 429.
        Http4xx = 2 => "http_4xx",
        /// 5xx.
        Http5xx = 3 => "http_5xx",
        /// 429.
        RateLimited = 4 => "rate_limited",
        /// No answer in time.
        Timeout = 5 => "timeout",
        /// Name resolution.
        Dns = 6 => "dns",
        /// TLS handshake.
        Tls = 7 => "tls",
        /// TCP connect.
        Connect = 8 => "connect",
        /// Closed or reset before an answer.
        Closed = 9 => "closed",
        /// Not HTTP.
        Protocol = 10 => "protocol",
        /// Refused by the address guard.
        BlockedAddress = 11 => "blocked_address",
        /// No request could be built.
        InvalidRequest = 12 => "invalid_request",
        /// Ours.
        Internal = 13 => "internal",
        /// There was no attempt.
        NotAttempted = 14 => "not_attempted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_2xx_is_success() {
        for status in [200, 201, 202, 203, 204, 205, 206, 207, 226, 299] {
            assert!(Outcome::status(status).is_success(), "{status}");
        }
        for status in [300, 304, 399, 400, 429, 500, 599, 999] {
            assert!(!Outcome::status(status).is_success(), "{status}");
        }
    }

    #[test]
    fn categories_of_statuses() {
        let table = [
            (204, Category::Success),
            (308, Category::Redirect),
            (404, Category::Http4xx),
            (429, Category::RateLimited),
            (503, Category::Http5xx),
            (999, Category::Http5xx),
        ];
        for (status, category) in table {
            assert_eq!(Outcome::status(status).category(), category, "{status}");
        }
    }
}
