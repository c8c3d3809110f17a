//! Groups in detail, one after the other: of any kind whose members a separate API describes.

use super::super::answer::Answer;
use super::super::error::ViewError;
use super::super::shard::Shard;
use super::GroupCoordinator;
use thalweg_hash::HashSet;
use thalweg_net::answer_parts::AnswerRoom;
use thalweg_shard::{RequestError, Ticket};
use thalweg_wire::ErrorCode;

/// A group in an answer.
pub(super) trait Described: Sized {
    /// A group that is not shown.
    fn refused(group_id: String, error: ErrorCode) -> Self;

    /// The groups of a shard's answer.
    fn of(answer: Answer) -> Option<Vec<Self>>;

    /// Its size in an answer, with its members.
    fn bytes(&self) -> usize;
}

impl GroupCoordinator {
    /// Describes groups. `request` asks the shard of a group for it.
    pub(super) async fn describe_each<G: Described>(
        &self,
        ids: Vec<String>,
        request: impl Fn(&mut Shard, &[String], Ticket),
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
            let asked = [id.clone()];
            let answer = self.ask(&id, |shard, ticket, _| request(shard, &asked, ticket)).await;
            let described = match answer.map(G::of) {
                Ok(described) => {
                    described.and_then(|mut groups| groups.pop()).ok_or(RequestError::WrongAnswer)
                }
                Err(error) => Err(error.into()),
            };
            groups.push(match described {
                // The answer is full: a group is described completely or not at all.
                Ok(group) if room.take(group.bytes()) => group,
                Ok(_) => G::refused(id, ViewError::AnswerFull.code()),
                Err(failed) => G::refused(id, failed.code()),
            });
        }
        groups
    }
}
