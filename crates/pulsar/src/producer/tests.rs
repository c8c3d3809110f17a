use std::time::Duration;

use super::*;
use crate::compression::{Compression, decompress};
use crate::protocol::{Command, ErrorResponse, LookupResult, SendError as SendErrorCommand};
use crate::scripted_peer::{SERVICE_URL, ScriptedBrokers, ScriptedPeer, brokers, quick_options};
use crate::server_error::ServerError;

const LONG: Duration = Duration::from_secs(100);

/// A producer, its id and its broker.
async fn opened(options: ProducerOptions) -> (Producer, u64, ScriptedPeer, ScriptedBrokers) {
    opened_with(options, 5 << 20).await
}

async fn opened_with(
    options: ProducerOptions,
    message_bytes_max: i32,
) -> (Producer, u64, ScriptedPeer, ScriptedBrokers) {
    let (connector, mut brokers) = brokers();
    let opening = tokio::spawn(async move {
        let client = Client::connect_by(connector, SERVICE_URL, quick_options()).await?;
        Producer::open(&client, "t-partition-4", options).await
    });
    let mut peer = brokers.accept_with(message_bytes_max).await;
    let id = peer.open_producer().await;
    (opening.await.expect("no panic").expect("a producer"), id, peer, brokers)
}

/// Options of a producer whose batches have `count` messages.
fn batches_of(count: usize) -> ProducerOptions {
    ProducerOptions { batch_messages_max: count, batch_delay: LONG, ..ProducerOptions::default() }
}

#[tokio::test]
async fn messages_share_a_batch_and_have_ids() {
    let (producer, id, mut peer, _brokers) = opened(batches_of(3)).await;
    assert_eq!((&*producer.name(), producer.last_sequence_id()), ("scripted-0", None));
    let mut receipts = Vec::new();
    for payload in [b"one", b"two", b"six"] {
        receipts.push(producer.send(payload).await.expect("room"));
    }
    let (send, metadata, payload) = peer.receive_batch().await;
    assert_eq!((send.sequence_id, send.highest_sequence_id, send.num_messages), (0, Some(2), Some(3)));
    assert_eq!((metadata.sequence_id, metadata.highest_sequence_id), (0, Some(2)));
    assert_eq!((metadata.num_messages_in_batch, &*metadata.producer_name), (Some(3), "scripted-0"));
    assert_eq!(
        payload[..],
        *b"\0\0\0\x04\x18\x03\x40\0one\0\0\0\x04\x18\x03\x40\x01two\0\0\0\x04\x18\x03\x40\x02six"
    );
    peer.send_receipt(id, 0, 55).await;
    for (index, receipt) in receipts.into_iter().enumerate() {
        assert_eq!(receipt.await.expect("stored").to_string(), format!("7:55:4:{index}"));
    }
    assert_eq!(producer.last_sequence_id(), Some(2));
}

#[tokio::test]
async fn a_batch_of_one_is_that_message() {
    let (producer, id, mut peer, _brokers) = opened(batches_of(1)).await;
    let message = OutgoingMessage {
        payload: b"payload",
        key: Some("k"),
        event_time_ms: Some(5),
        publish_time_ms: Some(1_234),
        properties: &[("a", "b")],
    };
    let receipt = producer.send(message).await.expect("room");
    let (send, metadata, payload) = peer.receive_batch().await;
    assert_eq!((send.num_messages, send.highest_sequence_id), (None, None));
    assert_eq!((&payload[..], metadata.num_messages_in_batch), (&b"payload"[..], None));
    assert_eq!((metadata.partition_key.as_deref(), metadata.event_time), (Some("k"), Some(5)));
    assert_eq!((&*metadata.properties[0].key, &*metadata.properties[0].value), ("a", "b"));
    assert_eq!(metadata.publish_time, 1_234, "the application's clock");
    peer.send_receipt(id, 0, 1).await;
    assert_eq!(receipt.await.expect("stored").to_string(), "7:1:4");
}

#[tokio::test(start_paused = true)]
async fn a_batch_leaves_after_its_delay() {
    let delay = Duration::from_millis(20);
    let options = ProducerOptions { batch_delay: delay, ..ProducerOptions::default() };
    let (producer, _, mut peer, _brokers) = opened(options).await;
    for _ in 0..2 {
        let before = tokio::time::Instant::now();
        let _first = producer.send(b"1").await.expect("room");
        tokio::time::sleep(delay / 2).await;
        let _second = producer.send(b"2").await.expect("room");
        let (send, ..) = peer.receive_batch().await;
        assert_eq!(send.num_messages, Some(2));
        let waited = before.elapsed();
        assert!((delay..delay + Duration::from_millis(3)).contains(&waited), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_delay_counts_from_the_last_batch_of_a_steady_flow() {
    let delay = Duration::from_millis(20);
    let options = ProducerOptions { batch_delay: delay, ..ProducerOptions::default() };
    let (producer, _, mut peer, _brokers) = opened(options).await;
    let mut left = Vec::new();
    // A message 15 ms after the first batch waits for 5 ms more; one after a pause for the whole delay.
    for pause in [Duration::ZERO, delay * 3 / 4, delay * 2] {
        tokio::time::sleep(pause).await;
        let sent = tokio::time::Instant::now();
        let _receipt = producer.send(b"1").await.expect("room");
        peer.receive_batch().await;
        left.push(sent.elapsed().as_millis());
    }
    assert!(left[0] >= 20 && left[1] <= 7 && left[2] >= 20, "{left:?}");
}

#[tokio::test]
async fn batches_end_at_bytes_and_keys() {
    let options = ProducerOptions { batch_bytes_max: 200, is_batch_per_key: true, ..batches_of(1000) };
    let (producer, _, mut peer, _brokers) = opened(options).await;
    let mut receipts = Vec::new();
    for (key, len) in [("a", 60), ("a", 60), ("a", 60), ("b", 10), ("b", 10), ("b", 300)] {
        let message =
            OutgoingMessage { payload: &vec![0; len], key: Some(key), ..OutgoingMessage::default() };
        receipts.push(producer.send(message).await.expect("room"));
    }
    let mut batches = Vec::new();
    for _ in 0..4 {
        let (send, metadata, _) = peer.receive_batch().await;
        batches.push((send.num_messages, metadata.partition_key.unwrap_or_default()));
    }
    let expected = [(Some(2), "a"), (None, "a"), (Some(2), "b"), (None, "b")];
    assert_eq!(batches, expected.map(|(count, key)| (count, key.to_owned())));
}

#[tokio::test]
async fn batches_are_compressed_whole() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let (producer, id, mut peer, _brokers) =
            opened(ProducerOptions { compression, ..batches_of(100) }).await;
        let mut receipts = Vec::new();
        for _ in 0..100 {
            receipts.push(producer.send(b"to and fro, to and fro").await.expect("room"));
        }
        let (_, metadata, payload) = peer.receive_batch().await;
        assert!(payload.len() < 1000, "{}", payload.len());
        let size = metadata.uncompressed_size.expect("a size");
        let code = metadata.compression.expect("a codec");
        let plain = decompress(code, payload, size, 1 << 20).expect("decompressed");
        assert!(plain.ends_with(b"to and fro, to and fro"));
        peer.send_receipt(id, 0, 1).await;
        assert_eq!(receipts.pop().expect("100").await.expect("stored").batch_index, 99);
    }
}

#[tokio::test]
async fn many_batches_are_in_flight_and_refusals_may_overtake() {
    let (producer, id, mut peer, _brokers) = opened(batches_of(1)).await;
    let mut receipts = Vec::new();
    for _ in 0..4 {
        receipts.push(producer.send(b"x").await.expect("room"));
        peer.receive_batch().await;
    }
    refuse(&mut peer, id, 2, ServerError::NotAllowedError).await;
    // A receipt again, and of another producer, change nothing.
    for (producer_id, sequence_id) in [(id, 0), (id, 0), (id + 1, 3), (id, 1), (id, 3)] {
        peer.send_receipt(producer_id, sequence_id, sequence_id).await;
    }
    let outcomes = [
        receipts.remove(0).await,
        receipts.remove(0).await,
        receipts.remove(0).await,
        receipts.remove(0).await,
    ];
    let entries = outcomes.map(|outcome| outcome.map(|id| id.entry).map_err(|error| error.to_string()));
    let refused = "persistent://public/default/t-partition-4 does not store a message: NotAllowedError (no)";
    assert_eq!(entries, [Ok(0), Ok(1), Err(refused.to_owned()), Ok(3)]);
}

/// Refuses a batch.
async fn refuse(peer: &mut ScriptedPeer, producer_id: u64, sequence_id: u64, error: ServerError) {
    let error = error.into();
    let refusal = SendErrorCommand { producer_id, sequence_id, error, message: "no".to_owned() };
    peer.send(Command::SendError(refusal)).await;
}

#[tokio::test]
async fn a_refused_batch_is_named_by_any_of_its_messages() {
    for named in [2, 3] {
        let (producer, id, mut peer, _brokers) = opened(batches_of(2)).await;
        let mut receipts = Vec::new();
        for _ in 0..6 {
            receipts.push(producer.send(b"x").await.expect("room"));
        }
        for sequence_id in [0, 2, 4] {
            assert_eq!(peer.receive_batch().await.0.sequence_id, sequence_id);
        }
        refuse(&mut peer, id, named, ServerError::NotAllowedError).await;
        for sequence_id in [0, 4] {
            peer.send_receipt(id, sequence_id, sequence_id).await;
        }
        let mut stored = Vec::new();
        for receipt in receipts {
            stored.push(receipt.await.is_ok());
        }
        assert_eq!(stored, [true, true, false, false, true, true]);
        assert_eq!(producer.reconnects(), 0);
    }
}

#[tokio::test]
async fn batches_are_sent_again_after_an_error_of_the_broker() {
    for error in [ServerError::PersistenceError, ServerError::ServiceNotReady, ServerError::UnknownError] {
        let (producer, id, mut peer, _brokers) = opened(batches_of(2)).await;
        let mut receipts = Vec::new();
        for _ in 0..4 {
            receipts.push(producer.send(b"x").await.expect("room"));
        }
        for sequence_id in [0, 2] {
            assert_eq!(peer.receive_batch().await.0.sequence_id, sequence_id);
        }
        // Each of the batches is refused, by its last message.
        refuse(&mut peer, id, 1, error).await;
        refuse(&mut peer, id, 3, error).await;
        assert_eq!(peer.open_producer().await, id);
        for sequence_id in [0, 2] {
            assert_eq!(peer.receive_batch().await.0.sequence_id, sequence_id);
            peer.send_receipt(id, sequence_id, sequence_id).await;
        }
        for receipt in receipts {
            receipt.await.expect("stored");
        }
        assert_eq!(producer.reconnects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn reconnections_after_repeated_refusals_have_pauses() {
    let (producer, id, mut peer, _brokers) = opened(batches_of(1)).await;
    let receipt = producer.send(b"x").await.expect("room");
    let before = tokio::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(peer.receive_batch().await.0.sequence_id, 0);
        refuse(&mut peer, id, 0, ServerError::PersistenceError).await;
        peer.open_producer().await;
    }
    assert!(before.elapsed() >= 20 * quick_options().backoff_min, "{:?}", before.elapsed());
    peer.receive_batch().await;
    peer.send_receipt(id, 0, 9).await;
    assert_eq!(receipt.await.expect("stored").entry, 9);
}

#[tokio::test]
async fn a_terminated_topic_ends_its_producer() {
    let (producer, id, mut peer, _brokers) = opened(batches_of(1)).await;
    let receipts = [producer.send(b"x").await.expect("room"), producer.send(b"x").await.expect("room")];
    peer.receive_batch().await;
    refuse(&mut peer, id, 0, ServerError::TopicTerminatedError).await;
    for receipt in receipts {
        let error = receipt.await.expect_err("terminated").to_string();
        assert!(error.ends_with("TopicTerminatedError (no)"), "{error}");
    }
    let error = producer.send(b"x").await.expect_err("it has ended");
    assert!(matches!(error, SendError::Refused(_)), "{error}");
}

#[tokio::test]
async fn a_checksum_error_on_the_way_has_batches_sent_again() {
    let (producer, id, mut peer, _brokers) = opened(batches_of(2)).await;
    let receipts = [producer.send(b"x").await.expect("room"), producer.send(b"x").await.expect("room")];
    peer.receive_batch().await;
    refuse(&mut peer, id, 0, ServerError::ChecksumError).await;
    assert_eq!(peer.receive_batch().await.0.sequence_id, 0);
    peer.send_receipt(id, 0, 0).await;
    for receipt in receipts {
        receipt.await.expect("stored");
    }
    assert_eq!(producer.reconnects(), 0);
}

#[tokio::test]
async fn a_receipt_out_of_order_ends_the_connection_and_batches_are_sent_again() {
    let (producer, id, mut peer, mut brokers) = opened(batches_of(1)).await;
    let mut receipts = Vec::new();
    for _ in 0..2 {
        receipts.push(producer.send(b"x").await.expect("room"));
        peer.receive_batch().await;
    }
    peer.send_receipt(id, 1, 1).await;
    assert!(peer.is_closed().await);
    let mut peer = brokers.accept().await;
    assert_eq!(peer.open_producer().await, id);
    for sequence_id in [0, 1] {
        assert_eq!(peer.receive_batch().await.0.sequence_id, sequence_id);
        peer.send_receipt(id, sequence_id, 10 + sequence_id).await;
    }
    for (entry, receipt) in (10..).zip(receipts) {
        assert_eq!(receipt.await.expect("stored").entry, entry);
    }
    assert_eq!(producer.reconnects(), 1);
}

#[tokio::test]
async fn a_disconnect_in_flight_loses_nothing() {
    let options = ProducerOptions { name: Some("mine".to_owned()), ..batches_of(2) };
    let (producer, id, mut peer, mut brokers) = opened(options).await;
    let mut receipts = Vec::new();
    for payload in [b"0", b"1"] {
        receipts.push(producer.send(payload).await.expect("room"));
    }
    peer.receive_batch().await;
    drop(peer);
    // Meanwhile more messages are taken.
    for payload in [b"2", b"3"] {
        receipts.push(producer.send(payload).await.expect("room"));
    }
    // A broker that starts refuses at first; the old producer is still there, then.
    for error in [ServerError::ServiceNotReady, ServerError::ProducerBusy] {
        let mut peer = brokers.accept().await;
        peer.answer_lookup(LookupResult::Connect, "broker:6650").await;
        let Command::RegisterProducer(register) = peer.receive().await else { panic!("a producer is next") };
        assert_eq!((register.producer_name.as_deref(), register.epoch), (Some("mine"), Some(1)));
        let refusal =
            ErrorResponse { request_id: register.request_id, error: error.into(), message: String::new() };
        peer.send(Command::Error(refusal)).await;
    }
    let mut peer = brokers.accept().await;
    peer.open_producer().await;
    for sequence_id in [0, 2] {
        assert_eq!(peer.receive_batch().await.0.sequence_id, sequence_id);
        peer.send_receipt(id, sequence_id, sequence_id).await;
    }
    for receipt in receipts {
        receipt.await.expect("stored");
    }
}

#[tokio::test]
async fn a_topic_that_moves_is_looked_up_again() {
    let (producer, id, mut peer, _brokers) = opened(batches_of(1)).await;
    let close = crate::protocol::CloseProducer { producer_id: id, request_id: 9 };
    peer.send(Command::CloseProducer(close)).await;
    // The same connection serves.
    peer.open_producer().await;
    let receipt = producer.send(b"x").await.expect("room");
    peer.receive_batch().await;
    peer.send_receipt(id, 0, 3).await;
    assert_eq!(receipt.await.expect("stored").entry, 3);
}

#[tokio::test]
async fn a_cluster_that_is_gone_fails_every_message_with_the_reason() {
    let (producer, _, peer, brokers) = opened(batches_of(1)).await;
    let receipt = producer.send(b"x").await.expect("room");
    drop((peer, brokers));
    let error = receipt.await.expect_err("nothing is there");
    assert!(
        error.to_string().starts_with("The producer has stopped: Cannot connect to broker:6650"),
        "{error}"
    );
    let error = producer.send(b"x").await.expect_err("it has stopped");
    assert!(matches!(error, SendError::Disconnected(_)), "{error}");
    producer.close().await.expect("nothing to close");
}

#[tokio::test(start_paused = true)]
async fn overdue_messages_fail_and_their_late_receipts_are_ignored() {
    let timeout = Duration::from_secs(3);
    let (producer, id, mut peer, _brokers) =
        opened(ProducerOptions { send_timeout: Some(timeout), ..batches_of(1) }).await;
    let receipt = producer.send(b"x").await.expect("room");
    let before = tokio::time::Instant::now();
    let error = receipt.await.expect_err("no receipt");
    assert!(matches!(&error, SendError::TimedOut(overdue) if overdue.timeout == timeout), "{error}");
    assert!(before.elapsed() < timeout + Duration::from_millis(10));
    let receipt = producer.send(b"y").await.expect("room");
    peer.send_receipt(id, 0, 0).await;
    peer.send_receipt(id, 1, 1).await;
    assert_eq!(receipt.await.expect("stored").entry, 1);
}

#[tokio::test]
async fn messages_wait_for_room() {
    let options = ProducerOptions { pending_bytes_max: 10, ..batches_of(100) };
    let (producer, id, mut peer, _brokers) = opened(options).await;
    let first = producer.try_send(b"12345678").expect("a message").expect("room");
    assert!(producer.try_send(b"123").expect("a message").is_none());
    // The lack of room has sent the batch, although its delay is not over.
    assert_eq!(peer.receive_batch().await.0.sequence_id, 0);
    let producer = Arc::new(producer);
    let waiting = tokio::spawn({
        let producer = Arc::clone(&producer);
        async move { producer.send(b"123").await.expect("room").await }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!waiting.is_finished());
    peer.send_receipt(id, 0, 0).await;
    first.await.expect("stored");
    while producer.0.state.lock().is_idle() {
        tokio::task::yield_now().await;
    }
    producer.0.seal();
    assert_eq!(peer.receive_batch().await.0.sequence_id, 1);
    peer.send_receipt(id, 1, 1).await;
    assert_eq!(waiting.await.expect("no panic").expect("stored").entry, 1);
    // A message that is larger than all room is taken alone.
    assert!(producer.try_send(&[0; 20]).expect("a message").is_some());
}

#[tokio::test]
async fn messages_beyond_the_brokers_limit_are_refused() {
    let (producer, _, mut peer, _brokers) = opened_with(batches_of(1), 100).await;
    let error = producer.send(&[0; 101]).await.map(drop).expect_err("too large");
    assert_eq!(error.to_string(), "A message of 101 bytes is larger than the broker's maxMessageSize=100");
    let _receipt = producer.send(&[0; 100]).await.expect("it fits");
    assert_eq!(peer.receive_batch().await.2.len(), 100);
    // Batches stay below the limit, too.
    let (producer, _, mut peer, _brokers) = opened_with(batches_of(1000), 100).await;
    let _receipts = [producer.send(&[0; 50]).await, producer.send(&[0; 50]).await];
    assert_eq!(peer.receive_batch().await.2.len(), 50);
    // Compression decides when the batch is finished.
    let compressed = ProducerOptions { compression: Compression::Lz4, ..batches_of(1) };
    let (producer, _, _peer, _brokers) = opened_with(compressed, 100).await;
    let noise: Vec<u8> = (0..200u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let error = producer.send(&noise[..]).await.expect("taken").await.expect_err("too large");
    assert!(matches!(error, SendError::TooLarge(_)), "{error}");
}

#[tokio::test]
async fn close_waits_for_receipts_and_drop_does_not() {
    let (producer, id, mut peer, _brokers) = opened(batches_of(100)).await;
    let receipt = producer.send(b"x").await.expect("room");
    let closing = tokio::spawn(producer.close());
    peer.receive_batch().await;
    peer.send_receipt(id, 0, 0).await;
    let Command::CloseProducer(close) = peer.receive().await else { panic!("the end is next") };
    assert_eq!(close.producer_id, id);
    peer.send(Command::Success(crate::protocol::Success { request_id: close.request_id })).await;
    closing.await.expect("no panic").expect("closed");
    assert!(receipt.await.is_ok());

    let (producer, id, mut peer, _brokers) = opened(batches_of(100)).await;
    let receipt = producer.send(b"x").await.expect("room");
    drop(producer);
    assert!(matches!(receipt.await, Err(SendError::Closed(_))));
    let Command::CloseProducer(close) = peer.receive().await else { panic!("the end is next") };
    assert_eq!(close.producer_id, id);
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn sequence_ids_go_on_from_the_broker_or_the_options() {
    let options = ProducerOptions { initial_sequence_id: Some(41), ..batches_of(1) };
    let (producer, _, mut peer, _brokers) = opened(options).await;
    let _receipt = producer.send(b"x").await.expect("room");
    assert_eq!(peer.receive_batch().await.0.sequence_id, 42);
}

#[tokio::test]
async fn a_name_in_use_is_an_error_at_once() {
    let (connector, mut brokers) = brokers();
    let opening = tokio::spawn(async move {
        let client = Client::connect_by(connector, SERVICE_URL, quick_options()).await?;
        Producer::open(&client, "t", ProducerOptions::default()).await
    });
    let mut peer = brokers.accept().await;
    peer.answer_lookup(LookupResult::Connect, "broker:6650").await;
    let Command::RegisterProducer(register) = peer.receive().await else { panic!("a producer is next") };
    let refusal = ErrorResponse {
        request_id: register.request_id,
        error: ServerError::ProducerBusy.into(),
        message: "Producer with name 'a' is already connected".to_owned(),
    };
    peer.send(Command::Error(refusal)).await;
    let error = opening.await.expect("no panic").expect_err("refused");
    assert_eq!(
        error.to_string(),
        "Producer for persistent://public/default/t: ProducerBusy (Producer with name 'a' is already connected)"
    );
}
