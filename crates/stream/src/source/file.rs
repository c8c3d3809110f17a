//! `file`: the lines of a file, all of it, or what is added to it.
//!
//! What follows a file looks at it every quarter of a second: for more bytes, for the path to name another file (it was
//! rotated), and for the file to have been cut (it begins anew). A file that was rotated is looked at for some seconds more:
//! whoever writes it may not have noticed yet. A last line without an end is a line then.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::lines::Lines;
use crate::declaration::{Absent, Make, Module, OptionSpec, Settings, Takes, WrongMix};
use crate::disk::{self, Reader};
use crate::message::{BATCH_BYTES_MAX, Batch, MESSAGE_BYTES_MAX};
use crate::stage::{Filled, IoFailed, Source, StageError, Turn, Wait};

/// How often a file that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a file that was rotated is looked at after its last line.
const OLD_FILE_KEPT: Duration = Duration::from_secs(5);

/// The declaration.
pub const MODULE: Module = Module {
    name: "file",
    summary: "the lines of a file, all of it as one message, or what is added to it",
    about: "With `--mode=follow` the stream goes on until it is stopped. It notices when the file is rotated (its path names \
            another file), reads the rest of the old one, what is added to it in the next seconds too, and goes on with the new \
            one; and when the file is cut (copytruncate), which begins anew. What is written to a file within the quarter of a \
            second before it is cut may be missed: rotate by renaming where that matters. A file that is not there yet is \
            waited for. Lines end with a line feed, before which a carriage return is left out. A message has 64 MiB at the most.",
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
    check,
    make: Make::Source(|settings, _site| {
        let path = PathBuf::from(settings.text("path"));
        match settings.text("mode") {
            "whole" => Ok(Box::new(Whole { path: Some(path) })),
            mode => {
                let is_followed = mode == "follow";
                let mut reader = match Reader::open(&path) {
                    Err(error) if is_followed && error.source.kind() == io::ErrorKind::NotFound => None,
                    opened => Some(opened?),
                };
                if settings.text("from") == "end"
                    && let Some(reader) = &mut reader
                {
                    reader.skip_to_end()?;
                }
                Ok(Box::new(Follow {
                    path,
                    tail: reader.map(|reader| Tail { reader, is_followed }),
                    lines: Lines::default(),
                    old: None,
                    buffer: vec![0; BATCH_BYTES_MAX],
                    is_followed,
                    is_closed: false,
                }))
            }
        }
    }),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    if settings.text("from") == "end" && settings.text("mode") != "follow" {
        let message = "Only a file that is followed can be read from its end";
        return Err(WrongMix::new("from", message, "Leave it out, or add --mode=follow."));
    }
    Ok(())
}

/// One message.
struct Whole {
    path: Option<PathBuf>,
}

impl Source for Whole {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<Filled, StageError> {
        batch.clear();
        let Some(path) = self.path.take() else { return Ok(Filled::End) };
        let bytes = disk::read_regular(&path, MESSAGE_BYTES_MAX)?;
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

/// A file as far as it was read.
struct Tail {
    reader: Reader,
    /// Whether it may be cut meanwhile. One that is not followed is read once: that it is longer than it says, as files under
    /// /proc are, means nothing.
    is_followed: bool,
}

impl Tail {
    /// Puts the next whole lines into the batch. Whether there are any at the moment.
    fn take(
        &mut self,
        lines: &mut Lines,
        buffer: &mut [u8],
        batch: &mut Batch,
        time_ms: i64,
    ) -> Result<bool, IoFailed> {
        loop {
            // Before every read, also where the last has found something: what stands there now may be of another file.
            if self.is_followed && self.reader.rewind_if_cut()? {
                // What was before the cut has nothing to do with what comes after it.
                if lines.take_rest(batch, time_ms) {
                    return Ok(true);
                }
            }
            let count = self.reader.read(buffer)?;
            if count == 0 {
                return Ok(false);
            }
            lines.feed(&buffer[..count]).map_err(|_too_long| {
                let error = io::Error::new(io::ErrorKind::InvalidData, "a line has more than 64 MiB");
                IoFailed::file("read", self.reader.path(), error)
            })?;
            if lines.take(batch, time_ms) {
                return Ok(true);
            }
        }
    }
}

/// A file that was rotated, with the line that has no end yet.
struct Old {
    tail: Tail,
    lines: Lines,
    until: Instant,
}

/// A message for each line.
struct Follow {
    path: PathBuf,
    /// None while there is no file.
    tail: Option<Tail>,
    lines: Lines,
    old: Option<Old>,
    buffer: Vec<u8>,
    is_followed: bool,
    is_closed: bool,
}

impl Follow {
    /// Takes what was added to the file that was rotated. Whether there is any.
    fn take_old(&mut self, batch: &mut Batch, turn: &Turn<'_>) -> Result<bool, IoFailed> {
        let Some(old) = &mut self.old else { return Ok(false) };
        old.lines.follow_on(&self.lines);
        let is_over = turn.now >= old.until;
        let mut has_more = old.tail.take(&mut old.lines, &mut self.buffer, batch, turn.time_ms)?;
        if has_more {
            old.until = turn.now + OLD_FILE_KEPT;
        } else if is_over {
            has_more = old.lines.take_rest(batch, turn.time_ms);
        }
        self.lines.follow_on(&old.lines);
        if is_over && !has_more {
            self.old = None;
        }
        Ok(has_more)
    }

    /// Whether the path names another file than the one that is read; a path that names none may yet.
    fn is_rotated(&self, tail: &Tail) -> Result<bool, IoFailed> {
        let named = disk::identity(&self.path);
        Ok(named.is_some() && named != Some(tail.reader.identity()?))
    }

    /// What is left when no more comes.
    fn take_rest(&mut self, batch: &mut Batch, time_ms: i64) -> Filled {
        if self.lines.take_rest(batch, time_ms) { Filled::Ready } else { Filled::End }
    }
}

impl Source for Follow {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<Filled, StageError> {
        batch.clear();
        if self.is_closed {
            return Ok(if self.is_followed { Filled::End } else { self.take_rest(batch, turn.time_ms) });
        }
        if self.take_old(batch, turn)? {
            return Ok(Filled::Ready);
        }
        loop {
            let Some(mut tail) = self.tail.take() else {
                self.tail = open_if_there(&self.path)?.map(|reader| Tail { reader, is_followed: true });
                if self.tail.is_none() {
                    return Ok(Filled::Pending);
                }
                continue;
            };
            let has_more = tail.take(&mut self.lines, &mut self.buffer, batch, turn.time_ms)?;
            let is_rotated = !has_more && self.is_followed && self.is_rotated(&tail)?;
            if !is_rotated {
                self.tail = Some(tail);
                return Ok(match (has_more, self.is_followed) {
                    (true, _) => Filled::Ready,
                    (false, true) => Filled::Pending,
                    (false, false) => self.take_rest(batch, turn.time_ms),
                });
            }
            let mut lines = Lines::default();
            lines.follow_on(&self.lines);
            let lines = std::mem::replace(&mut self.lines, lines);
            let before = self.old.replace(Old { tail, lines, until: turn.now + OLD_FILE_KEPT });
            // Rotated twice within seconds: what is left of the first comes now.
            if let Some(mut before) = before {
                before.lines.follow_on(&self.lines);
                if before.lines.take_rest(batch, turn.time_ms) {
                    self.lines.follow_on(&before.lines);
                    return Ok(Filled::Ready);
                }
            }
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
