//! Signals that end the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Watches for SIGINT (Ctrl-C) and SIGTERM.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signals {
    /// From now on the signals no longer end the process by themselves.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> Ending {
        tokio::select! {
            _ = self.interrupt.recv() => Ending::Interrupt,
            _ = self.terminate.recv() => Ending::Terminate,
        }
    }
}

impl Ending {
    /// The exit code of a process that ends by this signal: 128 plus its number.
    #[must_use]
    pub const fn exit_code(self) -> i32 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}
