//! A peer that sends arbitrary bytes as frames, and returns the received bytes.

use crate::running::RunningBroker;
use bytes::{Bytes, BytesMut};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use thalweg_wire::frame::{decode_response, encode_request};
use thalweg_wire::{Message, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The longest that any answer may take here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that knows nothing of its content.
pub struct Raw {
    pub stream: TcpStream,
    next_correlation_id: i32,
}

impl Raw {
    pub async fn connect(broker: &RunningBroker) -> Raw {
        Raw::connect_to(broker.server().addresses[0].1[0]).await
    }

    pub async fn connect_to(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).await.expect("the broker listens");
        stream.set_nodelay(true).expect("a TCP connection");
        Raw { stream, next_correlation_id: 1 }
    }

    /// From this address of the machine.
    pub async fn connect_from(source: IpAddr, address: SocketAddr) -> Raw {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((source, 0).into()).expect("an address of this machine");
        let stream = socket.connect(address).await.expect("the broker listens");
        Raw { stream, next_correlation_id: 1 }
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the broker reads");
    }

    /// Sends a request, and gives its correlation id.
    pub async fn send<R: Request>(&mut self, request: &R, version: i16) -> i32 {
        let id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let encoded = encode_request(request, version, id, Some("raw"));
        let frame = encoded.unwrap_or_else(|error| panic!("{} version {version}: {error}", R::NAME));
        self.send_bytes(&frame).await;
        id
    }

    /// The next frame, without its length; `None` when the broker has closed the connection.
    pub async fn frame(&mut self) -> Option<Bytes> {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("an answer in time")
    }

    async fn read(&mut self) -> Option<Bytes> {
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = BytesMut::zeroed(usize::try_from(length).expect("a length"));
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.freeze())
    }

    /// The answer to the request with this id, which must be next.
    pub async fn answer<R: Request>(&mut self, id: i32, version: i16) -> Option<R::Response> {
        let frame = self.frame().await?;
        let decoded = decode_response::<R>(frame.clone(), version);
        let (answered, response) =
            decoded.unwrap_or_else(|error| panic!("{} version {version}: {error}", R::NAME));
        assert_eq!(answered, id, "answers come in the order of the requests");
        // Nothing is left over: the response was read completely.
        let header = if R::Response::is_flexible(version) && R::KEY != thalweg_wire::ApiKey::ApiVersions {
            5
        } else {
            4
        };
        let again = response.to_bytes(version).expect("what was read can be written");
        assert_eq!(again, frame.slice(header..), "{} version {version}", R::Response::NAME);
        Some(response)
    }

    /// Asks, and waits for the answer; `None` when the broker closes the connection instead.
    pub async fn ask<R: Request>(&mut self, request: &R, version: i16) -> Option<R::Response> {
        let id = self.send(request, version).await;
        self.answer::<R>(id, version).await
    }

    /// Whether the broker closes the connection within `patience`, without saying anything.
    pub async fn is_closed_within(&mut self, patience: Duration) -> bool {
        let mut byte = [0];
        match tokio::time::timeout(patience, self.stream.read(&mut byte)).await {
            Ok(Ok(0)) | Ok(Err(_)) => true,
            Ok(Ok(_)) => panic!("something came"),
            Err(_) => false,
        }
    }
}
