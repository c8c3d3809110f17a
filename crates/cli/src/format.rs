//! The formats of results: a table for people, a JSON or YAML document for programs.

/// The names of all formats.
pub(crate) const FORMATS: [&str; 3] = ["table", "json", "yaml"];

/// The form of a printed result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Aligned columns or sentences, for people.
    Table,
    /// JSON: over several lines on a terminal, otherwise one line for each document.
    Json,
    Yaml,
}
