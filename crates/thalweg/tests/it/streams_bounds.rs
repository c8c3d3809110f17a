//! Streams whose programs and messages know no bounds: memory stays bounded, and no process outlives its
//! stream.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use super::binary::{self, RunningProcess, pause, until};

fn start(text: &str) -> RunningProcess {
    RunningProcess::start(binary::thalweg("stream run").arg(text))
}

/// The most memory that a process has had so far, in MiB.
fn most_mib(running: &RunningProcess) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.0.id())).ok()?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    most.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib >> 10)
}

/// The number of processes whose command line contains a text.
fn processes(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("it is Linux").filter_map(Result::ok);
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    // This test has the text in no argument.
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").contains(text)).count()
}

#[test]
fn output_of_a_program_that_never_stops_writing_is_waited_for() {
    for text in [
        "time --fixedDelay=0.01 | exec --command=yes --endTimeout=1s | rate-limit --rate=100 | null",
        "time --fixedDelay=0.01 | exec --command=yes --endTimeout=1s | null",
        "time --count=1 | exec --command=yes --endTimeout=4s | null",
    ] {
        let mut running = start(text);
        pause(Duration::from_secs(3));
        let most = most_mib(&running).expect("it runs");
        assert!(most < 200, "{text}: {most} MiB");
        running.interrupt();
        assert_eq!(running.exit_code(), Some(1), "{text}: it was cut short");
    }
}

#[test]
fn a_line_beyond_the_limit_fails_the_stream_by_name() {
    let command = "stream run";
    let mut command = binary::thalweg(command);
    let (code, _, error) =
        binary::run(command.arg("time --count=1 | exec --command='tr \"\\\\000\" x < /dev/zero' | null"));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("writes a line of more than 64 MiB, the limit of a message"), "{error}");
}

#[test]
fn a_program_that_ignores_the_end_of_its_input_is_ended() {
    let text = "time --fixedDelay=0.01 | exec --command='trap \"\" TERM; cat > /dev/null; sleep 30171; sleep 30171' --endTimeout=1s | null";
    let mut command = binary::thalweg("stream run");
    command.arg(text).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = RunningProcess(command.spawn().expect("the binary runs"));
    until("the program", || processes("cat > /dev/null; sleep 30171") >= 2);
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
    let mut error = String::new();
    running.0.stderr.take().expect("it is a pipe").read_to_string(&mut error).expect("text");
    assert!(error.contains("Terminated a program that did not exit") && error.contains("30171"), "{error}");
    until("the end of its processes", || processes("sleep 30171") == 0);
}

#[test]
fn no_process_of_a_program_outlives_its_stream() {
    // The program starts others, and has none of them wait for its input.
    let text = |seconds: u32, more: &str| {
        format!("stdin | exec --command='sleep {seconds} & sleep {seconds}' {more} | null")
    };
    // Two signals, a kill, and a failure of another stage.
    let mut running = start(&text(30_172, ""));
    until("the program", || processes("sleep 30172") >= 3);
    running.interrupt();
    pause(Duration::from_millis(300));
    running.interrupt();
    assert_ne!(running.exit_code(), Some(0));
    until("the end of its processes", || processes("sleep 30172") == 0);

    let running = start(&text(30_173, ""));
    until("the program", || processes("sleep 30173") >= 3);
    running.signal(Signal::KILL);
    until("the end of its processes", || processes("sleep 30173") == 0);

    let mut running = start(&format!("stdin | filter --expression=payload.x | {}", &text(30_174, "")[8..]));
    until("the program", || processes("sleep 30174") >= 3);
    running.0.stdin.as_mut().expect("it is a pipe").write_all(b"no JSON\n").expect("it reads");
    assert_eq!(running.exit_code(), Some(1));
    until("the end of its processes", || processes("sleep 30174") == 0);
}

/// A file with an array of very many elements.
fn array(path: &Path, count: usize) {
    let mut text = String::from("{\"a\": [");
    (0..count).for_each(|index| text.push_str(if index == 0 { "1" } else { ",1" }));
    std::fs::write(path, text + "]}").expect("it can be written");
}

#[test]
fn an_array_of_very_many_elements_is_split_in_bounded_memory() {
    const COUNT: usize = 4_000_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("array.json");
    array(&path, COUNT);
    for splitter in ["--by=json --member=a", "--delimiter=,"] {
        let mut running = RunningProcess::start(
            binary::thalweg("stream run --json")
                .arg(format!("file --path={} --mode=whole | splitter {splitter} | null", path.display())),
        );
        let mut most = 0;
        until("the end of the stream", || {
            most = most.max(most_mib(&running).unwrap_or(0));
            running.0.try_wait().expect("it is a child").is_some()
        });
        let mut report = String::new();
        running.0.stdout.take().expect("it is a pipe").read_to_string(&mut report).expect("text");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["streams"][0]["stages"][2]["messages_in"], COUNT, "{report}");
        assert!(most < 200, "{splitter}: {most} MiB");
    }
}
