//! `stream modules`: the stages that there are.

use std::io::Write;

use clap::Args;
use thalweg_stream::language::closest;
use thalweg_stream::module::{self, MODULES};

use crate::cli::failure::Usage;

/// List the stages that there are, or tell all about one.
#[derive(Args, Debug)]
pub struct Modules {
    /// The stage to tell about.
    name: Option<String>,
}

impl Modules {
    /// Shows it.
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
        return format!("{name} is not served yet. {}", unserved.instead);
    }
    match closest(name, MODULES.iter().map(|module| module.name)) {
        Some(meant) => format!("There is no stage {name}: {meant} would be right"),
        None => format!("There is no stage {name}: thalweg stream modules lists those that there are"),
    }
}
