//! Command lines of earlier releases of Kafka's tools, in the options of today's.

use std::ffi::{OsStr, OsString};

/// The number of positional arguments of the earlier tool: topic, records, size, rate.
const POSITIONAL: usize = 4;
/// The options with the values of these arguments.
const OPTIONS: [&str; POSITIONAL] = ["--topic", "--num-records", "--record-size", "--throughput"];

/// Arguments of a process, with the positional ones of `producer-perf-test TOPIC RECORDS SIZE RATE
/// KEY=VALUE...` as options: so Kafka's class ProducerPerformance was run in versions 0.8 and 0.9.
pub(super) fn with_options(arguments: Vec<OsString>) -> Vec<OsString> {
    let is_option = |text: &OsStr| text.to_string_lossy().starts_with('-');
    let is_positional = arguments.get(1).is_some_and(|tool| tool == "producer-perf-test")
        && arguments.len() >= 2 + POSITIONAL
        && !arguments[2..1 + POSITIONAL].iter().any(|text| is_option(text))
        // A rate of -1 is no option.
        && arguments[1 + POSITIONAL].to_string_lossy().parse::<f64>().is_ok();
    if !is_positional {
        return arguments;
    }
    let mut understood = arguments[..2].to_vec();
    for (option, value) in OPTIONS.iter().zip(&arguments[2..]) {
        understood.extend([OsString::from(option), value.clone()]);
    }
    let rest = &arguments[2 + POSITIONAL..];
    if rest.first().is_some_and(|text| !is_option(text)) {
        understood.push("--command-property".into());
    }
    understood.extend(rest.iter().cloned());
    understood
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(line: &str) -> String {
        let arguments = with_options(line.split(' ').map(OsString::from).collect());
        arguments.join(OsStr::new(" ")).into_string().expect("UTF-8")
    }

    #[test]
    fn positional_arguments_become_options() {
        assert_eq!(
            understood(
                "thalweg producer-perf-test perf 300000000 1000 -1 acks=1 bootstrap.servers=b:1 batch.size=128000"
            ),
            "thalweg producer-perf-test --topic perf --num-records 300000000 --record-size 1000 --throughput -1 \
             --command-property acks=1 bootstrap.servers=b:1 batch.size=128000"
        );
        let with_json = understood("thalweg producer-perf-test perf 10 100 5.5 --json");
        assert!(with_json.ends_with("--throughput 5.5 --json"), "{with_json}");
    }

    #[test]
    fn other_arguments_stay() {
        for line in [
            "thalweg producer-perf-test --topic t --num-records 5 --record-size 9 --throughput -1",
            "thalweg producer-perf-test t 5 9",
            "thalweg producer-perf-test t 5 9 acks=1",
            "thalweg consumer-perf-test t 5 9 -1",
            "thalweg",
        ] {
            assert_eq!(understood(line), line);
        }
    }
}
