//! Java's Flight Recorder: stacks of Java code. It does not see the JVM's own threads, such as those of the
//! garbage collector and the compilers, nor native code and the kernel.

use std::path::PathBuf;
use std::process::Command;

use chrono::{NaiveDate, NaiveTime};

use super::{first_line, print, profile_of};
use crate::profile::attach::Jvm;
use crate::profile::stacks::Stacks;
use crate::result::CpuProfile;

/// The interval of samples. Of each sample, up to eight threads are seen.
const PERIOD_MS: u32 = 20;
/// Maximum size of a recording; the JVM drops its oldest part.
const FILE_MB_MAX: u64 = 64;
/// Maximum depth of stacks that are printed.
const DEPTH: &str = "64";
/// The recording's name in the JVM.
const NAME: &str = "thalweg-lab";
const METHOD: &str = "JFR, Java code only, a sample of each of at most 8 threads every 20 ms";

/// Settings that record these samples and nothing else.
fn settings() -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<configuration version=\"2.0\" label=\"Thalweg lab\">\n\
         <event name=\"jdk.ExecutionSample\"><setting name=\"enabled\">true</setting>\
         <setting name=\"period\">{PERIOD_MS} ms</setting></event>\n</configuration>\n"
    )
}

/// A recording of a JVM.
#[derive(Debug)]
pub(crate) struct Jfr {
    /// The program that prints recordings, of the same Java.
    printer: PathBuf,
    dir: tempfile::TempDir,
}

impl Jfr {
    /// Starts to record a JVM.
    pub(crate) fn start(jvm: &Jvm) -> Result<Jfr, String> {
        let printer = jvm.tool("jfr").ok_or("its Java has no program jfr: it is no JDK")?;
        let dir = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let path = dir.path().join("lab.jfc");
        std::fs::write(&path, settings()).map_err(|error| format!("no settings for JFR: {error}"))?;
        let command = format!("JFR.start name={NAME} settings={} maxsize={FILE_MB_MAX}m", path.display());
        let answer = jvm.command(&command).map_err(|error| error.to_string())?;
        match answer.contains("Started recording") {
            true => Ok(Jfr { printer, dir }),
            false => Err(format!("JFR did not start: {}", first_line(&answer))),
        }
    }

    /// Ends the recording; the JVM writes its file.
    pub(super) fn stop(&self, jvm: &Jvm) -> Result<(), String> {
        let command = format!("JFR.stop name={NAME} filename={}", self.file().display());
        let answer = jvm.command(&command).map_err(|error| error.to_string())?;
        match self.file().exists() {
            true => Ok(()),
            false => Err(format!("JFR did not write its recording: {}", first_line(&answer))),
        }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("recording.jfr")
    }

    /// Reads the samples between two times.
    pub(super) fn read(&self, from_us: u64, to_us: u64) -> Result<(CpuProfile, Option<String>), String> {
        let mut command = Command::new(&self.printer);
        command.args(["print", "--events", "jdk.ExecutionSample", "--stack-depth", DEPTH]).arg(self.file());
        // Times are printed in the local zone.
        command.env("TZ", "UTC").env("LC_ALL", "C");
        let mut events = Events::new((from_us, to_us));
        print(command, |line| events.line(line))?;
        let is_full = std::fs::metadata(self.file()).is_ok_and(|file| file.len() >= (FILE_MB_MAX - 1) << 20);
        let gap =
            is_full.then(|| format!("only the last part, because the recording reached {FILE_MB_MAX} MB"));
        Ok((profile_of(events.stacks, METHOD)?, gap))
    }
}

/// The output of `jfr print`.
struct Events {
    span_us: (u64, u64),
    /// True if the event is of the measurement.
    is_within: bool,
    thread: String,
    stack: Vec<String>,
    is_in_stack: bool,
    stacks: Stacks,
}

impl Events {
    fn new(span_us: (u64, u64)) -> Events {
        Events {
            span_us,
            is_within: false,
            thread: String::new(),
            stack: Vec::new(),
            is_in_stack: false,
            stacks: Stacks::default(),
        }
    }

    fn line(&mut self, line: &str) {
        let text = line.trim();
        if self.is_in_stack {
            match text {
                "]" => self.is_in_stack = false,
                // The printer's own cut.
                "..." => self.stack.push("[outer frames cut]".to_owned()),
                frame => self.stack.push(method(frame).to_owned()),
            }
        } else if text.starts_with("stackTrace = [") {
            self.is_in_stack = true;
        } else if let Some(time) = text.strip_prefix("startTime = ") {
            self.is_within = is_within(time, self.span_us);
        } else if let Some(thread) = text.strip_prefix("sampledThread = \"") {
            thread.rsplit_once('"').map_or(thread, |(name, _)| name).clone_into(&mut self.thread);
        } else if line.starts_with('}') {
            if std::mem::take(&mut self.is_within) {
                self.stacks.add(&self.thread, &self.stack);
            }
            self.thread.clear();
            self.stack.clear();
        }
    }
}

/// `kafka.log.UnifiedLog.append(int, String) line: 12` without arguments and line.
fn method(frame: &str) -> &str {
    frame.split_once('(').map_or(frame, |(method, _)| method)
}

/// True if a printed time is between two times. It may lack its date, as of Java 17: `16:40:00.123`, or have
/// it behind: `16:40:00.123 (2026-11-30)`.
fn is_within(text: &str, (from_us, to_us): (u64, u64)) -> bool {
    let (time, date) = match text.trim().split_once(" (") {
        Some((time, date)) => (time, date.strip_suffix(')')),
        None => (text.trim(), None),
    };
    let Ok(time) = NaiveTime::parse_from_str(time, "%H:%M:%S%.f") else { return false };
    let day_of = |us: u64| {
        let moment = i64::try_from(us).ok().and_then(chrono::DateTime::from_timestamp_micros);
        moment.map(|moment| moment.date_naive())
    };
    let dated = date.map(|date| NaiveDate::parse_from_str(date, "%Y-%m-%d").ok());
    let days = dated.map_or_else(|| vec![day_of(from_us), day_of(to_us)], |date| vec![date]);
    days.into_iter().flatten().any(|day| {
        let at_us = u64::try_from(day.and_time(time).and_utc().timestamp_micros());
        at_us.is_ok_and(|at_us| (from_us..=to_us).contains(&at_us))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_the_flight_recorder_are_read_within_the_measurement() {
        let event = |time: &str| {
            format!(
                "jdk.ExecutionSample {{\n  startTime = {time}\n  sampledThread = \"handler-7\" (javaThreadId = 45)\n  \
                 state = \"STATE_RUNNABLE\"\n  stackTrace = [\n    kafka.log.Log.append(int, String) line: 12\n    \
                 java.lang.Thread.run() line: 840\n    ...\n  ]\n}}\n\n"
            )
        };
        // 2026-11-30 16:40:00.
        let from_us = 1_796_056_800_000_000;
        let mut events = Events::new((from_us, from_us + 10_000_000));
        for time in [
            "16:39:59.999",
            "16:40:00.123",
            "16:40:10.000 (2026-11-30)",
            "16:40:09.000 (2026-11-29)",
            "nonsense",
        ] {
            event(time).lines().for_each(|line| events.line(line));
        }
        let profile = events.stacks.profile("JFR").expect("samples");
        assert_eq!(
            profile.folded(),
            "handler-*;[outer frames cut];java.lang.Thread.run;kafka.log.Log.append 2\n"
        );
    }

    #[test]
    fn times_without_a_date_are_known_past_midnight() {
        // A minute from 23:59:30 on.
        let span_us = (1_796_083_170_000_000, 1_796_083_230_000_000);
        for (time, expected) in
            [("23:59:29.999", false), ("23:59:30.000", true), ("00:00:29.500", true), ("00:00:30.500", false)]
        {
            assert_eq!(is_within(time, span_us), expected, "{time}");
        }
    }
}
