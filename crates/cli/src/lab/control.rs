//! A run that another process controls: the console. Standard input has one line with client settings, which no other user of the
//! machine can read there, and stays open. When it closes, the run ends cleanly: the other process has stopped it, or is gone.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Stdin};

use anyhow::Context;
use thalweg_lab::target::TargetSpec;
use tokio::sync::oneshot;

/// The longest line.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Client settings for the running cluster.
#[derive(Debug)]
pub struct Settings(BTreeMap<String, String>);

/// The end of the one who controls the run.
#[derive(Debug)]
pub struct End(oneshot::Receiver<()>);

/// Reads the line, and watches standard input from then on.
pub fn take() -> anyhow::Result<(Settings, End)> {
    let mut input = BufReader::new(std::io::stdin());
    let settings = read(&mut input)?;
    let (ended, end) = oneshot::channel();
    // A thread, because standard input blocks. It ends with the process.
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
    // Nothing more is expected; whatever comes is dropped.
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    let _ = ended.send(());
}

impl Settings {
    /// Sets them for running clusters.
    pub fn apply(self, targets: &mut [TargetSpec]) {
        for target in targets {
            if let TargetSpec::Bootstrap { properties, .. } = target {
                properties.extend(self.0.clone());
            }
        }
    }
}

impl End {
    /// Waits for it.
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
