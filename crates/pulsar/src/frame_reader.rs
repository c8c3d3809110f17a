//! Splits a stream into frames.
//!
//! A frame is a slice of the buffer into which it was read. The buffer grows with the received bytes, not
//! with the announced length.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::CloseReason;
use crate::frame::{FrameFault, LENGTH_LEN};

/// Bytes to read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes by which the buffer of a large frame grows at once.
const GROW_BYTES: usize = 1 << 20;
/// Capacity of a new buffer: several reads, so that few frames are cut and move.
const BUFFER_BYTES: usize = 256 << 10;

/// Reads frames from a stream.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    /// Limit of the announced length.
    frame_bytes_max: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R, frame_bytes_max: usize) -> FrameReader<R> {
        FrameReader { stream, buffer: BytesMut::new(), frame_bytes_max }
    }

    pub(crate) fn set_frame_bytes_max(&mut self, limit: usize) {
        self.frame_bytes_max = limit;
    }

    /// The next frame, without its length. Dropping the future loses no bytes. The end of the stream, also
    /// within a frame, is [`CloseReason::ByPeer`].
    pub(crate) async fn next(&mut self) -> Result<Bytes, CloseReason> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(frame);
            }
            self.make_room();
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(CloseReason::ByPeer);
            }
        }
    }

    /// A frame that is already in the buffer.
    fn take(&mut self) -> Result<Option<Bytes>, CloseReason> {
        let Some(length) = self.announced()? else { return Ok(None) };
        if self.buffer.len() - LENGTH_LEN < length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_LEN);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    fn announced(&self) -> Result<Option<usize>, CloseReason> {
        let Some(head) = self.buffer.first_chunk::<LENGTH_LEN>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head);
        match usize::try_from(length) {
            Ok(bytes) if bytes <= self.frame_bytes_max => Ok(Some(bytes)),
            _ => Err(FrameFault::Length { length, limit: self.frame_bytes_max }.into()),
        }
    }

    fn make_room(&mut self) {
        let have = self.buffer.len();
        let missing = match self.announced() {
            Ok(Some(length)) => (LENGTH_LEN + length).saturating_sub(have),
            _ => 0,
        };
        let spare = self.buffer.capacity() - have;
        if spare >= READ_BYTES || (missing > 0 && spare >= missing) {
            return;
        }
        if missing > READ_BYTES {
            self.buffer.reserve(missing.min(GROW_BYTES.max(have)));
        } else {
            // Bytes of a cut frame move to the new buffer, so the buffer has room for many frames.
            self.buffer.reserve(BUFFER_BYTES - have.min(BUFFER_BYTES - READ_BYTES));
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
    async fn giant_frames_are_refused_and_cost_no_memory() {
        let (mut writer, stream) = tokio::io::duplex(64);
        writer.write_all(&1001u32.to_be_bytes()).await.expect("written");
        let error = FrameReader::new(stream, 1000).next().await.expect_err("a refusal");
        assert!(
            matches!(error, CloseReason::Frame(FrameFault::Length { length: 1001, limit: 1000 })),
            "{error}"
        );
        let (mut writer, stream) = tokio::io::duplex(64);
        writer.write_all(&u32::MAX.to_be_bytes()).await.expect("written");
        drop(writer);
        let mut frames = FrameReader::new(stream, usize::MAX);
        assert!(matches!(frames.next().await, Err(CloseReason::ByPeer)));
        assert!(frames.buffer.capacity() <= 2 * GROW_BYTES);
    }

    #[tokio::test]
    async fn half_a_frame_is_the_end_of_the_stream() {
        let (mut writer, stream) = tokio::io::duplex(64);
        writer.write_all(&[0, 0, 0, 9, 1, 2, 3]).await.expect("written");
        drop(writer);
        assert!(matches!(FrameReader::new(stream, 1000).next().await, Err(CloseReason::ByPeer)));
    }
}
