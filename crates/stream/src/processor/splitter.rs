//! `splitter`: makes several messages of one. The parts lie where the whole lay; nothing is copied but JSON strings with
//! escapes, which go.

use std::borrow::Cow;
use std::convert::Infallible;

use memchr::memmem::Finder;

use crate::declaration::{Absent, Make, Module, OptionSpec, Settings, Takes, WrongMix};
use crate::json::{self, NotJson, Raw};
use crate::message::{Batch, Emit, Message};
use crate::stage::{Processor, StageError, Turn};

/// The declaration.
pub const MODULE: Module = Module {
    name: "splitter",
    summary: "makes several messages of one",
    about: "The parts have the key and the time of the whole.",
    options: &[
        OptionSpec {
            name: "by",
            takes: Takes::Choice(&["delimiter", "json"]),
            default: Absent::Value("delimiter"),
            summary: "Whether the value is cut at a delimiter, or is a JSON array whose elements become messages.",
        },
        OptionSpec {
            name: "delimiter",
            takes: Takes::Name,
            default: Absent::Value("\n"),
            summary: "Where to cut; an end of line by default. Write \"\\n\" in double quotes.",
        },
        OptionSpec {
            name: "member",
            takes: Takes::Name,
            default: Absent::None,
            summary: "With --by=json, where the array lies in an object: names with dots between them.",
        },
        OptionSpec {
            name: "keepEmpty",
            takes: Takes::Flag,
            default: Absent::Value("false"),
            summary: "Whether parts without a byte become messages.",
        },
    ],
    examples: &[
        (
            "file --path=orders.json --mode=whole | splitter --by=json --member=orders | log",
            "each order of a document",
        ),
        ("stdin | splitter --delimiter=, | stdout", "a line for each value between commas"),
    ],
    check,
    make: Make::Processor(|settings, _site| {
        Ok(Box::new(Splitter {
            by_json: settings.text("by") == "json",
            delimiter: Finder::new(settings.text("delimiter").as_bytes()).into_owned(),
            path: settings.optional_text("member").map(|path| path.split('.').map(str::to_owned).collect()),
            keep_empty: settings.flag("keepEmpty"),
        }))
    }),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    let by_json = settings.text("by") == "json";
    if !by_json && settings.optional_text("member").is_some() {
        let message = "A member lies in an object of JSON";
        return Err(WrongMix::new("member", message, "Leave it out, or add --by=json."));
    }
    if by_json && settings.text("delimiter") != "\n" {
        let message = "The elements of an array are told apart by JSON";
        return Err(WrongMix::new("delimiter", message, "Leave it out, or leave out --by=json."));
    }
    Ok(())
}

struct Splitter {
    by_json: bool,
    delimiter: Finder<'static>,
    path: Option<Vec<String>>,
    keep_empty: bool,
}

impl Processor for Splitter {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        batch.rewrite(|message, emit| {
            if !self.by_json {
                self.cut(&message, emit);
                return Ok(());
            }
            match self.pieces(message.value) {
                Ok(pieces) => {
                    pieces.into_iter().for_each(|piece| piece.emit(&message, emit));
                    Ok(())
                }
                Err(reason) => turn.bad.take(&message, &reason),
            }
        })
    }
}

/// What one element of an array becomes.
enum Piece<'a> {
    /// A part of the value.
    Part(&'a [u8]),
    /// A string without its escapes.
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

    fn emit(self, message: &Message<'_>, emit: &mut Emit<'_>) {
        let written: Result<(), Infallible> = match self {
            Piece::Part(part) => {
                // A slice of the value, so that its place is the distance of their beginnings.
                let start = part.as_ptr() as usize - message.value.as_ptr() as usize;
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
    fn cut(&self, message: &Message<'_>, emit: &mut Emit<'_>) {
        let mut start = 0;
        let found = self.delimiter.find_iter(message.value);
        let width = self.delimiter.needle().len();
        let ends = found.map(|at| (at, at + width)).chain([(message.value.len(), message.value.len())]);
        for (end, next) in ends {
            // Delimiters may overlap where one repeats itself.
            if end >= start && (end > start || self.keep_empty) {
                emit.part(start..end);
            }
            start = start.max(next);
        }
    }

    /// All of them, or why there are none: a value of which a part is wrong is a bad message as a whole.
    fn pieces<'a>(&self, value: &'a [u8]) -> Result<Vec<Piece<'a>>, String> {
        let told = |error: NotJson| error.to_string();
        let mut array = json::parse(value).map_err(told)?;
        for name in self.path.iter().flatten() {
            array = array.member(name).map_err(told)?.ok_or_else(|| format!("it has no member {name}"))?;
        }
        let Raw::Array(_) = array else { return Err("there is no JSON array to split".to_owned()) };
        let pieces = array.elements().map_err(told)?.into_iter().map(Piece::of);
        let mut pieces = pieces.collect::<Result<Vec<_>, _>>().map_err(told)?;
        if !self.keep_empty {
            pieces.retain(|piece| !piece.is_empty());
        }
        Ok(pieces)
    }
}
