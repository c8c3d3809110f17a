//! Sends metrics to a receiver of OTLP over HTTP, at the configured interval. An unsent page is dropped,
//! because the next page has the same counters.

use super::exposition::{Exposition, Form};
use super::{Metrics, otlp};
use crate::https::{self, HttpsClient, with_causes};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_config::{MetricsSettings, OtlpHeaders};
use thalweg_security::visible::visible;
use tokio::time::{MissedTickBehavior, interval};

/// Timeout of the receiver.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of the receiver's answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The path of receivers.
const PATH: &str = "/v1/metrics";

/// Numbers of sent and of failed pages.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    pub sent: AtomicU64,
    pub failed: AtomicU64,
}

/// The task that sends metrics.
pub(crate) struct Push {
    metrics: Metrics,
    url: String,
    interval: Duration,
    headers: OtlpHeaders,
    resource: Vec<(&'static str, String)>,
    exports: Arc<Exports>,
}

/// A failure to send a page.
#[derive(Debug, thiserror::Error)]
enum SendFault {
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{0}")]
    Http(String),
    #[error("it answers with status {status}: {text}")]
    Status { status: u16, text: String },
    #[error("it does not answer within {} s", ANSWERED_WITHIN.as_secs())]
    Late,
    #[error("the metrics could not be read")]
    Panicked,
}

impl Push {
    /// The push task; `None` without a configured receiver.
    pub fn of(metrics: &Metrics, cluster_id: &str, node_id: i32) -> Option<Push> {
        let MetricsSettings { otlp_endpoint, otlp_interval, otlp_headers, .. } = &metrics.config.metrics;
        let endpoint = otlp_endpoint.as_deref()?;
        let has_path = endpoint.splitn(4, '/').nth(3).is_some_and(|path| !path.is_empty());
        let url =
            if has_path { endpoint.to_owned() } else { format!("{}{PATH}", endpoint.trim_end_matches('/')) };
        let resource = vec![
            ("service.name", "thalweg".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.namespace", cluster_id.to_owned()),
            ("service.instance.id", node_id.to_string()),
        ];
        let (metrics, exports) = (metrics.clone(), Arc::clone(&metrics.exports));
        Some(Push {
            metrics,
            url,
            interval: *otlp_interval,
            headers: otlp_headers.clone(),
            resource,
            exports,
        })
    }

    /// Sends pages periodically.
    pub async fn run(self) {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut client, mut has_failed) = (None, false);
        loop {
            ticks.tick().await;
            let sent = tokio::time::timeout(ANSWERED_WITHIN, self.send(&mut client)).await;
            match sent.unwrap_or(Err(SendFault::Late)) {
                Ok(()) => {
                    self.exports.sent.fetch_add(1, Ordering::Relaxed);
                    if std::mem::take(&mut has_failed) {
                        tracing::info!(url = self.url, "Metrics are sent again");
                    }
                }
                Err(error) => {
                    self.exports.failed.fetch_add(1, Ordering::Relaxed);
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(url = self.url, %error, "Failed to send metrics, retrying (thalweg.otlp.endpoint)");
                    }
                }
            }
        }
    }

    async fn send(&self, client: &mut Option<HttpsClient<Full<Bytes>>>) -> Result<(), SendFault> {
        let metrics = self.metrics.clone();
        let page = tokio::task::spawn_blocking(move || {
            let mut page = Exposition::new(Form::Otlp, usize::MAX);
            metrics.expose(&mut page);
            page.take()
        });
        let page = page.await.map_err(|_| SendFault::Panicked)?;
        let resource: Vec<_> = self.resource.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let body = Full::new(Bytes::from(otlp::request(&resource, &page)));
        let mut request = hyper::Request::post(&self.url).header("content-type", Form::Otlp.content_type());
        for (name, value) in &self.headers.0 {
            request = request.header(name, value);
        }
        let request = request.body(body).map_err(|error| SendFault::Http(error.to_string()))?;
        let client = match client {
            Some(client) => client,
            None => client.insert(https::client().map_err(|error| SendFault::Tls(error.to_string()))?),
        };
        let answer = client.request(request).await.map_err(|error| SendFault::Http(with_causes(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| SendFault::Http(error.to_string()))?.to_bytes();
        if status.is_success() {
            return Ok(());
        }
        let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        let text = visible(&text).into_owned();
        Err(SendFault::Status { status: status.as_u16(), text })
    }
}
