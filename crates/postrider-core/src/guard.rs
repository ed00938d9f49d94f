//! Address guard.
use std::net::IpAddr;

/// A destination's URL that passed every check that needs no name resolution.
#[derive(Clone, PartialEq, Eq)]
pub struct DestinationUrl {
    url: url::Url,
}

/// Why an address or a URL is refused; `Display` is for the destination's owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Which addresses may be dialled.
#[derive(Debug, Clone, Default)]
pub struct Guard {}

impl Guard {
    /// Refuses every special-purpose block except those in the CIDR list `allowed` (`"10.0.0.0/8, 192.168.1.5"`).
    ///
    /// # Errors
    /// Names the position of the entry that is no address or block.
    pub fn new(_allowed: &str, _allow_http: bool) -> Result<Self, Refused> {
        todo!()
    }

    /// Parses and checks a URL.
    ///
    /// # Errors
    /// Says what is wrong, and how to mend it.
    pub fn url(&self, _text: &str) -> Result<DestinationUrl, Refused> {
        todo!()
    }

    /// Checks one address that is about to be dialled.
    ///
    /// # Errors
    /// Names the block that it belongs to.
    pub fn address(&self, _address: IpAddr) -> Result<(), Refused> {
        todo!()
    }
}

impl DestinationUrl {
    /// `http` or `https`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        todo!()
    }
    /// Host in ASCII (punycode), IPv6 without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        todo!()
    }
    /// The literal address, when the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        todo!()
    }
    /// Port, default filled in.
    #[must_use]
    pub fn port(&self) -> u16 {
        todo!()
    }
    /// `host[:port]` for the `Host` header, default port left out.
    #[must_use]
    pub fn authority(&self) -> &str {
        todo!()
    }
    /// Path and query for the request line, at least `/`.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        todo!()
    }
    /// The whole URL for people; never with a user or password.
    #[must_use]
    pub fn display(&self) -> &str {
        todo!()
    }
}

impl std::fmt::Debug for DestinationUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.url.as_str())
    }
}
