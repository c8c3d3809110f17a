//! `file`: writes messages to a file, which is rolled by size, age or date.
//!
//! A full file is renamed: `orders.log` becomes `orders.1.log`, the next `orders.2.log`, and so on, and a new
//! `orders.log` begins. Rolling never overwrites an existing file. A file whose name has a date keeps its
//! name at the next date. A finished file may be compressed, in the background; old ones may be removed.
//!
//! CSV is made of a batch before it is written, so that a bad message is refused when it arrives.
//!
//! Failed writes are retried with the rest of the batch: the disk may be full for a while, or a folder
//! missing. When the time for retries is over, a message that is written in part is removed from the file. A
//! failed sync is not retried, because the state of the disk is then unknown.

mod name;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::columns::{self, CsvRules, RecordWriter};
use crate::declaration::{
    Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::disk::{self, Appender, Compression, FileContent};
use crate::message::Batch;
use crate::reach::Reach;
use crate::retry::Retry;
use crate::stage::{IoFailed, Sink, StageError, Turn, Wait};
use name::FileName;

/// Interval of looks at the date, if the name of the file has one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of files that are compressed at a time. Later ones stay as they are.
const COMPRESSED_AT_ONCE: usize = 8;
/// Maximum time that data may stay in the buffer.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

pub const MODULE: Module = Module {
    name: "file",
    summary: "writes messages to a file, as lines or CSV, which is rolled by size, age or date",
    about: "A full file is renamed: `orders.log` becomes `orders.1.log`, the next one `orders.2.log`, and a new `orders.log` \
            begins. A name may have a date of the local clock, as in `orders-%Y-%m-%d.csv`: a second after midnight at the latest, the \
            next file begins. Its parts are `%Y`, `%m`, `%d`, `%j` (the day of the year), `%F` (`%Y-%m-%d`), `%H`, `%M` and `%S`; \
            `%%` is a percent sign. `--compression` makes `orders.1.log.gz` or `orders.1.log.zst` of a finished file, in the background; \
            the last file is finished when the stream ends. If that fails, there is a warning, and the file stays as it is. \
            `--filesMax` keeps the newest finished files, and removes others with the date or number of this path.\n\n\
            With `--format=csv`, a message must be a JSON object with a member for each column: text without its quotes, null as an \
            empty field, a list or an object as JSON. Fields with separators, quotes or line ends are quoted. Each file begins \
            with a header line. Without `--columns`, the columns are those of the header line of the file that is continued, or \
            the members of the first message. A message that breaks the rules of `--missing` and `--extra` is a bad message.\n\n\
            Failed writes, for example to a full medium, are retried with growing pauses for as long as `--retryFor` \
            allows; after that, a message that is written in part is removed from the file. If an existing file does not end with \
            the delimiter, as after a loss of power, the first message begins behind a delimiter. With `--sync=true`, the directory is \
            synced, too, when a file is created or rolled. At most 256 KiB wait in memory, and a batch. `--mode=replace` empties \
            the file at each start: it is refused behind a consumer group, which does not send the lost messages again.",
    options: &[
        OptionSpec {
            name: "path",
            takes: OptionType::Name,
            default: OptionDefault::Required,
            summary: "The file, perhaps with a date in its name.",
        },
        OptionSpec {
            name: "format",
            takes: OptionType::Choice(&["lines", "csv"]),
            default: OptionDefault::Value("lines"),
            summary: "`lines`: the message and the delimiter. `csv`: a record with the members of a JSON object.",
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
            summary: "Written after each message; a line end by default. Records of CSV end with a line feed.",
        },
        columns::COLUMNS,
        columns::SEPARATOR,
        OptionSpec {
            name: "header",
            takes: OptionType::Flag,
            default: OptionDefault::Value("true"),
            summary: "Of CSV, whether each file begins with a header line.",
        },
        columns::MISSING,
        columns::EXTRA,
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
            name: "filesMax",
            takes: OptionType::Integer(1, 1_000_000),
            default: OptionDefault::None,
            summary: "How many finished files are kept; by default all.",
        },
        OptionSpec {
            name: "compression",
            takes: OptionType::Choice(&["none", "gzip", "zstd"]),
            default: OptionDefault::Value("none"),
            summary: "The compression of finished files.",
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
    examples: &[
        ("stdin | file --path=orders.log --rollSize=100MiB", "files of 100 MiB"),
        (
            "kafka --topics=orders --group=export | file --path=orders-%F.csv --format=csv --columns=id,amount --extra=drop --compression=gzip",
            "a compressed CSV file for each day",
        ),
    ],
    check,
    make: StageMaker::Sink(make),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    if let Some(Err(reason)) = settings.optional_text("path").map(FileName::of) {
        let right =
            "Use %Y, %m, %d, %j, %F, %H, %M and %S in the name of the file, and %% for a percent sign.";
        return Err(WrongMix::new("path", reason, right));
    }
    if settings.text("format") == "csv" { CsvRules::check(settings) } else { Ok(()) }
}

fn make(settings: &Settings, site: &Site) -> Result<Box<dyn Sink>, StageError> {
    let invalid = |reason: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
    let wrong = |reason| IoFailed::file("open", Path::new(settings.text("path")), invalid(reason));
    let name = FileName::of(settings.text("path")).map_err(wrong)?;
    let path = site.reach.file(&name.at(clock::time_ms()))?;
    let records = (settings.text("format") == "csv").then(|| RecordWriter::new(CsvRules::of(settings)));
    let delimiter = if records.is_some() { "\n" } else { settings.text("delimiter") };
    let mut file = File {
        file: match settings.text("mode") {
            "replace" => Appender::replace(&path)?,
            "fail" => Appender::create(&path)?,
            _ => Appender::open(&path, delimiter.as_bytes())?,
        },
        path,
        name,
        delimiter: delimiter.as_bytes().to_vec(),
        records,
        has_header: settings.flag("header"),
        separator: settings.text("separator").as_bytes().first().copied().unwrap_or(b','),
        roll_size: settings.optional_integer("rollSize").map(|size| size.max(1)),
        roll_every: settings.optional_duration("rollEvery"),
        files_max: settings.optional_integer("filesMax"),
        compression: Compression::of(settings.text("compression")),
        compressing: JoinSet::new(),
        sync: settings.flag("sync"),
        begun: None,
        flush_at: None,
        look_at: Instant::now() + LOOK_EVERY,
        next_path: None,
        next_number: None,
        roll_again_at: None,
        is_renamed: false,
        retry: Retry::within(settings.duration("retryFor")),
        waiting: None,
        reach: site.reach.clone(),
    };
    file.agree()?;
    if file.sync {
        disk::sync_directory(&file.path)?;
    }
    Ok(Box::new(file))
}

struct File {
    name: FileName,
    /// The current file.
    path: PathBuf,
    file: Appender,
    delimiter: Vec<u8>,
    /// Makes CSV of the messages.
    records: Option<RecordWriter>,
    has_header: bool,
    separator: u8,
    roll_size: Option<u64>,
    roll_every: Option<Duration>,
    files_max: Option<u64>,
    compression: Option<Compression>,
    compressing: JoinSet<()>,
    sync: bool,
    begun: Option<Instant>,
    flush_at: Option<Instant>,
    /// Time of the next attempt, after a failure to roll without a message.
    roll_again_at: Option<Instant>,
    /// Time of the next look at the date.
    look_at: Instant,
    /// The file of the next date.
    next_path: Option<PathBuf>,
    /// The number of the next rolled file; `None` before the first one.
    next_number: Option<u64>,
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
        let header = self.records.as_ref().filter(|_| self.has_header).and_then(RecordWriter::header);
        for (index, message) in batch.messages().enumerate().skip(from) {
            if self.is_due(now) {
                self.roll().map_err(|error| (index, error))?;
            }
            if self.file.is_full() {
                self.file.flush().map_err(|error| (index, error))?;
            }
            self.begun.get_or_insert(now);
            if let Some(header) = &header
                && self.file.len() == 0
            {
                self.file.append(&[header]);
            }
            match &self.records {
                Some(_) => self.file.append(&[message.value]),
                None => self.file.append(&[message.value, &self.delimiter]),
            }
        }
        self.flush_at.get_or_insert(now + FLUSH_EVERY);
        Ok(())
    }

    /// Notes the file of a new date.
    fn look_at_date(&mut self, turn: &Turn<'_>) {
        if self.name.is_dated() && turn.now >= self.look_at {
            self.look_at = turn.now + LOOK_EVERY;
            let at = self.name.at(turn.time_ms);
            self.next_path = (at.file_name() != self.path.file_name()).then_some(at);
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let is_full = self.roll_size.is_some_and(|size| self.file.len() >= size);
        let is_old = self.roll_at().is_some_and(|at| at <= now);
        is_full || is_old || self.is_renamed || self.next_path.is_some()
    }

    /// Rolls the file. After a failure, another call continues at the failed step.
    fn roll(&mut self) -> Result<(), IoFailed> {
        if !self.is_renamed {
            self.end_file()?;
            self.is_renamed = true;
        }
        if let Some(next) = &self.next_path {
            self.path = self.reach.file(next)?;
            self.next_number = None;
        }
        self.file = Appender::open(&self.reach.file(&self.path)?, &self.delimiter)?;
        self.agree()?;
        if self.sync {
            self.sync_directory()?;
        }
        self.remove_old();
        (self.is_renamed, self.begun, self.flush_at, self.roll_again_at) = (false, None, None, None);
        self.next_path = None;
        Ok(())
    }

    /// Finishes the current file, which gets a number unless its date is over.
    fn end_file(&mut self) -> Result<(), IoFailed> {
        let path = self.path.clone();
        let failed = |error| IoFailed::file("rename", &path, error);
        self.file.flush()?;
        if self.sync {
            self.sync()?;
        }
        let keeps_name = self.next_path.is_some()
            && (self.compression.is_none() || !self.compressed_exists().map_err(failed)?);
        let mut finished = path.clone();
        if !keeps_name {
            let mut number = self.next_number.unwrap_or_else(|| FileName::next_number(&path));
            loop {
                finished = FileName::numbered(&path, number);
                if name::is_free(&finished).map_err(failed)? {
                    break;
                }
                number += 1;
            }
            std::fs::rename(&path, &finished).map_err(failed)?;
            self.next_number = Some(number + 1);
        }
        self.compress(finished);
        Ok(())
    }

    fn compressed_exists(&self) -> std::io::Result<bool> {
        match self.compression {
            Some(format) => format.name(&self.path).try_exists(),
            None => Ok(false),
        }
    }

    /// Removes the oldest finished files beyond the limit. A failure delays the removal.
    fn remove_old(&self) {
        let Some(files_max) = self.files_max.and_then(|files_max| usize::try_from(files_max).ok()) else {
            return;
        };
        let finished = self.name.finished(&self.path).into_iter();
        let mut by_age: Vec<_> = finished
            .filter_map(|path| {
                let modified = std::fs::metadata(&path).ok()?.modified().ok()?;
                Some((modified, name::numbers(&path), path))
            })
            .collect();
        by_age.sort();
        let count = by_age.len().saturating_sub(files_max);
        for (_, _, path) in by_age.drain(..count) {
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "Failed to remove an old file");
            }
        }
    }

    /// Compresses a finished file in the background.
    fn compress(&mut self, path: PathBuf) {
        let Some(format) = self.compression else { return };
        while self.compressing.try_join_next().is_some() {}
        if self.compressing.len() == COMPRESSED_AT_ONCE {
            tracing::warn!(path = %path.display(), "Left a file uncompressed: too many are being compressed");
            return;
        }
        let sync = self.sync;
        self.compressing.spawn_blocking(move || {
            if let Err(error) = disk::compress(&path, format, sync) {
                tracing::warn!(%error, "Failed to compress a file, which stays as it is");
            }
        });
    }

    /// Compares the columns with the header line of a file that is continued.
    fn agree(&mut self) -> Result<(), IoFailed> {
        let Some(records) = self.records.as_mut().filter(|_| self.has_header && self.file.len() > 0) else {
            return Ok(());
        };
        let failed = |error| IoFailed::file("read", &self.path, error);
        let header =
            columns::header_of(FileContent::open(&self.path, false)?, self.separator).map_err(failed)?;
        records
            .agree(header)
            .map_err(|reason| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, reason)))
    }

    /// Waits for compressed files, among them the last one.
    async fn compress_last(&mut self) -> Result<(), IoFailed> {
        if self.compression.is_some() && !self.is_renamed && self.file.len() > 0 {
            self.end_file()?;
            self.is_renamed = true;
        }
        while self.compressing.join_next().await.is_some() {}
        // A file may have been counted twice, or removed before its copy was complete.
        self.remove_old();
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

/// The messages of a batch as records. Messages that are no records are bad.
fn recorded(batch: &Batch, records: &mut RecordWriter, turn: &mut Turn<'_>) -> Result<Batch, StageError> {
    let mut made = batch.clone();
    made.rewrite(|message, emit| match emit.write(|out| records.write(message.value, out)) {
        Ok(()) => Ok(()),
        Err(reason) => turn.bad.take(&message, &reason),
    })?;
    Ok(made)
}

impl Sink for File {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.look_at_date(turn);
        let records = match &mut self.records {
            Some(records) => Some(recorded(batch, records, turn)?),
            None => None,
        };
        let batch = records.as_ref().unwrap_or(batch);
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
            None => {
                let look_at = (self.name.is_dated() && self.file.len() > 0).then_some(self.look_at);
                self.flush_at.into_iter().chain(self.roll_at()).chain(look_at).min()
            }
        }
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.roll_again_at.is_some_and(|at| at > turn.now) {
            return Ok(());
        }
        self.look_at_date(turn);
        let is_over = self.next_path.is_some() || self.roll_at().is_some_and(|at| at <= turn.now);
        if self.roll_again_at.is_some() || is_over {
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

    fn arrive(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(self.compress_last().await?) })
    }
}
