//! `lab list`.

use std::io::Write;

use clap::Args;
use serde_json::json;
use thalweg_lab::workload;

use crate::cli::table::{align, row};

/// List the built-in workloads.
#[derive(Args, Debug)]
pub struct List {
    /// Print one JSON array instead of lines.
    #[arg(long)]
    json: bool,
}

impl List {
    /// Lists them.
    pub fn run(&self) -> anyhow::Result<()> {
        let mut workloads = Vec::new();
        for name in workload::names() {
            workloads.push(workload::load(name, None)?);
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            let listed: Vec<_> = workloads
                .iter()
                .map(|workload| json!({ "name": workload.name, "title": workload.title, "points": workload.points.len() }))
                .collect();
            writeln!(out, "{}", json!(listed))?;
            return Ok(());
        }
        let mut rows = vec![row(["NAME", "POINTS", "TITLE"])];
        rows.extend(workloads.iter().map(|workload| {
            vec![workload.name.clone(), workload.points.len().to_string(), workload.title.clone()]
        }));
        write!(out, "{}", align(&rows))?;
        writeln!(out, "\n`thalweg lab show NAME` describes a workload, `thalweg lab run NAME` runs it.")?;
        Ok(())
    }
}
