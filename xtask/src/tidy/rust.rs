//! Rules about Rust files: size, module docs, forbidden words, one test binary a crate, direction of dependencies.

use super::Finding;
use super::tree::File;

/// Lines without tests that a file may have.
const MAX_LINES: usize = 600;

/// Files that may be longer, each with the reason.
const LONGER: [(&str, &str); 0] = [];

/// Words that may not stand in code, and what to do instead. Spelled in pieces, or this file would break its own rule.
const FORBIDDEN: [(&str, &str); 5] = [
    (concat!("#[", "allow("), "use #[expect(.., reason = \"..\")]"),
    (concat!("#![", "allow("), "use #![expect(.., reason = \"..\")]"),
    (concat!("todo", "!("), "finish it, or leave it out"),
    (concat!("unimplemented", "!("), "finish it, or leave it out"),
    (concat!("#[", "ignore"), "a test that does not run is no test"),
];

/// What a crate may never depend on: each crate is a prohibition.
const PROHIBITED: [(&str, &[&str]); 3] = [
    (
        "crates/postrider-core/Cargo.toml",
        &[
            "tokio",
            "rusqlite",
            "hyper",
            "hyper-util",
            "axum",
            "rustls",
            "tracing",
            "rand",
            "postrider-store",
            "postrider",
        ],
    ),
    (
        "crates/postrider-store/Cargo.toml",
        &["hyper", "hyper-util", "axum", "rustls", "http", "postrider"],
    ),
    (
        "crates/postrider/Cargo.toml",
        &["rusqlite", "tokio-postgres", "postgres"],
    ),
];

/// Rules that look at one file.
pub(super) fn check(file: &File, findings: &mut Vec<Finding>) {
    let first = file
        .text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    if !first.starts_with("//!") {
        findings.push(Finding::new(
            &file.path,
            1,
            "begin with //!: what it is for, what it must not know, why this way",
        ));
    }
    for (number, line) in (1..).zip(file.text.lines()) {
        for (word, instead) in FORBIDDEN {
            if line.contains(word) {
                findings.push(Finding::new(&file.path, number, format!("`{word}`: {instead}")));
            }
        }
    }
    size(file, findings);
}

/// Counts what comes before the tests module; a file of an integration test is tests all through.
fn size(file: &File, findings: &mut Vec<Finding>) {
    if file.path.contains("/tests/") || LONGER.iter().any(|(path, _)| *path == file.path) {
        return;
    }
    let lines = file
        .text
        .lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .count();
    if lines > MAX_LINES {
        findings.push(Finding::new(
            &file.path,
            0,
            format!("{lines} lines without tests, at most {MAX_LINES}: split it by noun"),
        ));
    }
}

/// Each further integration test binary is one more link: `tests/it/main.rs` holds them all.
pub(super) fn one_test_binary(files: &[File], findings: &mut Vec<Finding>) {
    for file in files {
        let Some((_, below)) = file.path.split_once("/tests/") else {
            continue;
        };
        let is_root = below.ends_with(".rs") && !below.contains('/');
        let is_main = below.ends_with("/main.rs") && below != "it/main.rs";
        if is_root || is_main {
            findings.push(Finding::new(
                &file.path,
                0,
                "one test binary a crate: make it a module of tests/it",
            ));
        }
    }
}

/// Dependencies run one way: postrider → store → core, and each crate keeps out what it prohibits.
pub(super) fn directions(files: &[File], findings: &mut Vec<Finding>) {
    for (manifest, prohibited) in PROHIBITED {
        let Some(file) = files.iter().find(|file| file.path == manifest) else {
            continue;
        };
        let mut is_dependencies = false;
        for (number, line) in (1..).zip(file.text.lines()) {
            if line.starts_with('[') {
                is_dependencies = line.contains("dependencies");
            }
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if is_dependencies && prohibited.contains(&name) {
                findings.push(Finding::new(
                    manifest,
                    number,
                    format!("this crate must not know `{name}`: see ARCHITECTURE.md"),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn found(file: &File) -> Vec<(usize, String)> {
        let mut findings = Vec::new();
        check(file, &mut findings);
        findings
            .into_iter()
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    #[test]
    fn forbidden_words_are_named_with_their_line() {
        let text = format!(
            "//! Doc.\nfn f() {{\n    {}\"later\")\n}}\n",
            concat!("todo", "!(")
        );
        let findings = found(&file("crates/a/src/b.rs", &text));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].0, 3);
        assert!(findings[0].1.contains("finish it"), "{findings:?}");
    }

    #[test]
    fn a_file_begins_with_its_doc() {
        assert_eq!(found(&file("crates/a/src/b.rs", "use std::fmt;\n")).len(), 1);
        assert_eq!(found(&file("crates/a/src/b.rs", "\n//! Doc.\n")).len(), 0);
    }

    #[test]
    fn tests_do_not_count_as_lines() {
        let code = "//! Doc.\n".to_owned() + &"fn f() {}\n".repeat(599);
        let with_tests = code.clone() + "#[cfg(test)]\nmod tests {\n" + &"\n".repeat(900) + "}\n";
        assert_eq!(found(&file("crates/a/src/b.rs", &with_tests)), []);
        let longer = code + "fn g() {}\n#[cfg(test)]\nmod tests {}\n";
        let findings = found(&file("crates/a/src/b.rs", &longer));
        assert!(findings[0].1.starts_with("601 lines"), "{findings:?}");
        assert_eq!(found(&file("crates/a/tests/it/b.rs", &longer)), []);
    }

    #[test]
    fn a_second_test_binary_is_found() {
        let files = [
            file("crates/a/tests/it/main.rs", ""),
            file("crates/a/tests/it/e2e/mod.rs", ""),
            file("crates/a/tests/other.rs", ""),
            file("crates/a/tests/more/main.rs", ""),
        ];
        let mut findings = Vec::new();
        one_test_binary(&files, &mut findings);
        let paths: Vec<_> = findings.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(paths, ["crates/a/tests/other.rs", "crates/a/tests/more/main.rs"]);
    }

    #[test]
    fn a_dependency_against_the_direction_is_found() {
        let text = "[package]\nname = \"x\"\n[dependencies]\nserde.workspace = true\ntokio = \"1\"\n";
        let mut findings = Vec::new();
        directions(&[file("crates/postrider-core/Cargo.toml", text)], &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 5);
    }
}
