//! This broker's registration with the controller.

use super::ControllerLink;
use std::sync::atomic::{AtomicI64, Ordering};
use thalweg_metadata::BrokerId;

/// The registration under which this broker sends requests to the controller.
pub struct RegisteredBroker {
    pub node_id: BrokerId,
    /// Link to the controller.
    pub controller: ControllerLink,
    epoch: AtomicI64,
}

impl std::fmt::Debug for RegisteredBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "broker {} of epoch {}", self.node_id, self.epoch())
    }
}

impl RegisteredBroker {
    /// A broker that is not registered yet.
    pub fn new(node_id: BrokerId, controller: ControllerLink) -> RegisteredBroker {
        RegisteredBroker { node_id, controller, epoch: AtomicI64::new(-1) }
    }

    /// Broker epoch of the registration; -1 before the first.
    pub fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Sets the epoch of the registration.
    pub fn set_epoch(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }
}
