//! Postrider's memory: everything that must survive `kill -9`.
//!
//! [`Store`] names what the product does, one method each, each one transaction; the rest of the program sees no
//! SQL, no row and no transaction. Every method that compares times takes `now`. A lost race is a variant of the
//! answer, not an error. What was committed and is due at once reaches the engine through the [`feed`].
//!
//! [`DeadLetters`] is its part about what ended undelivered: looking at it ([`letter`]), sending it again ([`replay`]), removing what is
//! old, and taking it back from an archive. Where such a method has to search, a reader does, and the write that follows takes only what
//! is still as it was found.

pub mod alerts;
mod dead_letters;
pub mod error;
pub mod feed;
pub mod letter;
pub mod page;
pub mod record;
pub mod replay;
pub mod seal;
pub mod sqlite;
mod store;

pub use dead_letters::DeadLetters;
pub use error::StoreError;
pub use store::Store;
