//! What the console costs: time and memory of its pages with 10,000 topics and 1,000 groups, and what 20
//! viewers and a scraper of metrics, or eight searches, take from a broker that is produced to. Run it with
//! `cargo test --release -p thalweg --test it console_cost:: -- --ignored --nocapture --test-threads 1`.

#![expect(clippy::print_stderr, reason = "the figures are printed")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_client::{
    Admin, Cluster, CommittedOffset, Connection, ConnectionOptions, NewTopic, Properties, TopicPartition,
};
use thalweg_record::{BatchBuilder, BatchOptions, Offset};
use thalweg_wire::Records;
use thalweg_wire::request::ProduceRequest;
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use tokio::time::Instant;

use super::binary::{run, thalweg};
use super::node::Node;

const TOPICS: usize = 10_000;
const GROUPS: usize = 1_000;
/// Topics of one request.
const CREATED_AT_ONCE: usize = 1_000;
/// Partitions in which each group has an offset.
const OFFSETS: usize = 10;
/// The bars: for a page, for the first page of a new node, for what the pages add to the memory of the node.
const PAGE_MAX: Duration = Duration::from_millis(500);
const FIRST_PAGE_MAX: Duration = Duration::from_millis(100);
const ADDED_MAX_KIB: u64 = 64 << 10;
/// Each page is asked for so often, after a first time.
const ROUNDS: u32 = 10;
/// People who look at the console, and how often a page refreshes itself.
const VIEWERS: usize = 20;
const REFRESH: Duration = Duration::from_millis(2500);
/// What they look at.
const VIEWED: [&str; 4] = ["/", "/topics", "/topics/topic-00007", "/groups"];
const QUIET: [&str; 4] = [
    "listeners=PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions=8",
    "group.initial.rebalance.delay.ms=0",
    "log.index.size.max.bytes=65536",
];

/// A line of `/proc/PID/status`, in KiB.
fn status_kib(node: &Node, name: &str) -> u64 {
    let pid = node.pid().as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find(|line| line.starts_with(name)).expect("a line of the kernel");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// The processor time of the node so far.
fn processor_time(node: &Node) -> Duration {
    let pid = node.pid().as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = text.rsplit_once(')').expect("the name is in parentheses");
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

/// Counts the peak of the memory from now on.
fn forget_peak(node: &Node) {
    let pid = node.pid().as_raw_nonzero();
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a process of the same user");
}

async fn admin(node: &Node) -> Admin {
    let options = ConnectionOptions::take(&mut Properties::new(), "cost").expect("no settings");
    let cluster = Cluster::connect(std::slice::from_ref(&node.address), &options).await.expect("it listens");
    Admin::new(cluster).with_timeout(Duration::from_secs(120))
}

async fn fill(node: &Node, topics: usize, groups: usize) {
    let admin = admin(node).await;
    let names: Vec<String> = (0..topics).map(|number| format!("topic-{number:05}")).collect();
    for names in names.chunks(CREATED_AT_ONCE) {
        let wanted: Vec<NewTopic> = names.iter().map(NewTopic::new).collect();
        let created = admin.create_topics(&wanted, false).await.expect("an answer");
        for (name, outcome) in created {
            outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    for number in 0..groups {
        let at = |place: usize| TopicPartition::new(names[(number * OFFSETS + place) % topics].as_str(), 0);
        let offsets: BTreeMap<TopicPartition, CommittedOffset> =
            (0..OFFSETS).map(|place| (at(place), CommittedOffset::new(Offset(0)))).collect();
        admin.alter_group_offsets(&format!("group-{number:04}"), &offsets).await.expect("an empty group");
    }
}

fn timed(node: &Node, path: &str) -> (Duration, usize) {
    let began = Instant::now();
    let answer = node.get(path);
    let time = began.elapsed();
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    (time, answer.body.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "creates 10,000 topics, and measures: alone, in the nightly form of scripts/test"]
async fn pages_of_ten_thousand_topics_are_quick_and_take_little_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &QUIET);
    let (first, bytes) = timed(&node, "/");
    eprintln!("first page of a new node: {first:?}, {bytes} bytes");
    assert!(first < FIRST_PAGE_MAX, "the first page took {first:?}");
    drop(node);

    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &QUIET);
    let began = Instant::now();
    fill(&node, TOPICS, GROUPS).await;
    eprintln!("{TOPICS} topics and {GROUPS} groups after {:?}", began.elapsed());
    // The broker's own work for new topics ends.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = status_kib(&node, "VmRSS");
    forget_peak(&node);
    let pages = [
        "/",
        "/topics",
        "/topics?sort=size",
        "/topics?sort=rate",
        "/topics?filter=77&page=2",
        "/topics?page=200",
        "/topics/topic-05000",
        "/topics/topic-05000/configuration",
        "/topics/topic-05000/producers",
        "/topics/topic-05000/messages",
        "/groups",
        "/groups?page=20",
        "/group?id=group-0500",
        "/transactions",
        "/brokers",
        "/brokers/1",
        "/quorum",
        "/quotas",
        "/api/v1/topics?per_page=1000",
        "/api/v1/groups?per_page=1000",
    ];
    let mut slow = Vec::new();
    let mut peak = before;
    for path in pages {
        let (first, bytes) = timed(&node, path);
        let mut times: Vec<Duration> = (0..ROUNDS).map(|_| timed(&node, path).0).collect();
        times.sort_unstable();
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        eprintln!(
            "{path}: first {} ms, median {:.1} ms, at most {:.1} ms, {bytes} bytes; memory {:+} KiB at most, now {:+}",
            first.as_millis(),
            median.as_secs_f64() * 1e3,
            most.as_secs_f64() * 1e3,
            status_kib(&node, "VmHWM") as i64 - before as i64,
            status_kib(&node, "VmRSS") as i64 - before as i64,
        );
        peak = peak.max(status_kib(&node, "VmHWM"));
        forget_peak(&node);
        slow.extend([first, most].into_iter().filter(|time| *time > PAGE_MAX).map(|time| (path, time)));
    }
    // Readings are made again and again while somebody looks.
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        for path in VIEWED {
            let (time, _) = timed(&node, path);
            slow.extend((time > PAGE_MAX).then_some((path, time)));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (peak, now) = (peak.max(status_kib(&node, "VmHWM")), status_kib(&node, "VmRSS"));
    eprintln!("memory: {before} KiB before the first page, {peak} KiB at most, {now} KiB at the end");
    assert!(slow.is_empty(), "slower than {PAGE_MAX:?}: {slow:?}");
    assert!(peak < before + ADDED_MAX_KIB, "the pages added {} KiB", peak - before);
}

/// Viewers and a scraper of metrics, until it is dropped.
struct Viewers {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<u64>>,
}

impl Viewers {
    fn start(node: &Node, viewers: usize) -> Viewers {
        let stop = Arc::new(AtomicBool::new(false));
        let looking = (0..viewers).map(|number| {
            let begin = REFRESH / viewers as u32 * number as u32;
            (VIEWED[number % VIEWED.len()], begin, REFRESH)
        });
        let scraping = ("/metrics", Duration::ZERO, Duration::from_secs(1));
        let threads = looking.chain([scraping]).map(|(path, begin, every)| {
            let (stop, http) = (Arc::clone(&stop), node.http.clone());
            std::thread::spawn(move || {
                let mut due = Instant::now() + begin;
                let mut answers = 0;
                while !stop.load(Ordering::Relaxed) {
                    let left = due.saturating_duration_since(Instant::now());
                    if !left.is_zero() {
                        std::thread::park_timeout(left.min(Duration::from_millis(100)));
                        continue;
                    }
                    due += every;
                    let answer = super::node::ask(&http, "GET", path, "", "");
                    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
                    answers += 1;
                }
                answers
            })
        });
        Viewers { threads: threads.collect(), stop }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("every answer was right")).sum()
    }
}

/// One turn of a producer: records per second, and the processor time of the broker for all of them.
fn produce(node: &Node, records: u64) -> (f64, Duration) {
    let before = processor_time(node);
    let began = Instant::now();
    let mut command = thalweg(&format!(
        "producer-perf-test --topic topic-00007 --num-records {records} --record-size 128 --throughput -1 --producer-props \
         bootstrap.servers={} batch.size=16384 linger.ms=5 acks=1",
        node.address
    ));
    let (code, _, error) = run(&mut command);
    assert_eq!(code, Some(0), "{error}");
    (records as f64 / began.elapsed().as_secs_f64(), processor_time(node) - before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it compares times: alone, in the nightly form of scripts/test"]
async fn twenty_viewers_cost_a_hundredth_of_the_produce_rate() {
    let dir = tempfile::tempdir().expect("a directory");
    // The turns write 36 GB; by default, retention looks every five minutes.
    let bounded = [
        "log.retention.bytes=1073741824",
        "log.segment.bytes=268435456",
        "log.retention.check.interval.ms=1000",
        "log.segment.delete.delay.ms=1000",
    ];
    let node = Node::start(dir.path(), &[&QUIET[..], &bounded].concat());
    fill(&node, 100, 20).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    const IDLE: Duration = Duration::from_secs(20);
    let alone = processor_time(&node);
    tokio::time::sleep(IDLE).await;
    let alone = processor_time(&node) - alone;
    let viewers = Viewers::start(&node, VIEWERS);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let watched = processor_time(&node);
    tokio::time::sleep(IDLE).await;
    let watched = processor_time(&node) - watched;
    let answers = viewers.end();
    let share = (watched.as_secs_f64() - alone.as_secs_f64()) / IDLE.as_secs_f64();
    eprintln!(
        "an idle broker: {alone:?} of processor time in {IDLE:?}; with {VIEWERS} viewers and a scraper: {watched:?} ({answers} answers): \
         {:.2} % of a core",
        share * 100.0
    );

    let records = 20_000_000;
    produce(&node, records / 4);
    let (mut rates, mut costs) = ([0.0, 0.0], [Duration::ZERO, Duration::ZERO]);
    const TURNS: u32 = 6;
    for turn in 0..TURNS * 2 {
        // A B B A: changes of the machine affect both alike.
        let is_watched = matches!(turn % 4, 1 | 2);
        let viewers = is_watched.then(|| Viewers::start(&node, VIEWERS));
        let (rate, cost) = produce(&node, records);
        if let Some(viewers) = viewers {
            viewers.end();
        }
        eprintln!("watched: {is_watched}: {rate:.0} records/s, {cost:?} of the broker's processor time");
        rates[usize::from(is_watched)] += rate / f64::from(TURNS);
        costs[usize::from(is_watched)] += cost / TURNS;
    }
    eprintln!(
        "produce rate with viewers / without: {:.4}; processor time for the same records: {:.4}",
        rates[1] / rates[0],
        costs[1].as_secs_f64() / costs[0].as_secs_f64()
    );
    // Rates vary from turn to turn by more than the bar; what viewers take of the processor does not.
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    assert!(share / cores < 0.01, "viewers take {:.2} % of the machine", share / cores * 100.0);
}

/// A search that looks long at each message, and finds none: an expression within expressions.
fn costly_expression() -> String {
    let matched = r#"text.matches("(a|b|ab)*c(a|b|ab)*d(a|b|ab)*e")"#;
    (0..8).fold(matched.to_owned(), |inner, _| format!("({inner} || {matched})"))
}

/// The median time of a produce with one record, in the milliseconds that these searches leave.
async fn produce_median(node: &Node, searches: usize) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let query: String = costly_expression().bytes().map(|byte| format!("%{byte:02X}")).collect();
    let path = format!("/api/v1/topics/topic-00001/messages?from=earliest&expression={query}");
    let searching = (0..searches).map(|_| {
        let (stop, http, path) = (Arc::clone(&stop), node.http.clone(), path.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let answer = super::node::ask(&http, "GET", &path, "", "");
                assert!([200, 429].contains(&answer.status), "{}: {}", answer.status, answer.body);
            }
        })
    });
    let searching: Vec<_> = searching.collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let connected = Connection::connect(&node.address, &ConnectionOptions::default()).await;
    let connection = connected.expect("it listens");
    let mut times = Vec::new();
    for _ in 0..1000 {
        let began = Instant::now();
        let data = PartitionProduceData { index: 0, records: Some(record()) };
        let topic = TopicProduceData {
            name: "topic-00002".to_owned(),
            partition_data: vec![data],
            ..Default::default()
        };
        let request =
            ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() };
        let answer = connection.send_at(&request, 12).await.expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for searching in searching {
        searching.join().expect("every answer was right");
    }
    times.sort_unstable();
    times[times.len() / 2]
}

fn record() -> Records {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(1_700_000_000_000, None, Some(b"{}"), &[]).expect("it fits");
    Records::Inline(batch.build())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it compares times: alone, in the nightly form of scripts/test"]
async fn eight_costly_searches_do_not_slow_a_producer() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &QUIET);
    fill(&node, 10, 0).await;
    let mut command = thalweg(&format!(
        "producer-perf-test --topic topic-00001 --num-records 500000 --record-size 512 --throughput -1 --producer-props \
         bootstrap.servers={}",
        node.address
    ));
    let (code, _, error) = run(&mut command);
    assert_eq!(code, Some(0), "{error}");
    let alone = produce_median(&node, 0).await;
    let searched = produce_median(&node, 8).await;
    eprintln!("a produce takes {alone:?}, and beside 8 searches {searched:?}");
    assert!(searched < alone * 5 + Duration::from_millis(2), "{alone:?} became {searched:?}");
}

/// The size of what pages load, in the binary.
#[test]
fn assets_are_small() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../console/assets");
    let files = std::fs::read_dir(assets).expect("the assets").map(|file| file.expect("a file"));
    let bytes: u64 = files.map(|file| file.metadata().expect("its size").len()).sum();
    assert!(bytes < 500 << 10, "{bytes} bytes");
}
