//! Opens an outlet while its stream already runs. Retries an unreachable cluster for as long as the stream
//! waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_client::{Cluster, Delivery, ProducerConfig};
use thalweg_wire::ErrorCode;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};

use super::{TopicProducer, failed, with_grant};
use crate::retry::Retry;
use crate::stage::StageError;

/// Maximum time that a cluster may not know a topic, which it may be creating.
const UNKNOWN_TOPIC_MAX: Duration = Duration::from_secs(30);
/// Maximum pause, shorter than the age at which a reported failure counts as over.
const ASKED_AGAIN_MAX: Duration = Duration::from_secs(3);

/// An outlet that is being opened. Dropping it cancels the attempt.
pub struct Opening {
    attempt: Arc<Attempt>,
    task: JoinSet<Result<TopicProducer, StageError>>,
}

/// The task's parameters, and the last reason for a retry.
struct Attempt {
    cluster: Cluster,
    config: ProducerConfig,
    topic: Arc<str>,
    with_headers: bool,
    trouble: Mutex<Option<String>>,
}

impl Opening {
    /// Starts opening, on the current runtime. With a transactional id, also initialises transactions: the
    /// cluster aborts the open transaction of an earlier producer with this id, and fences that producer.
    pub fn begin(
        cluster: Cluster,
        config: ProducerConfig,
        topic: Arc<str>,
        with_headers: bool,
        report: impl FnMut(&Delivery<'_>) + Clone + Send + Sync + 'static,
    ) -> Opening {
        let attempt = Arc::new(Attempt { cluster, config, topic, with_headers, trouble: Mutex::default() });
        let mut task = JoinSet::new();
        let tried = Arc::clone(&attempt);
        task.spawn(async move { tried.outlet(report).await });
        Opening { attempt, task }
    }

    /// The outlet, if open by now. Returned once.
    pub fn opened(&mut self) -> Result<Option<TopicProducer>, StageError> {
        self.task.try_join_next().map(result).transpose()
    }

    /// Waits for the outlet until the deadline. Returned once.
    pub async fn opened_until(&mut self, until: Instant) -> Result<Option<TopicProducer>, StageError> {
        match timeout_at(until, self.task.join_next()).await {
            Ok(ended) => ended.map(result).transpose(),
            Err(_) => Err(self.attempt.given_up()),
        }
    }
}

fn result(ended: Result<Result<TopicProducer, StageError>, JoinError>) -> Result<TopicProducer, StageError> {
    ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

impl Attempt {
    async fn outlet(
        &self,
        report: impl FnMut(&Delivery<'_>) + Clone + Send + 'static,
    ) -> Result<TopicProducer, StageError> {
        let mut outlet = loop {
            self.find_topic().await?;
            let (cluster, config) = (self.cluster.clone(), self.config.clone());
            match TopicProducer::open(cluster, config, &self.topic, self.with_headers, report.clone()).await {
                Ok(outlet) => break outlet,
                // The cluster became unreachable after it returned the topic.
                Err(error) if error.is_retriable() => self.note(error.to_string()),
                Err(error) => return Err(self.failed(error)),
            };
        };
        if self.config.transactional_id.is_none() {
            return Ok(outlet);
        }
        loop {
            match outlet.producer().init_transactions().await {
                Ok(()) => return Ok(outlet),
                Err(error) if error.is_retriable() => self.note(error.to_string()),
                Err(error) => {
                    let id = self.config.transactional_id.as_deref().unwrap_or_default();
                    let right = format!("--transactional-id {id} --allow write,describe");
                    let reason = with_grant(error, &self.cluster, &right);
                    return Err(failed("Beginning with transactions", reason));
                }
            };
        }
    }

    /// Waits until the cluster knows the topic, which may still be in creation.
    async fn find_topic(&self) -> Result<(), StageError> {
        let mut retry = Retry::within(Duration::MAX);
        let mut unknown_since = None;
        loop {
            let error = match self.cluster.refresh(&[self.topic.to_string()], true).await {
                Ok(metadata) => {
                    let known = metadata.topics.get(&*self.topic);
                    match known.map_or(Some(ErrorCode::UnknownTopicOrPartition), |known| known.error) {
                        None => return Ok(()),
                        Some(code) => {
                            let since = *unknown_since.get_or_insert_with(Instant::now);
                            if !code.is_retriable() || since.elapsed() > UNKNOWN_TOPIC_MAX {
                                return Err(self.failed(code));
                            }
                            code.to_string()
                        }
                    }
                }
                Err(error) if error.is_retriable() => error.to_string(),
                Err(error) => return Err(self.failed(error)),
            };
            if self.note(error.clone()).is_none() {
                let topic = &*self.topic;
                tracing::warn!(topic, error, "Cannot write to the cluster yet, retrying");
            }
            sleep(retry.failed(Instant::now()).unwrap_or_default().min(ASKED_AGAIN_MAX)).await;
        }
    }

    /// Stores the reason for a retry, and returns the previous one.
    fn note(&self, trouble: String) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).replace(trouble)
    }

    fn given_up(&self) -> StageError {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.failed(trouble.unwrap_or_else(|| "no broker answers".to_owned()))
    }

    fn failed(&self, reason: impl ToString) -> StageError {
        let right = format!("--topic {} --allow write", self.topic);
        failed(format!("Topic {}", self.topic), with_grant(reason, &self.cluster, &right))
    }
}
