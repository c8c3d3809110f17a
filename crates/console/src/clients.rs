//! The clients that are connected to the broker beside which the console runs. Kafka's protocol has no
//! request for them, so a console shows the connections to its broker only.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_security::acl::Operation;
use utoipa::{IntoParams, ToSchema};

use crate::cluster::View;
use crate::cluster::topics::page_of;
use crate::problem::Problem;

/// Reads the open connections of a broker. Cheap: nothing is requested.
#[derive(Clone)]
pub struct ClientSource {
    /// The node id of the broker.
    pub broker: i32,
    /// The start of the broker, in milliseconds since 1970.
    pub started_ms: i64,
    /// Returns the connections, oldest first, and the number of further ones.
    pub read: Arc<dyn Fn() -> (Vec<ClientConnection>, usize) + Send + Sync>,
}

/// A connection of a client, or of another broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClientConnection {
    /// `client.id`, shortened to 100 characters; none if the client has sent none.
    pub client: Option<String>,
    /// Address and port of the client.
    pub address: String,
    /// The authenticated principal, such as `User:ann`; none before the login.
    pub principal: Option<String>,
    /// Name of the client's library, such as `apache-kafka-java`, if the client has sent it (KIP-511).
    pub software: Option<String>,
    /// Version of the library.
    pub version: Option<String>,
    /// Name of the broker's listener.
    pub listener: String,
    /// True over TLS.
    pub tls: bool,
    /// Milliseconds since the connection was opened.
    pub open_ms: u64,
    /// Milliseconds since the last request or answer.
    pub idle_ms: u64,
}

/// A filter and page of connections.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct ClientQuery {
    /// A substring of the client id, address, principal, software or listener, case-insensitive.
    #[param(required = false)]
    pub filter: String,
    /// Page number, from 1.
    #[param(required = false)]
    pub page: usize,
    /// Connections per page, up to 1000. Default: 50.
    #[param(required = false)]
    pub per_page: usize,
}

/// A page of connections.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClientList {
    /// The node id of the broker.
    pub broker: i32,
    /// Connections of this page, oldest first.
    pub connections: Vec<ClientConnection>,
    /// Number of matching connections on all pages.
    pub matched: usize,
    /// Number of connections to the broker.
    pub total: usize,
    /// Number of connections beyond the limit, which were not looked at.
    pub omitted: usize,
    /// Page number, from 1.
    pub page: usize,
    /// Number of pages.
    pub pages: usize,
}

/// Lists one page of connections, for logins that may describe the cluster.
pub async fn list(
    source: Option<&ClientSource>,
    view: &View,
    query: &ClientQuery,
) -> Result<ClientList, Problem> {
    let Some(source) = source else {
        return Err(Problem::missing(
            "This console does not run beside a broker of Thalweg: the console of each broker shows the clients of that broker",
        ));
    };
    if !view.may(Operation::Describe).await? {
        let message = format!(
            "The list of clients needs the operation {} on the resource Cluster:kafka-cluster",
            Operation::Describe.name()
        );
        return Err(Problem::forbidden("forbidden", message));
    }
    Ok(page(source, query))
}

fn page(source: &ClientSource, query: &ClientQuery) -> ClientList {
    let (mut connections, omitted) = (source.read)();
    let total = connections.len() + omitted;
    let filter = query.filter.trim().to_lowercase();
    connections.retain(|connection| filter.is_empty() || connection.contains(&filter));
    let matched = connections.len();
    let (page, pages, range) = page_of(matched, query.page, query.per_page);
    connections.truncate(range.end);
    connections.drain(..range.start);
    ClientList { broker: source.broker, connections, matched, total, omitted, page, pages }
}

impl ClientConnection {
    /// True if a field contains the text, which is in lower case.
    fn contains(&self, text: &str) -> bool {
        let optional = [&self.client, &self.principal, &self.software, &self.version];
        let fields = optional.into_iter().flatten().chain([&self.address, &self.listener]);
        fields.into_iter().any(|field| field.to_lowercase().contains(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_filtered_and_paged() {
        let connection = |number: usize| ClientConnection {
            client: (number != 3).then(|| format!("Client-{number}")),
            address: format!("10.0.0.{number}:{number}"),
            principal: Some(if number < 2 { "User:ann".to_owned() } else { "User:bob".to_owned() }),
            ..ClientConnection::default()
        };
        let read = Arc::new(move || ((0..5).map(connection).collect(), 7));
        let source = ClientSource { broker: 4, started_ms: 0, read };
        let query = |filter: &str, page, per_page| ClientQuery { filter: filter.to_owned(), page, per_page };
        let clients = |list: &ClientList| -> Vec<String> {
            list.connections.iter().map(|one| one.client.clone().unwrap_or_default()).collect()
        };
        let all = page(&source, &query("", 2, 2));
        assert_eq!(clients(&all), ["Client-2", ""]);
        assert_eq!((all.broker, all.matched, all.total, all.omitted), (4, 5, 12, 7));
        assert_eq!((all.page, all.pages), (2, 3));
        assert_eq!(clients(&page(&source, &query(" client-4", 1, 50))), ["Client-4"]);
        assert_eq!(clients(&page(&source, &query("user:ANN", 1, 50))), ["Client-0", "Client-1"]);
        assert_eq!(clients(&page(&source, &query("10.0.0.3:", 1, 50))), [""]);
        assert!(page(&source, &query("nothing", 9, 50)).connections.is_empty());
    }
}
