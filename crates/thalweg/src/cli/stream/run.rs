//! `stream run`: streams in the foreground.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use thalweg_broker::metrics::Exposition;
use thalweg_cli::connect::{WAITS, report_waits_by};
use thalweg_cli::failure::{EXIT_KILLED, Usage};
use thalweg_cli::output::CommandOutput;
use thalweg_cli::signals::EndSignals;
use thalweg_cli::stream::text::{Text, name};
use thalweg_stream::host::{StreamStatus, metrics, rest};
use thalweg_stream::module::{OptionType, Value};
use thalweg_stream::runtime::{self, Figures, Meters, RunOptions, RunningStreams, Taps};
use thalweg_stream::{Guarantee, Reach, STACK_BYTES, report_waits_to};
use tokio::time::{MissedTickBehavior, interval};

use super::console::Lines;
use crate::http::{self, HttpAddress, HttpServer, HttpSockets};
use crate::logging;

/// Refresh interval of the progress line.
const DRAWN_EVERY: Duration = Duration::from_millis(500);

/// Run the streams of a text, until their sources end or Ctrl-C is pressed.
///
/// Ctrl-C closes the sources and delivers messages in flight; a second one exits at once.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg stream run 'time | log'
  thalweg stream run 'load-generator --messageCount=500000000 --messageSize=1000 | throughput'
  thalweg stream run --transport=kafka 'http --port=9000 | log'
  thalweg stream run --properties module.transform.count=4 'stdin | transform --key=payload.id | null'
  thalweg stream run --guarantee exactly-once 'kafka --topics=a --group=g | filter --expression=true | kafka --topic=b'
  thalweg stream run --file orders.stream --on-error dead-letter:bad.json --json > report.json")]
pub struct Run {
    #[command(flatten)]
    text: Text,
    /// A unique name among the processes that run the same streams. A process restarted under the same name
    /// aborts its predecessor's open transactions at once, where others wait for up to ten seconds
    /// [default: 0 with --guarantee=exactly-once, or else a random name].
    #[arg(long, value_name = "NAME", value_parser = name)]
    instance: Option<String>,
    /// Serve the streams' figures over HTTP, for `thalweg stream top --server http://HOST:PORT` and
    /// Prometheus (/metrics).
    #[arg(long, value_name = "HOST:PORT", value_parser = http::address)]
    http: Option<HttpAddress>,
    #[command(flatten)]
    output: CommandOutput,
    /// With --json or --format yaml: also print a report at this interval, such as 1s or 500ms, one per line.
    #[arg(long, value_name = "TIME", value_parser = every)]
    every: Option<Duration>,
}

/// The shortest time between reports.
const EVERY_MIN: Duration = Duration::from_millis(10);

fn every(text: &str) -> Result<Duration, String> {
    let time = OptionType::Seconds.read(text).ok().and_then(|value| match value {
        Value::Duration(time) => Some(time),
        _ => None,
    });
    let time = time.filter(|time| *time >= EVERY_MIN);
    time.ok_or_else(|| "use a time of at least 10ms, such as 1s or 500ms".to_owned())
}

impl Run {
    /// The name of this process. With exactly once, a second process under the default name is fenced, so
    /// that it gets a name.
    fn instance(&self, guarantee: Guarantee) -> String {
        match (&self.instance, guarantee) {
            (Some(instance), _) => instance.clone(),
            (None, Guarantee::ExactlyOnce) => "0".to_owned(),
            (None, Guarantee::AtLeastOnce | Guarantee::AtMostOnce) => {
                format!("{:016x}", getrandom::u64().expect("the system gives randomness"))
            }
        }
    }

    /// Runs the streams.
    pub fn run(&self, bars: &MultiProgress) -> anyhow::Result<()> {
        if self.every.is_some() && self.output.is_table() {
            return Err(Usage("--every has no effect without --json or --format yaml".to_owned()).into());
        }
        let plan = self.text.plan()?;
        let deployment = self.text.deployment(&plan)?;
        let (plan, over) = self.text.laid(plan, &deployment)?;
        logging::begin_for_tool(bars);
        let threads = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()?;
        report_waits_to(WAITS.clone());
        let ended = runtime.block_on(async {
            let console = Arc::new(Lines { bars: bars.clone(), to_standard_error: !self.output.is_table() });
            let options = RunOptions {
                reach: Arc::new(Reach::everything()),
                on_error: deployment.on_error.clone(),
                cluster: self.text.cluster(),
                guarantee: deployment.guarantee,
                instance: self.instance(deployment.guarantee),
                console,
                taps: Taps::default(),
            };
            let waiting = report_waits_by(|line| {
                // Standard error may be closed.
                bars.suspend(|| drop(writeln!(std::io::stderr(), "thalweg: {line}")));
            });
            let mut waiting = std::pin::pin!(waiting);
            if let Some((transport, topics)) = &over {
                tokio::select! {
                    created = transport.create_topics(topics) => created?,
                    () = &mut waiting => {}
                }
            }
            // Bind before anything runs, so that a port conflict is reported first.
            let http = self.http.as_ref().map(|at| HttpSockets::bind(&at.0)).transpose()?;
            // Listen before a message flows, so that even an early signal stops the streams cleanly.
            let signals = EndSignals::listen()?;
            let mut running = runtime::start(&plan, &options)?;
            let meters = running.meters();
            let _server = http.map(|listening| serve(listening, running.meters(), bars));
            let ended = tokio::select! {
                ended = watch(&mut running, signals, bars) => ended,
                ended = self.report_every(&meters) => ended,
                () = waiting => Ok(()),
            };
            self.report(&running.figures())?;
            ended
        });
        // Do not wait for a thread that reads standard input.
        runtime.shutdown_background();
        ended
    }

    /// Prints reports at intervals, forever. Without an interval, only waits.
    async fn report_every(&self, meters: &Meters) -> anyhow::Result<()> {
        let Some(every) = self.every else { return std::future::pending().await };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.report(&meters.figures())?;
        }
    }

    fn report(&self, figures: &Figures) -> anyhow::Result<()> {
        if !self.output.is_table() {
            return match self.every {
                Some(_) => self.output.next(&figures.to_json()),
                None => self.output.show(&figures.to_json(), |_| Ok(String::new())),
            };
        }
        for stream in figures.streams.iter().filter(|stream| stream.bad > 0) {
            tracing::warn!(stream = &*stream.name, count = stream.bad, "Skipped bad messages");
        }
        Ok(())
    }
}

/// Serves the figures until the returned server is dropped.
fn serve(listening: HttpSockets, meters: Meters, bars: &MultiProgress) -> HttpServer {
    let for_metrics = meters.clone();
    let metrics: http::metrics::Source = Box::new(move || -> http::metrics::Writer {
        let meters = for_metrics.clone();
        Box::new(move |page: &mut Exposition, _| {
            page.append(&metrics::text(&StreamStatus::of_run(&meters.figures())));
            false
        })
    });
    let listed = rest::figures_router(Arc::new(move || StreamStatus::of_run(&meters.figures())));
    let server = listening.serve(http::metrics::routes(vec![metrics]).merge(listed), None, None);
    for url in &server.urls {
        // Standard error may be closed.
        bars.suspend(|| {
            drop(writeln!(std::io::stderr(), "The streams' figures are at {url}/api/v1/streams and /metrics"))
        });
    }
    server
}

/// Waits for the end, handles signals, and shows the rate.
async fn watch(
    running: &mut RunningStreams,
    mut signals: EndSignals,
    bars: &MultiProgress,
) -> anyhow::Result<()> {
    let line = bars.add(ProgressBar::new_spinner());
    line.set_style(ProgressStyle::with_template("{spinner} {wide_msg}")?);
    let mut drawn = interval(DRAWN_EVERY);
    drawn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = running.figures();
    let stopper = running.stopper();
    let meters = running.meters();
    let mut ended = std::pin::pin!(running.ended());
    let mut heard = 0;
    let result = loop {
        tokio::select! {
            biased;
            () = signals.next() => {
                heard += 1;
                if heard > 1 {
                    std::process::exit(EXIT_KILLED);
                }
                stopper.stop();
                line.set_message("stopping: delivering messages in flight; press Ctrl-C again to exit at once");
            }
            result = &mut ended => break result,
            _ = drawn.tick(), if heard == 0 && !line.is_hidden() => {
                let now = meters.figures();
                line.set_message(rates(&before, &now));
                line.tick();
                before = now;
            }
        }
    };
    line.finish_and_clear();
    Ok(result?)
}

/// Messages per second of each stream.
fn rates(before: &Figures, now: &Figures) -> String {
    let seconds = (now.elapsed - before.elapsed).as_secs_f64().max(1e-3);
    let streams = before.streams.iter().zip(&now.streams).map(|(before, now)| {
        let stages: Vec<String> = before
            .stages
            .iter()
            .zip(&now.stages)
            .map(|(before, now)| {
                let rate = (now.messages_out - before.messages_out) as f64 / seconds;
                format!("{} {}/s", now.label, thalweg_lab::quantity::short(rate))
            })
            .collect();
        format!("{}: {}", now.name, stages.join(" | "))
    });
    streams.collect::<Vec<_>>().join("   ")
}
