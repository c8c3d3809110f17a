//! The messages of a topic, as the search engine reads them from a broker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_browse::{
    Capacity, ControlKind, End, EndReason, Event, Filter, HeaderTest, Limits, Masking, Message, NewMessage,
    Order, PrincipalCapacity, Query, Search, SearchEnd, SearchError, Start, TextTest, produce,
};
use thalweg_client::{
    Cluster, ConnectionOptions, Producer, ProducerConfig, ProducerRecord, Properties, Waits,
};
use thalweg_record::{Compression, ControlRecordType, Header, Offset, TimestampType};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::binary::{Broker, run, thalweg, until};

/// Held by tests that look at the scanning threads of this process, in which all tests are.
pub static SCANS: Mutex<()> = Mutex::new(());

pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

pub(super) fn create(broker: &Broker, topic: &str, options: &str) {
    let mut command = thalweg(&format!("topic create {topic} {options}"));
    let (code, _, error) = run(command.env("THALWEG_BOOTSTRAP_SERVER", &broker.address));
    assert_eq!((code, error.as_str()), (Some(0), ""));
}

pub(super) async fn cluster(broker: &Broker) -> Cluster {
    let options = ConnectionOptions { waits: Some(Waits::default()), ..ConnectionOptions::default() };
    Cluster::connect(std::slice::from_ref(&broker.address), &options).await.expect("it runs")
}

pub(super) fn config(settings: &[&str]) -> ProducerConfig {
    let mut properties = Properties::new();
    for setting in settings {
        properties.set_text(setting).expect("a setting");
    }
    ProducerConfig::take(&mut properties).expect("settings")
}

/// Sends values, each with its number as the key, to a partition.
pub(super) async fn send(
    producer: &mut Producer,
    topic: &str,
    partition: i32,
    values: impl IntoIterator<Item = String>,
) {
    let topic = producer.topic(topic).await.expect("it is there");
    for (number, value) in (0u64..).zip(values) {
        let key = format!("k{number}");
        let headers = [Header::new("parity", Some(if number % 2 == 0 { b"even" } else { b"odd" }))];
        let record = ProducerRecord {
            topic,
            partition: Some(partition),
            timestamp: 1_700_000_000_000 + number as i64,
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &headers,
            sent_at: Instant::now(),
            number,
        };
        producer.send(&record).await.expect("there is room");
    }
    producer.flush().await;
}

fn order(number: u64) -> String {
    format!(
        r#"{{"id": {number}, "amount": {}.5, "card": "4711-{number}", "customer": {{"name": "c{}"}}}}"#,
        number % 100,
        number % 7
    )
}

pub(super) async fn fill(broker: &Broker, topic: &str, partitions: i32, each: u64) {
    let mut producer = Producer::new(cluster(broker).await, config(&[]), |_| {});
    for partition in 0..partitions {
        send(&mut producer, topic, partition, (0..each).map(order)).await;
    }
    producer.close().await;
}

/// All events to the end.
pub(super) async fn all(mut search: Search) -> (Vec<Message>, SearchEnd, Vec<String>) {
    let (mut found, mut waits) = (Vec::new(), Vec::new());
    let ended = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            match search.next().await.expect("the last event is the end") {
                Event::Matches(matches) => found.extend(matches),
                Event::Waiting(text) => waits.push(text),
                Event::Progress(_) => {}
                Event::Ended(ended) => return ended,
            }
        }
    });
    let ended = ended.await.expect("it ends");
    (found, ended, waits)
}

pub(super) async fn search(broker: &Broker, query: Query) -> (Vec<Message>, SearchEnd) {
    let search = Search::start(cluster(broker).await, query, &Masking::default(), None).expect("a query");
    let (found, ended, _) = all(search).await;
    (found, ended)
}

fn places(found: &[Message]) -> Vec<(i32, i64)> {
    let mut places: Vec<_> = found.iter().map(|message| (message.partition, message.offset.0)).collect();
    places.sort_unstable();
    places
}

fn text(content: &Option<thalweg_browse::Content>) -> &str {
    content.as_ref().map_or("null", |content| std::str::from_utf8(&content.bytes).expect("text"))
}

#[test]
fn a_search_finds_what_matches_in_every_partition() {
    let broker = Broker::start();
    create(&broker, "orders", "--partitions 3");
    runtime().block_on(async {
        fill(&broker, "orders", 3, 1000).await;
        let filter = |filter| Query { filter, ..Query::new("orders") };
        let expression =
            Filter::expression("payload.amount > 98 && payload.customer.name == 'c1'").expect("valid");
        let (found, ended) = search(&broker, filter(expression)).await;
        let wanted: Vec<i64> = (0..1000).filter(|number| number % 100 >= 98 && number % 7 == 1).collect();
        let expected: Vec<(i32, i64)> =
            (0..3).flat_map(|p| wanted.iter().map(move |offset| (p, *offset))).collect();
        assert_eq!(places(&found), expected);
        assert!(matches!(ended.why, EndReason::Complete), "{:?}", ended.why);
        assert_eq!((ended.progress.records, ended.progress.matches), (3000, found.len() as u64));
        assert!(ended.progress.partitions.iter().all(|partition| partition.position == Offset(1000)));
        // Matches of a partition are in its order.
        for partition in 0..3 {
            let offsets: Vec<i64> =
                found.iter().filter(|m| m.partition == partition).map(|m| m.offset.0).collect();
            assert!(offsets.is_sorted(), "{offsets:?}");
        }
        let key = Filter { key: Some(TextTest::equals("k17")), ..Filter::default() };
        assert_eq!(places(&search(&broker, filter(key)).await.0), [(0, 17), (1, 17), (2, 17)]);
        let value = Filter { value: Some(TextTest::contains("4711-999\"")), ..Filter::default() };
        assert_eq!(places(&search(&broker, filter(value)).await.0), [(0, 999), (1, 999), (2, 999)]);
        let header = HeaderTest { name: "parity".to_owned(), value: Some(TextTest::equals("odd")) };
        let times = Filter {
            headers: vec![header],
            from_ms: Some(1_700_000_000_010),
            until_ms: Some(1_700_000_000_014),
            ..Filter::default()
        };
        let one = Query { partitions: vec![1], ..filter(times) };
        assert_eq!(places(&search(&broker, one).await.0), [(1, 11), (1, 13)]);
        let headers = Filter::expression("headers.parity == 'even' && sequence < 3").expect("valid");
        let one = Query { partitions: vec![2], ..filter(headers) };
        assert_eq!(places(&search(&broker, one).await.0), [(2, 0), (2, 2)]);
        // A message without a value for the expression is no match, and counted.
        let (found, ended) =
            search(&broker, filter(Filter::expression("payload.nothing > 1").expect("valid"))).await;
        assert_eq!((found.len(), ended.progress.without_value), (0, 3000));
        assert!(ended.progress.without_value_reason.is_some_and(|reason| reason.contains("No such key")));
    });
}

/// The priorities of this process's threads of a name: 0 is the usual one, 19 the lowest.
fn priorities(name: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let named = stats.filter(|stat| stat.contains(&format!("({name})")));
    // `proc_pid_stat(5)`: the third field follows the name; the nineteenth is wanted.
    let nice = |stat: String| stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok();
    named.filter_map(nice).collect()
}

#[test]
fn searches_with_a_share_have_low_priority_and_open_batches_within_a_limit() {
    const LARGE: [&str; 3] =
        ["compression.type=zstd", "max.request.size=100000000", "buffer.memory=200000000"];
    let _alone = SCANS.lock();
    let broker = Broker::start();
    create(&broker, "bombs", "");
    runtime().block_on(async {
        let mut producer = Producer::new(cluster(&broker).await, config(&LARGE), |_| {});
        for mib in [1, 20, 70] {
            send(&mut producer, "bombs", 0, ["x".repeat(mib << 20)]).await;
        }
        producer.close().await;
        let share = PrincipalCapacity::new(&Arc::new(Capacity::default()), &Arc::from("eve"));
        let (cluster, masking) = (cluster(&broker).await, Masking::default());
        let start = |query: Query, held: Box<dyn std::any::Any + Send + Sync>| {
            Search::start_sharing(cluster.clone(), query, &masking, None, share.clone(), held)
                .expect("a query")
        };
        let filter = share.filter("key == 'k0'").await.expect("an expression");
        let until = |end| Query { end, filter: filter.clone(), ..Query::new("bombs") };

        let (found, ended, _) = all(start(until(End::Before(Offset(2))), Box::new(()))).await;
        assert_eq!(places(&found), [(0, 0), (0, 1)], "{:?}", ended.why);
        let (found, ended, _) = all(start(until(End::Now), Box::new(()))).await;
        let EndReason::Failed(SearchError::Unreadable { reason }) = &ended.why else {
            panic!("{:?}", ended.why)
        };
        assert!(reason.contains("at offset 2") && reason.contains("none to more than 64 MiB"), "{reason}");
        assert!(found.iter().all(|message| message.offset < Offset(2)), "{:?}", places(&found));

        let _tail = start(Query { start: Start::Latest, ..until(End::Never) }, Box::new(()));
        let began = Instant::now();
        while !priorities("browse-scan").contains(&19) {
            let all = priorities("browse-scan");
            assert!(began.elapsed() < Duration::from_secs(30), "priorities: {all:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(share.filter("key ==").await.is_err());
    });
}

#[test]
fn starts_ends_and_limits_bound_a_search() {
    let broker = Broker::start();
    create(&broker, "orders", "");
    runtime().block_on(async {
        fill(&broker, "orders", 1, 1000).await;
        let range = |start, end| Query {
            start,
            end,
            limits: Limits { matches: None, ..Limits::default() },
            ..Query::new("orders")
        };
        for (start, end, expected) in [
            (Start::Earliest, End::Now, 0..1000),
            (Start::At(Offset(990)), End::Now, 990..1000),
            (Start::Last(5), End::Now, 995..1000),
            (Start::Latest, End::Now, 0..0),
            (Start::Time(1_700_000_000_500), End::Before(Offset(600)), 500..600),
            (Start::At(Offset(5000)), End::Now, 0..0),
            (Start::Earliest, End::Time(1_700_000_000_007), 0..7),
            (Start::At(Offset(10)), End::Before(Offset(5)), 0..0),
        ] {
            let (found, ended) = search(&broker, range(start, end)).await;
            let expected: Vec<(i32, i64)> = expected.map(|offset| (0, offset)).collect();
            assert_eq!(places(&found), expected, "{start:?} {end:?}");
            assert!(matches!(ended.why, EndReason::Complete), "{:?}", ended.why);
        }
        let limits = |limits| Query { limits, ..Query::new("orders") };
        let (found, ended) = search(&broker, limits(Limits { matches: Some(7), ..Limits::default() })).await;
        assert!(found.len() == 7 && matches!(ended.why, EndReason::Matches), "{:?}", ended.why);
        assert_eq!(ended.progress.partitions[0].position, Offset(7));
        assert_eq!(ended.progress.records, 7, "what was looked at is counted");
        let (found, ended) =
            search(&broker, limits(Limits { matches: None, bytes: Some(1000), ..Limits::default() })).await;
        assert!(found.len() < 20 && matches!(ended.why, EndReason::Bytes), "{:?}", ended.why);
        let short = Limits { matches: Some(1), message_bytes: 10, ..Limits::default() };
        let (found, _) = search(&broker, limits(short)).await;
        let value = found[0].value.as_ref().expect("a value");
        assert_eq!((&value.bytes[..], value.whole_bytes), (&br#"{"id": 0, "#[..], order(0).len()));
        let tail = Query {
            end: End::Never,
            limits: Limits { matches: None, time: Some(Duration::from_millis(700)), ..Limits::default() },
            ..Query::new("orders")
        };
        let (found, ended) = search(&broker, tail).await;
        assert!(found.len() == 1000 && matches!(ended.why, EndReason::Time), "{:?}", ended.why);
        for (query, part) in [
            (Query::new("nope"), "Topic nope: UNKNOWN_TOPIC_OR_PARTITION"),
            (
                Query { partitions: vec![3], ..Query::new("orders") },
                "Topic orders has no partition 3: expected 0 to 0",
            ),
        ] {
            let (_, ended) = search(&broker, query).await;
            let EndReason::Failed(SearchError::Range(error)) = ended.why else { panic!("{:?}", ended.why) };
            assert!(error.to_string().starts_with(part), "{error}");
        }
    });
}

#[test]
fn every_codec_is_read_and_named() {
    let broker = Broker::start();
    create(&broker, "appended", "--config message.timestamp.type=LogAppendTime");
    runtime().block_on(async {
        let codecs = [
            ("none", Compression::None),
            ("gzip", Compression::Gzip),
            ("snappy", Compression::Snappy),
            ("lz4", Compression::Lz4),
            ("zstd", Compression::Zstd),
        ];
        for (name, codec) in codecs {
            create(&broker, name, "");
            let settings = format!("compression.type={name}");
            let mut producer = Producer::new(cluster(&broker).await, config(&[&settings]), |_| {});
            send(&mut producer, name, 0, (0..500).map(order)).await;
            producer.close().await;
            let query =
                Query { filter: Filter::expression("payload.id == 321").expect("valid"), ..Query::new(name) };
            let (found, _) = search(&broker, query).await;
            let [message] = &found[..] else { panic!("{name}: {found:?}") };
            assert_eq!(
                (message.offset.0, text(&message.key), text(&message.value)),
                (321, "k321", order(321).as_str())
            );
            assert_eq!(
                (message.batch.compression, message.batch.timestamp_type),
                (Some(codec), TimestampType::CreateTime)
            );
            let producer = message.batch.producer.expect("producers are idempotent");
            assert!(producer.0.0 >= 0 && message.batch.sequence == Some(321), "{:?}", message.batch);
        }
        let message = NewMessage {
            topic: "appended".to_owned(),
            key: None,
            value: None,
            headers: vec![("h".to_owned(), None)],
            timestamp: 5,
            partition: None,
        };
        let stored = produce(cluster(&broker).await, config(&[]), &message).await.expect("stored");
        let (found, _) = search(&broker, Query::new("appended")).await;
        assert_eq!(places(&found), [(stored.partition, stored.offset.0)]);
        assert_eq!(found[0].batch.timestamp_type, TimestampType::LogAppendTime);
        assert!(found[0].timestamp > 5 && found[0].key.is_none() && found[0].value.is_none());
        assert_eq!((found[0].headers[0].name.as_str(), &found[0].headers[0].value), ("h", &None));
    });
}

#[test]
fn transactions_are_shown_with_their_markers_or_hidden() {
    let broker = Broker::start_with(&[
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    ]);
    create(&broker, "t", "");
    runtime().block_on(async {
        let settings = config(&["transactional.id=browsed"]);
        let mut producer = Producer::new(cluster(&broker).await, settings, |_| {});
        producer.topic("t").await.expect("it is there");
        producer.init_transactions().await.expect("a coordinator");
        for (value, commits) in [("committed", true), ("aborted", false)] {
            producer.begin_transaction().expect("none is open");
            send(&mut producer, "t", 0, [value.to_owned()]).await;
            match commits {
                true => producer.commit_transaction().await.expect("committed"),
                false => producer.abort_transaction().await.expect("aborted"),
            }
        }
        producer.begin_transaction().expect("none is open");
        send(&mut producer, "t", 0, ["open".to_owned()]).await;
        let values = |found: &[Message]| -> Vec<String> {
            let shown = |m: &Message| {
                m.batch.control.map_or(text(&m.value).to_owned(), |kind| format!("<{}>", kind.name()))
            };
            found.iter().map(shown).collect()
        };
        let (found, _) = search(&broker, Query::new("t")).await;
        assert_eq!(values(&found), ["committed", "aborted", "open"]);
        assert!(found.iter().all(|message| message.batch.is_transactional));
        let (found, _) = search(&broker, Query { control: true, ..Query::new("t") }).await;
        assert_eq!(values(&found), ["committed", "<commit>", "aborted", "<abort>", "open"]);
        assert_eq!(found[3].batch.control, Some(ControlKind::Known(ControlRecordType::Abort)));
        let (found, ended) = search(&broker, Query { read_committed: true, ..Query::new("t") }).await;
        assert_eq!(values(&found), ["committed"]);
        assert!(
            matches!(ended.why, EndReason::Complete),
            "an open transaction is not waited for: {:?}",
            ended.why
        );
        producer.abort_transaction().await.expect("aborted");
    });
}

/// The partition and offset of each message, in the order of the search.
pub(super) fn in_order(found: &[Message]) -> Vec<(i32, i64)> {
    found.iter().map(|message| (message.partition, message.offset.0)).collect()
}

#[test]
fn ordered_searches_merge_partitions_and_find_the_newest_matches() {
    let broker = Broker::start();
    create(&broker, "orders", "--partitions 3");
    create(&broker, "large", "");
    runtime().block_on(async {
        fill(&broker, "orders", 3, 1000).await;
        fill(&broker, "large", 1, 15_000).await;
        let query = |topic: &str, order, start, matches| Query {
            order,
            start,
            limits: Limits { matches: Some(matches), ..Limits::default() },
            ..Query::new(topic)
        };
        // The timestamps are the same in all partitions.
        for (order, start, expected) in [
            (Order::OldestFirst, Start::Earliest, [(0, 0), (1, 0), (2, 0), (0, 1)]),
            (Order::OldestFirst, Start::Time(1_700_000_000_500), [(0, 500), (1, 500), (2, 500), (0, 501)]),
            (Order::OldestFirst, Start::At(Offset(998)), [(0, 998), (1, 998), (2, 998), (0, 999)]),
            (Order::NewestFirst, Start::Earliest, [(0, 999), (1, 999), (2, 999), (0, 998)]),
        ] {
            let (found, ended) = search(&broker, query("orders", order, start, 4)).await;
            assert_eq!(in_order(&found), expected, "{order:?} {start:?}");
            assert!(matches!(ended.why, EndReason::Matches), "{:?}", ended.why);
            assert!(ended.progress.records <= 100, "{} records were read", ended.progress.records);
        }
        let (found, ended) =
            search(&broker, query("orders", Order::NewestFirst, Start::At(Offset(998)), 50)).await;
        assert_eq!(in_order(&found), [(0, 999), (1, 999), (2, 999), (0, 998), (1, 998), (2, 998)]);
        assert!(matches!(ended.why, EndReason::Complete), "{:?}", ended.why);
        assert!(ended.progress.partitions.iter().all(|one| one.from == Offset(998)), "{:?}", ended.progress);

        let with = |filter, query: Query| Query { filter, ..query };
        let text = |text: &str| Filter { value: Some(TextTest::contains(text)), ..Filter::default() };
        let newest = query("large", Order::NewestFirst, Start::Earliest, 3);
        let (found, ended) = search(&broker, with(text("\"amount\": 7.5"), newest.clone())).await;
        assert_eq!(in_order(&found), [(0, 14_907), (0, 14_807), (0, 14_707)]);
        let progress = &ended.progress;
        let read = (progress.partitions[0].from, progress.partitions[0].position);
        assert!(read.0 > Offset(1000) && read.1 == Offset(15_000), "{read:?}");
        assert_eq!(progress.records, u64::try_from(read.1.0 - read.0.0).expect("positive"));
        // All was read, and more was found than is wanted.
        let (found, ended) =
            search(&broker, query("large", Order::NewestFirst, Start::At(Offset(14_990)), 3)).await;
        assert_eq!(in_order(&found), [(0, 14_999), (0, 14_998), (0, 14_997)]);
        assert!(matches!(ended.why, EndReason::Matches), "{:?}", ended.why);
        // The only match is at the beginning.
        let key = Filter { key: Some(TextTest::equals("k3")), ..Filter::default() };
        let (found, ended) = search(&broker, with(key.clone(), newest.clone())).await;
        assert_eq!(in_order(&found), [(0, 3)]);
        assert!(matches!(ended.why, EndReason::Complete) && ended.progress.records == 15_000);
        let bounded = Limits { read_bytes: Some(1), ..newest.limits };
        let (found, ended) = search(&broker, with(key, Query { limits: bounded, ..newest })).await;
        assert!(found.is_empty() && matches!(ended.why, EndReason::ReadBytes), "{:?}", ended.why);
    });
}

#[test]
fn the_newest_messages_are_found_behind_markers_and_aborted_records() {
    let broker = Broker::start_with(&[
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    ]);
    create(&broker, "t", "");
    runtime().block_on(async {
        let settings = config(&["transactional.id=newest"]);
        let mut producer = Producer::new(cluster(&broker).await, settings, |_| {});
        producer.topic("t").await.expect("it is there");
        producer.init_transactions().await.expect("a coordinator");
        for number in 0..30 {
            producer.begin_transaction().expect("none is open");
            send(&mut producer, "t", 0, [number.to_string()]).await;
            producer.commit_transaction().await.expect("committed");
        }
        producer.begin_transaction().expect("none is open");
        send(&mut producer, "t", 0, (0..3000).map(order)).await;
        producer.abort_transaction().await.expect("aborted");
        let newest = |matches, read_committed| Query {
            order: Order::NewestFirst,
            read_committed,
            limits: Limits { matches: Some(matches), ..Limits::default() },
            ..Query::new("t")
        };
        let (found, ended) = search(&broker, newest(20, true)).await;
        let expected: Vec<i64> = (10..30).rev().map(|number| number * 2).collect();
        assert_eq!(found.iter().map(|message| message.offset.0).collect::<Vec<_>>(), expected);
        assert!(matches!(ended.why, EndReason::Matches), "{:?}", ended.why);
        let (found, ended) = search(&broker, newest(50, true)).await;
        assert!(found.len() == 30 && matches!(ended.why, EndReason::Complete), "{:?}", ended.why);
        let (found, _) = search(&broker, newest(2, false)).await;
        assert_eq!(in_order(&found), [(0, 3059), (0, 3058)]);
    });
}

#[test]
fn a_tail_follows_and_a_search_stops_where_the_topic_ended() {
    let broker = Broker::start();
    create(&broker, "growing", "--partitions 2");
    runtime().block_on(async {
        fill(&broker, "growing", 2, 10).await;
        let query = Query {
            start: Start::Latest,
            end: End::Never,
            filter: Filter::expression("payload.id >= 5").expect("valid"),
            ..Query::new("growing")
        };
        let mut tail =
            Search::start(cluster(&broker).await, query, &Masking::default(), None).expect("a query");
        let Some(Event::Progress(progress)) = tail.next().await else { panic!("progress comes first") };
        assert!(progress.partitions.iter().all(|partition| partition.start == Offset(10)), "{progress:?}");
        fill(&broker, "growing", 2, 7).await;
        let mut found = Vec::new();
        while found.len() < 4 {
            if let Event::Matches(matches) = tail.next().await.expect("it goes on") {
                found.extend(matches);
            }
        }
        assert_eq!(places(&found), [(0, 15), (0, 16), (1, 15), (1, 16)]);
    });
}

#[test]
fn masked_parts_are_neither_shown_nor_found() {
    let broker = Broker::start();
    create(&broker, "payments", "");
    create(&broker, "open", "");
    runtime().block_on(async {
        fill(&broker, "payments", 1, 20).await;
        fill(&broker, "open", 1, 20).await;
        let plain = NewMessage {
            topic: "payments".to_owned(),
            value: Some(b"card 4711-x".to_vec()),
            headers: vec![("Token".to_owned(), Some(b"secret".to_vec()))],
            ..NewMessage::default()
        };
        produce(cluster(&broker).await, config(&[]), &plain).await.expect("stored");
        let masking =
            Masking::parse("payments: card, /customer/name, key, header:token = <hidden>").expect("rules");
        let find = |topic: &str, filter: Filter| {
            let (query, masking, broker) = (Query { filter, ..Query::new(topic) }, masking.clone(), &broker);
            async move {
                all(Search::start(cluster(broker).await, query, &masking, None).expect("a query")).await.0
            }
        };
        let found = find("payments", Filter::default()).await;
        assert_eq!(found.len(), 21);
        for message in &found {
            let shown = thalweg_browse::show::to_json(message).to_string() + &format!("{message:?}");
            assert!(
                !shown.contains("4711") && !shown.contains("secret") && !shown.contains("\"k1"),
                "{shown}"
            );
        }
        assert_eq!(
            text(&found[3].value),
            r#"{"id": 3, "amount": 3.5, "card": "<hidden>", "customer": {"name": "<hidden>"}}"#
        );
        assert_eq!(text(&found[20].value), "<hidden>", "nobody can say where the card is");
        // No condition can ask for what is hidden.
        for probe in [
            "payload.card == '4711-3'",
            "text.contains('4711')",
            "string(raw).contains('4711')",
            "payload.customer.name.startsWith('c')",
            "key == 'k3'",
            "has(headers.Token) && headers.Token == 'secret'",
        ] {
            assert_eq!(find("payments", Filter::expression(probe).expect(probe)).await.len(), 0, "{probe}");
        }
        for probe in [
            Filter { key: Some(TextTest::equals("k3")), ..Filter::default() },
            Filter { value: Some(TextTest::contains("4711")), ..Filter::default() },
            Filter {
                headers: vec![HeaderTest {
                    name: "Token".to_owned(),
                    value: Some(TextTest::contains("secret")),
                }],
                ..Filter::default()
            },
        ] {
            assert_eq!(find("payments", probe.clone()).await.len(), 0, "{probe:?}");
        }
        assert_eq!(find("payments", Filter::expression("payload.id == 3").expect("valid")).await.len(), 1);
        let card = Filter::expression("payload.card == '4711-3'").expect("valid");
        assert_eq!(find("open", card).await.len(), 1, "other topics are as they are");
    });
}

/// Threads of this process that scan.
fn scanning_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "browse-scan").count()
}

#[test]
fn a_dropped_search_ends_at_once() {
    let _alone = SCANS.lock();
    let broker = Broker::start();
    create(&broker, "large", "--partitions 2");
    let runtime = runtime();
    runtime.block_on(async {
        let mut producer = Producer::new(
            cluster(&broker).await,
            config(&["compression.type=zstd", "linger.ms=100"]),
            |_| {},
        );
        for partition in 0..2 {
            send(&mut producer, "large", partition, (0..300_000).map(order)).await;
        }
        producer.close().await;
        // Slow on every record: CEL compiles the expression again and again.
        let slow = Filter::expression("text.matches('(a|b|c|d)+' + string(sequence))").expect("valid");
        let query =
            Query { filter: slow, limits: Limits { time: None, ..Limits::default() }, ..Query::new("large") };
        let mut search =
            Search::start(cluster(&broker).await, query, &Masking::default(), None).expect("a query");
        // It has scanned something, and has much to do.
        let before = scanning_threads();
        assert!(search.next().await.is_some());
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(scanning_threads() > 0, "{before}");
        drop(search);
    });
    #[expect(clippy::disallowed_methods, reason = "the threads end in the time of the world")]
    let dropped = std::time::Instant::now();
    until("the end of the scan", || scanning_threads() == 0);
    assert!(dropped.elapsed() < Duration::from_secs(10), "{:?}", dropped.elapsed());
}

#[test]
fn a_search_shows_its_missing_broker_and_goes_on_after_the_return() {
    let mut broker = Broker::start();
    create(&broker, "t", "");
    let runtime = runtime();
    runtime.block_on(fill(&broker, "t", 1, 50));
    let query = Query {
        end: End::Never,
        limits: Limits { matches: Some(60), time: None, ..Limits::default() },
        ..Query::new("t")
    };
    let (mut tail, mut found) = runtime.block_on(async {
        let mut tail =
            Search::start(cluster(&broker).await, query, &Masking::default(), None).expect("a query");
        let mut found = Vec::new();
        while found.len() < 50 {
            if let Event::Matches(matches) = tail.next().await.expect("it goes on") {
                found.extend(matches);
            }
        }
        (tail, found)
    });
    broker.kill();
    let began = Instant::now();
    let waiting = runtime.block_on(async {
        loop {
            match tail.next().await.expect("it goes on") {
                Event::Waiting(text) => return text,
                Event::Progress(_) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(
        waiting.contains(&broker.address) && began.elapsed() < Duration::from_secs(5),
        "{waiting} {:?}",
        began.elapsed()
    );
    broker.restart();
    runtime.block_on(async {
        fill(&broker, "t", 1, 10).await;
        let (more, ended, _) = all(tail).await;
        found.extend(more);
        assert!(matches!(ended.why, EndReason::Matches), "{:?}", ended.why);
    });
    let expected: Vec<(i32, i64)> = (0..60).map(|offset| (0, offset)).collect();
    assert_eq!(places(&found), expected);
}

/// A registry with one Avro schema and one of Protobuf.
fn registry() -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
            let request = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let schema = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"card","type":"string"}]}"#;
            let (status, body) = match request.split(' ').nth(1) {
                Some("/schemas/ids/7") => ("200 OK", serde_json::json!({"schema": schema}).to_string()),
                Some("/schemas/ids/8") => (
                    "200 OK",
                    serde_json::json!({"schemaType": "PROTOBUF", "schema": "syntax = \"proto3\";"})
                        .to_string(),
                ),
                _ => (
                    "404 Not Found",
                    serde_json::json!({"error_code": 40403, "message": "Schema not found"}).to_string(),
                ),
            };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    format!("http://{address}")
}

#[test]
fn values_of_a_schema_registry_are_decoded_masked_and_searched() {
    let broker = Broker::start();
    create(&broker, "avro", "");
    let url = registry();
    runtime().block_on(async {
        let avro = |id: u8, card: &str| {
            [&[0, 0, 0, 0, 7, id * 2, card.len() as u8 * 2][..], card.as_bytes()].concat()
        };
        let values = [
            avro(1, "4711"),
            avro(2, "4712"),
            vec![0, 0, 0, 0, 8, 10, 1],
            vec![0, 0, 0, 0, 9, 1],
            avro(3, "x")[..7].to_vec(),
        ];
        for value in values {
            let message =
                NewMessage { topic: "avro".to_owned(), value: Some(value), ..NewMessage::default() };
            produce(cluster(&broker).await, config(&[]), &message).await.expect("stored");
        }
        let registry = Arc::new(thalweg_browse::Registry::new(&url).expect("an address"));
        let find = |filter: Filter, masking: Masking| {
            let (query, registry, broker) =
                (Query { filter, ..Query::new("avro") }, Arc::clone(&registry), &broker);
            async move {
                all(Search::start(cluster(broker).await, query, &masking, Some(registry)).expect("a query"))
                    .await
                    .0
            }
        };
        let found = find(Filter::default(), Masking::default()).await;
        assert_eq!(text(&found[0].value), r#"{"id":1,"card":"4711"}"#);
        let notes: BTreeMap<i64, (u32, String, String)> = found
            .iter()
            .map(|message| {
                let note = message.value.as_ref().and_then(|value| value.schema.clone()).expect("a schema");
                (message.offset.0, (note.id, note.kind, note.problem.unwrap_or_default()))
            })
            .collect();
        assert_eq!(notes[&1], (7, "AVRO".to_owned(), String::new()));
        assert!(notes[&2].1 == "PROTOBUF" && notes[&2].2.contains("indexes of its message"), "{notes:?}");
        assert!(notes[&3].2.contains("404") && notes[&3].2.contains("Schema not found"), "{notes:?}");
        assert!(notes[&4].2.contains("ends early"), "{notes:?}");
        let second = Filter::expression("payload.id == 2 && payload.card == '4712'").expect("valid");
        assert_eq!(places(&find(second.clone(), Masking::default()).await), [(0, 1)]);
        let masking = Masking::parse("avro: card").expect("a rule");
        assert_eq!(find(second, masking.clone()).await.len(), 0);
        let found = find(Filter::default(), masking).await;
        assert_eq!(text(&found[0].value), r#"{"id":1,"card":"***"}"#);
        assert_eq!(text(&found[2].value), "***", "what is not decoded cannot be masked in part");
    });
}
