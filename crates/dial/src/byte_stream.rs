//! The byte stream of a connection.

use tokio::io::{AsyncRead, AsyncWrite};

/// A bidirectional stream of bytes.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + ?Sized> ByteStream for S {}
