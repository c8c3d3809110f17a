//! The commands in the documents work: blocks marked `sh run` are run as they stand, page by page, from top
//! to bottom.
//!
//! - `sh run`: runs in the page's own folder, and must succeed. A `text` block right behind it is its output,
//!   with `…` for what varies.
//! - `sh run background`: every line is a server, which must come up, and is stopped at the end of the page.
//! - `sh run kafka`, also with `background`: the same with Apache Kafka's tools in the path, from the jars in
//!   `KAFKA_CLASSPATH`.
//!
//! Other marks are in the rule `commands` of `cargo xtask tidy`. A page runs in namespaces of its own: its
//! servers have the ports that the page says, and none outlives it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The tools of Apache Kafka that pages use, and their classes.
const TOOLS: [(&str, &str); 10] = [
    ("connect-mirror-maker.sh", "org.apache.kafka.connect.mirror.MirrorMaker"),
    ("kafka-configs.sh", "kafka.admin.ConfigCommand"),
    ("kafka-console-consumer.sh", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    ("kafka-console-producer.sh", "org.apache.kafka.tools.ConsoleProducer"),
    ("kafka-consumer-groups.sh", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    ("kafka-features.sh", "org.apache.kafka.tools.FeatureCommand"),
    ("kafka-reassign-partitions.sh", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    ("kafka-server-start.sh", "kafka.Kafka"),
    ("kafka-storage.sh", "kafka.tools.StorageTool"),
    ("kafka-topics.sh", "org.apache.kafka.tools.TopicCommand"),
];

/// Namespaces for a page: with rights of root only inside, or, where that is forbidden, by root.
const SPACES: [&[&str]; 2] = [&["--user", "--map-root-user"], &[]];
const SPACE: [&str; 6] = ["--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"];

/// For a page, most of which waits for servers of Apache Kafka.
const LIMIT_S: &str = "600";

/// What a script starts with: the loopback of the namespace goes up, and servers are started and awaited.
const PRELUDE: &str = r#"
set -euo pipefail
place=$PWD
python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 0x49))'
last=/dev/null
# A block that fails has redirected the output.
exec 3>&1
trap 'code=$?; [ $code = 0 ] || tail -n 40 "$last" "$place"/background.* >&3' EXIT
background() {
  local log
  log=$(mktemp "$place/background.XXXX")
  bash -c "exec $1" >"$log" 2>&1 </dev/null &
  for _ in $(seq 900); do
    if grep -qE 'listens on|listening on|Ctrl-C|Kafka Server started|Kafka MirrorMaker started' "$log"; then return; fi
    kill -0 $! || { echo "It ended: $1"; return 1; }
    sleep 0.1
  done
  echo "It does not come up: $1"
  return 1
}
"#;

/// A block of a page that is run, or that is the output of the one before.
struct Block {
    line: usize,
    marks: Vec<String>,
    text: String,
}

impl Block {
    /// Whether it has one of the marks that say how it is run.
    fn is(&self, mark: &str) -> bool {
        self.is_run() && self.marks[2..].iter().any(|has| has == mark)
    }

    fn is_run(&self) -> bool {
        self.marks.len() >= 2 && self.marks[..2] == ["sh", "run"]
    }

    fn is_output(&self) -> bool {
        self.marks == ["text"]
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (line, text) in (1..).zip(page.lines()) {
        if let Some(info) = text.strip_prefix("```") {
            if !inside {
                let marks = info.split_whitespace().map(str::to_owned).collect();
                blocks.push(Block { line, marks, text: String::new() });
            }
            inside = !inside;
        } else if let Some(block) = blocks.last_mut().filter(|_| inside) {
            let _ = writeln!(block.text, "{text}");
        }
    }
    blocks
}

/// The commands of a block: lines without comments, joined where they go on.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned()).collect()
}

fn script(name: &str, blocks: &[Block], with_kafka: bool) -> String {
    let mut script = PRELUDE.to_owned();
    for block in blocks.iter().filter(|block| block.is_run()) {
        if block.is("kafka") && !with_kafka {
            continue;
        }
        let _ = writeln!(script, "echo '-- docs/{name}:{}'", block.line);
        if block.is("background") {
            for command in commands(&block.text) {
                let _ = writeln!(script, "background '{}'", command.replace('\'', r"'\''"));
            }
        } else {
            let _ =
                writeln!(script, "last=$place/output.{0}\n{{\n{1}}} >\"$last\" 2>&1", block.line, block.text);
        }
    }
    script
}

/// Whether `line` is `pattern`, in which `…` stands for anything.
fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.trim().split('…');
    let Some(mut rest) = line.trim().strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut open = false;
    for part in parts {
        open = true;
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        open &= part.is_empty();
    }
    rest.is_empty() || open
}

/// Puts the binary, and Kafka's tools if there are any, into a folder for the path.
fn programs(dir: &Path, classpath: Option<&str>) {
    let add = |name: &str, text: String| {
        let path = dir.join(name);
        fs::write(&path, text).expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    };
    add("thalweg", format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_thalweg")));
    let Some(classpath) = classpath else { return };
    let options = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1";
    for (name, class) in TOOLS {
        let is_watched = ["kafka.Kafka", "org.apache.kafka.connect.mirror.MirrorMaker"].contains(&class);
        let logs = if is_watched { " -Dorg.apache.logging.log4j.level=INFO" } else { "" };
        add(name, format!("#!/bin/sh\nexec java {options}{logs} -cp '{classpath}' {class} \"$@\"\n"));
    }
    // Processes of the namespace only.
    add(
        "kafka-server-stop.sh",
        "#!/bin/sh\npkill -f kafka.Kafka\nwhile pgrep -f kafka.Kafka >/dev/null; do sleep 0.1; done\n"
            .to_owned(),
    );
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skipped(name: &str, what: &str) {
    eprintln!("SKIPPED: the commands {what} in docs/{name}");
}

/// `unshare` with the options that are allowed here.
fn namespaces() -> Option<Command> {
    let with = |spaces: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(spaces).args(SPACE);
        command
    };
    let works = |spaces: &&[&str]| {
        let status = with(spaces).arg("true").stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    SPACES.into_iter().find(|spaces| works(spaces)).map(with)
}

fn run_page(name: &str) {
    let page = fs::read_to_string(Path::new(DOCS).join(name)).expect("the page exists");
    let blocks = blocks(&page);
    let classpath = std::env::var("KAFKA_CLASSPATH").ok().filter(|path| !path.trim().is_empty());
    if classpath.is_none() && blocks.iter().any(|block| block.is("kafka")) {
        skipped(name, "of Apache Kafka: set KAFKA_CLASSPATH to its jars; some");
    }
    let Some(mut command) = namespaces() else {
        skipped(name, "of a shell: this system allows no namespaces (unshare); all");
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let (programs_dir, work) = (dir.path().join("programs"), dir.path().join("work"));
    fs::create_dir(&programs_dir).expect("a new folder");
    fs::create_dir(&work).expect("a new folder");
    programs(&programs_dir, classpath.as_deref());
    let path = std::env::var("PATH").unwrap_or_default();
    let file = dir.path().join("script");
    fs::write(&file, script(name, &blocks, classpath.is_some())).expect("the folder is ours");
    command.args(["timeout", LIMIT_S, "bash"]).arg(file).current_dir(&work).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", programs_dir.display())).env("HOME", dir.path());
    for variable in ["THALWEG_BOOTSTRAP_SERVER", "THALWEG_COMMAND_CONFIG", "RUST_LOG"] {
        command.env_remove(variable);
    }
    let output = command.output().expect("unshare runs");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "docs/{name}: the last block named here failed\n{said}");
    assert!(said.contains("-- docs/"), "docs/{name} has commands that run");
    compare_output(name, &blocks, &work);
}

/// Compares the output of blocks with the blocks that follow them. Those that did not run have none.
fn compare_output(name: &str, blocks: &[Block], work: &Path) {
    for pair in blocks.windows(2).filter(|pair| pair[0].is_run() && pair[1].is_output()) {
        let Ok(output) = fs::read_to_string(work.join(format!("output.{}", pair[0].line))) else { continue };
        for line in pair[1].text.lines() {
            let found = output.lines().any(|is| matches(line, is));
            assert!(found, "docs/{name}:{}: no line is {line:?} in\n{output}", pair[1].line);
        }
    }
}

#[test]
fn the_commands_of_the_start_page_work() {
    run_page("start.md");
}

#[test]
fn the_commands_of_the_operate_page_work() {
    run_page("operate.md");
}

#[test]
fn the_commands_of_the_migrate_page_work() {
    run_page("migrate.md");
}

#[test]
fn the_commands_of_the_clusters_page_work() {
    run_page("clusters.md");
}

/// The pages of the everyday jobs of streams.
const JOBS: [&str; 5] = ["count-per-hour", "csv-to-topic", "enrich", "json-to-csv", "topic-to-http"];

#[test]
fn the_commands_of_the_pages_about_jobs_work() {
    let mut pages: Vec<String> = fs::read_dir(Path::new(DOCS).join("streams/jobs"))
        .expect("the folder exists")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    pages.sort();
    assert_eq!(pages, JOBS.map(|job| format!("{job}.md")));
    for job in JOBS {
        run_page(&format!("streams/jobs/{job}.md"));
    }
}

/// The row of the page about software, and the pinned version: the file, and the text before the version.
const PINNED: [(&str, &str, &str); 14] = [
    ("Flink", "compat/flink/pom.xml", "<flink.version>"),
    ("Flink", "compat/flink/pom.xml", "<connector.version>"),
    ("Spring", "compat/spring-kafka/pom.xml", "<spring-kafka.version>"),
    ("Spark", "compat/spark/pom.xml", "<spark.version>"),
    ("Kafka Streams", "compat/kafka-jars/pom.xml", "<kafka.version>"),
    ("librdkafka", "compat/confluent-kafka/requirements.txt", "confluent-kafka=="),
    ("librdkafka", "compat/franz-go/go.mod", "github.com/twmb/franz-go v"),
    ("librdkafka", "compat/kafkajs/package.json", "\"kafkajs\": \""),
    ("sarama", "compat/sarama/go.mod", "github.com/IBM/sarama v"),
    ("sarama", "compat/kafka-python/requirements.txt", "kafka-python=="),
    ("sarama", "compat/aiokafka/requirements.txt", "aiokafka=="),
    ("Apicurio", "compat/schema-registry/install", "version="),
    ("Prometheus", "trials/monitoring/requirements.txt", "prometheus-client=="),
    ("Prometheus", "trials/monitoring/requirements.txt", "opentelemetry-proto=="),
];

#[test]
fn tested_software_has_the_versions_that_its_tests_pin() {
    let page = fs::read_to_string(format!("{DOCS}/software.md")).expect("the page");
    for (software, file, before) in PINNED {
        let pins = fs::read_to_string(format!("{DOCS}/../{file}")).expect("the pins");
        let (_, rest) = pins.split_once(before).unwrap_or_else(|| panic!("{file} has no {before}"));
        let end = rest.find(['<', '"', '\n', ' ', ',']).unwrap_or(rest.len());
        let start = format!("| {software}");
        let row = page.lines().find(|line| line.starts_with(&start)).expect("a row");
        let versions = row.split('|').nth(2).expect("a column of versions");
        assert!(
            versions.contains(&rest[..end]),
            "{software}: {} of {file} is not in {versions}",
            &rest[..end]
        );
    }
}

#[test]
fn output_is_compared_with_gaps() {
    for (pattern, line, is) in [
        ("a … c", "a b c", true),
        ("a …", "a b c", true),
        ("a", "a b", false),
        ("… c", "a c d", false),
        ("  a", "a  ", true),
        ("a … c …", "a b c d", true),
    ] {
        assert_eq!(matches(pattern, line), is, "{pattern} {line}");
    }
}
