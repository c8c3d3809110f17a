//! Streams from and to topics of a broker: what is written is read, offsets move only with what has arrived, and a stream that is
//! killed goes on where its sink had got to.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How long a condition may take to come about.
const LIMIT: Duration = Duration::from_secs(90);

fn thalweg(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(arguments).env_remove("RUST_LOG").env_remove("THALWEG_BOOTSTRAP_SERVER");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end with this on standard input: exit code, standard output, standard error.
fn run(command: &mut Command, input: &[u8]) -> (Option<i32>, String, String) {
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // Whoever needs no input may have ended.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A process, ended when it is dropped.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id() as i32).expect("it has an id");
        kill_process(pid, signal).expect("it runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Broker {
    _process: Running,
    address: String,
    dir: tempfile::TempDir,
}

impl Broker {
    fn start() -> Broker {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let data = dir.path().join("data");
        let data = data.to_str().expect("text");
        let settings = ["--set", "group.initial.rebalance.delay.ms=0", "--set", "num.partitions=3"];
        let mut command = thalweg(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data]);
        let mut process = command.args(settings).stdout(Stdio::null()).spawn().expect("the binary runs");
        let mut lines = BufReader::new(process.stderr.take().expect("it is a pipe")).lines();
        let said = lines.find_map(|line| {
            let line = line.expect("text");
            line.split_once("listens on PLAINTEXT://").map(|(_, rest)| rest.to_owned())
        });
        let address = said.and_then(|said| said.split(',').next().map(str::to_owned)).expect("an address");
        // What it says later is read, so that it never waits for this end.
        std::thread::spawn(move || lines.for_each(drop));
        let broker = Broker { _process: Running(process), address, dir };
        for topic in ["in", "out"] {
            let create =
                ["topic", "create", topic, "--partitions", "3", "--bootstrap-server", &broker.address];
            let (code, _, error) = run(&mut thalweg(&create), b"");
            assert_eq!(code, Some(0), "{error}");
        }
        broker
    }

    /// A stream, in which `kafka` is this broker's.
    fn stream(&self, text: &str) -> Command {
        let text = text.replace("kafka ", &format!("kafka --bootstrap={} ", self.address));
        thalweg(&["stream", "run", &text])
    }

    fn produce(&self, numbers: std::ops::Range<u32>) {
        let lines: String = numbers.map(|number| format!("{number}\n")).collect();
        let text = "stdin | transform --expression=text --key=text | kafka --topic=in";
        let (code, _, error) = run(&mut self.stream(text), lines.as_bytes());
        assert_eq!(code, Some(0), "{error}");
    }
}

fn numbers(lines: &str) -> Vec<u32> {
    lines.lines().map(|line| line.parse().expect("a number")).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut waited = Duration::ZERO;
    while !holds() {
        assert!(waited < LIMIT, "{what} did not come about");
        let step = Duration::from_millis(20);
        pause(step);
        waited += step;
    }
}

#[expect(clippy::disallowed_methods, reason = "a test waits on a thread of its own")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn what_is_written_to_a_topic_is_read_with_its_keys_from_wherever_one_likes() {
    let broker = Broker::start();
    broker.produce(0..1000);
    let read = |options: &str| {
        let (code, out, error) =
            run(&mut broker.stream(&format!("kafka --topics=in --untilEnd=true {options} | stdout")), b"");
        assert_eq!(code, Some(0), "{options}: {error}");
        numbers(&out)
    };
    let all = read("");
    assert_eq!(all.len(), 1000);
    assert_eq!(all.iter().copied().collect::<BTreeSet<_>>(), (0..1000).collect());
    let of_one = read("--partitions=1");
    assert!(of_one.len() > 200 && of_one.is_sorted(), "{of_one:?}");
    assert_eq!(read("--partitions=1 --from=offset:5"), of_one[5..]);
    assert_eq!(read("--from=timestamp:0").len(), 1000);
    assert_eq!(read("--from=latest"), [0; 0]);
    let keys = "kafka --topics=in --untilEnd=true | transform --expression=key | counter";
    let (code, out, error) = run(&mut broker.stream(keys), b"");
    assert_eq!((code, out.as_str()), (Some(0), "stream: 1000\n"), "{error}");
}

#[test]
fn a_group_goes_on_where_its_sink_had_got_to() {
    let broker = Broker::start();
    broker.produce(0..500);
    let file = broker.dir.path().join("seen.txt");
    let text_of_stream = format!("kafka --topics=in --group=g | file --path={}", file.display());
    let start =
        || Running(broker.stream(&text_of_stream).stderr(Stdio::inherit()).spawn().expect("the binary runs"));
    let mut first = start();
    until("all of the first part", || text(&file).lines().count() >= 500);
    first.signal(Signal::INT);
    assert_eq!(first.0.wait().expect("it ends").code(), Some(0));
    broker.produce(500..800);
    let mut second = start();
    until("all of the second part", || text(&file).lines().count() >= 800);
    second.signal(Signal::INT);
    assert_eq!(second.0.wait().expect("it ends").code(), Some(0));
    // Stopped in order, it delivers nothing twice.
    let mut seen = numbers(&text(&file));
    seen.sort_unstable();
    assert_eq!(seen, (0..800).collect::<Vec<_>>());
}

#[test]
fn a_stream_that_is_killed_delivers_every_record_at_least_once() {
    let broker = Broker::start();
    let count = 10_000;
    broker.produce(0..count);
    let properties = broker.dir.path().join("properties");
    std::fs::write(&properties, "session.timeout.ms=6000\nheartbeat.interval.ms=500\n")
        .expect("it can be written");
    // Slow enough to be killed in the middle, more than one commit after its start.
    let text_of_stream = format!(
        "kafka --topics=in --group=g --properties={} | rate-limit --rate=2000 --burst=100 | kafka --topic=out",
        properties.display()
    );
    let written = || {
        let (code, out, error) = run(&mut broker.stream("kafka --topics=out --untilEnd=true | counter"), b"");
        assert_eq!(code, Some(0), "{error}");
        out.trim_start_matches("stream: ").trim().parse::<u32>().expect("a count")
    };
    let first = broker.stream(&text_of_stream).stderr(Stdio::inherit()).spawn().expect("the binary runs");
    let first = Running(first);
    until("some records", || written() > count / 5);
    first.signal(Signal::KILL);
    drop(first);
    let last =
        Running(broker.stream(&text_of_stream).stderr(Stdio::inherit()).spawn().expect("the binary runs"));
    let seen = || {
        let (_, out, _) = run(&mut broker.stream("kafka --topics=out --untilEnd=true | stdout"), b"");
        numbers(&out).into_iter().collect::<BTreeSet<_>>()
    };
    until("every record", || seen().len() == count as usize);
    drop(last);
}

#[test]
fn what_cannot_be_reached_or_is_not_there_is_told() {
    let broker = Broker::start();
    let (code, _, error) = run(&mut broker.stream("kafka --topics=nope | null"), b"");
    assert_eq!(code, Some(1));
    assert!(error.contains("Topic nope: there is no such topic"), "{error}");
    let (code, _, error) = run(&mut broker.stream("kafka --topics=in --partitions=7 | null"), b"");
    assert_eq!(code, Some(1));
    assert!(error.contains("it has no partition 7: 0 to 2 would be right"), "{error}");
    let (code, _, error) = run(&mut broker.stream("kafka --topics=in --group=g --untilEnd=true | null"), b"");
    assert_eq!(code, Some(1));
    assert!(error.contains("leave out --partitions and --untilEnd"), "{error}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let text = format!("stdin | kafka --bootstrap={free} --topic=x --deliveryTimeout=1s");
    let (code, _, error) = run(&mut thalweg(&["stream", "run", &text]), b"a\n");
    assert_eq!(code, Some(1));
    assert!(error.contains("Topic x did not take a message"), "{error}");
}
