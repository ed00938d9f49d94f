//! Which headers are taken, refused and sent.

use super::*;

#[test]
fn what_an_event_can_carry_is_what_is_sent_whatever_the_prefix() {
    let metadata = |pairs: &[(&str, String)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect()
    };
    // 246 = 256 - the length of "x-outpost-"; a byte outside of names takes three.
    let key = "k".repeat(246);
    let fits = metadata(&[
        (&key, "v".repeat(8_192)),
        ("b", "ü".repeat(1_200)),
        ("host", String::new()),
    ]);
    assert_eq!(CustomHeaders::faults_of_event(&fits), []);
    for prefix in ["", LONGEST_PREFIX] {
        let (_, left_out) = CustomHeaders::from_event(&fits, prefix);
        assert!(left_out.iter().all(|name| name == "host"), "{left_out:?}");
    }
    let too_much = [
        (
            metadata(&[("a", "v".repeat(8_193))]),
            "has 8193 bytes as a header's value, at most 8192 are possible",
        ),
        // Each letter is two bytes of UTF-8, and each of those is three here.
        (
            metadata(&[("a", "ü".repeat(1_366))]),
            "has 8196 bytes as a header's value, at most 8192 are possible",
        ),
        (
            metadata(&[(&"ü".repeat(42), "v".to_owned())]),
            "has 252 bytes as a header's name, at most 246 are possible",
        ),
        (
            metadata(&[("A", "1".to_owned()), ("a", "2".to_owned())]),
            "is the same header as another key",
        ),
        // 3 * (10 + 1 + 8000)
        (
            metadata(&["a", "b", "c"].map(|key| (key, "v".repeat(8_000)))),
            "has 24033 bytes as headers, at most 16384 are possible",
        ),
    ];
    for (metadata, text) in too_much {
        let faults = CustomHeaders::faults_of_event(&metadata);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].1, text);
        let (_, left_out) = CustomHeaders::from_event(&metadata, LONGEST_PREFIX);
        assert!(!left_out.is_empty(), "{text}");
    }
}

fn pairs(headers: &CustomHeaders) -> Vec<(&str, &str)> {
    headers.iter().collect()
}

fn faults(json: &str) -> Vec<String> {
    match CustomHeaders::parse(json) {
        Ok(headers) => panic!("{json} was accepted as {headers:?}"),
        Err(InvalidHeaders(faults)) => faults,
    }
}

fn metadata(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn names_are_lower_case_and_order_is_kept() {
    let headers =
        CustomHeaders::parse(r#"{"X-Env":"prod","Authorization":"Bearer a.b=","empty":""}"#).unwrap();
    assert_eq!(
        pairs(&headers),
        [("x-env", "prod"), ("authorization", "Bearer a.b="), ("empty", "")]
    );
    assert!(CustomHeaders::parse("{}").unwrap().is_empty());
}

#[test]
fn case_79_every_wrong_header_is_named() {
    let json = r#"{"number":1,"null":null,"array":["a"],"fine":"yes","Host":"h","Content-Length":"1",
        "Transfer-Encoding":"chunked","webhook-signature":"v1,x","split":"a\r\nb: c","nul":"a\u0000","":"x",
        "in valid":"x","é":"x","x-é":"x","X-Outpost-Topic":"x","latin":"café","edge":" x"}"#;
    let faults = faults(json);
    let named = [
        "number",
        "null",
        "array",
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "webhook-signature",
        "split",
        "nul",
        "",
        "in valid",
        "é",
        "x-é",
        "X-Outpost-Topic",
        "latin",
        "edge",
    ];
    assert_eq!(faults.len(), named.len(), "{faults:#?}");
    for name in named {
        assert!(
            faults
                .iter()
                .any(|fault| fault.starts_with(&format!("{name:?} "))),
            "{name}: {faults:#?}"
        );
    }
}

#[test]
fn case_79_too_large_and_too_many() {
    let large = format!(r#"{{"big":"{}"}}"#, "a".repeat(65_536));
    assert_eq!(
        faults(&large),
        [r#""big" has a value of 65536 bytes, at most 8192 are possible"#]
    );
    for (count, accepted) in [(100, true), (101, false), (500, false), (5_000, false)] {
        let members: Vec<_> = (0..count).map(|n| format!(r#""x-{n}":"v""#)).collect();
        let parsed = CustomHeaders::parse(&format!("{{{}}}", members.join(",")));
        assert_eq!(parsed.is_ok(), accepted, "{count}");
        assert!(
            accepted || parsed.unwrap_err().to_string().contains("at most 100"),
            "{count}"
        );
    }
    let members: Vec<_> = (0..4)
        .map(|n| format!(r#""x-{n}":"{}""#, "a".repeat(8_000)))
        .collect();
    assert!(faults(&format!("{{{}}}", members.join(",")))[0].contains("32012 bytes"));
}

#[test]
fn every_hop_by_hop_header_is_refused() {
    for name in RESERVED_NAMES {
        let json = format!(r#"{{"{}":"x"}}"#, name.to_uppercase());
        assert!(faults(&json)[0].contains("set by the sender"), "{name}");
    }
}

#[test]
fn repeats_are_seen_in_any_case() {
    assert!(faults(r#"{"x-a":"1","x-a":"2"}"#)[0].contains("twice"));
    assert!(faults(r#"{"x-a":"1","X-A":"1"}"#)[0].contains("twice"));
}

#[test]
fn what_is_no_object_is_refused() {
    for json in ["", "null", "[]", r#""x""#, "{", r#"{"a":"b"} x"#] {
        assert!(faults(json)[0].contains("JSON object"), "{json}");
    }
}

#[test]
fn saved_metadata_is_judged_like_custom_headers() {
    let headers = CustomHeaders::from_metadata(&metadata(&[("Source", "billing")])).unwrap();
    assert_eq!(pairs(&headers), [("source", "billing")]);
    let refused = CustomHeaders::from_metadata(&metadata(&[("host", "x"), ("a b", "x")])).unwrap_err();
    assert_eq!(refused.0.len(), 2);
}

#[test]
fn events_are_sent_whatever_their_metadata_is() {
    let given = metadata(&[
        ("", "x"),
        ("Order Id", "7"),
        ("city", "Zürich 100%"),
        ("edge", " x "),
        ("plain", "100%"),
        ("signature", "v1,forged"),
        ("x", "a\r\nhost: evil"),
    ]);
    let (headers, left_out) = CustomHeaders::from_event(&given, "webhook-");
    let sent = [
        ("webhook-order%20id", "7"),
        ("webhook-city", "Z%C3%BCrich 100%25"),
        ("webhook-edge", "%20x%20"),
        ("webhook-plain", "100%"),
        ("webhook-x", "a%0D%0Ahost: evil"),
    ];
    assert_eq!(pairs(&headers), sent);
    assert_eq!(left_out, ["", "signature"]);
}

#[test]
fn metadata_cannot_pose_as_the_senders_own_headers() {
    let given = metadata(&[
        ("webhook-id", "x"),
        ("Host", "x"),
        ("X-Outpost-Signature", "x"),
        ("source", "x"),
    ]);
    let (headers, left_out) = CustomHeaders::from_event(&given, "");
    assert_eq!(pairs(&headers), [("source", "x")]);
    assert_eq!(left_out, ["Host", "X-Outpost-Signature", "webhook-id"]);
    let (headers, _) = CustomHeaders::from_event(&metadata(&[("Host", "x")]), "x-outpost-");
    assert_eq!(pairs(&headers), [("x-outpost-host", "x")]);
}

#[test]
fn metadata_beyond_the_bounds_is_left_out() {
    let long = "a".repeat(8_193);
    let fits = "a".repeat(8_000);
    let given = metadata(&[("a", &fits), ("b", &long), ("c", &fits), ("d", &fits), ("e", "x")]);
    let (headers, left_out) = CustomHeaders::from_event(&given, "");
    assert_eq!(
        headers.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["a", "c", "e"]
    );
    assert_eq!(left_out, ["b", "d"]);
}

#[test]
fn two_keys_that_become_one_name_do_not_make_two_headers() {
    let (headers, left_out) = CustomHeaders::from_event(&metadata(&[("A", "1"), ("a", "2")]), "");
    assert_eq!(
        (pairs(&headers), left_out),
        (vec![("a", "1")], vec!["a".to_owned()])
    );
}

#[test]
fn values_are_never_shown() {
    let headers = CustomHeaders::parse(r#"{"authorization":"canary"}"#).unwrap();
    assert_eq!(format!("{headers:?}"), r#"{"authorization": "***"}"#);
    for json in [
        r#"{"x":"canary\n"}"#,
        r#"{"host":"canary"}"#,
        r#"{"x":["canary"]}"#,
        r#"{"x":"canary"#,
    ] {
        assert!(!faults(json).join(" ").contains("canary"), "{json}");
    }
}
