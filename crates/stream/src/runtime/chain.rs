//! One stream at work: a batch is filled by the source, goes through every processor and into the sink, and is filled again.
//! All of it by plain calls on one thread; the task waits only where a stage says so.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::StreamFailed;
use super::channel::Outlet;
use super::report::{Ended, StageMeter, StreamMeter};
use super::stop::Stop;
use super::tap::TapPoint;
use crate::Guarantee;
use crate::bad::BadMessages;
use crate::clock;
use crate::message::Batch;
use crate::stage::{Filled, Processor, Progress, Sink, Source, StageError, Transacted, Turn};

/// How long a stream that is busy keeps its thread before others may have it.
const TURN: Duration = Duration::from_millis(2);
/// How often a source that wants to know is told what has arrived.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(500);
/// The same where clients wait for it.
const ANSWER_EVERY: Duration = Duration::from_millis(2);
/// The same for transactions, before whose end nobody sees what was written: as Kafka Streams has it.
const COMMIT_EVERY: Duration = Duration::from_millis(100);

/// A processor in its place.
pub struct Link {
    pub processor: Box<dyn Processor>,
    pub meter: Arc<StageMeter>,
}

/// A stream, put up.
pub struct Chain {
    pub source: Box<dyn Source>,
    pub links: Vec<Link>,
    pub sink: Box<dyn Sink>,
    /// After the source, and after each processor.
    pub taps: Vec<Outlet>,
    /// The same places, for streams that run beside this one.
    pub points: Vec<TapPoint>,
    pub meter: Arc<StreamMeter>,
    pub bad: BadMessages,
    pub guarantee: Guarantee,
    /// Whether clients of its source, or of a stream that feeds it, wait until messages have arrived.
    pub has_waiting_clients: bool,
    pub stop: Stop,
}

/// Which stage failed, and why.
type Result<T> = std::result::Result<T, (Arc<str>, StageError)>;

/// Why the source is not asked any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Ended,
    Stopped,
}

impl Chain {
    /// Runs until the source ends or the word to stop comes.
    pub async fn run(mut self) -> std::result::Result<(), StreamFailed> {
        let mut flow = Flow {
            batch: Batch::new(),
            came: Came { at: Instant::now(), time_ms: clock::time_ms() },
            seen: None,
            written: None,
            acknowledged: None,
            next_acknowledgement: Instant::now(),
            idle: Duration::ZERO,
        };
        let ended = self.work(&mut flow).await;
        self.source.leave().await;
        match ended {
            Ok(over) => {
                self.meter.end(if over == Over::Ended { Ended::Complete } else { Ended::Stopped });
                Ok(())
            }
            Err((stage, source)) => {
                let failed = StreamFailed { stream: self.meter.name.clone(), stage, source };
                self.meter.end(Ended::Failed(failed.to_string()));
                Err(failed)
            }
        }
    }

    async fn work(&mut self, flow: &mut Flow) -> Result<Over> {
        let over = self.flow(flow).await;
        if over.is_err() {
            if self.is_exactly_once() {
                let _ = self.sink.abort().await;
                return over;
            }
            // What has come so far is not lost for what came after it.
            let _ = self.flush().await;
            let mut turn = turn(&mut self.bad, flow.idle, Instant::now());
            let _ = self.sink.finish(&mut turn);
            return over;
        }
        self.drain(flow).await?;
        over
    }

    /// From the first message to the last.
    async fn flow(&mut self, flow: &mut Flow) -> Result<Over> {
        let mut over = None;
        let mut since = Instant::now();
        loop {
            let now = Instant::now();
            if over.is_none() && !self.source.is_fed() && self.stop.is_given() {
                self.source.close();
                over = Some(Over::Stopped);
            }
            if self.deadline().is_some_and(|deadline| deadline <= now) {
                self.tick(flow, now).await?;
            }
            if let Some(until) = self.source.losing()
                && !self.lets_go(until, now)
            {
                self.hand_back(flow, until).await?;
            }
            let is_full = self.is_full();
            if is_full && over == Some(Over::Stopped) {
                return Ok(Over::Stopped);
            }
            let filled = if is_full { Filled::Pending } else { self.fill(flow, now)? };
            match filled {
                Filled::Ready => {
                    self.claim(flow).await?;
                    self.push(0, flow).await?;
                    self.acknowledge_if_due(flow, now).await?;
                }
                Filled::End => return Ok(over.unwrap_or(Over::Ended)),
                Filled::Pending => {
                    if over.is_some() {
                        return Ok(Over::Stopped);
                    }
                    self.acknowledge_if_due(flow, now).await?;
                    self.wait(flow, now).await?;
                    since = Instant::now();
                }
            }
            self.bad.settle().await.map_err(|error| (self.bad.stage(), error))?;
            if now.duration_since(since) > TURN {
                tokio::task::yield_now().await;
                since = Instant::now();
            }
        }
    }

    /// Whether a processor holds so much back that nothing more may come.
    fn is_full(&self) -> bool {
        self.links.iter().any(|link| link.processor.is_full())
    }

    /// When anything is due though no message comes.
    fn deadline(&self) -> Option<Instant> {
        let processors = self.links.iter().filter_map(|link| link.processor.deadline());
        processors.chain(self.sink.deadline()).min()
    }

    /// Waits for a message, the word to stop, or what is due.
    async fn wait(&mut self, flow: &mut Flow, now: Instant) -> Result<()> {
        let is_full = self.is_full();
        let since = Instant::now();
        let mut deadline = self.deadline();
        if self.source.wants_acknowledgement() && flow.acknowledged < flow.seen {
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
        let mut wakes: Vec<_> = self.links.iter_mut().filter_map(|link| link.processor.wake()).collect();
        let woken = poll_fn(|context| {
            let is_ready = wakes.iter_mut().any(|wake| wake.as_mut().poll(context).is_ready());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        });
        let is_woken = tokio::select! {
            biased;
            () = stopped => false,
            () = woken => true,
            () = ready => false,
            () = due => false,
        };
        drop(wakes);
        if !is_full {
            flow.idle += since.elapsed();
        }
        if is_woken {
            self.tick(flow, now).await?;
        }
        Ok(())
    }

    fn fill(&mut self, flow: &mut Flow, now: Instant) -> Result<Filled> {
        let meter = &self.meter.stages[0];
        self.bad.enter(&meter.label);
        let mut turn = turn(&mut self.bad, flow.idle, now);
        let filled = self.source.fill(&mut flow.batch, &mut turn);
        let filled = filled.map_err(|error| (meter.label.clone(), error))?;
        if filled == Filled::Ready {
            flow.came = Came { at: now, time_ms: turn.time_ms };
            let filled_at = Instant::now();
            meter.worked(0, flow.batch.len(), flow.batch.value_bytes(), filled_at - now);
            meter.reached(flow.batch.len(), flow.age(flow.batch.first_time_ms(), filled_at));
            flow.seen = flow.batch.last_sequence().or(flow.seen);
        }
        Ok(filled)
    }

    /// Where messages arrive at most once, takes out what may come again.
    async fn claim(&mut self, flow: &mut Flow) -> Result<()> {
        if self.guarantee != Guarantee::AtMostOnce {
            return Ok(());
        }
        match self.source.claim(&mut flow.batch) {
            Some(claimed) => claimed.await.map_err(|error| (self.meter.stages[0].label.clone(), error)),
            None => Ok(()),
        }
    }

    /// Takes the batch from a stage on to the sink: 0 is what the source filled.
    async fn push(&mut self, from: usize, flow: &mut Flow) -> Result<()> {
        let mut meter = &self.meter.stages[from];
        for place in from.. {
            let batch = &mut flow.batch;
            if batch.is_empty() {
                return Ok(());
            }
            if !self.taps[place].is_empty() {
                meter.waited_for(self.taps[place].send(batch)).await;
            }
            if !self.points[place].is_empty() {
                meter.waited_for(self.points[place].send(batch)).await;
            }
            let Some(link) = self.links.get_mut(place) else { break };
            meter = &link.meter;
            let now = Instant::now();
            let (came, first_ms) = (batch.len(), batch.first_time_ms());
            self.bad.enter(&meter.label);
            let mut turn = turn(&mut self.bad, flow.idle, now);
            let processed = link.processor.process(batch, &mut turn);
            processed.map_err(|error| (meter.label.clone(), error))?;
            let worked = Instant::now();
            let mut done = worked;
            if let Some(settled) = link.processor.settle(batch) {
                let settled = meter.waited_for(settled).await;
                settled.map_err(|error| (meter.label.clone(), error))?;
                done = Instant::now();
            }
            meter.worked(came, batch.len(), batch.value_bytes(), worked - now);
            meter.reached(came, flow.age(first_ms, done));
        }
        self.write(flow).await
    }

    async fn write(&mut self, flow: &mut Flow) -> Result<()> {
        let meter = self.meter.stages.last().expect("a stream has two ends");
        let now = Instant::now();
        self.bad.enter(&meter.label);
        let mut turn = turn(&mut self.bad, flow.idle, now);
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
        flow.written = flow.batch.last_sequence().or(flow.written);
        Ok(())
    }

    /// Lets every stage do what is due.
    async fn tick(&mut self, flow: &mut Flow, now: Instant) -> Result<()> {
        for index in 0..self.links.len() {
            flow.batch.clear();
            let link = &mut self.links[index];
            self.bad.enter(&link.meter.label);
            let ticked = link.processor.tick(&mut flow.batch, &mut turn(&mut self.bad, flow.idle, now));
            ticked.map_err(|error| (link.meter.label.clone(), error))?;
            self.push_from_link(index, flow).await?;
        }
        flow.batch.clear();
        let label = &self.meter.stages.last().expect("a stream has two ends").label;
        self.sink.tick(&mut turn(&mut self.bad, flow.idle, now)).map_err(|error| (label.clone(), error))
    }

    /// What a processor let go of its own, on to the sink.
    async fn push_from_link(&mut self, index: usize, flow: &mut Flow) -> Result<()> {
        if flow.batch.is_empty() {
            return Ok(());
        }
        flow.came = Came { at: Instant::now(), time_ms: clock::time_ms() };
        let meter = &self.links[index].meter;
        meter.worked(0, flow.batch.len(), flow.batch.value_bytes(), Duration::ZERO);
        self.push(index + 1, flow).await
    }

    /// After the last message: what stages still hold comes out, and arrives.
    async fn drain(&mut self, flow: &mut Flow) -> Result<()> {
        for index in 0..self.links.len() {
            flow.batch.clear();
            let link = &mut self.links[index];
            let finished = link.processor.finish(&mut flow.batch).await;
            finished.map_err(|error| (link.meter.label.clone(), error))?;
            self.push_from_link(index, flow).await?;
        }
        let label = self.sink_label();
        let failed = |error| (label.clone(), error);
        if self.is_exactly_once() {
            self.transact(flow).await?;
        }
        self.flush().await?;
        self.sink.finish(&mut turn(&mut self.bad, flow.idle, Instant::now())).map_err(failed)?;
        // Who taps is told that no more comes before anybody is waited for.
        self.taps.iter_mut().for_each(Outlet::close);
        self.sink.arrive().await.map_err(failed)?;
        if !self.is_exactly_once() {
            self.tell_source(flow, u64::MAX).await?;
        }
        self.source.finish().await.map_err(|error| (self.meter.stages[0].label.clone(), error))
    }

    async fn acknowledge_if_due(&mut self, flow: &mut Flow, now: Instant) -> Result<()> {
        if !self.source.wants_acknowledgement()
            || now < flow.next_acknowledgement
            || flow.acknowledged >= flow.seen
        {
            return Ok(());
        }
        if self.is_exactly_once() {
            flow.next_acknowledgement = now + COMMIT_EVERY;
            return self.transact(flow).await;
        }
        flow.next_acknowledgement =
            now + if self.has_waiting_clients { ANSWER_EVERY } else { ACKNOWLEDGE_EVERY };
        match self.sink.tells_arrivals().map_err(|error| (self.sink_label(), error))? {
            true => self.flush_bad().await?,
            false => self.flush().await?,
        }
        let held = self.held_since();
        self.tell_source(flow, held.unwrap_or(u64::MAX)).await
    }

    /// Waits until the sink has all that it was given, and dead letters are where they belong.
    async fn flush(&mut self) -> Result<()> {
        self.sink.flush().await.map_err(|error| (self.sink_label(), error))?;
        self.flush_bad().await
    }

    async fn flush_bad(&mut self) -> Result<()> {
        self.bad.flush().await.map_err(|error| (self.bad.stage(), error))
    }

    fn sink_label(&self) -> Arc<str> {
        self.meter.stages.last().expect("a stream has two ends").label.clone()
    }

    fn is_exactly_once(&self) -> bool {
        self.guarantee == Guarantee::ExactlyOnce
    }

    /// Whether processors that hold messages back will let go of some in time, before partitions go to others. What a transaction
    /// does not take with it comes again, so there it is no use.
    fn lets_go(&self, until: Instant, now: Instant) -> bool {
        let mut holding = self.links.iter().filter(|link| link.processor.held_since().is_some()).peekable();
        let is_holding = holding.peek().is_some();
        let in_time = holding.all(|link| link.processor.deadline().is_some_and(|at| at < until));
        now < until && !self.is_exactly_once() && is_holding && in_time
    }

    /// Lets what the source has given arrive, before others have its partitions.
    async fn hand_back(&mut self, flow: &mut Flow, until: Instant) -> Result<()> {
        if self.is_exactly_once() {
            self.transact(flow).await?;
            self.forget(flow).await?;
        } else {
            self.flush().await?;
            // Whoever is not waited for any more gets the rest again.
            let _ = timeout_at(until, self.sink.catch_up()).await;
            let held = self.held_since();
            self.tell_source(flow, held.unwrap_or(u64::MAX)).await?;
        }
        self.source.hand_back().await.map_err(|error| (self.meter.stages[0].label.clone(), error))
    }

    /// Makes what was written and how far the source has come count together. What cannot count is taken back, and comes again.
    async fn transact(&mut self, flow: &mut Flow) -> Result<()> {
        let held = self.links.iter().filter_map(|link| link.processor.held_since()).min();
        // A message of which a part was written, and another is held back, waits for the next time.
        if held.is_some_and(|held| flow.written >= Some(held)) {
            return Ok(());
        }
        let Some(through) = held.map_or(flow.seen, |held| held.checked_sub(1)) else { return Ok(()) };
        let progress = self.source.progress(through);
        let transacted = match progress.map_err(|error| (self.meter.stages[0].label.clone(), error))? {
            Progress::None => return Ok(()),
            Progress::Void => Transacted::Refused,
            Progress::Group(offsets) => {
                let committed = self.sink.commit(offsets).await;
                committed.map_err(|error| (self.sink_label(), error))?
            }
        };
        match transacted {
            Transacted::Committed => flow.acknowledged = Some(through),
            Transacted::Refused => {
                self.forget(flow).await?;
                self.source.rewind();
            }
        }
        Ok(())
    }

    /// Takes back what does not count, on the way and in the sink.
    async fn forget(&mut self, flow: &mut Flow) -> Result<()> {
        self.sink.abort().await.map_err(|error| (self.sink_label(), error))?;
        self.links.iter_mut().for_each(|link| link.processor.forget());
        flow.acknowledged = flow.seen;
        Ok(())
    }

    /// The first message that has not arrived: a processor holds it back, or the streams behind a named destination have it.
    /// Who taps only listens, and is not asked.
    fn held_since(&mut self) -> Option<u64> {
        let links = self.links.iter().filter_map(|link| link.processor.held_since()).min();
        links.into_iter().chain(self.sink.held_since()).min()
    }

    /// Tells the source what has arrived: all that was seen before what is still held.
    async fn tell_source(&mut self, flow: &mut Flow, held_since: u64) -> Result<()> {
        let through = match (flow.seen, held_since.checked_sub(1)) {
            (Some(seen), Some(before_held)) => seen.min(before_held),
            _ => return Ok(()),
        };
        if flow.acknowledged.is_some_and(|acknowledged| acknowledged >= through) {
            return Ok(());
        }
        let told = self.source.acknowledge(through).await;
        told.map_err(|error| (self.meter.stages[0].label.clone(), error))?;
        flow.acknowledged = Some(through);
        Ok(())
    }
}

/// What is on its way through a chain.
struct Flow {
    batch: Batch,
    /// When the batch came into the chain.
    came: Came,
    /// The last message that the source made.
    seen: Option<u64>,
    /// The last that the sink was given.
    written: Option<u64>,
    /// The last that the source was told of.
    acknowledged: Option<u64>,
    next_acknowledgement: Instant,
    /// How long the source was waited for, in all.
    idle: Duration,
}

/// A moment, by both clocks.
#[derive(Clone, Copy)]
struct Came {
    at: Instant,
    time_ms: i64,
}

impl Flow {
    /// How old a message of the batch with this time is at a moment. What passed before it came here is known in milliseconds, as
    /// messages bear their times; what passed since, exactly. The first message of a batch stands for all of it.
    fn age(&self, first_ms: Option<i64>, at: Instant) -> Duration {
        let before_ms = first_ms.map_or(0, |first_ms| self.came.time_ms.saturating_sub(first_ms));
        Duration::from_millis(u64::try_from(before_ms).unwrap_or(0)) + (at - self.came.at)
    }
}

fn turn(bad: &mut BadMessages, idle: Duration, now: Instant) -> Turn<'_> {
    Turn { now, time_ms: clock::time_ms(), idle, bad }
}
