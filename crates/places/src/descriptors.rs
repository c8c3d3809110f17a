//! A part of the process's descriptors, with a permit for each.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

/// The permits of all users of one kind in this process.
#[derive(Debug)]
pub struct DescriptorPart {
    taken: AtomicUsize,
    part: u64,
    max: u64,
}

/// A permit for one descriptor, released on drop.
#[derive(Debug)]
pub struct DescriptorPermit(&'static DescriptorPart);

impl DescriptorPart {
    /// One in `part` of the descriptors that the process may have, and `max` at most.
    pub const fn new(part: u64, max: u64) -> DescriptorPart {
        DescriptorPart { taken: AtomicUsize::new(0), part, max }
    }

    /// The number of permits, by the limit of descriptors (RLIMIT_NOFILE) of this moment.
    pub fn permits(&self) -> usize {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from((descriptors / self.part).min(self.max)).unwrap_or(usize::MAX)
    }

    /// A permit, unless all are taken.
    pub fn take(&'static self) -> Option<DescriptorPermit> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        // Dropped again if there is none.
        let permit = DescriptorPermit(self);
        (taken < self.permits()).then_some(permit)
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_free_again_once_dropped() {
        static TWO: DescriptorPart = DescriptorPart::new(1, 2);
        assert_eq!(TWO.permits(), 2);
        let (first, second) = (TWO.take(), TWO.take());
        assert!(first.is_some() && second.is_some() && TWO.take().is_none());
        drop(first);
        assert!(TWO.take().is_some() && second.is_some());
        static QUARTER: DescriptorPart = DescriptorPart::new(4, u64::MAX);
        assert!(QUARTER.permits() < DescriptorPart::new(1, u64::MAX).permits());
    }
}
