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
    let tool = arguments.iter().position(|text| text == "producer-perf-test");
    // Global options may precede the tool.
    let Some((before, given)) = tool.map(|place| arguments.split_at(place + 1)) else { return arguments };
    let is_positional = given.len() >= POSITIONAL
        && !given[..POSITIONAL - 1].iter().any(|text| is_option(text))
        // A rate of -1 is no option.
        && given[POSITIONAL - 1].to_string_lossy().parse::<f64>().is_ok_and(f64::is_finite);
    if !is_positional {
        return arguments;
    }
    let mut understood = before.to_vec();
    for (option, value) in OPTIONS.iter().zip(given) {
        understood.extend([OsString::from(option), value.clone()]);
    }
    let rest = &given[POSITIONAL..];
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
        let with_profile = understood("thalweg --profile none producer-perf-test perf 10 100 -1");
        assert!(
            with_profile.starts_with("thalweg --profile none producer-perf-test --topic perf"),
            "{with_profile}"
        );
    }

    #[test]
    fn other_arguments_stay() {
        for line in [
            "thalweg producer-perf-test --topic t --num-records 5 --record-size 9 --throughput -1",
            "thalweg producer-perf-test t 5 9",
            "thalweg producer-perf-test t 5 9 acks=1",
            "thalweg producer-perf-test t 5 9 nan",
            "thalweg consumer-perf-test t 5 9 -1",
            "thalweg",
        ] {
            assert_eq!(understood(line), line);
        }
    }
}
