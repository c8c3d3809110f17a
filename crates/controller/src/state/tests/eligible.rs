//! Eligible leader replicas (KIP-966), with the feature enabled.

use thalweg_metadata::LeaderRecoveryState;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{BrokerRegistrationRequest, IncrementalAlterConfigsRequest};

use super::steps::Cluster;
use super::*;

/// Brokers 1 to `brokers`, and the feature.
fn bench(brokers: i32) -> Bench {
    let mut bench = Bench::new();
    (1..=brokers).for_each(|id| bench.join(id));
    assert_eq!(bench.set_elr(1), 0);
    bench
}

fn min_isr(bench: &mut Bench, kind: i8, name: &str, value: Option<&str>) -> ErrorCode {
    let config = AlterableConfig {
        name: MIN_INSYNC_REPLICAS.to_owned(),
        config_operation: i8::from(value.is_none()),
        value: value.map(str::to_owned),
    };
    let resource =
        AlterConfigsResource { resource_type: kind, resource_name: name.to_owned(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    let answer = bench.call(request);
    ErrorCode::from_i16(answer.responses[0].error_code).expect("a known code")
}

/// The ISR, the eligible replicas, and the leader.
fn standing(bench: &Bench) -> (Vec<i32>, Vec<i32>, i32) {
    let partition = bench.partition("t", 0);
    (partition.isr, partition.eligible_leader_replicas, partition.leader)
}

fn fence(bench: &mut Bench, id: i32) {
    bench.beat(id, |request| request.want_fence = true);
}

#[test]
fn who_leaves_an_isr_below_the_minimum_may_lead_again() {
    let mut bench = bench(3);
    bench.create("t", &[&[1, 2, 3]], &[(MIN_INSYNC_REPLICAS, "2")]);
    fence(&mut bench, 3);
    assert_eq!(standing(&bench), (vec![1, 2], vec![], 1), "two are enough");
    fence(&mut bench, 2);
    assert_eq!(standing(&bench), (vec![1], vec![2], 1));
    fence(&mut bench, 1);
    assert_eq!(standing(&bench), (vec![], vec![1, 2], NO_LEADER), "the ISR may be empty");
    assert_eq!(bench.partition("t", 0).last_known_elr, [1]);
    // A replica that left the ISR while the ISR was large enough lacks later commits.
    bench.beat(3, |_| {});
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
    bench.beat(2, |_| {});
    assert_eq!(standing(&bench), (vec![2], vec![1], 2));
    let partition = bench.partition("t", 0);
    assert_eq!(partition.leader_recovery_state, LeaderRecoveryState::Recovered, "nothing is lost");
    assert!(partition.last_known_elr.is_empty());
    bench.beat(1, |_| {});
    assert_eq!(bench.propose("t", &[2, 1]), ErrorCode::None);
    assert_eq!(standing(&bench), (vec![2, 1], vec![], 2), "with enough in sync nobody else is eligible");
}

#[test]
fn after_an_unclean_stop_a_broker_is_ineligible_and_the_last_leader_is_the_last_resort() {
    let mut bench = bench(2);
    bench.create("t", &[&[1, 2]], &[(MIN_INSYNC_REPLICAS, "2")]);
    fence(&mut bench, 2);
    fence(&mut bench, 1);
    assert_eq!(standing(&bench), (vec![], vec![1, 2], NO_LEADER));
    bench.now.monotonic_ms += SESSION_MS;
    let epochs: Vec<i64> =
        [1, 2].map(|id| bench.image().broker(BrokerId(id)).expect("registered").epoch.0).to_vec();
    // The first broker knows its former epoch, because it stopped cleanly; the second does not.
    let mut again = |id: i32, previous_broker_epoch: i64| {
        let request = BrokerRegistrationRequest {
            previous_broker_epoch,
            ..bench.registration(id, &[1000 + u128::from(id.unsigned_abs())])
        };
        assert_eq!(bench.call(request).error_code, 0);
    };
    again(2, -1);
    again(1, epochs[0]);
    assert_eq!(standing(&bench), (vec![], vec![1], NO_LEADER));
    bench.now.monotonic_ms += SESSION_MS;
    let request = BrokerRegistrationRequest { previous_broker_epoch: 3, ..bench.registration(1, &[1001]) };
    assert_eq!(bench.call(request).error_code, 0);
    assert_eq!(standing(&bench), (vec![], vec![], NO_LEADER), "an older epoch is no proof");
    bench.beat(2, |_| {});
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
    bench.beat(1, |_| {});
    assert_eq!(standing(&bench), (vec![1], vec![], 1), "it led last");
    assert_eq!(bench.partition("t", 0).leader_recovery_state, LeaderRecoveryState::Recovering);
}

#[test]
fn all_agree_on_how_many_must_be_in_sync() {
    const TOPIC: i8 = 2;
    const BROKER: i8 = 4;
    let mut bench = Bench::new();
    (1..=2).for_each(|id| bench.join(id));
    assert_eq!(min_isr(&mut bench, BROKER, "1", Some("2")), ErrorCode::None);
    assert_eq!(bench.set_elr(1), 0);
    let image = bench.image();
    let configured = |resource: &ConfigResource| image.configs().value(resource, MIN_INSYNC_REPLICAS);
    assert_eq!(configured(&ConfigResource::broker(BrokerId(1))), None);
    assert_eq!(configured(&ConfigResource::brokers()), Some("1"));
    assert_eq!(min_isr(&mut bench, BROKER, "1", Some("2")), ErrorCode::InvalidConfig);
    assert_eq!(min_isr(&mut bench, BROKER, "", None), ErrorCode::InvalidConfig);
    bench.create("t", &[&[1, 2]], &[(MIN_INSYNC_REPLICAS, "2")]);
    fence(&mut bench, 2);
    assert_eq!(standing(&bench), (vec![1], vec![2], 1));
    assert_eq!(min_isr(&mut bench, TOPIC, "t", Some("1")), ErrorCode::None);
    assert_eq!(standing(&bench), (vec![1], vec![], 1), "it could have been committed without it since");
}

#[test]
fn replicas_stay_eligible_when_the_minimum_changes_while_nobody_leads() {
    const TOPIC: i8 = 2;
    const BROKER: i8 = 4;
    let mut bench = bench(3);
    bench.create("t", &[&[1, 2, 3]], &[]);
    fence(&mut bench, 3);
    min_isr(&mut bench, TOPIC, "t", Some("2"));
    [2, 1].into_iter().for_each(|id| fence(&mut bench, id));
    for (kind, name, value) in [(TOPIC, "t", "3"), (BROKER, "", "2")] {
        assert_eq!(min_isr(&mut bench, kind, name, Some(value)), ErrorCode::None);
        assert_eq!(standing(&bench), (vec![], vec![1, 2], NO_LEADER));
        assert_eq!(bench.partition("t", 0).last_known_elr, [1]);
    }
    bench.beat(2, |_| {});
    assert_eq!(bench.partition("t", 0).leader, 2);
}

#[test]
fn a_leader_that_is_enough_alone_leaves_nobody_eligible() {
    let mut bench = bench(3);
    bench.create("t", &[&[1, 2, 3]], &[(MIN_INSYNC_REPLICAS, "2")]);
    [3, 2, 1].into_iter().for_each(|id| fence(&mut bench, id));
    assert_eq!(standing(&bench), (vec![], vec![1, 2], NO_LEADER));
    assert_eq!(min_isr(&mut bench, 2, "t", Some("1")), ErrorCode::None);
    assert_eq!(standing(&bench), (vec![], vec![1, 2], NO_LEADER), "nothing is committed meanwhile");
    bench.beat(2, |_| {});
    assert_eq!(standing(&bench), (vec![2], vec![], 2), "2 commits alone what 1 lacks");
}

#[test]
fn without_the_feature_an_isr_keeps_its_last_member() {
    let mut bench = Bench::new();
    (1..=2).for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2]], &[(MIN_INSYNC_REPLICAS, "2")]);
    fence(&mut bench, 2);
    fence(&mut bench, 1);
    assert_eq!(standing(&bench), (vec![1], vec![], NO_LEADER));
    assert!(bench.partition("t", 0).last_known_elr.is_empty());
}
