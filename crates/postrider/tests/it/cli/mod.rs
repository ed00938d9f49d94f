//! The command line as a process: how it starts, how it ends, and what it says when it cannot.
//!
//! Real processes, since exit codes, signals, and what lands on which stream are the matter here.

mod asked;
mod commands;
mod process;
mod serve;
mod server_away;
