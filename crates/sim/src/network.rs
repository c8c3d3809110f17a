//! The simulated network: machines, ports, connections, and their faults.
//!
//! Owns: every byte between two machines. Like TCP, a connection keeps its order; different connections have
//! different delays. A cut in one direction holds data until it is healed, like TCP's retransmission. A
//! process that ends resets its connections, and a machine without power is silent. Has no clock;
//! [`SharedNetwork::advance`] sets the time.

mod stream;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};
use thalweg_client::{ByteStream, Connector};
use thalweg_net::Network;

pub(crate) use stream::End;
use stream::{Machine, Port};

/// Maximum number of bytes in flight in one direction of a connection before the sender waits.
const WINDOW_BYTES: usize = 128 * 1024;

/// A machine of the network: its index in the list of names.
pub type MachineId = usize;

/// Delays of messages.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Minimum delay, at least one tick.
    pub least_ms: u64,
    /// Usual maximum delay.
    pub usual_ms: u64,
    /// One message in this many has a long delay.
    pub long_one_in: u32,
    /// Maximum of the long delays.
    pub long_ms: u64,
}

/// The network shared by all machines. Cheap to clone.
#[derive(Clone)]
pub struct SharedNetwork(Arc<Mutex<State>>);

struct State {
    seed: u64,
    now_ms: u64,
    delays: Delays,
    names: Vec<String>,
    has_power: Vec<bool>,
    /// Directions that are blocked.
    cuts: BTreeSet<(MachineId, MachineId)>,
    ports: BTreeMap<(MachineId, u16), Listener>,
    connections: BTreeMap<u64, Connection>,
    opened: u64,
    /// Arrival time of the first message of each direction.
    due: BTreeSet<(u64, u64, Side)>,
    history: DefaultHasher,
    delivered: u64,
    /// The delivered messages, if a trace is recorded.
    trace: Option<Vec<String>>,
}

#[derive(Default)]
struct Listener {
    waiting: VecDeque<u64>,
    waker: Option<Waker>,
}

/// An end of a connection: the connecting or the accepting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Client,
    Server,
}

struct Connection {
    client: Half,
    server: Half,
    port: u16,
    random: SmallRng,
}

/// One end of a connection, and the data in flight to it.
struct Half {
    machine: MachineId,
    phase: Phase,
    coming: VecDeque<(u64, Message)>,
    coming_bytes: usize,
    inbox: VecDeque<u8>,
    reader: Option<Waker>,
    /// Waker of the other end, while it waits for room here.
    writer: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Open,
    /// No more data will arrive.
    Ended,
    Reset,
    /// The process has dropped the end, or has ended.
    Gone,
}

enum Message {
    Connect,
    Accepted,
    Bytes(Vec<u8>),
    End,
    Reset,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

impl Half {
    fn new(machine: MachineId, phase: Phase) -> Half {
        let (coming, inbox) = (VecDeque::new(), VecDeque::new());
        Half { machine, phase, coming, coming_bytes: 0, inbox, reader: None, writer: None }
    }
}

impl Connection {
    fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    fn machine(&self, side: Side) -> MachineId {
        match side {
            Side::Client => self.client.machine,
            Side::Server => self.server.machine,
        }
    }
}

impl SharedNetwork {
    /// A network of these machines. The seed determines every delay.
    pub fn new(seed: u64, names: &[&str], delays: Delays) -> SharedNetwork {
        SharedNetwork(Arc::new(Mutex::new(State {
            seed,
            now_ms: 0,
            delays,
            names: names.iter().map(|&name| name.to_owned()).collect(),
            has_power: vec![true; names.len()],
            cuts: BTreeSet::new(),
            ports: BTreeMap::new(),
            connections: BTreeMap::new(),
            opened: 0,
            due: BTreeSet::new(),
            history: DefaultHasher::new(),
            delivered: 0,
            trace: None,
        })))
    }

    /// The network of a broker on a machine.
    pub fn of_broker(&self, machine: MachineId) -> Network {
        let here = Machine { network: self.clone(), machine };
        Network::simulated(Arc::new(here), self.connector(machine))
    }

    /// Opens connections of a client on a machine.
    pub fn connector(&self, machine: MachineId) -> Connector {
        let network = self.clone();
        Connector::new(move |address: String| {
            let network = network.clone();
            async move {
                let end = network.connect(machine, &address)?;
                end.established().await?;
                Ok(Box::new(end) as Box<dyn ByteStream>)
            }
        })
    }

    /// Delivers due messages.
    pub fn advance(&self, now_ms: u64) {
        let mut wakers = Vec::new();
        {
            let mut state = self.0.lock();
            state.now_ms = now_ms;
            while let Some(&(at_ms, id, to)) = state.due.first() {
                if at_ms > now_ms {
                    break;
                }
                state.due.pop_first();
                state.arrive(id, to, &mut wakers);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Blocks traffic from one machine to another until [`SharedNetwork::heal`].
    pub fn cut(&self, from: MachineId, to: MachineId) {
        self.0.lock().cuts.insert((from, to));
    }

    /// Removes all cuts. Held messages arrive with a delay.
    pub fn heal(&self) {
        let mut state = self.0.lock();
        state.cuts.clear();
        let held: Vec<(u64, Side)> = state
            .connections
            .iter()
            .flat_map(|(&id, connection)| {
                let client = (!connection.client.coming.is_empty()).then_some((id, Side::Client));
                let server = (!connection.server.coming.is_empty()).then_some((id, Side::Server));
                client.into_iter().chain(server)
            })
            .collect();
        for (id, to) in held {
            if !state.due.iter().any(|&(_, due, side)| (due, side) == (id, to)) {
                let at_ms = state.now_ms + state.delay(id);
                state.due.insert((at_ms, id, to));
            }
        }
    }

    /// Resets an open connection chosen by `draw`.
    pub fn reset_one(&self, draw: impl FnOnce(usize) -> usize) {
        let mut wakers = Vec::new();
        {
            let mut state = self.0.lock();
            if !state.connections.is_empty() {
                let at = draw(state.connections.len());
                let id = *state.connections.keys().nth(at).expect("it was drawn among them");
                let connection = state.connections.get_mut(&id).expect("it is there");
                for side in [Side::Client, Side::Server] {
                    let half = connection.half(side);
                    if half.phase != Phase::Gone {
                        half.phase = Phase::Reset;
                    }
                    half.inbox.clear();
                    half.coming.clear();
                    half.coming_bytes = 0;
                    wakers.extend(half.reader.take());
                    wakers.extend(half.writer.take());
                }
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends the process on a machine: its ports close and its connections are reset. Without power, the other
    /// side notices only when it sends data after the machine is up again.
    pub fn end_process(&self, machine: MachineId, has_power: bool) {
        let mut state = self.0.lock();
        state.has_power[machine] = has_power;
        state.ports.retain(|(of, _), _| *of != machine);
        let ids: Vec<u64> = state.connections.keys().copied().collect();
        for id in ids {
            for side in [Side::Client, Side::Server] {
                let connection = state.connections.get_mut(&id).expect("only this function removes");
                let half = connection.half(side);
                if half.machine != machine || half.phase == Phase::Gone {
                    continue;
                }
                half.phase = Phase::Gone;
                half.inbox.clear();
                half.reader = None;
                half.writer = None;
                if has_power {
                    state.send(id, side.other(), Message::Reset);
                }
            }
        }
    }

    /// Restores the power of a machine.
    pub fn power_on(&self, machine: MachineId) {
        self.0.lock().has_power[machine] = true;
    }

    /// A hash of all deliveries so far, equal for identical runs.
    pub fn history(&self) -> u64 {
        self.0.lock().history.finish()
    }

    /// Number of delivered messages.
    pub fn delivered(&self) -> u64 {
        self.0.lock().delivered
    }

    /// Starts recording every message as a line of text.
    pub fn keep_trace(&self) {
        self.0.lock().trace = Some(Vec::new());
    }

    /// The recorded trace.
    pub fn take_trace(&self) -> Vec<String> {
        self.0.lock().trace.take().unwrap_or_default()
    }

    fn connect(&self, from: MachineId, address: &str) -> io::Result<End> {
        let mut state = self.0.lock();
        let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parts else { return Err(io::ErrorKind::InvalidInput.into()) };
        let Some(to) = state.names.iter().position(|name| name == host) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("no machine is called {host}")));
        };
        state.opened += 1;
        let id = state.opened;
        let random = SmallRng::seed_from_u64(state.seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (client, server) = (Half::new(from, Phase::Connecting), Half::new(to, Phase::Connecting));
        state.connections.insert(id, Connection { client, server, port, random });
        state.send(id, Side::Server, Message::Connect);
        Ok(End::new(self.clone(), id, Side::Client))
    }
}

impl State {
    fn delay(&mut self, id: u64) -> u64 {
        let delays = self.delays;
        let Some(connection) = self.connections.get_mut(&id) else { return delays.least_ms };
        let random = &mut connection.random;
        let most = match delays.long_one_in {
            0 => delays.usual_ms,
            one_in if random.random_ratio(1, one_in) => delays.long_ms,
            _ => delays.usual_ms,
        };
        random.random_range(delays.least_ms..=most.max(delays.least_ms))
    }

    fn send(&mut self, id: u64, to: Side, message: Message) {
        let now_ms = self.now_ms;
        let delay = self.delay(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let half = connection.half(to);
        let before = half.coming.back().map_or(0, |(at_ms, _)| *at_ms);
        let at_ms = before.max(now_ms + delay);
        if let Message::Bytes(bytes) = &message {
            half.coming_bytes += bytes.len();
        }
        half.coming.push_back((at_ms, message));
        if half.coming.len() == 1 {
            self.due.insert((at_ms, id, to));
        }
    }

    /// Delivers the first message of a direction, unless it is held by a cut.
    fn arrive(&mut self, id: u64, to: Side, wakers: &mut Vec<Waker>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (from, machine) = (connection.machine(to.other()), connection.machine(to));
        if self.cuts.contains(&(from, machine)) {
            return;
        }
        let half = connection.half(to);
        let Some((_, message)) = half.coming.pop_front() else { return };
        if let Message::Bytes(bytes) = &message {
            half.coming_bytes -= bytes.len();
        }
        if let Some((at_ms, _)) = half.coming.front() {
            let at_ms = (*at_ms).max(self.now_ms);
            self.due.insert((at_ms, id, to));
        }
        if self.has_power[machine] {
            self.delivered += 1;
            self.note(id, to, &message);
            self.take(id, to, message, wakers);
        }
        self.forget_if_over(id);
    }

    fn note(&mut self, id: u64, to: Side, message: &Message) {
        if let Some(trace) = &mut self.trace
            && let Some(connection) = self.connections.get(&id)
        {
            let (from, machine) = (connection.machine(to.other()), connection.machine(to));
            let (from, machine) = (&self.names[from], &self.names[machine]);
            let text = match message {
                Message::Connect => "connects".to_owned(),
                Message::Accepted => "accepts".to_owned(),
                Message::Bytes(bytes) => bytes.escape_ascii().to_string(),
                Message::End => "ends".to_owned(),
                Message::Reset => "resets".to_owned(),
            };
            trace.push(format!("{} ms, {from} to {machine}, connection {id}: {text}", self.now_ms));
        }
        let history = &mut self.history;
        history.write_u64(self.now_ms);
        history.write_u64(id);
        history.write_u8(u8::from(to == Side::Server));
        match message {
            Message::Connect => history.write_u8(1),
            Message::Accepted => history.write_u8(2),
            Message::Bytes(bytes) => history.write(bytes),
            Message::End => history.write_u8(3),
            Message::Reset => history.write_u8(4),
        }
    }

    fn take(&mut self, id: u64, to: Side, message: Message, wakers: &mut Vec<Waker>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (machine, port) = (connection.machine(to), connection.port);
        let half = connection.half(to);
        match message {
            Message::Connect => match self.ports.get_mut(&(machine, port)) {
                Some(listener) => {
                    half.phase = Phase::Open;
                    listener.waiting.push_back(id);
                    wakers.extend(listener.waker.take());
                    self.send(id, to.other(), Message::Accepted);
                }
                None => {
                    half.phase = Phase::Gone;
                    self.send(id, to.other(), Message::Reset);
                }
            },
            Message::Reset if half.phase == Phase::Gone => {}
            Message::Reset => {
                half.phase = Phase::Reset;
                half.inbox.clear();
                wakers.extend(half.reader.take());
                let other = connection.half(to.other());
                wakers.extend(other.writer.take());
                wakers.extend(connection.half(to).writer.take());
            }
            // The receiver no longer exists.
            Message::Bytes(_) if matches!(half.phase, Phase::Gone) => {
                self.send(id, to.other(), Message::Reset);
            }
            _ if matches!(half.phase, Phase::Gone | Phase::Reset) => {}
            Message::Accepted => {
                half.phase = Phase::Open;
                wakers.extend(half.reader.take());
            }
            Message::Bytes(bytes) => {
                half.inbox.extend(bytes);
                wakers.extend(half.reader.take());
            }
            Message::End => {
                half.phase = Phase::Ended;
                wakers.extend(half.reader.take());
            }
        }
    }

    /// Removes a connection once both ends are closed and no data is in flight.
    fn forget_if_over(&mut self, id: u64) {
        let over = self.connections.get(&id).is_some_and(|connection| {
            let over = |half: &Half| half.phase == Phase::Gone && half.coming.is_empty();
            over(&connection.client) && over(&connection.server)
        });
        if over {
            self.connections.remove(&id);
        }
    }
}

fn address_of(machine: MachineId, port: u16) -> SocketAddr {
    let last = u8::try_from(machine + 1).unwrap_or(u8::MAX);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port)
}

/// The result, or a registered waker.
fn or_wait<T>(ready: Option<T>, place: &mut Option<Waker>, waker: &Waker) -> Poll<T> {
    match ready {
        Some(value) => Poll::Ready(value),
        None => {
            *place = Some(waker.clone());
            Poll::Pending
        }
    }
}

impl SharedNetwork {
    pub(crate) fn listen(&self, machine: MachineId, port: u16) -> io::Result<Port> {
        let mut state = self.0.lock();
        let taken = |state: &State, port| state.ports.contains_key(&(machine, port));
        let port = match port {
            0 => (40_000..).find(|port| !taken(&state, *port)).ok_or(io::ErrorKind::AddrInUse)?,
            port if taken(&state, port) => return Err(io::ErrorKind::AddrInUse.into()),
            port => port,
        };
        state.ports.insert((machine, port), Listener::default());
        Ok(Port { network: self.clone(), machine, port })
    }
}
