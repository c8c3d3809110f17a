//! A part of the process's descriptors, for places that take one each.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

/// The places of all users of one kind in this process.
#[derive(Debug)]
pub struct DescriptorPart {
    taken: AtomicUsize,
    part: u64,
    max: u64,
}

/// A place, released on drop.
#[derive(Debug)]
pub struct DescriptorPlace(&'static DescriptorPart);

impl DescriptorPart {
    /// One in `part` of the descriptors that the process may have, and `max` places at most.
    pub const fn new(part: u64, max: u64) -> DescriptorPart {
        DescriptorPart { taken: AtomicUsize::new(0), part, max }
    }

    /// The number of places, by the limit of descriptors (RLIMIT_NOFILE) of this moment.
    pub fn places(&self) -> usize {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from((descriptors / self.part).min(self.max)).unwrap_or(usize::MAX)
    }

    /// A place, unless all are taken.
    pub fn take(&'static self) -> Option<DescriptorPlace> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        // Dropped again if there is none.
        let place = DescriptorPlace(self);
        (taken < self.places()).then_some(place)
    }
}

impl Drop for DescriptorPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_free_again_once_dropped() {
        static TWO: DescriptorPart = DescriptorPart::new(1, 2);
        assert_eq!(TWO.places(), 2);
        let (first, second) = (TWO.take(), TWO.take());
        assert!(first.is_some() && second.is_some() && TWO.take().is_none());
        drop(first);
        assert!(TWO.take().is_some() && second.is_some());
        static QUARTER: DescriptorPart = DescriptorPart::new(4, u64::MAX);
        assert!(QUARTER.places() < DescriptorPart::new(1, u64::MAX).places());
    }
}
