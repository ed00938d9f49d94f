//! The table of alerts. Small and bounded, so the one index is for what fires.

/// The step that makes it.
pub(super) const TABLES: &str = "
CREATE TABLE alert(
    key INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    destination INTEGER,
    tenant_id TEXT,
    destination_id TEXT,
    severity INTEGER NOT NULL,
    since INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    cleared_at INTEGER,
    value INTEGER NOT NULL,
    threshold INTEGER NOT NULL,
    text TEXT NOT NULL,
    todo TEXT NOT NULL,
    version INTEGER NOT NULL,
    published INTEGER NOT NULL
) STRICT;
CREATE INDEX alert_open ON alert(key) WHERE cleared_at IS NULL OR published < version;
";
