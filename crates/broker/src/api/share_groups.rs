//! The APIs of share groups (KIP-932): ShareGroupHeartbeat (76), ShareGroupDescribe (77), version 1.
//!
//! Both APIs need `share.version` 1; otherwise the answer is UNSUPPORTED_VERSION. Members need READ on the
//! group, and DESCRIBE on each subscribed topic. A description needs DESCRIBE on the group, and on each
//! assigned topic; otherwise the group is hidden.
//!
//! The coordinator (`thalweg_share_groups`) does the work.

use super::Call;
use super::entry::{Api, ByResource, later};
use super::groups::{client, may_join};
use super::serve::described_groups::{self, DescribableGroup};
use thalweg_groups::GroupCoordinator;
use thalweg_metadata::feature::SHARE_VERSION;
use thalweg_metadata::{Image, ImageCell};
use thalweg_share_groups::ShareGroupService;
use thalweg_wire::request::share_group_describe_response::DescribedGroup;
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const HEARTBEAT: Api = Api::new(ApiKey::ShareGroupHeartbeat, 1..=1, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| heartbeat(b.images(), &b.share_groups, &c, r).await)
});
pub(super) const DESCRIBE: Api = Api::new(ApiKey::ShareGroupDescribe, 1..=1, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| describe(b.images(), &b.groups, &c, r).await)
});

/// The level of `share.version` from which on share groups are served.
const SERVED_FROM: i16 = 1;
/// Maximum length of a member id in UTF-16 units: the length of a UUID as text.
const MEMBER_ID_MAX: usize = 36;

/// True if the cluster's share.version allows share groups.
pub(super) fn are_served(image: &Image) -> bool {
    image.features().level(SHARE_VERSION) >= SERVED_FROM
}

/// ShareGroupHeartbeat, version 1.
pub async fn heartbeat(
    images: &ImageCell,
    share_groups: &ShareGroupService,
    call: &Call,
    request: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse {
    let refused = |error: ErrorCode, message: Option<&str>| ShareGroupHeartbeatResponse {
        error_code: error.code(),
        error_message: message.map(str::to_owned),
        ..Default::default()
    };
    if !are_served(&images.get()) {
        return refused(ErrorCode::UnsupportedVersion, None);
    }
    if !may_join(call, &request.group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed, None);
    }
    let id = &request.member_id;
    if id.is_empty() || id.encode_utf16().count() > MEMBER_ID_MAX {
        return refused(ErrorCode::InvalidRequest, Some("Invalid member id in the request."));
    }
    let names = request.subscribed_topic_names.iter().flatten().map(String::as_str);
    if !call.permissions.may_describe_topics(names) {
        return refused(ErrorCode::TopicAuthorizationFailed, None);
    }
    share_groups.heartbeat(&client(call), &request).await
}

/// ShareGroupDescribe, version 1.
pub async fn describe(
    images: &ImageCell,
    groups: &GroupCoordinator,
    call: &Call,
    request: ShareGroupDescribeRequest,
) -> ShareGroupDescribeResponse {
    let is_served = are_served(&images.get());
    let read = |request| groups.share_group_describe(request);
    described_groups::describe(call, is_served, request, read).await
}

impl DescribableGroup for DescribedGroup {
    const HIDDEN: &'static str = "The client may not describe a topic that a member has";

    fn topics(&self) -> impl Iterator<Item = &str> {
        let topics = self.members.iter().flat_map(|member| &member.assignment.topic_partitions);
        topics.map(|topic| topic.topic_name.as_str())
    }
}
