//! The model of a message, common to Kafka's JSON files and our compact descriptions.
//!
//! `import` reads Kafka's JSON out of the jars, `text` reads and writes the compact description that is
//! committed under `crates/wire/schema/`, and `codegen` turns the model into Rust. The model has facts only
//! (names, types, versions, tags, defaults), without Kafka's sentences about a field.

pub mod import;
pub mod text;

use crate::fresh;
use anyhow::Result;
use std::fmt;
use std::path::Path;

/// Writes the compact descriptions, or with `check` fails if the committed ones differ from Kafka's jars.
pub fn run(root: &Path, classpath: &str, check: bool) -> Result<()> {
    let mut files = fresh::Files::new();
    for (family, schemas) in import::from_classpath(classpath)? {
        for schema in schemas {
            // A request and its response share a file, named after their API.
            let stem = schema.name.trim_end_matches("Request").trim_end_matches("Response");
            let stem = if family == "request" { stem } else { &schema.name };
            let text = files.entry(Path::new(family).join(format!("{stem}.txt"))).or_default();
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&text::print(&schema));
        }
    }
    fresh::write_or_check(&root.join("crates/wire/schema"), &files, check, "cargo xtask schema")
}

/// An inclusive range of versions; `None` is Kafka's `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions(pub Option<(i16, i16)>);

impl Versions {
    /// An empty range.
    pub const NONE: Versions = Versions(None);

    /// The versions in both ranges.
    pub fn intersect(self, other: Versions) -> Versions {
        match (self.0, other.0) {
            (Some((a, b)), Some((c, d))) if a.max(c) <= b.min(d) => Versions(Some((a.max(c), b.min(d)))),
            _ => Versions::NONE,
        }
    }

    /// True if `version` is in the range.
    pub fn contains(self, version: i16) -> bool {
        self.0.is_some_and(|(low, high)| (low..=high).contains(&version))
    }

    /// Reads `none`, `3`, `3+` or `3-7`.
    pub fn parse(text: &str) -> Result<Versions> {
        let text = text.trim();
        if text == "none" {
            return Ok(Versions::NONE);
        }
        let (low, high) = if let Some(low) = text.strip_suffix('+') {
            (low.parse()?, i16::MAX)
        } else if let Some((low, high)) = text.split_once('-') {
            (low.parse()?, high.parse()?)
        } else {
            (text.parse()?, text.parse()?)
        };
        anyhow::ensure!(low <= high, "versions {text}: the first is above the last");
        Ok(Versions(Some((low, high))))
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => write!(f, "none"),
            Some((low, i16::MAX)) => write!(f, "{low}+"),
            Some((low, high)) if low == high => write!(f, "{low}"),
            Some((low, high)) => write!(f, "{low}-{high}"),
        }
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    String,
    Uuid,
    Bytes,
    Records,
    Array(Box<Type>),
    Struct(String),
}

impl Type {
    /// Reads Kafka's name of a type.
    pub fn parse(text: &str) -> Type {
        if let Some(element) = text.strip_prefix("[]") {
            return Type::Array(Box::new(Type::parse(element)));
        }
        match text {
            "bool" => Type::Bool,
            "int8" => Type::Int8,
            "int16" => Type::Int16,
            "uint16" => Type::Uint16,
            "int32" => Type::Int32,
            "uint32" => Type::Uint32,
            "int64" => Type::Int64,
            "float64" => Type::Float64,
            "string" => Type::String,
            "uuid" => Type::Uuid,
            "bytes" => Type::Bytes,
            "records" => Type::Records,
            name => Type::Struct(name.to_owned()),
        }
    }

    /// The struct that the type or its elements name.
    pub fn struct_name(&self) -> Option<&str> {
        match self {
            Type::Array(element) => element.struct_name(),
            Type::Struct(name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Type::Array(element) => return write!(f, "[]{element}"),
            Type::Struct(name) => name,
            Type::Bool => "bool",
            Type::Int8 => "int8",
            Type::Int16 => "int16",
            Type::Uint16 => "uint16",
            Type::Int32 => "int32",
            Type::Uint32 => "uint32",
            Type::Int64 => "int64",
            Type::Float64 => "float64",
            Type::String => "string",
            Type::Uuid => "uuid",
            Type::Bytes => "bytes",
            Type::Records => "records",
        };
        write!(f, "{name}")
    }
}

/// A field of a message or struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub ty: Type,
    pub versions: Versions,
    pub nullable: Versions,
    /// The tag and the versions in which the field is sent tagged.
    pub tag: Option<(u32, Versions)>,
    pub default: Option<String>,
    pub ignorable: bool,
    pub map_key: bool,
    /// The field's own flexible versions, if different from the message's.
    pub flexible: Option<Versions>,
    /// The fields of the struct that this field defines in place.
    pub fields: Vec<Field>,
}

/// A struct that several fields of a message share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    pub name: String,
    pub versions: Versions,
    pub fields: Vec<Field>,
}

/// A message: a request, a response, a header, or data in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// `request`, `response`, `header`, `data`, `metadata`, `coordinator-key` or `coordinator-value`.
    pub kind: String,
    pub name: String,
    pub key: Option<i16>,
    pub listeners: Vec<String>,
    pub versions: Versions,
    pub flexible: Versions,
    pub unstable: bool,
    pub fields: Vec<Field>,
    pub structs: Vec<Struct>,
}
