//! Conversions of a classic group to a consumer group whose records were larger than a batch. The cost of
//! building these records grows with the group, and clients retry at once. A failed conversion is therefore
//! delayed, for the group or for the one member whose own records are too large.

/// Maximum number of members with a delay of their own. Beyond it, the whole group is delayed: otherwise a
/// client could force a conversion with each request by sending new member ids.
const MEMBERS_MAX: usize = 16;

/// Delayed conversions. Times are of the monotonic clock, in milliseconds.
#[derive(Debug, Default)]
pub(in super::super) struct RefusedUpgrades {
    until_ms: Option<i64>,
    by_member: Vec<(String, i64)>,
}

impl RefusedUpgrades {
    /// True if a join of this member must not convert the group yet.
    pub(in super::super) fn has(&self, member: &str, now_ms: i64) -> bool {
        let of_member = self.by_member.iter().filter(|(id, _)| id == member).map(|(_, until_ms)| *until_ms);
        of_member.chain(self.until_ms).any(|until_ms| now_ms < until_ms)
    }

    /// Delays the conversion for all members.
    pub(in super::super) fn put_off(&mut self, until_ms: i64) {
        self.until_ms = Some(until_ms);
        self.by_member.clear();
    }

    /// Delays the conversion for this member alone. Returns false if too many members are delayed already.
    pub(in super::super) fn put_off_by(&mut self, member: &str, until_ms: i64, now_ms: i64) -> bool {
        self.by_member.retain(|(id, until_ms)| now_ms < *until_ms && id != member);
        let has_room = self.by_member.len() < MEMBERS_MAX;
        if has_room {
            self.by_member.push((member.to_owned(), until_ms));
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_put_off_are_few_and_give_way_when_their_time_is_over() {
        let mut refused = RefusedUpgrades::default();
        for index in 0..MEMBERS_MAX {
            assert!(refused.put_off_by(&index.to_string(), 100, 0));
        }
        assert!(refused.put_off_by("0", 200, 0), "it has a place");
        assert!(!refused.put_off_by("another", 100, 99));
        assert_eq!(refused.by_member.len(), MEMBERS_MAX);
        assert!(refused.has("1", 99) && !refused.has("1", 100) && refused.has("0", 100));
        assert!(refused.put_off_by("another", 300, 100));
        assert_eq!(refused.by_member.len(), 2, "the time of all others is over");
        refused.put_off(400);
        assert!(refused.has("anybody", 399) && !refused.has("anybody", 400) && refused.by_member.is_empty());
    }
}
