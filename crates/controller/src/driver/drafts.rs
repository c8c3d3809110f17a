//! Large requests are decided outside the controller's task, one at a time, each on a copy of the state.
//! Heartbeats, fetches and small requests continue meanwhile. The decision is written if the state has not
//! changed since; otherwise the request is decided again.
//!
//! A large request does not wait forever if the state keeps changing: after some attempts the task itself
//! decides. [`Controller`](crate::Controller) bounds the number of large requests.

use std::collections::VecDeque;

use tokio::task::{JoinError, JoinHandle};

use super::{Driver, Reply, send};
use crate::state::{Decider, Decision};

/// Maximum number of decisions of a request on a copy. After that, the task itself decides.
const DRAFTS_MAX: u32 = 8;

/// The large requests.
#[derive(Default)]
pub(super) struct Drafts {
    waiting: VecDeque<(Decider, Reply)>,
    running: Option<Draft>,
}

/// The request being decided.
struct Draft {
    /// The log end of the copied state.
    base: i64,
    count: u32,
    reply: Reply,
    task: JoinHandle<DraftedDecision>,
}

/// The decision, and the request, if it may have to be decided again.
struct DraftedDecision {
    decision: Decision,
    decide: Option<Decider>,
}

/// A decided request: outcome, base state, and reply.
pub(super) struct FinishedDraft {
    outcome: Result<DraftedDecision, JoinError>,
    base: i64,
    count: u32,
    reply: Reply,
}

impl Driver {
    /// Starts deciding a large request, or queues it behind the current one.
    pub(super) fn on_large(&mut self, decide: Decider, reply: Reply) {
        self.published.requested();
        self.drafts.waiting.push_back((decide, reply));
        self.next_draft();
    }

    fn next_draft(&mut self) {
        if self.drafts.running.is_none()
            && let Some((decide, reply)) = self.drafts.waiting.pop_front()
        {
            self.begin_draft(decide, reply, 1);
        }
    }

    fn begin_draft(&mut self, decide: Decider, reply: Reply, count: u32) {
        let (now, base, mut state) = (self.now(), self.state.next_offset(), self.state.draft());
        let (disk, _) = self.log.snapshot_place();
        let task = disk.spawn(move || {
            let decision = decide(&mut state, now);
            // Freeing a request of a million names takes a while: do it here, if the request is no longer
            // needed.
            let is_final = decision.batch.is_empty() || decision.answer.is_err();
            DraftedDecision { decision, decide: (!is_final).then_some(decide) }
        });
        self.drafts.running = Some(Draft { base, count, reply, task });
    }

    /// Writes and answers the decision, or decides again.
    pub(super) fn on_drafted(&mut self, done: FinishedDraft) {
        let FinishedDraft { outcome, base, count, reply } = done;
        let DraftedDecision { mut decision, decide } = match outcome {
            Ok(drafted) => drafted,
            Err(error) => return self.die(&error),
        };
        match (decide, decision.answer) {
            // The decision is valid for the copied state, which is newer than the request.
            (None, answer) => {
                self.log_rulings(decision.rulings.take());
                self.note_fault(decision.unwritable.as_ref());
                match answer {
                    Ok(frame) => {
                        self.spend(decision.spent.as_ref());
                        self.answer_after(base, frame, reply);
                    }
                    Err(error) => send(reply, Err(error.into())),
                }
            }
            (Some(decide), _) if self.state.next_offset() != base && count < DRAFTS_MAX => {
                return self.begin_draft(decide, reply, count + 1);
            }
            (Some(decide), answer) => {
                let ((disk, _), now) = (self.log.snapshot_place(), self.now());
                let decision = if self.state.next_offset() == base {
                    Decision { answer, ..decision }
                } else {
                    disk.work_in_place(|| decide(&mut self.state, now))
                };
                self.carry_out(decision, now, reply);
                // Freed on another thread, without waiting.
                drop(disk.spawn(move || drop(decide)));
            }
        }
        self.next_draft();
    }
}

/// Waits for the request being decided; forever if there is none.
pub(super) async fn drafted(drafts: &mut Drafts) -> FinishedDraft {
    match &mut drafts.running {
        None => std::future::pending().await,
        Some(running) => {
            let outcome = (&mut running.task).await;
            let Draft { base, count, reply, .. } =
                drafts.running.take().expect("it was there before the wait");
            FinishedDraft { outcome, base, count, reply }
        }
    }
}
