//! The coordinator of one group or transactional id: found when needed, found again when it moves. Requests
//! are retried until the answer is final.

use parking_lot::Mutex;
use thalweg_dial::{ClientError, Connection, RefusedRequest, Retry};
use thalweg_wire::{ErrorCode, Request};

use crate::cluster::{Cluster, CoordinatorKind};

/// A handle of a coordinator.
#[derive(Debug)]
pub(crate) struct Coordinator {
    cluster: Cluster,
    kind: CoordinatorKind,
    key: String,
    dedicated: bool,
    connection: Mutex<Option<Connection>>,
}

impl Coordinator {
    /// A coordinator reached over the cluster's connections.
    pub(crate) fn new(cluster: Cluster, kind: CoordinatorKind, key: impl Into<String>) -> Coordinator {
        let connection = Mutex::default();
        Coordinator { cluster, kind, key: key.into(), dedicated: false, connection }
    }

    /// A coordinator with a dedicated connection, which the first request opens. A broker answers the
    /// requests of a connection in order, so an answer that waits for replicas would delay every user of a
    /// shared connection.
    pub(crate) fn dedicated(cluster: Cluster, kind: CoordinatorKind, key: impl Into<String>) -> Coordinator {
        Coordinator { dedicated: true, ..Coordinator::new(cluster, kind, key) }
    }

    /// The group or transactional id.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The connection to the coordinator, which is found first if unknown.
    pub(crate) async fn connection(&self) -> Result<Connection, ClientError> {
        if let Some(connection) = self.living() {
            return Ok(connection);
        }
        let address = self.cluster.find_coordinator(self.kind, &self.key).await?;
        let connection = match self.dedicated {
            true => self.cluster.dedicated(&address).await?,
            false => self.cluster.connection_to(&address).await?,
        };
        *self.connection.lock() = Some(connection.clone());
        Ok(connection)
    }

    /// A separate connection to the coordinator, for a request that the broker may hold for long.
    pub(crate) async fn another(&self) -> Result<Connection, ClientError> {
        let address = match self.living() {
            Some(connection) => connection.peer().to_string(),
            None => self.cluster.find_coordinator(self.kind, &self.key).await?,
        };
        self.cluster.dedicated(&address).await
    }

    /// Keeps a connection of [`Coordinator::another`] for other requests, unless there is one already.
    pub(crate) fn keep(&self, another: Connection) {
        let mut connection = self.connection.lock();
        if connection.as_ref().is_none_or(Connection::is_closed) {
            *connection = Some(another);
        }
    }

    /// Finds the coordinator again before the next request.
    pub(crate) fn forget(&self) {
        *self.connection.lock() = None;
    }

    fn living(&self) -> Option<Connection> {
        self.connection.lock().clone().filter(|connection| !connection.is_closed())
    }

    /// Forgets the coordinator if the error means that another broker may have taken over.
    pub(crate) fn doubt(&self, error: &ClientError) {
        let moved = match error {
            ClientError::Refused(refused) => matches!(
                refused.error_code,
                ErrorCode::NotCoordinator
                    | ErrorCode::CoordinatorNotAvailable
                    | ErrorCode::RequestTimedOut
                    | ErrorCode::KafkaStorageError
            ),
            other => other.is_retriable(),
        };
        if moved {
            self.forget();
        }
    }

    /// Sends a request, built by `request` for a version, and lets `read` interpret the answer. Returns a
    /// final result, or the last failure when the time of `retry` is over.
    pub(crate) async fn request<R: Request, T>(
        &self,
        mut retry: Retry,
        mut request: impl FnMut(&Connection) -> Result<(R, i16), ClientError>,
        mut read: impl FnMut(R::Response, i16) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        loop {
            let attempt = async {
                let connection = self.connection().await?;
                let (request, version) = request(&connection)?;
                read(connection.send_at(&request, version).await?, version)
            };
            let error = match tokio::time::timeout_at(retry.until, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                // A connection with an overdue answer is of no use to the next request either.
                Err(_) => {
                    self.forget();
                    return Err(self.no_answer());
                }
            };
            self.doubt(&error);
            self.cluster.options().failed(&self.key, &error);
            match retry.pause_after(&error) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    fn no_answer(&self) -> ClientError {
        let what = match self.kind {
            CoordinatorKind::Group => format!("Coordinator of group {}", self.key),
            CoordinatorKind::Transaction => format!("Coordinator of transactional id {}", self.key),
        };
        let message = Some("no answer within the time allowed".to_owned());
        RefusedRequest { what, error_code: ErrorCode::RequestTimedOut, message }.into()
    }
}

/// The newest version of `R` that both sides speak, up to `limit`.
pub(crate) fn version_up_to<R: Request>(connection: &Connection, limit: i16) -> Result<i16, ClientError> {
    let versions = connection.versions();
    let ours = (R::KEY.versions().0, limit);
    let newest = versions.newest(R::KEY, limit);
    Ok(newest.ok_or_else(|| versions.mismatch(connection.peer(), R::KEY, ours))?)
}
