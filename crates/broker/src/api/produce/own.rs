//! Records that this broker produces itself, as a producer with all permissions.

use super::begin;
use crate::api::Call;
use crate::authorization::Permissions;
use crate::broker::Broker;
use bytes::{Bytes, BytesMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use thalweg_net::{Frame, FrameSegment, Mute, Peer, Reply};
use thalweg_security::Principal;
use thalweg_wire::ApiKey;
use thalweg_wire::frame::{LENGTH_LEN, decode_response};
use thalweg_wire::request::{ProduceRequest, ProduceResponse};
use tokio::time::Instant;

/// The version of own requests, which names topics by name.
pub const VERSION: i16 = 12;

/// Produces records of this broker. Returns the answer, or the reason for a missing answer.
pub async fn produce_own(broker: &Arc<Broker>, request: ProduceRequest) -> Result<ProduceResponse, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let peer = Peer {
        address,
        listener: String::new(),
        tls: None,
        mute: Mute::default(),
        software: OnceLock::new(),
        client_id: OnceLock::new(),
        identified: OnceLock::new(),
        attached: Default::default(),
    };
    let call = Call {
        key: ApiKey::Produce,
        version: VERSION,
        correlation_id: 0,
        client_id: None,
        peer: Arc::new(peer),
        principal: Arc::new(Principal::user(format!("broker-{}", broker.node_id))),
        is_by_token: false,
        permissions: Permissions::unlimited(),
        received_at: Instant::now(),
        frame_len: 0,
        frame: Bytes::new(),
    };
    match begin(broker, call, request).resolved().await {
        Reply::Now(Frame(segments)) => {
            let mut answer = BytesMut::new();
            for segment in segments {
                if let FrameSegment::Bytes(bytes) = segment {
                    answer.extend_from_slice(&bytes);
                }
            }
            let answer = answer.freeze().slice(LENGTH_LEN..);
            let decoded = decode_response::<ProduceRequest>(answer, VERSION);
            decoded.map(|(_, answer)| answer).map_err(|error| error.to_string())
        }
        Reply::Close(reason) => Err(reason),
        _ => Err("there is no answer".to_owned()),
    }
}
