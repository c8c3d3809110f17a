//! The protocol between lab and agent: lines of JSON.
//!
//! ```text
//! lab    {"service":"thalweg-lab-agent","protocol":2,"version":"thalweg 0.1.0","instance":"…"}
//! agent  the same, with "boot_id"; or {"refused":"…"}, and the end
//! lab    {"request":"clock"}
//! agent  {"ok":…} or {"refused":"…"}, and what follows for the request
//! ```
//!
//! What follows: for `clock`, a line of the agent's clock for each line of the lab; for `rate`, bytes in both
//! directions; for `worker`, the lines of the worker; for `usage` and `watch`, processes to observe, and the
//! usage at the end; for `lease`, empty lines of the lab as signs of life.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thalweg_client::ByteStream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::net::TcpStream;

use super::brokers::AdvertisedBroker;
use crate::result::{HostUse, ProcessUse, WatchedBroker};

/// The version of this protocol.
pub(super) const PROTOCOL: u32 = 2;
/// The name of this protocol.
pub(super) const SERVICE: &str = "thalweg-lab-agent";
/// Maximum length of a line, except lines of workers: the log files of the partitions with the longest names.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// Maximum length of the first line, which a stranger may send.
pub(super) const HELLO_BYTES_MAX: u64 = 4 << 10;
/// Maximum time of a peer without a sign of life: TCP's probes, and lines of a lab with a worker.
const SILENCE_S: u32 = 15;
/// [`SILENCE_S`].
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(SILENCE_S as u64);

/// The first line of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// [`SERVICE`].
    pub(super) service: String,
    /// [`PROTOCOL`].
    pub(super) protocol: u32,
    /// Version and commit of the program.
    pub(super) version: String,
    /// The agent, or the lab by a name for users.
    #[serde(flatten)]
    pub(super) identity: Identity,
}

/// The identity of an agent, by which addresses of one agent, and agents of one machine, are found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The process of the agent, or of the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instance: Option<String>,
    /// The kernel's id of this start of the machine; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) boot_id: Option<String>,
}

impl Identity {
    /// True if another line is from the same machine: its clock is the same. Without boot ids, the processes
    /// must be the same.
    pub(super) fn is_same_machine(&self, other: &Identity) -> bool {
        match (&self.boot_id, &other.boot_id) {
            (None, None) => self.instance == other.instance,
            (own, other) => own == other,
        }
    }
}

impl Hello {
    pub(super) fn of(version: &str) -> Hello {
        Hello {
            service: SERVICE.to_owned(),
            protocol: PROTOCOL,
            version: version.to_owned(),
            identity: Identity::default(),
        }
    }

    /// True if both are of one version.
    pub(super) fn is_alike(&self, other: &Hello) -> bool {
        (&self.service, self.protocol, &self.version) == (&other.service, other.protocol, &other.version)
    }
}

/// The second line of the lab. Its `Debug` names the kind only: a check has the cluster's passwords.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "request")]
pub(super) enum Request {
    /// The agent serves no other lab as long as this connection, or any other of the lab.
    Lease,
    Facts,
    /// The clock, as often as the lab asks.
    Clock,
    /// The rate of the connection: this many bytes to the agent, then as many back.
    Rate {
        bytes: u64,
    },
    /// The paths to the brokers of a cluster.
    Check {
        bootstrap: Vec<String>,
        properties: std::collections::BTreeMap<String, String>,
    },
    /// A worker, whose clock is corrected by this.
    Worker {
        clock_correction_us: i64,
    },
    /// The usage of the machine and of processes.
    Usage,
    /// The usage of the machine and of the brokers on it. The answer names these. Loopback addresses are the
    /// machine's if the lab is on it.
    Watch {
        brokers: Vec<AdvertisedBroker>,
        with_loopback: bool,
    },
    /// The log files of topics below the data directories of the agent.
    Logs {
        topics: Vec<String>,
    },
}

impl Request {
    /// True for a request that runs no program, connects to nothing, and samples no processes that the lab
    /// names.
    pub(super) fn is_of_watcher(&self) -> bool {
        match self {
            Request::Lease
            | Request::Facts
            | Request::Clock
            | Request::Rate { .. }
            | Request::Watch { .. }
            | Request::Logs { .. } => true,
            Request::Check { .. } | Request::Worker { .. } | Request::Usage => false,
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Request::Lease => "lease",
            Request::Facts => "facts",
            Request::Clock => "clock",
            Request::Rate { .. } => "rate",
            Request::Check { .. } => "check",
            Request::Worker { .. } => "worker",
            Request::Usage => "usage",
            Request::Watch { .. } => "watch",
            Request::Logs { .. } => "logs",
        })
    }
}

/// The agent's first line after a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer<T> {
    Ok(T),
    Refused(String),
}

/// The process of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerProcess {
    pub(super) pid: u32,
}

/// A line of the lab while usage is sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "usage")]
pub(super) enum UsageCommand {
    /// Samples another process.
    Add { name: String, pid: u32 },
    /// The end: the usage between two times of the agent's clock is wanted.
    Finish { from_us: u64, to_us: u64 },
}

/// The usage of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct UsageAnswer {
    pub(crate) processes: Vec<ProcessUse>,
    pub(crate) host: HostUse,
    /// The watched brokers, at the end.
    pub(crate) brokers: Vec<WatchedBroker>,
}

/// Why a line did not come, or did not go.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    #[error("{0}")]
    Io(std::io::Error),
    #[error("it closed the connection")]
    Closed,
    #[error("its line is longer than {0} bytes")]
    TooLong(u64),
    #[error("its line is invalid: {0}")]
    Invalid(#[from] serde_json::Error),
}

impl From<std::io::Error> for ChannelError {
    fn from(error: std::io::Error) -> ChannelError {
        match error.kind() {
            // The end of a connection without close_notify, as of a killed process.
            std::io::ErrorKind::UnexpectedEof => ChannelError::Closed,
            _ => ChannelError::Io(error),
        }
    }
}

pub(super) type Stream = Box<dyn ByteStream>;

/// A connection between lab and agent.
pub(super) struct Channel {
    pub(super) reader: BufReader<ReadHalf<Stream>>,
    pub(super) writer: WriteHalf<Stream>,
}

impl Channel {
    pub(super) fn new(stream: Stream) -> Channel {
        let (reader, writer) = tokio::io::split(stream);
        Channel { reader: BufReader::with_capacity(64 << 10, reader), writer }
    }

    /// The next line, without its end.
    pub(super) async fn line(&mut self, bytes_max: u64, within: Duration) -> Result<Vec<u8>, ChannelError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(bytes_max);
        match tokio::time::timeout(within, limited.read_until(b'\n', &mut line)).await {
            Err(_) => Err(ChannelError::Silent(within)),
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(_)) if line.pop_if(|last| *last == b'\n').is_some() => Ok(line),
            Ok(Ok(bytes)) if bytes as u64 == bytes_max => Err(ChannelError::TooLong(bytes_max)),
            Ok(Ok(_)) => Err(ChannelError::Closed),
        }
    }

    /// The next line, as a value.
    pub(super) async fn read<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, ChannelError> {
        Ok(serde_json::from_slice(&self.line(LINE_BYTES_MAX, within).await?)?)
    }

    /// Reads and drops bytes.
    pub(super) async fn skip(&mut self, bytes: u64, within: Duration) -> Result<(), ChannelError> {
        let (mut limited, mut sink) = ((&mut self.reader).take(bytes), tokio::io::sink());
        let skipped = tokio::io::copy_buf(&mut limited, &mut sink);
        let skipped =
            tokio::time::timeout(within, skipped).await.map_err(|_| ChannelError::Silent(within))??;
        if skipped < bytes { Err(ChannelError::Closed) } else { Ok(()) }
    }

    /// Sends a value as a line.
    pub(super) async fn write<T: Serialize>(
        &mut self,
        value: &T,
        within: Duration,
    ) -> Result<(), ChannelError> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.send(&line, within).await
    }

    /// Sends bytes, within a time limit.
    pub(super) async fn send(&mut self, bytes: &[u8], within: Duration) -> Result<(), ChannelError> {
        let sent = async {
            self.writer.write_all(bytes).await?;
            self.writer.flush().await
        };
        tokio::time::timeout(within, sent)
            .await
            .map_err(|_| ChannelError::Silent(within))?
            .map_err(ChannelError::from)
    }
}

/// Makes a connection end soon after its peer has vanished, and sends small lines at once.
pub(super) fn tend(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(u64::from(SILENCE_S / 3)))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(u64::from(SILENCE_S / 3)))?;
    sockopt::set_tcp_keepcnt(stream, 2)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, SILENCE_S * 1000)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_the_goodbye_of_tls_is_an_end() {
        let torn = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "see the manual of the library");
        assert_eq!(ChannelError::from(torn).to_string(), "it closed the connection");
    }

    #[tokio::test]
    async fn lines_have_limits_of_length_and_time() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut channel = Channel::new(Box::new(near));
        far.write_all(b"{\"request\":\"facts\"}\n1234567").await.expect("there is room");
        let within = Duration::from_millis(50);
        assert_eq!(channel.read::<Request>(within).await.expect("a line"), Request::Facts);
        assert!(matches!(channel.line(7, within).await, Err(ChannelError::TooLong(7))));
        assert!(matches!(channel.line(7, within).await, Err(ChannelError::Silent(_))));
        far.write_all(b"torn").await.expect("there is room");
        drop(far);
        assert!(matches!(channel.line(7, within).await, Err(ChannelError::Closed)));
    }

    #[tokio::test]
    async fn the_log_files_of_most_partitions_with_the_longest_names_fit_a_line() {
        use crate::agent::brokers::PARTITIONS_MAX;
        use crate::result::{DataDirectory, PartitionFiles};
        let topic = "t".repeat(249);
        let request = Request::Logs { topics: vec![topic.clone(); PARTITIONS_MAX] };
        let files = PartitionFiles { topic, partition: i32::MAX, bytes: u64::MAX };
        let directory = DataDirectory { partitions: vec![files; PARTITIONS_MAX], ..DataDirectory::default() };
        let answer = Answer::Ok(vec![directory]);
        let (near, far) = tokio::io::duplex(64 << 10);
        let (mut near, mut far) = (Channel::new(Box::new(near)), Channel::new(Box::new(far)));
        let within = Duration::from_secs(60);
        let (sent, read) = tokio::join!(near.write(&request, within), far.read::<Request>(within));
        sent.expect("taken");
        assert!(read.expect("a line") == request);
        let (sent, read) =
            tokio::join!(far.write(&answer, within), near.read::<Answer<Vec<DataDirectory>>>(within));
        sent.expect("taken");
        assert!(read.expect("a line") == answer);
    }

    #[test]
    fn a_logged_check_has_no_password() {
        let properties = [("sasl.jaas.config".to_owned(), "password=secret".to_owned())].into();
        let check = Request::Check { bootstrap: vec!["b:9092".to_owned()], properties };
        assert_eq!(format!("{check:?}"), "check");
    }

    #[test]
    fn requests_are_lines_of_json() {
        let line = |request: &Request| serde_json::to_string(request).expect("JSON");
        assert_eq!(line(&Request::Clock), r#"{"request":"clock"}"#);
        let worker = Request::Worker { clock_correction_us: -7 };
        assert_eq!(line(&worker), r#"{"request":"worker","clock_correction_us":-7}"#);
        assert_eq!(
            serde_json::to_string(&Answer::Ok(WorkerProcess { pid: 3 })).expect("JSON"),
            r#"{"ok":{"pid":3}}"#
        );
    }
}
