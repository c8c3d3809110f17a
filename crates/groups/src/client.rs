//! The client that sent a request.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The client id, used as prefix of generated member ids.
    pub client_id: String,
    /// The client's address as in the group's records of Kafka: `/192.0.2.1`.
    pub client_host: String,
}

impl ClientInfo {
    /// A client and its address in Java's notation.
    pub fn new(client_id: Option<&str>, address: IpAddr) -> ClientInfo {
        let client_host = match address.to_canonical() {
            IpAddr::V4(address) => format!("/{address}"),
            IpAddr::V6(address) => {
                let segments: Vec<String> = address.segments().iter().map(|s| format!("{s:x}")).collect();
                format!("/{}", segments.join(":"))
            }
        };
        ClientInfo { client_id: client_id.unwrap_or_default().to_owned(), client_host }
    }
}

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
