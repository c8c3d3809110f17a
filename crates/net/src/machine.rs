//! The broker's machine: its clock, its disk, its network.

use crate::Network;
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
}

impl Machine {
    /// The machine that this process runs on.
    pub fn real() -> Machine {
        Machine { clock: Clock::system(), disk: Disk::real(), network: Network::tcp() }
    }
}
