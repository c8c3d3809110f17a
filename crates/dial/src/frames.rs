//! Splits a stream into frames.
//!
//! A frame is a slice of the buffer into which it was read. The buffer grows with the received bytes, not
//! with the announced length. The rest of a large frame is read in large pieces, which halves the cost of
//! receiving. A connection with little traffic keeps a small buffer, so that thousands of idle connections
//! are affordable. With a budget, a frame of more than one read waits for a place before its rest is read.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::answer_budget::{AnswerBudget, AnswerPlace, with_place};
use crate::error::CloseReason;

/// Read sizes of a busy and of an idle stream.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 512;
const GROW_BYTES: usize = 1 << 20;
const LENGTH_LEN: usize = thalweg_wire::frame::LENGTH_LEN;

/// Reads frames from a stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    frame_bytes_max: usize,
    /// Size of the next read, from [`READ_BYTES_MIN`] to [`READ_BYTES`].
    read_bytes: usize,
    budget: Option<Arc<dyn AnswerBudget>>,
    /// The place of the frame that is being read.
    place: Option<AnswerPlace>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader of `stream` that rejects frames of more than `frame_bytes_max`.
    pub fn new(stream: R, frame_bytes_max: usize) -> FrameReader<R> {
        let (buffer, read_bytes) = (BytesMut::new(), READ_BYTES_MIN);
        FrameReader { stream, buffer, frame_bytes_max, read_bytes, budget: None, place: None }
    }

    /// The same reader, with a budget for large frames.
    #[must_use]
    pub fn within(self, budget: Option<Arc<dyn AnswerBudget>>) -> FrameReader<R> {
        FrameReader { budget, ..self }
    }

    /// The stream, and bytes read beyond the last frame.
    pub fn into_parts(self) -> (R, BytesMut) {
        (self.stream, self.buffer)
    }

    /// The next frame, without its length. Dropping the future loses no bytes. The end of the stream is
    /// [`CloseReason::ByPeer`].
    pub async fn next(&mut self) -> Result<Bytes, CloseReason> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(frame);
            }
            if let Some(budget) = self.budget.as_ref().filter(|_| self.place.is_none())
                && let Some(length) = self.announced()?.filter(|length| *length > READ_BYTES)
            {
                self.place = Some(budget.place(length).await);
            }
            self.make_room();
            let read = self.stream.read_buf(&mut self.buffer).await?;
            if read == 0 {
                return Err(CloseReason::ByPeer);
            }
            self.adapt(read);
        }
    }

    /// A frame that is already in the buffer.
    pub fn take(&mut self) -> Result<Option<Bytes>, CloseReason> {
        let Some(length) = self.announced()? else { return Ok(None) };
        if self.buffer.len() - LENGTH_LEN < length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_LEN);
        let frame = self.buffer.split_to(length).freeze();
        let Some(place) = self.place.take() else { return Ok(Some(frame)) };
        // The rest of the buffer would keep the memory of the frame.
        self.buffer = BytesMut::from(&self.buffer[..]);
        Ok(Some(with_place(frame, place)))
    }

    fn announced(&self) -> Result<Option<usize>, CloseReason> {
        let Some(head) = self.buffer.first_chunk::<LENGTH_LEN>() else { return Ok(None) };
        let length = i32::from_be_bytes(*head);
        match usize::try_from(length) {
            Ok(bytes) if bytes <= self.frame_bytes_max => Ok(Some(bytes)),
            _ => Err(CloseReason::FrameLength { length, limit: self.frame_bytes_max }),
        }
    }

    fn make_room(&mut self) {
        let have = self.buffer.len();
        let missing = match self.announced() {
            Ok(Some(length)) => (LENGTH_LEN + length).saturating_sub(have),
            _ => 0,
        };
        let spare = self.buffer.capacity() - have;
        if missing > READ_BYTES {
            if spare < missing.min(READ_BYTES) {
                self.buffer.reserve(missing.min(GROW_BYTES.max(have)));
            }
        } else if have == 0 && self.buffer.capacity() > self.enough() {
            self.buffer = BytesMut::with_capacity(self.read_bytes.max(missing));
        } else if spare < missing.max(self.read_bytes / 16) {
            self.buffer.reserve(self.read_bytes.max(missing));
        }
    }

    /// The capacity beyond which the buffer is replaced.
    fn enough(&self) -> usize {
        if self.read_bytes == READ_BYTES_MIN { READ_BYTES_MIN } else { 4 * self.read_bytes }
    }

    /// Increases the read size after a full read, and decreases it after a nearly empty one.
    fn adapt(&mut self, read: usize) {
        if read >= self.read_bytes / 2 {
            self.read_bytes = (4 * self.read_bytes).min(READ_BYTES);
        } else if read < self.read_bytes / 16 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn frames_come_whole_however_the_stream_is_cut() {
        let (mut writer, stream) = tokio::io::duplex(7);
        let sizes = [0usize, 1, 3, 70_000, 5, 3_000_000, 2];
        let sent = tokio::spawn(async move {
            for (index, size) in sizes.into_iter().enumerate() {
                let fill = u8::try_from(index).expect("few frames");
                writer.write_all(&u32::try_from(size).expect("small").to_be_bytes()).await.expect("written");
                writer.write_all(&vec![fill; size]).await.expect("written");
            }
        });
        let mut frames = FrameReader::new(stream, 4 << 20);
        for (index, size) in sizes.into_iter().enumerate() {
            let frame = frames.next().await.expect("a frame");
            assert_eq!(frame.len(), size);
            assert!(frame.iter().all(|&byte| usize::from(byte) == index));
        }
        sent.await.expect("all written");
        assert!(matches!(frames.next().await, Err(CloseReason::ByPeer)));
    }

    #[tokio::test]
    async fn an_announced_length_is_a_bound_to_check_and_costs_no_memory() {
        for length in [-1i32, 1001, i32::MAX] {
            let (mut writer, stream) = tokio::io::duplex(64);
            writer.write_all(&length.to_be_bytes()).await.expect("written");
            let error = FrameReader::new(stream, 1000).next().await.expect_err("a refusal");
            assert!(matches!(error, CloseReason::FrameLength { .. }), "{error}");
        }
        let (mut writer, stream) = tokio::io::duplex(64);
        writer.write_all(&i32::MAX.to_be_bytes()).await.expect("written");
        drop(writer);
        let mut frames = FrameReader::new(stream, usize::MAX);
        assert!(matches!(frames.next().await, Err(CloseReason::ByPeer)));
        assert!(frames.buffer.capacity() <= 2 * GROW_BYTES);
    }

    /// Places for bytes, and the sizes that were asked for.
    #[derive(Debug)]
    struct Budget(Arc<tokio::sync::Semaphore>, parking_lot::Mutex<Vec<usize>>);

    impl AnswerBudget for Budget {
        fn place(&self, bytes: usize) -> crate::AnswerPlaceFuture {
            self.1.lock().push(bytes);
            let places = Arc::clone(&self.0);
            Box::pin(async move {
                let count = u32::try_from(bytes).expect("small");
                Box::new(places.acquire_many_owned(count).await.expect("open")) as AnswerPlace
            })
        }
    }

    #[tokio::test]
    async fn a_large_frame_waits_for_a_place_and_holds_it_with_each_of_its_parts() {
        const LARGE: usize = 3_000_000;
        let (mut writer, stream) = tokio::io::duplex(100_000);
        let sent = tokio::spawn(async move {
            for size in [10, LARGE, LARGE, 20] {
                writer.write_all(&u32::try_from(size).expect("small").to_be_bytes()).await.expect("written");
                writer.write_all(&vec![7; size]).await.expect("written");
            }
        });
        let budget = Arc::new(Budget(Arc::new(tokio::sync::Semaphore::new(LARGE)), Default::default()));
        let mut frames = FrameReader::new(stream, 4 << 20).within(Some(Arc::clone(&budget) as _));
        assert_eq!(frames.next().await.expect("a frame").len(), 10);
        let first = frames.next().await.expect("a frame");
        let part = first.slice(5..9);
        drop(first);
        let late = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(late, frames.next()).await.is_err(), "a part holds the place");
        assert!(frames.buffer.capacity() < 1 << 20, "{}", frames.buffer.capacity());
        drop(part);
        let second = frames.next().await.expect("a frame");
        assert!(second.len() == LARGE && second.iter().all(|byte| *byte == 7));
        assert_eq!(frames.next().await.expect("a frame").len(), 20);
        drop(second);
        assert_eq!(budget.0.available_permits(), LARGE);
        assert!(budget.1.lock().iter().all(|bytes| *bytes == LARGE));
        sent.await.expect("all written");
    }
}
