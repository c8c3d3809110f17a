//! The time that a connection may be silent. While the server works on a request that has arrived as a whole,
//! the client has nothing to send, and its silence does not count.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use thalweg_client::ByteStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A connection is closed after this time without traffic, or with an incomplete request head.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(60);

/// True while the server works on the connection's request, whose body has arrived.
#[derive(Clone, Default)]
pub(super) struct IsAtWork(Arc<AtomicBool>);

/// Marks the time in which the server works on a request.
pub(super) async fn watch(State(at_work): State<IsAtWork>, request: Request, next: Next) -> Response {
    struct Ended(IsAtWork);
    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.set(false);
        }
    }
    let _ended = Ended(at_work.clone());
    at_work.set(request.body().is_end_stream());
    next.run(request.map(|body| Body::new(Arriving { body, at_work }))).await
}

impl IsAtWork {
    fn set(&self, is_at_work: bool) {
        self.0.store(is_at_work, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request. The server works from its end on.
struct Arriving {
    body: Body,
    at_work: IsAtWork,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.at_work.set(true);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A byte stream that fails with `TimedOut` after `SILENT_MAX` without traffic, unless the server works.
pub(super) struct Connection {
    stream: Box<dyn ByteStream>,
    at_work: IsAtWork,
    silence: Pin<Box<Sleep>>,
}

impl Connection {
    pub fn new(stream: Box<dyn ByteStream>, at_work: IsAtWork) -> Connection {
        Connection { stream, at_work, silence: Box::pin(tokio::time::sleep(SILENT_MAX)) }
    }

    fn restart_silence(&mut self) {
        self.silence.as_mut().reset(Instant::now() + SILENT_MAX);
    }

    /// Ready when the connection has been silent for too long.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        while self.silence.as_mut().poll(context).is_ready() {
            if !self.at_work.get() {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.restart_silence();
        }
        Poll::Pending
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, into) {
            self.restart_silence();
            return Poll::Ready(read);
        }
        self.poll_silence(context).map(Err)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, bytes) {
            self.restart_silence();
            return Poll::Ready(written);
        }
        self.poll_silence(context).map(Err)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(context) {
            return Poll::Ready(flushed);
        }
        // TLS buffers bytes that the socket does not take, so a stalled peer shows only here.
        self.poll_silence(context).map(Err)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(ended) = Pin::new(&mut self.stream).poll_shutdown(context) {
            return Poll::Ready(ended);
        }
        self.poll_silence(context).map(Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::{get, post};
    use hyper::server::conn::http1;
    use hyper_util::rt::TokioIo;
    use hyper_util::service::TowerToHyperService;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// A client of a server that answers GET after five minutes, and POST after the body.
    fn connected() -> DuplexStream {
        let slow = get(async || tokio::time::sleep(Duration::from_secs(300)).await);
        let sized = post(async |body: String| body.len().to_string());
        let at_work = IsAtWork::default();
        let layer = axum::middleware::from_fn_with_state(at_work.clone(), watch);
        let routes = Router::new().route("/slow", slow).route("/size", sized).layer(layer);
        let (client, server) = tokio::io::duplex(64 * 1024);
        let connection = Connection::new(Box::new(server), at_work);
        let service = TowerToHyperService::new(routes);
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
        client
    }

    async fn answer(client: &mut DuplexStream) -> (String, Duration) {
        let began = Instant::now();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("text");
        (answer, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn silence_does_not_count_while_the_server_works() {
        let mut client = connected();
        client.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it reads");
        let (answer, time) = answer(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // The answer, and the silence after it.
        assert_eq!(time.as_secs(), 360);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_silence() {
        let mut client = connected();
        let head = b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab";
        client.write_all(head).await.expect("it reads");
        let (_, time) = answer(&mut client).await;
        assert_eq!(time.as_secs(), 60);
    }
}
