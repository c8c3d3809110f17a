//! Connections that are cut, and topics that the broker unloads, while messages are in flight.

use std::time::Duration;

use thalweg_pulsar::{Client, ClientOptions, Consumer, Producer, ProducerOptions, SendReceipt};

use crate::broker::{broker, earliest, next, unique};
use crate::cut::Scissors;

const COUNT: usize = 20_000;

/// Sends numbers, and disturbs the producer several times meanwhile. All messages are acknowledged.
async fn produce_disturbed(producer: Producer, disturb: impl AsyncFn()) -> Producer {
    let mut receipts = Vec::new();
    for number in 0..COUNT {
        if number % 4000 == 2000 {
            // The producer is connected again, with messages in flight.
            while receipts.get(number - 1000).is_some_and(|receipt: &SendReceipt| receipt.peek().is_none()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            disturb().await;
        }
        receipts
            .push(producer.send(&u64::try_from(number).expect("small").to_be_bytes()).await.expect("room"));
        if number % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for receipt in receipts {
        receipt.await.expect("stored");
    }
    producer
}

/// Reads until all numbers have arrived. Returns the numbers in the order of their arrival.
async fn consume_all(consumer: &mut Consumer) -> Vec<u64> {
    let mut seen = vec![false; COUNT];
    let mut order = Vec::new();
    let mut missing = COUNT;
    while missing > 0 {
        let message = next(consumer).await;
        let number = u64::from_be_bytes(message.payload()[..].try_into().expect("a number"));
        let place = &mut seen[usize::try_from(number).expect("small")];
        missing -= usize::from(!*place);
        *place = true;
        order.push(number);
        consumer.ack(&message);
    }
    order
}

fn small_batches() -> ProducerOptions {
    ProducerOptions { batch_messages_max: 50, ..ProducerOptions::default() }
}

#[tokio::test]
async fn nothing_is_lost_when_connections_are_cut() {
    let Some(broker) = broker("cut connections") else { return };
    let scissors = Scissors::default();
    let client = Client::connect_by(scissors.connector(), &broker.service_url, ClientOptions::default())
        .await
        .expect("a broker");
    let topic = unique("cut");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    let producer = Producer::open(&client, &topic, small_batches()).await.expect("a producer");
    let producing = produce_disturbed(producer, async || scissors.cut());
    let (producer, _) = tokio::join!(producing, consume_all(&mut consumer));
    assert!(producer.reconnects() >= 4, "{}", producer.reconnects());
    assert!(consumer.reconnects() >= 4, "{}", consumer.reconnects());
}

#[tokio::test]
async fn nothing_is_lost_when_a_topic_is_unloaded() {
    let Some(broker) = broker("unloaded topics") else { return };
    let client = broker.client().await;
    let topic = unique("unloaded");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    let producer = Producer::open(&client, &topic, small_batches()).await.expect("a producer");
    let path = format!("persistent/public/default/{topic}/unload");
    let producing = produce_disturbed(producer, async || {
        broker.admin("PUT", &path, "").await;
    });
    let (producer, _) = tokio::join!(producing, consume_all(&mut consumer));
    assert!(producer.reconnects() >= 4, "{}", producer.reconnects());
}

#[tokio::test]
async fn a_deduplicating_broker_stores_each_message_once() {
    let Some(broker) = broker("deduplication") else { return };
    let namespace = unique("dedup");
    broker.admin("PUT", &format!("namespaces/public/{namespace}"), "{}").await;
    broker.admin("POST", &format!("namespaces/public/{namespace}/deduplication"), "true").await;
    let scissors = Scissors::default();
    let client = Client::connect_by(scissors.connector(), &broker.service_url, ClientOptions::default())
        .await
        .expect("a broker");
    let topic = format!("public/{namespace}/t");
    let options = ProducerOptions { name: Some("mine".to_owned()), ..small_batches() };
    let producer = Producer::open(&client, &topic, options.clone()).await.expect("a producer");
    let producer = produce_disturbed(producer, async || scissors.cut()).await;
    assert_eq!(producer.last_sequence_id(), Some(COUNT as u64 - 1));
    producer.close().await.expect("closed");
    // Over a connection that is not cut, so that nothing is delivered again.
    let reading = broker.client().await;
    let mut consumer = Consumer::subscribe(&reading, &topic, "s", earliest()).await.expect("a consumer");
    let order = consume_all(&mut consumer).await;
    assert_eq!(order, (0..COUNT as u64).collect::<Vec<_>>());
    // The next producer of the name goes on where this one ended.
    let producer = Producer::open(&client, &topic, options).await.expect("a producer");
    assert_eq!(producer.last_sequence_id(), Some(COUNT as u64 - 1));
}
