//! A chain between a source with a backlog and a sink that counts: the moments of its transactions.

use std::sync::Mutex;

use thalweg_client::GroupMetadata;

use super::*;
use crate::declaration::StageOutput;
use crate::durability::StateKeeping;
use crate::plan::Plan;
use crate::reach::Reach;
use crate::runtime::origins::Origins;
use crate::runtime::{Builder, Joints, RunOptions, Taps, stop};
use crate::stage::{GroupOffsets, Progress, TransactionOutcome, Wait};
use crate::{Cluster, OnError};

/// Maximum duration of a backlog.
const BACKLOG: Duration = Duration::from_secs(5);

/// The committed messages, and the parts written before each commit.
#[derive(Default)]
struct Commits {
    through: Vec<u64>,
    written: Vec<u64>,
}

/// A source that always has a batch, until a few transactions have committed.
struct Backlog {
    messages: u64,
    value: String,
    next: u64,
    ends_at: Instant,
    commits: Arc<Mutex<Commits>>,
}

impl Source for Backlog {
    fn fill(
        &mut self,
        batch: &mut Batch,
        _turn: &mut Turn<'_>,
    ) -> std::result::Result<FillResult, StageError> {
        batch.clear();
        let commits = self.commits.lock().expect("no test panics with the lock").through.len();
        if commits == 3 || Instant::now() >= self.ends_at {
            return Ok(FillResult::End);
        }
        for _ in 0..self.messages {
            batch.push(self.value.clone().into(), None, 0, self.next);
            self.next += 1;
        }
        Ok(FillResult::Ready)
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }

    fn close(&mut self) {}

    fn wants_acknowledgement(&self) -> bool {
        true
    }

    fn progress(&mut self, through: u64, _is_due: bool) -> std::result::Result<Progress, StageError> {
        self.commits.lock().expect("no test panics with the lock").through.push(through);
        let group = GroupMetadata::without_member("g");
        Ok(Progress::Group(GroupOffsets { offsets: Default::default(), group, state: Vec::new() }))
    }
}

/// A sink that counts.
struct Counter {
    written: u64,
    /// The time that a transaction may take.
    timeout: Duration,
    commits: Arc<Mutex<Commits>>,
}

impl Sink for Counter {
    fn write(&mut self, batch: &Batch, _turn: &mut Turn<'_>) -> std::result::Result<(), StageError> {
        self.written += batch.len() as u64;
        Ok(())
    }

    fn transaction_timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn commit(
        &mut self,
        _progress: GroupOffsets,
    ) -> Wait<'_, std::result::Result<TransactionOutcome, StageError>> {
        self.commits.lock().expect("no test panics with the lock").written.push(self.written);
        Box::pin(async { Ok(TransactionOutcome::Committed) })
    }
}

struct NoConsole;

impl StageOutput for NoConsole {
    fn line(&self, _text: &str) {}
}

/// The chain of a text, whose ends are replaced.
fn chain(text: &str, source: Box<dyn Source>, sink: Box<dyn Sink>) -> Chain {
    let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions {
        reach: Reach::everything().into(),
        on_error: OnError::Fail,
        cluster: Cluster { bootstrap: "localhost:9092".to_owned(), properties: None },
        guarantee: Guarantee::ExactlyOnce,
        instance: "0".to_owned(),
        console: Arc::new(NoConsole),
        taps: Taps::default(),
    };
    let stream = &plan.streams[0];
    let mut builder = Builder {
        options: &options,
        stream: &stream.name,
        meter: &Arc::new(StreamMeter::new(stream, 0)),
        is_stored: false,
        kept: &StateKeeping::None,
        sink_has_transactions: true,
        transactional_id: Some("s".into()),
        origins: &Origins::of(&plan),
        index: 0,
        instance: 0,
        gives_refused_back: false,
    };
    let chain = builder.chain(&plan, &mut Joints::of(&plan), &stop().1);
    Chain { source, sink, ..chain.unwrap_or_else(|error| panic!("{error}")) }
}

#[tokio::test]
async fn transactions_end_in_a_backlog_between_split_messages() {
    // Messages of very many parts, and batches of more parts than are made at once.
    for (messages, parts) in [(2, 5000), (512, 9), (1, 20_000)] {
        let commits = Arc::<Mutex<Commits>>::default();
        let value = vec!["x"; parts].join(",");
        let ends_at = Instant::now() + BACKLOG;
        let source = Box::new(Backlog { messages, value, next: 0, ends_at, commits: commits.clone() });
        let sink = Box::new(Counter { written: 0, timeout: BACKLOG, commits: commits.clone() });
        let running = chain("time | splitter --delimiter=, | null", source, sink).run();
        running.await.unwrap_or_else(|error| panic!("{error}"));
        assert!(Instant::now() < ends_at, "no transaction has ended before the backlog: {parts} parts");
        let commits = commits.lock().expect("no test panics with the lock");
        let expected: Vec<u64> = commits.through.iter().map(|through| (through + 1) * parts as u64).collect();
        assert_eq!(commits.written, expected, "a transaction has all parts of its messages");
    }
}

#[tokio::test]
async fn a_message_whose_parts_take_longer_than_a_transaction_is_named() {
    let commits = Arc::<Mutex<Commits>>::default();
    let (value, ends_at) = (vec!["x"; 20_000].join(","), Instant::now() + BACKLOG);
    let source = Box::new(Backlog { messages: 1, value, next: 0, ends_at, commits: commits.clone() });
    let sink = Box::new(Counter { written: 0, timeout: Duration::ZERO, commits });
    let running = chain("time | splitter --delimiter=, | null", source, sink).run();
    let error = running.await.expect_err("no transaction is long enough").to_string();
    assert!(error.contains("the parts of message 0") && error.contains("transaction.timeout.ms"), "{error}");
}
