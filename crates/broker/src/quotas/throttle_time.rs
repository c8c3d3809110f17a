//! The place of the throttle time in answers of the controller.

use std::ops::Range;
use std::time::Duration;
use thalweg_wire::ApiKey;
use thalweg_wire::frame::response_header_version;

/// The bytes of the throttle time in an answer of the controller, without its length; `None` where it has none.
pub(super) fn place(key: ApiKey, version: i16, answer: &[u8]) -> Option<Range<usize>> {
    let is_flexible = usize::from(response_header_version(key, version) > 0);
    let begin = match key {
        ApiKey::DescribeQuorum => return None,
        // It comes last, before the tags of a flexible message, of which there are none.
        ApiKey::CreateDelegationToken | ApiKey::RenewDelegationToken | ApiKey::ExpireDelegationToken => {
            answer.len().checked_sub(is_flexible + 4)?
        }
        // It comes first, behind the correlation id and the tags of a flexible header, of which there are none.
        _ => 4 + is_flexible,
    };
    (begin + 4 <= answer.len()).then_some(begin..begin + 4)
}

/// The pause that an answer of the controller asks for.
pub fn of_answer(key: ApiKey, version: i16, answer: &[u8]) -> Option<Duration> {
    let bytes = answer.get(place(key, version, answer)?)?.first_chunk()?;
    let ms = i32::from_be_bytes(*bytes);
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}
