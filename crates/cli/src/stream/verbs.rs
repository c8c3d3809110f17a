//! `stream create`, `deploy`, `undeploy`, `destroy`, `list` and `status`: streams that a broker hosts.

use clap::Args;
use hyper::Method;
use serde_json::{Value, json};

use super::remote::RemoteHost;
use super::rows::{Basis, Sample, cells};
use crate::failure::CommandFailure;
use crate::output::Style;
use crate::table::{align, row};

/// Create a stream on a broker that hosts streams.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg stream create ticks --definition 'time | log' --deploy
  thalweg stream create big --definition \"topic:orders > filter --expression='payload.amount > 1000' | topic:big-orders\"
  thalweg stream create seen --definition 'tap:stream:big.filter > counter' --deploy --server http://broker-2:9090")]
pub struct Create {
    /// The name of the stream, also used for taps, metrics, topics and consumer groups.
    name: String,
    /// The stream: `source | processor | sink`.
    #[arg(long, value_name = "TEXT")]
    definition: String,
    /// Also start it.
    #[arg(long)]
    deploy: bool,
    /// With --deploy: deployment properties, like those of `deploy`.
    #[arg(long, value_name = "KEY=VALUE,...", requires = "deploy", default_value = "")]
    properties: String,
    #[command(flatten)]
    remote: RemoteHost,
}

/// Start a stream on the broker at --server, which restarts it after its own restarts.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg stream deploy big
  thalweg stream deploy big --properties 'module.filter.count=3,module.*.count=0'
  thalweg stream deploy big --properties onError=skip")]
pub struct Deploy {
    /// The stream to deploy.
    name: String,
    /// The number of instances per stage (module.LABEL.count=N, module.*.count=N), the handling of bad
    /// messages (onError=fail, skip, dead-letter:FILE or dead-letter:topic:NAME), and the delivery guarantee
    /// (guarantee=at-least-once, at-most-once or exactly-once).
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "")]
    properties: String,
    #[command(flatten)]
    remote: RemoteHost,
}

/// Arguments of commands that only name a stream.
#[derive(Args, Debug)]
pub struct NamedStream {
    /// The name of the stream.
    name: String,
    #[command(flatten)]
    remote: RemoteHost,
}

/// List the streams of a cluster.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    remote: RemoteHost,
}

impl Create {
    /// Creates the stream.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut body = json!({ "name": self.name, "definition": self.definition, "deploy": self.deploy });
        if self.deploy {
            body["properties"] = self.properties.as_str().into();
        }
        let answer = self.remote.request(Method::POST, "/api/v1/streams", Some(&body)).await?;
        let done = if self.deploy { "Created and deployed" } else { "Created" };
        print_result(&self.remote, &answer, &format!("{done} stream {}", self.name))
    }
}

impl Deploy {
    /// Deploys the stream.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let path = format!("/api/v1/streams/{}/deploy", self.name);
        let answer =
            self.remote.request(Method::POST, &path, Some(&json!({ "properties": self.properties }))).await?;
        print_result(&self.remote, &answer, &format!("Deployed stream {}", self.name))
    }
}

impl NamedStream {
    /// Stops the stream cleanly.
    pub(crate) async fn undeploy(&self) -> anyhow::Result<()> {
        let path = format!("/api/v1/streams/{}/undeploy", self.name);
        let answer = self.remote.request(Method::POST, &path, None).await?;
        print_result(&self.remote, &answer, &format!("Undeployed stream {}", self.name))
    }

    /// Deletes the stream.
    pub(crate) async fn destroy(&self) -> anyhow::Result<()> {
        let answer =
            self.remote.request(Method::DELETE, &format!("/api/v1/streams/{}", self.name), None).await?;
        print_result(&self.remote, &answer, &format!("Destroyed stream {}", self.name))
    }

    /// Prints the stream's status.
    pub(crate) async fn status(&self) -> anyhow::Result<()> {
        let answer =
            self.remote.request(Method::GET, &format!("/api/v1/streams/{}", self.name), None).await?;
        self.remote.output.show(&answer, |style| Ok(status_text(&answer, style)))
    }
}

fn status_text(answer: &Value, style: Style) -> String {
    let mut rows =
        vec![row(["Stream", &text(&answer["name"])]), row(["Definition", &text(&answer["definition"])])];
    rows.push(row(["State", &text(&answer["state"])]));
    for (title, field) in [("Reason", "reason"), ("Node", "node")] {
        if !answer[field].is_null() {
            rows.push(row([title, &text(&answer[field])]));
        }
    }
    let properties = answer["properties"].as_object().into_iter().flatten();
    let properties: Vec<String> = properties.map(|(key, value)| format!("{key}={}", text(value))).collect();
    if !properties.is_empty() {
        rows.push(row(["Properties", &properties.join(",")]));
    }
    rows.extend(findings(answer));
    let mut shown = align(&rows);
    let sample = Sample::of(&json!({ "streams": [answer] }));
    if !sample.is_empty() {
        // Figures since the start, because there is no earlier sample.
        shown.push('\n');
        shown.push_str(&style.table(&cells(&sample.since(&Sample::default()), Basis::Totals)));
    }
    shown
}

/// Limit of the printed counts by key.
const COUNTS_SHOWN: usize = 5;

/// Results of stages, and bad messages.
fn findings(answer: &Value) -> Vec<Vec<String>> {
    let parts = || answer["parts"].as_array().into_iter().flatten();
    let mut rows = Vec::new();
    let bad: u64 = parts().filter_map(|part| part["bad_messages"].as_u64()).sum();
    if bad > 0 {
        rows.push(row(["Bad messages", &bad.to_string()]));
    }
    for part in parts() {
        let instance = part["instance"].as_u64().filter(|instance| *instance > 0);
        for stage in part["stages"].as_array().into_iter().flatten() {
            let found: Vec<String> =
                stage["found"].as_object().into_iter().flatten().filter_map(finding).collect();
            if !found.is_empty() {
                let instance = instance.map_or_else(String::new, |instance| format!(" ({instance})"));
                rows.push(row([
                    "Found",
                    &format!("{}{instance}: {}", text(&stage["label"]), found.join(", ")),
                ]));
            }
        }
    }
    rows
}

fn finding((name, value): (&String, &Value)) -> Option<String> {
    match value {
        Value::Number(number) => Some(format!("{} {number}", name.replace('_', " "))),
        Value::Object(counts) => {
            let mut counts: Vec<_> = counts.iter().map(|(key, count)| (count.as_u64(), key)).collect();
            counts.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
            let shown = counts.iter().take(COUNTS_SHOWN);
            let shown: Vec<String> =
                shown.map(|(count, key)| format!("{key}: {}", count.unwrap_or(0))).collect();
            let more = if counts.len() > COUNTS_SHOWN { ", ..." } else { "" };
            (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
        }
        _ => None,
    }
}

impl List {
    /// Lists the streams.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let answer = self.remote.request(Method::GET, "/api/v1/streams", None).await?;
        let mut rows = vec![row(["STREAM", "STATE", "NODE", "DEFINITION"])];
        for stream in answer["streams"].as_array().into_iter().flatten() {
            let node = if stream["node"].is_null() { "-".to_owned() } else { text(&stream["node"]) };
            // A definition may span several lines.
            let definition = text(&stream["definition"]).split_whitespace().collect::<Vec<_>>().join(" ");
            rows.push(row([&text(&stream["name"]), &text(&stream["state"]), &node, &definition]));
        }
        self.remote.output.show(&answer, |style| Ok(style.table(&rows)))
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Prints the result, or fails if the stream failed afterwards.
fn print_result(remote: &RemoteHost, answer: &Value, done: &str) -> anyhow::Result<()> {
    let state = answer["state"].as_str();
    remote.output.show(answer, |_| {
        Ok(match state {
            Some("failed") => String::new(),
            Some("undeploying") => format!("{done}; messages in flight are still being delivered\n"),
            _ => format!("{done}\n"),
        })
    })?;
    match state {
        Some("failed") => {
            Err(CommandFailure(format!("{done}, but it failed: {}", text(&answer["reason"]))).into())
        }
        _ => Ok(()),
    }
}
