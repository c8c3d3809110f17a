//! What a page of metrics costs with 10,000 partitions: the bar is 50 ms, and one percent of a core at a page
//! a second. Run it with `cargo test --release -p thalweg-broker --test it metrics_cost:: -- --ignored
//! --nocapture`.

#![expect(clippy::print_stderr, reason = "the figures are printed")]

use crate::records::Topic;
use crate::running::RunningBroker;
use std::time::Duration;
use thalweg_broker::metrics::{Exposition, Form, PART_BYTES};
use tokio::time::Instant;

const TOPICS: usize = 100;
const PARTITIONS: i32 = 100;
const PAGES: u32 = 50;

/// Pages written in parts, as a scrape does: the time of each, the processor time of each, bytes and lines of
/// the last.
fn measure(broker: &RunningBroker, form: Form) -> (Duration, Duration, usize, usize) {
    let cpu = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.try_into().expect("positive"), now.tv_nsec.try_into().expect("positive"))
    };
    let (began, began_cpu) = (Instant::now(), cpu());
    let (mut bytes, mut lines) = (0, 0);
    for _ in 0..PAGES {
        (bytes, lines) = (0, 0);
        let mut page = Exposition::new(form, usize::MAX);
        let mut pages = broker.server().metrics.pages();
        loop {
            let has_more = pages.write(&mut page, PART_BYTES);
            let part = page.take();
            bytes += part.len();
            lines += part.iter().filter(|byte| **byte == b'\n').count();
            if !has_more {
                break;
            }
        }
    }
    (began.elapsed() / PAGES, (cpu() - began_cpu) / PAGES, bytes, lines)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "creates 10,000 partitions, and measures"]
async fn a_page_of_ten_thousand_partitions_costs_a_hundredth_of_a_core() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (series_max, is_default) in [("20000", true), ("1000000", false)] {
        let broker = RunningBroker::start(dir.path(), &[("thalweg.metrics.series.max", series_max)]).await;
        if is_default {
            for topic in 0..TOPICS {
                Topic::create(&broker, &format!("topic-{topic}"), PARTITIONS, &[]).await;
            }
        }
        measure(&broker, Form::Text);
        for form in [Form::Text, Form::OpenMetrics, Form::Otlp] {
            let (time, cpu, bytes, lines) = measure(&broker, form);
            eprintln!(
                "{form:?}, series.max {series_max}: {time:?} a page, {cpu:?} of processor time, {bytes} bytes, {lines} lines"
            );
            if is_default {
                assert!(time < Duration::from_millis(50), "{form:?}: {time:?}");
                assert!(cpu < Duration::from_millis(10), "{form:?}: {cpu:?}");
            }
        }
        broker.stop().await;
    }
}
