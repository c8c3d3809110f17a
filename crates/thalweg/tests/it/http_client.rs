//! A client of HTTP over TLS or without, a request at a time on one connection.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thalweg_client::{ByteStream, Properties, Security, TlsFault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::node::Answer;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct HttpClient {
    stream: Box<dyn ByteStream>,
    received: Vec<u8>,
}

/// The header of a login.
pub fn login(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

impl HttpClient {
    /// Connects by these client settings: `ssl.` ones mean TLS.
    pub async fn connect(address: &str, settings: &[(&str, &str)]) -> Result<HttpClient, TlsFault> {
        let stream = TcpStream::connect(address).await.expect("it listens");
        HttpClient::over(stream, address, settings).await
    }

    /// The same from another address of this machine.
    pub async fn connect_from(from: &str, address: &str, settings: &[(&str, &str)]) -> HttpClient {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind(format!("{from}:0").parse::<SocketAddr>().expect("an address"))
            .expect("it is this machine's");
        let stream = socket.connect(address.parse().expect("an address")).await.expect("it listens");
        HttpClient::over(stream, address, settings).await.expect("a handshake")
    }

    async fn over(
        stream: TcpStream,
        address: &str,
        settings: &[(&str, &str)],
    ) -> Result<HttpClient, TlsFault> {
        let mut properties = Properties::new();
        for (key, value) in settings {
            properties.set(key, value);
        }
        properties.set("security.protocol", if settings.is_empty() { "PLAINTEXT" } else { "SSL" });
        let security = Security::take(&mut properties).expect("valid settings");
        let stream = security.wrap(Box::new(stream), address).await?;
        Ok(HttpClient { stream, received: Vec::new() })
    }

    /// The answer to a request, or none if the connection has ended. `headers` are whole lines.
    pub async fn ask(&mut self, method: &str, path: &str, headers: &str) -> Option<Answer> {
        let host = if headers.contains("Host: ") { "" } else { "Host: x\r\n" };
        let request = format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: 0\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.ok()?;
        self.stream.flush().await.ok()?;
        tokio::time::timeout(PATIENCE, self.answer(method == "HEAD")).await.expect("an answer in time")
    }

    async fn answer(&mut self, has_no_body: bool) -> Option<Answer> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let end = loop {
            match self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(at) => break at,
                None => self.receive().await?,
            }
        };
        let head = text(&self.received[..end]).to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let whole = end + 4 + length.filter(|_| !has_no_body).unwrap_or(0);
        while self.received.len() < whole {
            self.receive().await?;
        }
        let body = text(&self.received[end + 4..whole]);
        self.received.drain(..whole);
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        Some(Answer { status, head, body })
    }

    async fn receive(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.received).await {
            Ok(read) if read > 0 => Some(()),
            _ => None,
        }
    }

    /// Sends bytes, whole requests or not.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("it is open");
        self.stream.flush().await.expect("it is open");
    }

    /// Waits until the peer ends the connection.
    pub async fn end(&mut self) {
        let ended = async { while self.receive().await.is_some() {} };
        tokio::time::timeout(PATIENCE, ended).await.expect("an end in time");
    }
}
