//! `log`: prints messages with a timestamp, one per line.

use std::fmt::Write;
use std::sync::Arc;

use chrono::{Local, TimeZone};

use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker, StageOutput};
use crate::message::Batch;
use crate::stage::{Sink, StageError, Turn};

/// Maximum bytes of a message printed.
const SHOWN_BYTES_MAX: usize = 4096;

pub const MODULE: Module = Module {
    name: "log",
    summary: "prints messages with a timestamp, one per line",
    about: "Bytes that are not text are shown as replacement characters, and long messages are cut; `stdout` writes messages unchanged.",
    options: &[
        OptionSpec {
            name: "name",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "The prefix of each line; by default the name of the stream.",
        },
        OptionSpec {
            name: "showKey",
            takes: OptionType::Flag,
            default: OptionDefault::Value("false"),
            summary: "Whether to print the key before the value.",
        },
    ],
    examples: &[("time --count=3 | log", "three lines")],
    check: declaration::any,
    make: StageMaker::Sink(|settings, site| {
        Ok(Box::new(Log {
            name: settings.optional_text("name").unwrap_or(&site.stream).to_owned(),
            show_key: settings.flag("showKey"),
            console: site.console.clone(),
        }))
    }),
};

struct Log {
    name: String,
    show_key: bool,
    console: Arc<dyn StageOutput>,
}

impl Sink for Log {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        for message in batch.messages() {
            let time = Local.timestamp_millis_opt(turn.time_ms).earliest().unwrap_or_default();
            let mut line = format!("{} {}: ", time.format("%Y-%m-%d %H:%M:%S%.3f"), self.name);
            if self.show_key {
                let key = message.key.map_or("null".into(), String::from_utf8_lossy);
                let _ = write!(line, "{key} ");
            }
            let shown = &message.value[..message.value.len().min(SHOWN_BYTES_MAX)];
            line.push_str(&String::from_utf8_lossy(shown));
            if shown.len() < message.value.len() {
                let _ = write!(line, "... ({} bytes)", message.value.len());
            }
            self.console.line(&line);
        }
        Ok(())
    }
}
