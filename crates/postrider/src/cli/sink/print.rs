//! Requests as text for somebody who watches.

use std::fmt::Write as _;

use http::request::Parts;
use postrider_core::signing::Unverified;

use super::behaviour::Act;
use crate::cli::output;

/// Body bytes that are printed.
const EXCERPT_BYTES: usize = 1024;

/// One request and what is done with it.
pub(super) fn request(
    number: u64,
    head: &Parts,
    body: &[u8],
    act: Act,
    verified: Option<Result<(), Unverified>>,
) {
    let mut text = format!("#{} {} {} -> ", number + 1, head.method, head.uri);
    let _ = match act {
        Act::Answer(status) => write!(text, "{}", status.as_u16()),
        Act::Hang => write!(text, "no answer"),
        Act::Reset => write!(text, "reset"),
    };
    let _ = match verified {
        Some(Ok(())) => write!(text, ", signature verified"),
        Some(Err(why)) => write!(text, ", NOT VERIFIED: {why}"),
        None => Ok(()),
    };
    for (name, value) in &head.headers {
        if is_of_interest(name.as_str()) {
            let _ = write!(text, "\n  {name}: {}", String::from_utf8_lossy(value.as_bytes()));
        }
    }
    if !body.is_empty() {
        let kept = &body[..body.len().min(EXCERPT_BYTES)];
        let _ = write!(text, "\n  {}", String::from_utf8_lossy(kept));
        if body.len() > kept.len() {
            let _ = write!(text, " ... ({} bytes)", body.len());
        }
    }
    // Somebody who closed standard output does not want it.
    let _ = output::say(&text);
}

/// What is the same in every request is left out.
fn is_of_interest(name: &str) -> bool {
    !matches!(
        name,
        "host" | "user-agent" | "content-type" | "content-length" | "accept" | "accept-encoding"
    )
}
