//! The courier against receivers that do everything a receiver may do, over real sockets.

mod addresses;
mod answers;
mod h2_connections;
mod requests;
mod reuse;
mod rig;
mod sink;
mod tls_handshakes;
mod transport;
