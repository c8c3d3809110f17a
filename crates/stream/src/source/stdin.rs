//! `stdin`: reads standard input.

use std::io::{self, Read};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::lines::Lines;
use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::message::{BATCH_BYTES_MAX, Batch};
use crate::stage::{FillResult, IoFailed, Source, StageError, Turn, Wait};

/// Pieces of input queued for the stream.
const WAITING_MAX: usize = 4;

pub const MODULE: Module = Module {
    name: "stdin",
    summary: "reads standard input",
    about: "Lines end with a line feed; a carriage return before it is removed. A message is at most 64 MiB.",
    options: &[OptionSpec {
        name: "mode",
        takes: OptionType::Choice(&["lines", "whole"]),
        default: OptionDefault::Value("lines"),
        summary: "A message per line, or the whole input as one message.",
    }],
    examples: &[(
        "stdin | filter --expression='text.contains(\"error\")' | stdout",
        "lines that contain an error",
    )],
    check: declaration::any,
    make: StageMaker::Source(|settings, _site| {
        let (sender, pieces) = mpsc::channel(WAITING_MAX);
        // Standard input has no asynchronous interface, so a separate thread blocks on it.
        let spawned = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || read(&sender));
        spawned.map_err(|source| failed("read", source))?;
        Ok(Box::new(Stdin {
            pieces,
            next: None,
            lines: Lines::default(),
            is_whole: settings.text("mode") == "whole",
            has_ended: false,
        }))
    }),
};

fn failed(action: &'static str, source: io::Error) -> IoFailed {
    IoFailed { action, what: "standard input".to_owned(), source }
}

fn read(pieces: &mpsc::Sender<io::Result<Bytes>>) {
    let mut input = io::stdin().lock();
    let mut buffer = vec![0; BATCH_BYTES_MAX];
    loop {
        let piece = match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(Bytes::copy_from_slice(&buffer[..count])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = piece.is_err();
        if pieces.blocking_send(piece).is_err() || is_last {
            return;
        }
    }
}

struct Stdin {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    next: Option<io::Result<Bytes>>,
    lines: Lines,
    is_whole: bool,
    has_ended: bool,
}

impl Source for Stdin {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        batch.clear();
        while let Some(piece) = self.next.take().or_else(|| self.pieces.try_recv().ok()) {
            let piece = piece.map_err(|error| failed("read", error))?;
            self.lines.feed(&piece).map_err(|_too_long| {
                let reason =
                    if self.is_whole { "it is longer than 64 MiB" } else { "a line is longer than 64 MiB" };
                failed("read", io::Error::new(io::ErrorKind::InvalidData, reason))
            })?;
            if !self.is_whole && self.lines.take(batch, turn.time_ms) {
                return Ok(FillResult::Ready);
            }
        }
        if !self.has_ended {
            return Ok(FillResult::Pending);
        }
        match self.lines.take_rest(batch, turn.time_ms) {
            true => Ok(FillResult::Ready),
            false => Ok(FillResult::End),
        }
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {
            if self.next.is_none() && !self.has_ended {
                self.next = self.pieces.recv().await;
                self.has_ended = self.next.is_none();
            }
        })
    }

    fn close(&mut self) {
        self.pieces.close();
        self.has_ended = true;
    }
}
