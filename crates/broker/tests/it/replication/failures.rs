//! Brokers that crash under load: records acknowledged by all stay, in order, and replicas agree.

use super::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use thalweg_dial::{Connection, ConnectionOptions};
use tokio::task::JoinSet;

/// Addresses and leaders, as a producer would learn by Metadata.
struct Directory {
    addresses: parking_lot::Mutex<HashMap<i32, String>>,
    leader: parking_lot::Mutex<i32>,
}

/// Produces values one at a time, each until it is acknowledged; returns their number.
async fn produce_until(
    stop: Arc<AtomicBool>,
    directory: Arc<Directory>,
    topic: Topic,
    acks: i16,
    name: String,
    acknowledged: Arc<AtomicUsize>,
) -> usize {
    let mut connection: Option<(i32, Connection)> = None;
    let options = ConnectionOptions {
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(5),
        ..ConnectionOptions::default()
    };
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        let leader = *directory.leader.lock();
        if connection.as_ref().is_none_or(|(id, connection)| *id != leader || connection.is_closed()) {
            let address = directory.addresses.lock().get(&leader).cloned();
            let connected = match address {
                Some(address) => Connection::connect(&address, &options).await.ok(),
                None => None,
            };
            connection = connected.map(|connection| (leader, connection));
        }
        let code = match &connection {
            Some((_, open)) => {
                let request = produce(12, &topic, 0, acks, batch(&[format!("{name}:{next}").as_bytes()]));
                let answer = open.send_at(&request, 12).await.ok();
                answer.map(|answer| answer.responses[0].partition_responses[0].error_code)
            }
            None => None,
        };
        if code == Some(0) {
            next += 1;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        } else {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    next
}

impl Cluster {
    fn directory(&self) -> Arc<Directory> {
        let addresses = (1..=3).map(|id: i32| {
            let broker = self.broker(usize::try_from(id).expect("small"));
            (id, broker.address().to_owned())
        });
        Arc::new(Directory {
            addresses: parking_lot::Mutex::new(addresses.collect()),
            leader: parking_lot::Mutex::new(-1),
        })
    }

    fn refresh(&self, directory: &Directory, topic: &Topic) {
        *directory.leader.lock() = self.registration(topic, 0).leader.0;
        let mut addresses = directory.addresses.lock();
        for (id, broker) in (1..).zip(&self.brokers) {
            match broker {
                Some(broker) => addresses.insert(id, broker.address().to_owned()),
                None => addresses.remove(&id),
            };
        }
    }

    /// Waits, with the producers informed of changes, until this many more records are acknowledged.
    async fn let_pass(&self, directory: &Directory, topic: &Topic, acknowledged: &AtomicUsize, more: usize) {
        let until = acknowledged.load(Ordering::Relaxed) + more;
        wait_for("more acknowledged records", || {
            self.refresh(directory, topic);
            acknowledged.load(Ordering::Relaxed) >= until
        })
        .await;
    }
}

impl Cluster {
    /// Waits, with the producers informed of changes, until all three are in sync.
    async fn refresh_until_in_sync(&self, directory: &Directory, topic: &Topic) {
        wait_for("all in sync", || {
            self.refresh(directory, topic);
            self.registration(topic, 0).isr.len() == 3
        })
        .await;
    }
}

/// Every value that a producer had acknowledged is in the log, and in the order in which it was sent. One
/// that had to be sent again may be there twice, one right after the other.
fn assert_in_order(log: &[(i64, Vec<u8>)], name: &str, acknowledged: usize) {
    let prefix = format!("{name}:");
    let mut seen: Vec<usize> = Vec::new();
    for (_, value) in log {
        let value = std::str::from_utf8(value).expect("text");
        if let Some(number) = value.strip_prefix(&prefix) {
            let number = number.parse().expect("a number");
            if seen.last() != Some(&number) {
                seen.push(number);
            }
        }
    }
    assert!(seen.len() >= acknowledged, "{name}: {} of {acknowledged}", seen.len());
    assert!(seen.iter().copied().eq(0..seen.len()), "{name}: out of order or lost: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leaders_killed_under_load_lose_nothing_that_was_acknowledged_by_all() {
    let mut cluster = Cluster::start(&[("broker.session.timeout.ms", "2000")]).await;
    let topic = cluster.create("topic", &[&[2, 3, 1]], &[("min.insync.replicas", "2")]).await;
    let directory = cluster.directory();
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut producers = JoinSet::new();
    for number in 0..4 {
        // The last one uses acks=1: its records make logs differ at the end of a leader's epoch.
        let acks = if number == 3 { 1 } else { -1 };
        let name = format!("p{number}");
        let (stop, directory, topic) = (Arc::clone(&stop), Arc::clone(&directory), topic.clone());
        let counted = if acks == -1 { Arc::clone(&acknowledged) } else { Arc::default() };
        producers.spawn(async move {
            (name.clone(), acks, produce_until(stop, directory, topic, acks, name, counted).await)
        });
    }
    for _ in 0..4 {
        cluster.let_pass(&directory, &topic, &acknowledged, 200).await;
        let leader = usize::try_from(cluster.registration(&topic, 0).leader.0).expect("a leader");
        cluster.kill(leader).await;
        cluster.let_pass(&directory, &topic, &acknowledged, 50).await;
        cluster.begin(leader).await;
        cluster.refresh_until_in_sync(&directory, &topic).await;
    }
    stop.store(true, Ordering::Relaxed);
    let produced = producers.join_all().await;
    cluster.put(&topic, 0, -1, b"the end").await;
    let log = values_of(&cluster.assert_same(&topic, 0, &[1, 2, 3]).await);
    for (name, acks, count) in produced {
        if acks == -1 {
            assert_in_order(&log, &name, count);
        }
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_unclean_leader_decides_and_the_log_that_differs_is_cut() {
    let mut cluster = Cluster::start(&[("broker.session.timeout.ms", "1500")]).await;
    let topic = cluster.create("topic", &[&[2, 3]], &[("unclean.leader.election.enable", "true")]).await;
    for round in 0..5 {
        cluster.put(&topic, 0, -1, format!("both {round}").as_bytes()).await;
    }
    cluster.kill(3).await;
    cluster.wait_for_isr(&topic, 0, &[2]).await;
    for round in 0..7 {
        cluster.put(&topic, 0, 1, format!("only 2 has {round}").as_bytes()).await;
    }
    cluster.kill(2).await;
    wait_for("no leader", || cluster.registration(&topic, 0).leader.0 == -1).await;
    cluster.begin(3).await;
    wait_for("an unclean leader", || cluster.registration(&topic, 0).leader.0 == 3).await;
    for round in 0..3 {
        cluster.put(&topic, 0, 1, format!("only 3 has {round}").as_bytes()).await;
    }
    cluster.begin(2).await;
    cluster.wait_for_isr(&topic, 0, &[2, 3]).await;
    let log = values_of(&cluster.assert_same(&topic, 0, &[2, 3]).await);
    let texts: Vec<_> = log.iter().map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect();
    let expected =
        ["both 0", "both 1", "both 2", "both 3", "both 4", "only 3 has 0", "only 3 has 1", "only 3 has 2"];
    assert_eq!(texts, expected);
    cluster.stop_all().await;
}
