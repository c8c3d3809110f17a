//! Types of subscriptions, acknowledgements and redelivery.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_pulsar::{
    Consumer, ConsumerOptions, OutgoingMessage, Producer, ProducerOptions, ServerError, SubscriptionType,
};

use crate::broker::{broker, earliest, is_quiet, next, numbered, produce, producer_of_tens, unique};

fn of_type(subscription_type: SubscriptionType) -> ConsumerOptions {
    ConsumerOptions { subscription_type, ..earliest() }
}

#[tokio::test]
async fn an_exclusive_subscription_has_one_consumer() {
    let Some(broker) = broker("exclusive subscriptions") else { return };
    let client = broker.client().await;
    let topic = unique("exclusive");
    let first = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    let error = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect_err("a second one");
    assert_eq!(error.server_error(), Some(ServerError::ConsumerBusy), "{error}");
    first.close().await.expect("closed");
    Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("the place is free");
}

#[tokio::test]
async fn a_failover_subscription_goes_to_the_next_consumer() {
    let Some(broker) = broker("failover subscriptions") else { return };
    let client = broker.client().await;
    let name = unique("failover");
    broker.admin("PUT", &format!("persistent/public/default/{name}/partitions"), "1").await;
    // Of a partition, the broker chooses the consumer by number and name; of another topic, by a hash.
    let topic = format!("{name}-partition-0");
    let subscribe = |name: &'static str| {
        let (client, topic) = (client.clone(), topic.clone());
        async move {
            let options =
                ConsumerOptions { name: Some(name.to_owned()), ..of_type(SubscriptionType::Failover) };
            Consumer::subscribe(&client, &topic, "s", options).await.expect("a consumer")
        }
    };
    let mut first = subscribe("a").await;
    let mut second = subscribe("b").await;
    let producer = producer_of_tens(&client, &topic).await;
    produce(&producer, 0..10).await;
    for number in 0..10 {
        let message = next(&mut first).await;
        assert_eq!(message.payload(), &numbered(number));
        if number < 7 {
            first.ack(&message);
        }
    }
    assert!(first.is_active() && !second.is_active());
    first.close().await.expect("closed");
    // The batch is not acknowledged as a whole.
    for number in 0..10 {
        assert_eq!(next(&mut second).await.payload(), &numbered(number));
    }
    assert!(second.is_active());
}

#[tokio::test]
async fn a_shared_subscription_gives_each_message_to_one_consumer() {
    let Some(broker) = broker("shared subscriptions") else { return };
    let client = broker.client().await;
    let topic = unique("shared");
    let mut consumers = Vec::new();
    for _ in 0..2 {
        let options = ConsumerOptions { receiver_queue_size: 10, ..of_type(SubscriptionType::Shared) };
        consumers.push(Consumer::subscribe(&client, &topic, "s", options).await.expect("a consumer"));
    }
    let producer = Producer::open(
        &client,
        &topic,
        ProducerOptions { batch_messages_max: 1, ..ProducerOptions::default() },
    )
    .await
    .expect("a producer");
    produce(&producer, 0..100).await;
    let mut counts = [0, 0];
    let mut numbers = Vec::new();
    while numbers.len() < 100 {
        for (consumer, count) in consumers.iter_mut().zip(&mut counts) {
            while let Some(message) = consumer.try_next().expect("no failure") {
                consumer.ack(&message);
                numbers.push(message.payload().to_vec());
                *count += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 100);
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
}

#[tokio::test]
async fn a_key_shared_subscription_keeps_keys_together() {
    let Some(broker) = broker("key-shared subscriptions") else { return };
    let client = broker.client().await;
    let topic = unique("key-shared");
    let mut consumers = Vec::new();
    for _ in 0..2 {
        let options = of_type(SubscriptionType::KeyShared);
        consumers.push(Consumer::subscribe(&client, &topic, "s", options).await.expect("a consumer"));
    }
    let options = ProducerOptions { is_batch_per_key: true, ..ProducerOptions::default() };
    let producer = Producer::open(&client, &topic, options).await.expect("a producer");
    for number in 0..400usize {
        let key = format!("key {}", number / 2 % 20);
        let payload = numbered(number);
        let message = OutgoingMessage { payload: &payload, key: Some(&key), ..OutgoingMessage::default() };
        let _receipt = producer.send(message).await.expect("room");
    }
    producer.flush().await;
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    let mut received = 0;
    while received < 400 {
        for (index, consumer) in consumers.iter_mut().enumerate() {
            while let Some(message) = consumer.try_next().expect("no failure") {
                consumer.ack(&message);
                let key = message.key().expect("a key").to_owned();
                assert_eq!(*owners.entry(key).or_insert(index), index);
                received += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let of_first = owners.values().filter(|owner| **owner == 0).count();
    assert_eq!(owners.len(), 20);
    assert!((1..20).contains(&of_first), "{owners:?}");
}

#[tokio::test]
async fn acknowledged_messages_are_not_delivered_again() {
    let Some(broker) = broker("acknowledgements") else { return };
    let client = broker.client().await;
    let topic = unique("acks");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    let producer = producer_of_tens(&client, &topic).await;
    produce(&producer, 0..40).await;
    let mut messages = Vec::new();
    for _ in 0..40 {
        messages.push(next(&mut consumer).await);
    }
    // The second batch, and all but one of the third.
    for message in &messages[10..29] {
        consumer.ack(message);
    }
    consumer.close().await.expect("closed");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    for number in (0..10).chain(20..40) {
        assert_eq!(next(&mut consumer).await.payload(), &numbered(number));
    }
    // Half of the third batch: the first two are acknowledged.
    consumer.ack_cumulative(&messages[25]).expect("an exclusive subscription");
    consumer.flush_acks().await.expect("taken");
    drop(consumer);
    let mut consumer = next_consumer(&client, &topic).await;
    for number in 20..40 {
        assert_eq!(next(&mut consumer).await.payload(), &numbered(number));
    }
    consumer.ack_cumulative(&messages[39]).expect("an exclusive subscription");
    consumer.close().await.expect("closed");
    let mut consumer = next_consumer(&client, &topic).await;
    assert!(is_quiet(&mut consumer).await);
    consumer.unsubscribe().await.expect("removed");
    let mut consumer = next_consumer(&client, &topic).await;
    assert!(is_quiet(&mut consumer).await, "the broker may remove acknowledged messages");
}

/// A consumer after another one that was just dropped, which the broker may not have noticed.
async fn next_consumer(client: &thalweg_pulsar::Client, topic: &str) -> Consumer {
    for _ in 0..50 {
        match Consumer::subscribe(client, topic, "s", ConsumerOptions::default()).await {
            Ok(consumer) => return consumer,
            Err(error) if error.server_error() == Some(ServerError::ConsumerBusy) => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the place is still taken");
}

#[tokio::test]
async fn unacknowledged_messages_are_redelivered_on_request() {
    let Some(broker) = broker("redelivery") else { return };
    let client = broker.client().await;
    for subscription_type in [SubscriptionType::Exclusive, SubscriptionType::Shared] {
        let topic = unique("redelivery");
        let options = of_type(subscription_type);
        let mut consumer = Consumer::subscribe(&client, &topic, "s", options).await.expect("a consumer");
        let producer = producer_of_tens(&client, &topic).await;
        produce(&producer, 0..50).await;
        for number in 0..25 {
            let message = next(&mut consumer).await;
            assert_eq!(message.payload(), &numbered(number));
            if number < 10 {
                consumer.ack(&message);
            }
        }
        for _ in 0..3 {
            consumer.redeliver_unacknowledged();
            let mut payloads = Vec::new();
            for _ in 10..50 {
                payloads.push(next(&mut consumer).await.payload().to_vec());
            }
            if subscription_type == SubscriptionType::Shared {
                payloads.sort_unstable();
            }
            let expected: Vec<Vec<u8>> = (10..50).map(numbered).collect();
            assert_eq!(payloads, expected, "{subscription_type:?}");
            assert!(is_quiet(&mut consumer).await);
        }
        // Permits are right: many more messages than the queue has arrive.
        produce(&producer, 50..2550).await;
        for number in 50..2550 {
            assert_eq!(next(&mut consumer).await.payload(), &numbered(number));
        }
    }
}
