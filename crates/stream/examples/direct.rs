//! Runs a stream in this process, without a command line around it: the smallest program that uses this
//! crate.
//!
//! `cargo run --release -p thalweg-stream --example direct -- 'load-generator --messageCount=100000000 |
//! throughput'`

use std::io::Write;
use std::sync::Arc;

use thalweg_stream::module::StageOutput;
use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{RunOptions, Taps, start};
use thalweg_stream::{Cluster, Guarantee, OnError, Reach};

struct StandardOutput;

impl StageOutput for StandardOutput {
    fn line(&self, text: &str) {
        let _ = writeln!(std::io::stdout(), "{text}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::env::args().nth(1).unwrap_or_else(|| "load-generator | throughput".to_owned());
    let plan = Plan::read(&text, None, "stream")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let figures = runtime.block_on(async {
        let options = RunOptions {
            reach: Reach::everything().into(),
            on_error: OnError::Fail,
            cluster: Cluster { bootstrap: "localhost:9092".to_owned(), properties: None },
            guarantee: Guarantee::AtLeastOnce,
            instance: "0".to_owned(),
            console: Arc::new(StandardOutput),
            taps: Taps::default(),
        };
        let mut running = start(&plan, &options)?;
        running.ended().await?;
        Ok::<_, Box<dyn std::error::Error>>(running.figures())
    })?;
    for stage in figures.streams.iter().flat_map(|stream| &stream.stages) {
        let line =
            format!("{}: {} messages, {:.1} ns each", stage.label, stage.messages_out, stage.cost_ns());
        writeln!(std::io::stdout(), "{line}")?;
    }
    runtime.shutdown_background();
    Ok(())
}
