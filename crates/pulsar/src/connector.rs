//! Byte streams to brokers: the client's only access to the network.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A stream of bytes to a broker.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

type StreamFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>>;

/// Opens streams to addresses: [`Connector::tcp`], or a replacement in tests.
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

    pub(crate) async fn open(&self, address: &str) -> io::Result<Box<dyn ByteStream>> {
        (self.0)(address.to_owned()).await
    }
}
