//! The memory that large frames may take while they arrive, over all connections.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a connection may hold without asking.
const FREE: usize = 1024 * 1024;
const UNIT: usize = 64 * 1024;

/// A budget that large frames share (`queued.max.request.bytes`).
#[derive(Clone, Debug)]
pub struct FrameMemory {
    units: Arc<Semaphore>,
    total: u32,
}

impl FrameMemory {
    /// A budget of `bytes`; never less than one frame of `frame_max` needs, so that every frame can pass.
    pub fn new(bytes: usize, frame_max: usize) -> Self {
        let units = bytes.max(2 * frame_max + FREE).div_ceil(UNIT).min(Semaphore::MAX_PERMITS >> 4);
        let total = u32::try_from(units).unwrap_or(u32::MAX >> 1);
        Self { units: Arc::new(Semaphore::new(total as usize)), total }
    }

    pub(super) fn reserve_nothing(self) -> Reservation {
        Reservation { memory: self, permit: None }
    }
}

/// What one connection holds of the budget.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: FrameMemory,
    permit: Option<OwnedSemaphorePermit>,
}

impl Reservation {
    /// Waits until `bytes` are covered.
    ///
    /// A frame that grows gives back what it holds and asks for the whole, so that two half-arrived frames cannot
    /// wait for each other.
    pub(super) async fn grow_to(&mut self, bytes: usize) {
        if bytes <= FREE {
            return;
        }
        let wanted = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.memory.total);
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if held >= wanted as usize {
            return;
        }
        self.permit = None;
        let units = Arc::clone(&self.memory.units);
        self.permit = Some(units.acquire_many_owned(wanted).await.expect("the budget is never closed"));
    }

    pub(super) fn release(&mut self) {
        self.permit = None;
    }
}
