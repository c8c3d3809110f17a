//! Placement of new replicas: striped over racks and the brokers in them (Kafka's `StripedReplicaPlacer`).
//!
//! Racks and the brokers of a rack are used round-robin, unfenced brokers before fenced ones. The first
//! replica, which will lead, is always unfenced. Starting points are random, so that not every topic starts
//! on the first broker.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::SliceRandom;
use thalweg_metadata::BrokerId;
use thalweg_wire::ErrorCode;

use super::{ApiError, State};

/// A broker for new replicas.
#[derive(Clone, Debug)]
pub(super) struct UsableBroker {
    pub id: BrokerId,
    pub rack: Option<String>,
    pub fenced: bool,
}

/// Brokers in rotation: each once per round, starting one further in each round.
#[derive(Default)]
struct Ring {
    brokers: Vec<BrokerId>,
    index: usize,
    offset: usize,
    epoch: u32,
}

impl Ring {
    fn initialize(&mut self, rng: &mut impl Rng) {
        if !self.brokers.is_empty() {
            self.brokers.sort_unstable();
            self.offset = rng.random_range(0..self.brokers.len());
        }
    }

    fn next(&mut self, epoch: u32) -> Option<BrokerId> {
        if self.brokers.is_empty() {
            return None;
        }
        if self.epoch != epoch {
            self.epoch = epoch;
            self.index = 0;
            self.offset = (self.offset + 1) % self.brokers.len();
        }
        if self.index >= self.brokers.len() {
            return None;
        }
        let broker = self.brokers[(self.index + self.offset) % self.brokers.len()];
        self.index += 1;
        Some(broker)
    }
}

#[derive(Default)]
struct Rack {
    unfenced: Ring,
    fenced: Ring,
}

struct Racks {
    racks: Vec<Rack>,
    offset: usize,
    epoch: u32,
    unfenced: u32,
}

impl Racks {
    fn new(brokers: &[UsableBroker], rng: &mut impl Rng) -> Racks {
        let mut by_name: BTreeMap<&Option<String>, Rack> = BTreeMap::new();
        for broker in brokers {
            let rack = by_name.entry(&broker.rack).or_default();
            let ring = if broker.fenced { &mut rack.fenced } else { &mut rack.unfenced };
            ring.brokers.push(broker.id);
        }
        let mut racks: Vec<Rack> = by_name.into_values().collect();
        for rack in &mut racks {
            rack.fenced.initialize(rng);
            rack.unfenced.initialize(rng);
        }
        let offset = if racks.is_empty() { 0 } else { rng.random_range(0..racks.len()) };
        let unfenced = brokers.iter().filter(|broker| !broker.fenced).count();
        Racks { racks, offset, epoch: 0, unfenced: u32::try_from(unfenced).unwrap_or(u32::MAX) }
    }

    /// The replicas of one partition. There are at least `count` brokers, one of them unfenced.
    fn place(&mut self, count: usize, rng: &mut impl Rng) -> Vec<BrokerId> {
        if self.epoch == self.unfenced && self.unfenced > 1 {
            self.racks.shuffle(rng);
            for rack in &mut self.racks {
                rack.fenced.brokers.shuffle(rng);
                rack.unfenced.brokers.shuffle(rng);
            }
            self.epoch = 0;
        }
        self.offset %= self.racks.len();
        let mut replicas = Vec::with_capacity(count);
        let mut first_rack = self.offset;
        loop {
            if let Some(broker) = self.racks[first_rack].unfenced.next(self.epoch) {
                replicas.push(broker);
                break;
            }
            first_rack = (first_rack + 1) % self.racks.len();
        }
        // The rack of the first replica is skipped once, so that the second is in another one.
        let mut passed_over = Some(first_rack);
        let mut rack = self.offset;
        while replicas.len() < count {
            if passed_over == Some(rack) {
                passed_over = None;
            } else {
                let Rack { unfenced, fenced } = &mut self.racks[rack];
                replicas.extend(unfenced.next(self.epoch).or_else(|| fenced.next(self.epoch)));
            }
            rack = (rack + 1) % self.racks.len();
        }
        self.epoch += 1;
        self.offset += 1;
        replicas
    }
}

/// The replicas of `partitions` new partitions.
pub(super) fn place(
    brokers: &[UsableBroker],
    partitions: i32,
    replication_factor: i16,
    rng: &mut impl Rng,
) -> Result<Vec<Vec<BrokerId>>, ApiError> {
    let refuse = |message: String| Err(ApiError::new(ErrorCode::InvalidReplicationFactor, message));
    let count = usize::try_from(replication_factor).unwrap_or(0);
    if count == 0 {
        return refuse(format!(
            "Invalid replication factor {replication_factor}: the replication factor must be positive."
        ));
    }
    if brokers.iter().all(|broker| broker.fenced) {
        return refuse(
            "All brokers are currently fenced, or have all their log directories cordoned.".to_owned(),
        );
    }
    if count > brokers.len() {
        return refuse(format!(
            "The target replication factor of {count} cannot be reached because only {} broker(s) are registered or \
             some brokers have all their log directories cordoned.",
            brokers.len()
        ));
    }
    let mut racks = Racks::new(brokers, rng);
    Ok((0..partitions).map(|_| racks.place(count, rng)).collect())
}

impl State {
    /// Places replicas on the available brokers.
    pub(super) fn place(
        &mut self,
        partitions: i32,
        replication_factor: i16,
    ) -> Result<Vec<Vec<BrokerId>>, ApiError> {
        let brokers: Vec<UsableBroker> = self
            .image
            .cluster()
            .brokers
            .values()
            .filter(|b| !self.heartbeats.is_shutting_down(b.id) && b.has_uncordoned_directory())
            .map(|b| UsableBroker { id: b.id, rack: b.rack.clone(), fenced: b.fenced })
            .collect();
        place(&brokers, partitions, replication_factor, &mut self.rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;
    use std::collections::BTreeSet;
    use thalweg_hash::HashMap;

    fn broker(id: i32, rack: &str, fenced: bool) -> UsableBroker {
        UsableBroker { id: BrokerId(id), rack: Some(rack.to_owned()), fenced }
    }

    #[test]
    fn replicas_are_spread_over_racks_and_brokers() {
        let brokers: Vec<_> = (0..9).map(|id| broker(id, ["a", "b", "c"][id as usize / 3], false)).collect();
        for seed in 0..50 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let placed = place(&brokers, 9, 3, &mut rng).unwrap();
            let mut held = HashMap::default();
            for replicas in &placed {
                let racks: BTreeSet<_> = replicas.iter().map(|id| id.0 / 3).collect();
                assert_eq!(racks.len(), 3, "seed {seed}: {replicas:?}");
                replicas.iter().for_each(|id| *held.entry(*id).or_insert(0) += 1);
            }
            assert!(held.len() == 9 && held.values().all(|count| *count == 3), "seed {seed}: {held:?}");
        }
    }

    #[test]
    fn a_fenced_broker_never_leads_and_no_broker_is_twice_in_a_partition() {
        let brokers =
            [broker(1, "a", true), broker(2, "a", false), broker(3, "b", true), broker(4, "b", true)];
        for seed in 0..50 {
            let placed = place(&brokers, 5, 4, &mut SmallRng::seed_from_u64(seed)).unwrap();
            for replicas in placed {
                assert_eq!(replicas[0], BrokerId(2));
                assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 4);
            }
        }
    }

    #[test]
    fn impossible_wishes_are_refused() {
        let mut rng = SmallRng::seed_from_u64(1);
        let code = |result: Result<Vec<Vec<BrokerId>>, ApiError>| result.unwrap_err().code;
        let one = [broker(1, "a", false)];
        assert_eq!(code(place(&one, 1, 2, &mut rng)), ErrorCode::InvalidReplicationFactor);
        assert_eq!(code(place(&one, 1, 0, &mut rng)), ErrorCode::InvalidReplicationFactor);
        assert_eq!(code(place(&[broker(1, "a", true)], 1, 1, &mut rng)), ErrorCode::InvalidReplicationFactor);
    }
}
