//! Planning of replica placement. Pure. Replicas on allowed brokers stay, as far as the brokers keep about
//! the same number of replicas. Other replicas go to the brokers with the fewest, in other racks if possible.

use std::collections::BTreeMap;

use crate::offsets::TopicPartition;

/// The replicas of each partition.
pub type ReplicaAssignment = BTreeMap<TopicPartition, Vec<i32>>;

/// A broker that may get replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableBroker {
    /// The broker's id.
    pub id: i32,
    /// `broker.rack`.
    pub rack: Option<String>,
}

/// A partition has more replicas than there are brokers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at} needs {factor} brokers for its replicas, and there are {brokers}")]
pub struct TooFewBrokers {
    pub at: TopicPartition,
    /// Number of the partition's replicas.
    pub factor: usize,
    /// Number of brokers.
    pub brokers: usize,
}

/// A partition with its planned replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The current replicas.
    pub from: Vec<i32>,
    /// The planned replicas.
    pub to: Vec<i32>,
}

impl PlannedMove {
    /// Brokers that gain a replica.
    pub fn adding(&self) -> Vec<i32> {
        self.to.iter().copied().filter(|id| !self.from.contains(id)).collect()
    }

    /// Brokers that lose their replica.
    pub fn removing(&self) -> Vec<i32> {
        self.from.iter().copied().filter(|id| !self.to.contains(id)).collect()
    }
}

/// The partitions to move.
pub type PlannedMoves = BTreeMap<TopicPartition, PlannedMove>;

/// The partitions whose planned replicas differ from the current ones.
pub fn planned_moves(current: &ReplicaAssignment, planned: ReplicaAssignment) -> PlannedMoves {
    let moving = planned.into_iter().filter_map(|(at, to)| {
        let from = current.get(&at)?.clone();
        (from != to).then_some((at, PlannedMove { from, to }))
    });
    moving.collect()
}

/// Spreads partitions over brokers, each with `factor` replicas, or with its current number.
pub fn spread(
    current: &ReplicaAssignment,
    brokers: &[UsableBroker],
    factor: Option<usize>,
) -> Result<ReplicaAssignment, TooFewBrokers> {
    let mut plan = Plan { brokers, load: brokers.iter().map(|broker| (broker.id, 0)).collect() };
    let mut planned = ReplicaAssignment::new();
    for (at, replicas) in current {
        let factor = factor.unwrap_or(replicas.len());
        if factor > brokers.len() {
            return Err(TooFewBrokers { at: at.clone(), factor, brokers: brokers.len() });
        }
        let stay: Vec<i32> =
            replicas.iter().copied().filter(|id| plan.load.contains_key(id)).take(factor).collect();
        for id in &stay {
            *plan.load.entry(*id).or_default() += 1;
        }
        planned.insert(at.clone(), stay);
    }
    for (at, replicas) in &mut planned {
        let factor = factor.unwrap_or_else(|| current[at].len());
        while replicas.len() < factor {
            let id = plan.next(replicas).expect("there are at least as many brokers as replicas");
            *plan.load.entry(id).or_default() += 1;
            replicas.push(id);
        }
    }
    plan.level(&mut planned);
    Ok(planned)
}

struct Plan<'a> {
    brokers: &'a [UsableBroker],
    /// Number of replicas per broker, of the planned partitions.
    load: BTreeMap<i32, usize>,
}

impl Plan<'_> {
    fn rack(&self, id: i32) -> Option<&str> {
        self.brokers.iter().find(|broker| broker.id == id)?.rack.as_deref()
    }

    /// The best broker for another replica: in a rack without a replica, with the lowest load.
    fn next(&self, replicas: &[i32]) -> Option<i32> {
        let free = self.brokers.iter().filter(|broker| !replicas.contains(&broker.id));
        let best = free.min_by_key(|broker| {
            let shared =
                broker.rack.is_some() && replicas.iter().any(|id| self.rack(*id) == broker.rack.as_deref());
            (shared, self.load[&broker.id], broker.id)
        });
        best.map(|broker| broker.id)
    }

    /// Moves single replicas from fuller brokers to emptier ones, until no move brings two loads closer: they
    /// differ by at most one then, unless racks stand against it.
    fn level(&mut self, planned: &mut ReplicaAssignment) {
        // Each move brings two loads closer, so the loop ends. The bound makes that evident.
        for _ in 0..planned.values().map(Vec::len).sum::<usize>() {
            let mut emptiest: Vec<(usize, i32)> = self.load.iter().map(|(id, load)| (*load, *id)).collect();
            emptiest.sort_unstable();
            let mut fullest = emptiest.clone();
            fullest.sort_unstable_by_key(|(load, id)| (std::cmp::Reverse(*load), *id));
            let moved = fullest.iter().find_map(|(most, full)| {
                let emptier = emptiest.iter().filter(|(load, _)| load + 1 < *most);
                let to = emptier.map(|(_, to)| *to).find(|to| self.move_one(planned, *full, *to))?;
                Some((*full, to))
            });
            let Some((full, to)) = moved else { return };
            *self.load.entry(full).or_default() -= 1;
            *self.load.entry(to).or_default() += 1;
        }
    }

    /// Moves a replica, if one can move without the loss of a rack.
    fn move_one(&self, planned: &mut ReplicaAssignment, full: i32, to: i32) -> bool {
        let replicas = planned.values_mut().rev().find(|replicas| {
            replicas.contains(&full) && !replicas.contains(&to) && self.keeps_racks(replicas, full, to)
        });
        let Some(replicas) = replicas else { return false };
        let at = replicas.iter().position(|id| *id == full);
        at.is_some_and(|at| {
            replicas[at] = to;
            true
        })
    }

    /// True if a move leaves the replicas in at least as many racks.
    fn keeps_racks(&self, replicas: &[i32], from: i32, to: i32) -> bool {
        let racks = |ids: &mut dyn Iterator<Item = i32>| {
            let racks: std::collections::BTreeSet<Option<&str>> = ids.map(|id| self.rack(id)).collect();
            racks.len()
        };
        let after = racks(&mut replicas.iter().map(|id| if *id == from { to } else { *id }));
        after >= racks(&mut replicas.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers(racks: &[(i32, &str)]) -> Vec<UsableBroker> {
        racks.iter().map(|(id, rack)| UsableBroker { id: *id, rack: Some((*rack).to_owned()) }).collect()
    }

    fn anywhere(ids: &[i32]) -> Vec<UsableBroker> {
        ids.iter().map(|id| UsableBroker { id: *id, rack: None }).collect()
    }

    fn assignment(replicas: &[&[i32]]) -> ReplicaAssignment {
        let partitions = (0..).zip(replicas);
        partitions.map(|(index, ids)| (TopicPartition::new("t", index), ids.to_vec())).collect()
    }

    fn loads(planned: &ReplicaAssignment) -> BTreeMap<i32, usize> {
        let mut loads = BTreeMap::new();
        for id in planned.values().flatten() {
            *loads.entry(*id).or_default() += 1;
        }
        loads
    }

    #[test]
    fn what_is_level_already_stays() {
        let current = assignment(&[&[1, 2], &[2, 3], &[3, 1]]);
        assert_eq!(spread(&current, &anywhere(&[1, 2, 3]), None).expect("a plan"), current);
    }

    #[test]
    fn only_the_replicas_of_a_broker_that_leaves_move() {
        let current = assignment(&[&[1, 2], &[2, 3], &[3, 1]]);
        let planned = spread(&current, &anywhere(&[1, 2, 4]), None).expect("a plan");
        assert_eq!(planned, assignment(&[&[1, 2], &[2, 4], &[1, 4]]));
    }

    #[test]
    fn a_new_broker_gets_its_share() {
        let current = assignment(&[&[1, 2], &[2, 1], &[1, 2], &[2, 1], &[1, 2], &[2, 1]]);
        let planned = spread(&current, &anywhere(&[1, 2, 3]), None).expect("a plan");
        assert_eq!(loads(&planned), BTreeMap::from([(1, 4), (2, 4), (3, 4)]));
        for replicas in planned.values() {
            assert!(replicas[0] != replicas[1], "{planned:?}");
        }
    }

    #[test]
    fn replicas_go_to_other_racks() {
        let brokers = brokers(&[(1, "a"), (2, "a"), (3, "b"), (4, "b")]);
        let current = assignment(&[&[1], &[2], &[3], &[4]]);
        let planned = spread(&current, &brokers, Some(2)).expect("a plan");
        for replicas in planned.values() {
            let rack = |id: i32| if id < 3 { "a" } else { "b" };
            assert_ne!(rack(replicas[0]), rack(replicas[1]), "{planned:?}");
        }
        assert_eq!(loads(&planned), BTreeMap::from([(1, 2), (2, 2), (3, 2), (4, 2)]));
    }

    #[test]
    fn another_full_broker_gives_replicas_if_racks_keep_those_of_the_first() {
        let brokers = brokers(&[(1, "a"), (2, "b"), (3, "b")]);
        let current = assignment(&[&[1, 2], &[1, 2], &[1, 2], &[1, 2]]);
        let planned = spread(&current, &brokers, None).expect("a plan");
        assert_eq!(loads(&planned), BTreeMap::from([(1, 4), (2, 2), (3, 2)]));
    }

    #[test]
    fn fewer_replicas_keep_the_first_and_too_few_brokers_are_an_error() {
        let current = assignment(&[&[1, 2, 3]]);
        assert_eq!(spread(&current, &anywhere(&[1, 2, 3]), Some(1)).expect("a plan"), assignment(&[&[1]]));
        let error = spread(&current, &anywhere(&[1, 2]), None).expect_err("too few");
        assert_eq!(error.to_string(), "t-0 needs 3 brokers for its replicas, and there are 2");
    }
}
