//! Metrics that clients push to this broker (KIP-714), as in `org.apache.kafka.server.ClientMetricsManager`.
//!
//! Administrators subscribe to metrics by configurations of the kind CLIENT_METRICS. A client gets its
//! subscription, then pushes metrics at the subscription's interval, as OTLP. The latest values are shown in
//! `/metrics`; nothing is kept on disk.
//!
//! ```text
//! Subscriptions   what is asked of which clients: pure
//! Instances       the clients that asked or pushed lately, with their values: pure, with a `now`
//! otlp            reads a push
//! ```
//!
//! There are limits for clients (as in Kafka), points of a push, values of all clients, and lengths of names.
//! Excess points are left out and counted. A principal with many clients or values makes room for principals
//! with fewer.

mod instances;
mod otlp;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use instances::{ClientSubscription, TelemetryFigures, TelemetryPush};
pub use subscriptions::TelemetryClient;

use instances::Instances;
use parking_lot::Mutex;
use subscriptions::Subscriptions;
use thalweg_metadata::{ConfigResourceKind, Image};
use thalweg_wire::ErrorCode;

/// A refused push or request for a subscription: the code, and the reason to log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TelemetryRefusal {
    /// The error in the answer.
    pub code: ErrorCode,
    pub reason: String,
}

/// The subscriptions and clients of this broker.
#[derive(Debug, Default)]
pub struct Telemetry {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    subscriptions: Subscriptions,
    instances: Instances,
}

impl Telemetry {
    /// Applies the subscriptions of an image. The next push of a client reports a changed subscription.
    pub fn subscribe(&self, image: &Image) {
        let of_clients = |kind| kind == ConfigResourceKind::ClientMetrics;
        let configs = image.configs().iter().filter(|(resource, _)| of_clients(resource.kind));
        let subscriptions =
            Subscriptions::new(configs.map(|(resource, config)| (resource.name.as_str(), &**config)));
        self.state.lock().subscriptions.replace(subscriptions);
    }

    /// The metrics for a client to push, and the interval.
    pub fn subscription(
        &self,
        client: &TelemetryClient<'_>,
        now_ms: i64,
    ) -> Result<ClientSubscription, TelemetryRefusal> {
        let state = &mut *self.state.lock();
        state.instances.subscription(&state.subscriptions, client, now_ms)
    }

    /// Stores the metrics of a push.
    pub fn push(
        &self,
        push: &TelemetryPush<'_>,
        client: &TelemetryClient<'_>,
        now_ms: i64,
    ) -> Result<(), TelemetryRefusal> {
        {
            let state = &mut *self.state.lock();
            state.instances.check(&state.subscriptions, push, client, now_ms)?;
        }
        // Without the lock, as decompressing a push may take long.
        let read = push.read();
        self.state.lock().instances.store(client.instance_id, read)
    }

    /// The clients and their latest values.
    pub fn figures(&self, now_ms: i64) -> TelemetryFigures {
        self.state.lock().instances.figures(now_ms)
    }
}
