//! Subscriptions by regular expression (KIP-848): the topics that match a pattern.
//!
//! Patterns have the syntax of RE2/J, as in Kafka
//! (`org.apache.kafka.coordinator.group.modern.consumer.TopicRegexResolver`); `syntax` translates patterns
//! for the `regex` crate. A pattern must match a whole topic name. Topic names are ASCII, so differences
//! between classes beyond ASCII do not matter.
//!
//! A pattern is checked by the request that introduces it. Resolving patterns reads every topic of the
//! cluster and runs on the blocking pool: [`resolve`] is pure, with the topics and the authorization passed
//! in. [`Refresh`] decides when.
//!
//! Differences from Kafka: a pattern is limited to [`PATTERN_BYTES_MAX`] bytes and its program to
//! [`PROGRAM_BYTES_MAX`], where Kafka has no limit; `\p{...}` accepts more names; and an unmatched `)` is
//! reported as such, not as an internal error.

mod refresh;
mod syntax;
#[cfg(test)]
mod tests;

pub use refresh::{REFRESH_INTERVAL_MS_MIN, Refresh};

use regex::{Regex, RegexBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum size of a pattern.
pub const PATTERN_BYTES_MAX: usize = 16 * 1024;
/// Maximum size of a compiled pattern. `[a-z]{1000}` needs a tenth of it.
pub const PROGRAM_BYTES_MAX: usize = 1 << 20;
/// Maximum depth of groups in a pattern.
const DEPTH_MAX: u32 = 250;

/// An invalid pattern. The text is Kafka's; the error code is INVALID_REGULAR_EXPRESSION.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.")]
pub struct InvalidRegex {
    /// The pattern, truncated.
    pub pattern: String,
    /// RE2/J's description of the error.
    pub reason: String,
}

/// Checks a member's pattern.
pub fn validate(pattern: &str) -> Result<(), InvalidRegex> {
    compile(pattern).map(|_| ())
}

fn compile(pattern: &str) -> Result<Regex, InvalidRegex> {
    let invalid = |reason: &str| {
        let pattern = pattern.chars().take(1000).collect();
        InvalidRegex { pattern, reason: reason.to_owned() }
    };
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid(&format!("it has {} bytes of at most {PATTERN_BYTES_MAX}", pattern.len())));
    }
    let translated = syntax::translate(pattern).map_err(|error| invalid(error.description()))?;
    let mut builder = RegexBuilder::new(&format!(r"\A(?:{translated})\z"));
    let builder =
        builder.size_limit(PROGRAM_BYTES_MAX).dfa_size_limit(PROGRAM_BYTES_MAX).nest_limit(DEPTH_MAX);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(bytes) => invalid(&format!("compiled, it has more than {bytes} bytes")),
        _ => invalid("unknown character class, or groups nested too deeply"),
    })
}

/// The topics that match each pattern and that the client may describe. `may_describe` is called once for
/// each matched topic, with the number of matching patterns, like Kafka's authorizer. Invalid patterns match
/// nothing: patterns are validated when a member sends them, but records of a log may hold any.
pub fn resolve<'t>(
    patterns: &BTreeSet<Arc<str>>,
    topics: impl Iterator<Item = &'t str>,
    mut may_describe: impl FnMut(&str, usize) -> bool,
) -> BTreeMap<Arc<str>, BTreeSet<Arc<str>>> {
    let mut resolved: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> =
        patterns.iter().map(|pattern| (pattern.clone(), BTreeSet::new())).collect();
    let compiled: Vec<(&Arc<str>, Regex)> = patterns
        .iter()
        .filter_map(|pattern| match compile(pattern) {
            Ok(regex) => Some((pattern, regex)),
            Err(error) => {
                tracing::warn!(%error, "Ignored a subscription");
                None
            }
        })
        .collect();
    for topic in topics {
        let matching = compiled.iter().filter(|(_, regex)| regex.is_match(topic));
        let matching: Vec<&Arc<str>> = matching.map(|(pattern, _)| *pattern).collect();
        if matching.is_empty() || !may_describe(topic, matching.len()) {
            continue;
        }
        let topic: Arc<str> = topic.into();
        for pattern in matching {
            resolved.get_mut(pattern).expect("every pattern has an entry").insert(topic.clone());
        }
    }
    resolved
}
