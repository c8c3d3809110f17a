//! `file`: messages in a file, which is rolled when it is large or old.
//!
//! A file that is full is renamed: `orders.log` becomes `orders.1.log`, the next `orders.2.log`, and so on, and a new
//! `orders.log` begins. No file that is there is overwritten by that.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::disk::Appender;
use crate::message::Batch;
use crate::module::{Absent, Make, Module, OptionSpec, Takes};
use crate::stage::{IoFailed, Sink, StageError, Turn, Wait};

/// How long what was written may stay in the buffer.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// The declaration.
pub const MODULE: Module = Module {
    name: "file",
    summary: "messages in a file, which is rolled when it is large or old",
    about: "A file that is full is renamed: `orders.log` becomes `orders.1.log`, the next one `orders.2.log`, and a new \
            `orders.log` begins.",
    options: &[
        OptionSpec { name: "path", takes: Takes::Name, default: Absent::Required, summary: "The file." },
        OptionSpec {
            name: "mode",
            takes: Takes::Choice(&["append", "replace", "fail"]),
            default: Absent::Value("append"),
            summary: "What is done with a file that is there already.",
        },
        OptionSpec {
            name: "delimiter",
            takes: Takes::Text,
            default: Absent::Value("\n"),
            summary: "What is written after each message; an end of line by default.",
        },
        OptionSpec {
            name: "rollSize",
            takes: Takes::Size,
            default: Absent::None,
            summary: "A file that has this size is rolled; without, size does not matter.",
        },
        OptionSpec {
            name: "rollEvery",
            takes: Takes::Duration,
            default: Absent::None,
            summary: "A file that was begun this long ago is rolled; without, age does not matter.",
        },
        OptionSpec {
            name: "sync",
            takes: Takes::Flag,
            default: Absent::Value("false"),
            summary: "Whether what is acknowledged to the source is on the medium, and not in the page cache alone.",
        },
    ],
    examples: &[("stdin | file --path=orders.log --rollSize=100MiB", "files of a hundred mebibytes")],
    make: Make::Sink(|settings, _site| {
        let path = PathBuf::from(settings.text("path"));
        let file = match settings.text("mode") {
            "replace" => Appender::replace(&path)?,
            "fail" => Appender::create(&path)?,
            _ => Appender::open(&path)?,
        };
        Ok(Box::new(File {
            path,
            file,
            delimiter: settings.text("delimiter").as_bytes().to_vec(),
            roll_size: settings.optional_integer("rollSize").map(|size| size.max(1)),
            roll_every: settings.optional_duration("rollEvery"),
            sync: settings.flag("sync"),
            begun: None,
            flush_at: None,
            rolled: 0,
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
    rolled: u64,
}

impl File {
    fn flush_now(&mut self) -> Result<(), IoFailed> {
        self.flush_at = None;
        if self.sync {
            return self.file.sync();
        }
        self.file.flush().map_err(|error| IoFailed::file("write", &self.path, error))
    }

    fn roll(&mut self) -> Result<(), IoFailed> {
        self.flush_now()?;
        self.begun = None;
        let failed = |error| IoFailed::file("rename", &self.path, error);
        let to = loop {
            self.rolled += 1;
            let to = numbered(&self.path, self.rolled);
            if !to.try_exists().map_err(failed)? {
                break to;
            }
        };
        std::fs::rename(&self.path, to).map_err(failed)?;
        self.file = Appender::open(&self.path)?;
        Ok(())
    }
}

/// `orders.log` with 2 is `orders.2.log`.
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
        for message in batch.messages() {
            let is_full = self.roll_size.is_some_and(|size| self.file.len() >= size);
            let is_old =
                self.roll_every.zip(self.begun).is_some_and(|(every, begun)| turn.now - begun >= every);
            if is_full || is_old {
                self.roll()?;
            }
            self.begun.get_or_insert(turn.now);
            let written =
                self.file.write_all(message.value).and_then(|()| self.file.write_all(&self.delimiter));
            written.map_err(|error| IoFailed::file("write", &self.path, error))?;
        }
        self.flush_at.get_or_insert(turn.now + FLUSH_EVERY);
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        self.flush_at
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.flush_at.is_some_and(|at| at <= turn.now) {
            self.flush_now()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(self.flush_now()?) })
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
