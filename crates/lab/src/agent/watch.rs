//! The lab's view of the agents on brokers' machines: the brokers there, the usage of machine and processes,
//! and the log files.

use std::time::Duration;

use super::agents::{Agents, MachineUse, answer};
use super::brokers::{AdvertisedBroker, PARTITIONS_MAX};
use super::error::AgentError;
use super::protocol::Request;
use crate::result::{DataDirectory, WatchedBroker};

/// Maximum time to find the processes of brokers among all open files, and to read data directories.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

impl Agents {
    /// Finds the brokers on an agent's machine, and starts to sample the machine and their processes.
    pub(crate) async fn watch(
        &self,
        agent: usize,
        brokers: &[AdvertisedBroker],
    ) -> Result<(Vec<WatchedBroker>, MachineUse), AgentError> {
        const WHAT: &str = "the search for brokers";
        let request = Request::Watch { brokers: brokers.to_vec(), with_loopback: self.is_here(agent) };
        let mut machine = self.open_usage(agent, &request, WHAT).await?;
        let found = answer(&machine.agent, &mut machine.channel, WHAT, LOOK_TIMEOUT).await?;
        Ok((found, machine))
    }

    /// The log files of topics below the data directories of an agent; empty if it names none.
    pub(crate) async fn logs(
        &self,
        agent: usize,
        topics: &[String],
    ) -> Result<Vec<DataDirectory>, AgentError> {
        const WHAT: &str = "the question for its log files";
        if topics.len() > PARTITIONS_MAX {
            let why = format!("it looks for the log files of {PARTITIONS_MAX} partitions at most");
            return Err(AgentError::Refused { agent: self.address(agent).to_owned(), why });
        }
        let request = Request::Logs { topics: topics.to_vec() };
        let mut asked = self.open_usage(agent, &request, WHAT).await?;
        answer(&asked.agent, &mut asked.channel, WHAT, LOOK_TIMEOUT).await
    }
}
