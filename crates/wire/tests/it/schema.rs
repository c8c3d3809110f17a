//! Our schema files against the files inside Kafka's jars.
//!
//! Both are read by separate code, not by the importer and the generator of `xtask`, into facts by path
//! (`FetchRequest/Topics/Partitions` → type, versions, default, ...), and the facts must be the same.
//! Descriptions, and how Kafka's Java code stores and validates a field, are not compared.

use crate::kafka_classpath;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Jar and folder of each family of messages that we have.
const SOURCES: [(&str, &str); 5] = [
    ("kafka-clients-", "common/message/"),
    ("kafka-metadata-", "common/metadata/"),
    ("kafka-group-coordinator-", "common/message/"),
    ("kafka-share-coordinator-", "common/message/"),
    ("kafka-transaction-coordinator-", "common/message/"),
];

/// The type of a control record, its key, is part of the record format, which is not this crate's.
const NOT_OURS: [&str; 1] = ["ControlRecordTypeSchema"];

/// The facts about one message, struct or field.
type Facts = BTreeMap<&'static str, String>;

/// The facts about one message.
#[derive(Debug, Default, PartialEq)]
pub struct Message {
    pub name: String,
    /// Facts by place; the message itself has its name as its place.
    places: BTreeMap<String, Facts>,
}

impl Message {
    /// All versions of the message.
    pub fn versions(&self) -> impl Iterator<Item = i16> + use<> {
        let versions = &self.places[&self.name]["versions"];
        let (low, high) = versions.split_once("..=").expect("a message that is kept has versions");
        low.parse().expect("a version")..=high.parse().expect("a version")
    }

    fn insert(&mut self, place: &str, facts: Facts) {
        let before = self.places.insert(place.to_owned(), facts);
        assert!(before.is_none(), "{place} is described twice");
    }
}

/// One form for the several in which a range may be written: `none`, `low..=high`, `low..`.
fn versions(text: &str) -> String {
    if text == "none" {
        text.to_owned()
    } else if let Some(low) = text.strip_suffix('+') {
        format!("{low}..")
    } else {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        format!("{low}..={high}")
    }
}

/// Our messages, from the folders of `crates/wire/schema/`.
pub fn ours() -> Vec<Message> {
    let mut messages = Vec::new();
    let families = list(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/schema")));
    for path in families.iter().filter(|path| path.is_dir()).flat_map(|family| list(family)) {
        let text = std::fs::read_to_string(&path).expect("a schema file is readable text");
        parse_compact(&text, &path.display().to_string(), &mut messages);
    }
    assert!(!messages.is_empty(), "there are schema files");
    messages
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the folder is readable").path()).collect();
    paths.sort();
    paths
}

/// Reads the compact form: a message at the margin, its fields and structs below it, two spaces a level.
fn parse_compact(text: &str, file: &str, messages: &mut Vec<Message>) {
    // The paths of the lines that the next line may belong to, and their number of fields.
    let mut above: Vec<(String, usize)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() || words[0].starts_with('#') {
            continue;
        }
        let depth = (line.len() - line.trim_start().len()) / 2;
        assert!(depth <= above.len(), "{file}:{}: indented too far", number + 1);
        above.truncate(depth);
        let mut facts = Facts::new();
        let (name, flags) = if depth == 0 {
            messages.push(Message { name: words[1].to_owned(), ..Message::default() });
            facts.insert("kind", words[0].to_owned());
            (words[1].to_owned(), &words[2..])
        } else if depth == 1 && words[0] == "struct" {
            facts.insert("versions", versions(words[2]));
            (format!("struct {}", words[1]), &words[3..])
        } else {
            facts.insert("position", above[depth - 1].1.to_string());
            facts.insert("type", words[1].to_owned());
            facts.insert("versions", versions(words[2]));
            above[depth - 1].1 += 1;
            (words[0].to_owned(), &words[3..])
        };
        for flag in flags {
            compact_flag(flag, depth, &mut facts);
        }
        let place = above.last().map_or_else(|| name.clone(), |(parent, _)| format!("{parent}/{name}"));
        messages.last_mut().expect("a field follows its message").insert(&place, facts);
        above.push((place, 0));
    }
}

fn compact_flag(flag: &str, depth: usize, facts: &mut Facts) {
    match flag.split_once('=') {
        Some(("key", key)) if depth == 0 => facts.insert("key", key.to_owned()),
        Some(("listeners", listeners)) if depth == 0 => facts.insert("listeners", listeners.to_owned()),
        Some(("versions", range)) if depth == 0 => facts.insert("versions", versions(range)),
        Some(("flexible", range)) => facts.insert("flexible", versions(range)),
        Some(("null", range)) => facts.insert("nullable", versions(range)),
        Some(("default", value)) => facts.insert("default", value.to_owned()),
        Some(("tag", tag)) => {
            let (tag, range) = tag.split_once('@').expect("tag=NUMBER@VERSIONS");
            facts.insert("tag", tag.to_owned());
            facts.insert("tagged", versions(range))
        }
        None if flag == "unstable" && depth == 0 => facts.insert("unstable", "true".to_owned()),
        None if flag == "ignorable" => facts.insert("ignorable", "true".to_owned()),
        None if flag == "key" => facts.insert("map key", "true".to_owned()),
        _ => panic!("unknown word {flag}"),
    };
}

/// Kafka's messages, from its jars; those without any version are left out.
fn kafkas(classpath: &str) -> Vec<Message> {
    let mut messages = Vec::new();
    for (jar, folder) in SOURCES {
        let bytes = std::fs::read(find_jar(classpath, jar)).expect("the jar is readable");
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("a jar is a zip archive");
        let before = messages.len();
        for index in 0..archive.len() {
            let mut file = archive.by_index(index).expect("the archive is whole");
            if !file.name().starts_with(folder) || !file.name().ends_with(".json") {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text).expect("schema files are UTF-8");
            let json: Value = serde_json::from_str(&without_comments(&text))
                .unwrap_or_else(|error| panic!("{} in {jar}: {error}", file.name()));
            if json["validVersions"] != "none" {
                messages.push(parse_json(&json));
            }
        }
        assert!(messages.len() > before, "{jar} has messages in {folder}");
    }
    messages.retain(|message| !NOT_OURS.contains(&message.name.as_str()));
    messages
}

fn find_jar(classpath: &str, prefix: &str) -> PathBuf {
    let jars = classpath.split(':').flat_map(|entry| match entry.strip_suffix("/*") {
        Some(folder) => list(Path::new(folder)),
        None => vec![PathBuf::from(entry)],
    });
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let version = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(".jar"));
        version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
    };
    jars.into_iter().find(is_it).unwrap_or_else(|| panic!("KAFKA_CLASSPATH has no {prefix}*.jar"))
}

/// Removes `//` comments, except inside strings.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut in_string = false;
        let mut escaped = false;
        let mut end = line.len();
        for (at, byte) in line.bytes().enumerate() {
            match byte {
                b'"' if !escaped => in_string = !in_string,
                b'/' if !in_string && line[at..].starts_with("//") => {
                    end = at;
                    break;
                }
                _ => {}
            }
            escaped = byte == b'\\' && !escaped;
        }
        out.push_str(&line[..end]);
        out.push('\n');
    }
    out
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn parse_json(json: &Value) -> Message {
    let name = text(&json["name"]);
    let mut message = Message { name: name.clone(), ..Message::default() };
    let mut facts = Facts::new();
    for (attribute, value) in json.as_object().expect("a message is an object") {
        match attribute.as_str() {
            "type" => facts.insert("kind", text(value)),
            "apiKey" => facts.insert("key", text(value)),
            "validVersions" => facts.insert("versions", versions(&text(value))),
            "flexibleVersions" => facts.insert("flexible", versions(&text(value))),
            "latestVersionUnstable" if *value == Value::Bool(true) => facts.insert("unstable", text(value)),
            "listeners" => {
                let listeners = value.as_array().expect("listeners are a list");
                facts.insert("listeners", listeners.iter().map(text).collect::<Vec<_>>().join(","))
            }
            "name" | "fields" | "commonStructs" | "latestVersionUnstable" => None,
            unknown => panic!("{name}: unknown attribute {unknown}"),
        };
    }
    message.insert(&name, facts);
    json_fields(&json["fields"], &name, &mut message);
    for shared in json["commonStructs"].as_array().into_iter().flatten() {
        let place = format!("{name}/struct {}", text(&shared["name"]));
        message.insert(&place, Facts::from([("versions", versions(&text(&shared["versions"])))]));
        json_fields(&shared["fields"], &place, &mut message);
    }
    message
}

fn json_fields(fields: &Value, parent: &str, message: &mut Message) {
    for (position, field) in fields.as_array().into_iter().flatten().enumerate() {
        let place = format!("{parent}/{}", text(&field["name"]));
        let mut facts = Facts::from([("position", position.to_string())]);
        for (attribute, value) in field.as_object().expect("a field is an object") {
            match attribute.as_str() {
                "type" => facts.insert("type", text(value)),
                "versions" => facts.insert("versions", versions(&text(value))),
                "nullableVersions" => facts.insert("nullable", versions(&text(value))),
                "taggedVersions" => facts.insert("tagged", versions(&text(value))),
                "flexibleVersions" => facts.insert("flexible", versions(&text(value))),
                "tag" => facts.insert("tag", text(value)),
                // Kafka's generator treats a JSON null as no default; the default null is a string.
                "default" if value.is_null() => None,
                "default" => facts.insert("default", text(value)),
                "ignorable" if *value == Value::Bool(true) => facts.insert("ignorable", text(value)),
                "mapKey" if *value == Value::Bool(true) => facts.insert("map key", text(value)),
                "name" | "about" | "fields" | "ignorable" | "mapKey" => None,
                "entityType" | "zeroCopy" => None,
                unknown => panic!("{place}: unknown attribute {unknown}"),
            };
        }
        // A field that is always tagged need not list the versions in which it exists.
        if let Some(tagged) = facts.get("tagged").cloned() {
            facts.entry("versions").or_insert(tagged);
        }
        message.insert(&place, facts);
        json_fields(&field["fields"], &place, message);
    }
}

fn by_name(messages: Vec<Message>) -> BTreeMap<String, Message> {
    let mut map = BTreeMap::new();
    for message in messages {
        let name = message.name.clone();
        assert!(map.insert(name.clone(), message).is_none(), "{name} is described twice");
    }
    map
}

/// One line for each difference between two messages, or between one and none.
fn differences(ours: &BTreeMap<String, Message>, kafkas: &BTreeMap<String, Message>) -> String {
    let places = |messages: &BTreeMap<String, Message>| {
        let all = messages.values().flat_map(|message| message.places.clone());
        all.collect::<BTreeMap<String, Facts>>()
    };
    let (ours, kafkas) = (places(ours), places(kafkas));
    let mut out = String::new();
    for (place, facts) in &kafkas {
        match ours.get(place) {
            None => writeln!(out, "{place}: is missing").expect("a String takes all"),
            Some(other) if other != facts => {
                writeln!(out, "{place}:\n  Kafka {facts:?}\n  ours  {other:?}").expect("a String takes all");
            }
            Some(_) => {}
        }
    }
    for place in ours.keys().filter(|place| !kafkas.contains_key(*place)) {
        writeln!(out, "{place}: is not in Kafka").expect("a String takes all");
    }
    out
}

#[test]
fn our_schema_files_agree_with_kafkas_jars() {
    let Some(classpath) = kafka_classpath("the schema files against Kafka's jars") else { return };
    let differences = differences(&by_name(ours()), &by_name(kafkas(&classpath)));
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn no_message_is_described_twice() {
    by_name(ours());
}

#[test]
fn a_difference_in_any_fact_is_found() {
    let kafka = r#"{ // a comment
        "apiKey": 3, "type": "request", "name": "ARequest", "listeners": ["broker", "controller"],
        "validVersions": "1-4", "flexibleVersions": "2+", "latestVersionUnstable": true,
        "fields": [
            { "name": "Id", "type": "int32", "versions": "1+", "default": "-1", "about": "See // there." }, // behind
            { "name": "Topics", "type": "[]Topic", "versions": "2+", "nullableVersions": "3+", "ignorable": true, "fields": [
                { "name": "Name", "type": "string", "versions": "0-3", "mapKey": true, "flexibleVersions": "none" },
                { "name": "Tagged", "type": "Flags", "versions": "4", "tag": 0, "taggedVersions": "4" } ] } ],
        "commonStructs": [ { "name": "Flags", "versions": "4+", "fields": [
            { "name": "On", "type": "bool", "versions": "4+", "default": false } ] } ] }"#;
    let kafka = parse_json(&serde_json::from_str(&without_comments(kafka)).expect("JSON"));
    let kafka = BTreeMap::from([(kafka.name.clone(), kafka)]);
    let ours = "request ARequest key=3 versions=1-4 flexible=2+ listeners=broker,controller unstable\n  \
                  Id int32 1+ default=-1\n  \
                  Topics []Topic 2+ null=3+ ignorable\n    \
                    Name string 0-3 flexible=none key\n    \
                    Tagged Flags 4 tag=0@4\n  \
                  struct Flags 4+\n    \
                    On bool 4+ default=false\n";
    let compare = |text: &str| {
        let mut messages = Vec::new();
        parse_compact(text, "test", &mut messages);
        differences(&by_name(messages), &kafka)
    };
    assert_eq!(compare(ours), "");
    for (from, to) in [
        ("request A", "response A"),
        ("key=3", "key=4"),
        ("versions=1-4", "versions=1-5"),
        ("flexible=2+", "flexible=3+"),
        (",controller", ""),
        (" unstable", ""),
        ("int32", "int64"),
        ("1+ default", "2+ default"),
        ("default=-1", "default=1"),
        ("null=3+", "null=2+"),
        (" ignorable", ""),
        (" flexible=none", ""),
        ("none key", "none"),
        ("tag=0", "tag=1"),
        ("@4", "@3"),
        ("Flags 4+", "Flags 3+"),
        ("=false", "=true"),
        ("Name", "Title"),
        ("    On bool 4+ default=false\n", ""),
        (
            "  Id int32 1+ default=-1\n  Topics []Topic 2+ null=3+ ignorable\n",
            "  Topics []Topic 2+ null=3+ ignorable\n",
        ),
    ] {
        assert_ne!(compare(&ours.replacen(from, to, 1)), "", "{from} → {to} is not found");
    }
}
