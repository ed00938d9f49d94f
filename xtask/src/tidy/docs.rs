//! Rules about text: links that lead somewhere, numbered decisions, no paths of somebody's machine.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::File;

const DECISIONS: &str = "docs/decisions/";

/// Where folders of one machine begin. Spelled in pieces, or this file would break its own rule.
const MACHINE_PATHS: [&str; 4] = [
    concat!("/wor", "k/"),
    concat!("/hom", "e/"),
    concat!("/Use", "rs/"),
    concat!("/roo", "t/"),
];

/// A path of one machine means nothing on another.
pub(super) fn machine_paths(file: &File, findings: &mut Vec<Finding>) {
    for (number, line) in (1..).zip(file.text.lines()) {
        for path in MACHINE_PATHS {
            let is_absolute = |at: usize| {
                line[..at].chars().next_back().is_none_or(|before| {
                    !(before.is_alphanumeric() || matches!(before, '.' | '_' | '-' | '}' | '*' | '/' | '{'))
                })
            };
            if line.match_indices(path).any(|(at, _)| is_absolute(at)) {
                findings.push(Finding::new(
                    &file.path,
                    number,
                    format!("`{path}`: a path of one machine"),
                ));
            }
        }
    }
}

/// A relative link names a file or folder of the tree.
pub(super) fn links(file: &File, files: &[File], findings: &mut Vec<Finding>) {
    let mut is_code = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', '#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let wanted = resolve(&file.path, target);
            if !files
                .iter()
                .any(|other| other.path == wanted || other.path.starts_with(&format!("{wanted}/")))
            {
                findings.push(Finding::new(
                    &file.path,
                    number,
                    format!("link to `{target}` leads nowhere"),
                ));
            }
        }
    }
}

/// `../b.md` seen from `docs/a.md` is `b.md`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// `docs/decisions/0007-title.md` begins with `# 0007 ...`, and no number is there twice.
pub(super) fn decisions(files: &[File], findings: &mut Vec<Finding>) {
    let mut seen = BTreeMap::new();
    for file in files {
        let Some(name) = file.path.strip_prefix(DECISIONS) else {
            continue;
        };
        if name == "README.md" {
            continue;
        }
        let number = name.split('-').next().unwrap_or_default();
        let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || !name.ends_with(".md") || name.len() <= "0000-.md".len() {
            findings.push(Finding::new(&file.path, 0, "call it NNNN-title.md"));
            continue;
        }
        if !file.text.starts_with(&format!("# {number}")) {
            findings.push(Finding::new(
                &file.path,
                1,
                format!("begin with `# {number}. Title`"),
            ));
        }
        if let Some(other) = seen.insert(number, &file.path) {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("{other} has this number too"),
            ));
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

    #[test]
    fn links_are_followed_from_their_file() {
        let files = [
            file(
                "README.md",
                "[a](docs/a.md) [b](https://example.com) [c](docs/) [d](#top)",
            ),
            file(
                "docs/a.md",
                "[up](../README.md#x) [gone](gone.md)\n```\n[code](x.md)\n```\n",
            ),
        ];
        let mut findings = Vec::new();
        for one in &files {
            links(one, &files, &mut findings);
        }
        assert_eq!(
            findings,
            [Finding::new("docs/a.md", 1, "link to `gone.md` leads nowhere")]
        );
    }

    #[test]
    fn decisions_are_numbered_once() {
        let files = [
            file("docs/decisions/0001-first.md", "# 0001. First\n"),
            file("docs/decisions/0001-again.md", "# 0001. Again\n"),
            file("docs/decisions/2-second.md", "# 2\n"),
            file("docs/decisions/0003-third.md", "# Third\n"),
        ];
        let mut findings = Vec::new();
        decisions(&files, &mut findings);
        let messages: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "docs/decisions/0001-first.md has this number too",
                "call it NNNN-title.md",
                "begin with `# 0003. Title`"
            ]
        );
    }

    #[test]
    fn paths_of_a_machine_are_found_but_not_paths_of_urls() {
        let mut findings = Vec::new();
        let machine = concat!("see `/hom", "e/me/x`\n");
        let harmless = concat!("https://example.com/hom", "e/x and $HOME/hom", "e/\n");
        machine_paths(&file("a.md", &format!("{machine}{harmless}")), &mut findings);
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1]);
    }
}
