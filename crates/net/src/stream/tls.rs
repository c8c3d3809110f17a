//! TLS of a connection: records by rustls, over the connection's own socket and in its only task.
//!
//! Bytes pass through buffers of the worker thread: a read takes as many records as there is room for, and a
//! write packs answers into whole records and sends several together. A connection keeps bytes that the
//! socket did not take, an incomplete record, and decrypted bytes without room at the reader: at most 64 KiB,
//! 16 KiB and 32 KiB, and nothing while idle.

use super::Stream;
use bytes::BufMut;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use std::cell::RefCell;
use std::io;

/// Maximum content of a record.
const RECORD_CONTENT: usize = 16 * 1024;
/// Upper bound of the bytes that any version adds to a record.
const RECORD_OVERHEAD: usize = 64;
/// Maximum bytes encrypted before they are sent.
const WRITE_BYTES: usize = 4 * RECORD_CONTENT;
/// Minimum and maximum content requested from the socket by a read.
const READ_MIN: usize = RECORD_CONTENT;
const READ_MAX: usize = 256 * 1024;
/// Room for an incomplete record or handshake message.
const INCOMPLETE_MAX: usize = 80 * 1024;

/// The buffers of a thread.
struct Buffers {
    received: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        received: vec![0; INCOMPLETE_MAX + sealed_len(READ_MAX)],
        plain: vec![0; WRITE_BYTES],
        sealed: vec![0; sealed_len(WRITE_BYTES)],
    });
}

/// Maximum size of records with this much content.
const fn sealed_len(content: usize) -> usize {
    content + (content / RECORD_CONTENT + 1) * RECORD_OVERHEAD
}

/// The TLS of a connection.
pub(crate) struct TlsStream {
    io: Stream,
    connection: UnbufferedServerConnection,
    /// An incomplete record.
    incoming: Vec<u8>,
    /// Decrypted bytes without room at the reader, from `plain_read` on.
    plain: Vec<u8>,
    plain_read: usize,
    /// Records that the socket did not take, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    /// Number of bytes taken by the socket. Wraps around.
    progress: u64,
    is_closed: bool,
    fault: Option<rustls::Error>,
}

impl TlsStream {
    pub(crate) fn new(io: Stream, connection: UnbufferedServerConnection) -> TlsStream {
        TlsStream {
            io,
            connection,
            incoming: Vec::new(),
            plain: Vec::new(),
            plain_read: 0,
            outgoing: Vec::new(),
            sent: 0,
            progress: 0,
            is_closed: false,
            fault: None,
        }
    }

    pub(crate) fn connection(&self) -> &UnbufferedServerConnection {
        &self.connection
    }

    /// True if a read has a result without the socket.
    fn has_plain(&self) -> bool {
        self.plain_read < self.plain.len() || self.is_closed || self.fault.is_some()
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        if self.has_plain() { Ok(()) } else { Box::pin(self.io.readable()).await }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        Box::pin(self.io.writable()).await
    }

    pub(crate) fn reset(&mut self) {
        self.io.reset();
    }

    /// Number of bytes waiting for the socket.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }

    /// Reads into the buffer's room. `Ok(0)` is the end of the stream.
    pub(crate) fn try_read(&mut self, buffer: &mut impl BufMut) -> io::Result<usize> {
        let room = buffer.chunk_mut().len();
        if self.plain_read == self.plain.len() && !self.is_closed {
            self.result()?;
            self.receive(room, &mut |payload: &[u8], taken: usize| {
                let fits = payload.len().min(room - taken);
                buffer.put_slice(&payload[..fits]);
                fits
            })
            .and_then(|read| if read == 0 && !self.is_closed { Err(would_block()) } else { Ok(read) })
        } else {
            let waiting = &self.plain[self.plain_read..];
            let taken = waiting.len().min(room);
            buffer.put_slice(&waiting[..taken]);
            self.plain_read += taken;
            if self.plain_read == self.plain.len() {
                (self.plain, self.plain_read) = (Vec::new(), 0);
            }
            Ok(taken)
        }
    }

    /// Reads from the socket once for a handshake. Returns the number of bytes; 0 is the end. Content after
    /// the handshake is kept.
    pub(crate) fn receive_handshake(&mut self, begin: &mut Option<u8>) -> io::Result<usize> {
        BUFFERS.with_borrow_mut(|buffers| {
            let start = self.take_incoming(&mut buffers.received)?;
            let read = self.io.try_read(&mut buffers.received[start..start + READ_MIN]);
            let end = start + read.as_ref().map_or(0, |read| *read);
            self.incoming = buffers.received[..end].to_vec();
            if end > 0 {
                begin.get_or_insert(buffers.received[0]);
            }
            read
        })
    }

    /// Advances the handshake with the received bytes: the expensive part.
    pub(crate) fn advance_handshake(&mut self) -> io::Result<()> {
        let mut incoming = std::mem::take(&mut self.incoming);
        let used = self.process(&mut incoming, &mut |_, _| 0, None);
        self.incoming = incoming.split_off(used.map_or(0, |(used, _)| used));
        self.result()
    }

    /// Sends the waiting bytes; fails with `WouldBlock` if the socket does not take all.
    pub(crate) fn flush(&mut self, unasked: bool) -> io::Result<()> {
        while self.sent < self.outgoing.len() {
            let sent = self.io.try_write(&self.outgoing[self.sent..], unasked)?;
            self.sent += sent;
            self.progress = self.progress.wrapping_add(sent as u64);
        }
        (self.outgoing, self.sent) = (Vec::new(), 0);
        Ok(())
    }

    /// Encrypts and sends the bytes that `fill` puts into a buffer. All earlier bytes must be flushed. Bytes
    /// that the socket does not take are kept.
    pub(crate) fn write(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
        unasked: bool,
    ) -> io::Result<()> {
        BUFFERS.with_borrow_mut(|buffers| {
            let filled = fill(&mut buffers.plain)?;
            let content = Content { plain: &buffers.plain[..filled], sealed: &mut buffers.sealed };
            let mut incoming = std::mem::take(&mut self.incoming);
            let done = self.process(&mut incoming, &mut |_, _| 0, Some(content));
            self.incoming = incoming.split_off(done.map_or(0, |(used, _)| used));
            self.result()?;
            let sealed = done.map_or(0, |(_, sealed)| sealed);
            // A change of keys is sent first.
            if !self.outgoing.is_empty() {
                self.outgoing.extend_from_slice(&buffers.sealed[..sealed]);
                return self.flush(unasked);
            }
            let sent = match self.io.try_write(&buffers.sealed[..sealed], unasked) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                sent => sent?,
            };
            self.progress = self.progress.wrapping_add(sent as u64);
            self.outgoing = buffers.sealed[sent..sealed].to_vec();
            Ok(())
        })
    }

    /// Sends close_notify, if the socket takes it.
    pub(crate) fn close(&mut self) {
        let mut incoming = std::mem::take(&mut self.incoming);
        // After a fault nothing is read again: the alert has announced the end.
        if self.fault.is_none()
            && let Ok(ConnectionState::WriteTraffic(mut traffic)) =
                self.connection.process_tls_records(&mut incoming).state
        {
            let mut sealed = [0; 2 * RECORD_OVERHEAD];
            if let Ok(length) = traffic.queue_close_notify(&mut sealed) {
                self.outgoing.extend_from_slice(&sealed[..length]);
            }
        }
        // The connection ends even if the peer does not get this message.
        drop(self.flush(false));
    }

    /// Reads from the socket once, and decrypts.
    fn receive(&mut self, room: usize, put: &mut dyn FnMut(&[u8], usize) -> usize) -> io::Result<usize> {
        BUFFERS.with_borrow_mut(|buffers| {
            let start = self.take_incoming(&mut buffers.received)?;
            let wanted = sealed_len(room.clamp(READ_MIN, READ_MAX));
            let read = match self.io.try_read(&mut buffers.received[start..start + wanted]) {
                Ok(0) => {
                    self.is_closed = true;
                    return Ok(0);
                }
                Ok(read) => read,
                Err(error) => {
                    self.incoming = buffers.received[..start].to_vec();
                    return Err(error);
                }
            };
            let received = &mut buffers.received[..start + read];
            let mut taken = 0;
            let mut put = |payload: &[u8]| {
                let fits = put(payload, taken);
                taken += fits;
                fits
            };
            let used =
                self.process(received, &mut |payload, _| put(payload), None).map_or(0, |(used, _)| used);
            self.incoming = received[used..].to_vec();
            if self.fault.is_none() && !self.outgoing.is_empty() {
                match self.flush(false) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
            // Content before a fault is served first.
            if taken == 0 {
                self.result()?;
            }
            Ok(taken)
        })
    }

    /// Moves an incomplete record to the front of the buffer, and returns its length.
    fn take_incoming(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let incoming = std::mem::take(&mut self.incoming);
        if incoming.len() > INCOMPLETE_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a TLS message is too long"));
        }
        buffer[..incoming.len()].copy_from_slice(&incoming);
        Ok(incoming.len())
    }

    /// Handles received records: content goes to `put`, which returns the number of bytes taken, and the rest
    /// to `plain`. Then encrypts `content`. Returns the numbers of used and of sealed bytes; `None` after a
    /// fault.
    fn process(
        &mut self,
        received: &mut [u8],
        put: &mut dyn FnMut(&[u8], usize) -> usize,
        mut content: Option<Content<'_>>,
    ) -> Option<(usize, usize)> {
        let (mut used, mut sealed) = (0, 0);
        loop {
            let UnbufferedStatus { discard, state, .. } =
                self.connection.process_tls_records(&mut received[used..]);
            let mut is_done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        let payload = record.payload;
                        let taken = if self.plain.is_empty() { put(payload, used) } else { 0 };
                        self.plain.extend_from_slice(&payload[taken..]);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
                        data.encode(&mut [])
                    {
                        let at = self.outgoing.len();
                        self.outgoing.resize(at + required_size, 0);
                        // Cannot fail: the buffer has the size that rustls asked for.
                        let encoded = data.encode(&mut self.outgoing[at..]).unwrap_or(0);
                        self.outgoing.truncate(at + encoded);
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    if let Some(Content { plain, sealed: room }) = content.take() {
                        match traffic.encrypt(plain, room) {
                            Ok(length) => sealed = length,
                            Err(error) => self.fault = Some(rustls::Error::General(error.to_string())),
                        }
                    }
                    is_done = true;
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_closed = true;
                    // Answers may still be sent.
                    is_done = content.is_none();
                }
                Ok(ConnectionState::Closed) => {
                    self.is_closed = true;
                    is_done = true;
                }
                Ok(_) => is_done = true,
                Err(error) => {
                    self.fault.get_or_insert(error);
                }
            }
            used += discard;
            // After a fault, one more call produces the alerts with the reason. A further call would read the
            // same bytes again.
            is_done |= self.fault.is_some() && !self.connection.wants_write();
            if is_done {
                return self.fault.is_none().then_some((used, sealed));
            }
        }
    }

    fn result(&mut self) -> io::Result<()> {
        match &self.fault {
            None => Ok(()),
            Some(fault) => {
                let error = io::Error::new(io::ErrorKind::InvalidData, fault.clone());
                drop(self.flush(false));
                Err(error)
            }
        }
    }
}

/// The bytes to encrypt, and the room for the result.
struct Content<'a> {
    plain: &'a [u8],
    sealed: &'a mut [u8],
}

fn would_block() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}
