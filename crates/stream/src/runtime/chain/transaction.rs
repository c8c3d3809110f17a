//! The transactions of a chain, and the durable state of its stages: what belongs to a transaction, when it
//! is whole, and what an abort drops.

use std::time::Duration;

use tokio::time::Instant;

use super::{Chain, Flow, Link, Result};
use crate::changelog::StateStore;
use crate::kafka;
use crate::stage::{Progress, Sink, TransactionOutcome};
use crate::state::State;

/// Age of the last transaction at which the source waits until stages have released the messages that keep
/// the next one from being whole.
const BARRED_AFTER: Duration = Duration::from_secs(2);

impl Chain {
    /// Finds or creates the topics of the state. Returns false if the stop signal arrives before.
    pub(super) async fn open_state(&mut self) -> Result<bool> {
        let Some(state) = &mut self.state else { return Ok(true) };
        let opened = tokio::select! {
            biased;
            () = self.stop.given() => {
                self.source.close();
                return Ok(false);
            }
            opened = state.open() => opened,
        };
        opened.map(|()| true).map_err(|error| (self.meter.stages[0].label.clone(), error))
    }

    /// Reads back the state of partitions before their first messages. Returns false if the stop signal
    /// arrives meanwhile.
    pub(super) async fn restore(&mut self, flow: &mut Flow) -> Result<bool> {
        let (Some(state), Some(provenance)) = (&mut self.state, &flow.batch.provenance) else {
            return Ok(true);
        };
        let label = self.meter.stages[0].label.clone();
        if let Some(revoked) = provenance.revoked.as_deref().filter(|revoked| !revoked.is_empty()) {
            state.remove(Some(revoked), states(&mut self.links, &mut self.sink));
        }
        let missing = state.missing(provenance);
        if missing.is_empty() {
            return Ok(true);
        }
        let read = tokio::select! {
            biased;
            () = self.stop.given() => None,
            read = state.read(&missing) => Some(read),
        };
        let Some(read) = read else {
            self.source.close();
            self.forget(flow).await?;
            self.source.rewind();
            return Ok(false);
        };
        let added = read.and_then(|read| state.add(missing, read, states(&mut self.links, &mut self.sink)));
        added.map(|()| true).map_err(|error| (label, error))
    }

    pub(super) fn has_changed_state(&mut self) -> bool {
        let Some(state) = &self.state else { return false };
        state.has_changed(states(&mut self.links, &mut self.sink))
    }

    /// True if the source waits until the next transaction can be whole, because stages keep releasing parts
    /// of messages.
    pub(super) fn is_barred(&self, flow: &Flow, now: Instant) -> bool {
        let is_due = || now >= flow.next_acknowledgement + BARRED_AFTER && self.has_divided(flow);
        let mut holding = self.links.iter().filter(|link| link.processor.held_since().is_some());
        self.state.is_some() && is_due() && holding.all(|link| link.processor.releases_by().is_some())
    }

    /// Commits the source's offsets and the state of the stages as a transaction, with the output if the
    /// stream runs exactly once, and behind it otherwise. If that is impossible, aborts; the messages are
    /// read again.
    pub(super) async fn transact(&mut self, flow: &mut Flow) -> Result<()> {
        if self.has_divided(flow) {
            return Ok(());
        }
        if !self.is_exactly_once() {
            self.flush().await?;
            self.give_back(flow)?;
            self.flush_bad().await?;
        }
        let held = self.held_in_links();
        // Before the first message, the position can have passed other records.
        let seen = Some(flow.seen.unwrap_or_default());
        let Some(through) = held.map_or(seen, |held| held.checked_sub(1)) else { return Ok(()) };
        let has_changed = self.has_changed_state();
        let progress = self.source.progress(through, has_changed);
        let transacted = match progress.map_err(|error| (self.meter.stages[0].label.clone(), error))? {
            Progress::None => return Ok(()),
            Progress::Void => TransactionOutcome::Refused,
            Progress::Group(mut offsets) => {
                let mut own = None;
                if let Some(state) = &mut self.state {
                    state.collect(&mut offsets, states(&mut self.links, &mut self.sink));
                    own = state.transactions();
                }
                let committed = match own {
                    Some(own) => own.commit(offsets).await,
                    None => self.sink.commit(offsets).await,
                };
                committed.map_err(|error| (self.sink_label(), error))?
            }
        };
        match transacted {
            TransactionOutcome::Committed => flow.acknowledged = flow.seen.map(|_| through),
            TransactionOutcome::Refused => {
                self.forget(flow).await?;
                self.source.rewind();
            }
        }
        Ok(())
    }

    /// Aborts: drops messages and state in the stages, and messages in the sink.
    pub(super) async fn forget(&mut self, flow: &mut Flow) -> Result<()> {
        self.abort().await?;
        self.links.iter_mut().for_each(|link| link.processor.forget());
        if let Some(state) = &mut self.state {
            state.remove(None, states(&mut self.links, &mut self.sink));
        }
        flow.acknowledged = flow.seen;
        Ok(())
    }

    pub(super) async fn abort(&mut self) -> Result<()> {
        let is_exactly_once = self.is_exactly_once();
        let own = self.state.as_mut().and_then(StateStore::transactions);
        let aborted = match own {
            Some(own) => own.abort().await,
            None if is_exactly_once => self.sink.abort().await,
            None => Ok(()),
        };
        aborted.map_err(|error| (self.sink_label(), error))
    }

    /// Fails if the parts of one message take longer than a transaction: they would be written again and
    /// again.
    pub(super) fn check_divided(&mut self, flow: &mut Flow) -> Result<()> {
        let Some(held) = self.held_in_links() else { return Ok(()) };
        let (divided, since) = *flow.divided.get_or_insert((held, Instant::now()));
        if divided != held {
            flow.divided = Some((held, Instant::now()));
            return Ok(());
        }
        match self.sink.transaction_timeout() {
            Some(timeout) if since.elapsed() > timeout => {
                let reason = format!(
                    "they must be written within one transaction, of {timeout:?}: use a longer transaction.timeout.ms \
                     in the file of --properties, smaller messages, or --guarantee=at-least-once"
                );
                Err((
                    self.sink_label(),
                    kafka::failed(format!("Writing the parts of message {held}"), reason),
                ))
            }
            _ => Ok(()),
        }
    }

    /// True if a part of a message is written, and a processor holds another part.
    pub(super) fn has_divided(&self, flow: &Flow) -> bool {
        self.held_in_links().is_some_and(|held| flow.written >= Some(held))
    }
}

/// The durable states of the stages, in the order of the stream.
fn states<'a>(links: &'a mut [Link], sink: &'a mut Box<dyn Sink>) -> Vec<&'a mut dyn State> {
    links.iter_mut().filter_map(|link| link.processor.state()).chain(sink.state()).collect()
}
