//! A cluster that is killed and returns: consumers and transactional producers continue without a restart.

use std::ops::ControlFlow;
use std::time::Duration;

use thalweg_client::{
    Consumer, ConsumerConfig, PollEvent, Producer, ProducerConfig, ProducerRecord, TopicRef,
};
use thalweg_record::DecompressBuffer;
use tokio::time::Instant;

use crate::kafka::{create, kafka, of_group};

const POLL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(120);

async fn write(producer: &mut Producer, topic: TopicRef, value: &str) {
    let record = ProducerRecord {
        topic,
        partition: None,
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(value.as_bytes()),
        headers: &[],
        sent_at: Instant::now(),
        number: 0,
    };
    producer.send(&record).await.expect("taken");
}

/// Polls until it has read this value; gives all values up to it.
async fn read_until(consumer: &mut Consumer, value: &str) -> Vec<String> {
    let (mut values, mut buffer) = (Vec::new(), DecompressBuffer::default());
    let deadline = Instant::now() + PATIENCE;
    while values.last().is_none_or(|last| last != value) {
        assert!(Instant::now() < deadline, "{values:?} came, and not {value}");
        match consumer.poll(POLL).await.expect("a poll") {
            PollEvent::Chunk(chunk) => {
                let each = |record: &thalweg_record::Record<'_>| {
                    let value = record.value.expect("a value").to_vec();
                    values.push(String::from_utf8(value).expect("text"));
                    ControlFlow::Continue(())
                };
                chunk.for_each(&mut buffer, each).expect("readable");
            }
            PollEvent::Lost(partitions) => panic!("{partitions:?} are lost"),
            PollEvent::Assigned(_) | PollEvent::Revoked(_) | PollEvent::Nothing => {}
        }
    }
    values
}

#[tokio::test]
async fn clients_outlive_a_restart_of_their_cluster() {
    let Some(mut kafka) = kafka().await else { return };
    if kafka.child.is_none() {
        return;
    }
    let name = create(&kafka, "restarted", 1).await;
    let config = ProducerConfig {
        transactional_id: Some("restarted".to_owned()),
        max_block: PATIENCE,
        ..ProducerConfig::default()
    };
    let mut producer = Producer::connect(&kafka.bootstrap, config, |_| {}).await.expect("connected");
    let topic = producer.topic(&name).await.expect("the topic");
    producer.init_transactions().await.expect("initialised");
    let config = ConsumerConfig {
        read_committed: true,
        auto_commit: None,
        session_timeout: Duration::from_secs(60),
        ..of_group("restarted")
    };
    let mut consumer = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
    consumer.subscribe(vec![name]).expect("there is a group");
    producer.begin_transaction().expect("it is ready");
    write(&mut producer, topic, "before").await;
    producer.commit_transaction().await.expect("committed");
    assert_eq!(read_until(&mut consumer, "before").await, ["before"]);
    consumer.commit().await.expect("committed");

    producer.begin_transaction().expect("it is ready");
    write(&mut producer, topic, "across").await;
    producer.flush().await;
    assert!(kafka.kill());
    for _ in 0..20 {
        // The marker behind the first record may arrive.
        let polled = consumer.poll(POLL).await.expect("it is tried again");
        assert!(matches!(polled, PollEvent::Nothing | PollEvent::Chunk(_)), "{polled:?}");
    }
    kafka.start_again();
    // The coordinator has the transaction in its log.
    producer.commit_transaction().await.expect("committed");
    producer.begin_transaction().expect("it is ready");
    write(&mut producer, topic, "after").await;
    producer.commit_transaction().await.expect("committed");
    assert_eq!(read_until(&mut consumer, "after").await, ["across", "after"]);
    consumer.commit().await.expect("the member is known still");
    consumer.close().await.expect("left");
}
