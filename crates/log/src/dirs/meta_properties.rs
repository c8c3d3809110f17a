//! `meta.properties`: the identity of a log directory. A Java properties file.
//!
//! ```text
//! version=1
//! cluster.id=<22 characters>
//! node.id=<number>
//! directory.id=<22 characters>
//! ```
//! Version 0 has `broker.id` instead of `node.id` and no `directory.id`. A file of version 0 is read, and
//! rewritten as version 1.
//!
//! Owns: the format. Refuses: comparing ids, which is the caller's task.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::error::BadMetaProperties;
use crate::disk::{Disk, Durability};
use thalweg_ids::Uuid;

/// The name of the file in the log directory.
pub const FILE: &str = "meta.properties";

/// The content of the file. In version 0 any field may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaProperties {
    /// The cluster's id.
    pub cluster_id: Option<String>,
    /// The broker's id.
    pub node_id: Option<i32>,
    /// The directory's own id.
    pub directory_id: Option<Uuid>,
    /// True for version 1.
    pub is_current: bool,
}

/// Writes the file durably.
pub fn write(disk: &Disk, dir: &Path, cluster_id: &str, node_id: i32, directory_id: Uuid) -> io::Result<()> {
    let text = format!(
        "cluster.id={}\ndirectory.id={directory_id}\nnode.id={node_id}\nversion=1\n",
        escape(cluster_id)
    );
    disk.replace(&dir.join(FILE), text.as_bytes(), Durability::Synced)
}

/// Why the file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MetaPropertiesError {
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The content is invalid.
    #[error(transparent)]
    Bad(#[from] BadMetaProperties),
}

/// Reads the file; `None` if it does not exist.
pub fn read(disk: &Disk, dir: &Path) -> Result<Option<MetaProperties>, MetaPropertiesError> {
    let path = dir.join(FILE);
    let Some(bytes) = disk.read_if_exists(&path)? else { return Ok(None) };
    match interpret(&parse(&String::from_utf8_lossy(&bytes))) {
        Ok(meta) => Ok(Some(meta)),
        Err(reason) => Err(BadMetaProperties { path, reason }.into()),
    }
}

fn interpret(properties: &BTreeMap<String, String>) -> Result<MetaProperties, String> {
    let get = |key: &str| properties.get(key).map(String::as_str);
    let number = |key: &str| match get(key).map(str::parse::<i32>) {
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(format!("{key} is not a number")),
        None => Ok(None),
    };
    let is_current = match get("version") {
        Some("1") => true,
        Some("0") => false,
        Some(other) => return Err(format!("version {other} is unknown")),
        None => return Err("it has no version".to_owned()),
    };
    let node_id = number(if is_current { "node.id" } else { "broker.id" })?;
    let directory_id = match get("directory.id").map(str::parse::<Uuid>) {
        Some(Ok(id)) => Some(id),
        Some(Err(error)) => return Err(error.to_string()),
        None => None,
    };
    let cluster_id = get("cluster.id").map(str::to_owned);
    if is_current && (cluster_id.is_none() || node_id.is_none()) {
        return Err("version 1 needs cluster.id and node.id".to_owned());
    }
    Ok(MetaProperties { cluster_id, node_id, directory_id, is_current })
}

/// The part of the Java properties format that Kafka writes: `key=value` or `key:value` lines, comments, and
/// a backslash before special characters.
fn parse(text: &str) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let end = line.find(['=', ':']).unwrap_or(line.len());
        let (key, value) = line.split_at(end);
        let value = value.strip_prefix(['=', ':']).unwrap_or(value);
        properties.insert(key.trim().to_owned(), unescape(value.trim()));
    }
    properties
}

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        if character == '\\' {
            out.extend(characters.next());
        } else {
            out.push(character);
        }
    }
    out
}

fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ':' | '=' | '#' | '!') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_file_is_read() {
        let text = "#\n#Sat Nov 21 21:10:00 UTC 2026\nnode.id=1\ndirectory.id=MkU3OEVBNTcwNTJENDM2Qg\n\
                    version=1\ncluster.id=a\\:b_C-d\n";
        let meta = interpret(&parse(text)).expect("a good file");
        assert_eq!(meta.node_id, Some(1));
        assert_eq!(meta.cluster_id.as_deref(), Some("a:b_C-d"));
        assert!(meta.is_current && meta.directory_id.is_some());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "version=2", "version=1\ncluster.id=a", "version=1\ncluster.id=a\nnode.id=x"] {
            assert!(interpret(&parse(text)).is_err(), "{text}");
        }
        assert_eq!(interpret(&parse("version=0\nbroker.id=7")).map(|meta| meta.node_id), Ok(Some(7)));
    }
}
