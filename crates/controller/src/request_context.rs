//! The requester of a request, and the authorization decisions on it.
//!
//! A request may be decided several times before its outcome counts. Decisions are therefore collected here,
//! and the controller's task passes the final ones to the log (`kafka.authorizer.logger`) and to the
//! [`Witness`].

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_security::Principal;
use thalweg_security::acl::{Answer, Authorizer, Decision, LoggedOutcomes, Operation, ResourceType};
use thalweg_wire::ApiKey;

use crate::requester::Requester;

/// Maximum number of decisions kept for one request. Beyond that, only their number is logged.
const RULINGS_MAX: usize = 10_000;

/// An observer of a controller's decisions, in addition to the log.
pub trait Witness: fmt::Debug + Send + Sync {
    /// True if the witness notes permissions as well as denials.
    fn wants_permissions(&self) -> bool;

    /// Notes a final decision.
    fn note(&self, decision: &Decision<'_>, client_id: Option<&str>);
}

/// One request: its requester, and the decisions on it.
#[derive(Debug)]
pub(crate) struct RequestContext {
    requester: Requester,
    api: ApiKey,
    client_id: Option<Arc<str>>,
    notes_permissions: bool,
    rulings: Mutex<Vec<Ruling>>,
    unkept: Mutex<usize>,
}

/// One authorization decision.
#[derive(Debug)]
struct Ruling {
    logged: LoggedOutcomes,
    operation: Operation,
    resource_type: ResourceType,
    resource_name: String,
    answer: Answer,
}

/// The decisions on one request.
#[derive(Debug)]
pub(crate) struct Rulings {
    principal: Principal,
    host: String,
    api: ApiKey,
    client_id: Option<Arc<str>>,
    rulings: Vec<Ruling>,
    unkept: usize,
}

impl RequestContext {
    pub fn new(requester: Requester, api: ApiKey) -> RequestContext {
        RequestContext {
            requester,
            api,
            client_id: None,
            notes_permissions: false,
            rulings: Mutex::default(),
            unkept: Mutex::default(),
        }
    }

    /// Keeps permissions as well, for the witness.
    pub fn noting_permissions(self, notes_permissions: bool) -> RequestContext {
        RequestContext { notes_permissions, ..self }
    }

    /// Sets the client id.
    pub fn with_client_id(self, client_id: Option<String>) -> RequestContext {
        RequestContext { client_id: client_id.map(Arc::from), ..self }
    }

    pub fn requester(&self) -> &Requester {
        &self.requester
    }

    /// The client id.
    pub fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// Checks one operation, and keeps the decision if the log or the witness needs it.
    pub fn may(
        &self,
        authorizer: &Authorizer,
        logged: LoggedOutcomes,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: &str,
    ) -> bool {
        let Requester::Peer { principal, host } = &self.requester else { return true };
        let answer = authorizer.authorize(principal, host, operation, resource_type, resource_name);
        let is_allowed = answer.is_allowed;
        let is_noted = logged.matters(is_allowed) && (!is_allowed || self.notes_permissions);
        if is_noted || logged.is_taken(is_allowed) {
            let mut rulings = self.rulings.lock();
            if rulings.len() < RULINGS_MAX {
                let resource_name = resource_name.to_owned();
                rulings.push(Ruling { logged, operation, resource_type, resource_name, answer });
            } else {
                *self.unkept.lock() += 1;
            }
        }
        is_allowed
    }

    /// Takes the decisions since the last call; `None` if there are none.
    pub fn take_rulings(&self) -> Option<Rulings> {
        let rulings = std::mem::take(&mut *self.rulings.lock());
        let unkept = std::mem::take(&mut *self.unkept.lock());
        let Requester::Peer { principal, host } = &self.requester else { return None };
        (!rulings.is_empty()).then(|| Rulings {
            principal: principal.clone(),
            host: host.clone(),
            api: self.api,
            client_id: self.client_id.clone(),
            rulings,
            unkept,
        })
    }
}

impl Rulings {
    /// Number of decisions.
    pub fn len(&self) -> usize {
        self.rulings.len()
    }

    /// Logs the decisions, and passes them to the witness.
    pub fn publish(&self, witness: Option<&dyn Witness>) {
        let Rulings { principal, host, api, client_id, rulings, unkept } = self;
        for ruling in rulings {
            let Ruling { logged, operation, resource_type, resource_name, answer } = ruling;
            let decision = Decision {
                principal: principal.as_str(),
                host,
                request: format_args!("{api:?}"),
                operation: *operation,
                resource_type: *resource_type,
                resource_name,
                count: 1,
                answer,
            };
            decision.log(*logged);
            if let Some(witness) = witness.filter(|_| logged.matters(answer.is_allowed)) {
                witness.note(&decision, client_id.as_deref());
            }
        }
        if *unkept > 0 {
            tracing::info!(
                target: "kafka.authorizer.logger",
                address = %host,
                "{unkept} more decisions about the same request {api:?} of {principal}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_security::acl::{CLUSTER_NAME, Rules};

    use super::*;

    #[test]
    fn decisions_about_one_request_are_bounded_and_taken_once() {
        let peer = Requester::peer(Principal::user("ann"), [10, 0, 0, 1].into());
        let (context, none) =
            (RequestContext::new(peer, ApiKey::CreateTopics), Authorizer::new(Rules::default(), []));
        let cluster = ResourceType::Cluster;
        assert!(!context.may(&none, LoggedOutcomes::IfAllowed, Operation::Create, cluster, CLUSTER_NAME));
        assert!(context.take_rulings().is_none(), "it refuses nothing");
        for _ in 0..RULINGS_MAX + 5 {
            assert!(!context.may(&none, LoggedOutcomes::Both, Operation::Create, ResourceType::Topic, "t"));
        }
        let taken = context.take_rulings().expect("there are some");
        assert_eq!((taken.len(), taken.unkept), (RULINGS_MAX, 5));
        assert!(context.take_rulings().is_none());
        let itself = RequestContext::new(Requester::ThisProcess, ApiKey::CreateTopics);
        assert!(itself.may(&none, LoggedOutcomes::Both, Operation::Create, cluster, CLUSTER_NAME));
    }
}
