//! Printing: results to standard output, complaints to standard error, tables for people.

use std::io::{self, Write};

/// The command has told what is wrong; only the exit code is left to give.
#[derive(Debug, thiserror::Error)]
#[error("finish")]
pub struct Reported(pub u8);

/// Writes one line of result.
///
/// # Errors
/// When standard output is closed.
pub fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// Writes one line of complaint. There is nobody to tell when that fails.
pub fn complain(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// Rows below a header, in columns as wide as their widest cell.
#[must_use]
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = header
        .iter()
        .enumerate()
        .map(|(column, name)| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count());
            cells.chain([name.chars().count()]).max().unwrap_or_default()
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push('\n');
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// A value of an answer for people: text without its quotes, nothing for `null`, safe for a terminal.
#[must_use]
pub fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

/// At most so many characters, with a mark where some are left out.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Text of others for a terminal: control characters, which could move the cursor or worse, become spaces.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![
            vec!["evt_1".to_owned(), "order.paid".to_owned()],
            vec!["é".to_owned(), "x".to_owned()],
        ];
        assert_eq!(
            table(&["ID", "TOPIC"], &rows),
            "ID     TOPIC\nevt_1  order.paid\né      x"
        );
    }

    #[test]
    fn long_texts_are_shortened_by_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äö…");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a [2Jb c");
    }
}
