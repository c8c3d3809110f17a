//! The requester of a controller request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_security::Principal;
use thalweg_security::acl::host_address;
use thalweg_wire::data::DefaultPrincipalData;
use thalweg_wire::request::EnvelopeRequest;
use thalweg_wire::{Decoder, ErrorCode, Message};

/// Maximum number of array elements in a principal, which has no arrays.
const ELEMENTS_MAX: usize = 1_000;

/// The sender of a request, which determines its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// The broker in this process, for itself. The broker needs no authentication and may do everything.
    ThisProcess,
    /// A connection's peer, or the client for which a broker forwards.
    Peer {
        /// The authenticated principal.
        principal: Principal,
        /// The peer's address in the form of ACLs.
        host: String,
    },
}

impl Requester {
    /// The peer of a connection.
    pub fn peer(principal: Principal, address: IpAddr) -> Requester {
        Requester::Peer { principal, host: host_address(address) }
    }

    /// The client of an envelope. An envelope without a principal means an unauthenticated client.
    pub(crate) fn of_envelope(envelope: &EnvelopeRequest) -> Result<Requester, ErrorCode> {
        let address = &*envelope.client_host_address;
        let address = if let Ok(octets) = <[u8; 4]>::try_from(address) {
            IpAddr::V4(Ipv4Addr::from(octets))
        } else if let Ok(octets) = <[u8; 16]>::try_from(address) {
            IpAddr::V6(Ipv6Addr::from(octets))
        } else {
            return Err(ErrorCode::InvalidRequest);
        };
        let principal = match envelope.request_principal.as_ref().filter(|bytes| !bytes.is_empty()) {
            None => Principal::anonymous(),
            Some(bytes) => {
                let mut d = Decoder::new(bytes.clone()).with_elements_max(ELEMENTS_MAX);
                principal(&mut d).ok_or(ErrorCode::PrincipalDeserializationFailure)?
            }
        };
        Ok(Requester::peer(principal, address))
    }
}

/// A principal as Kafka's brokers serialize it: a version, then `DefaultPrincipalData`.
fn principal(d: &mut Decoder) -> Option<Principal> {
    let version = d.i16().ok()?;
    let known = DefaultPrincipalData::MIN_VERSION..=DefaultPrincipalData::MAX_VERSION;
    let data = DefaultPrincipalData::decode(d, known.contains(&version).then_some(version)?).ok()?;
    Some(Principal::new(data.r#type, data.name))
}
