//! The rights of a stream's principal. The streams of all users share the login of their host, so the cluster
//! cannot distinguish their principals: the host checks each topic, group and transactional id of a stream.
//! The login needs the rights, too.
//!
//! Rights are checked when a definition is accepted, when its stream starts, and periodically while it runs.
//! A stage with its own client settings has the rights of that login. The login of a stage follows from its
//! settings file, not from its address, since a server has several addresses. The host's login is sent to the
//! host's address only. A tap exposes another stream's messages, so it needs the rights of that stream.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::Cluster;
use crate::bad::OnError;
use crate::deployment::Deployment;
use crate::disk;
use crate::durability::keeping;
use crate::plan::{Input, Plan, StagePlan};

/// The principal of a definition without one: a client without a name.
const ANONYMOUS: &str = "User:ANONYMOUS";

/// An operation of Kafka on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    Alter,
    Read,
    Write,
}

/// A resource of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The cluster itself.
    Cluster,
    Topic(String),
    /// A consumer group.
    Group(String),
    /// A transactional id.
    TransactionalId(String),
}

/// A right that a stream needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub act: Act,
    pub resource: Resource,
}

/// Authorization of principals.
pub trait Rights: Send + Sync {
    /// True if a principal such as `User:ann` has a right.
    fn allow(&self, principal: &str, right: &Right) -> bool;
}

/// A right that the principal of a stream lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRight {
    /// The principal, if the definition names one.
    principal: Option<String>,
    right: Right,
}

impl fmt::Display for MissingRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Right { act, resource } = &self.right;
        let act = match act {
            Act::Alter => "alter",
            Act::Read => "read",
            Act::Write => "write",
        };
        let (resource, option) = match resource {
            Resource::Cluster => ("the cluster".to_owned(), "--cluster".to_owned()),
            Resource::Topic(name) => (format!("the topic {name}"), format!("--topic {name}")),
            Resource::Group(name) => (format!("the group {name}"), format!("--group {name}")),
            Resource::TransactionalId(name) => {
                (format!("the transactional id {name}"), format!("--transactional-id {name}"))
            }
        };
        match &self.principal {
            Some(principal) => write!(
                f,
                "{principal}, who has the stream run, may not {act} {resource}: thalweg security acl add {principal} \
                 {option} --allow {act} grants it; or let another user deploy the stream"
            ),
            None => write!(
                f,
                "The definition does not say who has the stream run, and {ANONYMOUS} may not {act} {resource}: deploy it \
                 again, so that it runs with the rights of the user who does"
            ),
        }
    }
}

impl std::error::Error for MissingRight {}

/// Checks that a principal has all these rights.
pub fn check(
    rights: &dyn Rights,
    principal: Option<&str>,
    needed: &BTreeSet<Right>,
) -> Result<(), MissingRight> {
    let requested = principal.unwrap_or(ANONYMOUS);
    match needed.iter().find(|right| !rights.allow(requested, right)) {
        Some(right) => Err(MissingRight { principal: principal.map(str::to_owned), right: right.clone() }),
        None => Ok(()),
    }
}

/// The rights that a plan needs, including its topics between stages. `process` is part of its transactional
/// ids.
pub fn needed(plan: &Plan, deployment: &Deployment, cluster: &Cluster, process: &str) -> BTreeSet<Right> {
    let right = |act, resource| Right { act, resource };
    // The definition itself needs this right.
    let mut needed = BTreeSet::from([right(Act::Alter, Resource::Cluster)]);
    if let OnError::DeadLetterTopic(topic) = &deployment.on_error {
        needed.insert(right(Act::Write, Resource::Topic(topic.clone())));
    }
    for stream in &plan.streams {
        for stage in stream.stages().filter(|stage| is_of(cluster, stage)) {
            let topics = stage.settings.optional_text("topics").unwrap_or_default();
            let topics = topics.split(',').map(str::trim).filter(|topic| !topic.is_empty());
            needed.extend(topics.map(|topic| right(Act::Read, Resource::Topic(topic.to_owned()))));
            let table = stage.settings.optional_text("table");
            needed.extend(table.map(|topic| right(Act::Read, Resource::Topic(topic.to_owned()))));
            let group = stage.settings.optional_text("group");
            needed.extend(group.map(|group| right(Act::Read, Resource::Group(group.to_owned()))));
            let topic = stage.settings.optional_text("topic");
            needed.extend(topic.map(|topic| right(Act::Write, Resource::Topic(topic.to_owned()))));
        }
        if let Input::Stage(source) = &stream.input
            && is_of(cluster, source)
        {
            for (_, topic) in keeping(stream, deployment.guarantee).topics() {
                let topic = Resource::Topic(topic.to_string());
                needed.extend([Act::Read, Act::Write].map(|act| right(act, topic.clone())));
            }
        }
        let ids = (0..stream.instances)
            .filter_map(|instance| deployment.guarantee.transactional_id(stream, process, instance));
        needed.extend(ids.map(|id| right(Act::Write, Resource::TransactionalId(id.to_string()))));
    }
    needed
}

/// The streams outside a plan that the plan taps.
pub fn tapped(plan: &Plan) -> BTreeSet<Arc<str>> {
    let tapped = plan.streams.iter().filter_map(|stream| match &stream.input {
        Input::Beside { stream, .. } => Some(Arc::clone(stream)),
        _ => None,
    });
    tapped.collect()
}

/// The first address other than the host's cluster to which a stage would send the host's login.
pub fn address_of_strangers<'a>(plan: &'a Plan, cluster: &Cluster) -> Option<&'a str> {
    let stages = plan.streams.iter().flat_map(|stream| stream.stages());
    let mut with_login = stages.filter(|stage| cluster.properties.is_some() && is_of(cluster, stage));
    let stranger = with_login.find(|stage| stage.settings.text("bootstrap") != cluster.bootstrap)?;
    Some(stranger.settings.text("bootstrap"))
}

/// True if a stage uses the login of its host.
fn is_of(cluster: &Cluster, stage: &StagePlan) -> bool {
    let is_same = || match (stage.settings.optional_text("properties"), cluster.properties.as_deref()) {
        (Some(one), Some(other)) => one == other || is_same_file(Path::new(one), Path::new(other)),
        (one, other) => one == other,
    };
    ["kafka", "enrich"].contains(&stage.module.name) && is_same()
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    disk::identity(one).is_some_and(|one| disk::identity(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{TopicScope, Transport};

    fn of(text: &str, properties: &str) -> Vec<String> {
        let cluster =
            Cluster { bootstrap: "own:1".to_owned(), properties: Some("own.properties".to_owned()) };
        let deployment = Deployment::parse(properties).unwrap_or_else(|error| panic!("{error}"));
        let plan = Plan::read_for(&cluster, text, None, "s", true).unwrap_or_else(|error| panic!("{error}"));
        let transport = Transport {
            cluster: cluster.clone(),
            partitions: None,
            lies: TopicScope::AroundInstancesAndAtNames,
        };
        let (plan, _) = transport.lay(plan, &deployment.counts);
        let needed = needed(&plan, &deployment, &cluster, "hosted");
        needed.into_iter().map(|right| format!("{:?} {:?}", right.act, right.resource)).collect()
    }

    #[test]
    fn every_resource_that_a_stream_names_needs_a_right() {
        assert_eq!(of("time | log", ""), ["Alter Cluster"]);
        let joined = of("time | enrich --table=t --as=a | log", "");
        assert_eq!(joined, ["Alter Cluster", "Read Topic(\"t\")"]);
        assert_eq!(
            of("kafka --topics='a, b' --group=g | kafka --topic=c", "onError=dead-letter:topic:d"),
            [
                "Alter Cluster",
                "Read Topic(\"a\")",
                "Read Topic(\"b\")",
                "Read Group(\"g\")",
                "Write Topic(\"c\")",
                "Write Topic(\"d\")"
            ]
        );
        assert_eq!(
            of("topic:a > filter --expression=true | topic:b", "guarantee=exactly-once"),
            [
                "Alter Cluster",
                "Read Topic(\"a\")",
                "Read Group(\"s\")",
                "Write Topic(\"b\")",
                "Write TransactionalId(\"s-s-topic:b-hosted.0\")"
            ]
        );
        assert_eq!(
            of("kafka --topics=a --group=g | counter", ""),
            [
                "Alter Cluster",
                "Read Topic(\"a\")",
                "Read Topic(\"g-counter-changelog\")",
                "Read Group(\"g\")",
                "Write Topic(\"g-counter-changelog\")",
                "Write TransactionalId(\"g-s-state-hosted.0\")"
            ]
        );
        let counted = of("time | filter --expression=true | log", "module.filter.count=2");
        assert_eq!(counted[1..3], ["Read Topic(\"s.0\")", "Read Topic(\"s.1\")"], "{counted:?}");
        assert!(counted.contains(&"Write Topic(\"s.1\")".to_owned()), "{counted:?}");
    }

    #[test]
    fn other_logins_have_rights_of_their_own() {
        for text in [
            "kafka --topics=a --bootstrap=other:1 | log",
            "kafka --topics=a --properties=other.properties | log",
            "kafka --topics=a --bootstrap=own:1 | log",
        ] {
            assert_eq!(of(text, ""), ["Alter Cluster"], "{text}");
        }
    }

    #[test]
    fn another_spelling_of_the_hosts_settings_is_the_hosts_login() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
        std::fs::write(at("own"), "").expect("a file");
        std::fs::write(at("other"), "").expect("a file");
        std::fs::create_dir(at("deep")).expect("a directory");
        std::os::unix::fs::symlink(at("own"), at("link")).expect("a link");
        std::fs::hard_link(at("own"), at("hard")).expect("a link");
        let own = Cluster { bootstrap: "own:1".to_owned(), properties: Some(at("own")) };
        let without = Cluster { bootstrap: "own:1".to_owned(), properties: None };
        let stage = |cluster: &Cluster, options: &str| {
            let text = format!("kafka --topics=a {options} | log");
            let plan =
                Plan::read_for(cluster, &text, None, "s", true).unwrap_or_else(|error| panic!("{error}"));
            let needed = needed(&plan, &Deployment::default(), cluster, "hosted").len() > 1;
            (needed, address_of_strangers(&plan, cluster).map(str::to_owned))
        };
        for spelling in ["own", "deep/../own", "./own", "link", "hard"] {
            let properties = format!("--properties={}", at(spelling));
            assert_eq!(stage(&own, &properties), (true, None), "{spelling}");
            let elsewhere = format!("{properties} --bootstrap=OWN:1");
            assert_eq!(stage(&own, &elsewhere), (true, Some("OWN:1".to_owned())), "{spelling}");
        }
        assert_eq!(stage(&own, &format!("--properties={} --bootstrap=b:1", at("other"))), (false, None));
        assert_eq!(stage(&own, "--bootstrap=b:1"), (false, None), "without a login");
        // A host without settings: at any of its addresses, clients have no name.
        assert_eq!(stage(&without, "--bootstrap=127.0.0.1:1"), (true, None));
        assert_eq!(stage(&without, &format!("--properties={}", at("own"))), (false, None));
    }

    #[test]
    fn a_lacking_right_is_named_with_what_grants_it() {
        struct SinglePrincipal(&'static str);
        impl Rights for SinglePrincipal {
            fn allow(&self, principal: &str, right: &Right) -> bool {
                principal == self.0 && right.act == Act::Alter
            }
        }
        let write = Right { act: Act::Write, resource: Resource::Topic("t".to_owned()) };
        let alter = Right { act: Act::Alter, resource: Resource::Cluster };
        let rights = SinglePrincipal("User:ann");
        let needed = BTreeSet::from([alter.clone(), write]);
        assert_eq!(check(&rights, Some("User:ann"), &BTreeSet::from([alter])), Ok(()));
        let error = check(&rights, Some("User:ann"), &needed).expect_err("it lacks one").to_string();
        assert!(error.contains("acl add User:ann --topic t --allow write"), "{error}");
        let error = check(&rights, None, &needed).expect_err("it has none").to_string();
        assert!(error.contains("User:ANONYMOUS may not alter the cluster: deploy it again"), "{error}");
        assert_eq!(
            check(&SinglePrincipal("User:ANONYMOUS"), None, &needed).expect_err("one").right.act,
            Act::Write
        );
    }
}
