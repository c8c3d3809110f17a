//! Requests that change the cluster, as audit events: what was asked for each resource, and whether it was done.
//!
//! A change is described from the request and its answer, so it does not matter who has decided: this broker, the embedded
//! controller, or one of Apache Kafka's. Secrets are left out. Requests that only validate change nothing and are no events.

mod access;
mod cluster;
mod topics;

use bytes::Bytes;
use std::collections::BTreeMap;
use thalweg_audit::{Action, Change, Failure};
use thalweg_wire::frame::{decode_request_header, decode_response};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Request};

pub(super) use topics::create_topics;

/// The arrays of a request that was decoded before.
const ELEMENTS_MAX: usize = 1_000_000;

/// Takes the changes of one request.
pub(super) struct Changes<'a> {
    request: String,
    take: &'a mut dyn FnMut(Change),
}

/// How the change of one resource ended: an error code, and Kafka's words.
type Ending<'a> = (i16, Option<&'a str>);

impl<'a> Changes<'a> {
    pub fn of(key: ApiKey, take: &'a mut dyn FnMut(Change)) -> Changes<'a> {
        Changes { request: format!("{key:?}"), take }
    }

    fn note(
        &mut self,
        action: Action,
        resource_type: &'static str,
        resource_name: &str,
        detail: String,
        (code, message): Ending<'_>,
    ) {
        let name =
            || ErrorCode::from_i16(code).map_or_else(|| code.to_string(), |code| code.name().to_owned());
        let failure = (code != 0).then(|| Failure { code: name(), message: message.map(str::to_owned) });
        (self.take)(Change {
            request: self.request.clone(),
            action,
            resource_type,
            resource_name: resource_name.to_owned(),
            detail: (!detail.is_empty()).then_some(detail),
            failure,
        });
    }
}

/// Whether requests of an API change the cluster.
pub(super) fn is_change(key: ApiKey) -> bool {
    describe(key).is_some()
}

/// Describes the changes of a request by its bytes, from the header on, and those of its answer. Bytes that cannot be read have
/// changed nothing.
type Describe = fn(ApiKey, i16, Bytes, Bytes, &mut Changes<'_>);

pub(super) fn describe(key: ApiKey) -> Option<Describe> {
    Some(match key {
        ApiKey::CreateTopics => |k, v, r, a, c| with::<CreateTopicsRequest>(k, v, r, a, c, create_topics),
        ApiKey::DeleteTopics => {
            |k, v, r, a, c| with::<DeleteTopicsRequest>(k, v, r, a, c, topics::delete_topics)
        }
        ApiKey::CreatePartitions => {
            |k, v, r, a, c| with::<CreatePartitionsRequest>(k, v, r, a, c, topics::create_partitions)
        }
        ApiKey::DeleteRecords => {
            |k, v, r, a, c| with::<DeleteRecordsRequest>(k, v, r, a, c, topics::delete_records)
        }
        ApiKey::ElectLeaders => {
            |k, v, r, a, c| with::<ElectLeadersRequest>(k, v, r, a, c, topics::elect_leaders)
        }
        ApiKey::AlterPartitionReassignments => {
            |k, v, r, a, c| with::<AlterPartitionReassignmentsRequest>(k, v, r, a, c, topics::reassign)
        }
        ApiKey::AlterReplicaLogDirs => {
            |k, v, r, a, c| with::<AlterReplicaLogDirsRequest>(k, v, r, a, c, topics::move_replicas)
        }
        ApiKey::CreateAcls => |k, v, r, a, c| with::<CreateAclsRequest>(k, v, r, a, c, access::create_acls),
        ApiKey::DeleteAcls => |k, v, r, a, c| with::<DeleteAclsRequest>(k, v, r, a, c, access::delete_acls),
        ApiKey::AlterUserScramCredentials => {
            |k, v, r, a, c| with::<AlterUserScramCredentialsRequest>(k, v, r, a, c, access::alter_users)
        }
        ApiKey::AlterClientQuotas => {
            |k, v, r, a, c| with::<AlterClientQuotasRequest>(k, v, r, a, c, access::alter_quotas)
        }
        ApiKey::CreateDelegationToken => {
            |k, v, r, a, c| with::<CreateDelegationTokenRequest>(k, v, r, a, c, access::create_token)
        }
        ApiKey::RenewDelegationToken => {
            |k, v, r, a, c| with::<RenewDelegationTokenRequest>(k, v, r, a, c, access::renew_token)
        }
        ApiKey::ExpireDelegationToken => {
            |k, v, r, a, c| with::<ExpireDelegationTokenRequest>(k, v, r, a, c, access::expire_token)
        }
        ApiKey::AlterConfigs => {
            |k, v, r, a, c| with::<AlterConfigsRequest>(k, v, r, a, c, cluster::replace_configs)
        }
        ApiKey::IncrementalAlterConfigs => {
            |k, v, r, a, c| with::<IncrementalAlterConfigsRequest>(k, v, r, a, c, cluster::alter_configs)
        }
        ApiKey::DeleteGroups => {
            |k, v, r, a, c| with::<DeleteGroupsRequest>(k, v, r, a, c, cluster::delete_groups)
        }
        ApiKey::OffsetDelete => {
            |k, v, r, a, c| with::<OffsetDeleteRequest>(k, v, r, a, c, cluster::delete_offsets)
        }
        ApiKey::UpdateFeatures => {
            |k, v, r, a, c| with::<UpdateFeaturesRequest>(k, v, r, a, c, cluster::update_features)
        }
        key => return describe_node(key),
    })
}

/// The same for requests about one node.
fn describe_node(key: ApiKey) -> Option<Describe> {
    Some(match key {
        ApiKey::UnregisterBroker => |k, v, r, a, c| {
            with::<UnregisterBrokerRequest>(k, v, r, a, c, |r, a, c| {
                cluster::node(
                    Action::Delete,
                    "Broker",
                    r.broker_id,
                    (a.error_code, a.error_message.as_ref()),
                    c,
                );
            });
        },
        ApiKey::AddRaftVoter => |k, v, r, a, c| {
            with::<AddRaftVoterRequest>(k, v, r, a, c, |r, a, c| {
                cluster::node(
                    Action::Create,
                    "Voter",
                    r.voter_id,
                    (a.error_code, a.error_message.as_ref()),
                    c,
                );
            });
        },
        ApiKey::RemoveRaftVoter => |k, v, r, a, c| {
            with::<RemoveRaftVoterRequest>(k, v, r, a, c, |r, a, c| {
                cluster::node(
                    Action::Delete,
                    "Voter",
                    r.voter_id,
                    (a.error_code, a.error_message.as_ref()),
                    c,
                );
            });
        },
        _ => return None,
    })
}

fn with<R: Request>(
    key: ApiKey,
    version: i16,
    request: Bytes,
    answer: Bytes,
    changes: &mut Changes<'_>,
    describe: fn(&R, &R::Response, &mut Changes<'_>),
) {
    let mut d = Decoder::new(request).with_elements_max(ELEMENTS_MAX);
    let header = decode_request_header(&mut d, key, version);
    if let (Ok(_), Ok(request), Ok((_, answer))) =
        (header, R::decode(&mut d, version), decode_response::<R>(answer, version))
    {
        describe(&request, &answer, changes);
    }
}

/// Keys and values, as in properties files.
fn listed<'a>(entries: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let entries = entries.into_iter().map(|(key, value)| format!("{key}={value}"));
    entries.collect::<Vec<_>>().join(" ")
}

/// Numbers, separated by commas. Long lists are cut.
fn numbers(numbers: impl IntoIterator<Item = i32>) -> String {
    const SHOWN_MAX: usize = 100;
    let shown: Vec<_> = numbers.into_iter().take(SHOWN_MAX).map(|number| number.to_string()).collect();
    shown.join(",")
}

/// The first error of several endings.
fn worst<'a>(endings: impl IntoIterator<Item = Ending<'a>>) -> Ending<'a> {
    endings.into_iter().find(|(code, _)| *code != 0).unwrap_or((0, None))
}

/// Requests' entries by name.
fn by_name<T>(entries: &[T], name: fn(&T) -> &str) -> BTreeMap<&str, &T> {
    entries.iter().map(|entry| (name(entry), entry)).collect()
}
