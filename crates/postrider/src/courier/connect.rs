//! From a host to an open connection: resolve, check, dial, shake hands, each phase timed.
//!
//! The address that the guard approved is the address that is dialled; the name is not resolved again after the check.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::guard::Guard;
use postrider_core::outcome::ErrorKind;
use postrider_store::record::Timings;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::failure::Failure;
use super::lease::Origin;
use super::resolve::CachingResolver;
use super::wire::Wire;

/// Opens connections.
pub(super) struct Dialer {
    pub(super) guard: Guard,
    pub(super) resolver: CachingResolver,
    pub(super) tls: TlsConnector,
    pub(super) timeout: Duration,
}

impl Dialer {
    /// Addresses of one name that are tried at most.
    const MAX_ADDRESSES: usize = 6;

    /// A connection to `origin`, within the connect timeout.
    pub(super) async fn dial(&self, origin: &Origin, timings: &mut Timings) -> Result<Wire, Failure> {
        let deadline = Instant::now() + self.timeout;
        let addresses = self.addresses(origin, deadline, timings).await?;
        let addresses = self.permitted(origin, &addresses)?;

        let connecting = Instant::now();
        let stream = connect_any(&addresses, origin.port, deadline).await;
        timings.connect = Some(connecting.elapsed());
        let stream = stream.map_err(|failure| self.name_the_limit(failure))?;
        if let Err(error) = stream.set_nodelay(true) {
            return Err(Failure::connect(&error));
        }
        if !origin.tls {
            return Ok(Wire::plain(stream));
        }

        let shaking_hands = Instant::now();
        let wire = self.encrypt(origin, stream, deadline).await;
        timings.tls = Some(shaking_hands.elapsed());
        wire
    }

    async fn addresses(
        &self,
        origin: &Origin,
        deadline: Instant,
        timings: &mut Timings,
    ) -> Result<Arc<[IpAddr]>, Failure> {
        if let Some(literal) = origin.ip {
            return Ok(Arc::new([literal]));
        }
        let resolving = Instant::now();
        let answer = timeout_at(deadline, self.resolver.resolve(&origin.host)).await;
        timings.dns = Some(resolving.elapsed());
        let addresses = match answer {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(error)) => return Err(Failure::resolve(&origin.host, &error)),
            Err(_elapsed) => {
                let detail = format!(
                    "no name server answered for {} within {:?}",
                    origin.host, self.timeout
                );
                return Err(Failure::new(ErrorKind::Dns, detail));
            }
        };
        if addresses.is_empty() {
            return Err(Failure::new(
                ErrorKind::Dns,
                format!("the name {} has no address", origin.host),
            ));
        }
        Ok(addresses)
    }

    /// The addresses that may be dialled; a failure when there is none.
    fn permitted(&self, origin: &Origin, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, Failure> {
        let mut refusals = Vec::new();
        let mut permitted = Vec::new();
        for &address in addresses {
            match self.guard.address(address) {
                Ok(()) => permitted.push(address),
                Err(refused) => refusals.push(refused.to_string()),
            }
        }
        permitted.truncate(Self::MAX_ADDRESSES);
        if permitted.is_empty() {
            refusals.truncate(3);
            let detail = format!("{} must not be called: {}", origin.host, refusals.join("; "));
            return Err(Failure::new(ErrorKind::BlockedAddress, detail));
        }
        Ok(permitted)
    }

    async fn encrypt(&self, origin: &Origin, stream: TcpStream, deadline: Instant) -> Result<Wire, Failure> {
        let name = match origin.ip {
            Some(address) => ServerName::from(address),
            None => ServerName::try_from(origin.host.to_string())
                .map_err(|error| Failure::new(ErrorKind::InvalidRequest, error.to_string()))?,
        };
        match timeout_at(deadline, self.tls.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Wire::tls(stream)),
            Ok(Err(error)) => Err(Failure::handshake(&error)),
            Err(_elapsed) => Err(Failure::new(
                ErrorKind::ConnectTimeout,
                format!("the TLS handshake did not finish within {:?}", self.timeout),
            )),
        }
    }

    fn name_the_limit(&self, mut failure: Failure) -> Failure {
        if failure.kind == ErrorKind::ConnectTimeout {
            failure.detail = format!("no connection within {:?}", self.timeout);
        }
        failure
    }
}

/// Tries the addresses in order. Each gets an equal share of the time that is left, so that one black hole does not
/// use up all of it.
async fn connect_any(addresses: &[IpAddr], port: u16, deadline: Instant) -> Result<TcpStream, Failure> {
    let mut last = Failure::new(ErrorKind::ConnectTimeout, "no time left to connect");
    for (tried, &address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(1);
        last = match timeout(share, TcpStream::connect(SocketAddr::new(address, port))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Failure::connect(&error),
            Err(_elapsed) => Failure::new(ErrorKind::ConnectTimeout, "the address does not answer"),
        };
        if last.kind == ErrorKind::LocalResources {
            break;
        }
    }
    Err(last)
}
