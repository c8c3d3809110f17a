//! What a run is like: its size, its network, the kinds of faults in it. All of it follows from the seed.

use crate::chance::Chance;
use crate::history::TOPIC;
use crate::ledger::LEDGER;
use crate::network::Delays;

/// How long a step of the simulation is. No message is faster, so what happens on two machines within a step cannot
/// depend on each other.
pub const TICK_MS: u64 = 4;

/// What may happen to a cluster in a run. Not every run has everything: a rare order of two kinds of faults is found
/// sooner where others do not end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Connections are reset.
    Resets,
    /// Nothing passes between a machine and others, in both directions or in one.
    Cuts,
    /// Processes are killed and started again.
    Kills,
    /// Brokers are stopped in order and started again.
    Stops,
    /// Machines lose their power, and with it what was not synced.
    PowerFailures,
    /// Processes are held up.
    Holds,
    /// Wall clocks jump.
    ClockJumps,
    /// Disks become slow.
    SlowDisks,
    /// An operator moves replicas and leaders.
    Operator,
    /// A broker is killed and comes back with an empty disk.
    Replacements,
    /// All brokers are killed at once, sometimes with the controller, and sometimes one of them is replaced.
    Blackouts,
    /// The controller is held up for longer than a session lasts.
    HeldController,
}

impl Kind {
    /// The kinds of which every run has some.
    pub const USUAL: [Kind; 9] = [
        Kind::Resets,
        Kind::Cuts,
        Kind::Kills,
        Kind::Stops,
        Kind::PowerFailures,
        Kind::Holds,
        Kind::ClockJumps,
        Kind::SlowDisks,
        Kind::Operator,
    ];
    /// The kinds that are added in half of the runs. They have draws of their own, so that other runs stay what they were.
    pub const OF_LOST_REPLICAS: [Kind; 3] = [Kind::Replacements, Kind::Blackouts, Kind::HeldController];
}

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Partitions of the topic, three replicas each.
    pub partitions: i32,
    /// Producers.
    pub producers: u32,
    /// Consumers.
    pub consumers: u32,
    /// Members of a group.
    pub members: u32,
    /// Producers of transactions, to a topic of their own. None of them in most runs: what others do is as it was before.
    pub transactional: u32,
    /// How long messages take.
    pub delays: Delays,
    /// How long faults go on.
    pub faults_ms: u64,
    /// The longest time between two faults.
    pub pause_ms_max: u64,
    /// What may happen.
    pub kinds: Vec<Kind>,
    /// Whether every record is synced before it is acknowledged: power may fail anywhere and at any time then.
    pub flushes: bool,
    /// Whether the cluster keeps eligible leader replicas.
    pub elr: bool,
    /// Whether the controller moves leaders back to where they are preferred.
    pub rebalances: bool,
    /// `internal.segment.bytes` of the topic.
    pub segment_bytes: u32,
    /// Whether every message is kept, to compare two runs.
    pub keeps_trace: bool,
    /// Whether syncs do nothing: a broken machine, which the check must find.
    pub syncs_lie: bool,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut chance = Chance::new(seed, 0);
        let count = chance.between(1, 4);
        let mut kinds = if chance.one_in(3) {
            Kind::USUAL.to_vec()
        } else {
            (0..count).map(|_| *chance.pick(&Kind::USUAL)).collect()
        };
        let slow = chance.one_in(3);
        let mut losses = Chance::new(seed, 4);
        let elr = losses.one_in(2);
        if losses.one_in(2) {
            // Beside few others they meet each other more often.
            kinds.truncate(usize::try_from(losses.below(9)).unwrap_or(0));
            let draws = losses.between(1, 4);
            kinds.extend((0..draws).map(|_| *losses.pick(&Kind::OF_LOST_REPLICAS)));
        }
        let members = Chance::new(seed, 2).below(6).saturating_sub(2);
        let transactional = Chance::new(seed, 3).below(6).saturating_sub(3);
        Plan {
            partitions: i32::try_from(chance.between(1, 3)).unwrap_or(1),
            producers: u32::try_from(chance.between(1, 3)).unwrap_or(1),
            consumers: u32::try_from(chance.between(1, 2)).unwrap_or(1),
            members: u32::try_from(members).unwrap_or(0),
            transactional: u32::try_from(transactional).unwrap_or(0),
            delays: Delays {
                least_ms: TICK_MS,
                usual_ms: if slow { 40 } else { 10 },
                long_one_in: *chance.pick(&[0, 20, 100]),
                long_ms: if slow { 800 } else { 150 },
            },
            faults_ms: chance.between(8_000, 20_000),
            pause_ms_max: *chance.pick(&[300, 1_000, 3_000]),
            kinds,
            flushes: chance.one_in(3),
            elr,
            rebalances: chance.one_in(2),
            segment_bytes: *chance.pick(&[20_000, 1_000_000]),
            keeps_trace: false,
            syncs_lie: false,
        }
    }

    /// The topics of all clients.
    pub fn topics(&self) -> impl Iterator<Item = &'static str> {
        [TOPIC].into_iter().chain((self.transactional > 0).then_some(LEDGER))
    }
}
