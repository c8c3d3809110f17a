//! The lag of groups over time.

use std::time::Duration;

use super::{Fault, Verdict, counted};

/// Groups that a verdict on growing lags names.
const NAMED_MAX: usize = 3;
/// A lag up to this number of records is normal. The alert `ThalwegGroupLagGrows` has the same limit.
const LAG_MIN: i64 = 1000;
/// The shortest history that shows growth.
const SPAN_MIN: Duration = Duration::from_secs(60);
/// The part of a history that counts, up to now.
pub const LAG_WINDOW: Duration = Duration::from_secs(600);

/// The growing lag of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowingLag {
    pub group: String,
    /// Records at the begin of the history.
    pub from: i64,
    /// Records at its end.
    pub to: i64,
    /// Time between the two.
    pub over: Duration,
}

impl GrowingLag {
    /// The growth in a history: milliseconds and records, oldest first. Members that commit in intervals make
    /// a lag rise and fall all the time, so the lowest lags of both halves are compared: the later one must
    /// be above the earlier one by two percent, and the lag at the end above that at the begin.
    pub fn find(group: &str, history: &[(i64, i64)]) -> Option<GrowingLag> {
        let (last_ms, to) = *history.last()?;
        let window_ms = i64::try_from(LAG_WINDOW.as_millis()).unwrap_or(i64::MAX);
        let recent = &history[history.partition_point(|(at_ms, _)| last_ms - at_ms > window_ms)..];
        let (first_ms, from) = *recent.first()?;
        let over = Duration::from_millis(u64::try_from(last_ms - first_ms).ok()?);
        if over < SPAN_MIN || to <= LAG_MIN {
            return None;
        }
        let middle_ms = first_ms + (last_ms - first_ms) / 2;
        let (earlier, later) = recent.split_at(recent.partition_point(|(at_ms, _)| *at_ms <= middle_ms));
        let lowest = |half: &[(i64, i64)]| half.iter().map(|(_, lag)| *lag).min();
        let (before, after) = (lowest(earlier)?, lowest(later)?);
        (after > before + before / 50 && to > from).then(|| GrowingLag {
            group: group.to_owned(),
            from,
            to,
            over,
        })
    }
}

pub(super) fn judge(growing: &[GrowingLag]) -> Vec<Verdict> {
    let mut growing: Vec<&GrowingLag> = growing.iter().collect();
    growing.sort_by_key(|lag| std::cmp::Reverse(lag.to));
    let minutes = |over: Duration| usize::try_from(over.as_secs().div_ceil(60)).unwrap_or(usize::MAX);
    let verdict = |lag: &&GrowingLag| Verdict {
        fault: Fault::LagGrows,
        text: format!(
            "The lag of group {} grows: from {} to {} records within {}.",
            lag.group,
            lag.from,
            lag.to,
            counted(minutes(lag.over), "minute")
        ),
    };
    let mut verdicts: Vec<Verdict> = growing.iter().take(NAMED_MAX).map(verdict).collect();
    if let Some(more) = growing.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        let text = format!("The lag of {more} further groups grows.");
        verdicts.push(Verdict { fault: Fault::LagGrows, text });
    }
    verdicts
}
