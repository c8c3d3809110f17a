//! Connections that clients hold open without using them, like those of a rarely active service.

use rustix::process::{Resource, getrlimit};
use thalweg_client::{ClientError, Cluster, Connection};
use tokio::task::{JoinError, JoinSet};

use super::error::Failure;

/// Maximum number of connections opened concurrently.
const OPENING_MAX: usize = 100;
/// Number of open files that the lab needs besides.
const FILES_OF_THE_LAB: u64 = 200;

type OpenResult = Result<Connection, ClientError>;

/// The open connections, closed when dropped.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Vec<Connection>);

impl IdleConnections {
    /// Opens the requested number of connections, spread over the brokers. Each requests the brokers' API
    /// versions, and logs in if clients do.
    pub(super) async fn open(cluster: &Cluster, count: u32) -> Result<IdleConnections, Failure> {
        let files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let files = u64::from(count) + FILES_OF_THE_LAB;
        if count > 0 && files > files_max {
            return Err(Failure::TooManyIdle { count, files, files_max });
        }
        let metadata = cluster.metadata();
        let addresses: Vec<String> = metadata.brokers.values().map(|broker| broker.address()).collect();
        let mut idle = IdleConnections(Vec::with_capacity(count as usize));
        let mut opening = JoinSet::new();
        for address in addresses.iter().cycle().take(count as usize) {
            if opening.len() == OPENING_MAX {
                idle.take(opening.join_next().await)?;
            }
            let (cluster, address) = (cluster.clone(), address.clone());
            opening.spawn(async move { cluster.dedicated(&address).await });
        }
        while !opening.is_empty() {
            idle.take(opening.join_next().await)?;
        }
        Ok(idle)
    }

    fn take(&mut self, opened: Option<Result<OpenResult, JoinError>>) -> Result<(), Failure> {
        let refused = |source| Failure::Refused { what: "Opening an idle connection".to_owned(), source };
        match opened {
            Some(Ok(connection)) => self.0.push(connection.map_err(refused)?),
            Some(Err(failure)) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
            Some(Err(_)) | None => {}
        }
        Ok(())
    }

    /// A note for readers of the result: connections that did not last.
    pub(super) fn note(&self) -> Option<String> {
        let closed = self.0.iter().filter(|connection| connection.is_closed()).count();
        let all = self.0.len();
        (closed > 0).then(|| {
            format!("{closed} of {all} idle connections were closed before the end (connections.max.idle.ms of the brokers)")
        })
    }
}
