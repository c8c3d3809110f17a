//! `splitter`: makes several messages of one. The parts lie where the whole lay; nothing is copied but JSON strings, whose
//! quotes and escapes go.

use memchr::memmem::Finder;

use crate::json::{self, NotJson, Raw};
use crate::message::{Batch, Emit, Message};
use crate::module::{Absent, Make, Module, OptionSpec, Settings, Takes, WrongMix};
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
            match self.elements(message.value) {
                Ok(elements) => {
                    elements.into_iter().for_each(|element| self.emit(element, &message, emit));
                    Ok(())
                }
                Err(reason) => turn.bad.take(&message, &reason),
            }
        })
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

    fn elements<'a>(&self, value: &'a [u8]) -> Result<Vec<Raw<'a>>, String> {
        let told = |error: NotJson| error.to_string();
        let mut array = json::parse(value).map_err(told)?;
        for name in self.path.iter().flatten() {
            array = array.member(name).map_err(told)?.ok_or_else(|| format!("it has no member {name}"))?;
        }
        match array {
            Raw::Array(_) => array.elements().map_err(told),
            _ => Err("there is no JSON array to split".to_owned()),
        }
    }

    fn emit(&self, element: Raw<'_>, message: &Message<'_>, emit: &mut Emit<'_>) {
        let written: Result<(), NotJson> = match element {
            Raw::Number(part) | Raw::Array(part) | Raw::Object(part) => {
                // The part is a slice of the value, so that its place is the distance of their beginnings.
                let start = part.as_ptr() as usize - message.value.as_ptr() as usize;
                emit.part(start..start + part.len());
                Ok(())
            }
            Raw::String(inside, escaped) => match json::string(inside, escaped) {
                Ok(text) if text.is_empty() && !self.keep_empty => Ok(()),
                Ok(text) => emit.write(|out| {
                    out.extend_from_slice(text.as_bytes());
                    Ok(())
                }),
                Err(error) => Err(error),
            },
            plain => emit.write(|out| {
                plain.write(out);
                Ok(())
            }),
        };
        // A string that is no UTF-8 goes on as it is: no reader of bytes is kept from it.
        if written.is_err() {
            emit.keep();
        }
    }
}
