//! Arguments common to all tools: the cluster and the client settings. Reports waits for brokers, so that no
//! tool waits in silence.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use thalweg_client::{Cluster, ConnectionOptions, Properties, WaitReport, Waits};
use tokio::time::Instant;

use super::profile;

/// Time limit for creating a missing topic. Shorter than `max.block.ms`, because a person waits.
pub(crate) const TOPIC_WAIT: Duration = Duration::from_secs(10);

/// The brokers of `thalweg serve`.
const BOOTSTRAP_SERVER: &str = "localhost:9092";

/// The variables that stand for options.
const BOOTSTRAP_VARIABLE: &str = "THALWEG_BOOTSTRAP_SERVER";
const CONFIG_VARIABLE: &str = "THALWEG_COMMAND_CONFIG";
/// The setting with the brokers.
const BOOTSTRAP: &str = "bootstrap.servers";

/// The cluster and the client settings.
#[derive(Args, Debug, Clone, Default)]
pub struct Connect {
    /// Bootstrap brokers [default: those of --command-config or of the profile, or localhost:9092].
    #[arg(long, short = 'b', value_name = "HOST:PORT,...", env = BOOTSTRAP_VARIABLE)]
    bootstrap_server: Option<String>,
    /// A properties file with client settings, in place of the profile's.
    #[arg(long, value_name = "FILE", env = CONFIG_VARIABLE)]
    command_config: Option<PathBuf>,
    /// A client setting, for example request.timeout.ms=5000; can be repeated. Overrides --command-config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// The source of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The built-in default.
    Default,
    /// A profile, by name.
    Profile(String),
    /// A properties file.
    File(PathBuf),
    /// An environment variable.
    Environment(&'static str),
    /// A command line option.
    Option(&'static str),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Profile(name) => write!(f, "profile {name}"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Environment(name) => write!(f, "environment variable {name}"),
            Source::Option(name) => write!(f, "option {name}"),
        }
    }
}

/// Values and sources by setting; a later source replaces an earlier one.
pub(crate) type SourcedSettings = BTreeMap<String, (String, Source)>;

impl Connect {
    /// The connection of a command line with these options.
    pub(crate) fn new(bootstrap_server: Option<String>, command_config: Option<PathBuf>) -> Connect {
        Connect { bootstrap_server, command_config, settings: Vec::new() }
    }

    /// The properties file of the options.
    pub(crate) fn command_config(&self) -> Option<&Path> {
        self.command_config.as_deref()
    }

    /// All settings, without their sources.
    pub fn properties(&self) -> anyhow::Result<Properties> {
        let mut properties = Properties::new();
        for (key, (value, _)) in self.sourced()? {
            properties.set(&key, &value);
        }
        Ok(properties)
    }

    /// All settings, each with its source. Options take precedence over the environment, the environment over
    /// files and the profile, and these over defaults.
    pub(crate) fn sourced(&self) -> anyhow::Result<SourcedSettings> {
        let mut all = SourcedSettings::new();
        all.insert(BOOTSTRAP.to_owned(), (BOOTSTRAP_SERVER.to_owned(), Source::Default));
        all.extend(client_settings(self.command_config.as_deref())?);
        let from_variable = is_from_variable(self.bootstrap_server.as_deref(), BOOTSTRAP_VARIABLE);
        if let Some(servers) = self.bootstrap_server.clone().filter(|_| from_variable) {
            all.insert(BOOTSTRAP.to_owned(), (servers, Source::Environment(BOOTSTRAP_VARIABLE)));
        }
        for setting in &self.settings {
            let mut one = Properties::new();
            one.set_text(setting)?;
            let (key, value) = entries(&one).remove(0);
            all.insert(key, (value, Source::Option("--set")));
        }
        if let Some(servers) = self.bootstrap_server.clone().filter(|_| !from_variable) {
            all.insert(BOOTSTRAP.to_owned(), (servers, Source::Option("--bootstrap-server")));
        }
        Ok(all)
    }

    /// Bootstrap servers and connection options, for an administrative tool.
    pub(crate) fn addresses(&self) -> anyhow::Result<(Vec<String>, ConnectionOptions)> {
        let mut properties = self.properties()?;
        let bootstrap = properties.take_bootstrap_servers()?;
        let options = ConnectionOptions::take(&mut properties, "admin")?;
        let options = ConnectionOptions { waits: Some(WAITS.clone()), ..options };
        warn_about_rest(&properties);
        Ok((bootstrap, options))
    }

    /// Connects to the cluster, for an administrative tool.
    pub(crate) async fn cluster(&self) -> anyhow::Result<Cluster> {
        let (bootstrap, options) = self.addresses()?;
        Ok(Cluster::connect(&bootstrap, &options).await?)
    }
}

/// True if clap took the value of an option from its environment variable.
fn is_from_variable(value: Option<&str>, variable: &str) -> bool {
    value.is_some() && std::env::var(variable).ok().as_deref() == value
}

/// The client settings of `file`; without a file, those of the profile: its file, settings and brokers. A
/// file replaces the profile's settings as a whole, because two halves of different logins make no login.
/// Only the brokers may still come from the profile.
pub(crate) fn client_settings(file: Option<&Path>) -> anyhow::Result<SourcedSettings> {
    let profile = profile::active();
    let of_profile = || Source::Profile(profile.name.clone());
    let mut all = SourcedSettings::new();
    if let Some(path) = &profile.command_config
        && file.is_none()
    {
        let settings = read(path).with_context(|| format!("The profile {}", profile.name))?;
        all.extend(settings.into_iter().map(|(key, value)| (key, (value, Source::File(path.clone())))));
    }
    if file.is_none() {
        let settings = profile.settings.clone().into_iter();
        all.extend(settings.map(|(key, value)| (key, (value, of_profile()))));
    }
    if let Some(servers) = &profile.bootstrap_server {
        all.insert(BOOTSTRAP.to_owned(), (servers.clone(), of_profile()));
    }
    if let Some(path) = file {
        let settings = read(path)?.into_iter();
        all.extend(settings.map(|(key, value)| (key, (value, Source::File(path.to_owned())))));
    }
    Ok(all)
}

fn read(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("Cannot read --command-config {}", path.display()))?;
    let resolved = Properties::parse(&text).resolve();
    Ok(entries(&resolved.with_context(|| path.display().to_string())?))
}

fn entries(properties: &Properties) -> Vec<(String, String)> {
    let entry = |key: &str| Some((key.to_owned(), properties.get(key)?.to_owned()));
    properties.rest().filter_map(entry).collect()
}

/// Settings of some commands in the files that all commands share, such as those that the console shows for a
/// new user.
const OF_OTHER_COMMANDS: [&str; 1] = ["group.id"];

/// Warns of settings without effect.
pub(crate) fn warn_about_rest(properties: &Properties) {
    for key in unknown(properties) {
        tracing::warn!("Unknown setting {key} has no effect");
    }
}

fn unknown(properties: &Properties) -> impl Iterator<Item = &str> {
    properties.rest().filter(|key| !OF_OTHER_COMMANDS.contains(key))
}

/// The waits of this process's tool for brokers.
pub static WAITS: LazyLock<Waits> = LazyLock::new(Waits::default);

/// Age of a wait at its first report.
const PATIENCE: Duration = Duration::from_millis(1500);
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of repeating the same report; below, the shortest interval between different reports.
const SAME_AGAIN: Duration = Duration::from_secs(10);
const ANOTHER: Duration = Duration::from_secs(2);

/// The state of the reports about waits.
#[derive(Debug, Default)]
struct Reports {
    /// Text and time of the last report.
    last: Option<(String, Instant)>,
    /// Time of the first report of the current wait.
    since: Option<Instant>,
}

impl Reports {
    /// The line to print at `now`, if any.
    fn line(&mut self, awaited: Option<WaitReport>, now: Instant) -> Option<String> {
        let line = match awaited {
            Some(WaitReport::Pending(what)) => format!("waiting for {what}"),
            Some(WaitReport::Failing(error)) => format!("{error}; trying again"),
            None => {
                self.last = None;
                let since = self.since.take()?;
                return Some(format!("going on after {} s", (now - since + PATIENCE).as_secs()));
            }
        };
        let due = match &self.last {
            Some((last, at)) => now - *at >= if *last == line { SAME_AGAIN } else { ANOTHER },
            None => true,
        };
        due.then(|| {
            self.since.get_or_insert(now);
            self.last = Some((line.clone(), now));
            line
        })
    }
}

/// Reports the tool's waits on standard error. Never returns.
pub async fn report_waits() {
    report_waits_by(|line| {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "thalweg: {line}");
    })
    .await;
}

/// Like [`report_waits`], with a function that prints a line.
pub async fn report_waits_by(print: impl Fn(&str)) {
    let mut reports = Reports::default();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if let Some(line) = reports.line(WAITS.longer_than(PATIENCE), Instant::now()) {
            print(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_consumers_in_a_shared_file_is_no_unknown_setting() {
        let properties = Properties::parse("group.id=team-1\nlinger.mss=5\n");
        assert_eq!(unknown(&properties).collect::<Vec<_>>(), ["linger.mss"]);
    }

    #[test]
    fn waits_are_reported_at_a_bounded_rate() {
        let mut reports = Reports::default();
        let mut lines = Vec::new();
        let begin = Instant::now();
        for quarter in 0..80 {
            let awaited = match quarter {
                0..40 => Some(WaitReport::Pending("b:1 to answer Metadata".to_owned())),
                // A text that changes each time.
                40..60 => Some(WaitReport::Failing(format!("failure {quarter}"))),
                _ => None,
            };
            lines.extend(reports.line(awaited, begin + quarter * CHECK_INTERVAL).map(|line| (quarter, line)));
        }
        let expected = [
            (0, "waiting for b:1 to answer Metadata"),
            (40, "failure 40; trying again"),
            (48, "failure 48; trying again"),
            (56, "failure 56; trying again"),
            (60, "going on after 16 s"),
        ];
        let lines: Vec<_> = lines.iter().map(|(quarter, line)| (*quarter, line.as_str())).collect();
        assert_eq!(lines, expected);
    }
}
