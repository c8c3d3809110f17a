//! The client that sent a request.

use std::net::IpAddr;

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
