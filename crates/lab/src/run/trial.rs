//! A trial: workers that drive a server for calibration, here or on agents, without topics, evidence or
//! resources of a run.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::agents::{AgentSessions, lead_us, placed, placed_before};
use super::clock::now_us;
use super::error::Failure;
use super::figures::{CombinedReport, gather};
use super::fleet::{Fleet, RunningFleet, divide};
use crate::agent::Agents;
use crate::result::AgentUse;
use crate::sample::Sampler;
use crate::worker::{Assignment, Interval, Role};
use crate::workload::Clients;

/// Time from the start command to the start, beyond the time that the command takes.
const LEAD_US: u64 = 200_000;

/// The workers of a trial, and its length.
#[derive(Clone, Debug)]
pub(crate) struct Trial<'a> {
    /// The binary whose `lab worker` is used on this machine.
    pub(crate) binary: &'a Path,
    /// The agents that run the workers instead.
    pub(crate) agents: Option<&'a Agents>,
    /// The assignment of all producers.
    pub(crate) producers: Assignment,
    /// The assignment of all consumers. Each of their processes is a group, which gets all records.
    pub(crate) consumers: Option<Assignment>,
    pub(crate) warm_up_s: f64,
    /// Maximum time between the producers' end and the delivery of their last record.
    pub(crate) delivered_within: Duration,
}

/// The outcome of a trial.
#[derive(Clone, Debug)]
pub(crate) struct TrialOutcome {
    /// The client's name and version.
    pub(crate) client: String,
    pub(crate) produced: CombinedReport,
    pub(crate) consumed: CombinedReport,
    /// The producers' intervals of the measurement.
    pub(crate) intervals: Vec<Interval>,
    /// Processor time of the producers during the measurement; 0 if unknown.
    pub(crate) producers_cpu_s: f64,
    /// The agents, with their clocks before and after.
    pub(crate) agents: Vec<AgentUse>,
}

impl Trial<'_> {
    /// Runs the workers to their end.
    pub(crate) async fn run(&self) -> Result<TrialOutcome, Failure> {
        let mut sessions = match self.agents {
            Some(agents) => Some(AgentSessions::begin(agents).await?),
            None => None,
        };
        let sampler = Sampler::start(Vec::new());
        let mut consumers = Vec::new();
        if let Some(whole) = &self.consumers {
            let mut assignments = self.divided(whole);
            for (assignment, number) in assignments.iter_mut().zip(0..) {
                assignment.groups = vec![format!("{}-{number}", whole.topics.concat())];
            }
            consumers.push(self.ready(Role::Consumer, sessions.as_ref(), &assignments).await?);
        }
        let producers = self.ready(Role::Producer, sessions.as_ref(), &self.divided(&self.producers)).await?;
        for (worker, pid) in consumers.iter().chain([&producers]).flat_map(Fleet::processes) {
            match (worker.agent(), &mut sessions) {
                (Some(agent), Some(sessions)) => sessions.add(agent, worker.name(), pid).await?,
                _ => sampler.add(worker.name(), pid),
            }
        }
        let client = producers.client().to_owned();
        let at_us = now_us() + LEAD_US + lead_us(self.agents);
        let measure_from_us = at_us + (self.warm_up_s * 1e6) as u64;
        let mut consuming = match consumers.pop() {
            Some(consumers) => consumers.start(at_us, measure_from_us).await,
            None => RunningFleet::none(Role::Consumer),
        };
        let mut producing = producers.start(at_us, measure_from_us).await;
        self.follow(&mut producing, &mut consuming).await?;
        let produced = gather(producing.reports.iter().flatten())?;
        let consumed = gather(consuming.reports.iter().flatten())?;
        let span = produced.span;
        let mut processes = sampler.finish(span.from_us, span.to_us).processes;
        let mut agents = Vec::new();
        if let Some(sessions) = sessions {
            let (uses, there) = sessions.finish((span.from_us, span.to_us)).await?;
            agents = uses;
            processes.extend(there);
        }
        let of_producers = processes.iter().filter(|used| used.name.starts_with("producer"));
        Ok(TrialOutcome {
            client,
            intervals: producing.together(measure_from_us),
            producers_cpu_s: of_producers.map(|used| used.user_s + used.system_s).sum(),
            produced,
            consumed,
            agents,
        })
    }

    /// A role's clients, in one process here, or as the placement of the agents wants.
    fn clients(&self, whole: &Assignment) -> Clients {
        let clients = Clients {
            count: whole.clients,
            processes: 1,
            threads: whole.threads,
            properties: Default::default(),
            pulsar: Default::default(),
        };
        placed(self.agents, &clients, whole.role)
    }

    fn divided(&self, whole: &Assignment) -> Vec<Assignment> {
        divide(whole, &self.clients(whole))
    }

    async fn ready(
        &self,
        role: Role,
        sessions: Option<&AgentSessions>,
        assignments: &[Assignment],
    ) -> Result<Fleet, Failure> {
        let before = placed_before(self.agents, role, &self.clients(&self.producers));
        Fleet::ready(role, self.binary, (sessions, before), assignments).await
    }

    /// Follows all workers to their end: the consumers end once they have all records.
    async fn follow(
        &self,
        producing: &mut RunningFleet,
        consuming: &mut RunningFleet,
    ) -> Result<(), Failure> {
        while !producing.is_done() {
            tokio::select! {
                heard = producing.next() => heard?,
                heard = consuming.next() => heard?,
            };
        }
        let wanted = producing.records() * consuming.reports.len() as u64;
        let until = Instant::now() + self.delivered_within;
        while consuming.records() < wanted && Instant::now() < until {
            match timeout_at(until, consuming.next()).await {
                Ok(heard) => heard?,
                Err(_) => break,
            };
        }
        consuming.stop();
        while !consuming.is_done() {
            consuming.next().await?;
        }
        Ok(())
    }
}
