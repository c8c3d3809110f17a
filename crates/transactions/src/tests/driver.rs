//! The coordinator with its driver: requests wait for the log, and real time passes.

use super::harness::{ID, TIMEOUT_MS, named};
use crate::answer::Producer;
use crate::config::TransactionConfig;
use crate::coordinator::{TransactionCoordinator, TwoPhaseCommit};
use crate::error::NoProducerIds;
use crate::metadata::TransactionMetadata;
use crate::record::{encode_key, encode_value};
use crate::shard::{InitRequest, TransactionFilter, TransactionsView};
use crate::state::TransactionState;
use bytes::Bytes;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchBuilder, BatchOptions};
use thalweg_shard::testing::MemoryLog;
use thalweg_wire::ErrorCode;

struct OnePartition;

impl TransactionsView for OnePartition {
    fn state_partition_count(&self) -> Option<i32> {
        Some(1)
    }

    fn transaction_version(&self) -> i16 {
        2
    }
}

async fn elected(config: TransactionConfig, log: &Arc<MemoryLog>) -> Arc<TransactionCoordinator> {
    let (cluster, clock, disk) = (Arc::new(OnePartition), Clock::system(), Disk::real());
    let coordinator = TransactionCoordinator::new(config, log.clone(), cluster, clock, disk);
    coordinator.on_elected(PartitionIndex(0), 1);
    while !coordinator.is_loaded(PartitionIndex(0)) {
        tokio::task::yield_now().await;
    }
    Arc::new(coordinator)
}

async fn initialised(coordinator: &TransactionCoordinator, id: &str) -> Producer {
    let request = InitRequest { id: id.to_owned(), timeout_ms: TIMEOUT_MS, expected: None, client_id: None };
    let initialised = coordinator.init_producer_id(request, TwoPhaseCommit::default(), || async { Ok(1000) });
    initialised.await.expect("nothing is in the way")
}

/// The result of polling a future once.
async fn polled<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[tokio::test]
async fn a_loaded_addition_is_confirmed_when_the_replicas_have_it() {
    let log = MemoryLog::new();
    let first = elected(TransactionConfig::default(), &log).await;
    let (producer, partitions) = (initialised(&first, ID).await, named(&[("t", 0)]));
    first.add_partitions(ID, producer, &partitions, 2).await.expect("added");
    first.shutdown();
    log.acknowledges.send_replace(false);
    let second = elected(TransactionConfig::default(), &log).await;
    let mut verifying = pin!(second.verify_partitions(ID, producer, &partitions));
    let mut adding = pin!(second.add_partitions(ID, producer, &partitions, 2));
    assert!(polled(verifying.as_mut()).await.is_pending());
    assert!(polled(adding.as_mut()).await.is_pending());
    assert_eq!(second.describe(ID).error_code, ErrorCode::CoordinatorLoadInProgress.code());
    assert!(second.list(&TransactionFilter::default()).is_err());
    log.acknowledges.send_replace(true);
    assert_eq!(verifying.await, Ok(vec![Ok(())]));
    assert_eq!(adding.await, Ok(()));
    assert_eq!(second.describe(ID).transaction_state, TransactionState::Ongoing.name());
    let verified = polled(pin!(second.verify_partitions(ID, producer, &partitions))).await;
    assert_eq!(verified, Poll::Ready(Ok(vec![Ok(())])), "nothing is awaited any more");
}

/// A transaction that timed out long ago, of a producer without another epoch.
fn late() -> Bytes {
    let state = TransactionState::Ongoing;
    let mut metadata = TransactionMetadata::new(7, 1, 0).with_partitions(&named(&[("t", 0)]), 2, 0);
    (metadata.producer_epoch, metadata.state) = (i16::MAX - 1, state);
    let (key, value) = (encode_key("late").expect("short"), encode_value(&metadata, 2).expect("short"));
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(0, Some(&key), Some(&value), &[]).expect("a small batch");
    builder.build()
}

#[tokio::test]
async fn deadlines_come_while_the_controller_has_no_producer_id() {
    let log = MemoryLog::new();
    log.batches.lock().push(late());
    *log.next_offset.lock() = 1;
    let config = TransactionConfig {
        write_timeout_ms: 50,
        abort_timed_out_interval_ms: 10,
        ..TransactionConfig::default()
    };
    let coordinator = elected(config, &log).await;
    let producer = initialised(&coordinator, ID).await;
    let (asked, is_asked) = tokio::sync::oneshot::channel();
    let asked = parking_lot::Mutex::new(Some(asked));
    let run = coordinator.run(|| {
        let told = asked.lock().take().map(|asked| asked.send(()));
        assert_eq!(told, Some(Ok(())), "it asks once, and waits");
        std::future::pending::<Result<i64, NoProducerIds>>()
    });
    let waiting = async {
        is_asked.await.expect("the late transaction needs an id");
        log.acknowledges.send_replace(false);
        coordinator.add_partitions(ID, producer, &named(&[("t", 0)]), 2).await
    };
    tokio::select! {
        biased;
        () = run => unreachable!("it runs until it is dropped"),
        added = waiting => {
            assert_eq!(added.map_err(|error| error.code()), Err(ErrorCode::CoordinatorNotAvailable));
        }
    }
}

/// The rest of the log could be served, but without a lost decision it would abort transactions committed in
/// other partitions.
#[tokio::test]
async fn damaged_batch_that_no_replica_can_mend_is_not_left_out() {
    let log = MemoryLog::new();
    let first = elected(TransactionConfig::default(), &log).await;
    initialised(&first, ID).await;
    first.shutdown();
    let mut damaged = log.batches.lock()[0].to_vec();
    *damaged.last_mut().expect("it is no empty batch") ^= 4;
    log.batches.lock()[0] = Bytes::from(damaged);
    log.is_only_replica.store(true, Ordering::Relaxed);
    log.replays.store(0, Ordering::Relaxed);
    let (cluster, clock, disk) = (Arc::new(OnePartition), Clock::system(), Disk::real());
    let second = TransactionCoordinator::new(TransactionConfig::default(), log.clone(), cluster, clock, disk);
    second.on_elected(PartitionIndex(0), 2);
    while log.replays.load(Ordering::Relaxed) < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!second.is_loaded(PartitionIndex(0)));
}
