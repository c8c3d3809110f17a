//! The APIs of the offsets of share groups (KIP-932): DescribeShareGroupOffsets (90, version 1 adds the lag,
//! KIP-1226), AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92).
//!
//! The APIs need `share.version` 1; otherwise the answer is UNSUPPORTED_VERSION. A description needs DESCRIBE
//! on the group and on each topic; a request for all offsets of a group omits other topics. Setting offsets
//! needs READ on the group and on each topic. Deleting offsets needs DELETE on the group and READ on each
//! topic.

use super::Call;
use super::entry::{Api, ByResource, later};
use super::serve::topic_rights::take_denied;
use super::share_groups::are_served;
use futures_util::future::join_all;
use thalweg_metadata::ImageCell;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_share_groups::ShareGroupService;
use thalweg_wire::request::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use thalweg_wire::request::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use thalweg_wire::request::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use thalweg_wire::request::describe_share_group_offsets_response::{
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const DESCRIBE: Api = Api::new(ApiKey::DescribeShareGroupOffsets, 0..=1, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| describe(b.images(), &b.share_groups, &c, r).await)
});
pub(super) const ALTER: Api = Api::new(ApiKey::AlterShareGroupOffsets, 0..=0, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| alter(b.images(), &b.share_groups, &c, r).await)
});
pub(super) const DELETE: Api = Api::new(ApiKey::DeleteShareGroupOffsets, 0..=0, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| delete(b.images(), &b.share_groups, &c, r).await)
});

const NOT_SERVED: &str = "The version of API is not supported.";
const NOT_ON_TOPIC: &str = "Topic authorization failed.";
const NOT_ON_GROUP: &str = "Group authorization failed.";

/// DescribeShareGroupOffsets, versions 0 and 1.
pub async fn describe(
    images: &ImageCell,
    share_groups: &ShareGroupService,
    call: &Call,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse {
    let is_served = are_served(&images.get());
    let describe = async |group: DescribeShareGroupOffsetsRequestGroup| {
        let may = || call.permissions.may(Operation::Describe, ResourceType::Group, &group.group_id);
        let error = match is_served {
            false => ErrorCode::UnsupportedVersion,
            true if !may() => ErrorCode::GroupAuthorizationFailed,
            true => return describe_group(share_groups, call, group).await,
        };
        DescribeShareGroupOffsetsResponseGroup {
            group_id: group.group_id,
            error_code: error.code(),
            ..Default::default()
        }
    };
    let groups = join_all(request.groups.into_iter().map(describe)).await;
    DescribeShareGroupOffsetsResponse { groups, ..Default::default() }
}

async fn describe_group(
    share_groups: &ShareGroupService,
    call: &Call,
    mut group: DescribeShareGroupOffsetsRequestGroup,
) -> DescribeShareGroupOffsetsResponseGroup {
    let may = |name: &str| call.permissions.may(Operation::Describe, ResourceType::Topic, name);
    let is_whole = group.topics.is_none();
    let denied = group.topics.as_mut().map(|topics| take_denied(topics, |topic| may(&topic.topic_name)));
    let mut response = share_groups.describe_offsets(group).await;
    if response.error_code != 0 {
        return response;
    }
    if is_whole {
        response.topics.retain(|topic| may(&topic.topic_name));
    }
    response.topics.extend(denied.into_iter().flatten().map(|topic| {
        let refused = |index: &i32| DescribeShareGroupOffsetsResponsePartition {
            partition_index: *index,
            start_offset: -1,
            lag: -1,
            error_code: ErrorCode::TopicAuthorizationFailed.code(),
            error_message: Some(NOT_ON_TOPIC.to_owned()),
            ..Default::default()
        };
        DescribeShareGroupOffsetsResponseTopic {
            partitions: topic.partitions.iter().map(refused).collect(),
            topic_name: topic.topic_name,
            ..Default::default()
        }
    }));
    response
}

/// AlterShareGroupOffsets, version 0.
pub async fn alter(
    images: &ImageCell,
    share_groups: &ShareGroupService,
    call: &Call,
    mut request: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse {
    let refused = |error: ErrorCode, words: &str| AlterShareGroupOffsetsResponse {
        error_code: error.code(),
        error_message: Some(words.to_owned()),
        ..Default::default()
    };
    if !are_served(&images.get()) {
        return refused(ErrorCode::UnsupportedVersion, NOT_SERVED);
    }
    if !call.permissions.may(Operation::Read, ResourceType::Group, &request.group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed, NOT_ON_GROUP);
    }
    let image = images.get();
    let mut refused = Vec::new();
    request.topics.retain(|topic| {
        let known = image.topic(&topic.topic_name);
        let (error, words) = if !call.permissions.may(Operation::Read, ResourceType::Topic, &topic.topic_name)
        {
            (ErrorCode::TopicAuthorizationFailed, NOT_ON_TOPIC)
        } else if known.is_none() {
            (ErrorCode::UnknownTopicOrPartition, "The topic does not exist")
        } else {
            return true;
        };
        let partition = |index| AlterShareGroupOffsetsResponsePartition {
            partition_index: index,
            error_code: error.code(),
            error_message: Some(words.to_owned()),
        };
        refused.push(AlterShareGroupOffsetsResponseTopic {
            topic_name: topic.topic_name.clone(),
            topic_id: known.map(|topic| topic.id).unwrap_or_default(),
            partitions: topic
                .partitions
                .iter()
                .map(|requested| partition(requested.partition_index))
                .collect(),
        });
        false
    });
    let mut response = share_groups.alter_offsets(request).await;
    if response.error_code == 0 {
        response.responses.extend(refused);
    }
    response
}

/// DeleteShareGroupOffsets, version 0.
pub async fn delete(
    images: &ImageCell,
    share_groups: &ShareGroupService,
    call: &Call,
    mut request: DeleteShareGroupOffsetsRequest,
) -> DeleteShareGroupOffsetsResponse {
    let refused = |error: ErrorCode, words: &str| DeleteShareGroupOffsetsResponse {
        error_code: error.code(),
        error_message: Some(words.to_owned()),
        ..Default::default()
    };
    if !are_served(&images.get()) {
        return refused(ErrorCode::UnsupportedVersion, NOT_SERVED);
    }
    if !call.permissions.may(Operation::Delete, ResourceType::Group, &request.group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed, NOT_ON_GROUP);
    }
    let denied = take_denied(&mut request.topics, |topic| {
        call.permissions.may(Operation::Read, ResourceType::Topic, &topic.topic_name)
    });
    let mut response = share_groups.delete_offsets(request).await;
    if response.error_code == 0 {
        let denied = denied.into_iter().map(|topic| DeleteShareGroupOffsetsResponseTopic {
            topic_name: topic.topic_name,
            error_code: ErrorCode::TopicAuthorizationFailed.code(),
            error_message: Some(NOT_ON_TOPIC.to_owned()),
            ..Default::default()
        });
        response.responses.splice(..0, denied);
    }
    response
}
