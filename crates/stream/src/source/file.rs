//! `file`: reads files by lines, as CSV or as a whole (`sequence`), or follows one.
//!
//! A followed file is checked every quarter of a second: for new bytes, for rotation (the path names another
//! file), and for truncation (reading restarts). A rotated file is checked for some seconds more, because its
//! writer may not have noticed the rotation yet. After that, an unterminated last line becomes a message.

mod sequence;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::lines::Lines;
use crate::columns::{self, CsvRules};
use crate::declaration::{Module, OptionDefault, OptionSpec, OptionType, Settings, StageMaker, WrongMix};
use crate::disk::{self, FileReader};
use crate::message::{BATCH_BYTES_MAX, Batch};
use crate::reach::Reach;
use crate::stage::{FillResult, IoFailed, Source, StageError, Turn, Wait};
use sequence::FileSequence;

/// Interval of checks of a followed file.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time for which a rotated file is checked after its last line.
const OLD_FILE_KEPT: Duration = Duration::from_secs(5);

pub const MODULE: Module = Module {
    name: "file",
    summary: "reads files by lines, as CSV or as a whole, or follows a file",
    about: "A path with `*`, `?` or `[...]` is a pattern: the files that match at the start are read one after the other, by name; \
            `**` stands for any directories. A file that begins like one of gzip or zstd is decompressed.\n\n\
            With `--mode=csv`, each record is a message: a JSON object with a member for each column, named by the header line of \
            its file. Fields in quotes may contain separators, line ends and doubled quotes. A byte order mark is skipped, and so \
            are empty lines. A record that breaks the rules of `--missing` and `--extra`, or is not UTF-8, is a bad message, with \
            its file and line.\n\n\
            With `--mode=follow` the stream runs until it is stopped. When the file is rotated (its path names another file), the \
            rest of the old one is read, including lines added in the next seconds, then the new one. When the file is truncated \
            (copytruncate), reading restarts at its beginning; lines written in the last quarter of a second before may be \
            missed, so prefer rotation by renaming. A missing file is waited for. Lines end with a line feed; a carriage return \
            before it is removed. A message is at most 64 MiB.",
    options: &[
        OptionSpec {
            name: "path",
            takes: OptionType::Name,
            default: OptionDefault::Required,
            summary: "The file, or a pattern for several.",
        },
        OptionSpec {
            name: "mode",
            takes: OptionType::Choice(&["lines", "csv", "whole", "follow"]),
            default: OptionDefault::Value("lines"),
            summary: "`lines`: a message per line. `csv`: a message per record. `whole`: a file as one message. `follow`: lines as they are added.",
        },
        OptionSpec {
            name: "from",
            takes: OptionType::Choice(&["beginning", "end"]),
            default: OptionDefault::Value("beginning"),
            summary: "With --mode=follow, whether to read existing lines.",
        },
        OptionSpec {
            name: "compression",
            takes: OptionType::Choice(&["auto", "none"]),
            default: OptionDefault::Value("auto"),
            summary: "`auto` decompresses gzip and zstd, `none` reads the bytes as they are. A followed file is read as it is.",
        },
        OptionSpec {
            name: "header",
            takes: OptionType::Flag,
            default: OptionDefault::Value("true"),
            summary: "Of CSV, whether each file begins with a header line. With --columns it is skipped.",
        },
        columns::COLUMNS,
        columns::SEPARATOR,
        OptionSpec {
            name: "values",
            takes: OptionType::Choice(&["text", "typed"]),
            default: OptionDefault::Value("text"),
            summary: "Of CSV, `text`: each field is a text. `typed`: numbers, true and false are as in JSON, and an empty field is null.",
        },
        columns::MISSING,
        columns::EXTRA,
    ],
    examples: &[
        ("file --path=orders.log | log", "the lines of a file"),
        (
            "file --path='orders-*.csv' --mode=csv | transform --key=payload.id | kafka --topic=orders",
            "the records of several files, to a topic",
        ),
        (
            "file --path=/var/log/syslog --mode=follow --from=end | filter --expression='text.contains(\"error\")' | log",
            "errors logged from now on",
        ),
    ],
    check,
    make: StageMaker::Source(|settings, site| {
        if settings.text("mode") != "follow" {
            return Ok(Box::new(FileSequence::open(settings, site)?));
        }
        let path = PathBuf::from(settings.text("path"));
        let mut tail = open_if_there(&site.reach, &path)?;
        if settings.text("from") == "end"
            && let Some(reader) = &mut tail
        {
            reader.skip_to_end()?;
        }
        Ok(Box::new(Follow {
            path,
            tail,
            lines: Lines::default(),
            old: None,
            buffer: vec![0; BATCH_BYTES_MAX],
            is_closed: false,
            reach: site.reach.clone(),
        }))
    }),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    if settings.text("from") == "end" && settings.text("mode") != "follow" {
        let message = "--from=end needs --mode=follow";
        return Err(WrongMix::new("from", message, "Remove it, or add --mode=follow."));
    }
    let is_pattern = settings.optional_text("path").is_some_and(|path| sequence::is_pattern(Path::new(path)));
    if settings.text("mode") == "follow" && is_pattern {
        let message = "One file can be followed, not the files of a pattern";
        return Err(WrongMix::new("path", message, "Name the file, or use another --mode."));
    }
    if settings.text("mode") == "csv" {
        CsvRules::check(settings)?;
        if !settings.flag("header") && settings.optional_text("columns").is_none() {
            let message = "Without a header line the columns have no names";
            return Err(WrongMix::new("header", message, "Name them: --columns=id,name."));
        }
    }
    Ok(())
}

/// Reads the next complete lines of a followed file into the batch. Returns true if there were any.
fn take(
    reader: &mut FileReader,
    lines: &mut Lines,
    buffer: &mut [u8],
    batch: &mut Batch,
    time_ms: i64,
) -> Result<bool, IoFailed> {
    loop {
        // Check before every read, because the file may have been replaced since the last read.
        if reader.rewind_if_cut()? {
            // An incomplete line before the truncation does not belong to the next bytes.
            if lines.take_rest(batch, time_ms) {
                return Ok(true);
            }
        }
        let count = reader.read(buffer)?;
        if count == 0 {
            return Ok(false);
        }
        lines.feed(&buffer[..count]).map_err(|_too_long| {
            let error = io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 MiB");
            IoFailed::file("read", reader.path(), error)
        })?;
        if lines.take(batch, time_ms) {
            return Ok(true);
        }
    }
}

/// A rotated file, with its unterminated line.
struct RotatedFile {
    tail: FileReader,
    lines: Lines,
    until: Instant,
}

/// A message for each line.
struct Follow {
    path: PathBuf,
    /// `None` while the file is missing.
    tail: Option<FileReader>,
    lines: Lines,
    old: Option<RotatedFile>,
    buffer: Vec<u8>,
    is_closed: bool,
    reach: Arc<Reach>,
}

impl Follow {
    /// Reads lines added to the rotated file. Returns true if there were any.
    fn take_old(&mut self, batch: &mut Batch, turn: &Turn<'_>) -> Result<bool, IoFailed> {
        let Some(old) = &mut self.old else { return Ok(false) };
        old.lines.follow_on(&self.lines);
        let is_over = turn.now >= old.until;
        let mut has_more = take(&mut old.tail, &mut old.lines, &mut self.buffer, batch, turn.time_ms)?;
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
    fn is_rotated(&self, tail: &FileReader) -> Result<bool, IoFailed> {
        let named = disk::identity(&self.path);
        Ok(named.is_some() && named != Some(tail.identity()?))
    }
}

impl Source for Follow {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        batch.clear();
        if self.is_closed {
            return Ok(FillResult::End);
        }
        if self.take_old(batch, turn)? {
            return Ok(FillResult::Ready);
        }
        loop {
            let Some(mut tail) = self.tail.take() else {
                self.tail = open_if_there(&self.reach, &self.path)?;
                if self.tail.is_none() {
                    return Ok(FillResult::Pending);
                }
                continue;
            };
            let has_more = take(&mut tail, &mut self.lines, &mut self.buffer, batch, turn.time_ms)?;
            let is_rotated = !has_more && self.is_rotated(&tail)?;
            if !is_rotated {
                self.tail = Some(tail);
                return Ok(if has_more { FillResult::Ready } else { FillResult::Pending });
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
fn open_if_there(reach: &Reach, path: &Path) -> Result<Option<FileReader>, IoFailed> {
    match reach.file(path).and_then(|file| FileReader::open(&file)) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}
