//! Permissions for descriptions of consumer, share and streams groups, which contain topics.
//!
//! A description needs DESCRIBE on the group and on each of its topics; otherwise the group is hidden. As in
//! Kafka, these topics are the assigned topics, or the topics of a streams group's topology. Subscribed names
//! and patterns need no permission, as their topics may not exist. Groups that the client may not describe
//! come first in the answer.

use crate::api::Call;
use crate::api::groups::may_describe_topics;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::ErrorCode;

/// A group of one kind, as its API describes it.
pub trait DescribableGroup: Default {
    /// The message for a group that is hidden because of a topic.
    const HIDDEN: &'static str;

    fn head(&mut self) -> Head<'_>;

    /// The topics that need DESCRIBE.
    fn topics(&self) -> impl Iterator<Item = &str>;
}

/// The fields that all kinds have.
pub struct Head<'a> {
    pub group_id: &'a mut String,
    pub error_code: &'a mut i16,
    pub error_message: &'a mut Option<String>,
    pub authorized_operations: &'a mut i32,
}

/// Describes the groups that the client may describe, by calling `ask` with their ids. Other groups get an
/// error.
pub async fn describe<G: DescribableGroup, Asked: Future<Output = Vec<G>>>(
    call: &Call,
    are_served: bool,
    shows_operations: bool,
    ids: Vec<String>,
    ask: impl FnOnce(Vec<String>) -> Asked,
) -> Vec<G> {
    if !are_served {
        return ids.into_iter().map(|id| refused(id, ErrorCode::UnsupportedVersion)).collect();
    }
    let may_describe = |id: &String| call.permissions.may(Operation::Describe, ResourceType::Group, id);
    let (allowed, denied): (Vec<String>, Vec<String>) = ids.into_iter().partition(may_describe);
    let mut groups = ask(allowed).await;
    for group in &mut groups {
        if *group.head().error_code != 0 {
            continue;
        }
        if !may_describe_topics(call, group.topics()) {
            let id = std::mem::take(group.head().group_id);
            *group = refused(id, ErrorCode::TopicAuthorizationFailed);
            *group.head().error_message = Some(G::HIDDEN.to_owned());
        } else if shows_operations {
            let head = group.head();
            *head.authorized_operations = call.permissions.operations(ResourceType::Group, head.group_id);
        }
    }
    let denied = denied.into_iter().map(|id| refused(id, ErrorCode::GroupAuthorizationFailed));
    denied.chain(groups).collect()
}

fn refused<G: DescribableGroup>(group_id: String, error: ErrorCode) -> G {
    let mut group = G::default();
    let head = group.head();
    (*head.group_id, *head.error_code) = (group_id, error.code());
    group
}
