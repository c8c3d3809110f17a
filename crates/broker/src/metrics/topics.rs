//! The traffic of topics (Kafka's `BrokerTopicMetrics`): a sample for each topic that has a partition here,
//! and one without the label for all topics together.

use super::exposition::Samples;
use super::sample::MetricKind;
use super::{Family, Figures};
use thalweg_replica::partition::Traffic;

macro_rules! by_topic {
    ($($name:literal $field:ident $help:literal)*) => {
        &[$(Family {
            name: concat!("kafka_server_brokertopicmetrics_", $name, "_total"),
            kind: MetricKind::Counter,
            help: $help,
            labels: &["topic"],
            read: |figures, out| each(figures, out, |traffic| traffic.$field),
        }),*]
    };
}

pub(super) const FAMILIES: &[Family] = by_topic! {
    "messagesin" messages_in "Records that producers sent and that were appended."
    "bytesin" bytes_in "Bytes that producers sent and that were stored."
    "bytesout" bytes_out "Bytes sent to consumers."
    "replicationbytesin" replication_bytes_in "Bytes that this broker's replicas fetched from their leaders."
    "replicationbytesout" replication_bytes_out "Bytes sent to replicas on other brokers."
    "totalproducerequests" produce_requests "Produce requests; each partition of a request counts."
    "totalfetchrequests" fetch_requests "Fetch requests of consumers and followers; each partition that is read counts. In a session of a consumer those without news are read once a second at most."
    "failedproducerequests" failed_produce_requests "Produce requests rejected by a partition; each partition of a request counts."
    "failedfetchrequests" failed_fetch_requests "Fetch requests rejected by a partition; each partition of a request counts."
};

fn each(figures: &Figures, out: &mut Samples<'_>, field: fn(&Traffic) -> u64) {
    let Some(broker) = figures.broker() else { return };
    out.add(&[""], field(&broker.traffic));
    for (topic, traffic) in &broker.topics {
        out.add(&[topic], field(traffic));
    }
}
