//! Refused requests have Pulsar's error codes.

use thalweg_pulsar::{
    Client, ClientOptions, Consumer, ConsumerOptions, HandshakeFault, Producer, ProducerOptions, PulsarError,
    ServerError,
};

use crate::broker::{broker, unique};

#[tokio::test]
async fn unknown_namespaces_are_refused_by_name() {
    let Some(broker) = broker("unknown namespaces") else { return };
    let client = broker.client().await;
    let error = client.partition_count("public/missing/t").await.map(drop).expect_err("no namespace");
    let text = error.to_string();
    assert!(text.starts_with("Partitions of persistent://public/missing/t: "), "{text}");
    let error =
        Producer::open(&client, "public/missing/t", ProducerOptions::default()).await.expect_err("none");
    assert!(matches!(error, PulsarError::Refused(_)), "{error}");
    let options = ConsumerOptions::default();
    let error = Consumer::subscribe(&client, "public/missing/t", "s", options).await.expect_err("none");
    assert!(matches!(error, PulsarError::Refused(_)), "{error}");
}

#[tokio::test]
async fn a_producers_name_is_its_own() {
    let Some(broker) = broker("names of producers") else { return };
    let client = broker.client().await;
    let topic = unique("names");
    let named = || ProducerOptions { name: Some("mine".to_owned()), ..ProducerOptions::default() };
    let first = Producer::open(&client, &topic, named()).await.expect("a producer");
    assert_eq!(&*first.name(), "mine");
    let error = Producer::open(&client, &topic, named()).await.expect_err("the name is taken");
    assert_eq!(error.server_error(), Some(ServerError::ProducerBusy), "{error}");
    let unnamed = Producer::open(&client, &topic, ProducerOptions::default()).await.expect("a producer");
    assert!(unnamed.name().starts_with("standalone-"), "{}", unnamed.name());
    first.close().await.expect("closed");
    Producer::open(&client, &topic, named()).await.expect("the name is free");
}

#[tokio::test]
async fn the_admin_port_is_no_broker() {
    let Some(broker) = broker("the wrong port") else { return };
    let url = broker.web_url.replace("http://", "pulsar://");
    let error = Client::connect(&url, ClientOptions::default()).await.expect_err("HTTP");
    let PulsarError::Handshake(failed) = &error else { panic!("{error}") };
    assert!(matches!(failed.fault, HandshakeFault::Foreign(_) | HandshakeFault::Closed), "{error}");
}
