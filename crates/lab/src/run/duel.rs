//! Points beside each other on one target, in turns: what tuning compares a change by.

use std::collections::BTreeMap;

use super::clusters::name;
use super::contender::Contender;
use super::{Interrupt, Options, Run, seed_of};
use crate::result::{Machine, PointResult, TargetInfo};
use crate::target::TargetSpec;
use crate::terminal::Progress;
use crate::workload::{Point, Workload};

/// Points are taken in turns, on one cluster where they agree on its settings, else on two.
pub(crate) struct Duel<'a> {
    run: Run<'a>,
    taken: u64,
    interrupted: bool,
}

impl<'a> Duel<'a> {
    /// The options hold one target, twice: each has a place for its cluster.
    pub(crate) fn new(options: &'a Options, interrupt: &'a Interrupt, progress: &'a Progress) -> Duel<'a> {
        Duel { run: Run::new(options, interrupt, progress), taken: 0, interrupted: false }
    }

    /// The machine.
    pub(crate) fn machine(&self) -> &Machine {
        &self.run.result.machine
    }

    /// What is measured.
    pub(crate) fn target(&self) -> Result<&'a TargetSpec, String> {
        self.run.options.targets.first().ok_or_else(|| "there is no target".to_owned())
    }

    /// Takes points, in turns. An error is why the run is to end.
    pub(crate) async fn measure(&mut self, points: &[&Point]) -> Result<Vec<PointResult>, String> {
        let options = self.run.options;
        let target = self.target()?;
        let driver = options.drivers.first().ok_or("there is no driver")?;
        let workload = Workload {
            name: "tune".to_owned(),
            title: String::new(),
            description: String::new(),
            drivers: Vec::new(),
            scale: 1.0,
            points: Vec::new(),
            published: Vec::new(),
        };
        let seed = seed_of(options.seed, [self.taken, 0, 0]);
        self.taken += 1;
        let mut contenders: Vec<Contender> = points
            .iter()
            .map(|point| {
                let place = usize::from(point.cluster != points[0].cluster);
                Contender::new(place, name(target), *driver, &workload, point, seed)
            })
            .collect();
        if let Some(why) = self.run.in_turn(&mut contenders).await {
            self.interrupted = true;
            return Err(why);
        }
        let machine = &self.run.result.machine;
        Ok(contenders.into_iter().map(|contender| contender.result(machine)).collect())
    }

    /// Ends the clusters, and gives what was learned of the target.
    pub(crate) fn end(mut self) -> BTreeMap<String, TargetInfo> {
        self.run.end(self.interrupted);
        self.run.result.targets
    }
}
