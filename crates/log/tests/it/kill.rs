//! Killing the process: everything that was acknowledged is there afterwards.
//!
//! The test starts itself as a child that appends and reports accepted records, kills it at some moment, and
//! opens the directory.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use thalweg_log::{LogConfig, LogDirs, LogDirsOptions, PartitionLog, TopicPartition};
use thalweg_record::{LeaderEpoch, Offset, batches};

use crate::support::*;

const DIR: &str = "THALWEG_KILL_DIR";

fn open(dir: PathBuf) -> (LogDirs, Vec<PartitionLog>) {
    let config = LogConfig { segment_bytes: 200_000, ..LogConfig::default() };
    LogDirs::open(LogDirsOptions::new(vec![dir], 1), |_| Arc::new(config.clone())).expect("opens")
}

/// The child process: not a test of its own.
#[test]
#[ignore = "started by the test below"]
#[expect(clippy::print_stdout, reason = "the child tells its parent what was accepted")]
fn child_that_appends() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let (dirs, mut logs) = open(dir.into());
    let mut log = match logs.pop() {
        Some(log) => log,
        None => {
            let config = LogConfig { segment_bytes: 200_000, ..LogConfig::default() };
            dirs.create(&TopicPartition::new("t", 0), None, Arc::new(config), None).expect("creates")
        }
    };
    let mut sequence =
        log.producer(thalweg_record::ProducerId(1)).map_or(0, |producer| producer.last_sequence() + 1);
    for index in 0.. {
        let batch = Spec::new(3).value_bytes(index % 500).producer(1, 0, sequence).build();
        let info = log.append_as_leader(&batch, LeaderEpoch(0), Default::default()).expect("accepted");
        sequence += 3;
        println!("accepted {}", info.last_offset);
        if index % 50 == 0 {
            log.flush().expect("syncs");
            dirs.checkpoint_recovery_points();
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the child runs in real time")]
fn what_was_accepted_survives_a_kill() {
    let dir = TempDir::new();
    let mut accepted = -1;
    for round in 0..6u64 {
        let mut child = Command::new(std::env::current_exe().expect("the test knows itself"))
            .args(["--exact", "kill::child_that_appends", "--ignored", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the child starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let reader = std::thread::spawn(move || {
            let offsets = out.lines().map_while(Result::ok).filter_map(|line| {
                line.split_once("accepted ").and_then(|(_, offset)| offset.trim().parse::<i64>().ok())
            });
            offsets.last()
        });
        std::thread::sleep(Duration::from_millis(80 + round * 37));
        child.kill().expect("the child is killed");
        child.wait().expect("the child ends");
        let told = reader.join().expect("reads").unwrap_or(accepted);
        assert!(told >= accepted, "the log goes on");
        accepted = told;
        let (_dirs, mut logs) = open(dir.path().to_owned());
        let Some(log) = logs.first_mut() else { continue };
        assert!(log.log_end_offset() > Offset(accepted), "{} of {accepted}", log.log_end_offset());
        let bytes = read_all(log, Offset(0), 1 << 20);
        let mut next = Offset(0);
        for batch in batches(&bytes) {
            let header = thalweg_record::verify(batch.expect("whole").bytes).expect("the CRC fits");
            assert_eq!(header.base_offset, next);
            assert_eq!(i64::from(header.base_sequence), next.0, "no batch is lost or repeated");
            next = header.next_offset();
        }
        assert_eq!(next, log.log_end_offset());
    }
    assert!(accepted > 0, "the child had time to append");
}
