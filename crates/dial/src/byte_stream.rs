//! What carries the bytes of a connection.

use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + ?Sized> ByteStream for S {}
