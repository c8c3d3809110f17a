//! The permission filter of regular expressions.

use std::fmt;
use std::sync::Arc;

type TopicPredicate = dyn Fn(&str, usize) -> bool + Send + Sync;

/// The topics that the sender of a request may describe. Other topics do not match its regular expressions.
#[derive(Clone)]
pub struct TopicFilter(Arc<TopicPredicate>);

impl fmt::Debug for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TopicFilter")
    }
}

impl TopicFilter {
    /// A filter by `may_describe`, which gets a topic and the number of expressions that match it.
    pub fn new(may_describe: impl Fn(&str, usize) -> bool + Send + Sync + 'static) -> TopicFilter {
        TopicFilter(Arc::new(may_describe))
    }

    /// True if a topic may be described.
    pub(super) fn may_describe(&self, topic: &str, matching: usize) -> bool {
        (self.0)(topic, matching)
    }
}
