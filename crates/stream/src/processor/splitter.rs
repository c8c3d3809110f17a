//! `splitter`: splits a message. Parts stay in the message's buffer; only JSON strings with escapes are
//! copied. A message of very many parts is split piece by piece: the next parts are made when the stream has
//! taken the last ones, so that the parts need bounded memory. Other messages are split as a whole: an
//! exactly-once stream cannot commit while it has a part of a message.

use std::borrow::Cow;
use std::convert::Infallible;

use memchr::memmem::Finder;
use tokio::time::Instant;

use super::backlog::Backlog;
use crate::declaration::{Module, OptionDefault, OptionSpec, OptionType, Settings, StageMaker, WrongMix};
use crate::json::{self, NotJson, Raw};
use crate::message::{Batch, Emitter, Message};
use crate::stage::{Processor, StageError, Turn};

/// Maximum number of parts that are made at once. A message with less is never split in several steps.
const PARTS_MAX: usize = 4096;

/// The size of parts, each with its key and headers, at which no more are made at once: stages may copy each
/// part. A message with less is never split in several steps.
const PART_BYTES_MAX: usize = 16 << 20;

pub const MODULE: Module = Module {
    name: "splitter",
    summary: "splits a message into several",
    about: "The parts keep the key and the timestamp. At most 4096 parts and 16 MiB, each part with its key and headers, wait at a \
            time, and the messages that they are part of.",
    options: &[
        OptionSpec {
            name: "by",
            takes: OptionType::Choice(&["delimiter", "json"]),
            default: OptionDefault::Value("delimiter"),
            summary: "Split the value at a delimiter, or into the elements of a JSON array.",
        },
        OptionSpec {
            name: "delimiter",
            takes: OptionType::Name,
            default: OptionDefault::Value("\n"),
            summary: "The delimiter; a line end by default. Write \"\\n\" in double quotes.",
        },
        OptionSpec {
            name: "member",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "With --by=json, the path of the array in an object: names separated by dots.",
        },
        OptionSpec {
            name: "keepEmpty",
            takes: OptionType::Flag,
            default: OptionDefault::Value("false"),
            summary: "Whether empty parts become messages.",
        },
    ],
    examples: &[
        (
            "file --path=orders.json --mode=whole | splitter --by=json --member=orders | log",
            "the orders of a document",
        ),
        ("stdin | splitter --delimiter=, | stdout", "one line per comma-separated value"),
    ],
    check,
    make: StageMaker::Processor(|settings, _site| {
        Ok(Box::new(Splitter {
            by_json: settings.text("by") == "json",
            delimiter: Finder::new(settings.text("delimiter").as_bytes()).into_owned(),
            path: settings.optional_text("member").map(|path| path.split('.').map(str::to_owned).collect()),
            keep_empty: settings.flag("keepEmpty"),
            waiting: Backlog::default(),
            emitted_to: None,
        }))
    }),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    let by_json = settings.text("by") == "json";
    if !by_json && settings.optional_text("member").is_some() {
        let message = "--member needs a JSON object";
        return Err(WrongMix::new("member", message, "Remove it, or add --by=json."));
    }
    if by_json && settings.text("delimiter") != "\n" {
        let message = "The elements of a JSON array need no delimiter";
        return Err(WrongMix::new("delimiter", message, "Remove it, or remove --by=json."));
    }
    Ok(())
}

struct Splitter {
    by_json: bool,
    delimiter: Finder<'static>,
    path: Option<Vec<String>>,
    keep_empty: bool,
    /// Messages that are not split yet.
    waiting: Backlog,
    /// The end of the emitted parts in the first waiting message, if some are emitted.
    emitted_to: Option<usize>,
}

impl Processor for Splitter {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.waiting.enter(batch);
        self.split(batch, turn)
    }

    fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn deadline(&self) -> Option<Instant> {
        self.waiting.deadline()
    }

    fn tick(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.waiting.next(batch) { self.split(batch, turn) } else { Ok(()) }
    }

    fn held_since(&self) -> Option<u64> {
        self.waiting.held_since()
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.emitted_to = None;
    }
}

impl Splitter {
    /// Splits messages until there are enough parts; the others wait.
    fn split(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let (mut count, mut bytes) = (0, 0);
        let rest = batch.rewrite_some(|message, emit| {
            let is_first = count == 0;
            let each = message.key.map_or(0, <[u8]>::len) + message.headers.bytes().len();
            let mut parts = Parts { emit, message: &message, each, count: &mut count, bytes: &mut bytes };
            if parts.are_enough() {
                return Ok(false);
            }
            let from = self.emitted_to.take();
            let cut = match (self.by_json, from) {
                (false, from) => Ok(self.cut(from.unwrap_or(0), &mut parts)),
                (true, None) => self.take_array(&mut parts),
                (true, Some(from)) => self.take_elements(from, &mut parts),
            };
            match cut {
                Ok(Some(_)) if !is_first => {
                    parts.emit.take_back();
                    Ok(false)
                }
                Ok(emitted_to) => {
                    self.emitted_to = emitted_to;
                    Ok(emitted_to.is_none())
                }
                Err(reason) => turn.bad.take(&message, &reason).map(|()| true),
            }
        })?;
        self.waiting.put_back(rest);
        Ok(())
    }
}

/// The parts of a message, with the number and size of all parts of the current batch.
struct Parts<'a, 'e> {
    emit: &'a mut Emitter<'e>,
    message: &'a Message<'a>,
    /// The size of the key and headers, which each part has.
    each: usize,
    count: &'a mut usize,
    bytes: &'a mut usize,
}

impl Parts<'_, '_> {
    /// True if the next parts wait for another batch.
    fn are_enough(&self) -> bool {
        *self.count >= PARTS_MAX || *self.bytes >= PART_BYTES_MAX
    }

    /// Counts a part whose value has this size.
    fn add(&mut self, len: usize) {
        *self.count += 1;
        *self.bytes += len + self.each;
    }
}

/// The message for an element of an array.
enum Piece<'a> {
    /// A part of the value.
    Part(&'a str),
    /// An unescaped string.
    Text(Cow<'a, str>),
    /// null, true or false.
    Word(Raw<'a>),
}

impl<'a> Piece<'a> {
    fn of(element: Raw<'a>) -> Result<Piece<'a>, NotJson> {
        Ok(match element {
            Raw::Number(part) | Raw::Array(part) | Raw::Object(part) | Raw::String(part, false) => {
                Piece::Part(part)
            }
            Raw::String(inside, true) => Piece::Text(json::string(inside, true)?),
            Raw::Null | Raw::Bool(_) => Piece::Word(element),
        })
    }

    fn is_empty(&self) -> bool {
        match self {
            Piece::Part(part) => part.is_empty(),
            Piece::Text(text) => text.is_empty(),
            Piece::Word(_) => false,
        }
    }

    fn len(&self) -> usize {
        match self {
            Piece::Part(part) => part.len(),
            Piece::Text(text) => text.len(),
            Piece::Word(_) => 0,
        }
    }

    fn emit(self, parts: &mut Parts<'_, '_>) {
        parts.add(self.len());
        let (message, emit) = (parts.message, &mut *parts.emit);
        let written: Result<(), Infallible> = match self {
            Piece::Part(part) => {
                // The part is a slice of the value, so its offset is the distance between both starts.
                let start = part.as_bytes().as_ptr() as usize - message.value.as_ptr() as usize;
                emit.part(start..start + part.len());
                Ok(())
            }
            Piece::Text(text) => emit.write(|out| {
                out.extend_from_slice(text.as_bytes());
                Ok(())
            }),
            Piece::Word(word) => emit.write(|out| {
                word.write(out);
                Ok(())
            }),
        };
        let Ok(()) = written;
    }
}

impl Splitter {
    /// Emits the parts from a place on. Returns the place of the next part if there are too many.
    fn cut(&self, from: usize, parts: &mut Parts<'_, '_>) -> Option<usize> {
        let value = parts.message.value;
        let mut start = from;
        let found = self.delimiter.find_iter(&value[from..]).map(|at| from + at);
        let width = self.delimiter.needle().len();
        let ends = found.map(|at| (at, at + width)).chain([(value.len(), value.len())]);
        for (end, next) in ends {
            // Delimiters may overlap, such as `aa` in `aaa`.
            if end >= start && (end > start || self.keep_empty) {
                if parts.are_enough() {
                    return Some(start);
                }
                parts.emit.part(start..end);
                parts.add(end - start);
            }
            start = start.max(next);
        }
        None
    }

    /// Emits the elements of an array, or the first ones, as [`Splitter::cut`] does. A value with one invalid
    /// element is an error, before the first is emitted.
    fn take_array(&self, parts: &mut Parts<'_, '_>) -> Result<Option<usize>, String> {
        let value = parts.message.value;
        let bad = |error: NotJson| error.to_string();
        let mut array = json::parse(value).map_err(bad)?;
        for name in self.path.iter().flatten() {
            array = array.member(name).map_err(bad)?.ok_or_else(|| format!("it has no member {name}"))?;
        }
        let Some(inside) = array.inside_of_array() else { return Err("it is not a JSON array".to_owned()) };
        let mut pieces = Ok(Vec::new());
        let (mut count, mut bytes, mut has_room) = (*parts.count, *parts.bytes, true);
        let visited = array.each_element(|element| match (&mut pieces, Piece::of(element)) {
            (Ok(pieces), Ok(piece)) if self.keep_empty || !piece.is_empty() => {
                has_room = count < PARTS_MAX && bytes < PART_BYTES_MAX;
                count += 1;
                bytes += piece.len() + parts.each;
                if has_room {
                    pieces.push(piece);
                }
            }
            (Ok(_), Err(error)) => pieces = Err(error),
            _ => {}
        });
        let pieces = visited.and(pieces).map_err(bad)?;
        if !has_room {
            drop(pieces);
            // The array is a slice of the value, so its offset is the distance between both starts.
            return self.take_elements(inside.as_ptr() as usize - value.as_ptr() as usize, parts);
        }
        pieces.into_iter().for_each(|piece| piece.emit(parts));
        Ok(None)
    }

    /// Emits elements of a checked array from a place on, as [`Splitter::cut`] does.
    fn take_elements(&self, from: usize, parts: &mut Parts<'_, '_>) -> Result<Option<usize>, String> {
        let value = parts.message.value;
        let bad = |error: NotJson| error.to_string();
        let mut start = from;
        while let Some((element, end)) = json::next_element(&value[start..]).map_err(bad)? {
            let piece = Piece::of(element).map_err(bad)?;
            if self.keep_empty || !piece.is_empty() {
                if parts.are_enough() {
                    return Ok(Some(start));
                }
                piece.emit(parts);
            }
            start += end;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::message::BatchBuilder;
    use crate::stage::{Refusals, SourceWatch};

    struct NoBadMessages;

    impl Refusals for NoBadMessages {
        fn take(&mut self, _message: &Message<'_>, reason: &str) -> Result<(), StageError> {
            panic!("no message is bad: {reason}")
        }

        fn take_late(&mut self, _message: &Message<'_>, _reason: &str) -> Result<(), StageError> {
            Ok(())
        }
    }

    /// The sequences of the parts of equal messages, by batch.
    fn split(by_json: bool, messages: u64, parts: usize, key: &[u8]) -> Vec<Vec<u64>> {
        let mut splitter = Splitter {
            by_json,
            delimiter: Finder::new(b",").into_owned(),
            path: None,
            keep_empty: false,
            waiting: Backlog::default(),
            emitted_to: None,
        };
        let list = vec!["\"a\\n\""; parts].join(",");
        let value = if by_json { format!("[{list}]") } else { list };
        let mut batch = BatchBuilder::default();
        for sequence in 0..messages {
            batch.push(Some(value.as_bytes()), Some(key), [], 0, sequence);
        }
        let mut batch = batch.take();
        let now = Instant::now();
        let mut turn =
            Turn { now, time_ms: clock::time_ms(), source: SourceWatch::new(now), bad: &mut NoBadMessages };
        splitter.process(&mut batch, &mut turn).expect("it is split");
        let sequences = |batch: &Batch| batch.messages().map(|message| message.sequence).collect::<Vec<_>>();
        let mut batches = vec![sequences(&batch)];
        while splitter.is_full() {
            splitter.tick(&mut batch, &mut turn).expect("it is split");
            batches.push(sequences(&batch));
        }
        assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), messages as usize * parts);
        batches
    }

    #[test]
    fn a_message_of_few_parts_is_split_as_a_whole() {
        for by_json in [false, true] {
            for (messages, parts) in [(512, 9), (3, PARTS_MAX), (5, PARTS_MAX - 1)] {
                for batch in split(by_json, messages, parts, b"k") {
                    assert!(!batch.is_empty() && batch.len() <= PARTS_MAX);
                    let whole = batch.chunk_by(|one, next| one == next).all(|of_one| of_one.len() == parts);
                    assert!(whole, "{messages} messages of {parts} parts");
                }
            }
        }
    }

    #[test]
    fn a_message_of_many_parts_ends_its_batch() {
        for by_json in [false, true] {
            let lengths: Vec<usize> = split(by_json, 2, PARTS_MAX + 100, b"k").iter().map(Vec::len).collect();
            assert_eq!(lengths, [PARTS_MAX, 100, PARTS_MAX, 100]);
        }
    }

    #[test]
    fn parts_with_a_long_key_pass_a_few_at_a_time() {
        for by_json in [false, true] {
            let batches = split(by_json, 1, 100, &vec![b'k'; 1 << 20]);
            assert!(batches.iter().all(|batch| batch.len() <= 16), "{batches:?}");
        }
    }
}
