//! A connection: one thread reads requests and decides, one waits until each answer is due and writes it.
//!
//! Answers are sent in request order, as in Kafka. The memory of a frame is reused after decoding.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::{ServerState, api, lock};

/// The largest request: `socket.request.max.bytes` of a broker.
const FRAME_BYTES_MAX: usize = 100 << 20;
/// The initial size of a buffer, which grows with received bytes.
const FRAME_BYTES_FIRST: usize = 1 << 20;
/// Maximum pending answers; further requests are not read meanwhile.
const ANSWERS_MAX: usize = 65_536;
/// Usual wake-up delay of a sleeping thread; the rest of a wait is spent spinning.
const AWAKE: Duration = Duration::from_micros(60);

/// An answer, with its length, and the time it is due.
struct DueAnswer {
    at: Instant,
    frame: BytesMut,
}

/// Serves a connection until it ends.
pub(super) fn serve(stream: TcpStream, shared: &Arc<ServerState>) {
    let Ok(written) = stream.try_clone() else { return };
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (answers, due) = sync_channel(ANSWERS_MAX);
    let shared = Arc::clone(shared);
    let named = |name: &str| std::thread::Builder::new().name(format!("null-server-{name}"));
    // If no thread can be started, the connection ends, which the client sees.
    let _ = named("write").spawn(move || write(written, &due));
    let _ = named("read").spawn(move || read(&stream, &shared, &answers));
}

#[expect(clippy::disallowed_methods, reason = "answers are timed from the arrival of requests")]
fn read(stream: &TcpStream, shared: &ServerState, answers: &SyncSender<DueAnswer>) {
    let mut reader = BufReader::with_capacity(16 << 10, stream);
    let home = Home::default();
    while let Some(frame) = home.read_frame(&mut reader) {
        let arrived = Instant::now();
        match api::answer(shared, frame, arrived) {
            Ok(Some((at, frame))) => {
                if answers.send(DueAnswer { at, frame }).is_err() {
                    break;
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "Closed a connection of the null server");
                break;
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "answers need more precision than millisecond timers")]
fn write(mut stream: TcpStream, due: &Receiver<DueAnswer>) {
    while let Ok(DueAnswer { at, frame }) = due.recv() {
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match left.checked_sub(AWAKE) {
                Some(asleep) if !asleep.is_zero() => std::thread::sleep(asleep),
                _ => std::hint::spin_loop(),
            }
        }
        if stream.write_all(&frame).is_err() {
            break;
        }
    }
    // The reading thread ends with the stream.
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// The pool of frame memory.
#[derive(Clone, Default)]
struct Home(Arc<Mutex<Vec<u8>>>);

/// A frame in pooled memory, returned when dropped.
struct PooledFrame {
    buffer: Vec<u8>,
    length: usize,
    home: Home,
}

impl AsRef<[u8]> for PooledFrame {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for PooledFrame {
    fn drop(&mut self) {
        *lock(&self.home.0) = std::mem::take(&mut self.buffer);
    }
}

impl Home {
    /// The next frame without its length; `None` at the end of the stream, or if a length is out of bounds.
    fn read_frame(&self, reader: &mut impl Read) -> Option<Bytes> {
        let mut length = [0; 4];
        reader.read_exact(&mut length).ok()?;
        let length =
            usize::try_from(i32::from_be_bytes(length)).ok().filter(|&len| len <= FRAME_BYTES_MAX)?;
        let mut buffer = std::mem::take(&mut *lock(&self.0));
        let mut filled = 0;
        while filled < length {
            if buffer.len() < length {
                let grown = length.min((filled * 2).max(FRAME_BYTES_FIRST));
                buffer.resize(grown.max(buffer.len()), 0);
            }
            let end = buffer.len().min(length);
            reader.read_exact(&mut buffer[filled..end]).ok()?;
            filled = end;
        }
        Some(Bytes::from_owner(PooledFrame { buffer, length, home: self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_frame_is_used_again() {
        let home = Home::default();
        let mut sent = Vec::new();
        for (size, fill) in [(70_000usize, 1u8), (10, 2), (3_000_000, 3)] {
            sent.extend_from_slice(&i32::try_from(size).expect("small").to_be_bytes());
            sent.extend(std::iter::repeat_n(fill, size));
        }
        let mut reader = &sent[..];
        for (size, fill) in [(70_000, 1), (10, 2), (3_000_000, 3)] {
            let frame = home.read_frame(&mut reader).expect("a frame");
            assert_eq!(frame.len(), size);
            assert!(frame.iter().all(|&byte| byte == fill));
            drop(frame);
            assert!(lock(&home.0).len() >= size);
        }
        assert!(home.read_frame(&mut reader).is_none());
    }

    #[test]
    fn a_length_out_of_bounds_ends_the_stream_and_costs_no_memory() {
        for length in [-1i32, i32::MAX] {
            assert!(Home::default().read_frame(&mut &length.to_be_bytes()[..]).is_none());
        }
        let home = Home::default();
        let announced = i32::try_from(FRAME_BYTES_MAX).expect("fits");
        assert!(home.read_frame(&mut &announced.to_be_bytes()[..]).is_none());
    }
}
