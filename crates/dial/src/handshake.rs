//! The start of a connection: the exchange of versions, then authentication if the listener requires it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_wire::{ApiKey, frame};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::error::{
    AuthenticationFailed, AuthenticationFault, ClientError, CloseReason, HandshakeFailed, HandshakeFault,
    TlsFailed, UnencodableRequest,
};
use crate::frames::FrameReader;
use crate::options::ConnectionOptions;
use crate::security::sasl::{self, Exchange};
use crate::versions::{self, Answer, ApiVersions};

/// The negotiated state of a connection.
#[derive(Debug)]
pub struct NegotiatedState {
    /// The versions that the broker serves.
    pub versions: ApiVersions,
    /// Time at which this client must re-authenticate.
    pub renew_at: Option<Instant>,
}

impl NegotiatedState {
    /// Re-authenticates on a stream without other readers and writers.
    pub async fn renew<R, W>(
        &mut self,
        frames: &mut FrameReader<R>,
        writer: &mut W,
        peer: &Arc<str>,
        options: &ConnectionOptions,
    ) -> Result<(), ClientError>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let mut alone = ExclusiveStream { frames, writer };
        self.renew_at = authenticate(&mut alone, &self.versions, peer, options).await?;
        Ok(())
    }
}

/// A stream without other readers and writers.
struct ExclusiveStream<'a, R, W> {
    frames: &'a mut FrameReader<R>,
    writer: &'a mut W,
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send> Exchange for ExclusiveStream<'_, R, W> {
    async fn ask(&mut self, frame: Bytes) -> Result<Bytes, CloseReason> {
        self.writer.write_all(&frame).await?;
        self.writer.flush().await?;
        self.frames.next().await
    }
}

/// Exchanges versions on a new stream, and authenticates if the options require it.
pub async fn negotiate<R, W>(
    frames: &mut FrameReader<R>,
    writer: &mut W,
    peer: &Arc<str>,
    options: &ConnectionOptions,
) -> Result<NegotiatedState, ClientError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    // Counted as part of connecting, because a peer that is not a broker may never answer.
    let timeout = options.connect_timeout.min(options.request_timeout);
    let mut alone = ExclusiveStream { frames, writer };
    let versions = match tokio::time::timeout(timeout, ask_versions(&mut alone, peer, options)).await {
        Ok(versions) => versions?,
        Err(_) => {
            let fault = HandshakeFault::NoAnswer(timeout);
            return Err(HandshakeFailed { peer: Arc::clone(peer), fault }.into());
        }
    };
    let renew_at = authenticate(&mut alone, &versions, peer, options).await?;
    Ok(NegotiatedState { versions, renew_at })
}

/// Authenticates, for the first time or again. Returns the time of the next re-authentication.
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
        let request = ApiVersions::request(version);
        let frame =
            frame::encode_request(&request, version, 0, Some(&options.client_id)).map_err(|source| {
                UnencodableRequest { peer: Arc::clone(peer), api: ApiKey::ApiVersions, version, source }
            })?;
        let answer = exchange.ask(frame).await.map_err(|reason| match reason {
            // With TLS 1.3, a broker that requires a certificate reports this only after the handshake.
            CloseReason::Tls(fault) => ClientError::from(TlsFailed { peer: Arc::clone(peer), fault }),
            reason => HandshakeFailed { peer: Arc::clone(peer), fault: reason.into() }.into(),
        })?;
        match versions::read_answer(answer, version, peer)? {
            Answer::Versions(versions) => return Ok(versions),
            Answer::AskAgain(older) => version = older,
        }
    }
}
