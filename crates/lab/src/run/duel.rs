//! Alternates points on one target, to compare a change in tuning. Walks one round at a time, on clusters
//! that run from the first round to the end.

use std::collections::BTreeMap;

use super::clusters::name;
use super::contender::Contender;
use super::interrupt::Interrupt;
use super::plan::{Options, seed_of};
use super::walk::{Plan, Round, Walk};
use crate::result::{Machine, PointResult, TargetInfo};
use crate::target::TargetSpec;
use crate::terminal::Progress;
use crate::workload::{Point, Workload};

/// Points alternate, on one cluster if their cluster settings agree, otherwise on two.
pub(crate) struct Duel<'a> {
    walk: Walk<'a>,
    taken: u64,
    interrupted: bool,
}

/// A plan of one round, and its result.
struct OneRound {
    round: Option<Round>,
    results: Vec<PointResult>,
}

impl Plan for OneRound {
    fn next(&mut self) -> Option<Round> {
        self.round.take()
    }

    fn report(&mut self, results: Vec<PointResult>, _: &BTreeMap<String, TargetInfo>) {
        self.results = results;
    }
}

impl<'a> Duel<'a> {
    /// The options contain the same target twice, for two clusters.
    pub(crate) fn new(options: &'a Options, interrupt: &'a Interrupt, progress: &'a Progress) -> Duel<'a> {
        Duel { walk: Walk::new(options, interrupt, progress), taken: 0, interrupted: false }
    }

    pub(crate) fn machine(&self) -> &Machine {
        self.walk.machine()
    }

    pub(crate) fn target(&self) -> Result<&'a TargetSpec, String> {
        self.walk.options.targets.first().ok_or_else(|| "there is no target".to_owned())
    }

    /// A fact about the target, once it has been started.
    pub(crate) fn fact(&self, key: &str) -> Option<&str> {
        let target = self.walk.options.targets.first()?;
        self.walk.target(&name(target))?.facts.get(key).map(String::as_str)
    }

    /// Measures points in turn. An error is the reason to end the run.
    pub(crate) async fn measure(&mut self, points: &[&Point]) -> Result<Vec<PointResult>, String> {
        let options = self.walk.options;
        let target = self.target()?;
        let driver = options.drivers.first().ok_or("there is no driver")?;
        let workload = Workload {
            name: "tune".to_owned(),
            title: String::new(),
            description: String::new(),
            drivers: Vec::new(),
            targets: Vec::new(),
            has_steps: false,
            why: BTreeMap::new(),
            scale: 1.0,
            points: Vec::new(),
            published: Vec::new(),
        };
        let seed = seed_of(options.seed, [self.taken, 0, 0]);
        self.taken += 1;
        let contenders = points.iter().map(|point| {
            let place = usize::from(point.cluster != points[0].cluster);
            Contender::new(place, name(target), *driver, &workload, point, seed)
        });
        let round = Round::together(contenders.collect());
        let mut plan = OneRound { round: Some(round), results: Vec::new() };
        match self.walk.all(&mut plan).await {
            None => Ok(plan.results),
            Some(why) => {
                self.interrupted = true;
                Err(why)
            }
        }
    }

    /// Stops the clusters, and returns the description of the target.
    pub(crate) fn end(self) -> BTreeMap<String, TargetInfo> {
        self.walk.tear_down(self.interrupted)
    }
}
