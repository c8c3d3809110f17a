//! Answers on their way out of a shard. Each carries its basis, the part of the log without which it would be
//! wrong, and is held back until the replicas have that part. The next elected coordinator then knows the
//! part too.
//!
//! Owns: this rule, and the held answers. Refuses: an answer without a basis. [`Answers::give`] and
//! [`ReplicatedValue`] are the only ways out of a shard.

use super::{Ticket, WriteError};
use std::collections::VecDeque;
use std::vec::Drain;

/// The part of the log on which an answer depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis(Part);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    UpTo(i64),
    Nothing,
}

impl Basis {
    /// The whole loaded and written log, including the writes of this turn: for answers from a shard's latest
    /// state.
    pub const LATEST: Basis = Basis(Part::Whole);

    /// The log up to this offset: for answers to a write, and from a state that follows from a known record.
    pub fn up_to(offset: i64) -> Basis {
        Basis(Part::UpTo(offset))
    }

    /// No part: the failure of a write depends on no record.
    pub fn failed(_: WriteError) -> Basis {
        Basis(Part::Nothing)
    }
}

/// An answer of a shard.
pub trait ShardAnswer: Send + 'static {
    /// The answer to the same request after its write or its basis has failed.
    fn failed(self, error: WriteError) -> Self;
}

/// The answers given by a shard in one turn.
#[derive(Debug)]
pub struct Answers<A>(Vec<(Ticket, A, Basis)>);

impl<A> Default for Answers<A> {
    fn default() -> Answers<A> {
        Answers(Vec::new())
    }
}

impl<A: ShardAnswer> Answers<A> {
    /// Answers a request once the replicas have the basis.
    pub fn give(&mut self, ticket: Ticket, answer: A, basis: Basis) {
        self.0.push((ticket, answer, basis));
    }

    /// Refuses a request whose write has failed.
    pub fn fail(&mut self, ticket: Ticket, answer: A, error: WriteError) {
        self.give(ticket, answer.failed(error), Basis::failed(error));
    }
}

/// A value for a reader without a ticket, made from replicated state.
#[derive(Debug)]
pub struct ReplicatedValue<T>(T);

impl<T> ReplicatedValue<T> {
    /// Asserts that the value shows only state that every later coordinator has.
    pub fn of(value: T) -> ReplicatedValue<T> {
        ReplicatedValue(value)
    }

    /// The value, for its reader.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// An answer waiting for the replicas.
#[derive(Debug)]
struct HeldAnswer<A> {
    ticket: Ticket,
    answer: A,
    /// The offset of the last record of its basis.
    rests_on: i64,
    expires_ms: i64,
}

/// The waiting and the released answers of a shard.
#[derive(Debug)]
pub struct HeldAnswers<A> {
    /// In order: an answer also waits for all earlier answers.
    waiting: VecDeque<HeldAnswer<A>>,
    released: Vec<(Ticket, A)>,
    /// The offset of the last loaded or written record.
    written_to: i64,
    /// The offset of the last record known to be replicated.
    replicated_to: i64,
}

impl<A: ShardAnswer> HeldAnswers<A> {
    /// The answers of a shard that has loaded the log up to an offset, partly replicated.
    pub fn new(loaded_to: i64, replicated_to: i64) -> HeldAnswers<A> {
        let written_to = loaded_to.max(replicated_to);
        HeldAnswers { waiting: VecDeque::new(), released: Vec::new(), written_to, replicated_to }
    }

    /// Records a write that ends at this offset and may not be replicated.
    pub fn written(&mut self, last_offset: i64) {
        self.written_to = last_offset;
    }

    /// Takes the answers given since the last call. Must be called before the shard's next write, on which
    /// these answers do not depend. Waiting answers fail at `expires_ms`.
    pub fn take_in(&mut self, given: &mut Answers<A>, expires_ms: i64) {
        for (ticket, answer, Basis(part)) in given.0.drain(..) {
            let rests_on = match part {
                Part::Whole => self.written_to,
                Part::UpTo(offset) => offset,
                Part::Nothing => i64::MIN,
            };
            if rests_on <= self.replicated_to {
                self.released.push((ticket, answer));
            } else {
                self.waiting.push_back(HeldAnswer { ticket, answer, rests_on, expires_ms });
            }
        }
    }

    /// Releases answers after replication of the log up to an offset.
    pub fn acknowledged(&mut self, last_offset: i64) {
        self.replicated_to = self.replicated_to.max(last_offset);
        let may_go = |waiting: &mut HeldAnswer<A>| waiting.rests_on <= self.replicated_to;
        while let Some(HeldAnswer { ticket, answer, .. }) = self.waiting.pop_front_if(may_go) {
            self.released.push((ticket, answer));
        }
    }

    /// Handles the failure of the write that ended at an offset.
    pub fn unacknowledged(&mut self, last_offset: i64, error: WriteError) {
        self.fail_while(error, |waiting| waiting.rests_on <= last_offset);
        // After other errors, the local medium has refused the write, and the replicas may or may not get it.
        if error == WriteError::TooFewReplicas {
            self.acknowledged(last_offset);
        }
    }

    /// Fails the answers that have waited too long.
    pub fn expire(&mut self, now_ms: i64) {
        self.fail_while(WriteError::TimedOut, |waiting| waiting.expires_ms <= now_ms);
    }

    /// Fails all answers when the shard is unloaded.
    pub fn fail_all(&mut self, error: WriteError) {
        self.fail_while(error, |_| true);
    }

    fn fail_while(&mut self, error: WriteError, fails: impl Fn(&HeldAnswer<A>) -> bool) {
        while let Some(HeldAnswer { ticket, answer, .. }) = self.waiting.pop_front_if(|first| fails(first)) {
            self.released.push((ticket, answer.failed(error)));
        }
    }

    /// The time of the next work for [`HeldAnswers::expire`].
    pub fn next_deadline_ms(&self) -> i64 {
        self.waiting.front().map_or(i64::MAX, |first| first.expires_ms)
    }

    /// Takes the answer to one request, if it is released.
    pub fn take(&mut self, ticket: Ticket) -> Option<A> {
        let own = self.released.iter().position(|(released, _)| *released == ticket)?;
        Some(self.released.swap_remove(own).1)
    }

    /// Takes all released answers.
    pub fn drain(&mut self) -> Drain<'_, (Ticket, A)> {
        self.released.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer, or the error that made it fail.
    #[derive(Debug, PartialEq)]
    struct TestAnswer(Option<WriteError>);

    impl ShardAnswer for TestAnswer {
        fn failed(self, error: WriteError) -> TestAnswer {
            TestAnswer(Some(error))
        }
    }

    fn give(held: &mut HeldAnswers<TestAnswer>, ticket: u64, basis: Basis, expires_ms: i64) {
        let mut given = Answers::default();
        given.give(Ticket(ticket), TestAnswer(None), basis);
        held.take_in(&mut given, expires_ms);
    }

    fn gone(held: &mut HeldAnswers<TestAnswer>) -> Vec<(u64, Option<WriteError>)> {
        held.drain().map(|(ticket, answer)| (ticket.0, answer.0)).collect()
    }

    #[test]
    fn an_answer_waits_for_the_part_of_the_log_that_it_rests_on() {
        let mut held = HeldAnswers::new(9, 5);
        give(&mut held, 1, Basis::up_to(5), 100);
        give(&mut held, 2, Basis::up_to(7), 100);
        give(&mut held, 3, Basis::LATEST, 100);
        give(&mut held, 4, Basis::failed(WriteError::TooLarge), 100);
        assert_eq!(gone(&mut held), [(1, None), (4, None)]);
        held.written(12);
        give(&mut held, 5, Basis::LATEST, 100);
        held.acknowledged(8);
        assert_eq!(gone(&mut held), [(2, None)]);
        held.acknowledged(11);
        assert_eq!(gone(&mut held), [(3, None)]);
        held.acknowledged(12);
        assert_eq!(gone(&mut held), [(5, None)]);
        give(&mut held, 6, Basis::LATEST, 100);
        assert_eq!(held.take(Ticket(6)), Some(TestAnswer(None)));
        assert_eq!(held.next_deadline_ms(), i64::MAX);
    }

    #[test]
    fn an_answer_fails_with_what_it_rests_on() {
        let mut held = HeldAnswers::new(3, -1);
        give(&mut held, 1, Basis::LATEST, 100);
        held.unacknowledged(3, WriteError::Storage);
        assert_eq!(gone(&mut held), [(1, Some(WriteError::Storage))]);
        give(&mut held, 2, Basis::LATEST, 100);
        assert_eq!(gone(&mut held), [], "the replicas may not have it");
        held.unacknowledged(3, WriteError::TooFewReplicas);
        assert_eq!(gone(&mut held), [(2, Some(WriteError::TooFewReplicas))]);
        give(&mut held, 3, Basis::LATEST, 100);
        assert_eq!(gone(&mut held), [(3, None)], "they have it");
    }

    #[test]
    fn an_answer_does_not_wait_for_ever() {
        let mut held = HeldAnswers::new(3, -1);
        give(&mut held, 1, Basis::LATEST, 100);
        give(&mut held, 2, Basis::LATEST, 200);
        assert_eq!(held.next_deadline_ms(), 100);
        held.expire(100);
        assert_eq!(gone(&mut held), [(1, Some(WriteError::TimedOut))]);
        held.fail_all(WriteError::NotLeader);
        assert_eq!(gone(&mut held), [(2, Some(WriteError::NotLeader))]);
    }
}
