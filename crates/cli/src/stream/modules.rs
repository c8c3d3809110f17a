//! `stream modules`: documents the stages.

use std::io::Write;

use clap::Args;
use thalweg_stream::language::closest;
use thalweg_stream::module::{self, MODULES};

use crate::failure::Usage;

/// List all stages, or document one.
#[derive(Args, Debug)]
pub struct Modules {
    /// The stage to document.
    name: Option<String>,
}

impl Modules {
    /// Prints the documentation.
    pub fn run(&self) -> anyhow::Result<()> {
        let text = match &self.name {
            None => module::summary(),
            Some(name) => {
                let texts: Vec<String> = module::named(name).map(module::text).collect();
                if texts.is_empty() {
                    return Err(Usage(no_such(name)).into());
                }
                texts.join("\n")
            }
        };
        Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
    }
}

fn no_such(name: &str) -> String {
    if let Some(unserved) = module::UNSERVED.iter().find(|unserved| unserved.name == name) {
        return format!("{name} is not supported yet. {}", unserved.instead);
    }
    match closest(name, MODULES.iter().map(|module| module.name)) {
        Some(meant) => format!("There is no stage {name}; did you mean {meant}?"),
        None => format!("There is no stage {name}: `thalweg stream modules` lists all"),
    }
}
