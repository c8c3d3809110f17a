//! The holder of shares in a limit: a principal, or a network whose clients have not logged in.

use std::net::IpAddr;
use std::sync::Arc;
use thalweg_places::network;
use thalweg_security::Principal;

/// A holder of shares in a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A logged-in principal.
    Principal(Arc<Principal>),
    /// An IPv4 address or an IPv6 site, for clients without a login.
    Network(IpAddr),
    /// All follower brokers together.
    Brokers,
}

impl Holder {
    /// The holder for a principal's client at an address.
    pub fn of(principal: &Arc<Principal>, address: IpAddr) -> Holder {
        if principal.is_anonymous() {
            return Holder::Network(network(address));
        }
        Holder::Principal(Arc::clone(principal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_without_a_login_are_distinct_by_address() {
        let of = |principal, address: [u8; 4]| Holder::of(&Arc::new(principal), address.into());
        let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(of(Principal::user("ann"), here), of(Principal::user("ann"), there));
        assert_ne!(of(Principal::user("ann"), here), of(Principal::user("eve"), here));
        assert_ne!(of(Principal::anonymous(), here), of(Principal::anonymous(), there));
    }
}
