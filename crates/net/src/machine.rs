//! The broker's machine: its clock, its disk, its network, its log.

use crate::Network;
use std::sync::Arc;
use thalweg_config::Loggers;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;

/// Where time, disk and network enter a broker or a controller.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The wall clock.
    pub clock: Clock,
    /// Where the data directories are.
    pub disk: Disk,
    /// How others are reached, and reach this node.
    pub network: Network,
    /// The loggers of this process; none where their levels cannot be changed.
    pub loggers: Option<Arc<Loggers>>,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn real() -> Machine {
        Machine { clock: Clock::system(), disk: Disk::real(), network: Network::tcp(), loggers: None }
    }
}
