//! Limits the number of connections: `max.connections`, `max.connections.per.ip` and its overrides, and the
//! descriptors reserved for logs.

use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_log::disk::{Descriptors, OpenConnection, TooFewDescriptors};

/// The limits on connections, and how many there are. Shared by all listeners.
#[derive(Debug)]
pub struct ConnectionLimits {
    open: Mutex<Open>,
    descriptors: Descriptors,
}

#[derive(Debug)]
struct Open {
    max: usize,
    max_per_ip: usize,
    per_ip_overrides: HashMap<IpAddr, usize>,
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
    /// Number of accepted and of rejected connections.
    admitted: u64,
    refused: u64,
}

/// Why a connection was turned away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("max.connections={max} are open")]
    Total { max: usize },
    #[error("max.connections.per.ip={max} are open from {ip}")]
    PerIp { ip: IpAddr, max: usize },
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
}

/// A slot for one connection, released when dropped.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Arc<ConnectionLimits>,
    ip: IpAddr,
    _descriptor: OpenConnection,
}

impl ConnectionLimits {
    /// Limits with no open connections, which take descriptors from this budget.
    pub fn new(
        max: usize,
        max_per_ip: usize,
        per_ip_overrides: HashMap<IpAddr, usize>,
        descriptors: Descriptors,
    ) -> Arc<Self> {
        let open = Open {
            max,
            max_per_ip,
            per_ip_overrides,
            total: 0,
            by_ip: HashMap::default(),
            admitted: 0,
            refused: 0,
        };
        Arc::new(Self { open: Mutex::new(open), descriptors })
    }

    /// Other limits from now on. Connections that are open stay, even where there are more than may be.
    pub fn change(&self, max: usize, max_per_ip: usize, per_ip_overrides: HashMap<IpAddr, usize>) {
        let mut open = self.open.lock();
        (open.max, open.max_per_ip, open.per_ip_overrides) = (max, max_per_ip, per_ip_overrides);
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.open.lock().total
    }

    /// How many connections were admitted since the start.
    pub fn admitted(&self) -> u64 {
        self.open.lock().admitted
    }

    /// How many connections were turned away since the start.
    pub fn refused(&self) -> u64 {
        self.open.lock().refused
    }

    pub(super) fn admit(self: &Arc<Self>, ip: IpAddr) -> Result<Admission, Refused> {
        let ip = ip.to_canonical();
        let mut open = self.open.lock();
        let admitted = open.check(ip).and_then(|()| Ok(self.descriptors.open_connection()?));
        match admitted {
            Ok(descriptor) => {
                open.admit(ip);
                Ok(Admission { limits: Arc::clone(self), ip, _descriptor: descriptor })
            }
            Err(refused) => {
                open.refused += 1;
                Err(refused)
            }
        }
    }
}

impl Open {
    fn check(&self, ip: IpAddr) -> Result<(), Refused> {
        if self.total >= self.max {
            return Err(Refused::Total { max: self.max });
        }
        let max = self.per_ip_overrides.get(&ip).copied().unwrap_or(self.max_per_ip);
        let count = self.by_ip.get(&ip).copied().unwrap_or(0);
        if count >= max {
            return Err(Refused::PerIp { ip, max });
        }
        Ok(())
    }

    fn admit(&mut self, ip: IpAddr) {
        *self.by_ip.entry(ip).or_default() += 1;
        self.total += 1;
        self.admitted += 1;
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock();
        open.total -= 1;
        match open.by_ip.get_mut(&self.ip) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                open.by_ip.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back() {
        let ip: IpAddr = "127.0.0.1".parse().expect("an address");
        let limits = ConnectionLimits::new(
            2,
            1,
            [("127.0.0.2".parse().expect("an address"), 2)].into_iter().collect(),
            Descriptors::default(),
        );
        let first = limits.admit(ip).expect("the first fits");
        assert_eq!(limits.admit(ip).err(), Some(Refused::PerIp { ip, max: 1 }));
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
        assert!(limits.admit(mapped).is_err(), "an IPv4 address in IPv6 clothes is the same address");
        drop(first);
        let other: IpAddr = "127.0.0.2".parse().expect("an address");
        let held = [limits.admit(other).expect("one"), limits.admit(other).expect("two")];
        assert_eq!(limits.admit(ip).err(), Some(Refused::Total { max: 2 }));
        limits.change(2, 2, HashMap::default());
        drop(held);
        assert_eq!((limits.open(), limits.admitted(), limits.refused()), (0, 3, 3));
        assert!(
            limits.admit(ip).is_ok_and(|_one| limits.admit(ip).is_ok()),
            "the limit of an address has risen"
        );
    }

    #[test]
    fn connections_leave_descriptors_to_logs() {
        let descriptors = Descriptors::limited(100);
        let limits = ConnectionLimits::new(1000, 1000, HashMap::default(), descriptors.clone());
        let ip: IpAddr = "127.0.0.1".parse().expect("an address");
        let held: Vec<_> = std::iter::from_fn(|| limits.admit(ip).ok()).collect();
        assert_eq!(Some(held.len()), descriptors.connections_max());
        assert!(matches!(limits.admit(ip), Err(Refused::Descriptors(_))));
        drop(held);
        assert!(limits.admit(ip).is_ok());
    }
}
