//! Byte streams to brokers: the client's only access to the network.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::address::check_address;
use crate::byte_stream::ByteStream;
use crate::error::{ClientError, ConnectFailed, ConnectTimedOut, TlsFailed};
use crate::options::ConnectionOptions;

type StreamFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>>;

/// Opens streams to addresses: [`Connector::tcp`], or a replacement in tests and simulations.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(String) -> StreamFuture + Send + Sync>);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Default for Connector {
    fn default() -> Connector {
        Connector::tcp()
    }
}

impl Connector {
    /// Connects by TCP without Nagle's delay, to the first address of the host that answers.
    pub fn tcp() -> Connector {
        Connector::new(async |address: String| {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }

    /// Connects by `connect`, which gets `host:port`.
    pub fn new<F, Fut>(connect: F) -> Connector
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'static,
    {
        Connector(Arc::new(move |address| Box::pin(connect(address))))
    }

    /// Opens a stream to `address` within the options' time limit, with TLS if configured. Without TLS the
    /// stream is returned unchanged.
    pub async fn connect(
        &self,
        address: &str,
        options: &ConnectionOptions,
    ) -> Result<Box<dyn ByteStream>, ClientError> {
        check_address(address)?;
        let peer: Arc<str> = address.into();
        let timeout = options.connect_timeout;
        let connected = async {
            let stream = match (self.0)(address.to_owned()).await {
                Ok(stream) => stream,
                Err(error) => {
                    let source = Arc::new(error);
                    return Err(ConnectFailed { peer: Arc::clone(&peer), source }.into());
                }
            };
            match options.security.tls() {
                None => Ok(stream),
                Some(tls) => {
                    let peer = Arc::clone(&peer);
                    tls.wrap(stream, address).await.map_err(|fault| TlsFailed { peer, fault }.into())
                }
            }
        };
        match tokio::time::timeout(timeout, connected).await {
            Ok(connected) => connected,
            Err(_) => Err(ConnectTimedOut { peer: Arc::clone(&peer), timeout }.into()),
        }
    }
}

/// Writes all `slices`, several at a time if the stream supports it.
pub async fn write_all_vectored<W: AsyncWrite + Unpin + ?Sized>(
    writer: &mut W,
    mut slices: &mut [IoSlice<'_>],
) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let written = writer.write_vectored(slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}
