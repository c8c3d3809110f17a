//! The extent of reading back the records of a repetition, given its point, driver and records, and the order
//! that its producers promise.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::evidence::ReadBack;
use crate::worker::Driver;
use crate::workload::{Measure, Point, STAMP_BYTES, Verification};

/// Reading back takes as long as the measurement, and at least this long.
const READ_BACK_MIN: Duration = Duration::from_secs(5);

/// The verification that records' stamps allow; the error is the reason why they can carry none.
pub(super) fn stamps(point: &Point, driver: Driver) -> Result<Verification, String> {
    // Consumed or drained records were produced by Thalweg's driver; for a drain, not all of them.
    let by_java = driver == Driver::Java && point.measure != Measure::Consume;
    match point.verify {
        Verification::Off => Err("verify = \"off\"".to_owned()),
        Verification::Bounded if driver == Driver::Stream => {
            Err("streams send generated values, which have no stamps".to_owned())
        }
        Verification::Bounded if by_java => {
            Err("Kafka's ProducerPerformance sends its own values, which have no stamps".to_owned())
        }
        Verification::Bounded if point.records.size_bytes < STAMP_BYTES => Err(format!(
            "values of {} bytes have no room for a stamp of {STAMP_BYTES}",
            point.records.size_bytes
        )),
        verify => Ok(verify),
    }
}

/// The extent of reading back after a measurement of this length.
pub(super) fn read_back(stamps: &Result<Verification, String>, measured: Duration) -> ReadBack {
    match stamps {
        Err(why) => ReadBack::No(why.clone()),
        Ok(Verification::Off) => ReadBack::No("verify = \"off\"".to_owned()),
        Ok(Verification::Bounded) => ReadBack::Within(measured.max(READ_BACK_MIN)),
        Ok(Verification::Whole) => ReadBack::Whole,
    }
}

/// The maximum time for reading back after a measurement of this length; `None` if unlimited.
pub(super) fn time_max(stamps: &Result<Verification, String>, measured: Duration) -> Option<Duration> {
    match read_back(stamps, measured) {
        ReadBack::No(_) => Some(Duration::ZERO),
        ReadBack::Within(most) => Some(most),
        ReadBack::Whole => None,
    }
}

/// True if producers with these settings promise the order of a partition's records: a retry reorders them if
/// the producer is not idempotent and has several requests in flight.
pub(super) fn keeps_order(producer: &BTreeMap<String, String>) -> bool {
    let is =
        |key: &str, values: &[&str]| producer.get(key).is_some_and(|value| values.contains(&value.trim()));
    // Other acks than all turn the default off.
    let is_idempotent = match producer.contains_key("enable.idempotence") {
        true => is("enable.idempotence", &["true"]),
        false => !is("acks", &["0", "1"]),
    };
    is_idempotent || is("max.in.flight.requests.per.connection", &["1"]) || is("retries", &["0"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::point;

    #[test]
    fn a_payload_that_cannot_carry_a_stamp_has_a_reason() {
        let mut point = point();
        point.verify = Verification::Bounded;
        assert_eq!(stamps(&point, Driver::Thalweg), Ok(Verification::Bounded));
        let why = stamps(&point, Driver::Java).expect_err("Java's values are its own");
        assert!(why.contains("ProducerPerformance"), "{why}");
        assert!(stamps(&point, Driver::Stream).is_err_and(|why| why.contains("generated")));
        point.measure = Measure::Consume;
        assert_eq!(
            stamps(&point, Driver::Java),
            Ok(Verification::Bounded),
            "our own driver produces the backlog"
        );
        point.records.size_bytes = 23;
        let why = stamps(&point, Driver::Thalweg).expect_err("no room");
        assert!(why.contains("23 bytes"), "{why}");
    }

    #[test]
    fn reading_back_takes_as_long_as_the_measurement() {
        let bounded = Ok(Verification::Bounded);
        let minute = Duration::from_secs(60);
        assert_eq!(read_back(&bounded, minute), ReadBack::Within(minute));
        assert_eq!(read_back(&bounded, Duration::from_secs(1)), ReadBack::Within(READ_BACK_MIN));
        assert_eq!(read_back(&Ok(Verification::Whole), minute), ReadBack::Whole);
        assert_eq!(time_max(&Ok(Verification::Whole), minute), None);
        assert_eq!(read_back(&Err("because".to_owned()), minute), ReadBack::No("because".to_owned()));
    }

    #[test]
    fn producers_promise_an_order_unless_a_retry_may_change_it() {
        let keeps = |pairs: &[(&str, &str)]| {
            keeps_order(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        let off = ("enable.idempotence", "false");
        assert!(keeps(&[]) && keeps(&[("acks", "all")]));
        assert!(!keeps(&[("acks", "1")]) && !keeps(&[off]));
        assert!(
            keeps(&[off, ("max.in.flight.requests.per.connection", "1")]) && keeps(&[off, ("retries", "0")])
        );
    }
}
