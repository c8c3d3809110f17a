//! The network seam: the broker's listening sockets and outgoing connections.

use super::listener::{self, BindError, BoundListener, SimulatedListener, SocketOptions};
use std::fmt;
use std::io;
use std::sync::Arc;
use thalweg_dial::Connector;

/// A simulated network from the view of one machine.
pub trait SimulatedNetwork: Send + Sync {
    /// Listens on a port of the machine; 0 selects a free one.
    fn listen(&self, host: &str, port: u16) -> io::Result<Box<dyn SimulatedListener>>;
}

/// The network of a machine. Cheap to clone.
#[derive(Clone, Default)]
pub struct Network {
    simulated: Option<Arc<dyn SimulatedNetwork>>,
    connector: Connector,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.simulated.is_some() { "a simulated network" } else { "the machine's network" })
    }
}

impl Network {
    /// TCP by the kernel.
    pub fn tcp() -> Network {
        Network::default()
    }

    /// A simulated network: listeners by `simulated`, outgoing connections by `connector`.
    pub fn simulated(simulated: Arc<dyn SimulatedNetwork>, connector: Connector) -> Network {
        Network { simulated: Some(simulated), connector }
    }

    /// Opens outgoing connections.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Opens a listener. Must run inside a runtime.
    pub fn bind(
        &self,
        name: &str,
        host: &str,
        port: u16,
        options: SocketOptions,
    ) -> Result<BoundListener, BindError> {
        let Some(simulated) = &self.simulated else { return listener::bind(name, host, port, options) };
        match simulated.listen(host, port) {
            Ok(listener) => Ok(BoundListener::simulated(name, listener)),
            Err(source) => Err(BindError { name: name.to_owned(), host: host.to_owned(), port, source }),
        }
    }
}
