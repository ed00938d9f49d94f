//! The context of a dead letter for other eyes: without the values of custom headers, which may be secret.

use std::collections::BTreeMap;

use postrider_core::header::CustomHeaders;
use postrider_store::letter::DeadContext;
use serde_json::{Value, json};

const MASK: &str = "***";

/// The context as JSON; nothing when it is none.
#[must_use]
pub fn masked(context: &DeadContext) -> Option<Value> {
    let mut value: Value = serde_json::from_str(context.as_str()).ok()?;
    if let Some(headers) = value.pointer_mut("/destination/config/custom_headers") {
        let parsed = CustomHeaders::parse(headers.as_str().unwrap_or_default()).unwrap_or_default();
        let names: BTreeMap<&str, &str> = parsed.iter().map(|(name, _)| (name, MASK)).collect();
        *headers = Value::String(json!(names).to_string());
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_custom_headers_do_not_leave() {
        let text = r#"{"destination":{"config":{"url":"https://a.example/","custom_headers":"{\"x-key\":\"canary\"}"}}}"#;
        let shown = masked(&DeadContext::new(text)).unwrap();
        let right = json!({"destination": {"config": {"url": "https://a.example/", "custom_headers": "{\"x-key\":\"***\"}"}}});
        assert_eq!(shown, right);
        let broken = r#"{"destination":{"config":{"custom_headers":"canary"}}}"#;
        assert!(
            !masked(&DeadContext::new(broken))
                .unwrap()
                .to_string()
                .contains("canary")
        );
        assert_eq!(masked(&DeadContext::new("no JSON")), None);
    }
}
