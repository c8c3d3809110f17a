//! A run that another process controls: the console. Standard input carries one line with client settings,
//! hidden from other users of the machine, and stays open. The end of standard input ends the run cleanly:
//! the other process has stopped the run, or has ended.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Stdin};

use anyhow::Context;
use thalweg_lab::target::TargetSpec;
use tokio::sync::oneshot;

/// Limit of the line with settings.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Client settings for the running cluster.
#[derive(Debug)]
pub(crate) struct Settings(BTreeMap<String, String>);

/// Notification of the end of standard input.
#[derive(Debug)]
pub(crate) struct End(oneshot::Receiver<()>);

/// Reads the line of settings, and watches standard input from then on.
pub(crate) fn take() -> anyhow::Result<(Settings, End)> {
    let mut input = BufReader::new(std::io::stdin());
    let settings = read(&mut input)?;
    let (ended, end) = oneshot::channel();
    // A thread, because standard input blocks. The thread ends with the process.
    std::thread::Builder::new().name("control".to_owned()).spawn(move || watch(input, ended))?;
    Ok((settings, End(end)))
}

fn read(input: &mut impl BufRead) -> anyhow::Result<Settings> {
    let mut line = String::new();
    input.take(LINE_BYTES_MAX).read_line(&mut line).context("--controlled: cannot read standard input")?;
    let settings = serde_json::from_str(&line)
        .context("--controlled: the first line of standard input is no JSON object with client settings")?;
    Ok(Settings(settings))
}

fn watch(mut input: BufReader<Stdin>, ended: oneshot::Sender<()>) {
    // Further input is unexpected, and dropped.
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    let _ = ended.send(());
}

impl Settings {
    /// Adds the settings to targets that are running clusters.
    pub fn apply(self, targets: &mut [TargetSpec]) {
        for target in targets {
            if let TargetSpec::Bootstrap { properties, .. } = target {
                properties.extend(self.0.clone());
            }
        }
    }
}

impl End {
    /// Waits for the end of standard input.
    pub async fn ended(self) {
        let _ = self.0.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_one_line() {
        let mut input = &b"{\"sasl.username\": \"ann\"}\nrest"[..];
        let Settings(settings) = read(&mut input).expect("a line");
        assert_eq!(settings.get("sasl.username").map(String::as_str), Some("ann"));
        assert_eq!(input, b"rest");
        assert!(read(&mut &b"sasl.username=ann\n"[..]).is_err());
        assert!(read(&mut &b""[..]).is_err());
    }
}
