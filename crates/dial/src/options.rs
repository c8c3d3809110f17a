//! Settings of one connection.

use std::sync::Arc;
use std::time::Duration;

use crate::answer_budget::AnswerBudget;
use crate::error::ClientError;
use crate::properties::{InvalidSetting, Properties};
use crate::security::Security;
use crate::waits::Waits;

/// Limits and timeouts of a connection. The defaults are those of Kafka's clients, where these have one.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// `client.id`: the client's name in the broker's logs and quotas.
    pub client_id: String,
    /// Time limit for connecting, and again for the exchange of versions;
    /// `socket.connection.setup.timeout.ms`.
    pub connect_timeout: Duration,
    /// Time limit for an answer; `request.timeout.ms`. A request can override it.
    pub request_timeout: Duration,
    /// Maximum number of requests in flight; further requests wait.
    pub in_flight_max: usize,
    /// Maximum size of an answer.
    pub frame_bytes_max: usize,
    /// `security.protocol` and its settings. A stream passed in by the caller is assumed to be encrypted
    /// already.
    pub security: Security,
    /// Receives reports of waits and failures of connections and their users.
    pub waits: Option<Waits>,
    /// Limits the memory of large answers of several connections together.
    pub answer_budget: Option<Arc<dyn AnswerBudget>>,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        ConnectionOptions {
            client_id: "thalweg".to_owned(),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            in_flight_max: 64,
            frame_bytes_max: 256 << 20,
            security: Security::default(),
            waits: None,
            answer_budget: None,
        }
    }
}

impl ConnectionOptions {
    /// Reports the outcome for a peer.
    pub fn ended<T>(&self, peer: &str, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
        if let Some(waits) = &self.waits {
            match &outcome {
                Ok(_) => waits.succeeded(peer),
                Err(error) => waits.failed(peer, error),
            }
        }
        outcome
    }

    /// Reports a failure that will be retried.
    pub fn failed(&self, subject: &str, error: &impl ToString) {
        if let Some(waits) = &self.waits {
            waits.failed(subject, error);
        }
    }

    /// Takes the common settings of producers and consumers out of `properties`. `kind` names a client
    /// without `client.id`.
    pub fn take(properties: &mut Properties, kind: &str) -> Result<ConnectionOptions, InvalidSetting> {
        let default = ConnectionOptions::default();
        Ok(ConnectionOptions {
            client_id: properties.take("client.id").unwrap_or_else(|| format!("thalweg-{kind}")),
            connect_timeout: properties.take_ms("socket.connection.setup.timeout.ms", 10_000)?,
            request_timeout: properties.take_ms("request.timeout.ms", 30_000)?,
            security: Security::take(properties)?,
            ..default
        })
    }
}
