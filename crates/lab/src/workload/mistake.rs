//! Mistakes in a workload. Every mistake in a file has a position, a key and a remedy; all mistakes of a file
//! are reported at once.

use std::fmt;
use std::path::PathBuf;

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

impl Position {
    /// The start of a file.
    pub const START: Position = Position { line: 1, column: 1 };
}

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The position of the mistake.
    pub position: Position,
    /// The key, from the top of the file, such as `topics.partitions`.
    pub key: String,
    pub problem: String,
    pub remedy: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(f, "{line}:{column}: {}: {}; {}", self.key, self.problem, self.remedy)
    }
}

/// A file with mistakes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidFile {
    pub file: String,
    /// The mistakes, from top to bottom; at least one.
    pub mistakes: Vec<Mistake>,
    /// The line of each mistake.
    pub lines: Vec<String>,
}

impl InvalidFile {
    /// Sorts and deduplicates the mistakes in `text`.
    pub(super) fn of(file: &str, text: &str, mut mistakes: Vec<Mistake>) -> InvalidFile {
        mistakes.sort_by(|a, b| a.position.cmp(&b.position).then_with(|| a.problem.cmp(&b.problem)));
        mistakes.dedup();
        let line = |mistake: &Mistake| {
            let line = text.lines().nth((mistake.position.line as usize).saturating_sub(1));
            line.unwrap_or_default().to_owned()
        };
        let lines = mistakes.iter().map(line).collect();
        InvalidFile { file: file.to_owned(), mistakes, lines }
    }
}

impl fmt::Display for InvalidFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (mistake, line)) in self.mistakes.iter().zip(&self.lines).enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{mistake}", self.file)?;
            if !line.trim().is_empty() {
                let number = mistake.position.line.to_string();
                let before = line.chars().take((mistake.position.column as usize).saturating_sub(1));
                // Keep tabs, so that the mark is under its character.
                let indent: String = before.map(|c| if c == '\t' { c } else { ' ' }).collect();
                write!(f, "\n  {number} | {line}\n  {:width$} | {indent}^", "", width = number.len())?;
            }
        }
        Ok(())
    }
}

/// Neither a built-in workload nor a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "There is no workload {name}: use one of {}, or the path of a file that ends in .toml",
    known.join(", ")
)]
pub struct UnknownWorkload {
    /// The requested name.
    pub name: String,
    /// The built-in names.
    pub known: Vec<&'static str>,
}

/// A file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be read: {reason}", path.display())]
pub struct UnreadableFile {
    pub path: PathBuf,
    pub reason: String,
}

/// An invalid scale.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the scale {scale} is invalid: use a number from {min} to {max}")]
pub struct InvalidScale {
    /// The requested scale.
    pub scale: f64,
    /// The minimum scale.
    pub min: f64,
    /// The maximum scale.
    pub max: f64,
}

/// Why a workload could not be loaded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// The name is unknown.
    #[error(transparent)]
    Unknown(#[from] UnknownWorkload),
    /// The file is missing or unreadable.
    #[error(transparent)]
    Unreadable(#[from] UnreadableFile),
    /// The file has mistakes.
    #[error(transparent)]
    Invalid(#[from] InvalidFile),
    /// The scale is out of bounds.
    #[error(transparent)]
    Scale(#[from] InvalidScale),
}
