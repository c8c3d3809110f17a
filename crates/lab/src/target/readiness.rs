//! Readiness of a started cluster: every broker answers ApiVersions on its own port, and the metadata
//! contains all brokers.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::{Cluster, ConnectionOptions};
use tokio::time::Instant;

use super::bootstrap::connection_options;
use super::error::{BrokerNotReady, TargetError};
use super::plan::Plan;
use super::process::Brokers;
use super::security::NegotiatedSecurity;

/// The polling interval.
const POLL: Duration = Duration::from_millis(50);

/// Waits until all brokers of a plan are ready for clients with these properties, and returns the negotiated
/// security.
pub(super) async fn wait(
    brokers: &Brokers,
    plan: &Plan,
    properties: &BTreeMap<String, String>,
    timeout: Duration,
) -> Result<NegotiatedSecurity, TargetError> {
    let bootstrap = plan.bootstrap();
    let options = ConnectionOptions {
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(5),
        ..connection_options(&bootstrap, properties)?
    };
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(died) = brokers.died() {
            return Err(died.into());
        }
        let Err((index, reason)) = request_metadata(&bootstrap, &options).await else {
            return Ok(NegotiatedSecurity::of(&options.security));
        };
        if Instant::now() >= deadline {
            let name = plan.broker_names().swap_remove(index);
            let log_tail = brokers.log_tail(&name);
            let bootstrap = bootstrap.join(",");
            return Err(BrokerNotReady { bootstrap, waited: timeout, reason, name, log_tail }.into());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Checks readiness. Fails with the index of the broker that is not ready, and the reason.
async fn request_metadata(bootstrap: &[String], options: &ConnectionOptions) -> Result<(), (usize, String)> {
    for (index, address) in bootstrap.iter().enumerate() {
        let cluster = Cluster::connect(std::slice::from_ref(address), options)
            .await
            .map_err(|error| (index, error.to_string()))?;
        let known = cluster.metadata().brokers.len();
        if known < bootstrap.len() {
            let all = bootstrap.len();
            return Err((index, format!("{address} sees {known} of {all} brokers")));
        }
    }
    Ok(())
}
