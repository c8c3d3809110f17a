//! Searches a whole topic by an expression, and prints how fast that was:
//! `cargo run --release -p thalweg-browse --example search -- localhost:9092 orders 'payload.amount > 1000'`.

#![allow(clippy::print_stdout, reason = "it is a program for a terminal")]

use std::error::Error;

use thalweg_browse::{Event, Filter, Limits, Masking, Query, Search};
use thalweg_client::{Cluster, ConnectionOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, expression] = &arguments[..] else {
        return Err("expected HOST:PORT TOPIC EXPRESSION".into());
    };
    let cluster = Cluster::connect(std::slice::from_ref(bootstrap), &ConnectionOptions::default()).await?;
    let limits = Limits { matches: None, bytes: None, time: None, ..Limits::default() };
    let query = Query { filter: Filter::expression(expression)?, limits, ..Query::new(topic) };
    let mut search = Search::start(cluster, query, &Masking::default(), None)?;
    while let Some(event) = search.next().await {
        if let Event::Ended(ended) = event {
            let (progress, seconds) = (&ended.progress, ended.progress.elapsed.as_secs_f64());
            println!(
                "{} of {} records ({:.2} GB) match; {seconds:.2} s, {:.2} M records/s, {:.0} MB/s; {:?}",
                progress.matches,
                progress.records,
                progress.bytes as f64 / 1e9,
                progress.records as f64 / seconds / 1e6,
                progress.bytes as f64 / seconds / 1e6,
                ended.why,
            );
        }
    }
    Ok(())
}
