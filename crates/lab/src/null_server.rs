//! The null server: speaks enough of Kafka's protocol that producers and consumers work, and does nothing with the records
//! but count them. What it costs and how long it takes is known beforehand, so it is what the lab itself is measured by.
//!
//! - [`Settings`] script it: the time that a request takes, the rate it carries, stalls, and records that it loses though it
//!   acknowledged them.
//! - A connection has two threads: one reads, decides and notes when the answer is due, one waits for that moment and
//!   writes. Nothing of a batch is looked at but its header.
//! - It is one broker with one replica of everything, on the loopback interface. A group has one member; a second is refused.
//!
//! It is no mock of a broker: what it does not serve, it does not announce.

mod api;
mod connection;
mod group;
mod timing;
mod topics;

pub use timing::{ServiceTime, Stall, Stalls};
pub use topics::{Counts, Loss};

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use timing::Timing;
use topics::Topics;

/// The connections that may be open at once: each has two threads.
const CONNECTIONS_MAX: usize = 1024;

/// What a null server does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The time that each Produce request takes, beside all others.
    pub service_time: ServiceTime,
    /// Records per second that all Produce requests together are served at, one after the other: beyond it the queue grows
    /// without bound. None for no limit.
    pub records_per_s_max: Option<f64>,
    /// When nothing is answered.
    pub stalls: Stalls,
    /// Acknowledged records that are lost.
    pub loss: Option<Loss>,
    /// Bytes of batches that are kept in memory for consumers; once they are full, Produce is refused. 0 keeps none:
    /// records are counted, and a fetch finds nothing.
    pub keep_bytes_max: u64,
    /// Partitions of a topic that is made because a client named it.
    pub partitions: i32,
    /// The seed of service times.
    pub seed: u64,
}

impl Default for Settings {
    /// At once, without limit, stall or loss, with nothing kept.
    fn default() -> Settings {
        Settings {
            service_time: ServiceTime::Fixed { us: 0.0 },
            records_per_s_max: None,
            stalls: Stalls::None,
            loss: None,
            keep_bytes_max: 0,
            partitions: 1,
            seed: 1,
        }
    }
}

/// A null server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum NullServerError {
    /// No port of the loopback interface could be listened on.
    #[error("The null server cannot listen on 127.0.0.1: {0}")]
    Listen(#[source] io::Error),
    /// A setting that means nothing.
    #[error("The null server's {setting} is {value}; right would be {expected}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// A null server that runs, until it is dropped.
#[derive(Debug)]
pub struct NullServer {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    timing: Timing,
    topics: Topics,
    groups: group::Groups,
    stopping: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl NullServer {
    /// Starts a server on a free port.
    pub fn start(settings: &Settings) -> Result<NullServer, NullServerError> {
        settings.check()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(NullServerError::Listen)?;
        let shared = Arc::new(Shared {
            address: listener.local_addr().map_err(NullServerError::Listen)?,
            timing: Timing::new(settings),
            topics: Topics::new(settings),
            groups: group::Groups::default(),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let accepted = Arc::clone(&shared);
        let accepting = std::thread::Builder::new()
            .name("null-server".to_owned())
            .spawn(move || accept(&listener, &accepted))
            .map_err(NullServerError::Listen)?;
        Ok(NullServer { shared, accepting: Some(accepting) })
    }

    /// Where it listens, `host:port`.
    pub fn address(&self) -> String {
        self.shared.address.to_string()
    }

    /// What it was sent until now.
    pub fn counts(&self) -> Counts {
        self.shared.topics.counts()
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Accepting ends at the next connection: this one.
        drop(TcpStream::connect(self.shared.address));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in lock(&self.shared.connections).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Settings {
    fn check(&self) -> Result<(), NullServerError> {
        let wrong =
            |setting, value: String, expected| Err(NullServerError::Setting { setting, value, expected });
        if let Some(rate) = self.records_per_s_max
            && !(rate.is_finite() && rate > 0.0)
        {
            return wrong("records_per_s_max", rate.to_string(), "a number above 0");
        }
        if !(1..=topics::PARTITIONS_MAX).contains(&self.partitions) {
            return wrong("partitions", self.partitions.to_string(), "1 to 10000");
        }
        if self.loss.is_some_and(|loss| loss.every_nth_batch == 0) {
            return wrong("loss.every_nth_batch", "0".to_owned(), "1 or more");
        }
        if !self.service_time.is_valid() {
            let expected = "times of 0 or more, at shares that rise from 0 to 1";
            return wrong("service_time", format!("{:?}", self.service_time), expected);
        }
        if !self.stalls.is_valid() {
            return wrong("stalls", format!("{:?}", self.stalls), "stalls shorter than their period");
        }
        Ok(())
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        // A connection that broke before it was taken, and no descriptors for a moment, are the client's to see.
        let Ok(stream) = stream else { continue };
        let Ok(kept) = stream.try_clone() else { continue };
        let mut connections = lock(&shared.connections);
        connections.retain(|stream| stream.peer_addr().is_ok());
        if connections.len() >= CONNECTIONS_MAX {
            continue;
        }
        connections.push(kept);
        drop(connections);
        connection::serve(stream, shared);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is counted stays true, whoever panicked beside it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
