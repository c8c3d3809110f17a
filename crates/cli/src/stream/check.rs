//! `stream check`: checks a text.

use std::io::Write;

use clap::Args;
use thalweg_stream::plan::{Input, Output, Plan, StreamPlan};

use super::text::Text;

/// Check a text without running it.
#[derive(Args, Debug)]
pub struct Check {
    #[command(flatten)]
    text: Text,
}

impl Check {
    /// Prints the streams of a valid text.
    pub fn run(&self) -> anyhow::Result<()> {
        let plan = self.text.plan()?;
        let deployment = self.text.deployment(&plan)?;
        self.text.laid(plan.clone(), &deployment)?;
        let mut out = std::io::stdout().lock();
        for stream in &plan.streams {
            writeln!(out, "{}", describe(&plan, stream))?;
        }
        Ok(())
    }
}

/// `orders: http | filter | topic:big`, with labels.
fn describe(plan: &Plan, stream: &StreamPlan) -> String {
    let mut parts = Vec::new();
    match &stream.input {
        Input::Stage(_) => {}
        Input::Topic(name) => parts.push(format!("topic:{name}")),
        Input::Tap { stream, stage } => {
            let tapped = &plan.streams[*stream];
            let label = match stage {
                0 => tapped.stages().next().map(|stage| stage.label.to_string()),
                stage => Some(tapped.processors[stage - 1].label.to_string()),
            };
            parts.push(format!("tap:stream:{}.{}", tapped.name, label.unwrap_or_default()));
        }
        // Only streams on a host have this input.
        Input::Beside { stream, .. } => parts.push(format!("tap:stream:{stream}")),
    }
    parts.extend(stream.stages().map(|stage| match *stage.label == *stage.module.name {
        true => stage.module.name.to_owned(),
        false => format!("{}: {}", stage.label, stage.module.name),
    }));
    if let Output::Topic(name) = &stream.output {
        parts.push(format!("topic:{name}"));
    }
    format!("{} = {}", stream.name, parts.join(" | "))
}
