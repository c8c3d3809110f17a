//! Pulsar's admin API, as far as the lab needs it: topics and subscriptions, the state of their partitions,
//! the health and version of brokers. A connection for each request, over plain HTTP.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SCHEME: &str = "http://";
/// Pulsar's `webServicePort`.
const PORT: u16 = 8080;
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest number of referrals to the broker that owns a topic.
const REDIRECTS_MAX: usize = 5;
/// Limit of an answer, which may list the ledgers of a partition.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Length of an answer in an error.
const EXCERPT: usize = 300;
/// The namespace of the lab's topics, which every cluster has.
const NAMESPACE: &str = "public/default";

/// A client of the admin API.
#[derive(Clone, Debug)]
pub struct PulsarAdmin {
    /// `host:port`.
    host: Arc<str>,
}

/// A text is no URL of an admin API that the lab can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the URL of Pulsar's admin API: use http://HOST:PORT, for example http://localhost:8080"
)]
pub struct InvalidAdminUrl(pub String);

/// A request to the admin API failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{method} {url}: {reason}")]
pub struct AdminFailure {
    pub method: &'static str,
    pub url: String,
    /// The status and text of the answer, or why there is none.
    pub reason: String,
    /// The status, if there is an answer.
    pub status: Option<u16>,
}

/// The state of a partition, as counted by its broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartitionStats {
    /// Messages stored since the broker has opened the topic; batches count as their messages.
    pub msg_in_counter: u64,
    /// Bytes of the stored entries, once.
    pub storage_size: u64,
}

/// A ledger of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredLedger {
    pub ledger: i64,
    /// Number of entries.
    pub entries: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InternalStats {
    last_confirmed_entry: String,
    #[serde(default)]
    ledgers: Vec<InternalLedger>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InternalLedger {
    ledger_id: i64,
    entries: i64,
}

/// The copies of entries in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Persistence {
    pub bookkeeper_ack_quorum: u32,
    pub bookkeeper_write_quorum: u32,
}

/// The URL of the admin API for a service URL, if none is given: the first broker, at Pulsar's own port.
pub fn default_admin_url(service_url: &str) -> String {
    let hosts = service_url.split_once("://").map_or(service_url, |(_, hosts)| hosts);
    let first = hosts.split(['/', ',']).next().unwrap_or_default();
    let host = match first.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => first,
    };
    format!("{SCHEME}{host}:{PORT}")
}

impl PulsarAdmin {
    /// A client of the API at this URL.
    pub fn new(url: &str) -> Result<PulsarAdmin, InvalidAdminUrl> {
        let invalid = || InvalidAdminUrl(url.to_owned());
        let host = url.strip_prefix(SCHEME).ok_or_else(invalid)?.trim_end_matches('/');
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        if name.is_empty() || host.contains('/') || !(port.is_empty() || port.parse::<u16>().is_ok()) {
            return Err(invalid());
        }
        let host = if port.is_empty() { format!("{name}:{PORT}") } else { host.to_owned() };
        Ok(PulsarAdmin { host: host.into() })
    }

    /// Succeeds if the broker is healthy.
    pub async fn health(&self) -> Result<(), AdminFailure> {
        self.send("GET", "brokers/health", "").await.map(drop)
    }

    /// The broker's version.
    pub async fn version(&self) -> Result<String, AdminFailure> {
        Ok(self.send("GET", "brokers/version", "").await?.trim().trim_matches('"').to_owned())
    }

    /// A setting of the broker at this address; `None` if the request fails or the broker lacks the setting.
    pub(super) async fn setting(&self, key: &str) -> Option<String> {
        let text = self.send("GET", "brokers/configuration/runtime", "").await.ok()?;
        let all: std::collections::BTreeMap<String, String> = serde_json::from_str(&text).ok()?;
        all.get(key).cloned()
    }

    /// The copies of entries in the namespace of the lab's topics; `None` if the brokers' settings decide.
    pub(super) async fn persistence(&self) -> Option<Persistence> {
        self.read(&format!("namespaces/{NAMESPACE}/persistence")).await.ok()
    }

    /// Creates a topic with partitions, and a subscription that keeps all of its messages.
    pub async fn create_topic(
        &self,
        topic: &str,
        partitions: u32,
        subscription: &str,
    ) -> Result<(), AdminFailure> {
        let at = topic_path(topic);
        self.send("PUT", &format!("{at}/partitions"), &partitions.to_string()).await?;
        self.subscribe(topic, subscription).await
    }

    /// Makes a subscription that begins with the oldest message.
    pub async fn subscribe(&self, topic: &str, subscription: &str) -> Result<(), AdminFailure> {
        let earliest = r#"{"ledgerId":-1,"entryId":-1,"partitionIndex":-1}"#;
        let path = format!("{}/subscription/{subscription}", topic_path(topic));
        self.send("PUT", &path, earliest).await.map(drop)
    }

    /// Deletes a topic with its subscriptions. A missing topic is no error.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), AdminFailure> {
        match self.send("DELETE", &format!("{}/partitions?force=true", topic_path(topic)), "").await {
            Err(failure) if failure.status == Some(404) => Ok(()),
            other => other.map(drop),
        }
    }

    /// The state of a partition.
    pub async fn partition_stats(&self, topic: &str, partition: u32) -> Result<PartitionStats, AdminFailure> {
        self.read(&format!("{}-partition-{partition}/stats", topic_path(topic))).await
    }

    /// The ledgers of a partition, oldest first, with the entries that are stored.
    pub async fn ledgers(&self, topic: &str, partition: u32) -> Result<Vec<StoredLedger>, AdminFailure> {
        let path = format!("{}-partition-{partition}/internalStats", topic_path(topic));
        let stats: InternalStats = self.read(&path).await?;
        Ok(stored(stats))
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminFailure> {
        let text = self.send("GET", path, "").await?;
        serde_json::from_str(&text).map_err(|error| AdminFailure {
            method: "GET",
            url: self.url(path),
            reason: format!("unexpected answer: {error}"),
            status: None,
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{SCHEME}{}/admin/v2/{path}", self.host)
    }

    /// Sends a request, and returns the text of a successful answer.
    async fn send(&self, method: &'static str, path: &str, body: &str) -> Result<String, AdminFailure> {
        let (mut host, mut target) = (self.host.to_string(), format!("/admin/v2/{path}"));
        for _ in 0..=REDIRECTS_MAX {
            let failed = |reason: String, status: Option<u16>| AdminFailure {
                method,
                url: format!("{SCHEME}{host}{target}"),
                reason,
                status,
            };
            let sent = tokio::time::timeout(TIMEOUT, exchange(method, &host, &target, body)).await;
            let text = match sent {
                Ok(Ok(text)) => text,
                Ok(Err(error)) => return Err(failed(error.to_string(), None)),
                Err(_) => return Err(failed(format!("no answer within {} s", TIMEOUT.as_secs()), None)),
            };
            let (head, content) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
            let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
            match status {
                Some(200..=299) => return Ok(content.to_owned()),
                Some(301..=308) => {
                    let Some((next, path)) = location(head) else {
                        return Err(failed("a referral without an address".to_owned(), status));
                    };
                    (host, target) = (next, path);
                }
                Some(code) => {
                    let excerpt: String = content.trim().chars().take(EXCERPT).collect();
                    return Err(failed(format!("status {code} {excerpt}"), status));
                }
                None => return Err(failed("the answer is not HTTP".to_owned(), None)),
            }
        }
        let reason = format!("more than {REDIRECTS_MAX} referrals");
        Err(AdminFailure { method, url: self.url(path), reason, status: None })
    }
}

fn topic_path(topic: &str) -> String {
    format!("persistent/{NAMESPACE}/{topic}")
}

/// The current ledger reports no entries: its last confirmed entry has their number.
fn stored(stats: InternalStats) -> Vec<StoredLedger> {
    let mut last = stats.last_confirmed_entry.split(':').map(|part| part.parse::<i64>().ok());
    let (last_ledger, last_entry) = (last.next().flatten(), last.next().flatten());
    let entries = |ledger: &InternalLedger| match (last_ledger, last_entry) {
        (Some(of), Some(entry)) if of == ledger.ledger_id => entry + 1,
        _ => ledger.entries,
    };
    stats
        .ledgers
        .iter()
        .map(|ledger| StoredLedger { ledger: ledger.ledger_id, entries: entries(ledger).max(0) })
        .collect()
}

/// Host and path of the header Location.
fn location(head: &str) -> Option<(String, String)> {
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then_some(value.trim())
    })?;
    let (host, path) = value.strip_prefix(SCHEME)?.split_once('/')?;
    Some((host.to_owned(), format!("/{path}")))
}

/// Sends a request of HTTP 1.0, whose answer ends with the connection.
async fn exchange(method: &str, host: &str, target: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_pulsars_port_unless_they_name_one() {
        for (url, host) in [("http://h", "h:8080"), ("http://h:80/", "h:80")] {
            assert_eq!(&*PulsarAdmin::new(url).expect("a URL").host, host);
        }
        for wrong in ["https://h", "h:8080", "http://", "http://h:x", "http://h/admin"] {
            assert_eq!(PulsarAdmin::new(wrong).map(drop), Err(InvalidAdminUrl(wrong.to_owned())));
        }
        assert_eq!(default_admin_url("pulsar://a:6650,b:6651/"), "http://a:8080");
        assert_eq!(default_admin_url("pulsar://a"), "http://a:8080");
    }

    #[test]
    fn the_entries_of_the_current_ledger_follow_from_the_last_confirmed_one() {
        let text = r#"{"lastConfirmedEntry":"12:4","ledgers":[{"ledgerId":7,"entries":50000},{"ledgerId":12,"entries":0}]}"#;
        let ledgers = stored(serde_json::from_str(text).expect("stats"));
        let expected = [(7, 50000), (12, 5)].map(|(ledger, entries)| StoredLedger { ledger, entries });
        assert_eq!(ledgers, expected);
        let empty = r#"{"lastConfirmedEntry":"12:-1","ledgers":[{"ledgerId":12,"entries":0}]}"#;
        assert_eq!(stored(serde_json::from_str(empty).expect("stats"))[0].entries, 0);
    }

    /// A server that gives each connection the next answer.
    async fn server(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let serving = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = [0; 1024];
                let count = stream.read(&mut request).await.expect("a request");
                let line =
                    String::from_utf8_lossy(&request[..count]).lines().next().unwrap_or_default().to_owned();
                asked.push(line);
                stream.write_all(answer.as_bytes()).await.expect("sent");
            }
            asked
        });
        (url, serving)
    }

    #[tokio::test]
    async fn referrals_lead_to_the_owner_and_refusals_are_named() {
        let (owner, serving) = server(vec!["HTTP/1.0 200 OK\r\n\r\n{\"msgInCounter\":7}".to_owned()]).await;
        let referral = format!("HTTP/1.0 307 x\r\nLocation: {owner}/admin/v2/there\r\n\r\n");
        let refusal = "HTTP/1.0 409 Conflict\r\n\r\n{\"reason\":\"it exists\"}".to_owned();
        let gone = "HTTP/1.0 404 Not Found\r\n\r\n".to_owned();
        let (url, first) = server(vec![referral, refusal, gone]).await;
        let admin = PulsarAdmin::new(&url).expect("a URL");
        let stats = admin.partition_stats("t", 3).await.expect("stats");
        assert_eq!(stats, PartitionStats { msg_in_counter: 7, storage_size: 0 });
        let refused = admin.create_topic("t", 3, "s").await.expect_err("it exists").to_string();
        assert!(refused.contains("PUT http://") && refused.contains("409") && refused.contains("it exists"));
        admin.delete_topic("t").await.expect("what is not there is deleted");
        let asked = first.await.expect("served");
        assert!(asked[0].contains("/admin/v2/persistent/public/default/t-partition-3/stats"), "{asked:?}");
        assert_eq!(serving.await.expect("served")[0], "GET /admin/v2/there HTTP/1.0");
    }
}
