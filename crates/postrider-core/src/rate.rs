//! Even spacing.
