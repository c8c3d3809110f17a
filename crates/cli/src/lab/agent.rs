//! `lab agent`: runs the lab's workers on this machine, or watches the brokers on it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use thalweg_lab::agent::{AgentOptions, Insecure, Security, listen};

use super::run::{exact_version, lab_version};
use crate::failure::Usage;
use crate::program::running_binary;
use crate::signals;

/// Run the clients of a measurement on this machine, for a lab on another one, or watch the brokers on it.
///
/// For `thalweg lab run --agents`, the agent starts a process for each worker, and ends the process with its
/// connection. For `--broker-agents`, the agent samples the machine and the brokers' processes during the
/// repetitions, if it runs as the brokers' user, or as root. The machine's clock need not be right: the lab
/// measures the offset. Lab and agents must be of one version. Only a lab with the certificate of `thalweg
/// lab agent-certificates` is let in.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab agent-certificates certs                       once, where the lab runs
  scp certs/ca.crt certs/agent.pem client-1:certs/           to each client machine
  thalweg lab agent --listen 0.0.0.0:7000 --certificates certs
  thalweg lab run ibm-fast --agents client-1:7000,client-2:7000 --agent-certificates certs --bootstrap b1:9092

  thalweg lab agent --certificates certs --data-dir /var/lib/kafka      on a broker's machine, to watch only; then
  thalweg lab run ibm-fast --bootstrap b1:9092 --broker-agents b1:7000 --agent-certificates certs

  thalweg lab agent --listen 127.0.0.1:7000 --insecure       on the lab's machine, to try it")]
pub struct Agent {
    /// The address to listen on; port 0 is any free port, which is printed.
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:7000")]
    listen: String,
    /// The directory with ca.crt and agent.pem.
    #[arg(long, value_name = "DIR")]
    certificates: Option<PathBuf>,
    /// Do without certificates: on loopback, or, with =anywhere, on every network. Everybody who can connect
    /// to the agent can then run programs on this machine.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "loopback",
        conflicts_with = "certificates")]
    insecure: Option<Insecure>,
    /// A data directory (log.dirs) of a broker on this machine, whose devices and log files are then in the
    /// result; can be repeated.
    #[arg(long = "data-dir", value_name = "DIR")]
    data_dirs: Vec<PathBuf>,
    /// Only watch brokers: run no clients, use no passwords, and sample no other processes. The default with
    /// --data-dir; with =false, the agent runs clients, too.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    watch_only: Option<bool>,
    /// Internal: pretends to be another machine, for tests.
    #[arg(long, value_name = "ID", hide = true)]
    boot_id: Option<String>,
    /// Internal: makes the clocks of the agent and its workers wrong, for tests.
    #[arg(long, value_name = "MS", hide = true, default_value_t = 0, allow_negative_numbers = true)]
    clock_offset_ms: i64,
}

impl Agent {
    /// Serves until a signal.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let names = ("--certificates", "--insecure");
        let security = Security::new(self.certificates.clone(), self.insecure, names)?;
        let how = if security.is_insecure() { "without certificates" } else { "with certificates" };
        let watch_only = self.watch_only.unwrap_or(!self.data_dirs.is_empty());
        if self.insecure == Some(Insecure::Anywhere) && !watch_only && rustix::process::geteuid().is_root() {
            tracing::warn!(
                "Everybody who can connect to this agent can run programs as root: use certificates, or --watch-only"
            );
        }
        let options = AgentOptions {
            listen: self.listen.clone(),
            security,
            binary: running_binary()?,
            version: exact_version()?,
            data_dirs: self.data_dirs()?,
            watch_only,
            boot_id: self.boot_id.clone(),
            clock_shift_us: self.clock_offset_ms.saturating_mul(1000),
        };
        let listening = listen(options).await?;
        let mut out = std::io::stdout();
        writeln!(out, "Agent of {} listens on {}, {how}", lab_version(), listening.address())?;
        out.flush()?;
        let end = signals::end();
        tokio::select! {
            () = listening.serve() => Ok(()),
            ended = end => Ok(ended?),
        }
    }

    /// The data directories, as absolute paths without links.
    fn data_dirs(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut dirs = Vec::new();
        for dir in &self.data_dirs {
            let wrong = |why: String| Usage(format!("--data-dir {}: {why}", dir.display()));
            let real = dir.canonicalize().map_err(|error| wrong(error.to_string()))?;
            if !real.is_dir() {
                return Err(wrong("is no directory; use one of the broker's log.dirs".to_owned()).into());
            }
            if !real.join("meta.properties").is_file() {
                tracing::warn!(
                    dir = %real.display(),
                    "The directory of --data-dir has no meta.properties: it is none of the broker's log.dirs, or the broker \
                     has not started yet"
                );
            }
            if !dirs.contains(&real) {
                dirs.push(real);
            }
        }
        Ok(dirs)
    }
}
