use std::time::Duration;

use super::*;

fn broker(id: i32) -> BrokerEvidence {
    BrokerEvidence { id, reach: Reach::Answers, is_fenced: false, directories: Ok(Vec::new()) }
}

fn partition(in_sync: usize) -> PartitionState {
    PartitionState { has_leader: true, replicas: 3, adding: 0, in_sync, min_isr: Some(2) }
}

fn counts(states: &[PartitionState]) -> PartitionCounts {
    let mut counts = PartitionCounts::default();
    states.iter().for_each(|state| counts.add(state));
    counts
}

/// A cluster in order.
fn evidence() -> Evidence {
    Evidence {
        partitions: counts(&[partition(3)]),
        hidden_topics: Ok(0),
        brokers: vec![broker(1), broker(2)],
        silent_addresses: Vec::new(),
        differing: Vec::new(),
        quorum: Ok(QuorumEvidence { leader: Some(1), silent: Vec::new() }),
        reassignments: Ok(0),
        throttled: Ok(Vec::new()),
        lags: None,
    }
}

fn absence(cause: Cause) -> Absence {
    Absence { cause, why: "the reason".to_owned() }
}

fn directory(space: Option<(u64, u64)>, has_failed: bool) -> DirectoryEvidence {
    DirectoryEvidence { path: "/data".to_owned(), has_failed, space }
}

/// Every fault that a single change of the evidence can cause, with the change and its sentence.
type Case = (Fault, fn(&mut Evidence), &'static str);

const CASES: &[Case] = &[
    (
        Fault::PartitionsOffline,
        |e| e.partitions = counts(&[partition(3), PartitionState { has_leader: false, ..partition(3) }]),
        "1 of 2 partitions has no leader that answers: producers and consumers wait until a replica in sync is back.",
    ),
    (
        Fault::PartitionsUnderMinIsr,
        |e| e.partitions = counts(&[partition(1), partition(1)]),
        "2 of 2 partitions have fewer replicas in sync than min.insync.replicas: producers with acks=all are refused.",
    ),
    (
        Fault::PartitionsAtMinIsr,
        |e| e.partitions = counts(&[partition(2)]),
        "1 of 1 partitions has just min.insync.replicas in sync: the next failure stops producers with acks=all.",
    ),
    (
        Fault::PartitionsUnderReplicated,
        |e| e.partitions = counts(&[PartitionState { min_isr: Some(1), ..partition(2) }]),
        "1 of 1 partitions has fewer replicas in sync than assigned: fewer failures are survived.",
    ),
    (
        Fault::BrokersSilent,
        |e| e.brokers[1].reach = Reach::Silent,
        "1 of 2 brokers does not answer (2): its replicas do not count.",
    ),
    (
        Fault::BrokersUnregistered,
        |e| e.brokers[1].reach = Reach::Unregistered,
        "1 of 2 brokers is not in the cluster (2): replicas are assigned to it.",
    ),
    (
        Fault::BrokersUnregistered,
        |e| e.brokers[1].reach = Reach::Unknown,
        "1 of 2 brokers is not reached, or not registered (2): replicas are assigned to it.",
    ),
    (
        Fault::BrokersFenced,
        |e| e.brokers.iter_mut().for_each(|broker| broker.is_fenced = true),
        "2 of 2 brokers are fenced (1, 2): they lead nothing, and clients do not see them.",
    ),
    (
        Fault::AddressSilent,
        |e| e.silent_addresses = vec!["b:1".to_owned()],
        "b:1 of the bootstrap servers does not answer, and belongs to no known broker.",
    ),
    (
        Fault::MetadataDiffers,
        |e| e.differing = vec![2],
        "Broker 2 has other metadata than the other brokers.",
    ),
    (
        Fault::ControllerMissing,
        |e| e.quorum = Ok(QuorumEvidence { leader: None, silent: Vec::new() }),
        "There is no active controller: leaders do not change, and topics cannot be created.",
    ),
    (
        Fault::ControllerMissing,
        |e| e.quorum = Err(absence(Cause::Failed)),
        "No active controller answers: leaders do not change, and topics cannot be created.",
    ),
    (
        Fault::QuorumUnknown,
        |e| e.quorum = Err(absence(Cause::Silent)),
        "The controller quorum is unknown: the reason.",
    ),
    (
        Fault::ReassignmentsUnknown,
        |e| e.reassignments = Err(absence(Cause::Silent)),
        "Reassignments are unknown: the reason.",
    ),
    (
        Fault::QuorumNodeBehind,
        |e| e.quorum = Ok(QuorumEvidence { leader: Some(1), silent: vec![3] }),
        "Controller 3 does not follow the metadata.",
    ),
    (
        Fault::DirectoryFailed,
        |e| e.brokers[0].directories = Ok(vec![directory(None, true)]),
        "Log directory /data of broker 1 has failed: its replicas are offline.",
    ),
    (
        Fault::DiskFull,
        |e| e.brokers[0].directories = Ok(vec![directory(Some((1000, 29)), false)]),
        "2 % of the disk of log directory /data of broker 1 are free: a full disk stops writes.",
    ),
    (
        Fault::DiskNearlyFull,
        |e| e.brokers[0].directories = Ok(vec![directory(Some((1000, 99)), false)]),
        "9 % of the disk of log directory /data of broker 1 are free: a full disk stops writes.",
    ),
    (
        Fault::ThrottleRemains,
        |e| e.throttled = Ok(vec![1, 2]),
        "A replication throttle remains on 2 brokers (1, 2), although no partition is being reassigned: throttled \
         replicas catch up no faster.",
    ),
    (
        Fault::LagGrows,
        |e| {
            let growing = GrowingLag {
                group: "billing".to_owned(),
                from: 11_000,
                to: 139_000,
                over: Duration::from_secs(280),
            };
            e.lags = Some(Ok(LagEvidence { growing: vec![growing], ..LagEvidence::default() }));
        },
        "The lag of group billing grows: from 11000 to 139000 records within 5 minutes.",
    ),
    (
        Fault::TopicsHidden,
        |e| e.hidden_topics = Ok(1),
        "1 topic is not visible to this login, and not counted.",
    ),
    (
        Fault::ClusterHidden,
        |e| e.quorum = Err(absence(Cause::Denied)),
        "Not visible to this login, which lacks DESCRIBE on the cluster: the controller quorum.",
    ),
    (
        Fault::DirectoriesUnknown,
        |e| e.brokers[1].directories = Err(absence(Cause::Failed)),
        "The log directories of broker 2 are unknown: the reason.",
    ),
    (
        Fault::ThrottlesUnknown,
        |e| e.throttled = Err(absence(Cause::Denied)),
        "Replication throttles are not visible to this login, which lacks DESCRIBE_CONFIGS on the cluster.",
    ),
    (
        Fault::ThrottlesUnknown,
        |e| e.throttled = Err(absence(Cause::Silent)),
        "Replication throttles are unknown: the reason.",
    ),
    (
        Fault::LagsUnknown,
        |e| e.lags = Some(Ok(LagEvidence { unknown: 2, ..LagEvidence::default() })),
        "The lag of 2 groups is unknown: no answer, or not visible to this login.",
    ),
    (
        Fault::LagsUnknown,
        |e| e.lags = Some(Err(absence(Cause::Silent))),
        "The lags of groups are unknown: the reason.",
    ),
];

#[test]
fn each_fault_has_its_verdict() {
    assert_eq!(evidence().judge(), []);
    assert_eq!(Health::of(&[]), Health::Healthy);
    for (fault, change, text) in CASES {
        let mut evidence = evidence();
        change(&mut evidence);
        let verdicts = evidence.judge();
        let verdict = verdicts.iter().find(|verdict| verdict.fault == *fault);
        assert_eq!(verdict.map(|verdict| verdict.text.as_str()), Some(*text), "{verdicts:?}");
        // Too few replicas in sync are fewer than assigned, too.
        let others = verdicts.iter().filter(|verdict| verdict.fault != *fault);
        let others: Vec<Fault> = others.map(|verdict| verdict.fault).collect();
        let expected = match fault {
            Fault::PartitionsUnderMinIsr | Fault::PartitionsAtMinIsr => {
                vec![Fault::PartitionsUnderReplicated]
            }
            _ => Vec::new(),
        };
        assert_eq!(others, expected, "{fault:?}");
        let worst = others.iter().map(|fault| fault.health()).chain([fault.health()]).max();
        assert_eq!(Some(Health::of(&verdicts)), worst);
    }
}

#[test]
fn a_login_without_rights_sees_a_cluster_of_unknown_health() {
    let denied = || absence(Cause::Denied);
    let mut evidence = evidence();
    (evidence.partitions, evidence.hidden_topics) = (PartitionCounts::default(), Err(denied()));
    (evidence.quorum, evidence.reassignments, evidence.throttled) =
        (Err(denied()), Err(denied()), Err(denied()));
    evidence.brokers.iter_mut().for_each(|broker| broker.directories = Err(denied()));
    let verdicts = evidence.judge();
    let texts: Vec<&str> = verdicts.iter().map(|verdict| verdict.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "Topics that this login may not describe are not counted.",
            "Not visible to this login, which lacks DESCRIBE on the cluster: the controller quorum, reassignments, \
             log directories.",
            "Replication throttles are not visible to this login, which lacks DESCRIBE_CONFIGS on the cluster.",
        ]
    );
    assert_eq!(Health::of(&verdicts), Health::Unknown);
    evidence.lags = Some(Ok(LagEvidence::default()));
    assert!(evidence.judge()[1].text.ends_with("log directories, groups that it may not describe."));
    evidence.partitions = counts(&[PartitionState { has_leader: false, ..partition(3) }]);
    let verdicts = evidence.judge();
    assert_eq!(Health::of(&verdicts), Health::Unavailable, "a known fault counts more than a gap");
    assert_eq!(verdicts[0].fault, Fault::PartitionsOffline);
}

#[test]
fn requests_that_a_cluster_does_not_serve_are_no_fault() {
    let mut evidence = evidence();
    let absent = || absence(Cause::NotServed);
    (evidence.quorum, evidence.reassignments, evidence.throttled) =
        (Err(absent()), Err(absent()), Err(absent()));
    evidence.hidden_topics = Err(absent());
    evidence.brokers[0].directories = Err(absent());
    assert_eq!(evidence.judge(), []);
}

#[test]
fn a_silent_broker_is_judged_once() {
    let mut evidence = evidence();
    evidence.brokers[1].reach = Reach::Silent;
    evidence.brokers[1].directories = Err(absence(Cause::Silent));
    evidence.brokers[1].is_fenced = true;
    let faults: Vec<Fault> = evidence.judge().iter().map(|verdict| verdict.fault).collect();
    assert_eq!(faults, [Fault::BrokersSilent]);
}

#[test]
fn a_throttle_of_a_reassignment_is_no_fault() {
    let mut evidence = evidence();
    (evidence.throttled, evidence.reassignments) = (Ok(vec![1]), Ok(4));
    assert_eq!(evidence.judge(), []);
}

#[test]
fn unknown_reassignments_may_explain_missing_replicas() {
    let mut evidence = evidence();
    evidence.reassignments = Err(absence(Cause::Failed));
    evidence.partitions = counts(&[PartitionState { min_isr: Some(1), ..partition(2) }]);
    let texts: Vec<String> = evidence.judge().into_iter().map(|verdict| verdict.text).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert_eq!(texts[1], "Reassignments are unknown: the reason. Replicas that they add count as missing.");
}

#[test]
fn partitions_are_counted_by_their_states() {
    assert!(partition(2).is_under_replicated() && partition(2).is_at_min_isr());
    let moving = PartitionState { adding: 1, min_isr: Some(1), ..partition(2) };
    assert!(!moving.is_under_replicated(), "a replica that is being added is not missed yet");
    let alone = PartitionState { replicas: 1, in_sync: 1, ..partition(1) };
    assert_eq!((alone.is_under_min_isr(), alone.is_at_min_isr()), (Some(false), false), "as in Kafka");
    let unknown = PartitionState { min_isr: None, ..partition(2) };
    assert_eq!((unknown.is_under_min_isr(), unknown.is_at_min_isr()), (None, false));
    let whole = PartitionState { min_isr: None, ..partition(3) };
    assert_eq!(whole.is_under_min_isr(), Some(false), "no minimum is above the number of replicas");
    let counts = counts(&[partition(3), partition(1), unknown]);
    assert_eq!(
        (counts.total, counts.under_replicated, counts.under_min_isr, counts.min_isr_unknown),
        (3, 2, 1, 1)
    );
    let mut evidence = evidence();
    evidence.partitions = counts;
    let verdicts = evidence.judge();
    let verdict =
        verdicts.iter().find(|verdict| verdict.fault == Fault::MinIsrUnknown).expect("it is unknown");
    assert!(verdict.text.starts_with("1 of 3 partitions may refuse acks=all: "), "{}", verdict.text);
}

#[test]
fn growth_of_a_lag_is_distinct_from_its_ups_and_downs() {
    let every_two_seconds = |lag: &dyn Fn(i64) -> i64| -> Option<GrowingLag> {
        let history: Vec<(i64, i64)> = (0..120).map(|number| (number * 2000, lag(number))).collect();
        GrowingLag::find("billing", &history)
    };
    let grown = every_two_seconds(&|number| 11_000 + number * 1_000).expect("it grows");
    assert_eq!((grown.from, grown.to, grown.over.as_secs()), (11_000, 130_000, 238));
    // Commits every ten seconds, at the rate of the producers.
    assert_eq!(every_two_seconds(&|number| 5_000 + (number % 5) * 2_000), None);
    assert!(every_two_seconds(&|number| 5_000 + (number % 5) * 2_000 + number * 100).is_some());
    assert_eq!(every_two_seconds(&|number| 139_000 - number), None, "the group catches up");
    assert_eq!(every_two_seconds(&|number| number * 5), None, "a small lag is normal");
    let short: Vec<(i64, i64)> = (0..20).map(|number| (number * 2000, 5_000 + number * 1_000)).collect();
    assert_eq!(GrowingLag::find("billing", &short), None, "it is too early to say");
    assert_eq!(GrowingLag::find("billing", &[]), None);
    let long: Vec<(i64, i64)> = (0..120).map(|number| (number * 60_000, number * 1_000)).collect();
    assert_eq!(GrowingLag::find("billing", &long).map(|lag| lag.over), Some(LAG_WINDOW));
    let falling = [(0, 5_000), (30_000, 100), (60_000, 1_500), (90_000, 1_500)];
    assert_eq!(GrowingLag::find("billing", &falling), None, "it was higher");
}

#[test]
fn many_growing_lags_take_few_lines() {
    let over = Duration::from_secs(60);
    let grown = |to: i64| GrowingLag { group: format!("group-{to}"), from: 1, to, over };
    let growing = (1..=5).map(grown).collect();
    let lags = LagEvidence { growing, unwatched: 3, ..LagEvidence::default() };
    let texts: Vec<String> = Evidence { lags: Some(Ok(lags)), ..evidence() }
        .judge()
        .into_iter()
        .map(|verdict| verdict.text)
        .collect();
    assert_eq!(texts.len(), 5, "{texts:?}");
    assert_eq!(texts[4], "The lag of 3 groups is not watched: there are too many.");
    assert!(texts[0].ends_with("within 1 minute."), "{texts:?}");
    assert!(texts[0].contains("group-5") && texts[3] == "The lag of 2 further groups grows.", "{texts:?}");
}

/// Alerts and verdicts on the same fault have the same severity.
#[test]
fn alerts_have_the_severities_of_verdicts() {
    let rules = include_str!("../../../../deploy/prometheus/alerts.yml");
    for (fault, alert) in [
        (Fault::PartitionsOffline, "ThalwegOfflinePartitions"),
        (Fault::PartitionsUnderMinIsr, "ThalwegUnderMinIsr"),
        (Fault::PartitionsUnderReplicated, "ThalwegUnderReplicated"),
        (Fault::BrokersSilent, "ThalwegNodeDown"),
        (Fault::BrokersFenced, "ThalwegBrokerFenced"),
        (Fault::ControllerMissing, "ThalwegNoBrokerController"),
        (Fault::DirectoryFailed, "ThalwegLogDirectoryFailed"),
        (Fault::DiskFull, "ThalwegDiskFull"),
        (Fault::DiskNearlyFull, "ThalwegDiskFillsUp"),
        (Fault::LagGrows, "ThalwegGroupLagGrows"),
    ] {
        let rule = rules.split("- alert: ").find(|rule| rule.lines().next() == Some(alert));
        let rule = rule.unwrap_or_else(|| panic!("there is no alert {alert}"));
        let severity = format!("severity: {} ", fault.severity().name());
        assert!(rule.contains(&severity), "{alert} is not {severity}: {rule}");
    }
}
