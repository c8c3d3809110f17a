//! The commands against Apache Kafka, and resets beside those of its kafka-consumer-groups.
//!
//! They need Kafka's jars: `export KAFKA_CLASSPATH="$(compat/kafka-jars/fetch)"`. Skipped, with a message,
//! without them.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use thalweg_ports::free_port;

use crate::binary::{Broker, run, until};
use crate::commands::{self, output_of, produce};
use crate::top;

/// Kafka's jars, or a line in the summary of all tests.
fn jars() -> Option<String> {
    let jars = std::env::var("KAFKA_CLASSPATH").ok().filter(|jars| !jars.is_empty());
    if jars.is_none() {
        let how = "export KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\", with Java 17 or later";
        writeln!(std::io::stderr(), "SKIPPED: commands against Apache Kafka: {how}").expect("stderr is open");
    }
    jars
}

fn java(jars: &str) -> Command {
    let mut command = Command::new("java");
    command
        .args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars])
        .stdin(Stdio::null());
    command
}

/// A node of Apache Kafka, broker and controller, killed when it is dropped.
struct Kafka {
    child: Child,
    address: String,
    _dir: tempfile::TempDir,
}

impl Kafka {
    fn start(jars: &str) -> Kafka {
        let dir = tempfile::tempdir().expect("a directory");
        let (port, controller) = (free_port(), free_port());
        let properties = dir.path().join("server.properties");
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\nlog.dirs={}\nauto.create.topics.enable=false\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=3\n\
             group.initial.rebalance.delay.ms=0\ntransaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\ntransaction.state.log.num.partitions=3\n\
             share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n\
             share.coordinator.state.topic.num.partitions=3\n",
            dir.path().join("data").display()
        );
        std::fs::write(&properties, text).expect("written");
        let mut format = java(jars);
        format.args(["kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c"]);
        let (code, out, error) = run(format.arg(&properties));
        assert_eq!(code, Some(0), "{out}{error}");
        let mut server = java(jars);
        server.arg("kafka.Kafka").arg(&properties).stdout(Stdio::null()).stderr(Stdio::null());
        let child = server.spawn().expect("java runs");
        let kafka = Kafka { child, address: format!("127.0.0.1:{port}"), _dir: dir };
        until("Apache Kafka", || commands::runs(&kafka.address, "broker list").0 == Some(0));
        kafka
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn commands_administer_apache_kafka() {
    let Some(jars) = jars() else { return };
    let kafka = Kafka::start(&jars);
    let at = &*kafka.address;
    commands::a_broker_is_looked_at_and_changed(at);
    commands::quotas_are_set_described_and_removed(at);
    commands::records_are_trimmed_only_with_execute(at);
    commands::a_group_is_reset_only_with_execute(at);
    commands::an_active_group_is_not_reset(at);
    commands::a_consumer_group_has_epochs_and_targets(at);
    commands::a_share_group_is_consumed_reset_and_deleted(at);
    commands::transactions_are_listed_and_fenced(at);
    commands::loggers_have_levels(at);
    top::figures_are_those_of_the_log(at);
    resets_are_those_of_kafkas_tool(&jars, at);
}

#[test]
fn resets_of_a_group_of_thalweg_are_those_of_kafkas_tool() {
    let Some(jars) = jars() else { return };
    let broker = Broker::start();
    resets_are_those_of_kafkas_tool(&jars, &broker.address);
}

/// Where to, in words that both understand.
const SCENARIOS: [&str; 9] = [
    "--topic resets --to-earliest",
    "--topic resets --to-latest",
    "--topic resets:0,2 --to-current",
    "--topic resets --to-offset 3",
    "--all-topics --to-offset 1000",
    "--topic resets:0 --shift-by 2",
    "--all-topics --shift-by -1000",
    "--topic resets --to-datetime 2001-01-01T00:00:00.000",
    "--topic resets --by-duration PT1H",
];

fn resets_are_those_of_kafkas_tool(jars: &str, at: &str) {
    output_of(at, "topic create resets --partitions 3");
    for partition in 0..3 {
        produce(at, &format!("resets --partition {partition}"), 20);
    }
    output_of(at, "group reset r --topic resets:0 --to-offset 5 --execute");
    output_of(at, "topic trim resets:1 --to-offset 2 --execute");
    for scenario in SCENARIOS {
        let ours = output_of(at, &format!("group reset r {scenario} --csv"));
        let mut tool = java(jars);
        tool.arg("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand");
        tool.args(["--bootstrap-server", at, "--group", "r", "--reset-offsets", "--dry-run", "--export"]);
        let (code, out, error) = run(tool.args(scenario.split_whitespace()));
        assert_eq!(code, Some(0), "{out}{error}");
        // It prints warnings on standard output, too.
        let lines = out.lines().map(|line| line.replace('"', ""));
        let mut lines: Vec<String> = lines.filter(|line| line.starts_with("resets,")).collect();
        lines.sort();
        assert_eq!(ours.lines().collect::<Vec<_>>(), lines, "{scenario}: {out}{error}");
        assert!(!lines.is_empty(), "{scenario}: {out}{error}");
    }
}
