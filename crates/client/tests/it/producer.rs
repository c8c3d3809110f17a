//! The producer: order, retries, idempotence, bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;
use thalweg_client::{
    Acks, AppendOutcome, Delivery, DeliveryError, Producer, ProducerConfig, ProducerRecord, SendError,
    TopicRef, key_partition,
};
use thalweg_record::{Compression, Header};
use thalweg_wire::{ApiKey, ErrorCode};
use tokio::time::Instant;

use crate::fake::{Act, Fake, StoredRecord, TOPIC};
use crate::random::{record, seeded};

/// The outcomes that deliveries report.
#[derive(Debug, Default)]
struct Reports {
    stored: u64,
    failed: Vec<(i32, u32, String)>,
    timed_out: u64,
    /// The most records of a batch.
    records_max: u32,
}

async fn producer(fake: &Fake, config: ProducerConfig) -> (Producer, TopicRef, Arc<Mutex<Reports>>) {
    let reports = Arc::new(Mutex::new(Reports::default()));
    let to = Arc::clone(&reports);
    let report = move |delivery: &Delivery<'_>| {
        let mut reports = to.lock().unwrap_or_else(PoisonError::into_inner);
        let sent: u32 = delivery.sent.iter().map(|run| run.records).sum();
        assert_eq!(sent, delivery.records, "every record has its time");
        reports.records_max = reports.records_max.max(delivery.records);
        match delivery.result {
            Ok(_) => reports.stored += u64::from(delivery.records),
            Err(error) => {
                reports.timed_out += u64::from(matches!(error, DeliveryError::TimedOut(_)));
                reports.failed.push((delivery.partition, delivery.records, error.to_string()));
            }
        }
    };
    let mut producer = Producer::new(fake.cluster().await, config, report);
    let topic = producer.topic(TOPIC).await.expect("the topic is there");
    (producer, topic, reports)
}

async fn send(
    producer: &mut Producer,
    topic: TopicRef,
    partition: Option<i32>,
    record: &StoredRecord,
) -> AppendOutcome {
    let headers: Vec<Header<'_>> =
        record.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
    let record = ProducerRecord {
        topic,
        partition,
        timestamp: record.timestamp,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
        sent_at: Instant::now(),
        number: 0,
    };
    producer.send(&record).await.expect("taken")
}

fn number(stored: &StoredRecord) -> u64 {
    let value = stored.value.as_deref().expect("a value");
    u64::from_be_bytes(*value.first_chunk().expect("it begins with its number"))
}

fn plain(number: u64) -> StoredRecord {
    let value = Some(number.to_be_bytes().to_vec());
    StoredRecord { key: None, value, headers: Vec::new(), timestamp: 5 }
}

/// Every record is in one partition, in the order of sending, and as it was sent.
fn assert_in_order(fake: &Fake, sent: &[StoredRecord]) {
    let state = fake.state();
    let mut seen = BTreeMap::new();
    for (partition, log) in state.logs.iter().enumerate() {
        let numbers: Vec<u64> = log.records.iter().map(number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "partition {partition}: {numbers:?}");
        for stored in &log.records {
            assert_eq!(seen.insert(number(stored), stored.clone()), None, "a record is there once");
        }
    }
    assert_eq!(seen.len(), sent.len());
    assert!(seen.values().eq(sent));
}

/// Sends plain records, and closes the producer: all are stored, in order.
async fn assert_all_stored(fake: &Fake, mut producer: Producer, topic: TopicRef, count: u64) {
    let sent: Vec<StoredRecord> = (0..count).map(plain).collect();
    for record in &sent {
        send(&mut producer, topic, None, record).await;
    }
    producer.close().await;
    assert_in_order(fake, &sent);
}

fn random_config(random: &mut impl Rng) -> ProducerConfig {
    let codecs =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    ProducerConfig {
        batch_bytes: random.random_range(0..3000),
        linger: Duration::from_millis(random.random_range(0..3)),
        buffer_bytes: random.random_range(4000..100_000),
        in_flight_max: random.random_range(1..=5),
        request_bytes_max: random.random_range(2000..20_000),
        compression: codecs[random.random_range(0..codecs.len())],
        ..ProducerConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_is_stored_in_order_whatever_the_settings() {
    for seed in 0..60 {
        let mut random = seeded(seed);
        let partitions = random.random_range(1..6);
        let fake = Fake::new(partitions, |_| Act::Store);
        let mut config = random_config(&mut random);
        config.acks = [Acks::Leader, Acks::All][random.random_range(0..2)];
        config.idempotence = config.acks == Acks::All && random.random();
        let (mut producer, topic, reports) = producer(&fake, config).await;
        let sent: Vec<StoredRecord> = (0..300).map(|number| record(&mut random, number, 400)).collect();
        for record in &sent {
            let chosen = random
                .random_bool(0.2)
                .then(|| i32::try_from(random.random_range(0..partitions)).expect("few partitions"));
            send(&mut producer, topic, chosen, record).await;
        }
        producer.close().await;
        println!("seed {seed}");
        assert_in_order(&fake, &sent);
        let reports = reports.lock().expect("no panic");
        assert_eq!((reports.stored, reports.failed.len()), (300, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn idempotent_retries_neither_lose_nor_duplicate_nor_reorder() {
    for seed in 0..60 {
        let mut random = seeded(1000 + seed);
        let mut faults = seeded(2000 + seed);
        let fake = Fake::new(random.random_range(1..4), move |_| match faults.random_range(0..20) {
            0 => Act::Refuse(ErrorCode::NotLeaderOrFollower),
            1 => Act::Refuse(ErrorCode::NotEnoughReplicas),
            2 => Act::CloseBefore,
            3 => Act::CloseAfter,
            4 => Act::Delay(Duration::from_millis(20)),
            _ => Act::Store,
        });
        let (mut producer, topic, reports) = producer(&fake, random_config(&mut random)).await;
        let sent: Vec<StoredRecord> = (0..300).map(|number| record(&mut random, number, 200)).collect();
        for record in &sent {
            send(&mut producer, topic, None, record).await;
        }
        producer.close().await;
        println!("seed {seed}");
        assert_in_order(&fake, &sent);
        let reports = reports.lock().expect("no panic");
        assert_eq!((reports.stored, reports.failed.len()), (300, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_producer_id_fails_the_records_at_once() {
    let fake = Fake::new(1, |_| Act::Store);
    fake.state().refuses_producer_ids = Some(ErrorCode::ClusterAuthorizationFailed);
    let (mut producer, topic, reports) = producer(&fake, ProducerConfig::default()).await;
    send(&mut producer, topic, None, &plain(0)).await;
    producer.flush().await;
    {
        let reports = reports.lock().expect("no panic");
        assert_eq!(reports.timed_out, 0);
        assert!(reports.failed[0].2.contains("CLUSTER_AUTHORIZATION_FAILED"), "{:?}", reports.failed);
    }
    // The right was granted.
    fake.state().refuses_producer_ids = None;
    send(&mut producer, topic, None, &plain(1)).await;
    producer.close().await;
    assert_eq!(reports.lock().expect("no panic").stored, 1);
}

#[tokio::test(start_paused = true)]
async fn with_one_request_in_flight_retries_keep_the_order_without_idempotence() {
    let mut faults = seeded(3);
    let fake = Fake::new(2, move |_| match faults.random_range(0..6) {
        0 => Act::Refuse(ErrorCode::NotLeaderOrFollower),
        1 => Act::CloseBefore,
        _ => Act::Store,
    });
    let config = ProducerConfig {
        acks: Acks::Leader,
        idempotence: false,
        in_flight_max: 1,
        batch_bytes: 200,
        ..ProducerConfig::default()
    };
    let (producer, topic, _) = producer(&fake, config).await;
    assert_all_stored(&fake, producer, topic, 200).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_refused_for_good_is_reported_and_the_next_epoch_closes_the_gap() {
    let mut count = 0;
    let fake = Fake::new(1, move |_| {
        count += 1;
        if count == 3 { Act::Refuse(ErrorCode::MessageTooLarge) } else { Act::Store }
    });
    let config = ProducerConfig { batch_bytes: 1, linger: Duration::ZERO, ..ProducerConfig::default() };
    let (mut producer, topic, reports) = producer(&fake, config).await;
    for number in 0..20 {
        send(&mut producer, topic, None, &plain(number)).await;
    }
    producer.close().await;
    let reports = reports.lock().expect("no panic");
    assert_eq!(reports.stored, 19);
    let [(0, 1, error)] = reports.failed.as_slice() else { panic!("{:?}", reports.failed) };
    assert_eq!(error, "t-0: MESSAGE_TOO_LARGE");
    let state = fake.state();
    let numbers: Vec<u64> = state.logs[0].records.iter().map(number).collect();
    assert_eq!(numbers, (0..20).filter(|&number| number != 2).collect::<Vec<_>>());
    let epochs = &state.logs[0].epochs;
    assert!(epochs.is_sorted() && epochs.first() == Some(&0) && epochs.last() == Some(&1), "{epochs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_large_for_the_broker_is_split() {
    for seed in 0..40 {
        let mut random = seeded(seed);
        let idempotence = random.random();
        let fake = Fake::new(1, |_| Act::Store);
        fake.state().message_bytes_max = random.random_range(700..3000);
        let config = ProducerConfig {
            batch_bytes: 1 << 14,
            in_flight_max: if idempotence { random.random_range(1..=5) } else { 1 },
            idempotence,
            linger: Duration::from_millis(5),
            ..random_config(&mut random)
        };
        let (mut producer, topic, reports) =
            producer(&fake, ProducerConfig { buffer_bytes: 1 << 20, batch_bytes: 1 << 14, ..config }).await;
        let sent: Vec<StoredRecord> = (0..300).map(|number| record(&mut random, number, 400)).collect();
        for record in &sent {
            send(&mut producer, topic, None, record).await;
        }
        producer.flush().await;
        println!("seed {seed}");
        assert_in_order(&fake, &sent);
        let count = {
            let reports = reports.lock().expect("no panic");
            assert_eq!((reports.stored, reports.failed.len()), (300, 0));
            fake.state().too_large
        };
        assert!(count > 0, "a batch was too large");
        assert!(fake.state().logs[0].epochs.iter().all(|epoch| *epoch == 0), "no gap in the sequences");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_record_that_is_too_large_for_the_broker_fails_alone() {
    for idempotence in [true, false] {
        let fake = Fake::new(1, |_| Act::Store);
        fake.state().message_bytes_max = 2000;
        let (acks, linger) = (Acks::All, Duration::from_millis(5));
        let in_flight_max = if idempotence { 5 } else { 1 };
        let config = ProducerConfig { acks, idempotence, in_flight_max, linger, ..ProducerConfig::default() };
        let (mut producer, topic, reports) = producer(&fake, config).await;
        for number in 0..20 {
            let mut record = plain(number);
            if number == 7 {
                record.value.as_mut().expect("a value").resize(3000, 0);
            }
            send(&mut producer, topic, None, &record).await;
        }
        producer.close().await;
        let reports = reports.lock().expect("no panic");
        assert_eq!(reports.stored, 19);
        let [(0, 1, error)] = reports.failed.as_slice() else { panic!("{:?}", reports.failed) };
        assert_eq!(error, "t-0: MESSAGE_TOO_LARGE");
        let numbers: Vec<u64> = fake.state().logs[0].records.iter().map(number).collect();
        assert_eq!(numbers, (0..20).filter(|&number| number != 7).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_whose_future_was_dropped_can_be_requested_again() {
    let fake = Fake::new(2, |_| Act::Store);
    let mut producer = Producer::new(fake.cluster().await, ProducerConfig::default(), |_| {});
    for _ in 0..3 {
        tokio::select! {
            biased;
            _ = producer.topic(TOPIC) => panic!("the metadata is asked for"),
            () = std::future::ready(()) => {}
        }
    }
    let topic = producer.topic(TOPIC).await.expect("the topic is there");
    send(&mut producer, topic, None, &plain(0)).await;
    producer.close().await;
    assert_eq!(fake.state().logs.iter().map(|log| log.records.len()).sum::<usize>(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_forgot_the_producer_gets_a_new_epoch() {
    let mut count = 0;
    let fake = Fake::new(1, move |_| {
        count += 1;
        if count == 4 { Act::Refuse(ErrorCode::UnknownProducerId) } else { Act::Store }
    });
    let config = ProducerConfig { batch_bytes: 1, linger: Duration::ZERO, ..ProducerConfig::default() };
    let (producer, topic, _) = producer(&fake, config).await;
    assert_all_stored(&fake, producer, topic, 20).await;
    assert_eq!(fake.state().logs[0].epochs.last(), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn records_that_nobody_stores_in_time_are_reported() {
    let fake = Fake::new(1, |_| Act::Refuse(ErrorCode::NotLeaderOrFollower));
    let config = ProducerConfig { delivery_timeout: Duration::from_secs(3), ..ProducerConfig::default() };
    let (mut producer, topic, reports) = producer(&fake, config).await;
    let begin = Instant::now();
    for number in 0..5 {
        send(&mut producer, topic, None, &plain(number)).await;
    }
    producer.close().await;
    let took = begin.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(5)).contains(&took), "{took:?}");
    let reports = reports.lock().expect("no panic");
    assert_eq!((reports.stored, reports.timed_out), (0, 1));
    assert!(reports.failed[0].2.contains("delivery.timeout.ms=3000"), "{}", reports.failed[0].2);
}

/// A batch is given up whose answer was lost, before those behind it, whose answers were lost as well.
#[tokio::test(start_paused = true)]
async fn batches_behind_one_of_unknown_fate_are_stored_once() {
    for stored in [true, false] {
        let (mut count, begin) = (0, Instant::now());
        let fake = Fake::new(1, move |_| {
            count += 1;
            match count {
                1 => Act::Store,
                2..=4 if stored => Act::Silence,
                5 if stored => Act::CloseAfter,
                2..=4 => Act::Ignore,
                5 => Act::CloseBefore,
                _ if begin.elapsed() < Duration::from_millis(3300) => {
                    Act::Refuse(ErrorCode::NotLeaderOrFollower)
                }
                _ => Act::Store,
            }
        });
        let config = ProducerConfig {
            batch_bytes: 1,
            linger: Duration::ZERO,
            delivery_timeout: Duration::from_secs(3),
            ..ProducerConfig::default()
        };
        let (mut producer, topic, reports) = producer(&fake, config).await;
        let sent: Vec<StoredRecord> = (0..6).map(plain).collect();
        send(&mut producer, topic, None, &sent[0]).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        send(&mut producer, topic, None, &sent[1]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        for record in &sent[2..] {
            send(&mut producer, topic, None, record).await;
        }
        producer.close().await;
        let there: Vec<StoredRecord> =
            sent.iter().filter(|record| stored || number(record) != 1).cloned().collect();
        assert_in_order(&fake, &there);
        let reports = reports.lock().expect("no panic");
        assert_eq!((reports.stored, reports.timed_out), (5, 1), "{:?}", reports.failed);
        assert_eq!(fake.state().logs[0].epochs.last(), Some(&i16::from(!stored)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_makes_nothing_doubled_or_reordered() {
    let mut given_up = 0;
    for seed in 0..60 {
        let mut random = seeded(3000 + seed);
        let mut faults = seeded(4000 + seed);
        let fake = Fake::new(random.random_range(1..4), move |_| match faults.random_range(0..20) {
            0 => Act::Refuse(ErrorCode::NotEnoughReplicas),
            1 => Act::CloseBefore,
            2 => Act::CloseAfter,
            3..=4 => Act::Silence,
            5 => Act::Ignore,
            6 => Act::Delay(Duration::from_millis(20)),
            7 => Act::Refuse(ErrorCode::MessageTooLarge),
            _ => Act::Store,
        });
        let mut config = random_config(&mut random);
        config.retries = random.random_range(0..5);
        config.delivery_timeout = Duration::from_millis(random.random_range(100..1000));
        config.connection.request_timeout = Duration::from_millis(random.random_range(50..100));
        let (mut producer, topic, reports) = producer(&fake, config).await;
        for number in 0..300 {
            send(&mut producer, topic, None, &record(&mut random, number, 400)).await;
            tokio::time::sleep(Duration::from_millis(random.random_range(0..10))).await;
        }
        producer.close().await;
        println!("seed {seed}");
        let state = fake.state();
        let there: Vec<Vec<u64>> =
            state.logs.iter().map(|log| log.records.iter().map(number).collect()).collect();
        assert!(there.iter().all(|numbers| numbers.is_sorted_by(|a, b| a < b)), "{there:?}");
        let reports = reports.lock().expect("no panic");
        let failed: u32 = reports.failed.iter().map(|(_, records, _)| records).sum();
        assert_eq!(reports.stored + u64::from(failed), 300);
        assert!(there.iter().map(Vec::len).sum::<usize>() as u64 >= reports.stored);
        given_up += failed;
    }
    assert!(given_up > 100, "{given_up}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_is_left_and_the_records_are_sent_again() {
    let mut count = 0;
    let fake = Fake::new(1, move |_| {
        count += 1;
        if count == 1 { Act::Delay(Duration::from_secs(3600)) } else { Act::Store }
    });
    let (mut producer, topic, reports) = producer(&fake, ProducerConfig::default()).await;
    let sent = [plain(0)];
    send(&mut producer, topic, None, &sent[0]).await;
    producer.close().await;
    assert_in_order(&fake, &sent);
    assert_eq!(reports.lock().expect("no panic").stored, 1);
    assert!(fake.state().connections >= 3, "a request that was not answered ended its connection");
}

#[tokio::test(start_paused = true)]
async fn without_acks_nothing_is_waited_for() {
    let fake = Fake::new(2, |_| Act::Store);
    let config = ProducerConfig { acks: Acks::None, idempotence: false, ..ProducerConfig::default() };
    let (mut producer, topic, reports) = producer(&fake, config).await;
    for number in 0..1000 {
        send(&mut producer, topic, None, &plain(number)).await;
    }
    producer.close().await;
    assert_eq!(reports.lock().expect("no panic").stored, 1000);
    // Written data is not read yet.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fake.state().logs.iter().map(|log| log.records.len()).sum::<usize>(), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_makes_the_caller_wait_and_then_gives_up() {
    let fake = Fake::new(1, |_| Act::Delay(Duration::from_secs(10)));
    let config = ProducerConfig {
        batch_bytes: 1000,
        buffer_bytes: 3000,
        max_block: Duration::from_secs(2),
        ..ProducerConfig::default()
    };
    let (mut producer, topic, _) = producer(&fake, config).await;
    let value = [b'x'; 900];
    let record = ProducerRecord {
        topic,
        partition: Some(0),
        timestamp: 0,
        key: None,
        value: Some(&value),
        headers: &[],
        sent_at: Instant::now(),
        number: 0,
    };
    for taken in [AppendOutcome::Joined, AppendOutcome::Filled, AppendOutcome::Filled] {
        assert_eq!(producer.try_send(&record).expect("taken"), taken);
    }
    assert_eq!(producer.try_send(&record).expect("no error"), AppendOutcome::Full);
    let error = producer.send(&record).await.expect_err("no room comes free");
    assert!(matches!(error, SendError::BufferFull(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_sent_is_refused_at_once() {
    let fake = Fake::new(2, |_| Act::Store);
    let config = ProducerConfig { request_bytes_max: 1000, ..ProducerConfig::default() };
    let (mut producer, topic, _) = producer(&fake, config).await;
    let value = [0; 1001];
    let record = ProducerRecord {
        topic,
        partition: None,
        timestamp: 0,
        key: None,
        value: Some(&value),
        headers: &[],
        sent_at: Instant::now(),
        number: 0,
    };
    assert!(matches!(producer.try_send(&record), Err(SendError::TooLarge(_))));
    let elsewhere = ProducerRecord { partition: Some(2), value: None, ..record };
    let error = producer.try_send(&elsewhere).expect_err("there is no such partition");
    assert_eq!(error.to_string(), "Topic t has no partition 2: expected 0 to 1");
}

#[tokio::test(start_paused = true)]
async fn requests_keep_to_their_bounds() {
    let fake = Fake::new(6, |_| Act::Delay(Duration::from_millis(5)));
    let config = ProducerConfig {
        batch_bytes: 1000,
        request_bytes_max: 2500,
        in_flight_max: 3,
        ..ProducerConfig::default()
    };
    let (producer, topic, _) = producer(&fake, config).await;
    assert_all_stored(&fake, producer, topic, 2000).await;
    let state = fake.state();
    assert!(state.request_bytes_max <= 2500 + 200, "{} bytes", state.request_bytes_max);
    assert!((2..=3).contains(&state.unanswered_max), "{} at a time", state.unanswered_max);
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_at_most_as_many_records_as_set() {
    let fake = Fake::new(2, |_| Act::Store);
    let config = ProducerConfig { batch_records_max: 7, ..ProducerConfig::default() };
    let (producer, topic, reports) = producer(&fake, config).await;
    assert_all_stored(&fake, producer, topic, 100).await;
    let reports = reports.lock().expect("no panic");
    assert_eq!((reports.stored, reports.records_max), (100, 7));
}

#[tokio::test(start_paused = true)]
async fn records_without_keys_spread_evenly_and_keys_have_their_partition() {
    let fake = Fake::new(4, |_| Act::Store);
    let config = ProducerConfig { batch_bytes: 500, ..ProducerConfig::default() };
    let (mut producer, topic, _) = producer(&fake, config).await;
    for number in 0..4000 {
        send(&mut producer, topic, None, &plain(number)).await;
    }
    producer.flush().await;
    for log in &fake.state().logs {
        assert!((800..1200).contains(&log.records.len()), "{} records", log.records.len());
    }
    for key in ["a", "foobar", "21"] {
        let record = StoredRecord { key: Some(key.as_bytes().to_vec()), ..plain(9999) };
        send(&mut producer, topic, None, &record).await;
        producer.flush().await;
        let state = fake.state();
        let log = &state.logs[key_partition(key.as_bytes(), 4)];
        assert_eq!(log.records.last().and_then(|last| last.key.as_deref()), Some(key.as_bytes()));
    }
}

#[tokio::test(start_paused = true)]
async fn brokers_that_name_topics_by_name_are_served_too() {
    let fake = Fake::new(3, |_| Act::Store);
    fake.state().max_versions = BTreeMap::from([(ApiKey::Produce as i16, 8), (ApiKey::Metadata as i16, 8)]);
    let (producer, topic, _) = producer(&fake, ProducerConfig::default()).await;
    assert_all_stored(&fake, producer, topic, 50).await;
}

#[tokio::test(start_paused = true)]
async fn linger_gathers_records_and_full_batches_do_not_wait() {
    let fake = Fake::new(1, |_| Act::Store);
    let config = ProducerConfig { linger: Duration::from_millis(50), ..ProducerConfig::default() };
    let (mut producer, topic, reports) = producer(&fake, config).await;
    // The producer id is first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for number in 0..10 {
        send(&mut producer, topic, None, &plain(number)).await;
    }
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(fake.state().produce_requests, 0, "the batch waits for more");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(fake.state().produce_requests, 1);
    assert_eq!(reports.lock().expect("no panic").stored, 10);
}
