//! `docs/protocol.md`, written from the table of served APIs.

use super::{Api, all_served};
use std::fmt::Write;
use thalweg_wire::ApiKey;

/// The whole page.
pub fn protocol_page() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("| Key | API | Served | Kafka 4.3 | Differs |\n|---|---|---|---|---|\n");
    for api in all_served() {
        let (key, served, kafkas) = (api.key, range(api.min, api.max), kafkas(api.key));
        writeln!(page, "| {} | {key:?} | {served} | {kafkas} | {} |", key as i16, differs(api))
            .expect("a String takes everything");
    }
    page
}

const INTRODUCTION: &str = "\
# Protocol

<!-- Written from the table in crates/broker/src/api.rs by the test `docs_are_fresh` in api/document.rs; \
run it with UPDATE_DOCS=1 to update this page. -->

Thalweg speaks only Apache Kafka's protocol. The table lists the APIs of a Kafka broker, their keys, the versions served here, and those
served by Kafka 4.3; ApiVersions returns the same. Requests are decoded strictly by Kafka's schema. As in Kafka, an API or version that is
not served closes the connection, and an ApiVersions request that is too new returns the served versions.

The last column names differences that clients can notice. Requests that change the cluster are forwarded unchanged to the controller, by
KRaft's own requests; the answer is sent when this broker sees the change.

## Served

";

fn range(min: i16, max: i16) -> String {
    if min == max { min.to_string() } else { format!("{min}-{max}") }
}

/// The versions that Kafka advertises to clients.
fn kafkas(key: ApiKey) -> String {
    let (min, max) = key.versions();
    range(min, if key.last_version_is_unstable() { max - 1 } else { max })
}

/// Differences of a served API that clients can notice, besides its versions.
fn differs(api: &Api) -> &'static str {
    match api.key {
        ApiKey::Produce => {
            "advertised from version 0, which is refused, as Kafka does for librdkafka; with `thalweg.produce.validation=header` malformed records under a valid CRC are stored, which Kafka refuses"
        }
        ApiKey::ConsumerGroupHeartbeat | ApiKey::ConsumerGroupDescribe => {
            "UNSUPPORTED_VERSION where `group.version` is 0 or `group.coordinator.rebalance.protocols` lacks `consumer`"
        }
        ApiKey::ShareGroupHeartbeat
        | ApiKey::ShareGroupDescribe
        | ApiKey::ShareFetch
        | ApiKey::ShareAcknowledge
        | ApiKey::DescribeShareGroupOffsets
        | ApiKey::AlterShareGroupOffsets
        | ApiKey::DeleteShareGroupOffsets => "UNSUPPORTED_VERSION where `share.version` is 0",
        ApiKey::StreamsGroupHeartbeat => {
            "UNSUPPORTED_VERSION where `streams.version` is 0 or `group.coordinator.rebalance.protocols` lacks `streams`; a member that reports other tasks than it is assigned gets its tasks again, where Kafka sends null"
        }
        ApiKey::StreamsGroupDescribe => {
            "UNSUPPORTED_VERSION where `streams.version` is 0 or `group.coordinator.rebalance.protocols` lacks `streams`"
        }
        ApiKey::InitProducerId => "version 6 if `unstable.api.versions.enable` is on",
        ApiKey::ListOffsets => {
            "no tiered storage; CORRUPT_MESSAGE if the search meets unreadable records; the timestamp -2^62 - OFFSET, which Kafka refuses, finds the first data record at or after an offset, for its time"
        }
        ApiKey::DeleteRecords => "deleted records stay deleted after a crash",
        ApiKey::DescribeConfigs => "keys that are not served appear only if they are set",
        ApiKey::GetTelemetrySubscriptions | ApiKey::PushTelemetry => {
            "always served; Kafka needs a Java plugin that takes the metrics"
        }
        ApiKey::CreateDelegationToken => {
            "at most 10,000 tokens in a cluster, 1,000 requested by one principal, and 100 renewers of a token"
        }
        ApiKey::AlterClientQuotas => {
            "the embedded controller takes an address as the name of an `ip`, no host name"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_fresh() {
        crate::page::assert_is_fresh("protocol.md", &protocol_page());
    }

    #[test]
    fn every_served_version_is_one_of_kafkas() {
        let mut before = None;
        for api in all_served() {
            let (min, max) = api.key.versions();
            assert!(min <= api.min && api.min <= api.max && api.max <= max, "{:?}", api.key);
            assert!(before < Some(api.key), "{:?} is out of order", api.key);
            before = Some(api.key);
        }
    }

    #[test]
    fn every_api_of_kafkas_brokers_is_served() {
        for key in ApiKey::ALL.into_iter().filter(|key| key.on_broker()) {
            assert!(crate::api::served(key).is_some(), "{key:?}");
        }
    }
}
