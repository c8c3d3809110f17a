//! `file`: reads a file by lines or as a whole, or follows it.
//!
//! A followed file is checked every quarter of a second: for new bytes, for rotation (the path names another
//! file), and for truncation (reading restarts). A rotated file is checked for some seconds more, because its
//! writer may not have noticed the rotation yet. After that, an unterminated last line becomes a message.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::lines::Lines;
use crate::declaration::{Module, OptionDefault, OptionSpec, OptionType, Settings, StageMaker, WrongMix};
use crate::disk::{self, FileReader};
use crate::message::{BATCH_BYTES_MAX, Batch, MESSAGE_BYTES_MAX};
use crate::reach::Reach;
use crate::stage::{FillResult, IoFailed, Source, StageError, Turn, Wait};

/// Interval of checks of a followed file.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time for which a rotated file is checked after its last line.
const OLD_FILE_KEPT: Duration = Duration::from_secs(5);

pub const MODULE: Module = Module {
    name: "file",
    summary: "reads a file by lines or as a whole, or follows it",
    about: "With `--mode=follow` the stream runs until it is stopped. When the file is rotated (its path names another file), the \
            rest of the old one is read, including lines added in the next seconds, then the new one. When the file is truncated \
            (copytruncate), reading restarts at its beginning; lines written in the last quarter of a second before may be \
            missed, so prefer rotation by renaming. A missing file is waited for. Lines end with a line feed; a carriage return \
            before it is removed. A message is at most 64 MiB.",
    options: &[
        OptionSpec {
            name: "path",
            takes: OptionType::Name,
            default: OptionDefault::Required,
            summary: "The file.",
        },
        OptionSpec {
            name: "mode",
            takes: OptionType::Choice(&["lines", "whole", "follow"]),
            default: OptionDefault::Value("lines"),
            summary: "`lines`: a message per line. `whole`: the file as one message. `follow`: lines as they are added.",
        },
        OptionSpec {
            name: "from",
            takes: OptionType::Choice(&["beginning", "end"]),
            default: OptionDefault::Value("beginning"),
            summary: "With --mode=follow, whether to read existing lines.",
        },
    ],
    examples: &[
        ("file --path=orders.csv | log", "the lines of a file"),
        (
            "file --path=/var/log/syslog --mode=follow --from=end | filter --expression='text.contains(\"error\")' | log",
            "errors logged from now on",
        ),
    ],
    check,
    make: StageMaker::Source(|settings, site| {
        let path = PathBuf::from(settings.text("path"));
        match settings.text("mode") {
            "whole" => Ok(Box::new(WholeFile { path: Some(path), reach: site.reach.clone() })),
            mode => {
                let is_followed = mode == "follow";
                let mut reader = match open(&site.reach, &path) {
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
                    reach: site.reach.clone(),
                }))
            }
        }
    }),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    if settings.text("from") == "end" && settings.text("mode") != "follow" {
        let message = "--from=end needs --mode=follow";
        return Err(WrongMix::new("from", message, "Remove it, or add --mode=follow."));
    }
    Ok(())
}

/// A source of one message.
struct WholeFile {
    path: Option<PathBuf>,
    reach: Arc<Reach>,
}

impl Source for WholeFile {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        batch.clear();
        let Some(path) = self.path.take() else { return Ok(FillResult::End) };
        let bytes = disk::read_regular(&self.reach.file(&path)?, MESSAGE_BYTES_MAX)?;
        batch.push(bytes.into(), None, turn.time_ms, 0);
        Ok(FillResult::Ready)
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }

    fn close(&mut self) {
        self.path = None;
    }
}

/// A file and the read position.
struct Tail {
    reader: FileReader,
    /// True if truncation is checked. A file that is not followed is read once, and its reported size is
    /// ignored, because files under /proc report 0.
    is_followed: bool,
}

impl Tail {
    /// Reads the next complete lines into the batch. Returns true if there were any.
    fn take(
        &mut self,
        lines: &mut Lines,
        buffer: &mut [u8],
        batch: &mut Batch,
        time_ms: i64,
    ) -> Result<bool, IoFailed> {
        loop {
            // Check before every read, because the file may have been replaced since the last read.
            if self.is_followed && self.reader.rewind_if_cut()? {
                // An incomplete line before the truncation does not belong to the next bytes.
                if lines.take_rest(batch, time_ms) {
                    return Ok(true);
                }
            }
            let count = self.reader.read(buffer)?;
            if count == 0 {
                return Ok(false);
            }
            lines.feed(&buffer[..count]).map_err(|_too_long| {
                let error = io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 MiB");
                IoFailed::file("read", self.reader.path(), error)
            })?;
            if lines.take(batch, time_ms) {
                return Ok(true);
            }
        }
    }
}

/// A rotated file, with its unterminated line.
struct RotatedFile {
    tail: Tail,
    lines: Lines,
    until: Instant,
}

/// A message for each line.
struct Follow {
    path: PathBuf,
    /// `None` while the file is missing.
    tail: Option<Tail>,
    lines: Lines,
    old: Option<RotatedFile>,
    buffer: Vec<u8>,
    is_followed: bool,
    is_closed: bool,
    reach: Arc<Reach>,
}

impl Follow {
    /// Reads lines added to the rotated file. Returns true if there were any.
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

    /// True if the path now names a file other than the open one. A missing file may appear later.
    fn is_rotated(&self, tail: &Tail) -> Result<bool, IoFailed> {
        let named = disk::identity(&self.path);
        Ok(named.is_some() && named != Some(tail.reader.identity()?))
    }

    /// Emits the rest at the end.
    fn take_rest(&mut self, batch: &mut Batch, time_ms: i64) -> FillResult {
        if self.lines.take_rest(batch, time_ms) { FillResult::Ready } else { FillResult::End }
    }
}

impl Source for Follow {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        batch.clear();
        if self.is_closed {
            return Ok(if self.is_followed { FillResult::End } else { self.take_rest(batch, turn.time_ms) });
        }
        if self.take_old(batch, turn)? {
            return Ok(FillResult::Ready);
        }
        loop {
            let Some(mut tail) = self.tail.take() else {
                self.tail =
                    open_if_there(&self.reach, &self.path)?.map(|reader| Tail { reader, is_followed: true });
                if self.tail.is_none() {
                    return Ok(FillResult::Pending);
                }
                continue;
            };
            let has_more = tail.take(&mut self.lines, &mut self.buffer, batch, turn.time_ms)?;
            let is_rotated = !has_more && self.is_followed && self.is_rotated(&tail)?;
            if !is_rotated {
                self.tail = Some(tail);
                return Ok(match (has_more, self.is_followed) {
                    (true, _) => FillResult::Ready,
                    (false, true) => FillResult::Pending,
                    (false, false) => self.take_rest(batch, turn.time_ms),
                });
            }
            let mut lines = Lines::default();
            lines.follow_on(&self.lines);
            let lines = std::mem::replace(&mut self.lines, lines);
            let before = self.old.replace(RotatedFile { tail, lines, until: turn.now + OLD_FILE_KEPT });
            // Rotated twice within seconds: emit the rest of the first file now.
            if let Some(mut before) = before {
                before.lines.follow_on(&self.lines);
                if before.lines.take_rest(batch, turn.time_ms) {
                    self.lines.follow_on(&before.lines);
                    return Ok(FillResult::Ready);
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

/// The path is resolved each time: another file may have that name by now.
fn open(reach: &Reach, path: &Path) -> Result<FileReader, IoFailed> {
    FileReader::open(&reach.file(path)?)
}

fn open_if_there(reach: &Reach, path: &Path) -> Result<Option<FileReader>, IoFailed> {
    match open(reach, path) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}
