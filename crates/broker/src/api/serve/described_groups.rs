//! Permissions for descriptions of consumer, share and streams groups, which contain topics.
//!
//! A description needs DESCRIBE on the group and on each of its topics; otherwise the group is hidden. As in
//! Kafka, these topics are the assigned topics, or the topics of a streams group's topology. Subscribed names
//! and patterns need no permission, as their topics may not exist. Groups that the client may not describe
//! come first in the answer.

use crate::api::Call;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request};

/// A group of one kind, as its API describes it.
pub trait DescribableGroup: CommonFields + Default {
    /// The message for a group that is hidden because of a topic.
    const HIDDEN: &'static str;

    /// The topics that need DESCRIBE.
    fn topics(&self) -> impl Iterator<Item = &str>;
}

/// The fields of a group that all kinds have.
pub trait CommonFields {
    fn group_id(&mut self) -> &mut String;
    fn error_code(&mut self) -> &mut i16;
    fn error_message(&mut self) -> &mut Option<String>;
    fn authorized_operations(&mut self) -> &mut i32;
}

/// A request for descriptions of groups of one kind.
pub trait DescribeRequest: Request {
    type Group: DescribableGroup;

    fn group_ids(&mut self) -> &mut Vec<String>;
    fn includes_operations(&self) -> bool;
    fn groups(response: Self::Response) -> Vec<Self::Group>;
    fn response(groups: Vec<Self::Group>) -> Self::Response;
}

macro_rules! describe_api {
    ($request:ident, $response:ident, $module:ident) => {
        impl DescribeRequest for $request {
            type Group = $module::DescribedGroup;

            fn group_ids(&mut self) -> &mut Vec<String> {
                &mut self.group_ids
            }

            fn includes_operations(&self) -> bool {
                self.include_authorized_operations
            }

            fn groups(response: $response) -> Vec<Self::Group> {
                response.groups
            }

            fn response(groups: Vec<Self::Group>) -> $response {
                $response { groups, ..Default::default() }
            }
        }

        impl CommonFields for $module::DescribedGroup {
            fn group_id(&mut self) -> &mut String {
                &mut self.group_id
            }

            fn error_code(&mut self) -> &mut i16 {
                &mut self.error_code
            }

            fn error_message(&mut self) -> &mut Option<String> {
                &mut self.error_message
            }

            fn authorized_operations(&mut self) -> &mut i32 {
                &mut self.authorized_operations
            }
        }
    };
}

describe_api!(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, consumer_group_describe_response);
describe_api!(ShareGroupDescribeRequest, ShareGroupDescribeResponse, share_group_describe_response);
describe_api!(StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, streams_group_describe_response);

/// Describes the groups that the client may describe, by calling `read` with a request for them. Other groups
/// get an error.
pub async fn describe<R: DescribeRequest, Described: Future<Output = R::Response>>(
    call: &Call,
    are_served: bool,
    mut request: R,
    read: impl FnOnce(R) -> Described,
) -> R::Response {
    let (ids, shows_operations) = (std::mem::take(request.group_ids()), request.includes_operations());
    if !are_served {
        let refused = ids.into_iter().map(|id| refused(id, ErrorCode::UnsupportedVersion));
        return R::response(refused.collect());
    }
    let may_describe = |id: &String| call.permissions.may(Operation::Describe, ResourceType::Group, id);
    let (allowed, denied): (Vec<String>, Vec<String>) = ids.into_iter().partition(may_describe);
    *request.group_ids() = allowed;
    let mut groups = R::groups(read(request).await);
    for group in &mut groups {
        if *group.error_code() != 0 {
            continue;
        }
        if !call.permissions.may_describe_topics(group.topics()) {
            let id = std::mem::take(group.group_id());
            *group = refused(id, ErrorCode::TopicAuthorizationFailed);
            *group.error_message() = Some(<R::Group>::HIDDEN.to_owned());
        } else if shows_operations {
            let operations = call.permissions.operations(ResourceType::Group, group.group_id());
            *group.authorized_operations() = operations;
        }
    }
    let denied = denied.into_iter().map(|id| refused(id, ErrorCode::GroupAuthorizationFailed));
    R::response(denied.chain(groups).collect())
}

fn refused<G: DescribableGroup>(group_id: String, error: ErrorCode) -> G {
    let mut group = G::default();
    *group.group_id() = group_id;
    *group.error_code() = error.code();
    group
}
