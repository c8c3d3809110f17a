//! Verdicts on changes of configurations, for AlterConfigs and IncrementalAlterConfigs: a verdict of this
//! broker or of the controller for each resource of a request, in its order.

use crate::audit::Changes;
use std::collections::BTreeMap;
use thalweg_audit::Action;
use thalweg_config::{AlterError, table};
use thalweg_hash::HashMap;
use thalweg_metadata::{BrokerId, ConfigResourceKind};
use thalweg_wire::ErrorCode;

/// The answer for one resource: error code and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub code: i16,
    pub message: Option<String>,
}

impl Verdict {
    /// Nothing is wrong.
    pub const FINE: Verdict = Verdict { code: 0, message: None };

    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.code(), message: Some(message.into()) }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    pub fn bare(code: ErrorCode) -> Self {
        Self { code: code.code(), message: None }
    }
}

impl From<AlterError> for Verdict {
    fn from(error: AlterError) -> Self {
        Self { code: error.code(), message: Some(error.to_string()) }
    }
}

/// A resource of a request: its kind and its name.
pub type ResourceKey = (i8, String);

/// Answers for resources in the order of the request: this broker's verdicts, and the controller's for the
/// rest.
pub struct Verdicts {
    decided: Vec<(ResourceKey, Option<Verdict>)>,
}

impl Verdicts {
    /// Decides on each resource that this broker can decide on. A resource must appear once.
    pub fn decide<R>(
        resources: &[R],
        name: impl Fn(&R) -> (i8, &str),
        check: impl Fn(&R) -> Result<Option<Verdict>, Verdict>,
    ) -> Self {
        let mut counts: HashMap<(i8, &str), usize> = HashMap::default();
        for resource in resources {
            *counts.entry(name(resource)).or_insert(0) += 1;
        }
        let decided = resources.iter().map(|resource| {
            let (kind, text) = name(resource);
            let verdict = match counts[&(kind, text)] {
                1 => check(resource).unwrap_or_else(Some),
                _ => Some(Verdict::invalid("Each resource must appear at most once.")),
            };
            ((kind, text.to_owned()), verdict)
        });
        Self { decided: decided.collect() }
    }

    /// The resources that are for the controller.
    pub fn rest<R>(&self, resources: Vec<R>) -> Vec<R> {
        let rest = resources.into_iter().zip(&self.decided).filter(|(_, (_, verdict))| verdict.is_none());
        rest.map(|(resource, _)| resource).collect()
    }

    /// Adds the controller's answers, and returns the answers for all.
    pub fn complete(
        self,
        answers: Result<HashMap<ResourceKey, Verdict>, ErrorCode>,
    ) -> Vec<(ResourceKey, Verdict)> {
        let of_controller = |named: &ResourceKey| match &answers {
            Ok(answers) => {
                answers.get(named).cloned().unwrap_or_else(|| Verdict::bare(ErrorCode::UnknownServerError))
            }
            Err(error) => Verdict::bare(*error),
        };
        let complete = self.decided.into_iter().map(|(named, verdict)| {
            let verdict = verdict.unwrap_or_else(|| of_controller(&named));
            (named, verdict)
        });
        complete.collect()
    }
}

/// Refuses a change to another broker's settings. The empty name means all brokers.
pub fn check_own(node_id: BrokerId, name: &str) -> Result<(), Verdict> {
    if name.is_empty() || id_of(name)? == node_id.0 {
        return Ok(());
    }
    Err(Verdict::invalid(format!("Unexpected broker id, expected {node_id}, but received {name}")))
}

pub fn id_of(name: &str) -> Result<i32, Verdict> {
    name.parse().map_err(|_| Verdict::invalid(format!("Node id must be an integer, but it is: {name}")))
}

/// Notes the change of each resource, described by its settings, with its outcome.
pub fn note_changes<'a>(
    changes: &mut Changes<'_>,
    resources: impl Iterator<Item = (i8, &'a str, String)>,
    outcomes: impl Iterator<Item = (i8, &'a str, i16, Option<&'a str>)>,
) {
    let outcomes: BTreeMap<_, _> =
        outcomes.map(|(kind, name, code, message)| ((kind, name), (code, message))).collect();
    for (kind, name, configs) in resources {
        let outcome = outcomes.get(&(kind, name)).copied().unwrap_or((0, None));
        let kind = in_words(ConfigResourceKind::from_id(kind));
        changes.note(Action::Update, kind, name, configs, outcome);
    }
}

/// A value for audit events, hidden if it is or may be a secret. Unknown broker keys may hold secrets.
pub fn shown(kind: ConfigResourceKind, name: &str, value: Option<&str>) -> String {
    let is_secret =
        kind == ConfigResourceKind::Broker && table::settable_key(name).is_none_or(|key| key.is_sensitive());
    match (is_secret, value) {
        (_, None) => "null".to_owned(),
        (true, Some(_)) => "[hidden]".to_owned(),
        (false, Some(value)) => value.to_owned(),
    }
}

fn in_words(kind: ConfigResourceKind) -> &'static str {
    match kind {
        ConfigResourceKind::Topic => "Topic",
        ConfigResourceKind::Broker => "Broker",
        ConfigResourceKind::BrokerLogger => "BrokerLogger",
        ConfigResourceKind::ClientMetrics => "ClientMetrics",
        ConfigResourceKind::Group => "Group",
        ConfigResourceKind::Unknown(_) => "Unknown",
    }
}
