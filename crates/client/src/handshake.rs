//! The beginning of a connection: the broker's versions, then who this client is, where the listener asks for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_wire::{ApiKey, frame};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::connection::ConnectionOptions;
use crate::error::{ClientError, CloseReason, HandshakeFailed, HandshakeFault, UnencodableRequest};
use crate::frames::FrameReader;
use crate::security::sasl::{self, AuthenticationFailed, AuthenticationFault, Exchange};
use crate::security::tls::TlsFailed;
use crate::versions::{self, Answer, ApiVersions};

/// What is known of a connection once it can be used.
pub(crate) struct Negotiated {
    pub(crate) versions: ApiVersions,
    /// When this client has to prove again who it is.
    pub(crate) renew_at: Option<Instant>,
}

/// A stream that nobody else writes to or reads from.
pub(crate) struct Alone<'a, R, W> {
    pub(crate) frames: &'a mut FrameReader<R>,
    pub(crate) writer: &'a mut W,
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send> Exchange for Alone<'_, R, W> {
    async fn ask(&mut self, frame: Bytes) -> Result<Bytes, CloseReason> {
        self.writer.write_all(&frame).await?;
        self.writer.flush().await?;
        self.frames.next().await
    }
}

/// Asks for the broker's versions on a fresh stream, and authenticates where the options say so.
pub(crate) async fn negotiate<R, W>(
    frames: &mut FrameReader<R>,
    writer: &mut W,
    peer: &Arc<str>,
    options: &ConnectionOptions,
) -> Result<Negotiated, ClientError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    // A part of making the connection: what is no broker may never answer.
    let timeout = options.connect_timeout.min(options.request_timeout);
    let mut alone = Alone { frames, writer };
    let versions = match tokio::time::timeout(timeout, ask_versions(&mut alone, peer, options)).await {
        Ok(versions) => versions?,
        Err(_) => {
            let fault = HandshakeFault::NoAnswer(timeout);
            return Err(HandshakeFailed { peer: Arc::clone(peer), fault }.into());
        }
    };
    let renew_at = authenticate(&mut alone, &versions, peer, options).await?;
    Ok(Negotiated { versions, renew_at })
}

/// Proves who this client is, for the first time or again. Gives the time at which that is to be done again.
pub(crate) async fn authenticate(
    exchange: &mut impl Exchange,
    versions: &ApiVersions,
    peer: &Arc<str>,
    options: &ConnectionOptions,
) -> Result<Option<Instant>, ClientError> {
    let Some(credentials) = options.security.credentials() else { return Ok(None) };
    let timeout = options.request_timeout;
    let begun = Instant::now();
    let exchanged = sasl::authenticate(credentials, exchange, versions, peer, &options.client_id);
    match tokio::time::timeout(timeout, exchanged).await {
        Ok(after) => Ok(after?.map(|after: Duration| begun + after)),
        Err(_) => Err(AuthenticationFailed {
            peer: Arc::clone(peer),
            mechanism: credentials.mechanism(),
            fault: AuthenticationFault::NoAnswer(timeout),
        }
        .into()),
    }
}

async fn ask_versions<E: Exchange>(
    exchange: &mut E,
    peer: &Arc<str>,
    options: &ConnectionOptions,
) -> Result<ApiVersions, ClientError> {
    let mut version = versions::FIRST_VERSION;
    loop {
        let request = versions::request(version);
        let frame =
            frame::encode_request(&request, version, 0, Some(&options.client_id)).map_err(|source| {
                UnencodableRequest { peer: Arc::clone(peer), api: ApiKey::ApiVersions, version, source }
            })?;
        let answer = exchange.ask(frame).await.map_err(|reason| match reason {
            // A broker that wants a certificate says so only after the handshake of TLS 1.3.
            CloseReason::Tls(fault) => ClientError::from(TlsFailed { peer: Arc::clone(peer), fault }),
            reason => HandshakeFailed { peer: Arc::clone(peer), fault: reason.into() }.into(),
        })?;
        match versions::read_answer(answer, version, peer)? {
            Answer::Versions(versions) => return Ok(versions),
            Answer::AskAgain(older) => version = older,
        }
    }
}
