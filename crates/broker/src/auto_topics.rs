//! Topics being created automatically, and the outcome of recent attempts.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_hash::{HashMap, HashSet};
use thalweg_metadata::topic_name::{self, CoordinatorTopic};
use thalweg_net::Holder;
use thalweg_net::RepeatedFailures;
use thalweg_places::Counts;
use tokio::time::Instant;

/// Maximum number of topics of clients in creation, in total and for one principal. Clients retry for further
/// topics.
const IN_CREATION_MAX: usize = 10_000;
const IN_CREATION_OF_ONE_MAX: usize = 2_500;
/// Maximum number of remembered failures. Beyond that, the principal with the most failures loses the one
/// that expires first.
const REFUSALS_MAX: usize = 1_000;

/// The topics in creation, so that concurrent requests for a topic create it once.
#[derive(Debug, Default)]
pub struct AutoTopics {
    in_creation: Mutex<InCreation>,
    /// Repeated failures by kind of topic.
    pub failures: RepeatedFailures<&'static str>,
    /// Failures to create internal topics of streams groups.
    refusals: Mutex<Refusals>,
}

#[derive(Debug, Default)]
struct InCreation {
    names: HashSet<String>,
    /// Number of topics in creation for each client.
    counts: Counts<Holder>,
}

/// The reason for a failed creation, kept while heartbeats of the group report it.
#[derive(Debug)]
struct Refusal {
    /// The client that the topic was meant for.
    holder: Holder,
    reason: String,
    until: Instant,
}

/// The refusals, ordered by expiry, because one request may add many to a full table.
#[derive(Debug, Default)]
struct Refusals {
    by_name: HashMap<String, Refusal>,
    by_end: BTreeSet<(Instant, String)>,
    of_holders: BTreeMap<Holder, BTreeSet<(Instant, String)>>,
    counts: Counts<Holder>,
}

impl Refusals {
    fn insert(&mut self, name: String, refusal: Refusal) {
        self.remove(&name);
        let end = (refusal.until, name.clone());
        self.by_end.insert(end.clone());
        self.of_holders.entry(refusal.holder.clone()).or_default().insert(end);
        self.counts.add(&refusal.holder, 1);
        self.by_name.insert(name, refusal);
    }

    fn remove(&mut self, name: &str) {
        let Some(refusal) = self.by_name.remove(name) else { return };
        let end = (refusal.until, name.to_owned());
        self.by_end.remove(&end);
        self.counts.remove(&refusal.holder, 1);
        if let Some(of_holder) = self.of_holders.get_mut(&refusal.holder) {
            of_holder.remove(&end);
            if of_holder.is_empty() {
                self.of_holders.remove(&refusal.holder);
            }
        }
    }

    /// The topic to forget for a new topic of this client: the first to expire of the client with the most
    /// topics, if that client has more than this one will have; otherwise of this client, or of all clients
    /// if this client has none.
    fn first_for(&self, holder: &Holder) -> Option<String> {
        let of = self.counts.larger(holder).unwrap_or(holder);
        self.of_holders.get(of).unwrap_or(&self.by_end).first().map(|(_, name)| name.clone())
    }
}

/// A claim on topics in creation. The claim ends on drop, because the creating task may be dropped with its
/// connection or panic.
pub struct Creation<'a> {
    topics: &'a AutoTopics,
    /// The client; `None` for this broker.
    holder: Option<Holder>,
    pub names: Vec<String>,
}

impl AutoTopics {
    /// Claims the topics that are not in creation yet, for clients up to the limits. `holder` is the client,
    /// or `None` for this broker itself.
    pub fn begin(&self, names: &[String], holder: Option<Holder>) -> Creation<'_> {
        let mut in_creation = self.in_creation.lock();
        let mut room = IN_CREATION_MAX.saturating_sub(in_creation.names.len());
        if let Some(holder) = &holder {
            room = room.min(IN_CREATION_OF_ONE_MAX.saturating_sub(in_creation.counts.of(holder)));
        }
        let mut claimed = Vec::new();
        for name in names {
            let is_of_coordinators = topic_name::is_of_coordinators(name);
            if (room > 0 || is_of_coordinators) && in_creation.names.insert(name.clone()) {
                room = room.saturating_sub(usize::from(!is_of_coordinators));
                claimed.push(name.clone());
            }
        }
        if let Some(holder) = &holder {
            in_creation.counts.add(holder, claimed.len());
        }
        drop(in_creation);
        Creation { topics: self, holder, names: claimed }
    }

    /// True if at least one of the topics can be claimed for this client.
    pub fn takes_any(&self, names: &[String], holder: &Holder) -> bool {
        let in_creation = self.in_creation.lock();
        let has_room = in_creation.names.len() < IN_CREATION_MAX
            && in_creation.counts.of(holder) < IN_CREATION_OF_ONE_MAX;
        let takes = |name: &String| has_room || topic_name::is_of_coordinators(name);
        names.iter().any(|name| takes(name) && !in_creation.names.contains(name))
    }

    /// Remembers the reason for a failed creation until `until`.
    pub fn refuse(&self, holder: Holder, name: String, reason: String, now: Instant, until: Instant) {
        let mut refusals = self.refusals.lock();
        refusals.remove(&name);
        while refusals.by_name.len() >= REFUSALS_MAX {
            let over =
                refusals.by_end.first().filter(|(until, _)| *until <= now).map(|(_, name)| name.clone());
            let Some(first) = over.or_else(|| refusals.first_for(&holder)) else { break };
            refusals.remove(&first);
        }
        refusals.insert(name, Refusal { holder, reason, until });
    }

    /// The reason for a recent failed creation.
    pub fn refusal(&self, name: &str, now: Instant) -> Option<String> {
        let mut refusals = self.refusals.lock();
        let refusal = refusals.by_name.get(name)?;
        if refusal.until > now {
            return Some(refusal.reason.clone());
        }
        refusals.remove(name);
        None
    }
}

/// The kind of a topic, for logging failures: each topic of a coordinator is a kind, and all topics of
/// clients are one.
pub fn kind(name: &str) -> &'static str {
    CoordinatorTopic::of(name).map_or("of clients", CoordinatorTopic::name)
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        let mut in_creation = self.topics.in_creation.lock();
        for name in &self.names {
            in_creation.names.remove(name);
        }
        if let Some(holder) = &self.holder {
            in_creation.counts.remove(holder, self.names.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use thalweg_metadata::topic_name::OFFSETS;
    use thalweg_security::Principal;

    fn holder(user: &str) -> Holder {
        Holder::of(&Arc::new(Principal::user(user)), [10, 0, 0, 1].into())
    }

    #[test]
    fn a_creation_that_is_dropped_leaves_its_topics_free() {
        let topics = AutoTopics::default();
        let names = [OFFSETS.to_owned(), "t".to_owned()];
        let first = topics.begin(&names[..1], None);
        assert_eq!(topics.begin(&names, Some(holder("ann"))).names, ["t"], "the other is being created");
        let takes = |names: &[String]| topics.takes_any(names, &holder("ann"));
        assert_eq!((takes(&names), takes(&names[..1])), (true, false));
        drop(first);
        assert_eq!(topics.begin(&names, None).names, names);
    }

    #[test]
    fn topics_of_clients_in_creation_are_bounded_and_so_are_those_of_one() {
        let topics = AutoTopics::default();
        let names = |user: &str| -> Vec<String> {
            (0..IN_CREATION_OF_ONE_MAX + 5).map(|index| format!("{user}-{index}")).collect()
        };
        let begin = |user: &str| topics.begin(&names(user), Some(holder(user)));
        let created: Vec<Creation> = ["eve", "ann", "bob", "joe"].map(begin).into();
        assert!(created.iter().all(|creation| creation.names.len() == IN_CREATION_OF_ONE_MAX));
        let one_more = |user: &str| topics.begin(&["more".to_owned()], Some(holder(user))).names.len();
        assert_eq!((one_more("eve"), one_more("kim")), (0, 0), "all are in creation");
        assert_eq!(
            topics.begin(&[OFFSETS.to_owned(), "u".to_owned()], None).names,
            [OFFSETS],
            "of this broker"
        );
        drop(created);
        let _of_eve = begin("eve");
        assert_eq!((one_more("eve"), one_more("kim")), (0, 1));
    }

    #[test]
    fn a_refusal_lasts_for_its_time_and_the_number_is_bounded() {
        let (topics, now) = (AutoTopics::default(), Instant::now());
        let until = |ms| now + Duration::from_millis(ms);
        let refuse = |user: &str, name: String, ms| {
            topics.refuse(holder(user), name, "no right".to_owned(), now, until(ms));
        };
        refuse("ann", "first".to_owned(), 999);
        for index in 0..2_000 {
            refuse("eve", format!("t-{index}"), 1_000 + index);
        }
        assert_eq!(topics.refusal("first", now).as_deref(), Some("no right"), "another principal's");
        assert_eq!(topics.refusals.lock().by_name.len(), REFUSALS_MAX);
        assert_eq!(topics.refusal("t-0", now), None, "it made room");
        assert_eq!(topics.refusal("t-1999", now).as_deref(), Some("no right"));
        assert_eq!(topics.refusal("t-1999", until(3_000)), None, "it is over");
    }

    #[test]
    fn refusals_of_many_clients_cost_no_walk_over_all_of_them() {
        let (topics, now) = (AutoTopics::default(), Instant::now());
        let holders: Vec<Holder> = (0..=REFUSALS_MAX).map(|at| holder(&format!("user-{at}"))).collect();
        let began = Instant::now();
        for index in 0..100_000 {
            let until = now + Duration::from_secs(3600);
            let holder = holders[index % holders.len()].clone();
            topics.refuse(holder, format!("t-{index}"), "no right".to_owned(), now, until);
        }
        // Counting all refusals each time takes minutes.
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        assert!(topics.refusal("t-99999", now).is_some());
        let refusals = topics.refusals.lock();
        let in_order =
            (refusals.by_end.len(), refusals.of_holders.values().map(BTreeSet::len).sum::<usize>());
        assert_eq!((refusals.by_name.len(), in_order), (REFUSALS_MAX, (REFUSALS_MAX, REFUSALS_MAX)));
    }
}
