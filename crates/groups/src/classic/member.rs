//! A member of a classic group (`ClassicGroupMember`).

use crate::client::ClientInfo;
use crate::timers::Deadline;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_hash::HashSet;
use thalweg_shard::Ticket;
use thalweg_wire::group::group_metadata_value::MemberMetadata;
use thalweg_wire::request::JoinGroupRequest;
use thalweg_wire::request::describe_groups_response::DescribedGroupMember;

/// A protocol that a member supports, with the member's metadata for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Protocol {
    pub(in super::super) name: String,
    pub(in super::super) metadata: Bytes,
}

/// The parameters in a member's join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Terms {
    /// In the order of preference, each name once.
    pub(in super::super) protocols: Vec<Protocol>,
    pub(in super::super) rebalance_timeout_ms: i32,
    pub(in super::super) session_timeout_ms: i32,
}

impl Terms {
    /// The parameters of a join. The metadata is copied: a slice would keep the whole frame in memory.
    pub(super) fn of(request: &JoinGroupRequest) -> Terms {
        let mut names = HashSet::default();
        let protocols = request
            .protocols
            .iter()
            .filter(|protocol| names.insert(protocol.name.as_str()))
            .map(|protocol| Protocol {
                name: protocol.name.clone(),
                metadata: Bytes::copy_from_slice(&protocol.metadata),
            })
            .collect();
        Terms {
            protocols,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
        }
    }
}

/// A member of a classic group.
#[derive(Debug)]
pub(in super::super) struct ClassicGroupMember {
    pub(in super::super) id: Arc<str>,
    /// The name that a static member keeps across restarts (KIP-345).
    pub(in super::super) instance_id: Option<String>,
    pub(in super::super) client: ClientInfo,
    pub(in super::super) terms: Terms,
    pub(in super::super) assignment: Bytes,
    /// The member's place in the order of joining.
    pub(in super::super) place: u64,
    /// True while the member waits for its first rebalance.
    pub(in super::super) is_new: bool,
    pub(in super::super) awaiting_join: Option<Ticket>,
    pub(in super::super) awaiting_sync: Option<Ticket>,
    pub(in super::super) session: Deadline,
}

impl ClassicGroupMember {
    /// A member from its record: only the chosen protocol is supported.
    pub(super) fn from_record(
        record: MemberMetadata,
        protocol: Option<&str>,
        place: u64,
    ) -> ClassicGroupMember {
        let rebalance_timeout_ms = match record.rebalance_timeout {
            -1 => record.session_timeout,
            timeout => timeout,
        };
        let name = protocol.unwrap_or_default().to_owned();
        ClassicGroupMember {
            id: record.member_id.into(),
            instance_id: record.group_instance_id,
            client: ClientInfo { client_id: record.client_id, client_host: record.client_host },
            terms: Terms {
                protocols: vec![Protocol { name, metadata: record.subscription }],
                rebalance_timeout_ms,
                session_timeout_ms: record.session_timeout,
            },
            assignment: record.assignment,
            place,
            is_new: false,
            awaiting_join: None,
            awaiting_sync: None,
            session: Deadline::default(),
        }
    }

    /// The member's record, with the assignment that the member is about to get.
    pub(super) fn to_record(&self, protocol: Option<&str>, assignment: Bytes) -> MemberMetadata {
        MemberMetadata {
            member_id: self.id.to_string(),
            group_instance_id: self.instance_id.clone(),
            client_id: self.client.client_id.clone(),
            client_host: self.client.client_host.clone(),
            rebalance_timeout: self.terms.rebalance_timeout_ms,
            session_timeout: self.terms.session_timeout_ms,
            subscription: self.metadata(protocol),
            assignment,
        }
    }

    /// The member's entry in DescribeGroups. The metadata is included when the group is stable.
    pub(super) fn describe(&self, metadata: Bytes) -> DescribedGroupMember {
        DescribedGroupMember {
            member_id: self.id.to_string(),
            group_instance_id: self.instance_id.clone(),
            client_id: self.client.client_id.clone(),
            client_host: self.client.client_host.clone(),
            member_metadata: metadata,
            member_assignment: self.assignment.clone(),
        }
    }

    /// The member's metadata for a protocol; empty for an unsupported one.
    pub(in super::super) fn metadata(&self, protocol: Option<&str>) -> Bytes {
        let name = protocol.unwrap_or_default();
        self.terms.protocols.iter().find(|p| p.name == name).map(|p| p.metadata.clone()).unwrap_or_default()
    }

    /// The member's preferred protocol among the protocols that all members follow.
    pub(super) fn vote(&self, candidates: &HashSet<&str>) -> Option<&str> {
        self.terms.protocols.iter().map(|p| p.name.as_str()).find(|name| candidates.contains(name))
    }

    /// True if the member needs no heartbeat because it waits for the coordinator, unless it is a new member.
    pub(super) fn is_alive_by_waiting(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }
}
