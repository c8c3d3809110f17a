//! The documentation of the modules, for terminals and as pages, generated from the declarations.

use std::fmt::Write;

use super::{Kind, MODULES, Module, OptionDefault, OptionSpec, of_kind};

/// The list of all modules, for a terminal.
pub fn summary() -> String {
    let mut out = String::new();
    let width = MODULES.iter().map(|module| module.name.len()).max().unwrap_or(0);
    for kind in Kind::ALL {
        let _ = writeln!(out, "{}s", capital(kind.name()));
        for module in of_kind(kind) {
            let _ = writeln!(out, "  {:width$}  {}", module.name, module.summary);
        }
        out.push('\n');
    }
    out.push_str("Between streams\n");
    let _ = writeln!(
        out,
        "  {:width$}  a named destination: write it after `|` or `>`, read it before `>`",
        "topic:NAME"
    );
    let _ = writeln!(
        out,
        "  {:width$}  a tap on the output of another stream's stage: `tap:stream:NAME.LABEL > ...`",
        "tap:"
    );
    out.push_str("\nOptions of a stage: thalweg stream modules NAME\n");
    out
}

/// The documentation of one module, for a terminal.
pub fn text(module: &Module) -> String {
    let mut out = format!("{}, a {}: {}\n", module.name, module.kind().name(), module.summary);
    if !module.about.is_empty() {
        let _ = write!(out, "\n{}\n", module.about);
    }
    if !module.options.is_empty() {
        out.push_str("\nOptions\n");
        for option in module.options {
            let _ = writeln!(out, "  --{}={}", option.name, placeholder(option));
            let _ = writeln!(out, "      {}", option.summary);
            let _ = writeln!(out, "      {}. {}.", option.takes.describe(), default(option, ""));
        }
    }
    out.push_str("\nExamples\n");
    for (example, what) in module.examples {
        let _ = writeln!(out, "  {example}\n      {what}");
    }
    out
}

/// The page of all modules with a name, in Markdown.
pub fn page(name: &str) -> String {
    let mut out = format!(
        "<!-- Generated from the declarations of the stages by the test `the_pages_are_fresh`;\n\
         run it with UPDATE_DOCS=1 to update this page. -->\n\n# {name}\n"
    );
    for module in super::named(name) {
        let _ = write!(out, "\n## {name}, a {}\n\n{}.\n", module.kind().name(), capital(module.summary));
        if !module.about.is_empty() {
            let _ = write!(out, "\n{}\n", module.about);
        }
        if !module.options.is_empty() {
            out.push_str("\n| option | takes | default | what it does |\n|---|---|---|---|\n");
            for option in module.options {
                let takes = option.takes.describe().replace('|', "\\|");
                let default = default(option, "`");
                let summary = option.summary.replace('|', "\\|");
                let _ = writeln!(out, "| `--{}` | {takes} | {default} | {summary} |", option.name);
            }
        }
        for (example, what) in module.examples {
            let _ = write!(out, "\n{}:\n\n```\n{example}\n```\n", capital(what));
        }
    }
    out
}

fn placeholder(option: &OptionSpec) -> String {
    match option.default {
        OptionDefault::Value(value) if !value.is_empty() => value.to_owned(),
        _ => "...".to_owned(),
    }
}

fn default(option: &OptionSpec, quote: &str) -> String {
    match option.default {
        OptionDefault::Required => "Required".to_owned(),
        OptionDefault::None => "No default".to_owned(),
        OptionDefault::Value("") => "Empty by default".to_owned(),
        OptionDefault::Value(value) if quote.is_empty() => format!("By default {}", value.escape_default()),
        OptionDefault::Value(value) => format!("{quote}{}{quote}", value.escape_default()),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + letters.as_str())
        .unwrap_or_default()
}
