//! A value with history: the decided state, and the state visible to readers until the log acknowledges the change.

use std::collections::VecDeque;

/// A value that changes with writes to the log. Writers see the latest state; readers see the state before the first
/// change that is not acknowledged.
#[derive(Debug)]
pub(super) struct Timed<V> {
    latest: Option<V>,
    /// The states before each change that is not acknowledged, oldest first. Usually there are none.
    #[expect(
        clippy::box_collection,
        reason = "one word instead of four, in each of perhaps millions of offsets"
    )]
    earlier: Option<Box<VecDeque<Option<V>>>>,
}

impl<V> Default for Timed<V> {
    fn default() -> Timed<V> {
        Timed { latest: None, earlier: None }
    }
}

impl<V> Timed<V> {
    /// The state as it is decided.
    pub(super) fn latest(&self) -> Option<&V> {
        self.latest.as_ref()
    }

    /// The state as it is decided, to be changed in ways that are no matter of the log.
    pub(super) fn latest_mut(&mut self) -> Option<&mut V> {
        self.latest.as_mut()
    }

    /// The state as it is acknowledged.
    pub(super) fn acknowledged(&self) -> Option<&V> {
        match self.earlier.as_deref().and_then(VecDeque::front) {
            Some(earlier) => earlier.as_ref(),
            None => self.latest.as_ref(),
        }
    }

    /// A change that needs no acknowledgement. Returns the state before it.
    pub(super) fn set(&mut self, value: Option<V>) -> Option<V> {
        std::mem::replace(&mut self.latest, value)
    }

    /// A change that readers see once [`Timed::acknowledge`] has been called for it.
    pub(super) fn change(&mut self, value: Option<V>) {
        let before = self.set(value);
        self.changed_from(before);
    }

    /// The latest state replaced `before`, which readers continue to see.
    pub(super) fn changed_from(&mut self, before: Option<V>) {
        self.earlier.get_or_insert_default().push_back(before);
    }

    /// The oldest change that was not acknowledged is.
    pub(super) fn acknowledge(&mut self) {
        if let Some(earlier) = &mut self.earlier {
            earlier.pop_front();
            if earlier.is_empty() {
                self.earlier = None;
            }
        }
    }

    /// Whether nothing is left that anyone could see.
    pub(super) fn is_gone(&self) -> bool {
        self.latest.is_none() && self.earlier.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::Timed;

    #[test]
    fn readers_see_a_change_once_it_is_acknowledged() {
        let mut value = Timed::default();
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
