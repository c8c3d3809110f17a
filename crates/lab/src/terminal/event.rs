//! Progress for programs: one JSON object per line.

use serde::Serialize;

use crate::worker::{Interval, Role};

/// A progress event. Names and fields are stable; more of both may follow.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event<'a> {
    /// A repetition begins.
    Begin {
        /// The repetition's number, from 1.
        number: u64,
        /// The total number, as far as known.
        of: u64,
        /// The measured point.
        at: String,
    },
    /// An activity apart from measuring.
    Phase {
        /// The activity, as text.
        what: &'a str,
    },
    /// A second of all workers of a role.
    Interval {
        role: Role,
        /// Records per second.
        records_per_s: f64,
        /// Bytes per second.
        bytes_per_s: f64,
        /// Half of the records took at most this many microseconds.
        p50_us: Option<u64>,
        /// 99 % of the records took at most this many microseconds.
        p99_us: Option<u64>,
    },
    /// A repetition has ended.
    End {
        /// The repetition's number, from 1.
        number: u64,
        /// The total number, as far as known.
        of: u64,
        /// The measured point.
        at: String,
        /// The summary, or the reason of the failure.
        outcome: &'a str,
    },
    Message {
        /// The message, as text.
        text: &'a str,
    },
}

impl Event<'_> {
    /// A second of a role.
    pub(super) fn interval(role: Role, interval: &Interval) -> Event<'static> {
        let seconds = interval.length_us.max(1) as f64 / 1e6;
        Event::Interval {
            role,
            records_per_s: interval.records as f64 / seconds,
            bytes_per_s: interval.bytes as f64 / seconds,
            p50_us: interval.p50_us,
            p99_us: interval.p99_us,
        }
    }

    /// The event's line of JSON.
    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
