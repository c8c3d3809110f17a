//! The APIs of committed offsets: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).
//!
//! The coordinator (`thalweg_groups`) does the work for the topics that the client may use. All other topics
//! are refused here, whether or not they exist. An unknown topic id is left to the coordinator.

use super::Call;
use super::entry::{Api, ByResource, later};
use super::serve::topic_rights::take_denied;
use crate::audit::{Changes, ClusterChange, by_name, numbers, worst};
use thalweg_audit::Action;
use thalweg_groups::GroupCoordinator;
use thalweg_metadata::{Image, ImageCell};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::offset_commit_request::OffsetCommitRequestTopic;
use thalweg_wire::request::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_wire::request::offset_delete_request::OffsetDeleteRequestTopic;
use thalweg_wire::request::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use thalweg_wire::request::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use thalweg_wire::request::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode, Uuid};

pub(super) const COMMIT: Api = Api::new(ApiKey::OffsetCommit, 2..=10, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| commit(&b.groups, b.images(), &c, r).await)
});
pub(super) const FETCH: Api = Api::new(ApiKey::OffsetFetch, 1..=10, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| fetch(&b.groups, b.images(), &c, r).await)
});
pub(super) const DELETE: Api = Api::new(ApiKey::OffsetDelete, 0..=0, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| delete(&b.groups, &c, r).await)
})
.changing::<OffsetDeleteRequest>();

const GROUP_DENIED: i16 = ErrorCode::GroupAuthorizationFailed as i16;
const TOPIC_DENIED: i16 = ErrorCode::TopicAuthorizationFailed as i16;
/// The first version of OffsetCommit and OffsetFetch that names topics by their ids.
const TOPIC_IDS_FROM: i16 = 10;
/// The first version of OffsetFetch for several groups (KIP-709).
const SEVERAL_GROUPS_FROM: i16 = 8;
/// The first version of OffsetFetch with an error of the group.
const GROUP_ERROR_FROM: i16 = 2;

/// OffsetCommit, versions 2 to 10: READ on the group and on each topic.
pub async fn commit(
    groups: &GroupCoordinator,
    images: &ImageCell,
    call: &Call,
    mut request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let permissions = &call.permissions;
    if !permissions.may(Operation::Read, ResourceType::Group, &request.group_id) {
        let topics = request.topics.into_iter().map(|topic| commit_refused(topic, GROUP_DENIED)).collect();
        return OffsetCommitResponse { topics, ..Default::default() };
    }
    if permissions.are_unlimited() {
        return groups.offset_commit(request, call.version).await;
    }
    let image = images.get();
    let denied = take_denied(&mut request.topics, |topic| {
        may_use(call, &image, Operation::Read, &topic.name, topic.topic_id)
    });
    let mut response = groups.offset_commit(request, call.version).await;
    response.topics.extend(denied.into_iter().map(|topic| commit_refused(topic, TOPIC_DENIED)));
    response
}

/// True if the client may use a topic that a request gives by name or by id.
fn may_use(call: &Call, image: &Image, operation: Operation, name: &str, id: Uuid) -> bool {
    let may = |name: &str| call.permissions.may(operation, ResourceType::Topic, name);
    match call.version >= TOPIC_IDS_FROM && call.key != ApiKey::OffsetDelete {
        true => image.topic_by_id(id).is_none_or(|topic| may(&topic.name)),
        false => may(name),
    }
}

fn commit_refused(topic: OffsetCommitRequestTopic, error_code: i16) -> OffsetCommitResponseTopic {
    let partitions = topic.partitions.iter().map(|partition| OffsetCommitResponsePartition {
        partition_index: partition.partition_index,
        error_code,
    });
    OffsetCommitResponseTopic { partitions: partitions.collect(), name: topic.name, topic_id: topic.topic_id }
}

/// OffsetFetch, versions 1 to 10: DESCRIBE on each group and each topic. A request for all offsets of a group
/// omits topics that the client may not describe.
pub async fn fetch(
    groups: &GroupCoordinator,
    images: &ImageCell,
    call: &Call,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    if call.permissions.are_unlimited() {
        return groups.offset_fetch(request, call.version).await;
    }
    match call.version >= SEVERAL_GROUPS_FROM {
        true => fetch_groups(groups, images, call, request).await,
        false => fetch_group(groups, call, request).await,
    }
}

/// Versions 8 and later.
async fn fetch_groups(
    groups: &GroupCoordinator,
    images: &ImageCell,
    call: &Call,
    mut request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let image = images.get();
    let may_describe = |topic: &OffsetFetchRequestTopics| {
        may_use(call, &image, Operation::Describe, &topic.name, topic.topic_id)
    };
    let (mut allowed, mut denied_groups, mut denied_topics) = (Vec::new(), Vec::new(), Vec::new());
    for mut group in std::mem::take(&mut request.groups) {
        if !call.permissions.may(Operation::Describe, ResourceType::Group, &group.group_id) {
            let OffsetFetchRequestGroup { group_id, .. } = group;
            denied_groups.push(OffsetFetchResponseGroup {
                group_id,
                error_code: GROUP_DENIED,
                ..Default::default()
            });
            continue;
        }
        let is_whole = group.topics.is_none();
        let denied = group.topics.as_mut().map(|topics| take_denied(topics, may_describe));
        denied_topics.push((group.group_id.clone(), is_whole, denied.unwrap_or_default()));
        allowed.push(group);
    }
    let mut response = OffsetFetchResponse::default();
    if !allowed.is_empty() {
        request.groups = allowed;
        response = groups.offset_fetch(request, call.version).await;
    }
    let mut denied_topics = denied_topics.into_iter();
    for group in &mut response.groups {
        // The coordinator answers in the order of the request, and repeated groups once.
        let Some((_, is_whole, denied)) = denied_topics.find(|(id, _, _)| *id == group.group_id) else {
            break;
        };
        if group.error_code != 0 {
            continue;
        }
        if is_whole {
            group
                .topics
                .retain(|topic| may_use(call, &image, Operation::Describe, &topic.name, topic.topic_id));
        }
        group.topics.extend(denied.into_iter().map(fetch_refused));
    }
    response.groups.extend(denied_groups);
    response
}

fn fetch_refused(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics {
    let partitions = topic.partition_indexes.iter().map(|&partition_index| OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: -1,
        error_code: TOPIC_DENIED,
        ..Default::default()
    });
    OffsetFetchResponseTopics { partitions: partitions.collect(), name: topic.name, topic_id: topic.topic_id }
}

/// Versions before 8. Version 1 reports an error of the group in each partition.
async fn fetch_group(
    groups: &GroupCoordinator,
    call: &Call,
    mut request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    if !call.permissions.may(Operation::Describe, ResourceType::Group, &request.group_id) {
        if call.version >= GROUP_ERROR_FROM {
            return OffsetFetchResponse { error_code: GROUP_DENIED, ..Default::default() };
        }
        let topics = request.topics.into_iter().flatten();
        let topics = topics.map(|topic| topic_refused(topic, GROUP_DENIED)).collect();
        return OffsetFetchResponse { topics, ..Default::default() };
    }
    let may_describe = |name: &str| call.permissions.may(Operation::Describe, ResourceType::Topic, name);
    let is_whole = request.topics.is_none();
    let denied = request.topics.as_mut().map(|topics| take_denied(topics, |topic| may_describe(&topic.name)));
    let mut response = groups.offset_fetch(request, call.version).await;
    if response.error_code != 0 {
        return response;
    }
    if is_whole {
        response.topics.retain(|topic| may_describe(&topic.name));
    }
    let denied = denied.into_iter().flatten();
    response.topics.extend(denied.map(|topic| topic_refused(topic, TOPIC_DENIED)));
    response
}

fn topic_refused(topic: OffsetFetchRequestTopic, error_code: i16) -> OffsetFetchResponseTopic {
    let partitions = topic.partition_indexes.iter().map(|&partition_index| OffsetFetchResponsePartition {
        partition_index,
        committed_offset: -1,
        error_code,
        ..Default::default()
    });
    OffsetFetchResponseTopic { partitions: partitions.collect(), name: topic.name }
}

/// OffsetDelete, version 0: DELETE on the group, READ on each topic.
pub async fn delete(
    groups: &GroupCoordinator,
    call: &Call,
    mut request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    if !call.permissions.may(Operation::Delete, ResourceType::Group, &request.group_id) {
        return OffsetDeleteResponse { error_code: GROUP_DENIED, ..Default::default() };
    }
    let denied = take_denied(&mut request.topics, |topic| {
        call.permissions.may(Operation::Read, ResourceType::Topic, &topic.name)
    });
    let mut response = groups.offset_delete(request).await;
    if response.error_code == 0 {
        response.topics.extend(denied.into_iter().map(delete_refused));
    }
    response
}

fn delete_refused(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic {
    let partitions = topic.partitions.iter().map(|partition| OffsetDeleteResponsePartition {
        partition_index: partition.partition_index,
        error_code: TOPIC_DENIED,
    });
    OffsetDeleteResponseTopic { partitions: partitions.collect(), name: topic.name }
}

impl ClusterChange for OffsetDeleteRequest {
    fn describe(&self, answer: &OffsetDeleteResponse, changes: &mut Changes<'_>) {
        let ended = by_name(&answer.topics, |topic| &topic.name);
        for topic in &self.topics {
            let partitions = numbers(topic.partitions.iter().map(|partition| partition.partition_index));
            let detail = format!("offsets of topic={} partitions={partitions}", topic.name);
            let ended = ended.get(&*topic.name).into_iter().flat_map(|topic| &topic.partitions);
            let whole = [(answer.error_code, None)];
            let ending = worst(whole.into_iter().chain(ended.map(|partition| (partition.error_code, None))));
            changes.note(Action::Delete, "Group", &self.group_id, detail, ending);
        }
    }
}
