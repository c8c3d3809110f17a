//! A value with history: the latest state, and the state visible to readers until the log acknowledges the
//! change.

use std::collections::VecDeque;

/// A value that changes with writes to the log. Writers see the latest state; readers see the state before
/// the first unacknowledged change.
#[derive(Debug)]
pub(super) struct TimelineObject<V> {
    latest: Option<V>,
    /// The states before each unacknowledged change, oldest first. Usually empty.
    #[expect(
        clippy::box_collection,
        reason = "one word instead of four, in each of perhaps millions of offsets"
    )]
    earlier: Option<Box<VecDeque<Option<V>>>>,
}

impl<V> Default for TimelineObject<V> {
    fn default() -> TimelineObject<V> {
        TimelineObject { latest: None, earlier: None }
    }
}

impl<V> TimelineObject<V> {
    /// The latest state.
    pub(super) fn latest(&self) -> Option<&V> {
        self.latest.as_ref()
    }

    /// The latest state, for changes that do not involve the log.
    pub(super) fn latest_mut(&mut self) -> Option<&mut V> {
        self.latest.as_mut()
    }

    /// The acknowledged state.
    pub(super) fn acknowledged(&self) -> Option<&V> {
        match self.earlier.as_deref().and_then(VecDeque::front) {
            Some(earlier) => earlier.as_ref(),
            None => self.latest.as_ref(),
        }
    }

    /// Changes the state without waiting for an acknowledgement. Returns the previous state.
    pub(super) fn set(&mut self, value: Option<V>) -> Option<V> {
        std::mem::replace(&mut self.latest, value)
    }

    /// Changes the state. Readers see the change after a call of [`TimelineObject::acknowledge`].
    pub(super) fn change(&mut self, value: Option<V>) {
        let before = self.set(value);
        self.changed_from(before);
    }

    /// Records that the latest state replaced `before`, which stays visible to readers.
    pub(super) fn changed_from(&mut self, before: Option<V>) {
        self.earlier.get_or_insert_default().push_back(before);
    }

    /// Acknowledges the oldest unacknowledged change.
    pub(super) fn acknowledge(&mut self) {
        if let Some(earlier) = &mut self.earlier {
            earlier.pop_front();
            if earlier.is_empty() {
                self.earlier = None;
            }
        }
    }

    /// True if neither writers nor readers see a value.
    pub(super) fn is_gone(&self) -> bool {
        self.latest.is_none() && self.earlier.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::TimelineObject;

    #[test]
    fn readers_see_a_change_once_it_is_acknowledged() {
        let mut value = TimelineObject::default();
        value.change(Some(1));
        value.change(Some(2));
        value.change(None);
        assert_eq!((value.latest(), value.acknowledged()), (None, None));
        value.acknowledge();
        assert_eq!((value.latest(), value.acknowledged()), (None, Some(&1)));
        value.acknowledge();
        assert_eq!(value.acknowledged(), Some(&2));
        assert!(!value.is_gone());
        value.acknowledge();
        assert!(value.is_gone());
    }
}
