//! Short commands of the lab as child processes, with bounded output and time.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::problem::Problem;

/// Maximum concurrent processes.
const AT_ONCE: usize = 2;
/// Maximum run time of a process.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum output bytes, enough for a report of many points.
const OUTPUT_BYTES_MAX: u64 = 32 << 20;
/// Maximum bytes of an error message.
const ERROR_BYTES_MAX: u64 = 16 << 10;

/// Runs commands of the lab.
pub struct Program {
    at_once: Semaphore,
}

impl Default for Program {
    fn default() -> Program {
        Program { at_once: Semaphore::new(AT_ONCE) }
    }
}

impl Program {
    /// Returns the standard output of `lab` with these arguments, or a problem with the error output.
    pub async fn output(&self, program: &Path, arguments: &[&OsStr]) -> Result<Vec<u8>, Problem> {
        let _one = self.at_once.acquire().await.expect("it is never closed");
        let mut command = command(program);
        command.args(arguments).stdin(Stdio::null());
        let done = async {
            let mut child = command.spawn()?;
            let stdout = child.stdout.take().expect("it is a pipe").take(OUTPUT_BYTES_MAX + 1);
            let stderr = child.stderr.take().expect("it is a pipe").take(ERROR_BYTES_MAX);
            let (output, complaint) = tokio::join!(whole(stdout), whole(stderr));
            let output = output?;
            if output.len() as u64 > OUTPUT_BYTES_MAX {
                return Ok(Err(failed(format!("The lab's answer has more than {OUTPUT_BYTES_MAX} bytes"))));
            }
            let status = child.wait().await?;
            let complaint = String::from_utf8_lossy(&complaint?).trim().to_owned();
            Ok(if status.success() { Ok(output) } else { Err(Problem::wrong(complaint)) })
        };
        match timeout(TIME_MAX, done).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => Err(not_started(program, &error)),
            Err(_) => Err(failed(format!("The lab did not answer within {TIME_MAX:?}"))),
        }
    }
}

/// A `lab` command. Dropping the child kills the process; Ctrl-C in the terminal does not reach the process
/// group.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("lab").stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
    command
}

/// The problem of a program that cannot be started.
pub fn not_started(program: &Path, error: &std::io::Error) -> Problem {
    failed(format!("{} cannot be run: {error}", program.display()))
}

fn failed(message: String) -> Problem {
    Problem { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "lab failed".to_owned(), message }
}

async fn whole(mut from: impl tokio::io::AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).await?;
    Ok(bytes)
}
