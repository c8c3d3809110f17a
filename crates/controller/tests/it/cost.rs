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
    let mut keys: Vec<i16> = schemas.keys().copied().collect();
    keys.sort_unstable();
    let (mut walked, mut growth) = (0, Growth::default());
    for key in keys.into_iter().filter_map(ApiKey::from_i16).filter(|key| thalweg_controller::serves(*key)) {
        walked += 1;
        let (schema, (min, max)) = (&schemas[&(key as i16)], key.versions());
        for version in if min == max { vec![max] } else { vec![min, max] } {
            for (path, naming) in
                schema.arrays(version).iter().flat_map(|p| NAMINGS.map(|naming| (p, naming)))
            {
                let frame = |count| schema.frame(version, path, count, naming, &values);
                let shape = format!("{key:?} version {version}, {} {naming:?}", path.join("."));
                growth
                    .compare(&shape, &frame(FEW), &frame(MANY), async |frame| time(&bench, frame).await)
                    .await;
            }
        }
    }
    assert_eq!(walked, 25, "every API that is served is in the schema");
    growth.assert_linear();
}
