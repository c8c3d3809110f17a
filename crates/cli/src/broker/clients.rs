//! `broker clients`: the clients that are connected to a broker.

use std::fmt::Write;

use clap::Args;
use serde_json::Value;

use crate::failure::CommandFailure;
use crate::output::Column;
use crate::stream::RemoteHost;

/// Connections in an answer.
const PER_PAGE: usize = 1000;

const COLUMNS: [Column<'_>; 7] = [
    ("CLIENT-ID", "client"),
    ("ADDRESS", "address"),
    ("PRINCIPAL", "principal"),
    ("SOFTWARE", "software"),
    ("VERSION", "version"),
    ("LISTENER", "listener"),
    ("IDLE-MS", "idle_ms"),
];

/// List the connections to a broker: client id, address, principal, library and its version.
///
/// The console's API of that broker, at its http.listener, lists them; the login needs DESCRIBE on the
/// cluster. Other brokers know their own clients.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  thalweg broker clients\n  thalweg broker clients billing --server https://broker-2:9090"
)]
pub struct Clients {
    /// List only connections whose client id, address, principal, library or listener contains this text.
    #[arg(value_name = "TEXT", default_value = "")]
    filter: String,
    #[command(flatten)]
    remote: RemoteHost,
}

impl Clients {
    /// Prints a row per connection, oldest first.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut rows: Vec<Value> = Vec::new();
        for page in 1.. {
            let path =
                format!("/api/v1/clients?filter={}&page={page}&per_page={PER_PAGE}", encoded(&self.filter));
            let mut answer = self.remote.of_console(&path).await?;
            let Value::Array(found) = answer["connections"].take() else {
                return Err(CommandFailure("The answer has no list of connections".to_owned()).into());
            };
            rows.extend(found);
            if page == 1 && answer["omitted"].as_u64().is_some_and(|omitted| omitted > 0) {
                tracing::warn!("{} more connections are beyond the broker's limit", answer["omitted"]);
            }
            if answer["pages"].as_u64().is_none_or(|pages| page >= pages) {
                break;
            }
        }
        self.remote.output.rows(&COLUMNS, &rows)
    }
}

/// A text as the value of a query: all but letters and digits is percent-encoded.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => encoded.push(char::from(byte)),
            // Writing to a String cannot fail.
            false => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_the_value_of_a_query() {
        assert_eq!(encoded("billing1"), "billing1");
        assert_eq!(encoded("a&b=c d/é"), "a%26b%3Dc%20d%2F%C3%A9");
    }
}
