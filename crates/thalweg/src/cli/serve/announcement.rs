//! `--json`: a line on standard output with the addresses of the node, printed once the node serves.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use thalweg_config::Listeners;

use super::Node;
use super::temporary::TemporaryData;

/// The line of a node, which is printed once the node serves.
pub(super) struct Announcement {
    temporary_dir: Option<PathBuf>,
}

impl Announcement {
    pub(super) fn new(temporary: Option<&TemporaryData>) -> Announcement {
        Announcement { temporary_dir: temporary.map(|data| data.dir().to_owned()) }
    }

    /// Prints the line. `url` is that of the HTTP server.
    pub(super) fn print(&self, node: &Node, listeners: &Listeners, url: Option<&str>, has_console: bool) {
        let line = format!("{}\n", self.document(node, listeners, url, has_console));
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            tracing::warn!(%error, "Failed to print the addresses on standard output");
        }
    }

    /// Names of fields are stable, as those of other commands. `cluster up --json` has the first two, too.
    fn document(&self, node: &Node, listeners: &Listeners, url: Option<&str>, has_console: bool) -> Value {
        let host_name = rustix::system::uname();
        let advertised = node.advertised(listeners, &host_name.nodename().to_string_lossy());
        let bootstrap: Vec<_> = advertised.first().into_iter().map(|(_, address)| address.clone()).collect();
        let listeners: Map<String, Value> =
            advertised.into_iter().map(|(name, address)| (name, address.into())).collect();
        let (id, data_dirs) = match node {
            Node::Broker(server) => (server.broker.node_id.0, &server.data_dirs),
            Node::Controller(server) => (server.node_id, &server.data_dirs),
        };
        json!({
            "bootstrap_servers": bootstrap,
            "console": url.filter(|_| has_console),
            "listeners": listeners,
            "http": url,
            "node_id": id,
            "pid": std::process::id(),
            "data_dirs": data_dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>(),
            "temporary_dir": self.temporary_dir.as_ref().map(|dir| dir.display().to_string()),
        })
    }
}
