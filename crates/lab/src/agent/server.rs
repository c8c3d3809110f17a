//! The agent: accepts connections of labs, and serves one request of each.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_security::tls::ServerTls;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::brokers::{AdvertisedBroker, BROKERS_MAX, FoundBroker};
use super::error::AgentError;
use super::protocol::{
    Answer, Channel, ChannelError, HELLO_BYTES_MAX, Hello, Identity, PROTOCOL, Request, SERVICE,
    SILENCE_TIMEOUT, Stream, UsageAnswer, UsageCommand, tend,
};
use super::security::{Security, is_lab};
use super::{brokers, clock, facts, paths, relay};
use crate::result::WatchedBroker;
use crate::sample::Sampler;
use crate::worker::clock::Clock;

/// Maximum number of connections of labs.
const CONNECTIONS_MAX: usize = 1024;
/// Maximum number of connections that have not shown yet that they are a lab's. The oldest makes room for a
/// new one, so that silent ones do not close the agent to its lab.
const STRANGERS_MAX: usize = 64;
/// Maximum time for a handshake, a first line, or an answer to be taken.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for the connections of a lab that has ended to end, too.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time between two lines of a lab that samples usage: the longest repetition.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of clock exchanges on a connection.
const EXCHANGES_MAX: usize = 10_000;
/// Maximum bytes of a rate in one direction.
const RATE_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of sampled processes.
const PROCESSES_MAX: usize = 4096;
/// The pause after a failed accept, as without free files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The address, `host:port`; port 0 is any free one.
    pub listen: String,
    pub security: Security,
    /// The binary of workers.
    pub binary: PathBuf,
    /// Version and commit of the program.
    pub version: String,
    /// The data directories of brokers on this machine.
    pub data_dirs: Vec<PathBuf>,
    /// True to run no clients, and to sample no processes but those of brokers.
    pub watch_only: bool,
    /// Pretends to be another machine than it is, for tests.
    pub boot_id: Option<String>,
    /// Makes all clocks of this agent and its workers wrong, for tests.
    pub clock_shift_us: i64,
}

/// An agent that listens.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<AgentState>,
}

#[derive(Debug)]
struct AgentState {
    options: AgentOptions,
    tls: Option<ServerTls>,
    identity: Identity,
    connections: Semaphore,
    holder: Mutex<Holder>,
}

/// The lab that is served, and the number of its connections; of a lab without connections none remains.
#[derive(Debug, Default)]
struct Holder {
    lab: String,
    connections: usize,
}

/// A connection of the lab that is served.
#[derive(Debug)]
struct LabConnection<'a>(&'a AgentState);

impl Drop for LabConnection<'_> {
    fn drop(&mut self) {
        self.0.holder().connections -= 1;
    }
}

/// Listens, without serving yet.
pub async fn listen(options: AgentOptions) -> Result<Listening, AgentError> {
    let failed = |source| AgentError::NotListening { address: options.listen.clone(), source };
    let tls = options.security.server()?;
    let listener = TcpListener::bind(&options.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    options.security.check(&options.listen, address.ip())?;
    // From now on, the clock of this agent and its workers runs through.
    let started_us = Clock::of_process().now_us();
    let connections = Semaphore::new(CONNECTIONS_MAX);
    let boot_id = options.boot_id.clone().or_else(facts::boot_id);
    // Containers of one machine have its boot id, and may have equal process ids.
    let instance = format!("{}-{started_us}-{}", boot_id.as_deref().unwrap_or_default(), std::process::id());
    let identity = Identity { instance: Some(format!("{instance}-{}", address.port())), boot_id };
    Ok(Listening {
        listener,
        address,
        shared: Arc::new(AgentState { options, tls, identity, connections, holder: Mutex::default() }),
    })
}

impl Listening {
    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until dropped, which kills all workers.
    pub async fn serve(self) {
        // The oldest first; a sender that is dropped ends its connection.
        let mut strangers: VecDeque<oneshot::Sender<()>> = VecDeque::new();
        let mut served = tokio::task::JoinSet::new();
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "Failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            strangers.retain(|stranger| !stranger.is_closed());
            if strangers.len() == STRANGERS_MAX {
                strangers.pop_front();
            }
            let (stranger, evicted) = oneshot::channel();
            strangers.push_back(stranger);
            let shared = Arc::clone(&self.shared);
            served.spawn(async move {
                let welcomed = tokio::select! {
                    welcomed = shared.welcome(stream) => welcomed,
                    _ = evicted => Err(format!("{STRANGERS_MAX} later ones wait, too")),
                };
                let (channel, lab) = match welcomed {
                    Ok(welcomed) => welcomed,
                    Err(reason) => {
                        tracing::warn!(%peer, reason, "Refused a connection");
                        return;
                    }
                };
                if let Err(error) = shared.serve(channel, &lab).await {
                    tracing::info!(%peer, %error, "Ended a connection");
                }
            });
            while served.try_join_next().is_some() {}
        }
    }
}

impl AgentState {
    fn holder(&self) -> MutexGuard<'_, Holder> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the agent for a lab. The error is the name of another lab that has it.
    async fn hold(&self, lab: &str) -> Result<LabConnection<'_>, String> {
        let until = Instant::now() + RELEASE_TIMEOUT;
        loop {
            {
                let mut holder = self.holder();
                if holder.connections == 0 {
                    lab.clone_into(&mut holder.lab);
                }
                if holder.lab == lab {
                    holder.connections += 1;
                    return Ok(LabConnection(self));
                }
                if Instant::now() >= until {
                    return Err(holder.lab.clone());
                }
            }
            tokio::time::sleep(RELEASE_TIMEOUT / 20).await;
        }
    }

    /// Lets a lab of this version in, and returns its name. The error is the reason of a refusal.
    async fn welcome(&self, stream: TcpStream) -> Result<(Channel, String), String> {
        tend(&stream).map_err(|error| error.to_string())?;
        let (stream, is_lab) = tokio::time::timeout(STEP_TIMEOUT, self.secured(stream))
            .await
            .map_err(|_| format!("no handshake within {STEP_TIMEOUT:?}"))??;
        let mut channel = Channel::new(stream);
        let line = channel.line(HELLO_BYTES_MAX, STEP_TIMEOUT).await.map_err(|error| error.to_string())?;
        let own = Hello { identity: self.identity.clone(), ..Hello::of(&self.options.version) };
        let mut lab = String::new();
        let refusal = match serde_json::from_slice::<Hello>(&line) {
            _ if !is_lab => Some("the certificate is not that of the lab".to_owned()),
            Ok(hello) if hello.is_alike(&own) => {
                lab = hello.identity.instance.unwrap_or_default();
                None
            }
            Ok(hello) if hello.service == SERVICE => Some(format!(
                "this agent is {}, protocol {PROTOCOL}; the lab is {}, protocol {}: use one version on all machines",
                own.version, hello.version, hello.protocol
            )),
            Ok(_) | Err(_) => Some("the first line is not that of a lab".to_owned()),
        };
        match refusal {
            None => {
                channel.write(&own, STEP_TIMEOUT).await.map_err(|error| error.to_string())?;
                Ok((channel, lab))
            }
            Some(why) => {
                let _ = channel.write(&Answer::<()>::Refused(why.clone()), STEP_TIMEOUT).await;
                Err(why)
            }
        }
    }

    /// The stream with TLS, and whether its client is a lab.
    async fn secured(&self, stream: TcpStream) -> Result<(Stream, bool), String> {
        let Some(tls) = &self.tls else { return Ok((Box::new(stream), true)) };
        let accepted = TlsAcceptor::from(tls.config()).accept(stream).await;
        let stream = accepted.map_err(|error| format!("TLS: {error}"))?;
        let session = tls.session(stream.get_ref().1).map_err(|error| error.to_string())?;
        let is_lab = session.certificate.is_some_and(|shown| is_lab(&shown.distinguished_name));
        Ok((Box::new(stream), is_lab))
    }

    async fn serve(&self, mut channel: Channel, lab: &str) -> Result<(), ChannelError> {
        let request: Request = channel.read(STEP_TIMEOUT).await?;
        let _held = match self.hold(lab).await {
            Ok(held) => held,
            Err(holder) => {
                let why = format!("it is in use by the lab {holder}");
                return channel.write(&Answer::<()>::Refused(why), STEP_TIMEOUT).await;
            }
        };
        let Ok(_place) = self.connections.try_acquire() else {
            let why = format!("it has {CONNECTIONS_MAX} connections already");
            return channel.write(&Answer::<()>::Refused(why), STEP_TIMEOUT).await;
        };
        if self.options.watch_only && !request.is_of_watcher() {
            let why =
                "it only watches brokers, as with --data-dir: clients need an agent with --watch-only=false";
            return channel.write(&Answer::<()>::Refused(why.to_owned()), STEP_TIMEOUT).await;
        }
        tracing::debug!(?request, "Serving a request");
        match request {
            Request::Lease => {
                channel.write(&Answer::Ok(()), STEP_TIMEOUT).await?;
                loop {
                    channel.line(HELLO_BYTES_MAX, SILENCE_TIMEOUT).await?;
                }
            }
            Request::Facts => {
                let facts = facts::facts(&self.options.data_dirs, self.identity.boot_id.clone());
                channel.write(&Answer::Ok(facts), STEP_TIMEOUT).await
            }
            Request::Clock => self.clock(channel).await,
            Request::Rate { bytes } => rate(channel, bytes).await,
            Request::Check { bootstrap, properties } => {
                let paths = paths::check(&bootstrap, &properties).await;
                channel.write(&Answer::Ok(paths), STEP_TIMEOUT).await
            }
            Request::Worker { clock_correction_us } => {
                let ahead_us = Clock::of_process().ahead_us();
                let ahead_us =
                    ahead_us.saturating_add(clock_correction_us).saturating_add(self.options.clock_shift_us);
                let limits = relay::Limits { answer_within: STEP_TIMEOUT, silence_max: SILENCE_TIMEOUT };
                relay::run(channel, &self.options.binary, ahead_us, limits).await
            }
            Request::Usage => {
                channel.write(&Answer::Ok(()), STEP_TIMEOUT).await?;
                self.usage(channel, Sampler::start(Vec::new()), Vec::new()).await
            }
            Request::Watch { brokers, with_loopback } => self.watch(channel, brokers, with_loopback).await,
            Request::Logs { topics } => {
                let (dirs, topics) = (self.options.data_dirs.clone(), topics.into_iter().collect());
                let looking = tokio::task::spawn_blocking(move || brokers::logs(&dirs, &topics));
                let found =
                    looking.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
                let found = found.map_or_else(Answer::Refused, Answer::Ok);
                channel.write(&found, STEP_TIMEOUT).await
            }
        }
    }

    /// Answers every line with the time.
    async fn clock(&self, mut channel: Channel) -> Result<(), ChannelError> {
        channel.write(&Answer::Ok(()), STEP_TIMEOUT).await?;
        let clock = Clock::of_process();
        for _ in 0..EXCHANGES_MAX {
            match channel.line(clock::LINE_BYTES_MAX, STEP_TIMEOUT).await {
                Err(ChannelError::Closed) => break,
                line => line?,
            };
            let now_us = clock.now_us().saturating_add_signed(self.options.clock_shift_us);
            channel.send(format!("{now_us}\n").as_bytes(), STEP_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Finds the brokers of a cluster on this machine, and samples it and their processes.
    async fn watch(
        &self,
        mut channel: Channel,
        advertised: Vec<AdvertisedBroker>,
        with_loopback: bool,
    ) -> Result<(), ChannelError> {
        if advertised.len() > BROKERS_MAX {
            let why = format!("it looks for {BROKERS_MAX} brokers at most");
            return channel.write(&Answer::<()>::Refused(why), STEP_TIMEOUT).await;
        }
        let found = brokers::find(advertised, with_loopback).await;
        let processes: Vec<(String, u32)> = found.iter().filter_map(FoundBroker::sampled).collect();
        let sampler = Sampler::start(processes);
        let known: Vec<WatchedBroker> = found.iter().map(|found| found.broker.clone()).collect();
        channel.write(&Answer::Ok(known), STEP_TIMEOUT).await?;
        self.usage(channel, sampler, found).await
    }

    /// Samples processes that the lab names, until it wants the usage.
    async fn usage(
        &self,
        mut channel: Channel,
        sampler: Sampler,
        brokers: Vec<FoundBroker>,
    ) -> Result<(), ChannelError> {
        let mut processes = 0;
        loop {
            match channel.read(IDLE_TIMEOUT).await? {
                UsageCommand::Add { name, pid } if processes < PROCESSES_MAX && !self.options.watch_only => {
                    processes += 1;
                    sampler.add(&name, pid);
                }
                UsageCommand::Add { .. } => {}
                UsageCommand::Finish { from_us, to_us } => {
                    // The sampler's times are not shifted.
                    let own = |us: u64| us.saturating_add_signed(-self.options.clock_shift_us);
                    let usage = sampler.finish(own(from_us), own(to_us));
                    let brokers = brokers::after(brokers);
                    let answer = UsageAnswer { processes: usage.processes, host: usage.host, brokers };
                    return channel.write(&Answer::Ok(answer), STEP_TIMEOUT).await;
                }
            }
        }
    }
}

/// Takes bytes, says so, and sends as many.
async fn rate(mut channel: Channel, bytes: u64) -> Result<(), ChannelError> {
    if bytes > RATE_BYTES_MAX {
        let why = format!("a rate is measured with {RATE_BYTES_MAX} bytes at most");
        return channel.write(&Answer::<()>::Refused(why), STEP_TIMEOUT).await;
    }
    channel.write(&Answer::Ok(()), STEP_TIMEOUT).await?;
    channel.skip(bytes, STEP_TIMEOUT).await?;
    channel.send(b"\n", STEP_TIMEOUT).await?;
    let block = vec![0; 64 << 10];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        channel.send(&block[..part], STEP_TIMEOUT).await?;
        left -= part as u64;
    }
    Ok(())
}
