//! Configuration: flags > environment > file > defaults, checked as a whole before anything starts.
//!
//! [`key`] lists every key, [`sources`] reads what was written (the environment nowhere else), [`resolve`] lays the
//! sources over each other, [`settings`] composes the parts' own structs. The parts never see this module.

mod alerts;
pub mod error;
pub mod key;
mod protection;
pub mod resolve;
mod retention;
pub mod retry;
pub mod settings;
pub mod sources;
mod tenants;
pub mod value;

use std::path::PathBuf;

use self::error::ConfigError;
use self::resolve::Resolved;
use self::settings::Settings;
use self::sources::{CONFIG_NAME, Entry, Environment};

/// What a configuration is made from.
#[derive(Clone, Default)]
pub struct Sources {
    /// The environment.
    pub environment: Environment,
    /// The file that the command line names; `POSTRIDER_CONFIG` names it otherwise.
    pub file: Option<PathBuf>,
    /// What flags say.
    pub flags: Vec<Entry>,
    /// Whether the defaults are those of `postrider dev`.
    pub dev: bool,
}

/// A configuration, and where each value comes from.
#[derive(Debug, Clone)]
pub struct Config {
    /// For the parts.
    pub settings: Settings,
    /// For people.
    pub resolved: Resolved,
}

/// Reads and checks everything.
///
/// # Errors
/// All that is wrong, at once.
pub fn load(sources: &Sources) -> Result<Config, ConfigError> {
    let mut problems = Vec::new();
    let named = sources.environment.value(CONFIG_NAME).map(PathBuf::from);
    let mut entries = match sources.file.clone().or(named) {
        Some(path) => sources::file_entries(&path).unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        }),
        None => Vec::new(),
    };
    entries.extend(sources.environment.entries());
    entries.extend(sources.flags.iter().cloned());
    let resolved = resolve::resolve(sources.dev, entries, &mut problems);
    let settings = Settings::compose(&resolved, &sources.environment, &mut problems);
    if problems.is_empty() {
        Ok(Config { settings, resolved })
    } else {
        Err(ConfigError { problems })
    }
}

#[cfg(test)]
mod tests {
    use super::sources::Origin;
    use super::value::Raw;
    use super::*;

    /// A configuration made of a file's text, environment pairs, and flags (path, flag, value).
    fn sources(
        file: &str,
        environment: &[(&str, &str)],
        flags: &[(&str, &'static str, &str)],
    ) -> (Sources, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.toml");
        std::fs::write(&path, file).unwrap();
        let pairs = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let flags = flags.iter().map(|(path, name, value)| Entry {
            path: (*path).to_owned(),
            raw: Raw::Text((*value).to_owned()),
            origin: Origin::Flag(name),
        });
        let environment = Environment::from_pairs(pairs);
        (
            Sources {
                environment,
                file: Some(path),
                flags: flags.collect(),
                dev: false,
            },
            dir,
        )
    }

    /// The problems, with the file's directory left out of their text.
    fn problems(file: &str, environment: &[(&str, &str)]) -> Vec<String> {
        let (sources, dir) = sources(file, environment, &[]);
        let prefix = format!("{}/", dir.path().display());
        let error = load(&sources).err();
        error
            .into_iter()
            .flat_map(|e| e.problems)
            .map(|p| p.to_string().replace(&prefix, ""))
            .collect()
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let file =
            "listen = '127.0.0.1:1'\ntopics = ['a', 'b']\n[server]\ngrace = '1s'\nmax_connections = 7\n";
        let environment = [
            ("POSTRIDER_LISTEN", "127.0.0.1:2"),
            ("POSTRIDER_SERVER__GRACE", "2s"),
        ];
        let (sources, _dir) = sources(file, &environment, &[("listen", "--listen", "127.0.0.1:3")]);
        let config = load(&sources).unwrap();
        assert_eq!(config.settings.listen.port(), 3);
        assert_eq!(config.settings.server.grace.as_secs(), 2);
        assert_eq!(config.settings.server.max_connections, 7);
        assert_eq!(config.settings.server.request_timeout.as_secs(), 60);
        assert_eq!(config.settings.rules.topics, ["a", "b"]);
        assert_eq!(config.resolved.origin("listen"), Origin::Flag("--listen"));
        assert_eq!(
            config.resolved.origin("server.grace"),
            Origin::Environment("POSTRIDER_SERVER__GRACE".into())
        );
        assert!(matches!(
            config.resolved.origin("server.max_connections"),
            Origin::File(_, 5)
        ));
        assert_eq!(config.resolved.origin("data_dir"), Origin::Default);
    }

    #[test]
    fn everything_wrong_is_told_at_once_with_key_place_and_fix() {
        let file = "listne = 'x'\n[server]\ngrace = 5\nmax_connections = 0\n[colour]\nred = 1\n";
        let environment = [
            ("POSTRIDER_LOG__FORMAT", "xml"),
            ("POSTRIDER_SERVER__GARCE", "1s"),
            ("POSTRIDER_LOG__LEVEL", "a=b=c"),
        ];
        let right = [
            "colour (p.toml:5) is not a known key; see docs/configuration.md for those that are",
            "listne (p.toml:1) is not a known key; did you mean listen?",
            "server.grace (p.toml:3) is 5; write a time span with its unit in quotes, such as \"5s\"",
            "server.max_connections (p.toml:4) is 0; must be from 1 to 1000000",
            "log.format (environment POSTRIDER_LOG__FORMAT) is \"xml\"; must be one of: auto, text, json",
            "server.garce (environment POSTRIDER_SERVER__GARCE) is not a known key; did you mean POSTRIDER_SERVER__GRACE?",
            "log.level (environment POSTRIDER_LOG__LEVEL) is \"a=b=c\"; write error, warn, info, debug or trace, or \
             directives such as info,postrider::courier=debug",
        ];
        let mut found = problems(file, &environment);
        let mut right = right.map(str::to_owned).to_vec();
        found.sort();
        right.sort();
        assert_eq!(found, right);
    }

    #[test]
    fn every_wrong_entry_of_a_list_is_named() {
        let file = "topics = ['a b', '*', '', 'x', 'order.*', 'x']\n\n[courier]\nallow_addresses = ['10.0.0.0/99', '', '10.0.0.0/8', 'foo']\n";
        let address = "is neither an address nor a block such as 10.0.0.0/8 or fd00::/8";
        let right = [
            format!("courier.allow_addresses (p.toml:4) has a wrong entry: entry 1 (\"10.0.0.0/99\") {address}"),
            format!("courier.allow_addresses (p.toml:4) has a wrong entry: entry 4 (\"foo\") {address}"),
            "topics (p.toml:1) has a wrong entry at position 1: \"a b\" has a space or control character".to_owned(),
            "topics (p.toml:1) has a wrong entry at position 2: \"*\" is no topic but all of them; without topics any is \
             allowed"
                .to_owned(),
            "topics (p.toml:1) has a wrong entry at position 3: \"\" is empty".to_owned(),
            "topics (p.toml:1) has a wrong entry at position 5: \"order.*\" is a pattern: an event has one topic".to_owned(),
            "topics (p.toml:1) has a wrong entry at position 6: \"x\" is there already".to_owned(),
        ];
        assert_eq!(problems(file, &[]), right);
        assert_eq!(problems("", &[("POSTRIDER_TOPICS", "a, b,")]), [""; 0]);
        let right =
            "topics (p.toml:1) is no array of texts: entry 1 is 5, entry 3 is true; write texts in quotes";
        assert_eq!(problems("topics = [5, 'x', true]\n", &[]), [right]);
    }

    #[test]
    fn keys_are_collected_within_a_source_and_replaced_between_sources() {
        let flags = [
            ("api_keys", "--api-key", "third-key"),
            ("api_keys", "--api-key", "fourth-key"),
        ];
        let environment = [
            ("POSTRIDER_API_KEY", "first-key"),
            ("POSTRIDER_API_KEYS", "second-key, other-key"),
        ];
        let keys = |flags: &[(&str, &'static str, &str)]| {
            let (sources, _dir) = sources("api_keys = ['file-key']", &environment, flags);
            let settings = load(&sources).unwrap().settings;
            settings
                .api_keys
                .iter()
                .map(|key| key.expose().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&flags), ["third-key", "fourth-key"]);
        assert_eq!(keys(&[]), ["first-key", "second-key", "other-key"]);
    }

    #[test]
    fn no_secret_is_shown() {
        let file = "api_keys = ['canary-key']\nsecret_key = 'canary-seal'\n";
        let (sources, _dir) = sources(file, &[("POSTRIDER_API_KEYS", "canary-key,,")], &[]);
        let error = load(&sources).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        let (sources, _dir) = self::sources(file, &[], &[]);
        if let Ok(config) = load(&sources) {
            let shown: Vec<_> = config
                .resolved
                .rows()
                .map(|(_, value, _)| value.shown())
                .collect();
            assert!(!format!("{config:?} {shown:?}").contains("canary"));
        }
    }

    #[test]
    fn without_a_key_nothing_is_served() {
        let config = load(&Sources::default()).unwrap();
        let problem = config.settings.require_api_key().unwrap_err();
        assert!(
            problem
                .to_string()
                .starts_with("api_keys is not set, and a server without a key would be open to everybody;")
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let sources = Sources {
            file: Some("/nonexistent/p.toml".into()),
            ..Sources::default()
        };
        let error = load(&sources).unwrap_err().to_string();
        assert!(
            error.starts_with("read the configuration: /nonexistent/p.toml cannot be read: "),
            "{error}"
        );
    }
}
