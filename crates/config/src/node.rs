//! A node's roles, and the addresses of its controllers.

use super::check::host_and_port;

/// The roles of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// True if the process serves clients.
    pub broker: bool,
    /// True if the process runs the embedded controller.
    pub controller: bool,
}

impl Roles {
    pub(super) fn of(roles: Vec<String>) -> Self {
        let plays = |role: &str| roles.iter().any(|known| known == role);
        Self { broker: plays("broker"), controller: plays("controller") }
    }
}

/// A controller of a static quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    pub id: i32,
    /// Host name or address.
    pub host: String,
    pub port: u16,
}

pub(super) fn voters(entries: Vec<String>) -> Vec<Voter> {
    let voter = |entry: &String| {
        let (id, server) = entry.split_once('@').expect("the key's check found the sign");
        let (host, port) = host_and_port(server).expect("the key's check parsed host and port");
        Voter { id: id.parse().expect("the key's check parsed the id"), host, port }
    };
    entries.iter().map(voter).collect()
}

pub(super) fn servers(entries: Vec<String>) -> Vec<(String, u16)> {
    entries.iter().map(|entry| host_and_port(entry).expect("the key's check parsed host and port")).collect()
}
