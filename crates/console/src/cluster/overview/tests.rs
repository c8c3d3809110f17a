//! Overviews of clusters with faults, and of logins that see a part of a cluster.

use std::collections::{BTreeMap, HashMap};

use thalweg_client::{BrokerAddress, PartitionReassignment, QuorumDescription, QuorumReplica};
use thalweg_wire::Uuid;
use thalweg_wire::request::metadata_response::{
    MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};
use tokio::time::Instant;

use super::*;
use crate::cluster::controllers::FencedBroker;
use crate::cluster::now_ms;

fn address(id: i32) -> BrokerAddress {
    BrokerAddress { id, host: "localhost".to_owned(), port: 9090 + id, rack: None }
}

/// A topic with the in-sync replicas of each partition, of which the first leads. Both brokers have replicas.
fn topic(name: &str, in_sync: &[&[i32]]) -> MetadataResponseTopic {
    let partitions = (0..).zip(in_sync).map(|(partition_index, isr)| MetadataResponsePartition {
        partition_index,
        leader_id: isr.first().copied().unwrap_or(-1),
        replica_nodes: vec![1, 2],
        isr_nodes: isr.to_vec(),
        ..MetadataResponsePartition::default()
    });
    MetadataResponseTopic {
        name: Some(name.to_owned()),
        partitions: partitions.collect(),
        ..MetadataResponseTopic::default()
    }
}

fn catalog(brokers: &[i32], topics: Vec<MetadataResponseTopic>) -> Arc<Catalog> {
    let response = MetadataResponse { topics, ..MetadataResponse::default() };
    Arc::new(Catalog::of(response, brokers.iter().map(|id| (*id, address(*id))).collect()))
}

fn directory(broker: i32, log_bytes: u64) -> LogDirectory {
    LogDirectory {
        broker,
        path: "/data".to_owned(),
        log_bytes: Some(log_bytes),
        replicas: Some(1),
        total_bytes: Some(1000),
        usable_bytes: Some(500),
        error: None,
    }
}

fn disks(directories: Vec<LogDirectory>, unknown: BTreeMap<i32, Absence>) -> Arc<Disks> {
    Arc::new(Disks { directories, unknown, sizes: HashMap::new(), at: Instant::now() })
}

fn node(id: i32, last_fetch_ms: i64) -> QuorumReplica {
    QuorumReplica {
        id,
        directory_id: Uuid(0),
        log_end_offset: 7,
        last_fetch_ms: Some(last_fetch_ms),
        last_caught_up_ms: None,
    }
}

/// The answers of controllers in order.
fn controllers() -> Controllers {
    let quorum = QuorumDescription {
        leader_id: Some(1),
        leader_epoch: 4,
        high_watermark: 7,
        voters: vec![node(1, 100_000)],
        observers: vec![node(2, 99_900)],
        nodes: BTreeMap::new(),
    };
    Controllers {
        quorum: Ok(quorum),
        reassignments: Ok(BTreeMap::new()),
        throttled: Ok(Vec::new()),
        throttle_unknown: BTreeMap::new(),
        fenced: Ok(BTreeMap::new()),
        read_at_ms: i64::MAX,
    }
}

fn denied() -> Absence {
    Absence { cause: Cause::Denied, why: "CLUSTER_AUTHORIZATION_FAILED".to_owned() }
}

fn denied_controllers() -> Arc<Controllers> {
    let (quorum, reassignments, throttled) = (Err(denied()), Err(denied()), Err(denied()));
    Arc::new(Controllers { quorum, reassignments, throttled, ..controllers() })
}

/// A cluster of two brokers in order.
fn in_order() -> Readings {
    Readings {
        catalog: catalog(&[1, 2], vec![topic("orders", &[&[1, 2], &[2, 1]])]),
        disks: disks(vec![directory(1, 300), directory(2, 200)], BTreeMap::new()),
        controllers: Arc::new(controllers()),
        min_isr: Arc::default(),
        hidden_topics: Ok(0),
        lags: Some(Ok(LagEvidence::default())),
        history: Vec::new(),
        unanswered: 0,
    }
}

pub(crate) fn healthy() -> Overview {
    in_order().overview()
}

/// The view of a login without any rights.
pub(crate) fn without_rights() -> Overview {
    let readings = Readings {
        catalog: catalog(&[1, 2], Vec::new()),
        disks: disks(Vec::new(), BTreeMap::from([(1, denied()), (2, denied())])),
        controllers: denied_controllers(),
        hidden_topics: Err(denied()),
        ..in_order()
    };
    readings.overview()
}

/// The view of a login that may describe one topic of two, and the cluster.
pub(crate) fn one_topic_of_two() -> Overview {
    Readings { hidden_topics: Ok(1), ..in_order() }.overview()
}

/// A new cluster of one broker.
pub(crate) fn empty() -> Overview {
    let readings = Readings {
        catalog: catalog(&[1], Vec::new()),
        disks: disks(vec![directory(1, 0)], BTreeMap::new()),
        ..in_order()
    };
    readings.overview()
}

/// A cluster of which broker 2 does not answer, before its session ends.
pub(crate) fn silent_broker() -> Overview {
    let silent = Absence::silent("Cannot connect to localhost:9092");
    let readings = Readings {
        disks: disks(vec![directory(1, 300)], BTreeMap::from([(2, silent)])),
        min_isr: Arc::new(MinIsr::of("orders", 2)),
        ..in_order()
    };
    readings.overview()
}

fn faults(overview: &Overview) -> Vec<&'static str> {
    overview.alerts.iter().map(|alert| alert.fault).collect()
}

#[test]
fn clusters_in_order_have_no_alerts() {
    for overview in [healthy(), empty()] {
        assert_eq!((faults(&overview), overview.health), (vec![], "healthy"));
    }
    let (healthy, empty) = (healthy(), empty());
    assert_eq!(
        (healthy.partitions, healthy.under_replicated, healthy.log_bytes),
        (Some(2), Some(0), Some(500))
    );
    assert_eq!((empty.topics, empty.partitions, empty.log_bytes), (Some(0), Some(0), Some(0)), "known zeros");
    assert_eq!(empty.brokers.iter().map(|broker| broker.state).collect::<Vec<_>>(), ["up"]);
}

#[test]
fn unknown_figures_are_none_for_a_login_without_rights() {
    let overview = without_rights();
    assert_eq!(faults(&overview), ["topics-hidden", "cluster-hidden", "throttles-unknown"]);
    assert_eq!(overview.health, "unknown");
    assert_eq!((overview.topics, overview.partitions, overview.under_replicated), (None, None, None));
    assert_eq!((overview.leaderless, overview.log_bytes, overview.hidden_topics), (None, None, None));
    assert_eq!(overview.log_bytes_unknown.as_deref(), Some("not visible to this login"));
    assert_eq!(overview.controller_unknown.as_deref(), Some("not visible to this login"));
    assert!(overview.brokers.iter().all(|broker| broker.replicas.is_none() && broker.log_bytes.is_none()));
}

#[test]
fn a_part_of_the_topics_is_marked_as_one() {
    let overview = one_topic_of_two();
    assert_eq!((faults(&overview), overview.health), (vec!["topics-hidden"], "unknown"));
    assert_eq!((overview.topics, overview.hidden_topics, overview.is_partial), (Some(1), Some(1), true));
    // Without DESCRIBE on the cluster, the number of the others is unknown.
    let readings = Readings {
        disks: disks(Vec::new(), BTreeMap::from([(1, denied()), (2, denied())])),
        controllers: denied_controllers(),
        hidden_topics: Err(denied()),
        ..in_order()
    };
    let overview = readings.overview();
    assert_eq!((overview.topics, overview.hidden_topics, overview.is_partial), (Some(1), None, true));
    assert_eq!(overview.health, "unknown");
}

#[test]
fn a_topic_in_a_list_has_the_faults_of_the_overview() {
    let catalog = catalog(&[1, 2], vec![topic("orders", &[&[1, 2], &[2, 1]])]);
    let line = catalog.topic("orders").expect("a topic");
    assert_eq!(line.faults(&catalog.states(|_| false)), (0, 0));
    assert_eq!(line.faults(&catalog.states(|id| id == 2)), (1, 2), "broker 2 hangs, and leads one of them");
    let overview = silent_broker();
    assert_eq!((overview.leaderless, overview.under_replicated), (Some(1), Some(2)));
}

#[test]
fn partitions_below_the_minimum_are_critical() {
    let short =
        || Readings { catalog: catalog(&[1, 2], vec![topic("orders", &[&[1, 2], &[1]])]), ..in_order() };
    assert_eq!(short().incomplete_topics(), BTreeSet::from(["orders".to_owned()]));
    let overview = Readings { min_isr: Arc::new(MinIsr::of("orders", 2)), ..short() }.overview();
    assert_eq!(faults(&overview), ["partitions-under-min-isr", "partitions-under-replicated"]);
    assert_eq!((overview.health, overview.under_min_isr), ("unavailable", Some(1)));
    assert_eq!(overview.alerts[0].page, Some("/topics?state=under-replicated&internal=on"));
    let overview = Readings { min_isr: Arc::new(MinIsr::of("orders", 1)), ..short() }.overview();
    assert_eq!(faults(&overview), ["partitions-at-min-isr", "partitions-under-replicated"]);
    assert_eq!(overview.health, "degraded");
    let overview = short().overview();
    assert_eq!(faults(&overview), ["partitions-under-replicated", "min-isr-unknown"], "it is not visible");
    assert_eq!((overview.health, overview.under_min_isr), ("degraded", None));
}

#[test]
fn replicas_that_a_reassignment_adds_are_not_missed() {
    let mut controllers = controllers();
    let moving = PartitionReassignment { replicas: vec![1, 2], adding: vec![2], removing: Vec::new() };
    controllers.reassignments = Ok(BTreeMap::from([(TopicPartition::new("orders", 1), moving)]));
    let readings = Readings {
        catalog: catalog(&[1, 2], vec![topic("orders", &[&[1, 2], &[1]])]),
        controllers: Arc::new(controllers),
        min_isr: Arc::new(MinIsr::of("orders", 1)),
        ..in_order()
    };
    assert_eq!(faults(&readings.overview()), Vec::<&str>::new());
}

#[test]
fn a_dead_broker_counts_before_and_after_its_session_ends() {
    let overview = silent_broker();
    assert_eq!(
        faults(&overview),
        ["partitions-offline", "partitions-under-min-isr", "brokers-silent", "partitions-under-replicated"]
    );
    assert_eq!((overview.health, overview.leaderless), ("unavailable", Some(1)));
    assert_eq!(overview.alerts[0].page, Some("/brokers"), "the metadata has a leader for each partition");
    assert_eq!((overview.brokers[1].state, overview.brokers[1].log_bytes), ("not reached", None));
    assert_eq!(overview.log_bytes_unknown.as_deref(), Some("broker 2 does not answer"));

    let mut controllers = controllers();
    controllers.fenced = Ok(BTreeMap::from([(2, FencedBroker { address: address(2), answers: false })]));
    let readings = Readings {
        catalog: catalog(&[1], vec![topic("orders", &[&[1], &[1]])]),
        disks: disks(vec![directory(1, 300)], BTreeMap::new()),
        controllers: Arc::new(controllers),
        min_isr: Arc::new(MinIsr::of("orders", 1)),
        ..in_order()
    };
    let overview = readings.overview();
    assert_eq!(faults(&overview), ["brokers-silent", "partitions-at-min-isr", "partitions-under-replicated"]);
    assert_eq!((overview.health, overview.brokers[1].state), ("degraded", "fenced, not reached"));
    assert_eq!(overview.log_bytes, None, "a part of the data is not the data");
    assert_eq!(overview.log_bytes_unknown.as_deref(), Some("broker 2 is not available"));
    assert_eq!(overview.directories_unknown, ["Broker 2: not available"]);
}

#[test]
fn a_silent_broker_is_no_proof_of_a_missing_controller() {
    let mut controllers = controllers();
    controllers.quorum = Err(Absence::silent("no answer within 3 s"));
    let silent = Absence::silent("Cannot connect to localhost:9092");
    let readings = Readings {
        catalog: catalog(&[1, 2], Vec::new()),
        disks: disks(vec![directory(1, 300)], BTreeMap::from([(2, silent)])),
        controllers: Arc::new(controllers),
        ..in_order()
    };
    assert_eq!(faults(&readings.overview()), ["brokers-silent", "quorum-unknown"]);
}

#[test]
fn a_broker_is_not_unregistered_while_fenced_brokers_are_unknown() {
    let mut controllers = controllers();
    controllers.fenced = Err(Absence::silent("no answer within 3 s"));
    let readings = Readings {
        catalog: catalog(&[1], vec![topic("orders", &[&[1], &[1]])]),
        disks: disks(vec![directory(1, 300)], BTreeMap::new()),
        controllers: Arc::new(controllers),
        ..in_order()
    };
    assert_eq!(readings.reach(2), Reach::Unknown);
    let overview = readings.overview();
    assert_eq!(overview.brokers[1].state, "not reached, or unregistered");
    assert!(overview.alerts[0].text.contains("is not reached, or not registered (2)"), "{overview:?}");
}

#[test]
fn controllers_disks_and_lags_are_judged() {
    let with = |change: &dyn Fn(&mut Readings)| {
        let mut readings = in_order();
        change(&mut readings);
        let overview = readings.overview();
        (faults(&overview), overview.health)
    };
    let controllers_with = |change: &dyn Fn(&mut Controllers)| {
        let mut controllers = controllers();
        change(&mut controllers);
        let controllers = Arc::new(controllers);
        with(&|readings| readings.controllers = Arc::clone(&controllers))
    };
    assert_eq!(
        controllers_with(&|controllers| controllers.quorum = Err(Absence::silent("no answer"))),
        (vec!["controller-missing"], "degraded")
    );
    assert_eq!(
        controllers_with(&|controllers| {
            if let Ok(quorum) = &mut controllers.quorum {
                quorum.observers[0].last_fetch_ms = Some(80_000);
            }
        }),
        (vec!["quorum-node-behind"], "degraded")
    );
    assert_eq!(
        controllers_with(&|controllers| controllers.throttled = Ok(vec![1])),
        (vec!["throttle-remains"], "healthy")
    );
    assert_eq!(
        controllers_with(&|controllers| {
            controllers.throttle_unknown.insert(2, Absence::silent("no answer within 2 s"));
        }),
        (vec!["throttles-unknown"], "healthy")
    );
    let failed = LogDirectory {
        error: Some("KAFKA_STORAGE_ERROR".to_owned()),
        log_bytes: None,
        replicas: None,
        ..directory(2, 0)
    };
    let mut readings = in_order();
    readings.disks = disks(vec![directory(1, 300), failed.clone()], BTreeMap::new());
    let overview = readings.overview();
    assert_eq!((overview.log_bytes, overview.brokers[1].log_bytes), (None, None));
    assert_eq!(overview.log_bytes_unknown.as_deref(), Some("broker 2 has an unusable log directory"));
    assert_eq!(
        with(&|readings| readings.disks = disks(vec![directory(1, 0), failed.clone()], BTreeMap::new())),
        (vec!["directory-failed"], "degraded")
    );
    assert_eq!(
        with(&|readings| {
            readings.lags = Some(Ok(LagEvidence { unknown: 1, ..LagEvidence::default() }));
        }),
        (vec!["lags-unknown"], "healthy")
    );
}

#[test]
fn an_overview_is_as_old_as_its_oldest_reading() {
    let now = now_ms();
    let is_recent = |read_at_ms: i64| (now..=now + 10_000).contains(&read_at_ms);
    assert!(is_recent(in_order().overview().read_at_ms));
    let old = Controllers { read_at_ms: now - 20_000, ..controllers() };
    let readings = Readings { controllers: Arc::new(old), ..in_order() };
    assert_eq!(readings.overview().read_at_ms, now - 20_000);
}
