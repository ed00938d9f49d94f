//! What the operator is told: from the keys of `[alerts]` to the configuration of the alerts.

use postrider_core::guard::Guard;
use postrider_core::signing::Keyring;

use super::error::Problem;
use super::resolve::Resolved;
use crate::alerts::{AlertsConfig, Thresholds, Webhook};

/// Thresholds, and the webhook when there is one, whose address the guard must allow, as far as that can be known without
/// asking a name server. Without a guard it is not checked: then that is the mistake to mend first.
pub(super) fn alerts(
    resolved: &Resolved,
    guard: Option<&Guard>,
    problems: &mut Vec<Problem>,
) -> AlertsConfig {
    AlertsConfig {
        thresholds: Thresholds {
            dead_letters: resolved.count("alerts.dead_letters"),
            dead_letters_per_destination: resolved.count("alerts.dead_letters_per_destination"),
            dead_letter_growth: resolved.count("alerts.dead_letter_growth"),
            dead_letter_growth_per_destination: resolved.count("alerts.dead_letter_growth_per_destination"),
            time_to_success_p99: resolved.span("alerts.time_to_success_p99"),
            oldest_due_age: resolved.span("alerts.oldest_due_age"),
            breaker_open: resolved.flag("alerts.breaker_open"),
            destination_disabled: resolved.flag("alerts.destination_disabled"),
            retries_exhausted: resolved.flag("alerts.retries_exhausted"),
            consecutive_failures: resolved.count("failures.alert_at"),
        },
        webhook: webhook(resolved, guard, problems),
    }
}

fn webhook(resolved: &Resolved, guard: Option<&Guard>, problems: &mut Vec<Problem>) -> Option<Webhook> {
    let url = resolved.optional("alerts.webhook_url", |it| {
        it.text("alerts.webhook_url").to_owned()
    });
    let url = url.filter(|url| !url.is_empty());
    let secret = resolved.secrets("alerts.webhook_secret").first();
    let at = |path: &str, text: String| Problem::at(path, &resolved.origin(path), text);
    if let (Some(url), Some(guard)) = (&url, guard)
        && let Err(refused) = guard.url(url)
    {
        // What some guard would allow can be allowed.
        let can_be_allowed = Guard::new("0.0.0.0/0,::/0", true).is_ok_and(|all| all.url(url).is_ok());
        let fix = if can_be_allowed {
            "name another address, or allow it by courier.allow_addresses (http:// needs courier.require_https = false)"
        } else {
            "write an address such as https://ops.example.com/alerts"
        };
        problems.push(at(
            "alerts.webhook_url",
            format!("is not allowed: {refused}; {fix}"),
        ));
    }
    match (url, secret) {
        (None, None) => None,
        (None, Some(_)) => {
            let text = "is set, but alerts.webhook_url is not: set both or none".to_owned();
            problems.push(at("alerts.webhook_secret", text));
            None
        }
        (Some(_), None) => {
            let text = "needs alerts.webhook_secret, which signs what is sent there; \
                        `echo whsec_$(openssl rand -base64 24)` makes one";
            problems.push(at("alerts.webhook_url", text.to_owned()));
            None
        }
        (Some(url), Some(secret)) => {
            if let Err(invalid) = Keyring::new(secret, None) {
                problems.push(at("alerts.webhook_secret", format!("is not valid: {invalid}")));
            }
            Some(Webhook {
                url,
                secret: secret.clone(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::secret::Secret;

    use super::super::sources::Environment;
    use super::super::{Sources, load};
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn alerts(pairs: &[(&str, &str)]) -> Result<AlertsConfig, String> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (format!("POSTRIDER_{name}"), (*value).to_owned()));
        let sources = Sources {
            environment: Environment::from_pairs(pairs),
            ..Sources::default()
        };
        load(&sources)
            .map(|loaded| loaded.settings.alerts)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_knob_arrives() {
        let config = alerts(&[
            ("ALERTS__WEBHOOK_URL", "https://ops.example.com/in"),
            ("ALERTS__WEBHOOK_SECRET", SECRET),
            ("ALERTS__DEAD_LETTERS", "1"),
            ("ALERTS__DEAD_LETTERS_PER_DESTINATION", "2"),
            ("ALERTS__DEAD_LETTER_GROWTH", "3"),
            ("ALERTS__DEAD_LETTER_GROWTH_PER_DESTINATION", "4"),
            ("ALERTS__TIME_TO_SUCCESS_P99", "5s"),
            ("ALERTS__OLDEST_DUE_AGE", "0s"),
            ("ALERTS__BREAKER_OPEN", "false"),
            ("ALERTS__DESTINATION_DISABLED", "false"),
            ("ALERTS__RETRIES_EXHAUSTED", "false"),
            ("FAILURES__ALERT_AT", "7"),
        ]);
        let right = AlertsConfig {
            thresholds: Thresholds {
                dead_letters: 1,
                dead_letters_per_destination: 2,
                dead_letter_growth: 3,
                dead_letter_growth_per_destination: 4,
                time_to_success_p99: Duration::from_secs(5),
                oldest_due_age: Duration::ZERO,
                breaker_open: false,
                destination_disabled: false,
                retries_exhausted: false,
                consecutive_failures: 7,
            },
            webhook: Some(Webhook {
                url: "https://ops.example.com/in".to_owned(),
                secret: Secret::new(SECRET),
            }),
        };
        assert_eq!(config, Ok(right));
    }

    #[test]
    fn an_address_that_the_guard_refuses_is_named_with_the_fix_that_helps() {
        let wrong = |url: &str, more: (&str, &str)| {
            let pairs = [
                ("ALERTS__WEBHOOK_URL", url),
                ("ALERTS__WEBHOOK_SECRET", SECRET),
                more,
            ];
            alerts(&pairs).map(|config| config.webhook.map(|webhook| webhook.url))
        };
        let other = ("LOG__LEVEL", "info");
        let start = "read the configuration: alerts.webhook_url (environment POSTRIDER_ALERTS__WEBHOOK_URL) is not allowed: ";
        for (url, fix) in [
            (
                "notaurl",
                "; write an address such as https://ops.example.com/alerts",
            ),
            (
                "https://127.0.0.1/in",
                "; name another address, or allow it by courier.allow_addresses (http:// needs courier.require_https = false)",
            ),
        ] {
            let error = wrong(url, other).unwrap_err();
            assert!(error.starts_with(start) && error.ends_with(fix), "{error}");
        }
        let allowed = wrong(
            "https://127.0.0.1/in",
            ("COURIER__ALLOW_ADDRESSES", "127.0.0.0/8"),
        );
        assert_eq!(allowed, Ok(Some("https://127.0.0.1/in".to_owned())));
        let error = wrong("notaurl", ("LOG__FORMAT", "xml")).unwrap_err();
        assert!(
            error.contains("2 problems") && error.contains("log.format"),
            "{error}"
        );
    }

    #[test]
    fn half_a_webhook_is_a_mistake() {
        let wrong = |pairs: &[(&str, &str)]| alerts(pairs).unwrap_err();
        let error = wrong(&[("ALERTS__WEBHOOK_URL", "https://ops.example.com/in")]);
        assert_eq!(
            error,
            "read the configuration: alerts.webhook_url (environment POSTRIDER_ALERTS__WEBHOOK_URL) needs \
             alerts.webhook_secret, which signs what is sent there; `echo whsec_$(openssl rand -base64 24)` makes one"
        );
        let error = wrong(&[("ALERTS__WEBHOOK_SECRET", SECRET)]);
        assert_eq!(
            error,
            "read the configuration: alerts.webhook_secret (environment POSTRIDER_ALERTS__WEBHOOK_SECRET) is set, but \
             alerts.webhook_url is not: set both or none"
        );
        let both = [
            ("ALERTS__WEBHOOK_URL", "https://ops.example.com/in"),
            ("ALERTS__WEBHOOK_SECRET", "whsec_!"),
        ];
        let error = wrong(&both);
        assert!(error.contains("alerts.webhook_secret"), "{error}");
        assert!(!error.contains("whsec_!"), "{error}");
    }
}
