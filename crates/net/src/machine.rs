//! The broker's machine: clock, disk, network, loggers.

use crate::Network;
use std::sync::Arc;
use thalweg_config::Loggers;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;

/// The seam for time, disk and network of a broker or controller.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The wall clock.
    pub clock: Clock,
    /// The disk with the data directories.
    pub disk: Disk,
    /// Listeners and outgoing connections of this node.
    pub network: Network,
    /// The loggers of this process; `None` if their levels cannot be changed.
    pub loggers: Option<Arc<Loggers>>,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn real() -> Machine {
        Machine { clock: Clock::system(), disk: Disk::real(), network: Network::tcp(), loggers: None }
    }
}
