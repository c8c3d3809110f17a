//! The position of the throttle time in answers of the controller.

use std::ops::Range;
use std::time::Duration;
use thalweg_wire::frame::response_header_version;
use thalweg_wire::{ApiKey, FieldPosition};

/// Position of the throttle time in an answer of the controller without length prefix; `None` if there is no
/// such field there.
pub(super) fn place(key: ApiKey, version: i16, answer: &[u8]) -> Option<Range<usize>> {
    let begin = match key.throttle_time(version)? {
        // After the correlation id and the empty tagged fields of a flexible header.
        FieldPosition::First => 4 + usize::from(response_header_version(key, version) > 0),
        // Before the empty tagged fields of a flexible message.
        FieldPosition::Last => answer.len().checked_sub(4 + usize::from(version >= key.flexible_from()))?,
    };
    (begin + 4 <= answer.len()).then_some(begin..begin + 4)
}

/// The throttle time in an answer of the controller.
pub fn of_answer(key: ApiKey, version: i16, answer: &[u8]) -> Option<Duration> {
    let bytes = answer.get(place(key, version, answer)?)?.first_chunk()?;
    let ms = i32::from_be_bytes(*bytes);
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}
