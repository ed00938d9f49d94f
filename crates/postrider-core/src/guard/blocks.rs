//! The blocks of addresses that are not for a receiver on the internet, each with the document that says so.
//!
//! Both tables follow the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, RFC 8190) in the state of
//! October 2025, including what those registries call globally reachable: an anycast relay is no webhook receiver
//! either. Added are multicast and what is deprecated or reserved elsewhere. The more specific block stands first,
//! because the first that fits gives the name in the message.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// What a block is for, and the document that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Purpose {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
}

const fn v4(octets: [u8; 4], prefix: u8, name: &'static str, source: &'static str) -> (Ipv4Net, Purpose) {
    let [a, b, c, d] = octets;
    (
        Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix),
        Purpose { name, source },
    )
}

const fn v6(bits: u128, prefix: u8, name: &'static str, source: &'static str) -> (Ipv6Net, Purpose) {
    (
        Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix),
        Purpose { name, source },
    )
}

/// A block from its first 48 bits, written as in the registry.
const fn v6_48(
    a: u16,
    b: u16,
    c: u16,
    prefix: u8,
    name: &'static str,
    source: &'static str,
) -> (Ipv6Net, Purpose) {
    v6(
        (a as u128) << 112 | (b as u128) << 96 | (c as u128) << 80,
        prefix,
        name,
        source,
    )
}

pub(super) const IPV4: &[(Ipv4Net, Purpose)] = &[
    v4([0, 0, 0, 0], 32, "this host", "RFC 1122 §3.2.1.3"),
    v4([0, 0, 0, 0], 8, "this network", "RFC 791 §3.2"),
    v4([10, 0, 0, 0], 8, "private use", "RFC 1918"),
    v4(
        [100, 64, 0, 0],
        10,
        "shared address space of carriers",
        "RFC 6598",
    ),
    v4([127, 0, 0, 0], 8, "loopback", "RFC 1122 §3.2.1.3"),
    v4(
        [169, 254, 0, 0],
        16,
        "link local, cloud metadata included",
        "RFC 3927",
    ),
    v4([172, 16, 0, 0], 12, "private use", "RFC 1918"),
    v4([192, 0, 0, 0], 24, "IETF protocol assignments", "RFC 6890 §2.1"),
    v4([192, 0, 2, 0], 24, "documentation", "RFC 5737"),
    v4([192, 31, 196, 0], 24, "AS112", "RFC 7535"),
    v4([192, 52, 193, 0], 24, "multicast tunnelling", "RFC 7450"),
    v4([192, 88, 99, 0], 24, "6to4 relay anycast", "RFC 7526"),
    v4([192, 168, 0, 0], 16, "private use", "RFC 1918"),
    v4([192, 175, 48, 0], 24, "AS112", "RFC 7534"),
    v4([198, 18, 0, 0], 15, "benchmarking", "RFC 2544"),
    v4([198, 51, 100, 0], 24, "documentation", "RFC 5737"),
    v4([203, 0, 113, 0], 24, "documentation", "RFC 5737"),
    v4([224, 0, 0, 0], 4, "multicast", "RFC 5771"),
    v4([255, 255, 255, 255], 32, "limited broadcast", "RFC 919 §7"),
    v4([240, 0, 0, 0], 4, "reserved", "RFC 1112 §4"),
    // Looks public, and is answered by the host of every virtual machine on Azure.
    v4(
        [168, 63, 129, 16],
        32,
        "platform services of Azure",
        "Azure documentation, \"What is IP address 168.63.129.16?\"",
    ),
];

pub(super) const IPV6: &[(Ipv6Net, Purpose)] = &[
    v6(0, 128, "unspecified", "RFC 4291 §2.5.2"),
    v6(1, 128, "loopback", "RFC 4291 §2.5.3"),
    v6(0, 96, "IPv4-compatible, deprecated", "RFC 4291 §2.5.5.1"),
    v6(0xffff_0000_0000_0000, 96, "IPv4-translated", "RFC 2765 §2.1"),
    v6_48(0x64, 0xff9b, 1, 48, "NAT64 for local use", "RFC 8215"),
    v6(0x0100 << 112, 64, "discard only", "RFC 6666"),
    v6(0x0100 << 112 | 1 << 64, 64, "dummy prefix", "RFC 9780"),
    v6_48(0x2001, 0, 0, 32, "Teredo", "RFC 4380"),
    v6_48(0x2001, 2, 0, 48, "benchmarking", "RFC 5180"),
    v6_48(0x2001, 3, 0, 32, "multicast tunnelling", "RFC 7450"),
    v6_48(0x2001, 4, 0x112, 48, "AS112", "RFC 7535"),
    v6_48(0x2001, 0x10, 0, 28, "ORCHID, deprecated", "RFC 4843"),
    v6_48(0x2001, 0x20, 0, 28, "ORCHIDv2", "RFC 7343"),
    v6_48(0x2001, 0x30, 0, 28, "drone remote identification", "RFC 9374"),
    v6_48(0x2001, 0, 0, 23, "IETF protocol assignments", "RFC 2928"),
    v6_48(0x2001, 0xdb8, 0, 32, "documentation", "RFC 3849"),
    v6_48(0x2002, 0, 0, 16, "6to4, deprecated", "RFC 3056, RFC 7526"),
    v6_48(0x2620, 0x4f, 0x8000, 48, "AS112", "RFC 7534"),
    v6_48(0x3fff, 0, 0, 20, "documentation", "RFC 9637"),
    v6_48(0x5f00, 0, 0, 16, "segment routing", "RFC 9602"),
    v6_48(0xfc00, 0, 0, 7, "unique local", "RFC 4193"),
    v6_48(0xfe80, 0, 0, 10, "link local", "RFC 4291 §2.5.6"),
    v6_48(0xfec0, 0, 0, 10, "site local, deprecated", "RFC 3879"),
    v6_48(0xff00, 0, 0, 8, "multicast", "RFC 4291 §2.7"),
];

/// Everything else outside this block is reserved by the IETF (RFC 4291 §2.4).
const GLOBAL_UNICAST: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const RESERVED: Purpose = Purpose {
    name: "reserved",
    source: "RFC 4291 §2.4",
};

/// The special purpose of an IPv4 address, if it has one.
pub(super) fn purpose_v4(address: Ipv4Addr) -> Option<Purpose> {
    IPV4.iter()
        .find(|(block, _)| block.contains(&address))
        .map(|(_, purpose)| *purpose)
}

/// The special purpose of an IPv6 address that embeds no IPv4 address, if it has one.
pub(super) fn purpose_v6(address: Ipv6Addr) -> Option<Purpose> {
    let listed = IPV6
        .iter()
        .find(|(block, _)| block.contains(&address))
        .map(|(_, purpose)| *purpose);
    listed.or_else(|| (!GLOBAL_UNICAST.contains(&address)).then_some(RESERVED))
}

/// The IPv4 address that is reached through this one: IPv4-mapped (RFC 4291 §2.5.5.2), which a dual-stack socket
/// dials as IPv4, and NAT64 with the well-known prefix (RFC 6052 §2.1), which is how an IPv6-only host reaches
/// IPv4 receivers.
pub(super) fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
    let mapped = address.to_ipv4_mapped();
    mapped.or_else(|| {
        let low = u32::try_from(address.to_bits() & u128::from(u32::MAX)).unwrap_or(0);
        (address.segments()[..6] == NAT64).then_some(Ipv4Addr::from_bits(low))
    })
}
