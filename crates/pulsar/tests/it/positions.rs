//! Initial positions, seeks and ends of topics.

use thalweg_pulsar::{ConsumeError, Consumer, ConsumerOptions, MessageId, Producer, ProducerOptions};

use crate::broker::{broker, earliest, is_quiet, next, numbered, produce, producer_of_tens, unique};

#[tokio::test]
async fn a_new_subscription_starts_at_its_initial_position() {
    let Some(broker) = broker("initial positions") else { return };
    let client = broker.client().await;
    let topic = unique("initial");
    let producer = producer_of_tens(&client, &topic).await;
    produce(&producer, 0..20).await;
    let latest = ConsumerOptions::default();
    let mut at_end = Consumer::subscribe(&client, &topic, "late", latest).await.expect("a consumer");
    let mut at_start = Consumer::subscribe(&client, &topic, "early", earliest()).await.expect("a consumer");
    produce(&producer, 20..30).await;
    for number in 0..30 {
        assert_eq!(next(&mut at_start).await.payload(), &numbered(number));
    }
    for number in 20..30 {
        assert_eq!(next(&mut at_end).await.payload(), &numbered(number));
    }
}

#[tokio::test]
async fn a_seek_makes_a_message_the_next_one() {
    let Some(broker) = broker("seeks") else { return };
    let client = broker.client().await;
    let topic = unique("seek");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    let producer = producer_of_tens(&client, &topic).await;
    let ids = produce(&producer, 0..100).await;
    for number in 0..50 {
        let message = next(&mut consumer).await;
        assert_eq!(message.payload(), &numbered(number));
        consumer.ack(&message);
    }
    // Back and forth, to the head of batches and into them.
    for first in [20, 99, 35, 0, 61] {
        consumer.seek(ids[first]).await.expect("moved");
        for (number, id) in ids.iter().enumerate().skip(first) {
            let message = next(&mut consumer).await;
            assert_eq!((message.payload(), message.id()), (&numbered(number).into(), *id));
        }
        assert!(is_quiet(&mut consumer).await, "after {first}");
    }
    consumer.seek(MessageId::EARLIEST).await.expect("moved");
    for number in 0..100 {
        assert_eq!(next(&mut consumer).await.payload(), &numbered(number));
    }
    consumer.seek(MessageId::EARLIEST).await.expect("moved");
    consumer.seek(MessageId::LATEST).await.expect("moved");
    assert!(is_quiet(&mut consumer).await);
    produce(&producer, 100..110).await;
    assert_eq!(next(&mut consumer).await.payload(), &numbered(100));
}

#[tokio::test]
async fn the_last_message_of_a_topic_is_known() {
    let Some(broker) = broker("last messages") else { return };
    let client = broker.client().await;
    let topic = unique("last");
    let consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    assert_eq!(consumer.last_message_id().await.expect("an id").entry, -1);
    let producer = producer_of_tens(&client, &topic).await;
    let ids = produce(&producer, 0..25).await;
    let last = consumer.last_message_id().await.expect("an id");
    let expected = ids[24];
    assert_eq!((last.ledger, last.entry, last.batch_index), (expected.ledger, expected.entry, 4));
}

#[tokio::test]
async fn a_terminated_topic_has_an_end() {
    let Some(broker) = broker("terminated topics") else { return };
    let client = broker.client().await;
    let topic = unique("terminated");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    let producer = producer_of_tens(&client, &topic).await;
    produce(&producer, 0..10).await;
    broker.admin("POST", &format!("persistent/public/default/{topic}/terminate"), "").await;
    for number in 0..10 {
        let message = next(&mut consumer).await;
        assert_eq!(message.payload(), &numbered(number));
        consumer.ack(&message);
    }
    assert!(matches!(consumer.next().await, Err(ConsumeError::EndOfTopic)));
    let error = match producer.send(b"late").await {
        Ok(receipt) => receipt.await.expect_err("the topic is terminated"),
        Err(error) => error,
    };
    assert!(error.to_string().contains("TopicTerminatedError"), "{error}");
    let error = Producer::open(&client, &topic, ProducerOptions::default()).await.expect_err("terminated");
    assert!(error.to_string().contains("TopicTerminatedError"), "{error}");
}
