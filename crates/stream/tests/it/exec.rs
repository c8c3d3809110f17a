//! The end of a program of `exec`: no output is lost, and a program that does not take its input is reported.

use std::sync::Arc;
use std::time::Duration;

use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{Figures, start};
use tokio::time::timeout;

use super::{Lines, options, out};

/// A generous timeout for busy machines.
const PATIENCE: Duration = Duration::from_secs(40);

/// The figures of a text that ends, and its error if it fails.
fn ended(text: &str) -> (Figures, Option<String>) {
    let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut running = start(&plan, &options(Arc::<Lines>::default())).expect("it starts");
        let ended = timeout(PATIENCE, running.ended()).await.unwrap_or_else(|_| panic!("{text}: it hangs"));
        (running.figures(), ended.err().map(|error| error.to_string()))
    })
}

#[test]
fn the_last_output_of_a_terminated_program_is_whole() {
    let program = "trap \"seq 100000; exit 0\" TERM; while :; do sleep 0.1; done";
    let text =
        format!("load-generator --messageCount=1 | exec --command='{program}' --endTimeout=300ms | null");
    let (figures, failed) = ended(&text);
    assert_eq!((out(&figures, 0, 1), failed), (100_000, None));
}

#[test]
fn a_terminated_program_that_does_not_end_its_output_fails_the_stream() {
    let program = "trap \"while :; do echo x; sleep 0.1; done\" TERM; while :; do sleep 0.1; done";
    let text =
        format!("load-generator --messageCount=1 | exec --command='{program}' --endTimeout=300ms | null");
    let (_, failed) = ended(&text);
    assert!(failed.as_ref().is_some_and(|text| text.contains("was terminated")), "{failed:?}");
}

#[test]
fn a_program_that_closes_an_end_and_lives_on_is_reported() {
    for (text, end) in [
        // The timer of the sink is shorter than the time for the exit.
        (
            "load-generator --rate=10 | exec --command='exec <&-; sleep 30' | throughput --reportEveryMs=200",
            "input",
        ),
        // A source that always has messages.
        (
            "load-generator --messageSize=10 --messageCount=1000000000 | exec --framing=length --command='exec cat > /dev/null' | null",
            "output",
        ),
    ] {
        let (_, failed) = ended(text);
        let reason = format!("closed its {end} before the end of its messages");
        assert!(failed.as_ref().is_some_and(|text| text.contains(&reason)), "{text}: {failed:?}");
    }
}

#[test]
fn messages_that_the_program_did_not_read_fail_the_stream() {
    for program in ["sleep 1", "sleep 1; exec <&-; sleep 1"] {
        // More than a pipe holds, and less than the queue in front of it.
        let text = format!(
            "load-generator --messageCount=500 --messageSize=1000 | exec --framing=length --command='{program}' | null"
        );
        let (_, failed) = ended(&text);
        let failed = failed.unwrap_or_default();
        assert!(failed.contains("ended before its input did"), "{program}: {failed}");
    }
}
