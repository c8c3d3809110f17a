//! `file`: writes messages to a file, which is rolled by size or age.
//!
//! A full file is renamed: `orders.log` becomes `orders.1.log`, the next `orders.2.log`, and so on, and a new
//! `orders.log` begins. Rolling never overwrites an existing file.
//!
//! Failed writes are retried with the rest of the batch: the disk may be full for a while, or a folder
//! missing. When the time for retries is over, a message that is written in part is removed from the file. A
//! failed sync is not retried, because the state of the disk is then unknown.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::disk::{self, Appender};
use crate::message::Batch;
use crate::reach::Reach;
use crate::retry::Retry;
use crate::stage::{IoFailed, Sink, StageError, Turn, Wait};

/// Maximum time that data may stay in the buffer.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

pub const MODULE: Module = Module {
    name: "file",
    summary: "writes messages to a file, which is rolled by size or age",
    about: "A full file is renamed: `orders.log` becomes `orders.1.log`, the next one `orders.2.log`, and a new `orders.log` \
            begins. Failed writes, for example to a full medium, are retried with growing pauses for as long as `--retryFor` \
            allows; after that, a message that is written in part is removed from the file. If an existing file does not end with \
            the delimiter, as after a loss of power, the first message begins behind a delimiter. With `--sync=true`, the directory is \
            synced, too, when a file is created or rolled. At most 256 KiB wait in memory, and a batch. `--mode=replace` empties \
            the file at each start: it is refused behind a consumer group, which does not send the lost messages again.",
    options: &[
        OptionSpec {
            name: "path",
            takes: OptionType::Name,
            default: OptionDefault::Required,
            summary: "The file.",
        },
        OptionSpec {
            name: "mode",
            takes: OptionType::Choice(&["append", "replace", "fail"]),
            default: OptionDefault::Value("append"),
            summary: "What to do if the file exists.",
        },
        OptionSpec {
            name: "delimiter",
            takes: OptionType::Text,
            default: OptionDefault::Value("\n"),
            summary: "Written after each message; a line end by default.",
        },
        OptionSpec {
            name: "rollSize",
            takes: OptionType::Size,
            default: OptionDefault::None,
            summary: "Roll the file at this size; by default never.",
        },
        OptionSpec {
            name: "rollEvery",
            takes: OptionType::Duration,
            default: OptionDefault::None,
            summary: "Roll the file at this age; by default never.",
        },
        OptionSpec {
            name: "sync",
            takes: OptionType::Flag,
            default: OptionDefault::Value("false"),
            summary: "Whether to sync to the medium before acknowledging; by default, acknowledged messages are in the page cache.",
        },
        OptionSpec {
            name: "retryFor",
            takes: OptionType::Duration,
            default: OptionDefault::Value("5m"),
            summary: "How long failed writes are retried.",
        },
    ],
    examples: &[("stdin | file --path=orders.log --rollSize=100MiB", "files of 100 MiB")],
    check: declaration::any,
    make: StageMaker::Sink(|settings, site| {
        let path = site.reach.file(Path::new(settings.text("path")))?;
        let file = match settings.text("mode") {
            "replace" => Appender::replace(&path)?,
            "fail" => Appender::create(&path)?,
            _ => Appender::open(&path, settings.text("delimiter").as_bytes())?,
        };
        if settings.flag("sync") {
            disk::sync_directory(&path)?;
        }
        Ok(Box::new(File {
            path,
            file,
            delimiter: settings.text("delimiter").as_bytes().to_vec(),
            roll_size: settings.optional_integer("rollSize").map(|size| size.max(1)),
            roll_every: settings.optional_duration("rollEvery"),
            sync: settings.flag("sync"),
            begun: None,
            flush_at: None,
            roll_again_at: None,
            rolled: 0,
            is_renamed: false,
            retry: Retry::within(settings.duration("retryFor")),
            waiting: None,
            reach: site.reach.clone(),
        }))
    }),
};

struct File {
    path: PathBuf,
    file: Appender,
    delimiter: Vec<u8>,
    roll_size: Option<u64>,
    roll_every: Option<Duration>,
    sync: bool,
    begun: Option<Instant>,
    flush_at: Option<Instant>,
    /// Time of the next attempt, after a failure to roll without a message.
    roll_again_at: Option<Instant>,
    rolled: u64,
    /// The file was renamed, and the new one does not exist yet.
    is_renamed: bool,
    retry: Retry,
    /// The index of the first unwritten message, and the error.
    waiting: Option<(Batch, usize, IoFailed)>,
    reach: Arc<Reach>,
}

impl File {
    /// Writes messages from an index on. On failure, returns the index of the first unwritten message.
    fn take(&mut self, batch: &Batch, from: usize, now: Instant) -> Result<(), (usize, IoFailed)> {
        for (index, message) in batch.messages().enumerate().skip(from) {
            if self.is_due(now) {
                self.roll().map_err(|error| (index, error))?;
            }
            if self.file.is_full() {
                self.file.flush().map_err(|error| (index, error))?;
            }
            self.begun.get_or_insert(now);
            self.file.append(&[message.value, &self.delimiter]);
        }
        self.flush_at.get_or_insert(now + FLUSH_EVERY);
        Ok(())
    }

    fn is_due(&self, now: Instant) -> bool {
        let is_full = self.roll_size.is_some_and(|size| self.file.len() >= size);
        let is_old = self.roll_at().is_some_and(|at| at <= now);
        is_full || is_old || self.is_renamed
    }

    /// Rolls the file. After a failure, another call continues at the failed step.
    fn roll(&mut self) -> Result<(), IoFailed> {
        let path = self.path.clone();
        let failed = |error| IoFailed::file("rename", &path, error);
        if !self.is_renamed {
            self.file.flush()?;
            if self.sync {
                self.sync()?;
            }
            let to = loop {
                let to = numbered(&self.path, self.rolled + 1);
                if !to.try_exists().map_err(failed)? {
                    break to;
                }
                self.rolled += 1;
            };
            std::fs::rename(&self.path, to).map_err(failed)?;
            self.is_renamed = true;
        }
        self.file = Appender::open(&self.reach.file(&self.path)?, &self.delimiter)?;
        if self.sync {
            self.sync_directory()?;
        }
        self.rolled += 1;
        (self.is_renamed, self.begun, self.flush_at, self.roll_again_at) = (false, None, None, None);
        Ok(())
    }

    /// Syncs the names of the files. As after a failed sync of a file, there is no retry.
    fn sync_directory(&mut self) -> Result<(), IoFailed> {
        disk::sync_directory(&self.path).inspect_err(|_| self.retry = Retry::within(Duration::ZERO))
    }

    /// The time at which the file is rolled even if no message arrives.
    fn roll_at(&self) -> Option<Instant> {
        self.roll_every.zip(self.begun).map(|(every, begun)| begun + every)
    }

    /// The pause after a failure, or the failure itself when the time is over.
    fn pause_after(&mut self, error: IoFailed) -> Result<Duration, IoFailed> {
        let pause = self.retry.failed(Instant::now());
        if pause.is_some() && self.retry.tries() == 1 {
            tracing::warn!(error = %error, "Failed to write a file, retrying");
        }
        if pause.is_none() {
            // Another error would hide the first one.
            let _ = self.file.take_back();
        }
        pause.ok_or(error)
    }

    fn has_written(&mut self) {
        if self.retry.succeeded() {
            tracing::warn!(path = %self.path.display(), "Recovered from failed writes to a file");
        }
    }

    async fn take_rest(&mut self) -> Result<(), IoFailed> {
        while let Some((batch, from, error)) = self.waiting.take() {
            let pause = self.pause_after(error)?;
            sleep(pause).await;
            match self.take(&batch, from, Instant::now()) {
                Ok(()) => self.has_written(),
                Err((reached, error)) => self.waiting = Some((batch, reached, error)),
            }
        }
        Ok(())
    }

    async fn flush_all(&mut self) -> Result<(), IoFailed> {
        self.take_rest().await?;
        while let Err(error) = self.file.flush() {
            let pause = self.pause_after(error)?;
            sleep(pause).await;
        }
        self.has_written();
        self.flush_at = None;
        if self.sync { self.sync() } else { Ok(()) }
    }

    /// Writes without retries, after a failure.
    fn sync(&mut self) -> Result<(), IoFailed> {
        self.file.sync().inspect_err(|_| self.retry = Retry::within(Duration::ZERO))
    }
}

/// The name of a rolled file: `orders.log` with 2 is `orders.2.log`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}.{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}.{number}"),
    };
    path.with_file_name(name)
}

impl Sink for File {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if let Err((reached, error)) = self.take(batch, 0, turn.now) {
            self.waiting = Some((batch.clone(), reached, error));
        }
        Ok(())
    }

    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        self.waiting.as_ref()?;
        Some(Box::pin(async { Ok(self.take_rest().await?) }))
    }

    fn deadline(&self) -> Option<Instant> {
        match self.roll_again_at {
            Some(at) => Some(at),
            None => self.flush_at.into_iter().chain(self.roll_at()).min(),
        }
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.roll_again_at.is_some_and(|at| at > turn.now) {
            return Ok(());
        }
        if self.roll_again_at.is_some() || self.roll_at().is_some_and(|at| at <= turn.now) {
            match self.roll() {
                Ok(()) => {
                    self.has_written();
                    self.roll_again_at = None;
                }
                Err(error) => self.roll_again_at = Some(turn.now + self.pause_after(error)?),
            }
            return Ok(());
        }
        if self.flush_at.is_none_or(|at| at > turn.now) {
            return Ok(());
        }
        match self.file.flush() {
            Ok(()) => {
                self.has_written();
                self.flush_at = None;
                if self.sync {
                    self.sync()?;
                }
            }
            Err(error) => self.flush_at = Some(turn.now + self.pause_after(error)?),
        }
        Ok(())
    }

    fn flush(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(self.flush_all().await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_rolled_has_a_number_before_its_ending() {
        assert_eq!(numbered(Path::new("a/orders.log"), 2), Path::new("a/orders.2.log"));
        assert_eq!(numbered(Path::new("orders"), 1), Path::new("orders.1"));
    }
}
