//! The null server: speaks enough of Kafka's protocol for producers and consumers, but only counts records.
//! The server's cost and service times are known, so it is the reference for the lab itself.
//!
//! - [`Settings`] script the server: service time per request, maximum rate, stalls, and lost records despite
//!   acknowledgement.
//! - A connection has two threads: one reads, decides and determines when the answer is due; the other waits
//!   for that time and writes. Only batch headers are read.
//! - The server is one broker with a single replica of each partition, on the loopback interface, or where
//!   agents on other machines reach it. A group has one member; a second member is refused.
//!
//! Unsupported APIs are not announced.

mod api;
mod connection;
mod group;
mod request;
mod timing;
mod topics;

#[cfg(test)]
pub use timing::DRAWS_PER_ROUND;
pub use timing::{ServiceTime, Stall, Stalls};
pub use topics::{Counts, Loss};

use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use timing::Timing;
use topics::Topics;

/// Maximum open connections: each has two threads.
const CONNECTIONS_MAX: usize = 1024;

/// The behaviour of a null server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The service time of each Produce request, independent of others.
    pub service_time: ServiceTime,
    /// Records per second of all Produce requests together, served one after the other; beyond this rate the
    /// queue grows without bound. `None` is unlimited.
    pub records_per_s_max: Option<f64>,
    /// Times without answers.
    pub stalls: Stalls,
    /// Acknowledged records that are lost.
    pub loss: Option<Loss>,
    /// Bytes of batches kept in memory for consumers; when full, Produce is refused. With 0, records are only
    /// counted, and a fetch finds nothing.
    pub keep_bytes_max: u64,
    /// Partitions of auto-created topics.
    pub partitions: i32,
    /// The seed of service times.
    pub seed: u64,
}

impl Default for Settings {
    /// Immediate answers, without limit, stalls or losses, and nothing stored.
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

/// Why a null server failed to start.
#[derive(Debug, thiserror::Error)]
pub enum NullServerError {
    /// No port is available.
    #[error("The null server cannot listen on {address}: {source}")]
    Listen { address: IpAddr, source: io::Error },
    /// An invalid setting.
    #[error("The null server's {setting} is {value}; use {expected}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// The setting's value.
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
}

/// A null server, which runs until it is dropped.
#[derive(Debug)]
pub struct NullServer {
    shared: Arc<ServerState>,
    accepting: Option<JoinHandle<()>>,
}

/// State shared by all connections.
#[derive(Debug)]
struct ServerState {
    address: SocketAddr,
    timing: Timing,
    topics: Topics,
    groups: group::Groups,
    stopping: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl NullServer {
    /// Starts a server on a free port of the loopback interface.
    pub fn start(settings: &Settings) -> Result<NullServer, NullServerError> {
        NullServer::start_on(Ipv4Addr::LOCALHOST.into(), settings)
    }

    /// Starts a server on a free port of an address of this machine.
    pub fn start_on(address: IpAddr, settings: &Settings) -> Result<NullServer, NullServerError> {
        settings.check()?;
        let refused = |source| NullServerError::Listen { address, source };
        let listener = TcpListener::bind((address, 0)).map_err(refused)?;
        let shared = Arc::new(ServerState {
            address: listener.local_addr().map_err(refused)?,
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
            .map_err(refused)?;
        Ok(NullServer { shared, accepting: Some(accepting) })
    }

    /// The server's address, `host:port`.
    pub fn address(&self) -> String {
        self.shared.address.to_string()
    }

    /// Counts of everything received so far.
    pub fn counts(&self) -> Counts {
        self.shared.topics.counts()
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Accepting ends at the next connection, made here.
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

fn accept(listener: &TcpListener, shared: &Arc<ServerState>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        // Aborted connections and a temporary lack of descriptors are visible to the client.
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
    // Counts stay correct even if another thread panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
