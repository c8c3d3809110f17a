//! The other end of a connection: a socket, a simulated stream, or TLS over one of them.
//!
//! Owns: nonblocking reads and writes, and waiting for readiness. Files are sent through a socket by
//! sendfile. A simulated stream has no descriptor, so files are read into memory.

pub(super) mod tls;

use bytes::{BufMut, Bytes};
use rustix::net::SendFlags;
use socket2::SockRef;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Duration;
use thalweg_log::LogSlice;
use tls::TlsStream;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A peer that sends less than this at a time is usually quiet afterwards.
const BULK_BYTES: usize = 16 * 1024;
/// Size of a read from a file if sendfile cannot be used.
const COPY_BYTES: usize = 64 * 1024;

/// The broker's end of a connection in a simulated network.
pub trait SimulatedStream: Send + Sync {
    /// Ready when [`SimulatedStream::try_read`] has a result.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads available bytes; `Ok(0)` is the end of the stream.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Ready when [`SimulatedStream::try_write`] has a result.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sends as many bytes as are accepted without waiting.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// The stream of a connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Simulated(Box<dyn SimulatedStream>),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(socket) => socket.readable().await,
            Stream::Simulated(stream) => poll_fn(|context| stream.poll_readable(context)).await,
            Stream::Tls(stream) => stream.readable().await,
        }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(socket) => socket.writable().await,
            Stream::Simulated(stream) => poll_fn(|context| stream.poll_writable(context)).await,
            Stream::Tls(stream) => stream.writable().await,
        }
    }

    /// Reads once into the buffer's room. `Ok(0)` is the end of the stream.
    pub(super) fn try_read_buf(&mut self, buffer: &mut impl BufMut) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => read_tcp(socket, buffer),
            Stream::Simulated(stream) => {
                let mut bytes = vec![0; buffer.chunk_mut().len()];
                let read = stream.try_read(&mut bytes)?;
                buffer.put_slice(&bytes[..read]);
                Ok(read)
            }
            Stream::Tls(stream) => stream.try_read(buffer),
        }
    }

    /// Reads once. `Ok(0)` is the end of the stream.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => socket.try_read(buffer),
            Stream::Simulated(stream) => stream.try_read(buffer),
            Stream::Tls(_) => Err(nested()),
        }
    }

    /// Sends as much as is accepted; with `unasked` even if the socket did not report room.
    pub(super) fn try_write(&self, bytes: &[u8], unasked: bool) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) if unasked => {
                Ok(rustix::net::send(socket.as_fd(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
            }
            Stream::Tcp(socket) => socket.try_write(bytes),
            Stream::Simulated(stream) => stream.try_write(bytes),
            Stream::Tls(_) => Err(nested()),
        }
    }

    /// Ends the TLS layer, if there is one.
    pub(super) fn close(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.close();
        }
    }

    /// Makes the end of the connection look as if it had never been accepted, like connections in the
    /// system's queue when the listener closes. A client that sees an orderly end before any answer assumes a
    /// listener of another protocol and gives up; after a reset it retries.
    pub(super) fn reset(&mut self) {
        match self {
            Stream::Tcp(socket) => {
                if let Err(error) = SockRef::from(&*socket).set_linger(Some(Duration::ZERO)) {
                    tracing::debug!(%error, "Failed to set SO_LINGER");
                }
            }
            Stream::Simulated(_) => {}
            Stream::Tls(stream) => stream.reset(),
        }
    }

    pub(super) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => socket.try_write_vectored(slices),
            Stream::Simulated(stream) => stream.try_write(slices.first().map_or(&[], |slice| slice)),
            Stream::Tls(_) => Err(nested()),
        }
    }

    /// Sends bytes. With `more` the kernel may wait for further bytes.
    pub(super) fn try_send(&self, bytes: &Bytes, more: bool) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        match self {
            Stream::Tcp(socket) => socket.try_io(Interest::WRITABLE, || {
                let flags = if more { SendFlags::MORE } else { SendFlags::empty() };
                Ok(rustix::net::send(socket.as_fd(), bytes, flags | SendFlags::NOSIGNAL)?)
            }),
            Stream::Simulated(stream) => stream.try_write(bytes),
            Stream::Tls(_) => Err(nested()),
        }
    }

    /// Like [`Stream::try_send`], even if the socket did not report room.
    pub(super) fn send_unasked(&self, bytes: &Bytes) -> io::Result<usize> {
        match self {
            Stream::Tcp(_) if !bytes.is_empty() => self.try_write(bytes, true),
            _ => self.try_send(bytes, false),
        }
    }

    /// Sends as much of the file as is accepted, and advances the slice; with `unasked` even if the socket
    /// did not report room.
    pub(super) fn try_send_slice(&self, slice: &mut LogSlice, unasked: bool) -> io::Result<()> {
        while slice.len > 0 {
            let sent = match (self, slice.file.descriptor()) {
                (Stream::Tcp(socket), Some(file)) => {
                    let mut send = || {
                        Ok(rustix::fs::sendfile(socket.as_fd(), file, Some(&mut slice.position), slice.len)?)
                    };
                    if unasked { send()? } else { socket.try_io(Interest::WRITABLE, send)? }
                }
                (Stream::Tcp(socket), None) => copy(slice, |bytes| socket.try_write(bytes))?,
                (Stream::Simulated(stream), _) => copy(slice, |bytes| stream.try_write(bytes))?,
                (Stream::Tls(_), _) => return Err(nested()),
            };
            if sent == 0 {
                return Err(cut(slice));
            }
            slice.len -= sent;
        }
        Ok(())
    }
}

/// Reads once. A small read that leaves room has emptied the socket: it is marked as not readable until more
/// bytes arrive, which saves a system call without a result.
fn read_tcp(socket: &TcpStream, buffer: &mut impl BufMut) -> io::Result<usize> {
    let emptied_below = buffer.chunk_mut().len().min(BULK_BYTES);
    let mut found = None;
    let read = socket.try_io(Interest::READABLE, || {
        let read = socket.try_read_buf(buffer)?;
        found = Some(read);
        if (1..emptied_below).contains(&read) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
    });
    found.map_or(read, Ok)
}

/// TLS sends whole answers ([`TlsStream::write`]), and is never layered over TLS.
fn nested() -> io::Error {
    io::Error::other("bytes for a socket under TLS")
}

/// The error for a file that has become shorter. The head announced these batches: continuing would shift
/// every later byte of the stream. The log checks the file before the next read.
pub(super) fn cut(slice: &LogSlice) -> io::Error {
    slice.file.note_short();
    io::Error::new(io::ErrorKind::UnexpectedEof, "a log segment was cut while it was sent")
}

fn copy(slice: &mut LogSlice, write: impl Fn(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
    let mut bytes = vec![0; slice.len.min(COPY_BYTES)];
    let read = slice.file.read_at(&mut bytes, slice.position)?;
    let sent = if read == 0 { 0 } else { write(&bytes[..read])? };
    slice.position += sent as u64;
    Ok(sent)
}
