//! `debug bundle`: one archive for a bug report.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use serde_json::json;
use thalweg_client::Properties;
use thalweg_config::LogSettings;

use super::archive::GatheredFiles;
use super::{layout, parts};
use crate::connect::{Connect, SourcedSettings};
use crate::output::{CommandOutput, Style};
use crate::profile;
use crate::stream::Http;

/// Time limit for a broker's answer.
const WITHIN: Duration = Duration::from_secs(5);
/// Time limit for all settings of all brokers.
const SETTINGS_WITHIN: Duration = Duration::from_secs(30);
/// Time limit for a page of metrics.
const PAGE_WITHIN: Duration = Duration::from_secs(10);

/// Gather configuration, state, metrics and logs in one archive, without secrets.
///
/// The archive has: the settings of clients and brokers with their sources; the state of the cluster; the
/// metrics of a node, twice, so that rates can be seen; names and sizes of the files in data directories, no
/// records; facts about this machine; and the ends of logs. Passwords, keys and tokens are removed, by the
/// names of settings and wherever else they stand. What cannot be had, as from a broker that is down, is
/// named in contents.json, and the rest is there. Names of topics, groups, hosts and users stay: read the
/// archive before you hand it on.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg debug bundle
  thalweg debug bundle --properties server.properties --log /var/log/thalweg.log --server http://localhost:9090
  journalctl -u thalweg > node.log; thalweg debug bundle --data-dir /var/lib/thalweg --log node.log")]
pub struct Bundle {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    http: Http,
    /// The properties file of a node on this machine.
    #[arg(long, value_name = "FILE")]
    properties: Option<PathBuf>,
    /// A data directory of a node on this machine; can be repeated [default: log.dirs of --properties].
    #[arg(long = "data-dir", value_name = "DIR")]
    data_dirs: Vec<PathBuf>,
    /// A log file; can be repeated.
    #[arg(long = "log", value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// Bytes from the end of each log.
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 20, value_parser = clap::value_parser!(u64).range(..=1 << 30))]
    log_bytes: u64,
    /// Seconds between the two pages of metrics.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=3600))]
    interval: u64,
    /// The archive [default: thalweg-debug-TIME.tar.gz].
    #[arg(long, short = 'o', value_name = "FILE.tar.gz")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: CommandOutput,
}

impl Bundle {
    /// Gathers all parts, and writes the archive.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let now = Utc::now();
        let name = format!("thalweg-debug-{}", now.format("%Y%m%dT%H%M%SZ"));
        let path = self.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
        let gathered = self.gather(now).await;
        let bytes = gathered.write(&path, &name, u64::try_from(now.timestamp()).unwrap_or(0))?;
        let mut document = gathered.contents();
        document["archive"] = json!(path);
        document["bytes"] = json!(bytes);
        self.output.show(&document, |style| Ok(summary(&document, style)))
    }

    async fn gather(&self, now: DateTime<Utc>) -> GatheredFiles {
        let mut gathered = GatheredFiles::default();
        let time = now.to_rfc3339_opts(SecondsFormat::Secs, true);
        gathered.document("about.json", parts::about(&time));
        let sourced = self.connect.sourced();
        match &sourced {
            Ok(sourced) => {
                learn(&mut gathered, sourced);
                gathered.document("client.json", parts::client(sourced));
            }
            Err(error) => gathered.missing("client.json", error),
        }
        self.learn_passwords(&mut gathered);
        let dirs = self.node_files(&mut gathered);
        for (at, log) in (1..).zip(&self.logs) {
            let name = log.file_name().unwrap_or_default().to_string_lossy();
            gathered.text_or_reason(&format!("logs/{at}-{name}"), parts::tail(log, self.log_bytes));
        }
        let (state, brokers, metrics, machine) = tokio::join!(
            parts::state(&self.connect, WITHIN),
            async {
                let requested = tokio::time::timeout(SETTINGS_WITHIN, parts::brokers(&self.connect)).await;
                requested.with_context(|| format!("no answer within {} s", SETTINGS_WITHIN.as_secs()))?
            },
            self.metrics(),
            parts::this_machine(&dirs),
        );
        gathered.document_or_reason("cluster.json", state);
        match brokers {
            Ok((brokers, topics)) => {
                gathered.document("brokers.json", brokers);
                gathered.document("topics.json", topics);
            }
            Err(error) => {
                gathered.missing("brokers.json", &error);
                gathered.missing("topics.json", &error);
            }
        }
        for (name, page) in ["metrics-1.txt", "metrics-2.txt"].into_iter().zip(metrics) {
            gathered.text_or_reason(name, page);
        }
        gathered.document("machine.json", machine);
        gathered
    }

    /// The configuration of a node and the files of its directories; returns the directories.
    fn node_files(&self, gathered: &mut GatheredFiles) -> Vec<PathBuf> {
        let mut dirs = self.data_dirs.clone();
        if let Some(path) = &self.properties {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("Cannot read {}", path.display()));
            if let (true, Ok(text)) = (dirs.is_empty(), &text) {
                let properties = Properties::parse(text);
                let (dirs_key, dir_key) = (LogSettings::dirs.name(), LogSettings::dir.name());
                let named = properties.get(dirs_key).or(properties.get(dir_key)).unwrap_or_default();
                dirs = named
                    .split(',')
                    .map(str::trim)
                    .filter(|dir| !dir.is_empty())
                    .map(PathBuf::from)
                    .collect();
            }
            let text = text.map(|text| gathered.secrets.properties(&text));
            gathered.text_or_reason("node.properties", text);
        }
        for (at, dir) in (1..).zip(&dirs) {
            let text = layout::layout(dir).map(|text| format!("{}\n{text}", dir.display()));
            gathered.text_or_reason(&format!("layout-{at}.tsv"), text);
        }
        dirs
    }

    /// Two pages of metrics, `--interval` apart.
    async fn metrics(&self) -> [anyhow::Result<String>; 2] {
        let first = self.page().await;
        if first.is_ok() {
            tokio::time::sleep(Duration::from_secs(self.interval)).await;
        }
        [first, self.page().await]
    }

    async fn page(&self) -> anyhow::Result<String> {
        let page = self.http.text("/metrics", self.connect.command_config());
        let page = tokio::time::timeout(PAGE_WITHIN, page).await;
        page.with_context(|| format!("no answer within {} s", PAGE_WITHIN.as_secs()))?
    }

    /// Learns the passwords of the HTTP login, which may occur in a log.
    fn learn_passwords(&self, gathered: &mut GatheredFiles) {
        let files = [self.http.password_file(), profile::active().password_file.as_deref()];
        for file in files.into_iter().flatten() {
            gathered.secrets.remember(&std::fs::read_to_string(file).unwrap_or_default());
        }
        for (name, value) in std::env::vars_os() {
            gathered.secrets.learn(&name.to_string_lossy(), &value.to_string_lossy());
        }
    }
}

fn learn(gathered: &mut GatheredFiles, sourced: &SourcedSettings) {
    for (key, (value, _)) in sourced {
        gathered.secrets.learn(key, value);
    }
    for (key, value) in &profile::active().settings {
        gathered.secrets.learn(key, value);
    }
}

fn summary(document: &serde_json::Value, style: Style) -> String {
    let count = document["files"].as_array().map_or(0, Vec::len);
    let archive = document["archive"].as_str().unwrap_or_default();
    let mut text = format!("Wrote {archive}: {count} files, {} bytes.\n", document["bytes"]);
    for missing in document["missing"].as_array().into_iter().flatten() {
        let (part, reason) = (missing["part"].as_str(), missing["reason"].as_str());
        let line = format!("missing: {}: {}", part.unwrap_or_default(), reason.unwrap_or_default());
        text.push_str(&style.doubtful(&line));
        text.push('\n');
    }
    text.push_str(
        "Passwords, keys and tokens are removed. Names of topics, groups, hosts and users are not.\n",
    );
    text
}
