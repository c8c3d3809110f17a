//! Progress for programs: one JSON object a line.

use serde::Serialize;

use crate::worker::{Interval, Role};

/// What happened. Names and fields are stable; more of both may follow.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event<'a> {
    /// A repetition begins.
    Begin {
        /// Its number, from 1.
        number: u64,
        /// How many there are, as far as is known.
        of: u64,
        /// What is measured.
        at: String,
    },
    /// What it does apart from measuring.
    Phase {
        /// In words.
        what: &'a str,
    },
    /// A second of all workers of a role.
    Interval {
        /// The role.
        role: Role,
        /// Records per second.
        records_per_s: f64,
        /// Bytes per second.
        bytes_per_s: f64,
        /// Half of the records took at most so long.
        p50_us: Option<u64>,
        /// 99 % of them.
        p99_us: Option<u64>,
    },
    /// A repetition has ended.
    End {
        /// Its number.
        number: u64,
        /// How many there are.
        of: u64,
        /// What was measured.
        at: String,
        /// Its summary, or why it failed.
        outcome: &'a str,
    },
    /// A message.
    Message {
        /// In words.
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

    /// Its line.
    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
