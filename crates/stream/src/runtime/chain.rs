//! Runs one stream: the source fills a batch, which passes every processor and the sink and is then reused.
//! Stages are plain calls on one thread; the task waits only if a stage requests it.

mod transaction;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::StreamFailed;
use super::channel::Outlet;
use super::report::{StageMeter, StreamEnd, StreamMeter};
use super::stop::Stop;
use super::tap::TapPoint;
use crate::Guarantee;
use crate::bad::BadMessages;
use crate::changelog::StateStore;
use crate::clock::{self, ClockReading};
use crate::message::{Batch, Provenance, SourceId};
use crate::stage::{FillResult, Processor, Sink, Source, SourceWatch, StageError, Turn};

/// Maximum time that a busy stream keeps its thread before it yields.
const TURN: Duration = Duration::from_millis(2);
/// Interval at which acknowledgements are passed to the source.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(500);
/// Interval of acknowledgements if clients wait for them.
const ANSWER_EVERY: Duration = Duration::from_millis(2);
/// Commit interval of transactions, which delays readers; the value of Kafka Streams.
const COMMIT_EVERY: Duration = Duration::from_millis(100);

/// Time that a rebalance waits for streams with windows behind a named destination, which may keep messages
/// for long.
const WINDOWS_WAITED: Duration = Duration::from_secs(2);

/// A processor and its position.
pub struct Link {
    pub processor: Box<dyn Processor>,
    pub meter: Arc<StageMeter>,
    /// The provenance of the output, if it is not that of the input.
    pub provenance: Option<Provenance>,
    /// True if later stages know of this provenance.
    pub is_announced: bool,
    /// True if the messages that reach the processor have the sequences of the source.
    pub is_traceable: bool,
}

/// A stream, ready to run.
pub struct Chain {
    pub source: Box<dyn Source>,
    /// The number of the source, unless it is another stream.
    pub source_id: Option<SourceId>,
    /// The provenance of messages for which the source gives none.
    pub provenance: Option<Provenance>,
    /// True if empty batches are passed on, which announce changes of the source.
    pub announces: bool,
    /// True if the stream ends in a named destination.
    pub is_piped: bool,
    /// True if a stream behind this destination has windows.
    pub reaches_windows: bool,
    /// The first stage with durable state: a processor, or the sink, whose index is the number of processors.
    pub first_with_state: Option<usize>,
    /// True if the source's offsets are committed in transactions.
    pub has_transactions: bool,
    /// The state of the stages, if it outlives the process.
    pub state: Option<StateStore>,
    pub links: Vec<Link>,
    pub sink: Box<dyn Sink>,
    /// The taps after the source and after each processor.
    pub taps: Vec<Outlet>,
    /// The same positions, for streams of other runs.
    pub points: Vec<TapPoint>,
    pub meter: Arc<StreamMeter>,
    pub bad: BadMessages,
    pub guarantee: Guarantee,
    /// True if clients of its source, or of an upstream stream, wait for acknowledgements.
    pub has_waiting_clients: bool,
    pub stop: Stop,
}

/// The failed stage and its error.
type Result<T> = std::result::Result<T, (Arc<str>, StageError)>;

/// Reason to stop reading the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopReason {
    Ended,
    Stopped,
}

impl Chain {
    /// Runs until the source ends or the stop signal arrives.
    pub async fn run(mut self) -> std::result::Result<(), StreamFailed> {
        let mut flow = Flow {
            batch: Batch::new(),
            came: ClockReading { at: Instant::now(), time_ms: clock::time_ms() },
            seen: None,
            written: None,
            acknowledged: None,
            next_acknowledgement: Instant::now(),
            divided: None,
            source: SourceWatch::new(Instant::now()),
            is_at_end: false,
        };
        let ended = self.work(&mut flow).await;
        self.source.leave().await;
        match ended {
            Ok(over) => {
                self.meter.end(if over == StopReason::Ended {
                    StreamEnd::Complete
                } else {
                    StreamEnd::Stopped
                });
                Ok(())
            }
            Err((stage, source)) => {
                let failed = StreamFailed { stream: self.meter.name.clone(), stage, source };
                self.meter.end(StreamEnd::Failed(failed.to_string()));
                Err(failed)
            }
        }
    }

    async fn work(&mut self, flow: &mut Flow) -> Result<StopReason> {
        let over = match self.open_state().await {
            Ok(true) => self.flow(flow).await,
            Ok(false) => Ok(StopReason::Stopped),
            Err(error) => Err(error),
        };
        if over.is_err() {
            if self.is_exactly_once() {
                let _ = self.abort().await;
                return over;
            }
            // A failure must not lose earlier messages.
            let _ = self.flush().await;
            let mut turn = turn(&mut self.bad, flow.source, Instant::now());
            let _ = self.sink.finish(&mut turn);
            let _ = self.flush_bad().await;
            return over;
        }
        self.drain(flow).await?;
        over
    }

    /// Processes all messages.
    async fn flow(&mut self, flow: &mut Flow) -> Result<StopReason> {
        let mut over = None;
        let mut since = Instant::now();
        loop {
            // Read first: the deadline of a processor that is due at once is the current time.
            let deadline = self.deadline();
            let now = Instant::now();
            if over.is_none() && !self.source.is_fed() && self.stop.is_given() {
                self.source.close();
                over = Some(StopReason::Stopped);
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.tick(flow, now).await?;
                // A splitter may have completed a message, and split the next one in part after this.
                if self.has_transactions {
                    self.acknowledge_if_due(flow, now).await?;
                }
            }
            if let Some(until) = self.source.losing()
                && !self.lets_go(until, now)
            {
                self.hand_back(flow, until).await?;
            }
            let is_full = self.is_full() || self.is_barred(flow, now);
            if is_full && over == Some(StopReason::Stopped) {
                return Ok(StopReason::Stopped);
            }
            self.return_bad().await?;
            let filled = if is_full { FillResult::Pending } else { self.fill(flow, now)? };
            match filled {
                FillResult::Ready => {
                    self.claim(flow).await?;
                    if !self.restore(flow).await? {
                        return Ok(StopReason::Stopped);
                    }
                    self.push(0, flow).await?;
                    self.acknowledge_if_due(flow, now).await?;
                }
                FillResult::End => return Ok(over.unwrap_or(StopReason::Ended)),
                FillResult::Pending => {
                    if over.is_some() {
                        return Ok(StopReason::Stopped);
                    }
                    self.acknowledge_if_due(flow, now).await?;
                    if !is_full {
                        self.announce_end(flow).await?;
                    }
                    if !self.is_due() {
                        self.wait(flow, now).await?;
                        since = Instant::now();
                    }
                }
            }
            self.hand_over_bad().await?;
            if now.duration_since(since) > TURN {
                tokio::task::yield_now().await;
                since = Instant::now();
            }
        }
    }

    /// Announces that the source has no more messages for now, unless the source itself tells.
    async fn announce_end(&mut self, flow: &mut Flow) -> Result<()> {
        let Some(provenance) = self.provenance.as_ref().filter(|_| self.announces && !flow.is_at_end) else {
            return Ok(());
        };
        flow.batch.clear();
        flow.batch.provenance = Some(Provenance { is_at_end: true, ..provenance.clone() });
        flow.is_at_end = true;
        self.push(0, flow).await
    }

    /// True if a processor cannot accept more messages until it has released some.
    fn is_full(&self) -> bool {
        self.links.iter().any(|link| link.processor.is_full())
    }

    /// The first processor whose output can go on. Output of earlier ones would pile up in front of the last
    /// full processor.
    fn open_from(&self) -> usize {
        self.links.iter().rposition(|link| link.processor.is_full()).unwrap_or(0)
    }

    /// True if the last full processor has more output at once.
    fn is_due(&self) -> bool {
        let full = self.links.iter().rfind(|link| link.processor.is_full());
        full.and_then(|link| link.processor.deadline()).is_some_and(|at| at <= Instant::now())
    }

    /// The time of the next due timer.
    fn deadline(&self) -> Option<Instant> {
        let open = &self.links[self.open_from()..];
        let processors = open.iter().filter_map(|link| link.processor.deadline());
        processors.chain(self.sink.deadline()).min()
    }

    /// Waits for a message, the stop signal, or a timer.
    async fn wait(&mut self, flow: &mut Flow, now: Instant) -> Result<()> {
        let (is_full, open_from) = (self.is_full() || self.is_barred(flow, now), self.open_from());
        let full = self.links.get(open_from).filter(|_| is_full).map(|link| link.meter.clone());
        let since = Instant::now();
        let mut deadline = self.deadline();
        // Without this, a divided message would have the stream look again at once.
        if self.wants_acknowledgement(flow) && !self.has_divided(flow) {
            deadline =
                Some(deadline.map_or(flow.next_acknowledgement, |at| at.min(flow.next_acknowledgement)));
        }
        let is_fed = self.source.is_fed();
        let due = async {
            match deadline {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let ready = async {
            match is_full {
                true => std::future::pending().await,
                false => self.source.ready().await,
            }
        };
        let stopped = async {
            match is_fed {
                true => std::future::pending().await,
                false => self.stop.given().await,
            }
        };
        let open = &mut self.links[open_from..];
        let mut wakes: Vec<_> = open.iter_mut().filter_map(|link| link.processor.wake()).collect();
        let woken = poll_fn(|context| {
            let is_ready = wakes.iter_mut().any(|wake| wake.as_mut().poll(context).is_ready());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        });
        let event = async {
            tokio::select! {
                biased;
                () = stopped => false,
                () = woken => true,
                () = ready => false,
                () = due => false,
            }
        };
        let is_woken = match full {
            Some(meter) => meter.waited_for(event).await,
            None => event.await,
        };
        drop(wakes);
        if !is_full {
            flow.source.waited += since.elapsed();
        }
        if is_woken {
            self.tick(flow, now).await?;
        }
        Ok(())
    }

    fn fill(&mut self, flow: &mut Flow, now: Instant) -> Result<FillResult> {
        let meter = &self.meter.stages[0];
        self.bad.enter(&meter.label, true);
        let mut turn = turn(&mut self.bad, flow.source, now);
        let filled = self.source.fill(&mut flow.batch, &mut turn);
        let filled = filled.map_err(|error| (meter.label.clone(), error))?;
        // While partitions change hands, the source keeps messages back.
        if self.source.losing().is_none() {
            flow.source.looked = now;
            if filled == FillResult::Pending {
                flow.source.empty = Some(ClockReading { at: now, time_ms: turn.time_ms });
            }
        }
        if filled == FillResult::Ready {
            flow.came = ClockReading { at: now, time_ms: turn.time_ms };
            let filled_at = Instant::now();
            meter.worked(0, flow.batch.len(), flow.batch.value_bytes(), filled_at - now);
            meter.reached(flow.batch.len(), flow.age(flow.batch.first_time_ms(), filled_at));
            flow.seen = flow.batch.last_sequence().or(flow.seen);
            flow.is_at_end = flow.batch.provenance.is_some();
            if flow.batch.provenance.is_none() {
                flow.batch.provenance = self.provenance.clone();
            }
        }
        Ok(filled)
    }

    /// For at-most-once streams: removes messages that may be redelivered.
    async fn claim(&mut self, flow: &mut Flow) -> Result<()> {
        if self.guarantee != Guarantee::AtMostOnce {
            return Ok(());
        }
        match self.source.claim(&mut flow.batch) {
            Some(claimed) => claimed.await.map_err(|error| (self.meter.stages[0].label.clone(), error)),
            None => Ok(()),
        }
    }

    /// Passes the batch on from a stage to the sink; 0 means that the source filled it.
    async fn push(&mut self, from: usize, flow: &mut Flow) -> Result<()> {
        let mut meter = &self.meter.stages[from];
        for place in from.. {
            let batch = &mut flow.batch;
            if batch.is_empty() && (!self.announces || batch.provenance.is_none()) {
                return Ok(());
            }
            if !self.taps[place].is_empty() {
                meter.waited_for(self.taps[place].send(batch)).await;
            }
            if !self.points[place].is_empty() && !batch.is_empty() {
                meter.waited_for(self.points[place].send(batch)).await;
            }
            if self.first_with_state == Some(place) {
                flow.written = batch.last_sequence().max(flow.written);
            }
            let Some(link) = self.links.get_mut(place) else { break };
            meter = &link.meter;
            let now = Instant::now();
            let (came, first_ms) = (batch.len(), batch.first_time_ms());
            self.bad.enter(&meter.label, link.is_traceable);
            let mut turn = turn(&mut self.bad, flow.source, now);
            let processed = link.processor.process(batch, &mut turn);
            processed.map_err(|error| (meter.label.clone(), error))?;
            let worked = Instant::now();
            let mut done = worked;
            if let Some(settled) = link.processor.settle(batch) {
                let settled = meter.waited_for(settled).await;
                settled.map_err(|error| (meter.label.clone(), error))?;
                done = Instant::now();
            }
            if let Some(provenance) = &link.provenance {
                let is_announced = std::mem::replace(&mut link.is_announced, true);
                batch.provenance = match batch.is_empty() {
                    false => Some(provenance.clone()),
                    true if is_announced => None,
                    true => Some(Provenance { partition: None, ..provenance.clone() }),
                };
            }
            meter.worked(came, batch.len(), batch.value_bytes(), worked - now);
            meter.reached(came, flow.age(first_ms, done));
        }
        if flow.batch.is_empty() && !(self.announces && self.is_piped) {
            return Ok(());
        }
        self.write(flow).await
    }

    async fn write(&mut self, flow: &mut Flow) -> Result<()> {
        let is_traceable = self.is_sink_traceable();
        let meter = self.meter.stages.last().expect("a stream has two ends");
        let now = Instant::now();
        self.bad.enter(&meter.label, is_traceable);
        let mut turn = turn(&mut self.bad, flow.source, now);
        let written = self.sink.write(&flow.batch, &mut turn);
        written.map_err(|error| (meter.label.clone(), error))?;
        let worked = Instant::now();
        let mut done = worked;
        if let Some(settled) = self.sink.settle() {
            let settled = meter.waited_for(settled).await;
            settled.map_err(|error| (meter.label.clone(), error))?;
            done = Instant::now();
        }
        meter.worked(flow.batch.len(), flow.batch.len(), flow.batch.value_bytes(), worked - now);
        meter.reached(flow.batch.len(), flow.age(flow.batch.first_time_ms(), done));
        flow.written = flow.batch.last_sequence().max(flow.written);
        self.give_back(flow)
    }

    /// Runs all due timers.
    async fn tick(&mut self, flow: &mut Flow, now: Instant) -> Result<()> {
        for index in 0..self.links.len() {
            if index < self.open_from() {
                continue;
            }
            flow.batch.clear();
            let link = &mut self.links[index];
            self.bad.enter(&link.meter.label, link.is_traceable);
            let ticked = link.processor.tick(&mut flow.batch, &mut turn(&mut self.bad, flow.source, now));
            ticked.map_err(|error| (link.meter.label.clone(), error))?;
            self.push_from_link(index, flow).await?;
        }
        flow.batch.clear();
        let (label, is_traceable) = (self.sink_label(), self.is_sink_traceable());
        self.bad.enter(&label, is_traceable);
        let ticked = self.sink.tick(&mut turn(&mut self.bad, flow.source, now));
        ticked.map_err(|error| (label.clone(), error))?;
        if let Some(settled) = self.sink.settle() {
            settled.await.map_err(|error| (label, error))?;
        }
        self.give_back(flow)
    }

    /// True if the messages that reach the sink have the sequences of the source.
    fn is_sink_traceable(&self) -> bool {
        self.links.last().is_none_or(|link| link.is_traceable && link.processor.keeps_sequences())
    }

    /// Treats messages that the receiver of the sink refused as bad messages.
    fn give_back(&mut self, flow: &Flow) -> Result<()> {
        let (label, is_traceable) = (self.sink_label(), self.is_sink_traceable());
        self.bad.enter(&label, is_traceable);
        let given_back = self.sink.give_back(&mut turn(&mut self.bad, flow.source, Instant::now()));
        given_back.map_err(|error| (label, error))
    }

    /// Returns bad messages to their senders, when their dead letters are stored.
    async fn return_bad(&mut self) -> Result<()> {
        let returned = self.bad.take_returned().await.map_err(|error| (self.bad.stage(), error))?;
        for returned in returned {
            let (stage, reason) =
                (returned.stage.clone(), format!("{}: {}", returned.stage, returned.reason));
            if !self.source.return_bad(returned.sequence, &reason) {
                self.bad.keep(returned).map_err(|error| (stage, error))?;
            }
        }
        Ok(())
    }

    /// Passes the messages of a processor's tick on to the sink.
    async fn push_from_link(&mut self, index: usize, flow: &mut Flow) -> Result<()> {
        if flow.batch.is_empty() {
            return Ok(());
        }
        flow.came = ClockReading { at: Instant::now(), time_ms: clock::time_ms() };
        let Link { meter, provenance, .. } = &self.links[index];
        if provenance.is_some() {
            flow.batch.provenance.clone_from(provenance);
        }
        meter.worked(0, flow.batch.len(), flow.batch.value_bytes(), Duration::ZERO);
        self.push(index + 1, flow).await
    }

    /// Tells stages that track partitions that a source has ended, or a processor that is the source of its
    /// output; `from` is the place of the next stage.
    async fn announce_over(&mut self, from: usize, source: Option<SourceId>, flow: &mut Flow) -> Result<()> {
        let Some(source) = source.filter(|_| self.announces) else { return Ok(()) };
        flow.batch.clear();
        flow.batch.provenance = Some(Provenance::over(source));
        self.push(from, flow).await
    }

    /// Flushes messages still held by stages after the last message, and waits for delivery. Durable state
    /// stays as it is: the next process goes on with it.
    async fn drain(&mut self, flow: &mut Flow) -> Result<()> {
        self.relieve(0, flow).await?;
        let is_durable = self.state.is_some();
        self.announce_over(0, self.source_id.filter(|_| !is_durable), flow).await?;
        for index in 0..self.links.len() {
            let mut has_finished = self.links[index].processor.state().is_some();
            while !has_finished {
                flow.batch.clear();
                let link = &mut self.links[index];
                let finished = link.processor.finish(&mut flow.batch).await;
                finished.map_err(|error| (link.meter.label.clone(), error))?;
                has_finished = link.processor.has_finished();
                self.push_from_link(index, flow).await?;
                self.relieve(index + 1, flow).await?;
                self.hand_over_bad().await?;
            }
            let source = self.links[index].provenance.as_ref().map(|provenance| provenance.source);
            let source = source.filter(|_| !is_durable);
            self.announce_over(index + 1, source, flow).await?;
        }
        let label = self.sink_label();
        let failed = |error| (label.clone(), error);
        if self.has_transactions {
            self.transact(flow).await?;
        }
        self.flush().await?;
        self.give_back(flow)?;
        self.sink.finish(&mut turn(&mut self.bad, flow.source, Instant::now())).map_err(failed)?;
        self.flush_bad().await?;
        // Close the taps before the first wait.
        self.taps.iter_mut().for_each(Outlet::close);
        self.sink.arrive().await.map_err(failed)?;
        if !self.has_transactions {
            self.acknowledge_source(flow, u64::MAX).await?;
        }
        self.source.finish().await.map_err(|error| (self.meter.stages[0].label.clone(), error))
    }

    /// Empties full processors from a place on.
    async fn relieve(&mut self, from: usize, flow: &mut Flow) -> Result<()> {
        let full = |chain: &Chain| {
            (from..chain.links.len()).rev().find(|index| chain.links[*index].processor.is_full())
        };
        while let Some(index) = full(self) {
            let now = Instant::now();
            flow.batch.clear();
            let link = &mut self.links[index];
            let relieved = match link.processor.deadline().is_some_and(|at| at <= Instant::now()) {
                true => {
                    self.bad.enter(&link.meter.label, link.is_traceable);
                    link.processor.tick(&mut flow.batch, &mut turn(&mut self.bad, flow.source, now))
                }
                false => link.processor.relieve(&mut flow.batch).await,
            };
            relieved.map_err(|error| (link.meter.label.clone(), error))?;
            self.push_from_link(index, flow).await?;
            self.hand_over_bad().await?;
        }
        Ok(())
    }

    fn wants_acknowledgement(&mut self, flow: &Flow) -> bool {
        self.source.wants_acknowledgement()
            && (flow.acknowledged < flow.seen || self.source.has_passed() || self.has_changed_state())
    }

    async fn acknowledge_if_due(&mut self, flow: &mut Flow, now: Instant) -> Result<()> {
        if !self.wants_acknowledgement(flow) || now < flow.next_acknowledgement {
            return Ok(());
        }
        if self.has_transactions {
            // A message with one part written and another held waits for the next transaction.
            if self.has_divided(flow) {
                return self.check_divided(flow);
            }
            flow.divided = None;
            let every = if self.is_exactly_once() { COMMIT_EVERY } else { ACKNOWLEDGE_EVERY };
            flow.next_acknowledgement = now + every;
            return self.transact(flow).await;
        }
        flow.next_acknowledgement =
            now + if self.has_waiting_clients { ANSWER_EVERY } else { ACKNOWLEDGE_EVERY };
        let reports_delivery = self.sink.reports_delivery().map_err(|error| (self.sink_label(), error))?;
        if reports_delivery {
            self.give_back(flow)?;
        }
        match reports_delivery {
            true => self.flush_bad().await?,
            false => self.flush().await?,
        }
        let held = self.held_since();
        self.acknowledge_source(flow, held.unwrap_or(u64::MAX)).await
    }

    /// Waits until the sink and the dead letters have delivered everything.
    async fn flush(&mut self) -> Result<()> {
        self.sink.flush().await.map_err(|error| (self.sink_label(), error))?;
        self.flush_bad().await
    }

    /// Waits until dead letters occupy little memory. A stopped stream does not wait long.
    async fn hand_over_bad(&mut self) -> Result<()> {
        let handed_over = tokio::select! {
            biased;
            handed_over = self.bad.hand_over() => Some(handed_over),
            () = self.stop.given() => None,
        };
        let handed_over = match handed_over {
            Some(handed_over) => handed_over,
            None => {
                self.bad.stop();
                self.bad.hand_over().await
            }
        };
        handed_over.map_err(|error| (self.bad.stage(), error))
    }

    async fn flush_bad(&mut self) -> Result<()> {
        self.hand_over_bad().await?;
        self.bad.flush().await.map_err(|error| (self.bad.stage(), error))
    }

    fn sink_label(&self) -> Arc<str> {
        self.meter.stages.last().expect("a stream has two ends").label.clone()
    }

    fn is_exactly_once(&self) -> bool {
        self.guarantee == Guarantee::ExactlyOnce
    }

    /// True if processors that hold messages will release some in time for a rebalance. Waiting is useless in
    /// a transaction, because messages outside it are read again.
    fn lets_go(&self, until: Instant, now: Instant) -> bool {
        let mut holding = self.links.iter().filter(|link| link.processor.held_since().is_some()).peekable();
        let is_holding = holding.peek().is_some();
        let in_time = holding.all(|link| link.processor.releases_by().is_some_and(|at| at < until));
        now < until && !self.is_exactly_once() && is_holding && in_time
    }

    /// Delivers the source's messages before its partitions are reassigned.
    async fn hand_back(&mut self, flow: &mut Flow, until: Instant) -> Result<()> {
        if self.has_transactions {
            self.transact(flow).await?;
            self.forget(flow).await?;
        } else {
            self.flush().await?;
            // The time is over: the new owner of the partitions reads the rest again.
            let soon = Instant::now() + WINDOWS_WAITED;
            let until = if self.reaches_windows { until.min(soon) } else { until };
            let _ = timeout_at(until, self.sink.catch_up()).await;
            let held = self.held_since();
            self.acknowledge_source(flow, held.unwrap_or(u64::MAX)).await?;
        }
        self.source.hand_back().await.map_err(|error| (self.meter.stages[0].label.clone(), error))
    }

    /// The first message that a processor holds.
    fn held_in_links(&self) -> Option<u64> {
        self.links.iter().filter_map(|link| link.processor.held_since()).min()
    }

    /// The first undelivered message: a processor holds it, or streams behind a named destination do. Taps do
    /// not count.
    fn held_since(&mut self) -> Option<u64> {
        self.held_in_links().into_iter().chain(self.sink.held_since()).min()
    }

    /// Acknowledges to the source everything before the first message still held.
    async fn acknowledge_source(&mut self, flow: &mut Flow, held_since: u64) -> Result<()> {
        self.return_bad().await?;
        let through = match (flow.seen, held_since.checked_sub(1)) {
            (Some(seen), Some(before_held)) => seen.min(before_held),
            _ => return Ok(()),
        };
        if flow.acknowledged.is_some_and(|acknowledged| acknowledged >= through) {
            return Ok(());
        }
        let acknowledged = self.source.acknowledge(through).await;
        acknowledged.map_err(|error| (self.meter.stages[0].label.clone(), error))?;
        flow.acknowledged = Some(through);
        Ok(())
    }
}

/// The messages in flight in a chain.
struct Flow {
    batch: Batch,
    /// Time of the batch's entry into the chain.
    came: ClockReading,
    /// The last message produced by the source.
    seen: Option<u64>,
    /// The last message passed to the sink.
    written: Option<u64>,
    /// The last message acknowledged to the source.
    acknowledged: Option<u64>,
    next_acknowledgement: Instant,
    /// The message of which a part is written and another held, and the time at which it was found so.
    divided: Option<(u64, Instant)>,
    source: SourceWatch,
    /// True if later stages know that the source has no more messages for now.
    is_at_end: bool,
}

impl Flow {
    /// The age of a message at a moment: by its timestamp in milliseconds until it entered the chain, exact
    /// from there. The first message of a batch stands for all.
    fn age(&self, first_ms: Option<i64>, at: Instant) -> Duration {
        let before_ms = first_ms.map_or(0, |first_ms| self.came.time_ms.saturating_sub(first_ms));
        Duration::from_millis(u64::try_from(before_ms).unwrap_or(0)) + (at - self.came.at)
    }
}

fn turn(bad: &mut BadMessages, source: SourceWatch, now: Instant) -> Turn<'_> {
    Turn { now, time_ms: clock::time_ms(), source, bad }
}

#[cfg(test)]
mod tests;
