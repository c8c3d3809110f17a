//! Reads Kafka's message definitions, JSON with `//` comments, from Kafka's jars.

use super::{Field, Schema, Struct, Type, Versions};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// The location of each family's JSON: our folder, the jar, the folder in the jar.
const SOURCES: [(&str, &str, &str); 5] = [
    ("request", "kafka-clients-", "common/message/"),
    ("metadata", "kafka-metadata-", "common/metadata/"),
    ("group", "kafka-group-coordinator-", "common/message/"),
    ("share", "kafka-share-coordinator-", "common/message/"),
    ("transaction", "kafka-transaction-coordinator-", "common/message/"),
];

/// A schema and the family (folder) that it belongs to.
pub type Families = BTreeMap<&'static str, Vec<Schema>>;

/// Reads every message of the jars on `classpath` (a list separated by colons; `dir/*` means its jars).
pub fn from_classpath(classpath: &str) -> Result<Families> {
    let mut families = Families::new();
    for (family, jar_prefix, folder) in SOURCES {
        let jar = find_jar(classpath, jar_prefix)?;
        let mut archive = zip::ZipArchive::new(std::io::BufReader::new(open(&jar)?))?;
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index)?;
            let name = entry.name().to_owned();
            if !name.starts_with(folder) || !name.ends_with(".json") {
                continue;
            }
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            let schema = parse(&text).with_context(|| format!("{} in {}", name, jar.display()))?;
            // A message without any remaining version has nothing to describe. The schema of control record
            // types has one field, whose layout is in the record crate.
            if schema.versions.0.is_some() && schema.name != "ControlRecordTypeSchema" {
                let family = if matches!(schema.kind.as_str(), "header" | "data") { "data" } else { family };
                families.entry(family).or_default().push(schema);
            }
        }
    }
    for schemas in families.values_mut() {
        schemas.sort_by(|a, b| a.name.cmp(&b.name));
    }
    Ok(families)
}

#[expect(clippy::disallowed_types, reason = "a build tool reads jars")]
fn open(path: &Path) -> Result<std::fs::File> {
    std::fs::File::open(path).with_context(|| path.display().to_string())
}

fn find_jar(classpath: &str, prefix: &str) -> Result<std::path::PathBuf> {
    for entry in classpath.split(':') {
        let candidates = match entry.strip_suffix("/*") {
            Some(dir) => std::fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?,
            None => vec![entry.into()],
        };
        for path in candidates {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_it =
                name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            if is_it && name.ends_with(".jar") {
                return Ok(path);
            }
        }
    }
    bail!("no {prefix}*.jar on the classpath {classpath}")
}

/// Parses one JSON definition.
fn parse(text: &str) -> Result<Schema> {
    // Comments are on separate lines or after the last token; strings contain two slashes only in links in
    // "about", never at the start of a line.
    let bare: String =
        text.lines().filter(|l| !l.trim_start().starts_with("//")).map(|l| format!("{l}\n")).collect();
    let json: Value = serde_json::from_str(&bare)?;
    let structs = match json.get("commonStructs") {
        None => Vec::new(),
        Some(list) => list
            .as_array()
            .context("commonStructs is not a list")?
            .iter()
            .map(|s| Ok(Struct { name: string(s, "name")?, versions: existence(s)?, fields: fields(s)? }))
            .collect::<Result<_>>()?,
    };
    let listeners = json.get("listeners").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(Schema {
        kind: string(&json, "type")?,
        name: string(&json, "name")?,
        key: json
            .get("apiKey")
            .map(|k| Ok::<i16, anyhow::Error>(k.as_i64().context("apiKey")?.try_into()?))
            .transpose()?,
        listeners: listeners.iter().filter_map(|l| l.as_str().map(str::to_owned)).collect(),
        versions: versions(&json, "validVersions")?,
        // A message without versions need not list its flexible versions.
        flexible: if json.get("flexibleVersions").is_some() {
            versions(&json, "flexibleVersions")?
        } else {
            Versions::NONE
        },
        unstable: json.get("latestVersionUnstable").and_then(Value::as_bool).unwrap_or(false),
        fields: fields(&json)?,
        structs,
    })
}

fn fields(json: &Value) -> Result<Vec<Field>> {
    let Some(list) = json.get("fields") else { return Ok(Vec::new()) };
    list.as_array().context("fields is not a list")?.iter().map(field).collect()
}

fn field(json: &Value) -> Result<Field> {
    let name = string(json, "name")?;
    let tag = match json.get("tag") {
        None => None,
        Some(tag) => {
            let tag = tag.as_u64().with_context(|| format!("tag of {name}"))?;
            Some((u32::try_from(tag)?, versions(json, "taggedVersions")?))
        }
    };
    ensure!(tag.is_some() == json.get("taggedVersions").is_some(), "{name}: tag without taggedVersions");
    let default = match json.get("default") {
        // Kafka's generator treats a JSON null as no default; a default of null is a string.
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    Ok(Field {
        ty: Type::parse(&string(json, "type")?),
        versions: existence(json)?,
        nullable: if json.get("nullableVersions").is_some() {
            versions(json, "nullableVersions")?
        } else {
            Versions::NONE
        },
        tag,
        default,
        ignorable: json.get("ignorable").and_then(Value::as_bool).unwrap_or(false),
        map_key: json.get("mapKey").and_then(Value::as_bool).unwrap_or(false),
        flexible: json.get("flexibleVersions").map(|_| versions(json, "flexibleVersions")).transpose()?,
        fields: fields(json)?,
        name,
    })
}

fn string(json: &Value, key: &str) -> Result<String> {
    Ok(json.get(key).and_then(Value::as_str).with_context(|| format!("no {key}"))?.to_owned())
}

/// The versions in which a field or struct exists. A field without `versions` exists in its tagged versions.
fn existence(json: &Value) -> Result<Versions> {
    versions(json, if json.get("versions").is_some() { "versions" } else { "taggedVersions" })
}

fn versions(json: &Value, key: &str) -> Result<Versions> {
    let text = string(json, key)?;
    Versions::parse(&text).with_context(|| format!("{key} {text}"))
}
