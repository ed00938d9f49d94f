//! Dead letters: written when a delivery dies, taken away when it lives again.

use postrider_core::delivery::{DeadReason, PendingDelivery};
use postrider_core::id::{AttemptKey, ContextKey, DeliveryKey};
use postrider_core::outcome::{Category, ErrorKind, Outcome};
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::Work;
use crate::letter::DeadContext;
use crate::record::NewAttempt;
use crate::sqlite::detail::{Columns, Detail};
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

/// Characters of the last error that are kept for lists and filters.
const MAX_ERROR_CHARS: usize = 300;
/// Bytes of a response that are looked at for it: a character has at most four.
const MAX_ERROR_BYTES: usize = 4 * MAX_ERROR_CHARS;

/// What a dead letter says of its delivery.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) reason: DeadReason,
    pub(super) category: Category,
    pub(super) code: Option<u16>,
    pub(super) error: Option<String>,
    pub(super) context: Option<ContextKey>,
}

impl Letter {
    /// Of a delivery that was never tried.
    pub(super) const fn unattempted(reason: DeadReason, context: Option<ContextKey>) -> Self {
        Self {
            reason,
            category: Category::NotAttempted,
            code: None,
            error: None,
            context,
        }
    }

    /// Of a delivery whose last attempt was this.
    pub(super) fn told_by(attempt: &NewAttempt, reason: DeadReason, context: Option<ContextKey>) -> Self {
        let category = match (attempt.status, attempt.error) {
            (Some(status), _) => Outcome::status(status).category(),
            (None, Some(error)) => error.category(),
            (None, None) => Category::NotAttempted,
        };
        Self {
            reason,
            category,
            code: attempt.status,
            error: Some(error_line(attempt)),
            context,
        }
    }

    /// The same with the category that the policy named.
    pub(super) fn in_category(self, category: Category) -> Self {
        Self { category, ..self }
    }
}

/// An attempt's outcome in one line: `401: {"error":"token expired"}`, `timeout: no answer within 15s`.
pub(in crate::sqlite) fn error_line(attempt: &NewAttempt) -> String {
    let head = match (attempt.status, attempt.error) {
        (Some(status), _) => status.to_string(),
        (None, Some(error)) => error.as_str().to_owned(),
        (None, None) => "no outcome".to_owned(),
    };
    let body = &attempt.response_body[..attempt.response_body.len().min(MAX_ERROR_BYTES)];
    let said = String::from_utf8_lossy(body);
    let detail = attempt.detail.as_deref().unwrap_or_default();
    let is_empty = said.trim().is_empty();
    let tail = if is_empty { detail } else { &said };
    let words = tail.split(|c: char| c.is_whitespace() || c.is_control());
    let mut line = head;
    let mut separator = ": ";
    for word in words.filter(|word| !word.is_empty()) {
        line.push_str(separator);
        line.push_str(word);
        separator = " ";
    }
    match line.char_indices().nth(MAX_ERROR_CHARS) {
        Some((end, _)) => line[..end].to_owned(),
        None => line,
    }
}

/// Tells a letter by an attempt that was settled before; by nothing when that is no longer kept.
pub(super) fn told_by_last(
    work: &Work<'_>,
    last: AttemptKey,
    reason: DeadReason,
    context: Option<ContextKey>,
) -> Result<Letter, Fault> {
    let mut statement = work
        .conn
        .prepare_cached("SELECT number, started_at, status, error, detail FROM attempt WHERE key = ?1")?;
    let mut found = statement.query([last.0])?;
    let Some(row) = found.next()? else {
        return Ok(Letter::unattempted(reason, context));
    };
    let error: Option<i64> = row.get(3)?;
    let columns = Columns {
        number: row.get(0)?,
        started_at: Timestamp::from_millis(row.get(1)?),
        status: row.get(2)?,
        error: error
            .map(|code| rows::word(code, ErrorKind::from_code, "error"))
            .transpose()?,
    };
    let (attempt, _) = Detail::decode(&row.get::<_, Vec<u8>>(4)?, columns)?;
    Ok(Letter::told_by(&attempt, reason, context))
}

/// The key of what was in force: each text is kept once, sealed.
pub(super) fn intern(
    work: &mut Work<'_>,
    context: Option<&DeadContext>,
    now: Timestamp,
) -> Result<Option<ContextKey>, Fault> {
    let Some(context) = context else { return Ok(None) };
    let text = context.as_str().as_bytes();
    let digest = work.seal.digest(text);
    let found = work
        .conn
        .prepare_cached("SELECT key FROM dead_context WHERE digest = ?1")?
        .query_row([&digest[..]], |row| row.get(0))
        .optional()?;
    let key = match found {
        Some(key) => key,
        None => {
            let sealed = work
                .seal
                .seal(&digest, text)
                .map_err(|error| Fault::corrupt(error.to_string()))?;
            let key = work.keys.take(now, 1);
            work.conn
                .prepare_cached("INSERT INTO dead_context(key, digest, text) VALUES (?1, ?2, ?3)")?
                .execute((key, &digest[..], sealed))?;
            key
        }
    };
    Ok(Some(ContextKey(key)))
}

/// Writes the letter of a delivery that has just died.
pub(super) fn bury(
    work: &mut Work<'_>,
    delivery: &PendingDelivery,
    letter: &Letter,
    now: Timestamp,
) -> Result<(), Fault> {
    let serial = work.keys.take(now, 1);
    work.hot.insert_dead.execute((
        serial,
        delivery.key.0,
        delivery.event.0,
        delivery.tenant.0,
        delivery.destination.0,
        letter.reason.code(),
        letter.category.code(),
        letter.code,
        letter.error.as_deref(),
        letter.context.map(|key| key.0),
    ))?;
    work.effects.dead += 1;
    Ok(())
}

/// Takes the letter of a delivery away that is dead no longer; answers whether there was one.
pub(super) fn exhume(work: &mut Work<'_>, key: DeliveryKey) -> Result<bool, Fault> {
    let taken = work
        .conn
        .prepare_cached("DELETE FROM dead WHERE key = ?1")?
        .execute([key.0])?;
    work.effects.dead -= i64::try_from(taken).unwrap_or(0);
    Ok(taken > 0)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_core::delivery::Plan;

    use super::*;
    use crate::record::Timings;

    fn attempt(status: Option<u16>, error: Option<ErrorKind>, detail: &str, body: &[u8]) -> NewAttempt {
        NewAttempt {
            number: 1,
            started_at: Timestamp::EPOCH,
            plan: Plan::first(Timestamp::EPOCH),
            waited_for: None,
            manual: false,
            status,
            error,
            detail: (!detail.is_empty()).then(|| detail.to_owned()),
            timings: Timings::default(),
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            response_body: Bytes::copy_from_slice(body),
            response_truncated: false,
        }
    }

    #[test]
    fn an_outcome_is_one_line() {
        for (attempt, line) in [
            (
                attempt(Some(401), None, "", b"{\"error\":\r\n  \"token expired\"}\n"),
                r#"401: {"error": "token expired"}"#,
            ),
            (attempt(Some(503), None, "", b""), "503"),
            (
                attempt(Some(302), None, "to https://b.example/", b" \n"),
                "302: to https://b.example/",
            ),
            (
                attempt(None, Some(ErrorKind::Timeout), "no answer within 15s", b""),
                "timeout: no answer within 15s",
            ),
            (
                attempt(Some(500), None, "", b"\xff\0\x1b[31mred"),
                "500: \u{fffd} [31mred",
            ),
        ] {
            assert_eq!(error_line(&attempt), line);
        }
    }

    #[test]
    fn a_long_answer_is_cut_at_a_character() {
        let line = error_line(&attempt(Some(500), None, "", "\u{1F600}".repeat(400).as_bytes()));
        assert_eq!(line.chars().count(), 300);
        assert_eq!(line, format!("500: {}", "\u{1F600}".repeat(295)));
    }
}
