//! A destination's URL: parsed as browsers do (WHATWG URL), then narrowed to what a webhook can be sent to.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use ::url::{Host, ParseError, Position, Url};

use super::{Guard, Refused};

/// Longest URL in bytes, as written and with everything percent-encoded.
pub const MAX_URL_BYTES: usize = 2_048;

/// Longest name (RFC 1035 §2.3.4, without the root's dot) and longest label in bytes.
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Names under these exist only inside one network: RFC 6762, RFC 8375, and the top-level domain that ICANN set
/// aside for private use in 2024.
const PRIVATE_SUFFIXES: [&str; 3] = [".local", ".home.arpa", ".internal"];

/// A destination's URL that passed every check that needs no name resolution. Its methods are slices of one text.
#[derive(Clone, PartialEq, Eq)]
pub struct DestinationUrl {
    text: String,
    /// Without brackets.
    host: Range<usize>,
    authority: Range<usize>,
    path_start: usize,
    /// Only when it differs from the ASCII form.
    host_unicode: Option<Box<str>>,
    ip: Option<IpAddr>,
    port: u16,
    tls: bool,
}

impl DestinationUrl {
    /// Whether it is `https`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Host in ASCII (punycode), IPv6 without brackets, no final dot: for DNS and SNI.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.text[self.host.clone()]
    }

    /// Host for people: an internationalized name in its own script. Show [`DestinationUrl::host`] beside it, since
    /// letters of different scripts look alike.
    #[must_use]
    pub fn host_unicode(&self) -> &str {
        self.host_unicode.as_deref().unwrap_or_else(|| self.host())
    }

    /// The literal address, when the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Port, default filled in.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host[:port]` for the `Host` header, default port left out, IPv6 in brackets.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.text[self.authority.clone()]
    }

    /// Path and query for the request line, at least `/`.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        &self.text[self.path_start..]
    }

    /// The whole URL for people, its host in ASCII. It has no user or password: such URLs are refused.
    #[must_use]
    pub fn display(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for DestinationUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(why.into()))
}

pub(super) fn parse(guard: &Guard, text: &str) -> Result<DestinationUrl, Refused> {
    let tls = check_text(guard, text)?;
    let mut url = Url::parse(text).map_err(|error| Refused(explain(error).to_owned()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return refuse(
            "must not contain a user or password: send them by config.custom_headers, as {\"authorization\": \"Basic ...\"}",
        );
    }
    if url.fragment().is_some() {
        return refuse(
            "must not contain a fragment (#...): it would never be sent; write %23 for the character",
        );
    }
    let port = match url.port_or_known_default() {
        Some(0) | None => return refuse("must not have port 0"),
        Some(port) => port,
    };
    let ip = check_host(guard, &mut url)?;
    let text = url.as_str().to_owned();
    if text.len() > MAX_URL_BYTES {
        return refuse(format!(
            "must be at most {MAX_URL_BYTES} bytes once percent-encoded, has {}",
            text.len()
        ));
    }
    let at = |from: Position, to: Position| {
        let start = url[..from].len();
        start..start + url[from..to].len()
    };
    let mut host = at(Position::BeforeHost, Position::AfterHost);
    if text[host.clone()].starts_with('[') {
        host = host.start + 1..host.end - 1;
    }
    let unicode = ::url::quirks::domain_to_unicode(&text[host.clone()]);
    let host_unicode =
        (ip.is_none() && !unicode.is_empty() && unicode != text[host.clone()]).then(|| unicode.into());
    Ok(DestinationUrl {
        authority: at(Position::BeforeHost, Position::AfterPort),
        path_start: url[..Position::BeforePath].len(),
        host,
        host_unicode,
        ip,
        port,
        tls,
        text,
    })
}

/// What must be seen in the text itself, since the parser mends it silently. Returns whether it is `https`.
fn check_text(guard: &Guard, text: &str) -> Result<bool, Refused> {
    if text.is_empty() {
        return refuse("must not be empty");
    }
    if text.len() > MAX_URL_BYTES {
        return refuse(format!(
            "must be at most {MAX_URL_BYTES} bytes, has {}",
            text.len()
        ));
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return refuse("must not contain spaces or control characters: write %20 for a space");
    }
    if text.contains('\\') {
        return refuse("must not contain a backslash: write / or %5C");
    }
    let scheme = text
        .split_once("://")
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("https") => Ok(true),
        Some("http") if guard.allow_http => Ok(false),
        Some("http") => refuse("must start with https://: this server sends nothing without encryption"),
        _ if guard.allow_http => refuse("must start with https:// or http://"),
        _ => refuse("must start with https://"),
    }
}

fn explain(error: ParseError) -> &'static str {
    match error {
        ParseError::EmptyHost => "has no host",
        ParseError::IdnaError => "has a host that is no valid internationalized name",
        ParseError::InvalidPort => "has a port that is no number from 1 to 65535",
        ParseError::InvalidIpv4Address => "has a host that looks like an IPv4 address and is none",
        ParseError::InvalidIpv6Address => "has a host in brackets that is no IPv6 address",
        ParseError::InvalidDomainCharacter => "has a host with characters that no name has",
        _ => "is no URL",
    }
}

/// Judges the host, and takes the final dot off a name: TLS certificates have none. Returns a literal address.
fn check_host(guard: &Guard, url: &mut Url) -> Result<Option<IpAddr>, Refused> {
    let name = match url.host() {
        None => return refuse("has no host"),
        Some(Host::Ipv4(address)) => return guard.address(address.into()).map(|()| Some(address.into())),
        Some(Host::Ipv6(address)) => return guard.address(address.into()).map(|()| Some(address.into())),
        Some(Host::Domain(name)) => name.to_owned(),
    };
    let bare = name.strip_suffix('.').unwrap_or(&name);
    let labels_fit = bare
        .split('.')
        .all(|label| (1..=MAX_LABEL_BYTES).contains(&label.len()));
    if !labels_fit || bare.len() > MAX_NAME_BYTES {
        return refuse("has a host that is no name: each part has 1 to 63 characters, the whole at most 253");
    }
    check_name(guard, bare)?;
    if bare.len() < name.len() && url.set_host(Some(bare)).is_err() {
        return refuse("has a host that is no name");
    }
    Ok(None)
}

/// Names that cannot lead to an allowed address, for a good message now instead of failures later. What gets
/// through is still judged by its addresses.
fn check_name(guard: &Guard, name: &str) -> Result<(), Refused> {
    if name == "localhost" || name.ends_with(".localhost") {
        // RFC 6761 §6.3: these names are loopback.
        return if guard.allows_loopback() {
            Ok(())
        } else {
            refuse("must not be localhost: it would be this server itself")
        };
    }
    let private = !name.contains('.') || PRIVATE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    if private && !guard.allows_private() {
        return refuse(format!(
            "has the host {name:?}, which only a private network knows: use a public name, or have an operator allow the block of its address"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(text: &str) -> DestinationUrl {
        Guard::default()
            .url(text)
            .unwrap_or_else(|refused| panic!("{text}: {refused}"))
    }

    fn message(text: &str) -> String {
        match Guard::default().url(text) {
            Ok(url) => panic!("{text} was accepted as {url:?}"),
            Err(refused) => refused.to_string(),
        }
    }

    #[test]
    fn parts_are_ready_for_the_wire() {
        let url = accepted(
            "https://Example.COM:8443/hooks/a b?x=1&y=é"
                .replace(' ', "%20")
                .as_str(),
        );
        assert!(url.is_tls());
        assert_eq!(url.host(), "example.com");
        assert_eq!(url.port(), 8443);
        assert_eq!(url.authority(), "example.com:8443");
        assert_eq!(url.path_and_query(), "/hooks/a%20b?x=1&y=%C3%A9");
        assert_eq!(url.display(), "https://example.com:8443/hooks/a%20b?x=1&y=%C3%A9");
        assert_eq!(url.ip(), None);
    }

    #[test]
    fn defaults_are_filled_in_and_left_out() {
        let plain = accepted("http://example.com");
        assert_eq!(
            (plain.is_tls(), plain.port(), plain.authority()),
            (false, 80, "example.com")
        );
        assert_eq!(plain.path_and_query(), "/");
        let tls = accepted("HTTPS://example.com:443?q");
        assert_eq!(
            (tls.port(), tls.authority(), tls.path_and_query()),
            (443, "example.com", "/?q")
        );
    }

    #[test]
    fn literal_addresses() {
        let v6 = accepted("https://[2606:4700::1111]:8443/x");
        assert_eq!(v6.host(), "2606:4700::1111");
        assert_eq!(v6.authority(), "[2606:4700::1111]:8443");
        assert_eq!(v6.ip(), Some("2606:4700::1111".parse().unwrap()));
        let v4 = accepted("https://8.8.8.8/");
        assert_eq!((v4.host(), v4.host_unicode()), ("8.8.8.8", "8.8.8.8"));
    }

    #[test]
    fn cases_15_17_and_25_are_refused_when_saved() {
        for text in [
            "http://[::ffff:7f00:1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://[::127.0.0.1]/",
            "http://[::]/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://0x7f.1/",
            "http://127.1/",
            "http://127.0.0.1/",
            "http://0/",
            "http://169.254.169.254/latest/meta-data/",
            "http://①②⑦.0.0.1/",
            "http://127.0.0.1./",
            "http://%31%32%37.0.0.1/",
        ] {
            assert!(
                message(text).contains("is not allowed"),
                "{text}: {}",
                message(text)
            );
        }
    }

    #[test]
    fn case_81_users_and_passwords_are_refused_and_not_repeated() {
        for text in [
            "https://user:p%40ss@example.com/",
            "https://canary@example.com/",
            "https://:canary@example.com",
        ] {
            let message = message(text);
            assert!(message.contains("custom_headers"), "{message}");
            assert!(
                !message.contains("p%40ss") && !message.contains("canary"),
                "{message}"
            );
        }
        for text in [
            "https://user:canary@10.0.0.1/",
            "https://user:canary@host:0/",
            "ftp://user:canary@example.com/",
        ] {
            assert!(!message(text).contains("canary"), "{}", message(text));
        }
    }

    #[test]
    fn case_83_internationalized_names_have_two_forms() {
        let url = accepted("https://bücher.example/");
        assert_eq!(url.host(), "xn--bcher-kva.example");
        assert_eq!(url.authority(), "xn--bcher-kva.example");
        assert_eq!(url.host_unicode(), "bücher.example");
        assert_eq!(url.display(), "https://xn--bcher-kva.example/");
        assert_eq!(accepted("https://xn--bcher-kva.example/"), url);
    }

    #[test]
    fn refusals_say_how_to_mend() {
        let table = [
            ("", "empty"),
            ("example.com/hook", "must start with https://"),
            ("https:example.com", "must start with https://"),
            ("ftp://example.com/", "must start with https://"),
            ("javascript://example.com/%0aalert(1)", "must start with https://"),
            (" https://example.com/", "%20"),
            ("https://example.com/\nx", "control"),
            ("https://example.com\\@evil.example/", "backslash"),
            ("https://example.com:0/", "port 0"),
            ("https://example.com:65536/", "port"),
            ("https://example.com/#part", "%23"),
            ("https:///path", "is not allowed|only a private network|no host"),
            ("https://exa mple.com/", "%20"),
            ("https://a..example.com/", "no name"),
            ("https://[::1/", "IPv6"),
            ("https://1.2.3.4.5/", "IPv4"),
            ("https://xn--a/", "internationalized"),
            ("https://localhost/", "localhost"),
            ("https://api.LOCALHOST./", "localhost"),
            ("https://receiver/", "private network"),
            ("https://metadata.google.internal/", "private network"),
            ("https://printer.local/", "private network"),
        ];
        for (text, wanted) in table {
            let message = message(text);
            assert!(
                wanted.split('|').any(|part| message.contains(part)),
                "{text}: {message}"
            );
        }
        assert!(message(&format!("https://{}.example.com/", "a".repeat(64))).contains("1 to 63"));
        assert!(message(&format!("https://{}example/", "abcdefghi.".repeat(25))).contains("253"));
    }

    #[test]
    fn lengths_are_bounded_before_and_after_encoding() {
        let base = "https://example.com/";
        assert_eq!(
            accepted(&format!("{base}{}", "a".repeat(2_028))).display().len(),
            2_048
        );
        assert!(message(&format!("{base}{}", "a".repeat(2_029))).contains("2048"));
        assert!(
            message(&format!("{base}{}", "é".repeat(400))).contains("percent-encoded"),
            "400 times 6 bytes"
        );
    }

    #[test]
    fn a_final_dot_is_taken_off() {
        let url = accepted("https://example.com.:8443/");
        assert_eq!((url.host(), url.authority()), ("example.com", "example.com:8443"));
        assert!(message("https://./").contains("no name"));
    }

    #[test]
    fn private_names_pass_where_private_addresses_are_allowed() {
        let guard = Guard::new("10.0.0.0/8", true).unwrap();
        assert!(guard.url("http://receiver:8080/").is_ok());
        assert!(guard.url("http://hooks.internal/").is_ok());
        assert!(guard.url("http://localhost/").is_err());
        let dev = Guard::default().with_loopback();
        assert!(dev.url("http://localhost:4000/").is_ok());
        assert!(dev.url("http://127.0.0.1:4000/").is_ok());
    }

    #[test]
    fn encryption_can_be_demanded() {
        let guard = Guard::new("", false).unwrap();
        assert!(guard.url("https://example.com/").is_ok());
        let message = guard.url("http://example.com/").unwrap_err().to_string();
        assert!(message.contains("https://"), "{message}");
    }
}
