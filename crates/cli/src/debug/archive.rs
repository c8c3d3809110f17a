//! The archive: parts gathered one after the other, cleaned of secrets at the end, and written once.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::secrets::Secrets;

/// The content of a file.
enum Content {
    Text(String),
    Document(Value),
}

/// The gathered files, and the parts that are missing.
#[derive(Default)]
pub(crate) struct GatheredFiles {
    /// Secrets seen while gathering.
    pub secrets: Secrets,
    files: Vec<(String, Content)>,
    missing: Vec<(String, String)>,
}

impl GatheredFiles {
    /// Adds a text file.
    pub fn text(&mut self, name: &str, text: impl Into<String>) {
        self.files.push((name.to_owned(), Content::Text(text.into())));
    }

    /// Adds a document, as a file of JSON.
    pub fn document(&mut self, name: &str, document: Value) {
        self.files.push((name.to_owned(), Content::Document(document)));
    }

    /// Adds a text or the reason for its absence.
    pub fn text_or_reason(&mut self, name: &str, text: anyhow::Result<String>) {
        match text {
            Ok(text) => self.text(name, text),
            Err(error) => self.missing(name, &error),
        }
    }

    /// Adds a document or the reason for its absence.
    pub fn document_or_reason(&mut self, name: &str, document: anyhow::Result<Value>) {
        match document {
            Ok(document) => self.document(name, document),
            Err(error) => self.missing(name, &error),
        }
    }

    /// Notes a missing part, with the reason.
    pub fn missing(&mut self, what: &str, why: &anyhow::Error) {
        self.missing.push((what.to_owned(), format!("{why:#}")));
    }

    /// The names of the files, and the missing parts with their reasons, without secrets.
    pub fn contents(&self) -> Value {
        let files: Vec<&str> = self.files.iter().map(|(name, _)| name.as_str()).collect();
        let missing = self.missing.iter();
        let missing: Vec<Value> = missing.map(|(what, why)| json!({ "part": what, "reason": why })).collect();
        self.secrets.clean_document(&json!({ "files": files, "missing": missing }))
    }

    /// Writes the archive, for its owner alone, with all files in one directory. Refuses to replace a file.
    pub fn write(&self, path: &Path, directory: &str, modified_s: u64) -> anyhow::Result<u64> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let contents = serde_json::to_string_pretty(&self.contents())?;
        let files = self.files.iter().map(|(name, content)| (name.as_str(), self.cleaned(content)));
        for (name, text) in files.chain([("contents.json", contents)]) {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(modified_s);
            archive.append_data(&mut header, format!("{directory}/{name}"), text.as_bytes())?;
        }
        let bytes = archive.into_inner()?.finish()?;
        write_new(path, &bytes).with_context(|| format!("Cannot write {}", path.display()))?;
        Ok(bytes.len() as u64)
    }

    fn cleaned(&self, content: &Content) -> String {
        match content {
            Content::Text(text) => self.secrets.clean(text),
            Content::Document(document) => format!("{:#}\n", self.secrets.clean_document(document)),
        }
    }
}

#[expect(clippy::disallowed_types, reason = "an archive for people, which no broker reads")]
fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
