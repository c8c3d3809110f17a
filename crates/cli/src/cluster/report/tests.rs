//! The display of a cluster's status, and its health.

use thalweg_client::verdict::DirectoryEvidence;

use super::*;
use crate::cluster::state::{BrokerStatus, Quorum, QuorumNode};
use crate::output::Style;

fn partition(index: i32, leader: Option<i32>, isr: &[i32], min_isr: usize) -> PartitionStatus {
    PartitionStatus {
        topic: "orders".to_owned(),
        partition: index,
        leader,
        leader_answers: leader.is_some(),
        replicas: vec![1, 2, 3],
        adding: 0,
        isr: isr.to_vec(),
        live_isr: isr.to_vec(),
        min_isr: Some(min_isr),
    }
}

fn broker(id: i32) -> BrokerStatus {
    BrokerStatus {
        id,
        address: Some(format!("localhost:{}", 9091 + id)),
        rack: (id == 1).then(|| "a".to_owned()),
        is_fenced: false,
        probe: ProbeResult::Answers,
        leaders: 1,
        replicas: 3,
        directories: Ok(Vec::new()),
    }
}

fn node(id: i32, role: Role, log_end_offset: i64, silent_ms: i64) -> QuorumNode {
    QuorumNode { id, role, address: None, log_end_offset, silent_ms: Some(silent_ms) }
}

fn status(partitions: Vec<PartitionStatus>) -> Status {
    Status {
        cluster_id: "4L6g3nShT-eMCtK--X86sw".to_owned(),
        brokers: vec![broker(1), broker(2)],
        not_reached: Vec::new(),
        differing: Vec::new(),
        topics: 1,
        partitions,
        hidden_topics: Ok(0),
        throttled: Ok(Vec::new()),
        reassignments: Ok(Vec::new()),
        quorum: Ok(Quorum {
            leader: 1,
            epoch: 3,
            high_watermark: 70,
            nodes: vec![node(1, Role::Leader, 70, 0), node(2, Role::Observer, 65, 120)],
        }),
    }
}

fn health(status: &Status) -> Health {
    Health::of(&status.verdicts())
}

fn problems(status: &Status) -> Vec<String> {
    status.verdicts().into_iter().map(|verdict| verdict.text).collect()
}

#[test]
fn healthy_clusters_are_shown_in_few_lines() {
    let status = status(vec![partition(0, Some(1), &[1, 2, 3], 2)]);
    assert_eq!(
        status.to_text(Style::PLAIN),
        "Cluster 4L6g3nShT-eMCtK--X86sw: 2 brokers, 1 topic, 1 partition\n\
         Health: healthy\n\
         \n\
         BROKER  ADDRESS         RACK  STATE  LEADERS  REPLICAS\n\
         1       localhost:9092  a     up     1        3\n\
         2       localhost:9093  -     up     1        3\n\
         \n\
         Partitions without a leader that answers: none\n\
         Partitions with fewer in sync than min.insync.replicas: none\n\
         Under-replicated partitions: none\n\
         Reassignments: none\n\
         \n\
         Controller quorum: node 1 leads in epoch 3, all is committed up to offset 70\n\
         \x20 NODE  ROLE      ADDRESS  LOG END  LAG  LAST FETCH\n\
         \x20 1     leader    -        70       0    -\n\
         \x20 2     observer  -        65       5    0.1 s ago\n"
    );
    assert_eq!(status.judge().map_err(|unhealthy| unhealthy.code), Ok(()));
}

#[test]
fn a_login_that_sees_no_topic_gets_no_zeros() {
    let mut blind = status(Vec::new());
    blind.topics = 0;
    blind.hidden_topics =
        Err(Absence { cause: Cause::Denied, why: "CLUSTER_AUTHORIZATION_FAILED".to_owned() });
    let text = blind.to_text(Style::PLAIN);
    for part in [
        "2 brokers, topics unknown, partitions unknown\n",
        "1       localhost:9092  a     up     -        -\n",
        "Under-replicated partitions: unknown (the login sees no topic)\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = blind.to_json();
    assert!(json["topics"].is_null() && json["partitions"].is_null(), "{json:#}");
    assert!(json["brokers"][0]["leaders"].is_null() && json["brokers"][0]["replicas"].is_null(), "{json:#}");
    let partial = Status { hidden_topics: Ok(1), ..status(vec![partition(0, Some(1), &[1, 2, 3], 2)]) };
    let text = partial.to_text(Style::PLAIN);
    assert!(text.contains("Under-replicated partitions: none of the topics that the login sees\n"), "{text}");
    assert!(text.contains("1 topic, 1 partition"), "{text}");
    let empty = Status { topics: 0, ..status(Vec::new()) };
    assert!(empty.to_text(Style::PLAIN).contains("0 topics, 0 partitions"), "the cluster is empty");
}

#[test]
fn partitions_are_selected_by_their_problems() {
    let partitions = vec![
        partition(0, Some(1), &[1, 2, 3], 2),
        partition(1, Some(1), &[1, 2], 2),
        partition(2, Some(1), &[1], 2),
        partition(3, None, &[2], 1),
    ];
    let mut status = status(partitions);
    status.reassignments = Err(Absence { cause: Cause::NotServed, why: "it is not served".to_owned() });
    let json = status.to_json();
    let found = |key: &str| -> Vec<i64> {
        let partitions = json[key].as_array().expect("a list").iter();
        partitions.map(|partition| partition["partition"].as_i64().expect("a number")).collect()
    };
    assert_eq!(found("offline"), [3]);
    assert_eq!(found("under_min_isr"), [2]);
    assert_eq!(found("under_replicated"), [1, 2, 3]);
    assert_eq!(json["reassignments"]["error"], "it is not served");
    assert!(
        status.to_text(Style::PLAIN).contains("Reassignments: unknown (it is not served)\n"),
        "{}",
        status.to_text(Style::PLAIN)
    );
    assert_eq!(
        problems(&status),
        [
            "1 of 4 partitions has no leader that answers: producers and consumers wait until a replica in sync is \
             back.",
            "1 of 4 partitions has fewer replicas in sync than min.insync.replicas: producers with acks=all are \
             refused.",
            "1 of 4 partitions has just min.insync.replicas in sync: the next failure stops producers with acks=all.",
            "3 of 4 partitions have fewer replicas in sync than assigned: fewer failures are survived."
        ]
    );
    assert_eq!(status.judge().map_err(|unhealthy| unhealthy.code), Err(4));
}

#[test]
fn a_leader_that_does_not_answer_is_none() {
    let mut lost = partition(0, Some(2), &[1, 2, 3], 2);
    (lost.leader_answers, lost.live_isr) = (false, vec![1, 3]);
    let mut status = status(vec![lost]);
    status.brokers[1].probe = ProbeResult::NotReached("Cannot connect to localhost:9093".to_owned());
    let text = status.to_text(Style::PLAIN);
    for part in [
        "Health: unavailable\n  critical: 1 of 1 partitions has no leader that answers: ",
        "2       localhost:9093  -     not reached  1        3\n",
        "Not reached:\n  broker 2: Cannot connect to localhost:9093\n\n",
        "Partitions without a leader that answers: 1\n",
        "  orders-0   2 (not reached)  1,2,3     1,3 (2 not reached)  2\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let broker = &status.to_json()["brokers"][1];
    assert_eq!((&broker["state"], &broker["reached"]), (&"not reached".into(), &false.into()));
}

#[test]
fn problems_hidden_from_clients_are_degraded() {
    let whole = || status(vec![partition(0, Some(1), &[1, 2, 3], 2)]);
    let degraded = |change: fn(&mut Status), expected: &str| {
        let mut status = whole();
        change(&mut status);
        assert_eq!((health(&status), problems(&status)), (Health::Degraded, vec![expected.to_owned()]));
        assert_eq!(status.judge().map_err(|unhealthy| unhealthy.code), Err(3));
        assert_eq!(status.to_json()["health"], "degraded");
    };
    degraded(
        |s| s.brokers[1].is_fenced = true,
        "1 of 2 brokers is fenced (2): it leads nothing, and clients do not see it.",
    );
    degraded(
        |s| s.brokers[1].probe = ProbeResult::NotReached(String::new()),
        "1 of 2 brokers does not answer (2): its replicas do not count.",
    );
    degraded(
        |s| s.brokers[1].probe = ProbeResult::NoAddress,
        "1 of 2 brokers is not in the cluster (2): replicas are assigned to it.",
    );
    degraded(
        |s| s.not_reached = vec![("b:1".to_owned(), "gone".to_owned())],
        "b:1 of the bootstrap servers does not answer, and belongs to no known broker.",
    );
    degraded(
        |s| s.quorum = Err(Absence { cause: Cause::Failed, why: "no answer".to_owned() }),
        "No active controller answers: leaders do not change, and topics cannot be created.",
    );
    degraded(
        |s| s.quorum.as_mut().expect("there is one").nodes[1].silent_ms = Some(60_000),
        "Broker 2 does not follow the metadata.",
    );
    degraded(
        |s| {
            s.differing =
                vec![DifferingBroker { broker: 2, behind: vec![("orders".to_owned(), 0)], brokers: vec![3] }]
        },
        "Broker 2 has other metadata than the other brokers.",
    );
    let mut status = whole();
    status.quorum = Err(Absence { cause: Cause::NotServed, why: "an old version".to_owned() });
    assert_eq!(health(&status), Health::Healthy, "what is not served is no fault of the cluster");
}

#[test]
fn a_login_without_rights_sees_no_healthy_cluster() {
    let mut status = status(vec![partition(0, Some(1), &[1, 2, 3], 2)]);
    let denied = || Absence { cause: Cause::Denied, why: "not authorized".to_owned() };
    status.reassignments = Err(denied());
    status.quorum = Err(denied());
    status.hidden_topics = Err(denied());
    let expected = [
        "Topics that this login may not describe are not counted.",
        "Not visible to this login, which lacks DESCRIBE on the cluster: the controller quorum, reassignments.",
    ];
    assert_eq!((health(&status), problems(&status)), (Health::Unknown, expected.map(str::to_owned).to_vec()));
    let judged = status.judge().expect_err("it is not healthy");
    assert_eq!(judged.code, 6);
    assert!(judged.why.starts_with("The health of the cluster is unknown: Topics that"), "{}", judged.why);
    assert_eq!(status.to_json()["health"], "unknown");
    status.brokers[1].is_fenced = true;
    assert_eq!(health(&status), Health::Degraded, "known problems count more");
}

#[test]
fn a_login_with_one_topic_of_two_sees_no_healthy_cluster() {
    let mut status = status(vec![partition(0, Some(1), &[1, 2, 3], 2)]);
    status.hidden_topics = Ok(1);
    assert_eq!(problems(&status), ["1 topic is not visible to this login, and not counted."]);
    assert_eq!(status.judge().map_err(|unhealthy| unhealthy.code), Err(6));
    assert_eq!(status.to_json()["hidden_topics"], 1);
}

#[test]
fn a_hidden_minimum_is_shown_as_unknown() {
    let mut hidden = partition(0, Some(1), &[1, 2], 2);
    hidden.min_isr = None;
    let status = status(vec![hidden]);
    assert!(status.under_min_isr().is_empty());
    let text = status.to_text(Style::PLAIN);
    assert!(text.contains("  unknown: 1 of 1 partitions may refuse acks=all: "), "{text}");
    assert!(text.contains("  orders-0   1       1,2,3     1,2      -\n"), "{text}");
}

#[test]
fn warnings_about_disks_leave_the_exit_code() {
    let mut status = status(vec![partition(0, Some(1), &[1, 2, 3], 2)]);
    let directory = |usable| DirectoryEvidence {
        path: "/data".to_owned(),
        has_failed: false,
        space: Some((1000, usable)),
    };
    status.brokers[0].directories = Ok(vec![directory(90)]);
    assert!(status.to_text(Style::PLAIN).contains("Health: healthy\n  warning: 9 % of the disk of "));
    assert!(status.judge().is_ok());
    status.brokers[0].directories = Ok(vec![directory(10)]);
    assert_eq!(status.judge().map_err(|unhealthy| unhealthy.code), Err(3));
}

#[test]
fn differing_brokers_are_shown_with_their_differences() {
    let mut status = status(vec![partition(0, Some(1), &[1, 2, 3], 2)]);
    let behind = vec![("orders".to_owned(), 0), ("orders".to_owned(), 1)];
    status.differing = vec![DifferingBroker { broker: 2, behind, brokers: vec![3] }];
    let line = "  broker 2: 2 partitions missing or with an earlier leader, such as orders-0; disagrees on whether brokers \
                3 are alive\n";
    assert!(status.to_text(Style::PLAIN).contains(line), "{}", status.to_text(Style::PLAIN));
}

#[test]
fn a_replica_that_is_being_added_is_not_missed_yet() {
    let mut moving = partition(0, Some(1), &[1, 2], 1);
    assert_eq!(status(vec![moving.clone()]).under_replicated().len(), 1);
    moving.adding = 1;
    assert!(status(vec![moving]).under_replicated().is_empty());
}

#[test]
fn a_table_ends_after_some_rows_with_a_note() {
    let partitions = (0..30).map(|index| partition(index, None, &[1], 1)).collect();
    let text = status(partitions).to_text(Style::PLAIN);
    assert!(text.contains("Partitions without a leader that answers: 30\n"), "{text}");
    assert!(text.contains("  and 10 more; --json has them all\n"), "{text}");
}

#[test]
fn verdicts_wrap_on_a_terminal_and_are_not_repeated() {
    let status = status(vec![partition(0, Some(1), &[1], 2)]);
    let text = status.to_text(Style::NARROW);
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let verdicts = &status.verdicts()[0].text;
    let lines: Vec<&str> =
        text.lines().skip_while(|line| !line.starts_with("  critical: ")).take(2).collect();
    assert!(lines[1].starts_with("            ") && verdicts.ends_with(lines[1].trim()), "{text}");
    let judged = status.judge().map_err(Status::without_verdicts).expect_err("it is not healthy");
    assert_eq!((judged.code, judged.why.as_str()), (4, "The cluster is unavailable"));
}
