//! End to end: the binary as a process, real sockets, real signals.
//!
//! Few tests, each for something that no inner layer can show: that the parts are wired together, that a process can be
//! killed, that the front page is true, that other people's libraries accept our requests. The oracle is always outside
//! the server: a receiver in this process, which knows every request it saw.

mod alerts;
mod client;
mod crash;
mod dead_letters;
mod delivery;
mod overload;
mod policy;
mod receiver;
mod restart;
mod sdk;
mod server;
mod tour;
mod wait;
