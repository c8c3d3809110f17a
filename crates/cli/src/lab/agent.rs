//! `lab agent`: runs the lab's workers on this machine.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use thalweg_lab::agent::{AgentOptions, Insecure, Security, listen};

use super::run::{exact_version, lab_version};
use crate::program::running_binary;
use crate::signals;

/// Run the clients of a measurement on this machine, for a lab on another one.
///
/// The agent starts a process for each worker that a `thalweg lab run --agents` asks for, and ends the
/// process with its connection. The machine's clock need not be right: the lab measures the offset. Lab and
/// agents must be of one version. Only a lab with the certificate of `thalweg lab agent-certificates` is let
/// in.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab agent-certificates certs                       once, where the lab runs
  scp certs/ca.crt certs/agent.pem client-1:certs/           to each client machine
  thalweg lab agent --listen 0.0.0.0:7000 --certificates certs
  thalweg lab run ibm-fast --agents client-1:7000,client-2:7000 --agent-certificates certs --bootstrap b1:9092

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
        let options = AgentOptions {
            listen: self.listen.clone(),
            security,
            binary: running_binary()?,
            version: exact_version()?,
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
}
