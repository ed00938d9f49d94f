//! Lanes and dispatcher.
