//! What an attempt's row keeps in one blob: everything that is shown but never searched.
//!
//! Layout, version 2: numbers are LEB128 (DWARF 5 §7.6), texts and bytes have their length in front, an optional
//! number is itself plus one, or zero. Times are milliseconds, durations nanoseconds. Any bytes are kept as they came. A
//! header whose name, or name and value, nearly every request has is its place in [`COMMON`] plus one; zero stands before
//! a name that is written out. Version 1 wrote all of them out.

use std::time::Duration;

use bytes::Bytes;
use postrider_core::delivery::{DelayCause, Plan, Tier, WaitCause};
use postrider_core::outcome::ErrorKind;
use postrider_core::time::Timestamp;

use super::failure::Fault;
use super::rows;
use crate::record::{Headers, NewAttempt, Timings};

const VERSION: u8 = 2;
const VERSION_OF_WRITTEN_NAMES: u8 = 1;
const MANUAL: u8 = 1;
const TRUNCATED: u8 = 2;
const HAS_RETRY: u8 = 4;
const HAS_DETAIL: u8 = 8;

/// Headers that take one byte, the value included where there is one. Places are kept on disk: only ever append.
const COMMON: &[(&str, Option<&str>)] = &[
    ("host", None),
    ("user-agent", None),
    ("content-type", Some("application/json")),
    ("accept-encoding", Some("identity")),
    ("webhook-id", None),
    ("webhook-timestamp", None),
    ("webhook-signature", None),
    ("webhook-topic", None),
    ("webhook-attempt", Some("1")),
    ("webhook-attempt", None),
    ("content-length", Some("0")),
    ("content-length", None),
    ("content-type", None),
    ("date", None),
    ("server", None),
    ("connection", Some("keep-alive")),
    ("connection", None),
    ("cache-control", None),
    ("transfer-encoding", Some("chunked")),
    ("vary", None),
    ("x-request-id", None),
    ("strict-transport-security", None),
    ("set-cookie", None),
    ("etag", None),
    ("retry-after", None),
    ("location", None),
    ("authorization", None),
];

/// The columns of an attempt's row that are not in the blob.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    pub(super) number: u32,
    pub(super) started_at: Timestamp,
    pub(super) status: Option<u16>,
    pub(super) error: Option<ErrorKind>,
}

/// The blob's two directions.
pub(super) struct Detail;

impl Detail {
    /// Packs an attempt and the retry that it led to.
    pub(super) fn encode(attempt: &NewAttempt, retry: Option<&Plan>) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + attempt.response_body.len());
        out.push(VERSION);
        out.push(
            u8::from(attempt.manual) * MANUAL
                + u8::from(attempt.response_truncated) * TRUNCATED
                + u8::from(retry.is_some()) * HAS_RETRY
                + u8::from(attempt.detail.is_some()) * HAS_DETAIL,
        );
        out.push(attempt.waited_for.map_or(0, WaitCause::code));
        put_plan(&mut out, &attempt.plan);
        if let Some(retry) = retry {
            put_plan(&mut out, retry);
        }
        let Timings {
            queue,
            dns,
            connect,
            tls,
            first_byte,
            total,
        } = attempt.timings;
        put(&mut out, nanos(queue));
        for phase in [dns, connect, tls, first_byte] {
            put(&mut out, phase.map_or(0, |phase| nanos(phase).saturating_add(1)));
        }
        put(&mut out, nanos(total));
        if let Some(detail) = &attempt.detail {
            put_bytes(&mut out, detail.as_bytes());
        }
        put_headers(&mut out, &attempt.request_headers);
        put_headers(&mut out, &attempt.response_headers);
        put_bytes(&mut out, &attempt.response_body);
        out
    }

    /// Unpacks what [`Detail::encode`] packed.
    pub(super) fn decode(blob: &[u8], columns: Columns) -> Result<(NewAttempt, Option<Plan>), Fault> {
        let mut input = Input { rest: blob };
        let headers = match input.byte()? {
            VERSION => Input::headers,
            VERSION_OF_WRITTEN_NAMES => Input::written_headers,
            _ => return Err(Fault::corrupt("an attempt's detail has an unknown version")),
        };
        let flags = input.byte()?;
        let waited_for = WaitCause::from_code(input.byte()?);
        let plan = input.plan()?;
        let retry = if flags & HAS_RETRY != 0 {
            Some(input.plan()?)
        } else {
            None
        };
        let timings = Timings {
            queue: Duration::from_nanos(input.number()?),
            dns: input.phase()?,
            connect: input.phase()?,
            tls: input.phase()?,
            first_byte: input.phase()?,
            total: Duration::from_nanos(input.number()?),
        };
        let detail = if flags & HAS_DETAIL != 0 {
            Some(input.text()?)
        } else {
            None
        };
        let Columns {
            number,
            started_at,
            status,
            error,
        } = columns;
        let attempt = NewAttempt {
            number,
            started_at,
            plan,
            waited_for,
            manual: flags & MANUAL != 0,
            status,
            error,
            detail,
            timings,
            request_headers: headers(&mut input)?,
            response_headers: headers(&mut input)?,
            response_body: input.bytes()?,
            response_truncated: flags & TRUNCATED != 0,
        };
        Ok((attempt, retry))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX - 1)
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(low_seven(number) | 0x80);
        number >>= 7;
    }
    out.push(low_seven(number));
}

fn low_seven(number: u64) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_headers(out: &mut Vec<u8>, headers: &Headers) {
    put(out, headers.len() as u64);
    for (name, value) in headers {
        let place = COMMON.iter().position(|(known, fixed)| {
            known == name && fixed.is_none_or(|fixed| fixed.as_bytes() == &value[..])
        });
        put(out, place.map_or(0, |place| place as u64 + 1));
        if place.is_none() {
            put_bytes(out, name.as_bytes());
        }
        if place.is_none_or(|place| COMMON[place].1.is_none()) {
            put_bytes(out, value);
        }
    }
}

fn put_plan(out: &mut Vec<u8>, plan: &Plan) {
    put(out, plan.due_at.as_millis().unsigned_abs());
    put(out, nanos(plan.delay));
    out.push(plan.tier.code());
    out.push(plan.cause.code());
}

struct Input<'a> {
    rest: &'a [u8],
}

impl Input<'_> {
    fn short() -> Fault {
        Fault::corrupt("an attempt's detail is cut short")
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(Self::short)?;
        self.rest = rest;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, Fault> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Fault::corrupt("an attempt's detail holds an endless number"))
    }

    fn phase(&mut self) -> Result<Option<Duration>, Fault> {
        Ok(self.number()?.checked_sub(1).map(Duration::from_nanos))
    }

    fn slice(&mut self) -> Result<&[u8], Fault> {
        let len = usize::try_from(self.number()?).map_err(|_| Self::short())?;
        let (slice, rest) = self.rest.split_at_checked(len).ok_or_else(Self::short)?;
        self.rest = rest;
        Ok(slice)
    }

    fn bytes(&mut self) -> Result<Bytes, Fault> {
        Ok(Bytes::copy_from_slice(self.slice()?))
    }

    fn text(&mut self) -> Result<String, Fault> {
        let text = std::str::from_utf8(self.slice()?);
        Ok(text
            .map_err(|_| Fault::corrupt("an attempt's detail holds a text that is not UTF-8"))?
            .to_owned())
    }

    fn headers(&mut self) -> Result<Headers, Fault> {
        let count = self.number()?;
        (0..count).map(|_| self.header()).collect()
    }

    fn header(&mut self) -> Result<(String, Bytes), Fault> {
        let Some(place) = self.number()?.checked_sub(1) else {
            return Ok((self.text()?, self.bytes()?));
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        match COMMON.get(place) {
            Some((name, Some(value))) => Ok(((*name).to_owned(), Bytes::from_static(value.as_bytes()))),
            Some((name, None)) => Ok(((*name).to_owned(), self.bytes()?)),
            None => Err(Fault::corrupt("an attempt's detail names an unknown header")),
        }
    }

    fn written_headers(&mut self) -> Result<Headers, Fault> {
        let count = self.number()?;
        (0..count).map(|_| Ok((self.text()?, self.bytes()?))).collect()
    }

    fn plan(&mut self) -> Result<Plan, Fault> {
        let due_at = i64::try_from(self.number()?).map_err(|_| Self::short())?;
        Ok(Plan {
            due_at: Timestamp::from_millis(due_at),
            delay: Duration::from_nanos(self.number()?),
            tier: rows::word(self.byte()?.into(), Tier::from_code, "tier")?,
            cause: rows::word(self.byte()?.into(), DelayCause::from_code, "cause")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> NewAttempt {
        NewAttempt {
            number: 3,
            started_at: Timestamp::from_millis(5),
            plan: Plan {
                due_at: Timestamp::MAX,
                delay: Duration::from_nanos(u64::MAX - 1),
                tier: Tier::LongTerm,
                cause: DelayCause::RetryAfter,
            },
            waited_for: Some(WaitCause::Hold),
            manual: true,
            status: Some(999),
            error: None,
            detail: Some("broke off".into()),
            timings: Timings {
                queue: Duration::ZERO,
                dns: None,
                connect: Some(Duration::ZERO),
                tls: Some(Duration::from_nanos(1)),
                first_byte: Some(Duration::from_secs(60)),
                total: Duration::from_millis(127),
            },
            request_headers: vec![
                ("webhook-id".into(), Bytes::from_static(b"evt_1")),
                ("content-type".into(), Bytes::from_static(b"application/json")),
                ("content-type".into(), Bytes::from_static(b"text/plain")),
            ],
            response_headers: vec![("x-msg".into(), Bytes::from_static(b"caf\xe9\0"))],
            response_body: Bytes::from_static(b"\xff\xfe\x80\0"),
            response_truncated: true,
        }
    }

    fn columns() -> Columns {
        Columns {
            number: 3,
            started_at: Timestamp::from_millis(5),
            status: Some(999),
            error: None,
        }
    }

    #[test]
    fn decoding_reverses_encoding() {
        let plan = Plan::first(Timestamp::from_millis(300));
        for retry in [None, Some(plan)] {
            let blob = Detail::encode(&attempt(), retry.as_ref());
            let (decoded, led_to) = Detail::decode(&blob, columns()).unwrap();
            assert_eq!(decoded, attempt());
            assert_eq!(led_to, retry);
        }
    }

    #[test]
    fn a_header_of_every_request_takes_a_byte() {
        let mut out = Vec::new();
        let fixed = ("accept-encoding".to_owned(), Bytes::from_static(b"identity"));
        let known = ("webhook-id".to_owned(), Bytes::from_static(b"e"));
        let own = ("x-a".to_owned(), Bytes::from_static(b"b"));
        put_headers(&mut out, &vec![fixed, known, own]);
        assert_eq!(out, b"\x03\x04\x05\x01e\x00\x03x-a\x01b");
    }

    #[test]
    fn what_version_1_wrote_is_still_read() {
        let blob = b"\x01\x00\x00\x05\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x01a\x01b\x00\x00";
        let (decoded, _) = Detail::decode(blob, columns()).unwrap();
        assert_eq!(decoded.plan.due_at, Timestamp::from_millis(5));
        assert_eq!(
            decoded.request_headers,
            [("a".to_owned(), Bytes::from_static(b"b"))]
        );
    }

    #[test]
    fn a_cut_blob_is_an_error() {
        let blob = Detail::encode(&attempt(), None);
        for len in 0..blob.len() {
            assert!(Detail::decode(&blob[..len], columns()).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn numbers_are_leb128() {
        let mut out = Vec::new();
        put(&mut out, 624_485);
        assert_eq!(out, [0xe5, 0x8e, 0x26], "the example of DWARF 5, figure 22");
    }
}
