//! Files that are read once, one after the other: by lines, as CSV, or each as a whole.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;

use crate::columns::{CsvRules, RecordReader};
use crate::declaration::{Settings, Site};
use crate::disk::FileContent;
use crate::message::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch, Headers, MESSAGE_BYTES_MAX, Message};
use crate::reach::Reach;
use crate::source::lines::Lines;
use crate::stage::{FillResult, IoFailed, Source, StageError, Turn, Wait};

/// The messages of a file.
enum Form {
    Lines,
    Csv { rules: CsvRules, has_header: bool, is_typed: bool },
    Whole,
}

/// A file that is being read.
enum OpenFile {
    Lines(FileContent),
    Csv(PathBuf, Box<RecordReader<FileContent>>),
}

/// A source of the messages of several files.
pub struct FileSequence {
    /// The files that were not opened yet.
    files: VecDeque<PathBuf>,
    form: Form,
    decompress: bool,
    open: Option<OpenFile>,
    lines: Lines,
    buffer: Vec<u8>,
    sequence: u64,
    reach: Arc<Reach>,
}

impl FileSequence {
    /// The files of a path, which may be a pattern. The first one is opened.
    pub fn open(settings: &Settings, site: &Site) -> Result<FileSequence, IoFailed> {
        let form = match settings.text("mode") {
            "csv" => Form::Csv {
                rules: CsvRules::of(settings),
                has_header: settings.flag("header"),
                is_typed: settings.text("values") == "typed",
            },
            "whole" => Form::Whole,
            _ => Form::Lines,
        };
        let mut sequence = FileSequence {
            files: files(Path::new(settings.text("path")))?,
            form,
            decompress: settings.text("compression") == "auto",
            open: None,
            lines: Lines::default(),
            buffer: vec![0; BATCH_BYTES_MAX],
            sequence: 0,
            reach: site.reach.clone(),
        };
        if !matches!(sequence.form, Form::Whole) {
            sequence.open_next()?;
        }
        Ok(sequence)
    }

    fn content(&self, path: &Path) -> Result<FileContent, IoFailed> {
        // The path is resolved each time: another file may have that name by now.
        FileContent::open(&self.reach.file(path)?, self.decompress)
    }

    /// Opens the next file. Returns false if there is none.
    fn open_next(&mut self) -> Result<bool, IoFailed> {
        let Some(path) = self.files.pop_front() else { return Ok(false) };
        let content = self.content(&path)?;
        self.open = Some(match &self.form {
            Form::Csv { rules, has_header, is_typed } => {
                let records = RecordReader::new(content, rules.clone(), *has_header, *is_typed);
                let records = records.map_err(|error| IoFailed::file("read", &path, error))?;
                OpenFile::Csv(path, Box::new(records))
            }
            Form::Lines | Form::Whole => OpenFile::Lines(content),
        });
        Ok(true)
    }

    fn fill_whole(&mut self, batch: &mut Batch, time_ms: i64) -> Result<FillResult, StageError> {
        let Some(path) = self.files.pop_front() else { return Ok(FillResult::End) };
        let bytes = self.content(&path)?.read_rest(MESSAGE_BYTES_MAX)?;
        batch.push(bytes.into(), None, time_ms, self.sequence);
        self.sequence += 1;
        Ok(FillResult::Ready)
    }
}

/// Moves lines to the batch. Returns false at the end of the file.
fn take_lines(
    content: &mut FileContent,
    lines: &mut Lines,
    buffer: &mut [u8],
    batch: &mut Batch,
    time_ms: i64,
) -> Result<bool, IoFailed> {
    loop {
        let count = content.read_some(buffer)?;
        if count == 0 {
            lines.take_rest(batch, time_ms);
            return Ok(false);
        }
        lines.feed(&buffer[..count]).map_err(|_too_long| {
            let error = io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 MiB");
            IoFailed::file("read", content.path(), error)
        })?;
        if lines.take(batch, time_ms) {
            return Ok(true);
        }
    }
}

/// Moves records to the batch. Returns false at the end of the file.
fn take_records(
    path: &Path,
    records: &mut RecordReader<FileContent>,
    sequence: &mut u64,
    batch: &mut Batch,
    turn: &mut Turn<'_>,
) -> Result<bool, StageError> {
    let mut out = BytesMut::new();
    let mut ranges = Vec::new();
    let first = *sequence;
    let mut has_more = true;
    while ranges.len() < BATCH_MESSAGES_MAX && out.len() < BATCH_BYTES_MAX {
        let start = out.len();
        let next = records.next(&mut out).map_err(|error| IoFailed::file("read", path, error))?;
        let Some(next) = next else {
            has_more = false;
            break;
        };
        match next {
            Ok(()) => ranges.push(start..out.len()),
            Err(bad) => {
                // The messages of a batch have consecutive sequences: a bad one has that of its successor.
                let message = Message {
                    value: &bad.record,
                    is_null: false,
                    key: None,
                    headers: Headers::default(),
                    time_ms: turn.time_ms,
                    sequence: first + ranges.len() as u64,
                };
                turn.bad.take(&message, &format!("{}, {}", path.display(), bad.reason))?;
            }
        }
    }
    *sequence += ranges.len() as u64;
    batch.push_ranges(out.freeze(), ranges, turn.time_ms, first);
    Ok(has_more)
}

impl Source for FileSequence {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        batch.clear();
        if matches!(self.form, Form::Whole) {
            return self.fill_whole(batch, turn.time_ms);
        }
        loop {
            let has_more = match &mut self.open {
                Some(OpenFile::Lines(content)) => {
                    take_lines(content, &mut self.lines, &mut self.buffer, batch, turn.time_ms)?
                }
                Some(OpenFile::Csv(path, records)) => {
                    take_records(path, records, &mut self.sequence, batch, turn)?
                }
                None => return Ok(FillResult::End),
            };
            if !has_more {
                self.open = None;
                self.open_next()?;
            }
            if !batch.is_empty() {
                return Ok(FillResult::Ready);
            }
        }
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }

    fn close(&mut self) {
        self.files.clear();
        self.open = None;
    }
}

/// True if a path is a pattern, and no file has exactly this name.
pub fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '[']) && std::fs::symlink_metadata(path).is_err()
}

/// The files of a path, by name. A pattern needs at least one.
fn files(path: &Path) -> Result<VecDeque<PathBuf>, IoFailed> {
    if !is_pattern(path) {
        return Ok(VecDeque::from([path.to_owned()]));
    }
    let failed = |kind, reason: String| IoFailed::file("find", path, io::Error::new(kind, reason));
    let found = glob::glob(&path.to_string_lossy()).map_err(|error| {
        failed(io::ErrorKind::InvalidInput, format!("it is not a valid pattern: {}", error.msg))
    })?;
    let mut files = VecDeque::new();
    for file in found {
        let file = file
            .map_err(|error| IoFailed::file("read", error.path(), io::Error::from(error.error().kind())))?;
        if std::fs::metadata(&file).is_ok_and(|metadata| metadata.is_file()) {
            files.push_back(file);
        }
    }
    match files.is_empty() {
        true => Err(failed(io::ErrorKind::NotFound, "no file matches the pattern".to_owned())),
        false => Ok(files),
    }
}
