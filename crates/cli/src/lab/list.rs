//! `lab list`: lists the built-in workloads.

use clap::Args;
use serde_json::json;
use thalweg_lab::workload;

use crate::output::{Column, CommandOutput};

/// List the built-in workloads.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 3] = [("NAME", "name"), ("POINTS", "points"), ("TITLE", "title")];

impl List {
    /// Prints the built-in workloads.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut workloads = Vec::new();
        for name in workload::names() {
            workloads.push(workload::load(name, None)?);
        }
        let listed: Vec<_> = workloads
            .iter()
            .map(|workload| json!({ "name": workload.name, "title": workload.title, "points": workload.points.len() }))
            .collect();
        self.output.show(&listed, |style| {
            let rows = style.rows(&COLUMNS, &listed)?;
            Ok(format!(
                "{rows}\n`thalweg lab show NAME` describes a workload, `thalweg lab run NAME` runs it.\n"
            ))
        })
    }
}
