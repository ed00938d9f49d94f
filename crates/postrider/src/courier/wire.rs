//! The bytes of one connection, watched.
//!
//! hyper says that a request failed, not whether a byte of an answer had arrived, nor which socket error it met first. Both
//! decide what may be done next, so the stream itself keeps count.
//!
//! A write that fails does not fail the request here: a receiver may answer early (401, 413) and close while the
//! body is still being sent. The bytes are dropped, the connection is marked, and the read side finds the answer or
//! the end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// What was seen of a connection so far.
#[derive(Debug, Default)]
pub(super) struct Vitals {
    bytes_read: AtomicU64,
    broken: AtomicBool,
    last_error: Mutex<Option<io::ErrorKind>>,
}

impl Vitals {
    /// Bytes that the peer sent, after TLS.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Whether a read or write has failed: such a connection is not used again.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// The first socket error.
    pub(super) fn last_error(&self) -> Option<io::ErrorKind> {
        *self.last_error.lock()
    }

    fn record(&self, kind: io::ErrorKind) {
        self.broken.store(true, Ordering::Relaxed);
        self.last_error.lock().get_or_insert(kind);
    }
}

/// A connection, plain or encrypted.
pub(super) struct Wire {
    stream: Stream,
    vitals: Arc<Vitals>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self {
            stream: Stream::Plain(stream),
            vitals: Arc::default(),
        }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self {
            stream: Stream::Tls(Box::new(stream)),
            vitals: Arc::default(),
        }
    }

    pub(super) fn vitals(&self) -> Arc<Vitals> {
        Arc::clone(&self.vitals)
    }

    /// Whether ALPN chose HTTP/2.
    pub(super) fn speaks_h2(&self) -> bool {
        match &self.stream {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// What the body's sender is told about a write: a failure is remembered and hidden.
    fn after_write(&self, result: Poll<io::Result<usize>>, length: usize) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Err(error)) => {
                self.vitals.record(error.kind());
                Poll::Ready(Ok(length))
            }
            other => other,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        match &result {
            Poll::Ready(Ok(())) => {
                let count = (buf.filled().len() - before) as u64;
                self.vitals.bytes_read.fetch_add(count, Ordering::Relaxed);
            }
            Poll::Ready(Err(error)) => self.vitals.record(error.kind()),
            Poll::Pending => {}
        }
        result
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.vitals.is_broken() {
            return Poll::Ready(Ok(buf.len()));
        }
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.after_write(result, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        if self.vitals.is_broken() {
            return Poll::Ready(Ok(length));
        }
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.after_write(result, length)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.vitals.is_broken() {
            return Poll::Ready(Ok(()));
        }
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.after_write(result.map_ok(|()| 0), 0).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
