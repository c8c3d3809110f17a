//! The lab's view of the agents of a run.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use thalweg_client::ByteStream;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::clock;
use super::error::AgentError;
use super::facts::boot_id;
use super::placement::Placement;
use super::protocol::{
    Answer, Channel, ChannelError, HELLO_BYTES_MAX, Hello, Identity, PROTOCOL, Request, SERVICE, UsageAnswer,
    UsageCommand, WorkerProcess, tend,
};
use super::security::Security;
use crate::result::{AgentInfo, BrokerPath, ClockOffset, LabPath};
use crate::worker::{HEARTBEAT, Handle};

/// Maximum time for a connection with its handshake, and for an answer.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of tries to connect to an agent that was reached before, and the pause between them.
const TRIES: (usize, Duration) = (4, Duration::from_secs(1));
/// Maximum time for a check of the paths, which tries every broker.
const CHECK_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of the first measurement of a rate, and the least of the second one.
const RATE_BYTES_MIN: u64 = 256 << 10;
/// Maximum bytes of a measurement of a rate.
const RATE_BYTES_MAX: u64 = 64 << 20;
/// Seconds that the second measurement takes, if the bytes suffice.
const RATE_S: f64 = 0.3;

/// The options of the agents of a run.
#[derive(Clone, Debug)]
pub struct AgentsOptions {
    /// The addresses, `host:port`.
    pub addresses: Vec<String>,
    pub security: Security,
    pub placement: Placement,
    /// Version and commit of this program.
    pub version: String,
}

/// The agents of a run. Clones share what is known of them.
#[derive(Clone, Debug)]
pub struct Agents(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: AgentsOptions,
    client: thalweg_client::Security,
    infos: Mutex<Vec<AgentInfo>>,
    /// The agents as they were at the beginning, by address.
    identities: BTreeMap<String, Identity>,
    /// An agent on another machine, if there is one, and this machine's address on the way to it.
    elsewhere: Option<(String, IpAddr)>,
    /// The name of this lab, for refusals to others.
    lab: String,
    leases: Vec<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leases.iter().for_each(JoinHandle::abort);
    }
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug)]
struct Ends {
    local: IpAddr,
    peer: IpAddr,
}

/// Usage of an agent's machine, sampled from its start on.
pub struct MachineUse {
    pub(super) agent: String,
    pub(super) channel: Channel,
}

impl std::fmt::Debug for MachineUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineUse").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl Agents {
    /// Connects to each agent, and learns its machine and the path to it.
    pub async fn connect(options: AgentsOptions) -> Result<Agents, AgentError> {
        let machine = rustix::system::uname();
        let lab = format!("on {}, process {}", machine.nodename().to_string_lossy(), std::process::id());
        Agents::connect_as(lab, options).await
    }

    pub(super) async fn connect_as(lab: String, options: AgentsOptions) -> Result<Agents, AgentError> {
        for (place, address) in options.addresses.iter().enumerate() {
            if options.addresses[..place].contains(address) {
                return Err(AgentError::Twice(address.clone()));
            }
        }
        if options.placement == Placement::Apart && options.addresses.len() < 2 {
            return Err(AgentError::TooFewToPart);
        }
        let client = options.security.client()?;
        let (infos, identities) = (Mutex::default(), BTreeMap::new());
        let leases = Vec::new();
        let mut inner = Inner { options, client, infos, identities, elsewhere: None, lab, leases };
        let mut infos = Vec::new();
        for address in inner.options.addresses.clone() {
            let (_, _, identity) = inner.open(&address).await?;
            let same = |(_, known): &(&String, &Identity)| {
                known.instance.is_some() && known.instance == identity.instance
            };
            if let Some((known, _)) = inner.identities.iter().find(same) {
                return Err(AgentError::OneAgent { a: known.clone(), b: address });
            }
            // All further connections must lead to this machine.
            inner.identities.insert(address.clone(), identity);
            inner.leases.push(inner.lease(&address).await?);
            let (mut channel, ends) =
                inner.request(&address, &Request::Facts, "the question for its machine").await?;
            let mut info: AgentInfo =
                answer(&address, &mut channel, "the question for its machine", STEP_TIMEOUT).await?;
            if is_elsewhere(info.boot_id.as_deref(), boot_id().as_deref(), ends.peer) {
                inner.elsewhere.get_or_insert_with(|| (address.clone(), ends.local));
            }
            info.path = Some(inner.path(&address).await?);
            info.address = address;
            infos.push(info);
        }
        inner.infos = Mutex::new(infos);
        Ok(Agents(Arc::new(inner)))
    }

    /// What is known of each agent so far.
    pub fn infos(&self) -> Vec<AgentInfo> {
        self.0.infos().clone()
    }

    /// The number of agents.
    pub fn count(&self) -> usize {
        self.0.options.addresses.len()
    }

    /// The rule that places workers.
    pub fn placement(&self) -> Placement {
        self.0.options.placement
    }

    /// The address of an agent.
    pub(crate) fn address(&self, agent: usize) -> &str {
        &self.0.options.addresses[agent]
    }

    /// True if an agent is on this machine.
    pub(crate) fn is_here(&self, agent: usize) -> bool {
        let own = boot_id();
        own.is_some() && self.0.infos()[agent].boot_id == own
    }

    /// Refuses agents on other machines, from where brokers on loopback cannot be reached.
    pub fn check_reach_loopback(&self) -> Result<(), AgentError> {
        match &self.0.elsewhere {
            Some((agent, _)) => Err(AgentError::BrokersOutOfReach { agent: agent.clone() }),
            None => Ok(()),
        }
    }

    /// The address at which the agents reach this machine: loopback, unless one is on another machine.
    pub(crate) fn own_address(&self) -> IpAddr {
        self.0.elsewhere.as_ref().map_or(Ipv4Addr::LOCALHOST.into(), |(_, local)| *local)
    }

    /// Checks the paths from every agent to the brokers of a target, and keeps what was found.
    pub(crate) async fn check_paths(
        &self,
        target: &str,
        bootstrap: &[String],
        properties: &BTreeMap<String, String>,
    ) -> Result<(), AgentError> {
        const WHAT: &str = "the check of its paths";
        for agent in 0..self.count() {
            let address = self.address(agent);
            let request = Request::Check { bootstrap: bootstrap.to_vec(), properties: properties.clone() };
            let (mut channel, _) = self.0.request(address, &request, WHAT).await?;
            let mut paths: Vec<BrokerPath> = answer(address, &mut channel, WHAT, CHECK_TIMEOUT).await?;
            let unusable = paths.iter().find_map(|path| Some((path.broker.clone(), path.failure.clone()?)));
            paths.iter_mut().for_each(|path| target.clone_into(&mut path.target));
            let known = &mut self.0.infos()[agent].brokers;
            known.retain(|path| path.target != target);
            known.extend(paths);
            if let Some((broker, why)) = unusable {
                return Err(AgentError::BrokerUnusable { agent: address.to_owned(), broker, why });
            }
        }
        Ok(())
    }

    /// The offset of an agent's clock, now.
    pub(crate) async fn clock(&self, agent: usize) -> Result<ClockOffset, AgentError> {
        Ok(self.0.clock(self.address(agent)).await?.0)
    }

    /// Starts a worker on an agent's machine, whose clock is ahead by `offset_us`. The worker waits for its
    /// assignment.
    pub(crate) async fn worker(
        &self,
        agent: usize,
        name: String,
        offset_us: i64,
    ) -> Result<Handle, AgentError> {
        const WHAT: &str = "the request for a worker";
        let address = self.address(agent);
        let request = Request::Worker { clock_correction_us: offset_us.saturating_neg() };
        let (mut channel, _) = self.0.request(address, &request, WHAT).await?;
        let started: WorkerProcess = answer(address, &mut channel, WHAT, STEP_TIMEOUT).await?;
        let Channel { reader, writer } = channel;
        Ok(Handle::over(name, address.to_owned(), started.pid, (Box::new(reader), writer)))
    }

    /// Starts to sample the usage of an agent's machine.
    pub(crate) async fn sample(&self, agent: usize) -> Result<MachineUse, AgentError> {
        const WHAT: &str = "the request for its usage";
        let mut machine = self.open_usage(agent, &Request::Usage, WHAT).await?;
        answer::<()>(&machine.agent, &mut machine.channel, WHAT, STEP_TIMEOUT).await?;
        Ok(machine)
    }

    /// Opens a connection to an agent with a request, whose answer is still to be read.
    pub(super) async fn open_usage(
        &self,
        agent: usize,
        request: &Request,
        what: &'static str,
    ) -> Result<MachineUse, AgentError> {
        let agent = self.address(agent).to_owned();
        let (channel, _) = self.0.request(&agent, request, what).await?;
        Ok(MachineUse { agent, channel })
    }
}

impl MachineUse {
    /// Samples a process, too.
    pub(crate) async fn add(&mut self, name: &str, pid: u32) -> Result<(), AgentError> {
        let add = UsageCommand::Add { name: name.to_owned(), pid };
        self.channel.write(&add, STEP_TIMEOUT).await.map_err(failed(&self.agent, "a process to sample"))
    }

    /// The usage between two times of the agent's clock.
    async fn usage(mut self, from_us: u64, to_us: u64) -> Result<UsageAnswer, AgentError> {
        const WHAT: &str = "the request for its usage";
        let finish = UsageCommand::Finish { from_us, to_us };
        self.channel.write(&finish, STEP_TIMEOUT).await.map_err(failed(&self.agent, WHAT))?;
        answer(&self.agent, &mut self.channel, WHAT, STEP_TIMEOUT).await
    }

    /// The usage between two times of the lab's clock; the agent's is ahead by `offset_us`. The processes are
    /// marked with the agent's address.
    pub(crate) async fn finish(
        self,
        (from_us, to_us): (u64, u64),
        offset_us: i64,
    ) -> Result<UsageAnswer, AgentError> {
        let agent = self.agent.clone();
        let there = |us: u64| us.saturating_add_signed(offset_us);
        let mut usage = self.usage(there(from_us), there(to_us)).await?;
        usage.processes.iter_mut().for_each(|one| one.agent = Some(agent.clone()));
        Ok(usage)
    }
}

impl Inner {
    fn infos(&self) -> MutexGuard<'_, Vec<AgentInfo>> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection to an agent of this version, and sends a request.
    async fn request(
        &self,
        agent: &str,
        request: &Request,
        what: &'static str,
    ) -> Result<(Channel, Ends), AgentError> {
        let (mut channel, ends, _) = self.reopen(agent).await?;
        channel.write(request, STEP_TIMEOUT).await.map_err(failed(agent, what))?;
        Ok((channel, ends))
    }

    /// Opens a connection, again if it is lost before its first request.
    async fn reopen(&self, agent: &str) -> Result<(Channel, Ends, Identity), AgentError> {
        for _ in 1..TRIES.0 {
            match self.open(agent).await {
                Err(AgentError::Unreachable { .. } | AgentError::Lost { .. } | AgentError::Silent { .. }) => {
                    tokio::time::sleep(TRIES.1).await;
                }
                outcome => return outcome,
            }
        }
        self.open(agent).await
    }

    async fn open(&self, agent: &str) -> Result<(Channel, Ends, Identity), AgentError> {
        const WHAT: &str = "the lab's first line";
        let unreachable = |why: String| AgentError::Unreachable { agent: agent.to_owned(), why };
        let connecting = timeout(STEP_TIMEOUT, TcpStream::connect(agent)).await;
        let connected = connecting.map_err(|_| unreachable(format!("no answer within {STEP_TIMEOUT:?}")))?;
        let stream = connected.map_err(|error| unreachable(error.to_string()))?;
        tend(&stream).map_err(|error| unreachable(error.to_string()))?;
        let ip = |address: io::Result<SocketAddr>| match address {
            Ok(address) => Ok(address.ip()),
            Err(error) => Err(unreachable(error.to_string())),
        };
        let ends = Ends { local: ip(stream.local_addr())?, peer: ip(stream.peer_addr())? };
        self.options.security.check(agent, ends.peer)?;
        let plain: Box<dyn ByteStream> = Box::new(stream);
        let wrapped = timeout(STEP_TIMEOUT, self.client.wrap(plain, agent)).await;
        let wrapped = wrapped.map_err(|_| unreachable(format!("no handshake within {STEP_TIMEOUT:?}")))?;
        let mut channel =
            Channel::new(wrapped.map_err(|fault| unreachable(self.options.security.reason(&fault)))?);
        let identity = Identity { instance: Some(self.lab.clone()), boot_id: None };
        let own = Hello { identity, ..Hello::of(&self.options.version) };
        channel.write(&own, STEP_TIMEOUT).await.map_err(failed(agent, WHAT))?;
        let line = match channel.line(HELLO_BYTES_MAX, STEP_TIMEOUT).await {
            // An agent with certificates does not understand a lab without.
            Err(ChannelError::Closed) if self.options.security.is_insecure() => {
                return Err(AgentError::WantsCertificates { agent: agent.to_owned() });
            }
            line => line.map_err(failed(agent, WHAT))?,
        };
        match serde_json::from_slice::<Hello>(&line) {
            Ok(hello) if hello.is_alike(&own) => {
                let known = self.identities.get(agent);
                return match known.is_none_or(|known| known.is_same_machine(&hello.identity)) {
                    true => Ok((channel, ends, hello.identity)),
                    false => Err(AgentError::OtherMachine { agent: agent.to_owned() }),
                };
            }
            Ok(Hello { service, protocol, version, .. }) if service == SERVICE => {
                return Err(AgentError::OtherVersion {
                    agent: agent.to_owned(),
                    found: version,
                    protocol,
                    own: own.version,
                    own_protocol: PROTOCOL,
                });
            }
            Ok(_) | Err(_) => {}
        }
        let agent = agent.to_owned();
        match serde_json::from_slice::<Answer<()>>(&line) {
            Ok(Answer::Refused(why)) => Err(AgentError::Refused { agent, why }),
            Ok(Answer::Ok(())) | Err(_) => {
                let found = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
                Err(AgentError::NotAnAgent { agent, found: format!("{found:?}") })
            }
        }
    }

    /// Keeps other labs from an agent, until aborted.
    async fn lease(&self, agent: &str) -> Result<JoinHandle<()>, AgentError> {
        const WHAT: &str = "the request for a lease";
        let (mut channel, _) = self.request(agent, &Request::Lease, WHAT).await?;
        answer::<()>(agent, &mut channel, WHAT, STEP_TIMEOUT).await?;
        let agent = agent.to_owned();
        Ok(tokio::spawn(async move {
            while let Ok(()) = channel.send(b"\n", STEP_TIMEOUT).await {
                tokio::time::sleep(HEARTBEAT).await;
            }
            tracing::warn!(agent, "Lost the lease of an agent, which may serve other labs now");
        }))
    }

    async fn clock(&self, agent: &str) -> Result<(ClockOffset, u64), AgentError> {
        const WHAT: &str = "a question for its clock";
        let (mut channel, _) = self.request(agent, &Request::Clock, WHAT).await?;
        answer::<()>(agent, &mut channel, WHAT, STEP_TIMEOUT).await?;
        clock::measure(&mut channel, STEP_TIMEOUT).await.map_err(failed(agent, WHAT))
    }

    /// The path to an agent: round trip, and rate in both directions.
    async fn path(&self, agent: &str) -> Result<LabPath, AgentError> {
        let (_, round_trip_us) = self.clock(agent).await?;
        let (sent, received) = self.rate(agent, RATE_BYTES_MIN).await?;
        let bytes = (sent.min(received) * RATE_S) as u64;
        let (sent, received) = match bytes {
            ..RATE_BYTES_MIN => (sent, received),
            _ => self.rate(agent, bytes.min(RATE_BYTES_MAX)).await?,
        };
        let mbit = |bytes_per_s: f64| bytes_per_s * 8.0 / 1e6;
        Ok(LabPath { round_trip_us, sent_mbit_per_s: mbit(sent), received_mbit_per_s: mbit(received) })
    }

    /// Bytes per second to the agent, and from it.
    async fn rate(&self, agent: &str, bytes: u64) -> Result<(f64, f64), AgentError> {
        const WHAT: &str = "a measurement of its rate";
        let (mut channel, _) = self.request(agent, &Request::Rate { bytes }, WHAT).await?;
        answer::<()>(agent, &mut channel, WHAT, STEP_TIMEOUT).await?;
        let block = vec![0; 64 << 10];
        let began = Instant::now();
        let mut left = bytes;
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            channel.send(&block[..part], STEP_TIMEOUT).await.map_err(failed(agent, WHAT))?;
            left -= part as u64;
        }
        channel.line(1, STEP_TIMEOUT).await.map_err(failed(agent, WHAT))?;
        let sent_s = began.elapsed().as_secs_f64();
        let began = Instant::now();
        channel.skip(bytes, STEP_TIMEOUT).await.map_err(failed(agent, WHAT))?;
        let per_s = |seconds: f64| bytes as f64 / seconds.max(1e-6);
        Ok((per_s(sent_s), per_s(began.elapsed().as_secs_f64())))
    }
}

/// True for an agent of another machine, by the boot ids of both machines, or else by its address: a machine
/// has addresses other than loopback, and a tunnel on loopback may lead elsewhere.
fn is_elsewhere(of_agent: Option<&str>, own: Option<&str>, ip: IpAddr) -> bool {
    match (of_agent, own) {
        (Some(of_agent), Some(own)) => of_agent != own,
        _ => !ip.is_loopback(),
    }
}

/// The answer to a request.
pub(super) async fn answer<T: DeserializeOwned>(
    agent: &str,
    channel: &mut Channel,
    what: &'static str,
    within: Duration,
) -> Result<T, AgentError> {
    match channel.read(within).await.map_err(failed(agent, what))? {
        Answer::Ok(answer) => Ok(answer),
        Answer::Refused(why) => Err(AgentError::Refused { agent: agent.to_owned(), why }),
    }
}

/// The error of a step.
fn failed(agent: &str, what: &'static str) -> impl FnOnce(ChannelError) -> AgentError {
    let agent = agent.to_owned();
    move |error| match error {
        ChannelError::Silent(waited) => AgentError::Silent { agent, what, waited },
        ChannelError::Invalid(source) => AgentError::Invalid { agent, what, source },
        error => AgentError::Lost { agent, what, why: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_is_known_by_its_boot_id() {
        let (loopback, network) = ([127, 0, 0, 1].into(), [10, 0, 0, 1].into());
        assert!(!is_elsewhere(Some("one"), Some("one"), network), "the machine's address in its network");
        assert!(is_elsewhere(Some("one"), Some("two"), loopback), "a tunnel");
        assert!(is_elsewhere(None, Some("two"), network) && !is_elsewhere(None, Some("two"), loopback));
    }
}
