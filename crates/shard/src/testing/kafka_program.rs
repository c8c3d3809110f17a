//! Java programs that run Kafka's classes, for tests.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The output of a Java program for this input, if Kafka's jars are available.
pub fn run_kafka_program(program: &Path, subject: &str, input: &str) -> Option<String> {
    let Some(classpath) = std::env::var("KAFKA_CLASSPATH").ok().filter(|path| !path.is_empty()) else {
        // Not `eprintln!`: the test harness swallows its output when a test passes.
        let how = "set KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\" to run it";
        let line = writeln!(std::io::stderr(), "SKIPPED: comparison with Kafka's {subject}: {how}");
        line.expect("stderr takes a line");
        return None;
    };
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.args(["-Dfile.encoding=UTF-8", "-cp", &classpath]).arg(program);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("java is installed");
    let mut stdin = child.stdin.take().expect("it is piped");
    // The program answers at the end of its input, so neither side waits for the other.
    stdin.write_all(input.as_bytes()).expect("java reads");
    drop(stdin);
    let output = child.wait_with_output().expect("java ends");
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}
