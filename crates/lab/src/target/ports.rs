//! Ports of the loopback interface that nobody listens on.
//!
//! They are drawn from below the range that the kernel gives to outgoing connections: one of those could otherwise take
//! the port between our look and the broker's start.

use std::io;
use std::net::TcpListener;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

/// So many free ports, all different.
pub(super) fn free(count: usize) -> io::Result<Vec<u16>> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    let mut random = SmallRng::seed_from_u64(u64::from_le_bytes(seed));
    // Held until all are found, so that none is found twice.
    let mut held: Vec<TcpListener> = Vec::with_capacity(count);
    for _ in 0..(count * 100) {
        if held.len() == count {
            break;
        }
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", random.random_range(FIRST..=LAST))) {
            held.push(listener);
        }
    }
    while held.len() < count {
        held.push(TcpListener::bind("127.0.0.1:0")?);
    }
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Fails when somebody listens on a port.
pub(super) fn check_free(port: u16) -> io::Result<()> {
    TcpListener::bind(("127.0.0.1", port)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_are_free_and_different() {
        let ports = free(20).expect("a machine with free ports");
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 20);
        for port in ports {
            TcpListener::bind(("127.0.0.1", port)).expect("nobody listens there");
        }
    }
}
