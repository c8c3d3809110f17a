//! The cost of a request for the controller's one task: no API's time grows faster than its request. Covers
//! all served APIs by their schema, so new ones are included automatically.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "real time is what is measured, and printed on request"
)]

#[path = "../../../wire/tests/support/growth.rs"]
mod growth;
#[path = "../../../wire/tests/support/largest.rs"]
mod largest;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use growth::{FEW, Growth, MANY};
use largest::{NAMINGS, Values};
use thalweg_controller::HandleError;
use thalweg_wire::ApiKey;
use thalweg_wire::frame::LENGTH_LEN;

use crate::support::{Bench, CLUSTER_ID, NODE};

/// What takes requests past their first checks.
async fn values(bench: &Bench) -> Values {
    let epoch = bench.join(NODE).await;
    let created = bench.create("t", 4, 1).await;
    let strings =
        [("", "t"), ("EntityType", "=user"), ("Key", "producer_byte_rate"), ("ClusterId", CLUSTER_ID)];
    let numbers = [
        ("BrokerId", i64::from(NODE)),
        ("BrokerEpoch", epoch),
        ("LeaderEpoch", 0),
        ("PartitionEpoch", 0),
        ("LeaderRecoveryState", 0),
        ("NumPartitions", 1),
        ("ReplicationFactor", 1),
        ("ResourceType", 2),
        ("MaxVersionLevel", 1),
        ("Iterations", 4096),
        ("Mechanism", 1),
        ("MaxWaitMs", 0),
        ("MinSupportedVersion", 0),
        ("MaxSupportedVersion", 1),
        ("WantFence", 0),
        ("WantShutDown", 0),
    ];
    let unknown = [
        (("UnregisterBrokerRequest", "BrokerId"), 4242),
        (("BrokerRegistrationRequest", "BrokerId"), 4242),
        (("AlterPartitionReassignmentsRequest", "Replicas"), i64::from(NODE)),
    ];
    let mut strings: HashMap<_, _> =
        strings.into_iter().map(|(field, text)| (field, text.to_owned())).collect();
    strings.insert("Feature", "eligible.leader.replicas.version".to_owned());
    Values {
        strings,
        numbers: HashMap::from(numbers),
        numbers_of: HashMap::from(unknown),
        counted: vec![("AlterPartitionRequest", "BrokerId")],
        uuid: created.topics[0].topic_id.0,
    }
}

/// The APIs whose requests have neither arrays nor bytes, only numbers and strings of 32 KiB at most.
const SHORT: [ApiKey; 6] = [
    ApiKey::SaslHandshake,
    ApiKey::ApiVersions,
    ApiKey::DescribeCluster,
    ApiKey::UnregisterBroker,
    ApiKey::AllocateProducerIds,
    ApiKey::RemoveRaftVoter,
];

/// By how much [`MANY`] elements have to be divided for the controller to take them: a request to its task
/// may have fewer elements than others, and a refusal of the length would cost nothing.
async fn divisor_of_legal(bench: &Bench, shape: &str, frame: impl Fn(usize) -> Vec<u8>) -> usize {
    for divisor in [1, 2, 4] {
        let request = Bytes::from(frame(MANY / divisor)).slice(LENGTH_LEN..);
        let answer = bench.controller.handle(request, &thalweg_controller::Requester::ThisProcess).await;
        if !matches!(answer, Err(HandleError::Decode(_))) {
            return divisor;
        }
    }
    panic!("{shape}: not even a quarter of {MANY} elements is read");
}

async fn time(bench: &Bench, frame: &[u8]) -> Duration {
    let request = Bytes::copy_from_slice(&frame[LENGTH_LEN..]);
    let started = Instant::now();
    // A refusal is an answer too.
    let _ = bench.controller.handle(request, &thalweg_controller::Requester::ThisProcess).await;
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it compares times: alone, in the nightly form of scripts/test"]
async fn no_request_costs_the_controller_more_than_its_size() {
    let bench = Bench::new().await;
    let values = values(&bench).await;
    let schemas = largest::schemas();
    let (mut unwalked, mut growth) = (Vec::new(), Growth::default());
    for key in ApiKey::ALL.into_iter().filter(|key| thalweg_controller::serves(*key)) {
        let (schema, (min, max)) = (&schemas[&(key as i16)], key.versions());
        let mut shapes = 0;
        for version in if min == max { vec![max] } else { vec![min, max] } {
            for (path, naming) in
                schema.arrays(version).iter().flat_map(|p| NAMINGS.map(|naming| (p, naming)))
            {
                shapes += 1;
                let frame = |count| schema.frame(version, path, count, naming, &values);
                let shape = format!("{key:?} version {version}, {} {naming:?}", path.join("."));
                let divisor = divisor_of_legal(&bench, &shape, frame).await;
                let (few, many) = (frame(FEW / divisor), frame(MANY / divisor));
                growth.compare(&shape, &few, &many, async |frame| time(&bench, frame).await).await;
            }
        }
        if shapes == 0 {
            unwalked.push(key);
        }
    }
    assert_eq!(unwalked, SHORT, "APIs without a long request");
    growth.assert_linear();
}
