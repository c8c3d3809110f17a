//! Byte streams to brokers: the client's only access to the network.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::Ipv6Addr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ConnectionOptions;
use crate::error::{
    BootstrapError, ClientError, ConnectFailed, ConnectTimedOut, InvalidAddress, NoBootstrapServer,
};
use crate::security::tls::TlsFailed;

/// A stream of bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + ?Sized> ByteStream for S {}

type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>>;

/// Makes streams to addresses: [`Connector::tcp`], or anything else in tests and simulations.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(String) -> Connecting + Send + Sync>);

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
    /// Connects by TCP, without Nagle's delay, to the first address of the host that answers.
    pub fn tcp() -> Connector {
        Connector::new(async |address: String| {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }

    /// Connects by `connect`, which is given `host:port`.
    pub fn new<F, Fut>(connect: F) -> Connector
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'static,
    {
        Connector(Arc::new(move |address| Box::pin(connect(address))))
    }

    /// A stream to `address`, within the options' time limit, with TLS if configured. Without TLS the stream is
    /// returned unchanged.
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

/// The brokers to connect to first, from a list with commas between.
pub fn bootstrap_servers(list: &str) -> Result<Vec<String>, BootstrapError> {
    let mut servers = Vec::new();
    for server in list.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        check_address(server)?;
        servers.push(server.to_owned());
    }
    if servers.is_empty() { Err(NoBootstrapServer.into()) } else { Ok(servers) }
}

/// Fails unless `address` is a host, a colon and a port. The host is a name, or an IP address; an IPv6 address may be
/// in brackets.
fn check_address(address: &str) -> Result<(), InvalidAddress> {
    let parts = address.rsplit_once(':').filter(|(host, port)| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match inner {
            Some(inner) => is_ipv6(inner),
            None => is_name(host) || is_ipv6(host),
        };
        is_host && port.parse::<u16>().is_ok()
    });
    parts.map(drop).ok_or_else(|| InvalidAddress { address: address.to_owned() })
}

fn is_name(host: &str) -> bool {
    !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

/// Whether it is an address of version 6, perhaps with the interface that it is behind.
fn is_ipv6(host: &str) -> bool {
    let (address, _) = host.split_once('%').unwrap_or((host, ""));
    address.parse::<Ipv6Addr>().is_ok()
}

/// Writes all of `slices`, several at a time where the stream can.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_is_refused() {
        let wrong = [
            "",
            "localhost",
            "localhost:",
            ":9092",
            "localhost:99999",
            "localhost:x",
            "localhost:9092:x",
            "localhost:9092:9092",
            "http://localhost:9092",
            "local host:9092",
            "[localhost]:9092",
            "[::1:9092",
        ];
        for address in wrong {
            assert!(check_address(address).is_err(), "{address}");
        }
        for address in
            ["localhost:9092", "[::1]:9092", "::1:9092", "[fe80::1%eth0]:9092", "10.0.0.1:1", "a_b-c.d:1"]
        {
            assert!(check_address(address).is_ok(), "{address}");
        }
    }

    #[test]
    fn a_list_of_brokers_has_one_at_least_and_none_that_is_wrong() {
        assert_eq!(bootstrap_servers(" a:1, b:2,").expect("two"), ["a:1", "b:2"]);
        assert!(matches!(bootstrap_servers(" ,"), Err(BootstrapError::NoBootstrapServer(_))));
        let wrong = bootstrap_servers("a:1,b").expect_err("no port");
        assert!(
            wrong.to_string().starts_with("\"b\" is not a broker address: expected HOST:PORT"),
            "{wrong}"
        );
    }
}
