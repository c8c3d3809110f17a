//! `file`: the lines of a file, all of it, or what is added to it.
//!
//! What follows a file looks at it every quarter of a second: for more bytes, for the path to name another file (it was
//! rotated), and for the file to have become shorter (it was cut and begins anew). Of a file that was rotated the rest is
//! read first, and a last line without an end is a line.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;

use super::lines::Lines;
use crate::disk::{self, Reader};
use crate::message::{BATCH_BYTES_MAX, Batch, MESSAGE_BYTES_MAX};
use crate::module::{Absent, Make, Module, OptionSpec, Takes};
use crate::stage::{Filled, IoFailed, Source, StageError, Turn, Wait};

/// How often a file that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The declaration.
pub const MODULE: Module = Module {
    name: "file",
    summary: "the lines of a file, all of it as one message, or what is added to it",
    about: "With `--mode=follow` the stream goes on until it is stopped. It notices when the file is rotated (its path names \
            another file), reads the rest of the old one and goes on with the new one; and when the file is cut, which begins \
            anew. A file that is not there yet is waited for.",
    options: &[
        OptionSpec { name: "path", takes: Takes::Name, default: Absent::Required, summary: "The file." },
        OptionSpec {
            name: "mode",
            takes: Takes::Choice(&["lines", "whole", "follow"]),
            default: Absent::Value("lines"),
            summary: "Whether each line is a message, all of the file is one, or lines are followed as they are added.",
        },
        OptionSpec {
            name: "from",
            takes: Takes::Choice(&["beginning", "end"]),
            default: Absent::Value("beginning"),
            summary: "With --mode=follow, whether what is there already is read.",
        },
    ],
    examples: &[
        ("file --path=orders.csv | log", "the lines of a file"),
        (
            "file --path=/var/log/syslog --mode=follow --from=end | filter --expression='text.contains(\"error\")' | log",
            "the errors that are logged from now on",
        ),
    ],
    make: Make::Source(|settings, _site| {
        let path = PathBuf::from(settings.text("path"));
        match settings.text("mode") {
            "whole" => Ok(Box::new(Whole { path: Some(path) })),
            mode => {
                let is_followed = mode == "follow";
                let mut file = match Reader::open(&path) {
                    Err(error) if is_followed && error.source.kind() == io::ErrorKind::NotFound => None,
                    opened => Some(opened?),
                };
                if is_followed
                    && settings.text("from") == "end"
                    && let Some(file) = &mut file
                {
                    file.skip_to_end()?;
                }
                Ok(Box::new(Follow {
                    path,
                    file,
                    lines: Lines::default(),
                    buffer: vec![0; BATCH_BYTES_MAX],
                    is_followed,
                    is_closed: false,
                }))
            }
        }
    }),
};

/// One message.
struct Whole {
    path: Option<PathBuf>,
}

impl Source for Whole {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<Filled, StageError> {
        batch.clear();
        let Some(path) = self.path.take() else { return Ok(Filled::End) };
        let bytes = disk::read_whole(&path, MESSAGE_BYTES_MAX)?;
        batch.push(bytes.into(), None, turn.time_ms, 0);
        Ok(Filled::Ready)
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }

    fn close(&mut self) {
        self.path = None;
    }
}

/// A message for each line.
struct Follow {
    path: PathBuf,
    file: Option<Reader>,
    lines: Lines,
    buffer: Vec<u8>,
    is_followed: bool,
    is_closed: bool,
}

impl Source for Follow {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<Filled, StageError> {
        batch.clear();
        while !self.is_closed {
            let Some(file) = &mut self.file else {
                self.file = open_if_there(&self.path)?;
                if self.file.is_none() {
                    return Ok(Filled::Pending);
                }
                continue;
            };
            let count = file.read(&mut self.buffer)?;
            if count > 0 {
                let fed = self.lines.feed(&self.buffer[..count]);
                fed.map_err(|_too_long| {
                    let error = io::Error::new(io::ErrorKind::InvalidData, "a line has more than 64 MiB");
                    IoFailed::file("read", &self.path, error)
                })?;
                if self.lines.take(batch, turn.time_ms) {
                    return Ok(Filled::Ready);
                }
                continue;
            }
            if !self.is_followed {
                break;
            }
            if file.rewind_if_cut()? {
                continue;
            }
            // Another file has the path: all of this one has been read, for it was at its end after the other came.
            let named = disk::identity(&self.path);
            if named.is_none() || named == Some(file.identity()?) {
                return Ok(Filled::Pending);
            }
            if file.read(&mut self.buffer[..1])? > 0 {
                self.lines.feed(&self.buffer[..1]).ok();
                continue;
            }
            self.file = None;
            if self.lines.take_rest(batch, turn.time_ms) {
                return Ok(Filled::Ready);
            }
        }
        if self.is_closed && self.is_followed {
            return Ok(Filled::End);
        }
        match self.lines.take_rest(batch, turn.time_ms) {
            true => Ok(Filled::Ready),
            false => Ok(Filled::End),
        }
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(sleep(LOOK_EVERY))
    }

    fn close(&mut self) {
        self.is_closed = true;
    }
}

fn open_if_there(path: &std::path::Path) -> Result<Option<Reader>, IoFailed> {
    match Reader::open(path) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}
