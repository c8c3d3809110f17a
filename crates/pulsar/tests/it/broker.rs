//! The broker of the tests, names of topics, and runs of messages.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::time::Duration;

use thalweg_pulsar::{
    Client, ClientOptions, Consumer, ConsumerOptions, InitialPosition, Message, MessageId, Producer,
    ProducerOptions,
};

/// The URLs of the broker's two listeners.
pub struct Broker {
    pub service_url: String,
    pub web_url: String,
}

/// The broker of the environment; prints that the test is skipped if there is none.
pub fn broker(what: &str) -> Option<Broker> {
    let service_url = std::env::var("PULSAR_SERVICE_URL").ok();
    let web_url = std::env::var("PULSAR_WEB_URL").ok();
    let broker = service_url.zip(web_url).map(|(service_url, web_url)| Broker { service_url, web_url });
    if broker.is_none() {
        let how = "set PULSAR_SERVICE_URL and PULSAR_WEB_URL to those of `bin/pulsar standalone -nss -nfw`";
        writeln!(std::io::stderr(), "SKIPPED: {what}: {how}").expect("stderr takes a line");
    }
    broker
}

impl Broker {
    pub async fn client(&self) -> Client {
        Client::connect(&self.service_url, ClientOptions::default()).await.expect("a broker")
    }
}

/// A name that no other run of the tests has.
pub fn unique(name: &str) -> String {
    format!("{name}-{:x}", RandomState::new().build_hasher().finish())
}

/// Options of a subscription that begins with the oldest message.
pub fn earliest() -> ConsumerOptions {
    ConsumerOptions { initial_position: InitialPosition::Earliest, ..ConsumerOptions::default() }
}

/// The next message, which arrives within a few seconds.
pub async fn next(consumer: &mut Consumer) -> Message {
    let next = tokio::time::timeout(Duration::from_secs(20), consumer.next()).await;
    next.expect("a message in time").expect("a message")
}

/// True if no message arrives for a while.
pub async fn is_quiet(consumer: &mut Consumer) -> bool {
    tokio::time::timeout(Duration::from_millis(500), consumer.next()).await.is_err()
}

/// The payload of a numbered message.
pub fn numbered(number: usize) -> Vec<u8> {
    format!("message {number}").into_bytes()
}

/// Sends messages with these numbers. Returns their ids.
pub async fn produce(producer: &Producer, numbers: std::ops::Range<usize>) -> Vec<MessageId> {
    let mut receipts = Vec::new();
    for number in numbers {
        receipts.push(producer.send(&numbered(number)[..]).await.expect("room"));
    }
    let mut ids = Vec::new();
    for receipt in receipts {
        ids.push(receipt.await.expect("stored"));
    }
    ids
}

/// A producer whose batches have ten messages, and leave at once if they are full.
pub async fn producer_of_tens(client: &Client, topic: &str) -> Producer {
    let options = ProducerOptions {
        batch_messages_max: 10,
        batch_delay: Duration::from_millis(50),
        ..ProducerOptions::default()
    };
    Producer::open(client, topic, options).await.expect("a producer")
}
