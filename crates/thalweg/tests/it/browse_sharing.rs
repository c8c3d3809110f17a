//! Searches beside others, and beside changes of their topic.

use std::sync::Arc;
use std::time::Duration;

use thalweg_browse::{
    Capacity, EndReason, Limits, Masking, Message, NewMessage, PrincipalCapacity, Query, Registry, Search,
    produce,
};
use thalweg_client::{Admin, Producer, TopicPartition};
use thalweg_record::Offset;
use tokio::time::Instant;

use crate::binary::Broker;
use crate::browse::{SCANS, all, cluster, config, create, fill, runtime, send};

#[test]
fn a_search_ends_when_its_records_are_deleted() {
    let _alone = SCANS.lock();
    let broker = Broker::start();
    create(&broker, "purged", "");
    runtime().block_on(async {
        let cluster = cluster(&broker).await;
        let mut producer = Producer::new(cluster.clone(), config(&[]), |_| {});
        send(&mut producer, "purged", 0, (0..60).map(|_| "x".repeat(900_000))).await;
        producer.close().await;
        let query = Query { limits: Limits { threads: 1, ..Limits::default() }, ..Query::new("purged") };
        let share = PrincipalCapacity::new(&Arc::new(Capacity::default()), &Arc::from("eve"));
        let search =
            Search::start_sharing(cluster.clone(), query, &Masking::default(), None, share, Box::new(()))
                .expect("a query");
        // The search waits for the reader of its events, with a part of the records.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let all_records = [(TopicPartition::new("purged", 0), Offset::NONE)].into();
        let deleted = Admin::new(cluster).delete_records(&all_records).await.expect("an answer");
        assert!(deleted.into_values().all(|outcome| outcome.is_ok()));
        let resumed = Instant::now();
        let (found, ended, waits) = all(search).await;
        assert!((1..60).contains(&found.len()), "{}", found.len());
        assert!(matches!(ended.why, EndReason::Complete), "{:?} {waits:?}", ended.why);
        assert!(resumed.elapsed() < Duration::from_secs(20), "{:?}", resumed.elapsed());
        assert_eq!(ended.progress.partitions[0].position, Offset(60));
    });
}

#[test]
fn a_silent_schema_registry_delays_only_the_searches_that_use_it() {
    let _alone = SCANS.lock();
    let broker = Broker::start();
    create(&broker, "evil", "");
    create(&broker, "orders", "");
    // Connections are accepted by the system, and never answered.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    runtime().block_on(async {
        fill(&broker, "orders", 1, 500).await;
        for id in 1..30 {
            let value = Some(vec![0, 0, 0, 0, id, b'x']);
            let message = NewMessage { topic: "evil".to_owned(), value, ..NewMessage::default() };
            produce(cluster(&broker).await, config(&[]), &message).await.expect("stored");
        }
        let registry = Arc::new(Registry::new(&url).expect("an address"));
        let (capacity, cluster) = (Arc::new(Capacity::default()), cluster(&broker).await);
        let start = |user: &str, topic: &str| {
            let share = PrincipalCapacity::new(&capacity, &Arc::from(user));
            let (masking, query) = (Masking::default(), Query::new(topic));
            Search::start_sharing(
                cluster.clone(),
                query,
                &masking,
                Some(Arc::clone(&registry)),
                share,
                Box::new(()),
            )
            .expect("a query")
        };
        let began = Instant::now();
        let others: Vec<Search> = (0..4).map(|number| start(&format!("eve{number}"), "evil")).collect();
        tokio::time::sleep(Duration::from_millis(700)).await;
        let before = Instant::now();
        let (found, _, _) = all(start("ann", "orders")).await;
        assert_eq!(found.len(), 100);
        assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
        for other in others {
            let (found, ended, _) = all(other).await;
            assert_eq!(found.len(), 29, "{:?}", ended.why);
            let note = |message: &Message| message.value.as_ref().and_then(|value| value.schema.clone());
            assert!(found.iter().all(|one| note(one).is_some_and(|note| note.problem.is_some())));
        }
        // Each unknown schema alone would take five seconds.
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    });
}
