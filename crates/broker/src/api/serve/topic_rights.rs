//! Topics of a request that its client may not use.

/// Removes the topics that the client may not use from a request, and returns them.
pub fn take_denied<T>(topics: &mut Vec<T>, may: impl Fn(&T) -> bool) -> Vec<T> {
    topics.extract_if(.., |topic| !may(topic)).collect()
}
