//! The paths from this host to the brokers: round trips, and the size of packets.

use std::collections::BTreeMap;

use super::Advice;
use crate::agent;
use crate::quantity;
use crate::result::BrokerPath;

/// The location of findings about paths.
const PLACE: &str = "paths";

/// From this round trip on, buffers and requests in flight limit a connection.
const FAR_US: u64 = 5_000;

/// The bytes of a TCP segment in a packet of 1,500 bytes, without and with time stamps.
const ETHERNET: std::ops::RangeInclusive<u32> = 1440..=1460;

/// Tries the paths to the brokers. Those that cannot be used are among the findings about brokers.
pub(super) async fn examine(servers: &[String], properties: &BTreeMap<String, String>) -> Vec<Advice> {
    let mut paths = agent::broker_paths(servers, properties).await;
    paths.retain(|path| path.failure.is_none());
    round_trips(&paths).into_iter().chain(segments(&paths)).collect()
}

/// The range of round trips, as one finding.
fn round_trips(paths: &[BrokerPath]) -> Option<Advice> {
    let mut known: Vec<(u64, &str)> =
        paths.iter().filter_map(|path| Some((path.round_trip_us?, path.broker.as_str()))).collect();
    known.sort_unstable();
    let (fastest, slowest) = (known.first()?, known.last()?);
    let time = |us: u64| quantity::time_us(us as f64);
    let found = match known.len() {
        1 => format!("{} to {}", time(fastest.0), fastest.1),
        _ => format!("{} to {}, and {} to {}", time(fastest.0), fastest.1, time(slowest.0), slowest.1),
    };
    let why = "An acknowledgement takes a round trip at least, and a connection carries no more than its buffers and \
               requests in flight in each.";
    let advice = Advice::fine(PLACE, "round trip", found, why);
    Some(match slowest.0 {
        FAR_US.. => advice.note(
            "set send.buffer.bytes, receive.buffer.bytes and the brokers' socket buffers to -1 (left to the kernel), use \
             larger batches, or measure from nearby",
        ),
        _ => advice,
    })
}

/// The sizes of segments, a finding for each size.
fn segments(paths: &[BrokerPath]) -> Vec<Advice> {
    let mut brokers: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for path in paths {
        if let Some(bytes) = path.segment_bytes {
            brokers.entry(bytes).or_default().push(&path.broker);
        }
    }
    let why = "The MTU of both ends and of the path, less the headers. Each packet costs processor time on both sides.";
    let finding = |(bytes, brokers): (u32, Vec<&str>)| {
        let found = format!("{bytes} bytes to {}", brokers.join(", "));
        let advice = Advice::fine(PLACE, "segment size", found, why);
        match bytes {
            bytes if bytes < *ETHERNET.start() => advice.warning(
                "find the tunnel or interface with an MTU below 1500 on the path, at either end, too",
            ),
            bytes if ETHERNET.contains(&bytes) => advice.note(
                "with an MTU of 9000 at both ends and on every switch, a packet carries six times as much",
            ),
            _ => advice,
        }
    };
    brokers.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity::{Fine, Note, Warning};

    fn path(broker: &str, round_trip_us: u64, segment_bytes: u32) -> BrokerPath {
        BrokerPath {
            broker: broker.to_owned(),
            round_trip_us: Some(round_trip_us),
            segment_bytes: Some(segment_bytes),
            ..BrokerPath::default()
        }
    }

    #[test]
    fn the_slowest_round_trip_is_judged() {
        let near = [path("a:1", 200, 1448), path("b:1", 350, 1448)];
        let advice = round_trips(&near).expect("known");
        assert_eq!((advice.severity, advice.found.as_str()), (Fine, "200 µs to a:1, and 350 µs to b:1"));
        assert_eq!(
            round_trips(&[path("a:1", 200, 1448), path("b:1", 9_000, 1448)]).expect("known").severity,
            Note
        );
        assert_eq!(round_trips(&[]), None);
    }

    #[test]
    fn small_packets_are_found_wherever_they_come_from() {
        let paths = [path("a:1", 1, 1448), path("b:1", 1, 1348), path("c:1", 1, 8948), path("d:1", 1, 1448)];
        let found: Vec<(u32, String)> =
            segments(&paths).into_iter().map(|advice| (advice.severity as u32, advice.found)).collect();
        assert_eq!(
            found,
            [
                (Warning as u32, "1348 bytes to b:1".to_owned()),
                (Note as u32, "1448 bytes to a:1, d:1".to_owned()),
                (Fine as u32, "8948 bytes to c:1".to_owned()),
            ]
        );
    }

    #[tokio::test]
    async fn brokers_that_are_not_there_have_no_path() {
        assert_eq!(examine(&["127.0.0.1:1".to_owned()], &BTreeMap::new()).await, []);
    }
}
