//! Messages from a producer to a consumer: batches, codecs, keys, properties, sizes, partitions.

use std::time::Duration;

use thalweg_pulsar::{Compression, Consumer, MessageId, OutgoingMessage, Producer, ProducerOptions};

use crate::broker::{broker, earliest, next, numbered, produce, producer_of_tens, unique};

const COUNT: usize = 250;

#[tokio::test]
async fn messages_arrive_as_sent_whatever_their_batches_and_codec() {
    let Some(broker) = broker("batches and codecs") else { return };
    let client = broker.client().await;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for batch_messages_max in [1, 2, 100] {
            let topic = unique("codecs");
            let mut consumer =
                Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
            let options = ProducerOptions { batch_messages_max, compression, ..ProducerOptions::default() };
            let producer = Producer::open(&client, &topic, options).await.expect("a producer");
            let ids = produce(&producer, 0..COUNT).await;
            assert!(ids.is_sorted());
            for (number, id) in ids.iter().enumerate() {
                let message = next(&mut consumer).await;
                let what = format!("{compression:?}, batches of {batch_messages_max}, {id}");
                assert_eq!(message.payload(), &numbered(number), "{what}");
                assert_eq!((message.id(), message.sequence_id()), (*id, number as u64), "{what}");
                assert_eq!(message.producer_name(), &*producer.name());
                assert!(message.publish_time_ms() > 1_700_000_000_000);
                consumer.ack(&message);
            }
            producer.close().await.expect("closed");
            consumer.close().await.expect("closed");
        }
    }
}

#[tokio::test]
async fn keys_properties_and_event_times_travel() {
    let Some(broker) = broker("keys and properties") else { return };
    let client = broker.client().await;
    let topic = unique("properties");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    for count in [1, 3] {
        let options = ProducerOptions {
            batch_messages_max: count,
            batch_delay: Duration::from_secs(10),
            ..ProducerOptions::default()
        };
        let producer = Producer::open(&client, &topic, options).await.expect("a producer");
        for index in 0..count {
            let key = format!("key {index}");
            let message = OutgoingMessage {
                payload: b"x",
                key: Some(&key),
                event_time_ms: Some(5),
                properties: &[("a", "b"), ("a", "c")],
                ..OutgoingMessage::default()
            };
            let _receipt = producer.send(message).await.expect("room");
        }
        for index in 0..count {
            let message = next(&mut consumer).await;
            assert_eq!(message.key(), Some(&*format!("key {index}")));
            assert_eq!(message.event_time_ms(), Some(5));
            assert_eq!(message.properties().collect::<Vec<_>>(), [("a", "b"), ("a", "c")]);
        }
    }
}

#[tokio::test]
async fn the_largest_message_passes() {
    let Some(broker) = broker("large messages") else { return };
    let client = broker.client().await;
    let limit = client.message_bytes_max().await.expect("a limit");
    assert_eq!(limit, 5 << 20);
    let topic = unique("large");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    let producer = Producer::open(&client, &topic, ProducerOptions::default()).await.expect("a producer");
    let payload: Vec<u8> = (0..limit).map(|at| (at % 251) as u8).collect();
    producer.send(&payload[..]).await.expect("room").await.expect("stored");
    assert_eq!(next(&mut consumer).await.payload(), &payload);
    producer.send(&vec![0; limit + 1][..]).await.map(drop).expect_err("beyond the limit");
}

#[tokio::test]
async fn an_empty_message_is_a_message() {
    let Some(broker) = broker("empty messages") else { return };
    let client = broker.client().await;
    let topic = unique("empty");
    let mut consumer = Consumer::subscribe(&client, &topic, "s", earliest()).await.expect("a consumer");
    let producer = producer_of_tens(&client, &topic).await;
    for _ in 0..11 {
        let _receipt = producer.send(b"").await.expect("room");
    }
    for _ in 0..11 {
        assert!(next(&mut consumer).await.payload().is_empty());
    }
}

#[tokio::test]
async fn partitions_are_topics_whose_ids_name_them() {
    let Some(broker) = broker("partitions") else { return };
    let client = broker.client().await;
    let topic = unique("partitioned");
    assert_eq!(client.partition_count(&topic).await.expect("an answer"), 0);
    broker.admin("PUT", &format!("persistent/public/default/{topic}/partitions"), "3").await;
    let partitions = client.partitions(&topic).await.expect("partitions");
    assert_eq!(partitions.len(), 3);
    for (index, partition) in partitions.iter().enumerate() {
        let name = partition.as_str();
        let mut consumer = Consumer::subscribe(&client, name, "s", earliest()).await.expect("a consumer");
        let producer = producer_of_tens(&client, name).await;
        let ids: Vec<MessageId> = produce(&producer, 0..15).await;
        for id in ids {
            assert_eq!(id.partition, i32::try_from(index).expect("small"));
            assert_eq!(next(&mut consumer).await.id(), id);
        }
    }
}
