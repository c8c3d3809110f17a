//! `splitter`: splits a message. Parts stay in the message's buffer; only JSON strings with escapes are
//! copied.

use std::borrow::Cow;
use std::convert::Infallible;

use memchr::memmem::Finder;

use crate::declaration::{Module, OptionDefault, OptionSpec, OptionType, Settings, StageMaker, WrongMix};
use crate::json::{self, NotJson, Raw};
use crate::message::{Batch, Emitter, Message};
use crate::stage::{Processor, StageError, Turn};

pub const MODULE: Module = Module {
    name: "splitter",
    summary: "splits a message into several",
    about: "The parts keep the key and the timestamp.",
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

    fn emit(self, message: &Message<'_>, emit: &mut Emitter<'_>) {
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
    fn cut(&self, message: &Message<'_>, emit: &mut Emitter<'_>) {
        let mut start = 0;
        let found = self.delimiter.find_iter(message.value);
        let width = self.delimiter.needle().len();
        let ends = found.map(|at| (at, at + width)).chain([(message.value.len(), message.value.len())]);
        for (end, next) in ends {
            // Delimiters may overlap, such as `aa` in `aaa`.
            if end >= start && (end > start || self.keep_empty) {
                emit.part(start..end);
            }
            start = start.max(next);
        }
    }

    /// All elements, or an error: a value with one invalid element is a bad message.
    fn pieces<'a>(&self, value: &'a [u8]) -> Result<Vec<Piece<'a>>, String> {
        let bad = |error: NotJson| error.to_string();
        let mut array = json::parse(value).map_err(bad)?;
        for name in self.path.iter().flatten() {
            array = array.member(name).map_err(bad)?.ok_or_else(|| format!("it has no member {name}"))?;
        }
        let Raw::Array(_) = array else { return Err("it is not a JSON array".to_owned()) };
        let mut pieces = Ok(Vec::new());
        let visited = array.each_element(|element| match (&mut pieces, Piece::of(element)) {
            (Ok(pieces), Ok(piece)) if self.keep_empty || !piece.is_empty() => pieces.push(piece),
            (Ok(_), Err(error)) => pieces = Err(error),
            _ => {}
        });
        visited.and(pieces).map_err(bad)
    }
}
