//! Describes groups one after the other, for group types with a describe API of their own.

use super::GroupCoordinator;
use crate::answer::GroupAnswer;
use crate::error::ViewError;
use crate::shard::GroupShard;
use thalweg_hash::HashSet;
use thalweg_net::answer_parts::AnswerRoom;
use thalweg_shard::{RequestError, Ticket};
use thalweg_wire::ErrorCode;

/// A group in an answer.
pub(super) trait GroupDescription: Sized {
    /// A group with an error instead of its description.
    fn refused(group_id: String, error: ErrorCode) -> Self;

    /// The groups of a shard's answer.
    fn of(answer: GroupAnswer) -> Option<Vec<Self>>;

    /// Size of the group in an answer, including members.
    fn bytes(&self) -> usize;
}

impl GroupCoordinator {
    /// Describes groups. `request` passes group ids to their shard.
    pub(super) async fn describe_each<G: GroupDescription>(
        &self,
        ids: Vec<String>,
        request: impl Fn(&mut GroupShard, &[String], Ticket),
    ) -> Vec<G> {
        let (mut groups, mut room, mut seen) = (Vec::new(), AnswerRoom::default(), HashSet::default());
        for id in ids {
            // Kafka repeats repeated groups; clients do not notice the difference.
            if !seen.insert(id.clone()) {
                continue;
            }
            if id.is_empty() {
                groups.push(G::refused(id, ErrorCode::InvalidGroupId));
                continue;
            }
            let ids = [id.clone()];
            let answer = self.request(&id, |shard, ticket, _| request(shard, &ids, ticket)).await;
            let described = match answer.map(G::of) {
                Ok(described) => {
                    described.and_then(|mut groups| groups.pop()).ok_or(RequestError::WrongAnswer)
                }
                Err(error) => Err(error.into()),
            };
            groups.push(match described {
                // A full answer omits whole groups: a group is described completely or not at all.
                Ok(group) if room.take(group.bytes()) => group,
                Ok(_) => G::refused(id, ViewError::AnswerFull.code()),
                Err(failed) => G::refused(id, failed.code()),
            });
        }
        groups
    }
}
