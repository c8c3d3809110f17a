//! The first exchange on a connection: CONNECT and CONNECTED, which has the broker's limit of a message.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::ConnectionTarget;
use crate::error::{CloseReason, HandshakeFailed, HandshakeFault, PulsarError};
use crate::frame;
use crate::frame_reader::FrameReader;
use crate::protocol::{Command, Connect};
use crate::server_error::ServerError;

/// The version of the protocol whose commands this client knows (v21: Pulsar 2.11 and later).
const PROTOCOL_VERSION: i32 = 21;
/// The limit of a message if the broker names none; Pulsar's default `maxMessageSize`.
const MESSAGE_BYTES_MAX: usize = 5 << 20;
/// Room for commands and metadata in a frame, beside a message; Pulsar's `MESSAGE_SIZE_FRAME_PADDING`.
pub(super) const FRAME_PADDING_BYTES: usize = 10 << 10;
/// Limit of a frame before the broker has named its own.
pub(super) const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES;
/// The kind of a command that asks for authentication.
const AUTH_CHALLENGE: u32 = 36;

/// Exchanges CONNECT and CONNECTED. Returns the broker's limit of a message, in bytes.
pub(super) async fn connect<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    frames: &mut FrameReader<R>,
    writer: &mut W,
    target: &ConnectionTarget,
    timeout: Duration,
) -> Result<usize, PulsarError> {
    let exchanged = match tokio::time::timeout(timeout, exchange(frames, writer, target)).await {
        Ok(exchanged) => exchanged,
        Err(_) => Err(HandshakeFault::NoAnswer(timeout)),
    };
    exchanged.map_err(|fault| HandshakeFailed { peer: Arc::clone(target.address.shared()), fault }.into())
}

async fn exchange<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    frames: &mut FrameReader<R>,
    writer: &mut W,
    target: &ConnectionTarget,
) -> Result<usize, HandshakeFault> {
    let connect = Command::Connect(Connect {
        client_version: concat!("thalweg-", env!("CARGO_PKG_VERSION")).to_owned(),
        protocol_version: Some(PROTOCOL_VERSION),
        proxy_to_broker_url: target.behind.as_ref().map(ToString::to_string),
    });
    writer.write_all(&frame::encode(connect)).await.map_err(CloseReason::from)?;
    writer.flush().await.map_err(CloseReason::from)?;
    let (answer, _) = frame::decode(frames.next().await?).map_err(CloseReason::from)?;
    match answer.command {
        Some(Command::Connected(connected)) => {
            let named = connected.max_message_size.and_then(|size| usize::try_from(size).ok());
            Ok(named.filter(|size| *size > 0).unwrap_or(MESSAGE_BYTES_MAX))
        }
        Some(Command::Error(refusal)) => {
            Err(HandshakeFault::Refused(ServerError::of(refusal.error), refusal.message.into()))
        }
        _ if answer.kind == AUTH_CHALLENGE => Err(HandshakeFault::Authentication),
        _ => Err(HandshakeFault::Unexpected(answer.kind)),
    }
}
