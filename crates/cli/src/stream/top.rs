//! `stream top`: live figures of all stages.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use hyper::Method;
use serde_json::{Value, json};
use thalweg_lab::terminal::can_redraw;
use tokio::time::{MissedTickBehavior, interval};

use super::remote::RemoteHost;
use super::rows::{Basis, Row, Sample, cells};
use crate::table::align;

/// Assumed height of a terminal of unknown size.
const LINES: usize = 24;

/// Show rate, latency and backpressure of every stage, until Ctrl-C.
///
/// LATENCY is the age of messages when a stage is done with them, BUSY the share of time that it works,
/// WAITED FOR the share of time that its stream waits for it. On a terminal the table is updated in place;
/// otherwise tables follow each other.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg stream top
  thalweg stream top orders --interval 5
  thalweg stream top --json --updates 1

--server may be a broker that hosts streams, or a `thalweg stream run --http HOST:PORT`.")]
pub struct Top {
    /// Show only these streams.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Seconds between updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Exit after this many updates.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
    #[command(flatten)]
    remote: RemoteHost,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "use a number from 0.1 to 3600".to_owned())
}

impl Top {
    /// Prints the tables at intervals.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut looks = interval(Duration::from_secs_f64(self.interval));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.tick().await;
        let mut before = self.look().await?;
        let mut screen = Screen::new();
        let mut left = self.updates.unwrap_or(u64::MAX);
        while left > 0 {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => break,
                _ = looks.tick() => {}
            }
            let now = self.look().await?;
            let mut rows = now.since(&before);
            rows.retain(|row| self.names.is_empty() || self.names.contains(&row.stream));
            match self.remote.output.is_table() {
                true => screen.show(&rows, &now)?,
                false => {
                    let stages: Vec<Value> = rows.iter().map(Row::to_json).collect();
                    self.remote.output.next(&json!({ "stages": stages }))?;
                }
            }
            before = now;
            left -= 1;
        }
        Ok(())
    }

    async fn look(&self) -> anyhow::Result<Sample> {
        Ok(Sample::of(&self.remote.request(Method::GET, "/api/v1/streams?figures=true", None).await?))
    }
}

/// The output of tables.
struct Screen {
    can_redraw: bool,
    /// The height of the previous table, on a terminal.
    drawn: usize,
}

impl Screen {
    fn new() -> Screen {
        Screen { can_redraw: can_redraw(&std::io::stdout()), drawn: 0 }
    }

    fn show(&mut self, rows: &[Row], sample: &Sample) -> std::io::Result<()> {
        let mut rows = rows.to_vec();
        busiest_first(&mut rows);
        let mut lines: Vec<String> = align(&cells(&rows, Basis::Rates)).lines().map(str::to_owned).collect();
        let others = sample.others();
        if !others.is_empty() {
            let elsewhere: Vec<String> =
                others.iter().map(|(state, count)| format!("{count} {state}")).collect();
            lines.push(format!("streams that do not run here: {}", elsewhere.join(", ")));
        }
        let mut out = std::io::stdout().lock();
        if !self.can_redraw {
            lines.push(String::new());
            return writeln!(out, "{}", lines.join("\n"));
        }
        let (width, height) = size();
        if lines.len() > height.saturating_sub(1) {
            let kept = height.saturating_sub(2);
            let left = lines.len() - kept;
            lines.truncate(kept);
            lines.push(format!("and {left} more lines; select streams by name"));
        }
        // Move to the start of the previous table; each line is cleared after its new text.
        let mut text = match self.drawn {
            0 => String::new(),
            drawn => format!("\x1b[{drawn}A\r"),
        };
        for line in &lines {
            text.extend(line.chars().take(width));
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// Sorts streams by the rate of their sources; stages keep their order.
fn busiest_first(rows: &mut [Row]) {
    let mut rates = std::collections::BTreeMap::new();
    for row in rows.iter() {
        rates.entry(row.stream.clone()).or_insert(row.messages_per_s);
    }
    rows.sort_by(|a, b| rates[&b.stream].total_cmp(&rates[&a.stream]).then_with(|| a.stream.cmp(&b.stream)));
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (usize::MAX, LINES),
    }
}
