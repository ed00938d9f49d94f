//! The address guard: which URLs and addresses a destination may have.
//!
//! A server that sends requests to addresses that its users choose can be turned against the network that it stands
//! in. So each URL is judged when it is saved, for a good message, and each address again when it is about to be
//! dialled, because only then is it known what a name resolves to: the courier must dial exactly the address that it
//! gave to [`Guard::address`]. Nothing here resolves a name. `docs/decisions/0021-address-guard.md` says what is
//! refused beyond the registries, and why.

mod blocks;
mod url;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

pub use self::url::{DestinationUrl, MAX_URL_BYTES};

/// Why an address or a URL is refused; `Display` is for the destination's owner: a lower-case fragment that fits
/// after the name of the field. It never contains a user or password of the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Which addresses may be dialled. The default refuses every special-purpose block and allows `http`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    allowed: Vec<IpNet>,
    allow_http: bool,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            allowed: Vec::new(),
            allow_http: true,
        }
    }
}

impl Guard {
    /// Refuses every special-purpose block except those in the CIDR list `allowed` (`"10.0.0.0/8, 192.168.1.5"`).
    /// Spaces and empty entries are ignored. Without `allow_http` only `https` URLs are accepted.
    ///
    /// # Errors
    /// Names the position, from 1, of every entry that is no address or block.
    pub fn new(allowed: &str, allow_http: bool) -> Result<Self, Vec<Refused>> {
        let entries = allowed
            .split(',')
            .map(str::trim)
            .enumerate()
            .filter(|(_, entry)| !entry.is_empty());
        let (mut allowed, mut wrong) = (Vec::new(), Vec::new());
        for (index, entry) in entries {
            match parse_block(entry) {
                Ok(block) => allowed.push(block),
                Err(why) => wrong.push(Refused(format!("entry {} ({entry:?}) {why}", index + 1))),
            }
        }
        if wrong.is_empty() {
            Ok(Self { allowed, allow_http })
        } else {
            Err(wrong)
        }
    }

    /// This, with the loopback addresses and `localhost` allowed: for development on one machine.
    #[must_use]
    pub fn with_loopback(mut self) -> Self {
        self.allowed
            .push(IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)));
        self.allowed.push(IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        self
    }

    /// Parses and checks a URL, up to what needs name resolution.
    ///
    /// # Errors
    /// Says what is wrong, and how to mend it.
    pub fn url(&self, text: &str) -> Result<DestinationUrl, Refused> {
        url::parse(self, text)
    }

    /// Checks one address that is about to be dialled. An address that embeds an IPv4 address through which it is
    /// reached is judged as that one.
    ///
    /// # Errors
    /// Names the block that it belongs to.
    pub fn address(&self, address: IpAddr) -> Result<(), Refused> {
        let reached = match address {
            IpAddr::V6(v6) => blocks::embedded_v4(v6).map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        if self
            .allowed
            .iter()
            .any(|block| block.contains(&reached) || block.contains(&address))
        {
            return Ok(());
        }
        let purpose = match reached {
            IpAddr::V4(v4) => blocks::purpose_v4(v4),
            IpAddr::V6(v6) => blocks::purpose_v6(v6),
        };
        let Some(purpose) = purpose else { return Ok(()) };
        let written = if reached == address {
            address.to_string()
        } else {
            format!("{address} ({reached})")
        };
        Err(Refused(format!(
            "the address {written} is not allowed: {} ({}); an operator can allow it by its block",
            purpose.name, purpose.source
        )))
    }

    fn allows_loopback(&self) -> bool {
        self.address(IpAddr::V4(Ipv4Addr::LOCALHOST)).is_ok()
            || self.address(IpAddr::V6(Ipv6Addr::LOCALHOST)).is_ok()
    }

    /// Whether any address is allowed that the internet does not know, so that private names may lead somewhere.
    fn allows_private(&self) -> bool {
        !self.allowed.is_empty()
    }
}

fn parse_block(entry: &str) -> Result<IpNet, String> {
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Ok(unmapped(IpNet::from(address)));
    }
    let block: IpNet = entry
        .parse()
        .map_err(|_| "is neither an address nor a block such as 10.0.0.0/8 or fd00::/8".to_owned())?;
    if block.addr() == block.network() {
        Ok(unmapped(block))
    } else {
        Err(format!(
            "is an address within a block: write {} or {}",
            block.trunc(),
            block.addr()
        ))
    }
}

/// A block of IPv4-mapped addresses as the IPv4 block that it stands for.
fn unmapped(block: IpNet) -> IpNet {
    let IpNet::V6(v6) = block else { return block };
    let ipv4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96));
    ipv4.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok())
        .map_or(block, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(guard: &Guard, address: &str) -> Option<String> {
        guard
            .address(address.parse().unwrap())
            .err()
            .map(|refused| refused.to_string())
    }

    #[test]
    fn the_first_and_the_last_address_of_every_block_are_refused() {
        let guard = Guard::default();
        for (block, purpose) in blocks::IPV4 {
            for address in [block.network(), block.broadcast()] {
                assert!(
                    guard.address(IpAddr::V4(address)).is_err(),
                    "{address}: {}",
                    purpose.name
                );
                let mapped = IpAddr::V6(address.to_ipv6_mapped());
                assert!(guard.address(mapped).is_err(), "{mapped}: {}", purpose.name);
            }
        }
        for (block, purpose) in blocks::IPV6 {
            for address in [block.network(), block.broadcast()] {
                assert!(
                    guard.address(IpAddr::V6(address)).is_err(),
                    "{address}: {}",
                    purpose.name
                );
            }
        }
    }

    #[test]
    fn neighbours_of_the_blocks_are_public() {
        let public = [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "168.63.129.15",
            "2000::",
            "2001:200::",
            "2001:db7::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "2620:4f:8001::",
            "3ffe::1",
            "3fff:1000::",
        ];
        for address in public {
            assert_eq!(refused(&Guard::default(), address), None, "{address}");
        }
    }

    #[test]
    fn cases_15_and_17_forms_of_ipv4_inside_ipv6() {
        let guard = Guard::default();
        let addresses = [
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::",
            "::ffff:0:127.0.0.1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        ];
        for address in addresses {
            assert!(refused(&guard, address).is_some(), "{address}");
        }
        // An IPv6-only host reaches public IPv4 receivers in these two ways.
        assert_eq!(refused(&guard, "64:ff9b::8.8.8.8"), None);
        assert_eq!(refused(&guard, "::ffff:8.8.8.8"), None);
    }

    #[test]
    fn outside_global_unicast_everything_is_reserved() {
        for address in [
            "200::1", "400::1", "1000::1", "4000::1", "8000::1", "e000::1", "f800::1", "fe00::1",
        ] {
            assert!(
                refused(&Guard::default(), address).unwrap().contains("reserved"),
                "{address}"
            );
        }
    }

    #[test]
    fn messages_name_the_block_and_its_source() {
        let message = refused(&Guard::default(), "::ffff:169.254.169.254").unwrap();
        assert!(
            message.contains("::ffff:169.254.169.254 (169.254.169.254)"),
            "{message}"
        );
        assert!(
            message.contains("link local") && message.contains("RFC 3927"),
            "{message}"
        );
    }

    #[test]
    fn case_27_stray_spaces_and_a_trailing_comma() {
        let guard = Guard::new(" 10.0.0.0/8, 192.168.1.5,", true).unwrap();
        for allowed in [
            "10.0.0.0",
            "10.255.255.255",
            "192.168.1.5",
            "::ffff:10.1.2.3",
            "64:ff9b::10.1.2.3",
        ] {
            assert_eq!(refused(&guard, allowed), None, "{allowed}");
        }
        for still in ["192.168.1.4", "192.168.1.6", "172.16.0.1", "127.0.0.1", "fd00::1"] {
            assert!(refused(&guard, still).is_some(), "{still}");
        }
        assert_eq!(Guard::new("  , ,", true), Ok(Guard::default()));
    }

    #[test]
    fn case_27_a_bad_entry_is_named_by_its_position() {
        for (list, position) in [
            ("10.0.0.0/8, 10.0.0.256", "entry 2"),
            ("localhost", "entry 1"),
            ("10.0.0.0/8,,10.0.0.0/33", "entry 3"),
            ("10.0.0.0/8;192.168.0.0/16", "entry 1"),
        ] {
            let message = Guard::new(list, true).unwrap_err()[0].to_string();
            assert!(message.starts_with(position), "{list}: {message}");
        }
        let message = Guard::new("10.1.2.3/8", true).unwrap_err()[0].to_string();
        assert!(message.contains("10.0.0.0/8 or 10.1.2.3"), "{message}");
    }

    #[test]
    fn all_bad_entries_are_named() {
        let found = Guard::new("foo, 10.0.0.0/8, 1.2.3.4/33", true).unwrap_err();
        let right = [
            "entry 1 (\"foo\") is neither",
            "entry 3 (\"1.2.3.4/33\") is neither",
        ];
        assert_eq!(found.len(), 2);
        for (refused, right) in found.iter().zip(right) {
            assert!(refused.to_string().starts_with(right), "{refused}");
        }
    }

    #[test]
    fn allowed_blocks_may_be_ipv6_or_mapped() {
        let guard = Guard::new("fd00::/8, ::ffff:10.0.0.0/104", true).unwrap();
        assert_eq!(refused(&guard, "fd12:3456::1"), None);
        assert_eq!(refused(&guard, "10.9.8.7"), None);
        assert!(refused(&guard, "11.0.0.1").is_none() && refused(&guard, "fc00::1").is_some());
    }

    #[test]
    fn development_allows_loopback_and_nothing_else() {
        let guard = Guard::default().with_loopback();
        for allowed in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(refused(&guard, allowed), None, "{allowed}");
        }
        for still in ["0.0.0.0", "10.0.0.1", "169.254.169.254", "::"] {
            assert!(refused(&guard, still).is_some(), "{still}");
        }
    }
}
