//! The time that a connection may be silent. While the server works on a request that has arrived as a whole,
//! or on the rest of its answer, the client has nothing to send, and its silence does not count. A client
//! that does not take its answer is silent in any case.

use super::answer_body::GuardedBody;
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

/// True from the end of a request's body to the end of its answer.
#[derive(Clone, Default)]
pub(super) struct IsAtWork(Arc<AtomicBool>);

/// Marks the time in which the server works on a request.
pub(super) async fn watch(State(at_work): State<IsAtWork>, request: Request, next: Next) -> Response {
    let end = WorkEnd(at_work.clone());
    at_work.set(request.body().is_end_stream());
    let response = next.run(request.map(|body| Body::new(Arriving { body, at_work }))).await;
    response.map(|body| GuardedBody::around(body, end))
}

/// Ends the work on a request when dropped.
struct WorkEnd(IsAtWork);

impl Drop for WorkEnd {
    fn drop(&mut self) {
        self.0.set(false);
    }
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

/// A byte stream that fails with `TimedOut` after `SILENT_MAX` in which the client sent nothing, unless the
/// server works, or in which the client took nothing.
pub(super) struct Connection {
    stream: Box<dyn ByteStream>,
    at_work: IsAtWork,
    silence: Pin<Box<Sleep>>,
    /// Runs while the client does not take what is written.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub fn new(stream: Box<dyn ByteStream>, at_work: IsAtWork) -> Connection {
        Connection { stream, at_work, silence: Box::pin(tokio::time::sleep(SILENT_MAX)), stall: None }
    }

    fn restart_silence(&mut self) {
        self.silence.as_mut().reset(Instant::now() + SILENT_MAX);
    }

    /// The outcome of a write, unless the client has taken nothing for too long.
    fn or_stall<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall = None;
            self.restart_silence();
            return written;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(SILENT_MAX)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
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
        loop {
            ready!(self.silence.as_mut().poll(context));
            if !self.at_work.get() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.restart_silence();
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_stall(written, context)
    }

    // TLS buffers bytes that the socket does not take, so a stalled client shows only here.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() && self.stall.is_none() {
            return flushed;
        }
        self.or_stall(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.or_stall(ended, context)
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

    const LATE: Duration = Duration::from_secs(300);

    /// A body whose only frame is late.
    struct LateBody(Option<Pin<Box<Sleep>>>);

    impl HttpBody for LateBody {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            let Some(sleep) = &mut self.0 else { return Poll::Ready(None) };
            ready!(sleep.as_mut().poll(context));
            self.0 = None;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"late")))))
        }
    }

    /// A client of a server that begins or ends an answer after five minutes, and answers POST after the
    /// body.
    fn connected() -> DuplexStream {
        let slow = get(async || tokio::time::sleep(LATE).await);
        let streamed = get(async || Body::new(LateBody(Some(Box::pin(tokio::time::sleep(LATE))))));
        let large = get(async || vec![b'x'; 1 << 20]);
        let sized = post(async |body: String| body.len().to_string());
        let at_work = IsAtWork::default();
        let layer = axum::middleware::from_fn_with_state(at_work.clone(), watch);
        let routes = Router::new()
            .route("/slow", slow)
            .route("/streamed", streamed)
            .route("/large", large)
            .route("/size", sized)
            .layer(layer);
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
    async fn silence_does_not_count_before_the_end_of_an_answer() {
        let mut client = connected();
        client.write_all(b"GET /streamed HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it reads");
        let (answer, time) = answer(&mut client).await;
        assert!(answer.contains("late"), "{answer}");
        assert_eq!(time.as_secs(), 360);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_take_its_answer_is_silent() {
        let mut client = connected();
        client.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it reads");
        tokio::time::sleep(Duration::from_secs(100)).await;
        let (answer, _) = answer(&mut client).await;
        assert!(answer.len() < 1 << 20, "the connection is closed: {}", answer.len());
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
