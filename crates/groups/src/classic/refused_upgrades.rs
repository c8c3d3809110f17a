//! Conversions of a classic group to a consumer group whose records were larger than a batch. To make those records costs
//! as much as the group has members, and the clients ask again at once, so that a conversion is put off: for the group, or
//! for the one member whose own records are too large.

/// So many members are put off one by one. If more have records that are too large, the group is put off: otherwise a
/// client could have them made with each request, by another member id each time.
const MEMBERS_MAX: usize = 16;

/// Conversions that are put off. Times are of the monotonic clock, in milliseconds.
#[derive(Debug, Default)]
pub(in super::super) struct RefusedUpgrades {
    until_ms: Option<i64>,
    by_member: Vec<(String, i64)>,
}

impl RefusedUpgrades {
    /// Whether a join of this member does not convert the group yet.
    pub(in super::super) fn has(&self, member: &str, now_ms: i64) -> bool {
        let of_member = self.by_member.iter().filter(|(id, _)| id == member).map(|(_, until_ms)| *until_ms);
        of_member.chain(self.until_ms).any(|until_ms| now_ms < until_ms)
    }

    /// Puts off the conversion for all members.
    pub(in super::super) fn put_off(&mut self, until_ms: i64) {
        self.until_ms = Some(until_ms);
        self.by_member.clear();
    }

    /// Puts off the conversion for this member alone. Returns false if too many members are put off already.
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
