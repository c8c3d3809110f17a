//! The answers of the controllers: quorum, reassignments, fenced brokers; and limits of replication.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::verdict::{Absence, Cause, ControllerFailure, answer_of_controllers};
use thalweg_client::{
    Admin, BrokerAddress, ClientError, Connection, Outcomes, PartitionReassignment, QuorumDescription,
    TopicPartition, in_parallel,
};

use super::now_ms;

/// Time limit for each answer. Without a majority, brokers search for an active controller much longer, and
/// people wait for the page.
pub(super) const WAIT: Duration = Duration::from_secs(3);
/// Time limit for the answer of each single broker, within the other limit.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Time limit for a connection to a fenced broker, which has most often stopped.
const CONNECT_WAIT: Duration = Duration::from_secs(1);

/// The state of the cluster beside its topics.
pub struct Controllers {
    pub quorum: Result<QuorumDescription, Absence>,
    pub reassignments: Result<BTreeMap<TopicPartition, PartitionReassignment>, Absence>,
    /// Brokers with a replication throttle.
    pub throttled: Result<Vec<i32>, Absence>,
    /// Brokers that did not answer whether they have one, or refused the answer.
    pub throttle_unknown: BTreeMap<i32, Absence>,
    /// Registered brokers that are fenced, if the cluster reports them.
    pub fenced: Result<BTreeMap<i32, FencedBroker>, Absence>,
    /// The time of the requests, in milliseconds since 1970.
    pub read_at_ms: i64,
}

/// A broker that is not in the metadata of clients.
pub struct FencedBroker {
    pub address: BrokerAddress,
    /// True if the broker accepts connections.
    pub answers: bool,
}

impl Controllers {
    /// Sends all requests at the same time. Requests to the controllers are sent over the connections of
    /// `forwarded`.
    pub async fn read(admin: &Admin, forwarded: &Admin) -> Controllers {
        let read_at_ms = now_ms();
        let of_brokers = admin.clone().with_answer_limit(ANSWER_WAIT);
        let (quorum, reassignments, throttles, fenced) = tokio::join!(
            quorum(forwarded),
            in_time(forwarded.list_reassignments(None)),
            in_time(of_brokers.describe_throttles()),
            in_time(fenced(admin)),
        );
        let mut throttle_unknown = BTreeMap::new();
        let answering = throttles.iter().flatten().filter(|(_, rate)| is_answer(rate)).map(|(id, _)| *id);
        let answering: Vec<i32> = answering.collect();
        let quorum = match quorum {
            Ok(quorum) => Ok(quorum),
            Err(unanswered) => unanswered.or_by_another(forwarded, &answering).await,
        };
        Controllers {
            quorum,
            reassignments,
            throttled: throttles.map(|throttles| throttled(throttles, &mut throttle_unknown)),
            throttle_unknown,
            fenced: fenced.and_then(|found| found.ok_or_else(fenced_unreported)),
            read_at_ms,
        }
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, Absence> {
    match tokio::time::timeout(WAIT, answer).await {
        Ok(answered) => answered.map_err(|error| Absence::of(&error)),
        Err(_) => Err(Absence::silent(format!("no answer within {} s", WAIT.as_secs()))),
    }
}

/// A description of the quorum that is missing.
struct UnansweredQuorum {
    /// The address of the broker that was asked; none without a connection.
    asked: Option<Arc<str>>,
    failure: ControllerFailure,
}

/// The quorum, asked of one broker.
async fn quorum(forwarded: &Admin) -> Result<QuorumDescription, UnansweredQuorum> {
    let unanswered = |asked| move |failure| UnansweredQuorum { asked, failure };
    let connected = answer_of_controllers(WAIT, forwarded.cluster().any()).await;
    let broker = connected.map_err(unanswered(None))?;
    let answer = answer_of_controllers(ANSWER_WAIT, forwarded.describe_quorum_by(&broker)).await;
    answer.map_err(unanswered(Some(Arc::clone(broker.peer()))))
}

impl UnansweredQuorum {
    /// The quorum by another broker, one of those that answer: the asked one may be silent, or alone be cut
    /// off from the controllers.
    async fn or_by_another(self, forwarded: &Admin, answering: &[i32]) -> Result<QuorumDescription, Absence> {
        let metadata = forwarded.cluster().metadata();
        let addresses: Vec<(i32, String)> =
            answering.iter().filter_map(|id| Some((*id, metadata.brokers.get(id)?.address()))).collect();
        let names: Vec<String> = addresses.iter().map(|(_, address)| address.clone()).collect();
        let is_of_controllers = self.is_of_controllers(&names);
        let UnansweredQuorum { asked, failure } = self;
        let is_silent = matches!(failure, ControllerFailure::Silent(_));
        let absence = match is_of_controllers {
            true => failure.into(),
            false => Absence::silent(failure.to_string()),
        };
        if is_of_controllers && !is_silent {
            return Err(absence);
        }
        let is_asked = |address: &str| asked.as_ref().is_some_and(|asked| **asked == *address);
        let another = addresses.iter().find(|(_, address)| !is_asked(address));
        let Some((another, _)) = another else { return Err(absence) };
        let connected = tokio::time::timeout(CONNECT_WAIT, forwarded.cluster().broker(*another)).await;
        let Ok(Ok(broker)) = connected else { return Err(absence) };
        let answer = answer_of_controllers(ANSWER_WAIT, forwarded.describe_quorum_by(&broker)).await;
        answer.map_err(Absence::from)
    }

    /// True if the failure is that of the controllers: the asked broker answers other requests, or has
    /// answered this one.
    fn is_of_controllers(&self, answering: &[String]) -> bool {
        match &self.failure {
            ControllerFailure::Silent(_) => {
                self.asked.as_ref().is_some_and(|asked| answering.iter().any(|one| **one == **asked))
            }
            ControllerFailure::Failed(error) => Absence::of(error).cause != Cause::Silent,
        }
    }
}

/// True if a broker has answered, be it with a refusal.
fn is_answer<T>(outcome: &Result<T, ClientError>) -> bool {
    outcome.as_ref().map_or_else(|error| Absence::of(error).cause != Cause::Silent, |_| true)
}

/// The brokers with a limit. Brokers without an answer are added to `unknown`: one refusal hides no limit
/// that another broker has reported.
fn throttled(throttles: Outcomes<i32, Option<u64>>, unknown: &mut BTreeMap<i32, Absence>) -> Vec<i32> {
    let mut throttled = Vec::new();
    for (id, rate) in throttles {
        match rate {
            Ok(rate) => throttled.extend(rate.map(|_| id)),
            Err(error) => drop(unknown.insert(id, Absence::of(&error))),
        }
    }
    throttled
}

fn fenced_unreported() -> Absence {
    let why = "the cluster does not report fenced brokers".to_owned();
    Absence { cause: Cause::NotServed, why }
}

/// The fenced brokers, by a connection to each; `None` if the cluster does not report them.
async fn fenced(admin: &Admin) -> Result<Option<BTreeMap<i32, FencedBroker>>, ClientError> {
    let cluster = admin.describe_cluster().await?;
    if !cluster.reports_fenced {
        return Ok(None);
    }
    let mut options = admin.cluster().options().clone();
    options.connect_timeout = options.connect_timeout.min(CONNECT_WAIT);
    let fenced = cluster.brokers.into_iter().filter(|broker| cluster.fenced.contains(&broker.id));
    let connecting = fenced.map(|address| {
        let options = options.clone();
        async move {
            let name = address.address();
            let connected = tokio::time::timeout(CONNECT_WAIT, Connection::connect(&name, &options)).await;
            (address.id, FencedBroker { address, answers: connected.is_ok_and(|it| it.is_ok()) })
        }
    });
    Ok(Some(in_parallel(connecting.collect()).await.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use thalweg_client::RefusedRequest;
    use thalweg_wire::ErrorCode;

    use super::*;

    #[test]
    fn a_broker_that_refuses_hides_no_throttle_of_another() {
        let refused = RefusedRequest {
            what: "Describing the configuration of broker 2".to_owned(),
            error_code: ErrorCode::ClusterAuthorizationFailed,
            message: None,
        };
        let answers = BTreeMap::from([(1, Ok(None)), (2, Err(refused.into())), (3, Ok(Some(5)))]);
        let mut unknown = BTreeMap::new();
        assert_eq!(throttled(answers, &mut unknown), [3]);
        assert_eq!(unknown.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(unknown[&2].cause, Cause::Denied);
    }

    #[test]
    fn a_missing_quorum_is_a_fault_of_the_controllers_if_the_broker_answers() {
        let unanswered = |asked: Option<&str>, failure| {
            let answering = ["b2:9092".to_owned(), "b3:9092".to_owned()];
            UnansweredQuorum { asked: asked.map(Arc::from), failure }.is_of_controllers(&answering)
        };
        let silent = || ControllerFailure::Silent(ANSWER_WAIT);
        assert!(unanswered(Some("b2:9092"), silent()));
        assert!(!unanswered(Some("b1:9092"), silent()), "broker 1 may be silent itself");
        let failed = |error: ClientError| ControllerFailure::Failed(error);
        assert!(!unanswered(None, failed(thalweg_client::BrokerUnknown { id: 1 }.into())));
        let refused = RefusedRequest {
            what: "Describing the quorum".to_owned(),
            error_code: ErrorCode::ClusterAuthorizationFailed,
            message: None,
        };
        assert!(unanswered(Some("b1:9092"), failed(refused.into())));
    }
}
