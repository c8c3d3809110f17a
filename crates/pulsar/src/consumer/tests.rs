use std::time::Duration;

use super::*;
use crate::error::PulsarError;
use crate::protocol::{
    AckResponse, ActiveConsumerChange, CloseConsumer, Command, EndOfTopic, EntryCommand,
    LastMessageIdResponse, LookupResult, MessageIdData, MessageMetadata, Success,
};
use crate::scripted_peer::{SERVICE_URL, ScriptedBrokers, ScriptedPeer, batch_frame, brokers, quick_options};

/// A consumer, its id and its broker.
async fn subscribed(options: ConsumerOptions) -> (Consumer, u64, ScriptedPeer, ScriptedBrokers) {
    let (connector, mut brokers) = brokers();
    let opening = tokio::spawn(async move {
        let client = Client::connect_by(connector, SERVICE_URL, quick_options()).await?;
        Consumer::subscribe(&client, "t", "s", options).await
    });
    let mut peer = brokers.accept().await;
    let id = peer.open_consumer().await;
    (opening.await.expect("no panic").expect("a consumer"), id, peer, brokers)
}

/// Options without a delay of acknowledgements.
fn prompt() -> ConsumerOptions {
    ConsumerOptions { ack_delay: Duration::ZERO, ..ConsumerOptions::default() }
}

async fn payload(consumer: &mut Consumer) -> Vec<u8> {
    consumer.next().await.expect("a message").payload().to_vec()
}

#[tokio::test]
async fn messages_come_in_order_and_permits_follow() {
    let options = ConsumerOptions { receiver_queue_size: 4, ..prompt() };
    let (mut consumer, id, mut peer, _brokers) = subscribed(options).await;
    assert!(consumer.try_next().expect("no failure").is_none());
    peer.send_batch(id, 1, &[b"a", b"b"]).await;
    peer.send_batch(id, 2, &[b"c"]).await;
    assert_eq!(payload(&mut consumer).await, b"a");
    assert_eq!(payload(&mut consumer).await, b"b");
    let Command::Flow(flow) = peer.receive().await else { panic!("permits are next") };
    assert_eq!((flow.consumer_id, flow.message_permits), (id, 2));
    assert_eq!(payload(&mut consumer).await, b"c");
}

#[tokio::test]
async fn subscriptions_have_their_type_and_position() {
    for (subscription_type, code) in [
        (SubscriptionType::Exclusive, 0),
        (SubscriptionType::Shared, 1),
        (SubscriptionType::Failover, 2),
        (SubscriptionType::KeyShared, 3),
    ] {
        let (connector, mut brokers) = brokers();
        let opening = tokio::spawn(async move {
            let client = Client::connect_by(connector, SERVICE_URL, quick_options()).await?;
            let options = ConsumerOptions {
                subscription_type,
                initial_position: InitialPosition::Earliest,
                name: Some("me".to_owned()),
                ..ConsumerOptions::default()
            };
            Consumer::subscribe(&client, "t", "s", options).await
        });
        let mut peer = brokers.accept().await;
        peer.answer_lookup(LookupResult::Connect, "broker:6650").await;
        let Command::Subscribe(subscribe) = peer.receive().await else { panic!("a consumer is next") };
        assert_eq!((subscribe.sub_type, subscribe.initial_position), (code, Some(1)));
        assert_eq!((&*subscribe.subscription, subscribe.consumer_name.as_deref()), ("s", Some("me")));
        assert_eq!(subscribe.key_shared.is_some(), code == 3);
        assert_eq!(subscribe.consumer_epoch, (code % 2 == 0).then_some(0));
        peer.send(Command::Success(Success { request_id: subscribe.request_id })).await;
        let consumer = opening.await.expect("no panic").expect("a consumer");
        assert_eq!(consumer.is_active(), code != 2);
        if code == 2 {
            let change = ActiveConsumerChange { consumer_id: subscribe.consumer_id, is_active: Some(true) };
            peer.send(Command::ActiveConsumerChange(change)).await;
            while !consumer.is_active() {
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test]
async fn entries_are_acknowledged_as_a_whole() {
    let (mut consumer, id, mut peer, _brokers) = subscribed(prompt()).await;
    peer.send_batch(id, 1, &[b"a", b"b"]).await;
    peer.send_batch(id, 2, &[b"c", b"d"]).await;
    let mut messages = Vec::new();
    for _ in 0..4 {
        messages.push(consumer.next().await.expect("a message"));
    }
    consumer.ack(&messages[0]);
    consumer.ack(&messages[0]);
    consumer.ack(&messages[1]);
    let Command::Ack(ack) = peer.receive().await else { panic!("an acknowledgement is next") };
    assert_eq!((ack.ack_type, ack.message_id[0].entry_id, ack.request_id), (0, 1, None));
    // In the middle of a batch, the entry before is the last whole one.
    for (message, entry) in [(&messages[2], 1), (&messages[3], 2)] {
        consumer.ack_cumulative(message).expect("an exclusive subscription");
        let Command::Ack(ack) = peer.receive().await else { panic!("an acknowledgement is next") };
        assert_eq!((ack.ack_type, ack.message_id[0].ledger_id, ack.message_id[0].entry_id), (1, 7, entry));
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_wait_for_others() {
    let (mut consumer, id, mut peer, _brokers) = subscribed(ConsumerOptions::default()).await;
    let before = tokio::time::Instant::now();
    for entry in 1..=3 {
        peer.send_batch(id, entry, &[b"a"]).await;
        let message = consumer.next().await.expect("a message");
        consumer.ack(&message);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let Command::Ack(ack) = peer.receive().await else { panic!("an acknowledgement is next") };
    assert_eq!(ack.message_id.iter().map(|id| id.entry_id).collect::<Vec<_>>(), [1, 2, 3]);
    assert!((100..103).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
}

#[tokio::test]
async fn shared_subscriptions_take_no_cumulative_acknowledgement() {
    let options = ConsumerOptions { subscription_type: SubscriptionType::Shared, ..prompt() };
    let (mut consumer, id, mut peer, _brokers) = subscribed(options).await;
    peer.send_batch(id, 1, &[b"a"]).await;
    let message = consumer.next().await.expect("a message");
    assert_eq!(consumer.ack_cumulative(&message), Err(NotCumulative(SubscriptionType::Shared)));
}

#[tokio::test]
async fn flushed_acknowledgements_are_confirmed() {
    let (mut consumer, id, mut peer, _brokers) = subscribed(ConsumerOptions::default()).await;
    for (entry, error) in [(1, None), (2, Some(13))] {
        peer.send_batch(id, entry, &[b"a"]).await;
        let message = consumer.next().await.expect("a message");
        consumer.ack(&message);
        let answer = async {
            let Command::Ack(ack) = peer.receive().await else { panic!("an acknowledgement is next") };
            let request_id = ack.request_id;
            assert!(request_id.is_some());
            peer.send(Command::AckResponse(AckResponse { error, request_id, ..AckResponse::default() }))
                .await;
        };
        let (flushed, ()) = tokio::join!(consumer.flush_acks(), answer);
        match error {
            None => flushed.expect("taken"),
            Some(_) => {
                let error = flushed.expect_err("refused").to_string();
                assert!(error.contains("ConsumerNotFound"), "{error}");
            }
        }
    }
    consumer.flush_acks().await.expect("nothing to send");
}

#[tokio::test]
async fn a_damaged_entry_is_an_error_and_the_next_one_follows() {
    let options = ConsumerOptions { receiver_queue_size: 4, ..prompt() };
    let (mut consumer, id, mut peer, _brokers) = subscribed(options).await;
    let mut damaged = batch_frame(id, 1, &[b"a", b"b"]).to_vec();
    *damaged.last_mut().expect("not empty") ^= 1;
    peer.send_bytes(&damaged).await;
    peer.send_batch(id, 2, &[b"c"]).await;
    let error = consumer.next().await.expect_err("damage");
    assert!(
        error.to_string().starts_with("Cannot read the entry 7:1:-1: an entry with the checksum"),
        "{error}"
    );
    assert_eq!(payload(&mut consumer).await, b"c");
    let Command::Flow(flow) = peer.receive().await else { panic!("permits are next") };
    assert_eq!(flow.message_permits, 2);
}

#[tokio::test]
async fn after_a_disconnect_old_messages_are_dropped() {
    let (mut consumer, id, mut peer, mut brokers) = subscribed(prompt()).await;
    peer.send_batch(id, 1, &[b"a", b"b"]).await;
    peer.send_batch(id, 2, &[b"c"]).await;
    assert_eq!(payload(&mut consumer).await, b"a");
    drop(peer);
    let mut peer = brokers.accept().await;
    peer.open_consumer().await;
    peer.send_batch(id, 1, &[b"a", b"b"]).await;
    for expected in [b"a", b"b"] {
        assert_eq!(payload(&mut consumer).await, expected);
    }
    assert_eq!(consumer.reconnects(), 1);
}

#[tokio::test]
async fn pending_acknowledgements_survive_a_disconnect() {
    let (mut consumer, id, mut peer, mut brokers) = subscribed(ConsumerOptions::default()).await;
    peer.send_batch(id, 1, &[b"a"]).await;
    let message = consumer.next().await.expect("a message");
    drop(peer);
    let mut peer = brokers.accept().await;
    consumer.ack(&message);
    peer.answer_lookup(LookupResult::Connect, "broker:6650").await;
    let Command::Subscribe(subscribe) = peer.receive().await else { panic!("a consumer is next") };
    peer.send(Command::Success(Success { request_id: subscribe.request_id })).await;
    // Before the permits, so that the broker does not send the message again.
    let Command::Ack(ack) = peer.receive().await else { panic!("an acknowledgement is next") };
    assert_eq!(ack.message_id[0].entry_id, 1);
    assert!(matches!(peer.receive().await, Command::Flow(_)));
}

#[tokio::test]
async fn a_seek_drops_messages_and_starts_within_the_batch() {
    let (mut consumer, id, mut peer, _brokers) = subscribed(prompt()).await;
    peer.send_batch(id, 1, &[b"a", b"b", b"c"]).await;
    let mut messages = Vec::new();
    for _ in 0..2 {
        messages.push(consumer.next().await.expect("a message"));
    }
    let position = messages[1].id();
    let answer = async {
        let Command::Seek(seek) = peer.receive().await else { panic!("a seek is next") };
        let target = seek.message_id.expect("a position");
        assert_eq!((target.entry_id, &target.ack_set[..]), (1, &[0b110][..]));
        peer.send(Command::CloseConsumer(CloseConsumer { consumer_id: id, request_id: 3 })).await;
        peer.open_consumer().await;
        peer.send_batch(id, 1, &[b"a", b"b", b"c"]).await;
        peer.send(Command::Success(Success { request_id: seek.request_id })).await;
    };
    let (sought, ()) = tokio::join!(consumer.seek(position), answer);
    sought.expect("moved");
    for expected in [b"b", b"c"] {
        assert_eq!(payload(&mut consumer).await, expected);
    }
}

#[tokio::test]
async fn a_seek_leaves_no_message_of_the_last_position() {
    let (mut consumer, id, mut peer, _brokers) = subscribed(prompt()).await;
    peer.send_batch(id, 1, &[b"a", b"b"]).await;
    assert_eq!(payload(&mut consumer).await, b"a");
    peer.send_batch(id, 2, &[b"c"]).await;
    let answer = async {
        let Command::Seek(seek) = peer.receive().await else { panic!("a seek is next") };
        peer.send(Command::CloseConsumer(CloseConsumer { consumer_id: id, request_id: 3 })).await;
        peer.send(Command::Success(Success { request_id: seek.request_id })).await;
    };
    let (sought, ()) = tokio::join!(consumer.seek(MessageId::LATEST), answer);
    sought.expect("moved");
    // The consumer is not opened again yet.
    assert!(consumer.try_next().expect("no failure").is_none());
    peer.open_consumer().await;
    peer.send_batch(id, 3, &[b"d"]).await;
    assert_eq!(payload(&mut consumer).await, b"d");
}

#[tokio::test]
async fn redelivery_starts_a_new_epoch() {
    let options = ConsumerOptions { receiver_queue_size: 100, ..prompt() };
    let (mut consumer, id, mut peer, _brokers) = subscribed(options).await;
    peer.send_batch(id, 1, &[b"a", b"b", b"c"]).await;
    assert_eq!(payload(&mut consumer).await, b"a");
    peer.send_batch(id, 2, &[b"d", b"e"]).await;
    while consumer.core.state.lock().queue_len() == 0 {
        tokio::task::yield_now().await;
    }
    consumer.redeliver_unacknowledged();
    let Command::Redeliver(redeliver) = peer.receive().await else { panic!("a redelivery is next") };
    assert_eq!((redeliver.consumer_epoch, redeliver.message_ids.len()), (Some(1), 0));
    let Command::Flow(flow) = peer.receive().await else { panic!("permits are next") };
    assert_eq!(flow.message_permits, 5);
    // An entry that was under way is stale; its permit is given again.
    let stale = EntryCommand { consumer_id: id, consumer_epoch: Some(0), ..EntryCommand::default() };
    peer.send_bytes(&entry_frame(stale)).await;
    let Command::Flow(flow) = peer.receive().await else { panic!("permits are next") };
    assert_eq!(flow.message_permits, 1);
    peer.send_batch(id, 1, &[b"a", b"b", b"c"]).await;
    assert_eq!(payload(&mut consumer).await, b"a");
}

fn entry_frame(command: EntryCommand) -> Vec<u8> {
    let metadata = MessageMetadata::default();
    let frame = crate::frame::encode_entry(Command::Message(command), &metadata, bytes::Bytes::new());
    [frame.head, frame.payload].concat()
}

#[tokio::test]
async fn a_broker_that_ignores_permits_is_left() {
    let options = ConsumerOptions { receiver_queue_size: 10, ..prompt() };
    let (mut consumer, id, mut peer, mut brokers) = subscribed(options).await;
    for entry in 0..1010 {
        peer.send_batch(id, entry, &[b"a"]).await;
    }
    assert_eq!(payload(&mut consumer).await, b"a");
    peer.send_batch(id, 1010, &[b"a"]).await;
    let _again = brokers.accept().await;
    assert!(consumer.core.state.lock().connection.is_none());
}

#[tokio::test]
async fn the_end_of_a_topic_is_reported_after_its_messages() {
    let (mut consumer, id, mut peer, _brokers) = subscribed(prompt()).await;
    peer.send_batch(id, 1, &[b"a"]).await;
    peer.send(Command::EndOfTopic(EndOfTopic { consumer_id: id })).await;
    assert_eq!(payload(&mut consumer).await, b"a");
    assert!(matches!(consumer.next().await, Err(ConsumeError::EndOfTopic)));
}

#[tokio::test]
async fn the_last_message_is_known() {
    let (consumer, _, mut peer, _brokers) = subscribed(prompt()).await;
    let answer = async {
        let Command::GetLastMessageId(request) = peer.receive().await else { panic!("a request is next") };
        let last_message_id =
            MessageIdData { ledger_id: 7, entry_id: 4, batch_index: Some(2), ..MessageIdData::default() };
        let request_id = request.request_id;
        peer.send(Command::LastMessageIdResponse(LastMessageIdResponse { last_message_id, request_id }))
            .await;
    };
    let (id, ()) = tokio::join!(consumer.last_message_id(), answer);
    assert_eq!(id.expect("an id").to_string(), "7:4:-1:2");
}

#[tokio::test]
async fn close_and_unsubscribe_wait_for_the_broker() {
    let (consumer, id, mut peer, _brokers) = subscribed(prompt()).await;
    let answer = async {
        let Command::CloseConsumer(close) = peer.receive().await else { panic!("the end is next") };
        assert_eq!(close.consumer_id, id);
        peer.send(Command::Success(Success { request_id: close.request_id })).await;
    };
    let (closed, ()) = tokio::join!(consumer.close(), answer);
    closed.expect("closed");

    let (consumer, _, mut peer, _brokers) = subscribed(prompt()).await;
    let answer = async {
        let Command::Unsubscribe(request) = peer.receive().await else { panic!("the end is next") };
        peer.send(Command::Success(Success { request_id: request.request_id })).await;
    };
    let (removed, ()) = tokio::join!(consumer.unsubscribe(), answer);
    removed.expect("removed");
}

#[tokio::test]
async fn a_cluster_that_is_gone_is_reported_after_the_queue() {
    let (mut consumer, id, mut peer, brokers) = subscribed(prompt()).await;
    peer.send_batch(id, 1, &[b"a"]).await;
    assert_eq!(payload(&mut consumer).await, b"a");
    drop((peer, brokers));
    let error = consumer.next().await.expect_err("nothing is there");
    let ConsumeError::Disconnected(cause) = error else { panic!("{error}") };
    assert!(matches!(&*cause, PulsarError::ConnectFailed(_)), "{cause}");
}
