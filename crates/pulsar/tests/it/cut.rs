//! Connections that a test cuts.

use std::sync::{Arc, Mutex, PoisonError};

use thalweg_pulsar::{ByteStream, Connector};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// Connects by TCP, through tasks that copy bytes until they are cut.
#[derive(Clone, Default)]
pub struct Scissors(Arc<Mutex<Vec<AbortHandle>>>);

impl Scissors {
    pub fn connector(&self) -> Connector {
        let scissors = self.clone();
        Connector::new(move |address| {
            let scissors = scissors.clone();
            async move {
                let mut stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let (ours, mut theirs) = tokio::io::duplex(64 << 10);
                let copying = tokio::spawn(async move {
                    // An error ends the connection, as a cut does.
                    let _ = tokio::io::copy_bidirectional(&mut theirs, &mut stream).await;
                });
                scissors.0.lock().unwrap_or_else(PoisonError::into_inner).push(copying.abort_handle());
                Ok(Box::new(ours) as Box<dyn ByteStream>)
            }
        })
    }

    /// Cuts all connections at once, wherever their bytes are.
    pub fn cut(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|copying| copying.abort());
    }
}
