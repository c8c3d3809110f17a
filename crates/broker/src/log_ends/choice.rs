//! Chooses a leader by the answers of the replicas. Pure.
//!
//! The log with the highest epoch has the latest acknowledged records; among logs with that epoch, the
//! longest has all of them. Apache Kafka's brokers answer with the epoch of the registration instead of the
//! log's. With such brokers the last leader leads, as under Apache Kafka's controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_controller::UndecidedPartition;
use thalweg_metadata::BrokerId;

/// The end of a replica's log, ordered from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogEnd {
    pub epoch: i32,
    pub offset: i64,
}

/// The reason why the end of a log is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// True if another query cannot help.
    pub is_final: bool,
    pub reason: Arc<str>,
}

/// The end of a replica's log, or the reason why it is unknown. A missing answer counts as a failure that is
/// not final.
pub(super) type Answer = Result<LogEnd, Failure>;

/// The replicas that an election still waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ElectionWait {
    /// Replicas that are not up. Until then, other answers decide only if the last leader cannot be compared.
    ForReplicas,
    /// The answers of these replicas, possibly of none.
    ForAnswers(Vec<BrokerId>),
}

impl Failure {
    pub fn transient(reason: impl ToString) -> Failure {
        Failure { is_final: false, reason: reason.to_string().into() }
    }

    /// The epoch of the registration began when the last leader went away, so no log contains this epoch, and
    /// the answer does not reveal the last epoch of the log. (If a log contains it because the metadata log
    /// is an older copy, the broker refuses, and the epoch is raised.)
    pub fn epoch_of_registration() -> Failure {
        let reason =
            "it answers with the epoch of the registration, not of its log, as Apache Kafka's brokers do";
        Failure { is_final: true, reason: reason.into() }
    }
}

/// True if another query cannot change the answer.
pub(super) fn is_known(answer: &Answer) -> bool {
    !answer.as_ref().is_err_and(|failure| !failure.is_final)
}

/// The replica with the best log, once all answers are final; the last leader wins a tie. If a log cannot be
/// compared or its wait is over, the last leader is chosen unless another log is known to be better.
pub(super) fn choose(
    one: &UndecidedPartition,
    answers: &BTreeMap<BrokerId, Answer>,
    waiting: &ElectionWait,
) -> Option<BrokerId> {
    let is_known = |id: &BrokerId| answers.get(id).is_some_and(is_known);
    let cannot_compare = |id: &BrokerId| is_known(id) && answers[id].is_err();
    if one.last_leader.is_some_and(|last| cannot_compare(&last)) {
        // No other log can be proven better.
        return one.last_leader;
    }
    let ElectionWait::ForAnswers(missing) = waiting else { return None };
    if !missing.iter().all(is_known) {
        return None;
    }
    let ends: BTreeMap<BrokerId, LogEnd> =
        answers.iter().filter_map(|(id, answer)| Some((*id, *answer.as_ref().ok()?))).collect();
    let is_complete = one.awaited.is_empty() && one.candidates.iter().all(|id| ends.contains_key(id));
    if !is_complete && one.last_leader.is_none_or(|last| !ends.contains_key(&last)) {
        return one.last_leader;
    }
    let preferred = |id: BrokerId| {
        (Some(id) == one.last_leader, std::cmp::Reverse(one.candidates.iter().position(|known| *known == id)))
    };
    ends.into_iter().max_by_key(|(id, end)| (*end, preferred(*id))).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_ends::testing::{ends, undecided};

    /// A wait for the answers of these replicas.
    fn answers_of(ids: &[i32]) -> ElectionWait {
        ElectionWait::ForAnswers(BrokerId::list(ids))
    }

    /// Answers, and replicas whose logs cannot be compared.
    fn with_apache(known: &[(i32, i32, i64)], apache: &[i32]) -> BTreeMap<BrokerId, Answer> {
        let mut answers = ends(known);
        answers.extend(apache.iter().map(|id| (BrokerId(*id), Err(Failure::epoch_of_registration()))));
        answers
    }

    #[test]
    fn highest_epoch_wins_then_the_longest_log_then_the_last_leader() {
        let all = undecided(&[1, 2, 3], &[], Some(3));
        let of =
            |found: &[(i32, i32, i64)]| choose(&all, &ends(found), &answers_of(&[1, 2, 3])).map(|id| id.0);
        assert_eq!(of(&[(1, 4, 402), (2, 5, 100), (3, 4, 900)]), Some(2));
        assert_eq!(of(&[(1, 5, 804), (2, 5, 803), (3, 5, 402)]), Some(1));
        assert_eq!(of(&[(1, 5, 804), (2, 5, 804), (3, 5, 804)]), Some(3));
        assert_eq!(of(&[(1, 5, 804), (2, 5, 804), (3, 5, 1)]), Some(1), "the preferred one");
        assert_eq!(of(&[(1, 5, 804), (3, 5, 1)]), None, "not all have answered");
    }

    #[test]
    fn last_leader_leads_at_once_where_a_log_cannot_be_compared() {
        let all = undecided(&[1, 2, 3], &[], Some(1));
        let waiting = answers_of(&[1, 2, 3]);
        let of = |answers: &BTreeMap<BrokerId, Answer>| choose(&all, answers, &waiting).map(|id| id.0);
        assert_eq!(of(&with_apache(&[(1, 5, 1000), (2, 5, 900)], &[3])), Some(1), "as in Apache Kafka");
        assert_eq!(of(&with_apache(&[(1, 5, 10), (2, 5, 20)], &[3])), Some(2), "it has shown to be better");
        assert_eq!(of(&with_apache(&[(1, 5, 10)], &[3])), None, "2 may be better");
        assert_eq!(of(&with_apache(&[(2, 5, 1000)], &[1, 3])), Some(1));
        assert_eq!(of(&with_apache(&[], &[1, 2, 3])), Some(1));
        let some = undecided(&[1, 2], &[3], Some(1));
        let of = |answers: &BTreeMap<BrokerId, Answer>| choose(&some, answers, &ElectionWait::ForReplicas);
        assert_eq!(of(&with_apache(&[(1, 5, 10)], &[2])), None, "3 may be better");
        assert_eq!(of(&with_apache(&[], &[1])), Some(BrokerId(1)), "3 cannot show that");
    }

    #[test]
    fn replica_that_does_not_answer_is_waited_for_a_while() {
        let all = undecided(&[1, 2], &[], Some(1));
        let mut answers = ends(&[(1, 5, 10)]);
        answers.insert(BrokerId(2), Err(Failure::transient("connection refused")));
        assert_eq!(choose(&all, &answers, &answers_of(&[1, 2])), None);
        assert_eq!(choose(&all, &answers, &answers_of(&[1])), Some(BrokerId(1)));
        assert_eq!(choose(&all, &ends(&[]), &answers_of(&[])), Some(BrokerId(1)));
        let mut answers = ends(&[(2, 5, 10)]);
        answers.insert(BrokerId(1), Err(Failure::transient("connection refused")));
        assert_eq!(choose(&all, &answers, &answers_of(&[1, 2])), None);
        assert_eq!(choose(&all, &answers, &answers_of(&[])), Some(BrokerId(1)), "its log is not known");
    }

    #[test]
    fn last_leader_leads_after_the_wait_unless_another_is_better() {
        let some = undecided(&[1, 2], &[3], Some(1));
        assert_eq!(choose(&some, &ends(&[(1, 5, 10), (2, 5, 20)]), &ElectionWait::ForReplicas), None);
        let of = |found: &[(i32, i32, i64)]| choose(&some, &ends(found), &answers_of(&[])).map(|id| id.0);
        assert_eq!(of(&[(1, 5, 10), (2, 5, 20)]), Some(2));
        assert_eq!(of(&[(1, 5, 10)]), Some(1));
        assert_eq!(of(&[(2, 5, 20)]), Some(1), "its log is not known");
        assert_eq!(of(&[]), Some(1));
        assert_eq!(choose(&some, &ends(&[(1, 5, 10)]), &answers_of(&[1, 2])), None, "2 is up");
        let without = undecided(&[2], &[1, 3], None);
        assert_eq!(choose(&without, &ends(&[(2, 5, 20)]), &answers_of(&[])), None);
    }
}
