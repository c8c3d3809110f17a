//! Answers of the controllers, which come through a broker.

use std::time::Duration;

use thalweg_dial::ClientError;
use tokio::time::timeout;

use super::{Absence, Cause};

/// Why an answer of the controllers is missing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ControllerFailure {
    #[error("no active controller has answered within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error(transparent)]
    Failed(#[from] ClientError),
}

/// An answer of the controllers within a time limit. A broker holds such a request for as long as no
/// controller is active. The controllers are silent, not the broker, if the request times out: the broker has
/// accepted the connection before.
pub async fn answer_of_controllers<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ControllerFailure> {
    match timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(ClientError::RequestTimedOut(late))) => Err(ControllerFailure::Silent(late.timeout)),
        Ok(Err(error)) => Err(ControllerFailure::Failed(error)),
        Err(_) => Err(ControllerFailure::Silent(limit)),
    }
}

impl From<ControllerFailure> for Absence {
    fn from(failure: ControllerFailure) -> Absence {
        match failure {
            ControllerFailure::Silent(_) => Absence { cause: Cause::Failed, why: failure.to_string() },
            ControllerFailure::Failed(error) => Absence::of(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_dial::{BrokerUnknown, RequestTimedOut};
    use thalweg_wire::ApiKey;

    use super::*;

    async fn absence(answer: impl Future<Output = Result<(), ClientError>>) -> (Cause, String) {
        let failure = answer_of_controllers(Duration::from_secs(5), answer).await.expect_err("no answer");
        let Absence { cause, why } = failure.into();
        (cause, why)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_the_controllers_leave_unanswered_is_no_silence_of_the_broker() {
        let timeout = Duration::from_millis(4000);
        let late = RequestTimedOut { peer: "localhost:9092".into(), api: ApiKey::DescribeQuorum, timeout };
        let (cause, why) = absence(async { Err(late.into()) }).await;
        assert_eq!((cause, &*why), (Cause::Failed, "no active controller has answered within 4000 ms"));
        let (cause, why) = absence(std::future::pending()).await;
        assert_eq!((cause, &*why), (Cause::Failed, "no active controller has answered within 5000 ms"));
        let (cause, _) = absence(async { Err(BrokerUnknown { id: 1 }.into()) }).await;
        assert_eq!(cause, Cause::Silent, "the request has reached no broker");
    }
}
