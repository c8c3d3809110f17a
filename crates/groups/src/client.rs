//! Clients of requests.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// The client id: the prefix of generated member ids.
    pub client_id: String,
    /// Its address, as Kafka writes it into the group's records: `/192.0.2.1`.
    pub client_host: String,
}

impl ClientInfo {
    /// A client at an address, written as Java writes one.
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

type MayDescribe = dyn Fn(&str, usize) -> bool + Send + Sync;

/// Which topics the sender of a request may describe: others do not match its regular expressions.
#[derive(Clone)]
pub struct TopicFilter(Arc<MayDescribe>);

impl fmt::Debug for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TopicFilter")
    }
}

impl TopicFilter {
    /// A filter that asks this for a topic, with the number of expressions that match it.
    pub fn new(may_describe: impl Fn(&str, usize) -> bool + Send + Sync + 'static) -> TopicFilter {
        TopicFilter(Arc::new(may_describe))
    }

    /// Whether a topic may be described.
    pub(super) fn may_describe(&self, topic: &str, matching: usize) -> bool {
        (self.0)(topic, matching)
    }
}
