//! What there is to choose from: topics, types of destinations, and what is not offered.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Shared;
use super::error::ApiError;
use super::extract::Segments;

/// Types of destinations that can be created.
pub(super) const TYPES: [&str; 1] = ["webhook"];

/// `GET /topics`: the configured ones; empty when any may be published.
pub(super) async fn topics(State(app): State<Shared>) -> Json<Value> {
    Json(json!(app.directory.rules().topics))
}

/// `GET /destination-types`
pub(super) async fn destination_types() -> Json<Value> {
    Json(json!([webhook()]))
}

/// `GET /destination-types/{type}`
pub(super) async fn destination_type(Segments(kind): Segments<String>) -> Result<Json<Value>, ApiError> {
    if kind == "webhook" {
        Ok(Json(webhook()))
    } else {
        Err(ApiError::not_found("destination type not found"))
    }
}

/// Routes of the contract that this version does not serve: a clear answer instead of a wrong one.
pub(super) async fn not_offered() -> ApiError {
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "this version does not offer this route",
    )
}

fn webhook() -> Value {
    json!({
        "type": "webhook",
        "label": "Webhook",
        "description": "Sends each event as an HTTP POST to a URL, signed by Standard Webhooks.",
        "icon": "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"16\" height=\"16\" viewBox=\"0 0 16 16\" \
            fill=\"none\" stroke=\"currentColor\"><path d=\"M2 4h12v8H2zM2 4l6 5 6-5\"/></svg>",
        "instructions": "Enter the URL that receives your events. Verify the `webhook-signature` header of \
            each request with a Standard Webhooks library and the destination's secret.",
        "config_fields": [
            {
                "key": "url", "type": "text", "label": "Webhook URL", "required": true,
                "description": "The URL that events are sent to.",
                "pattern": "^https?:\\/\\/[^\\s]+$", "maxlength": 2048,
            },
            {
                "key": "custom_headers", "type": "key_value_map", "label": "Custom headers", "required": false,
                "description": "Headers that are added to each request.",
            },
            {
                "key": "timeout_seconds", "type": "text", "label": "Timeout", "required": false,
                "description": "Seconds that a request may take, 1 to 60.", "pattern": "^([1-9]|[1-5][0-9]|60)$",
            },
            {
                "key": "rate_limit_per_second", "type": "text", "label": "Rate limit", "required": false,
                "description": "Requests per second at most, 1 to 100000.", "pattern": "^([1-9][0-9]{0,4}|100000)$",
            },
        ],
        "credential_fields": [
            {
                "key": "secret", "type": "text", "label": "Signing secret", "required": false, "sensitive": true,
                "description": "Signs each request. Generated when left empty.",
            },
        ],
    })
}
