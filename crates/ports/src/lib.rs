//! Loopback ports, held for servers that start later.
//!
//! A cluster's addresses are written into its properties before its processes start, and a killed broker
//! restarts at the same address. In between, the port must not go to another process. A [`Port`] holds the
//! port with a socket that is bound and never listens. Linux lets a server bind the same port meanwhile,
//! because both sockets allow reuse (`SO_REUSEADDR`, which Thalweg, the JVM and most servers set). Outgoing
//! connections and other holders do not get the port.
//!
//! Ports are below the range of outgoing connections (`net.ipv4.ip_local_port_range`), so that a server most
//! likely keeps its port even after the holding process has ended.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use socket2::{Domain, Socket, Type};

const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;
/// Random ports tried per reserved port.
const TRIES: usize = 100;

/// A port of 127.0.0.1, held until this value is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _held: Socket,
}

/// Reuse of a port with other holders or with connections of an ended server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    Yes,
    No,
}

impl PartialEq for Port {
    fn eq(&self, other: &Port) -> bool {
        self.number == other.number
    }
}

impl Eq for Port {}

impl Port {
    /// Holds a random free port.
    pub fn reserve() -> io::Result<Port> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
        let mut random = SmallRng::seed_from_u64(u64::from_le_bytes(seed));
        let mut tried = Err(io::Error::from(io::ErrorKind::AddrInUse));
        for _ in 0..TRIES {
            tried = Port::hold(random.random_range(FIRST..=LAST), Reuse::No);
            if tried.is_ok() {
                break;
            }
        }
        tried
    }

    /// Holds this port; `AddrInUse` if a process listens on the port. Connections left by an ended server are
    /// no obstacle, nor is another holder: the caller was given the number and knows the other holders.
    pub fn reserve_number(number: u16) -> io::Result<Port> {
        Port::hold(number, Reuse::Yes)
    }

    fn hold(number: u16, reuse: Reuse) -> io::Result<Port> {
        let held = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        held.set_reuse_address(reuse == Reuse::Yes)?;
        held.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, number).into())?;
        // The server needs reuse on this socket, too.
        held.set_reuse_address(true)?;
        Ok(Port { number, _held: held })
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The port's number. The port stays held until the process ends.
    pub fn keep(self) -> u16 {
        let number = self.number;
        std::mem::forget(self);
        number
    }
}

/// A free port, held until the process ends.
///
/// # Panics If a hundred random ports are all taken.
pub fn free_port() -> u16 {
    Port::reserve().expect("one of a hundred random ports is free").keep()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn held_port_goes_to_a_server_and_to_no_other_holder() {
        let port = Port::reserve().expect("a free port");
        let again = |number| Port::hold(number, Reuse::No).map_err(|error| error.kind());
        assert_eq!(again(port.number()), Err(ErrorKind::AddrInUse));
        let refused = TcpStream::connect(("127.0.0.1", port.number())).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
        // A server that restarts, with connections of its last run.
        for _ in 0..3 {
            let server = TcpListener::bind(("127.0.0.1", port.number())).expect("a server may have it");
            let _client = TcpStream::connect(("127.0.0.1", port.number())).expect("it listens");
            drop(server.accept().expect("a client"));
            let taken = Port::reserve_number(port.number()).map_err(|error| error.kind());
            assert_eq!(taken, Err(ErrorKind::AddrInUse));
            drop(server);
            // The connection is still in TIME_WAIT.
            Port::reserve_number(port.number()).expect("none listens");
            assert_eq!(again(port.number()), Err(ErrorKind::AddrInUse));
        }
    }

    #[test]
    fn ports_of_a_process_differ() {
        let mut ports: Vec<u16> = (0..200).map(|_| free_port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
    }
}
