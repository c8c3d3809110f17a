//! The compact description of messages, as committed under `crates/wire/schema/`.
//!
//! ```text
//! request FetchRequest key=1 versions=4-18 flexible=12+ listeners=broker,controller
//!   ClusterId string 12+ null=12+ tag=0@12+ default=null ignorable
//!   Topics []FetchTopic 0+
//!     Topic string 0-12 ignorable
//!   struct Shared 0+
//!     Index int32 0+
//! ```
//! A level of indentation is two spaces; lines that begin with `#` are comments. A field's line holds its
//! name, its type, its versions, then its other properties, in this order: `null=` (versions in which it may
//! be null), `tag=NUMBER@VERSIONS`, `default=`, `flexible=` (where the field differs from its message),
//! `ignorable`, `key`.

use super::{Field, Schema, Struct, Type, Versions};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write;

/// Writes the description of one message.
pub fn print(schema: &Schema) -> String {
    let mut out = format!("{} {}", schema.kind, schema.name);
    if let Some(key) = schema.key {
        write!(out, " key={key}").expect("a String takes all");
    }
    write!(out, " versions={} flexible={}", schema.versions, schema.flexible).expect("a String takes all");
    if !schema.listeners.is_empty() {
        write!(out, " listeners={}", schema.listeners.join(",")).expect("a String takes all");
    }
    if schema.unstable {
        out.push_str(" unstable");
    }
    out.push('\n');
    print_fields(&mut out, &schema.fields, 1);
    for shared in &schema.structs {
        writeln!(out, "  struct {} {}", shared.name, shared.versions).expect("a String takes all");
        print_fields(&mut out, &shared.fields, 2);
    }
    out
}

fn print_fields(out: &mut String, fields: &[Field], depth: usize) {
    for field in fields {
        write!(out, "{}{} {} {}", "  ".repeat(depth), field.name, field.ty, field.versions)
            .expect("a String takes all");
        if field.nullable != Versions::NONE {
            write!(out, " null={}", field.nullable).expect("a String takes all");
        }
        if let Some((tag, versions)) = field.tag {
            write!(out, " tag={tag}@{versions}").expect("a String takes all");
        }
        if let Some(default) = &field.default {
            write!(out, " default={default}").expect("a String takes all");
        }
        if let Some(flexible) = field.flexible {
            write!(out, " flexible={flexible}").expect("a String takes all");
        }
        if field.ignorable {
            out.push_str(" ignorable");
        }
        if field.map_key {
            out.push_str(" key");
        }
        out.push('\n');
        print_fields(out, &field.fields, depth + 1);
    }
}

struct Line<'a> {
    number: usize,
    depth: usize,
    words: Vec<&'a str>,
}

/// Parses a file of one or more messages.
pub fn parse(text: &str) -> Result<Vec<Schema>> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let bare = line.trim_start();
        if bare.is_empty() || bare.starts_with('#') {
            continue;
        }
        let indent = line.len() - bare.len();
        ensure!(indent % 2 == 0, "line {}: indentation of {indent} is not a multiple of two", index + 1);
        lines.push(Line { number: index + 1, depth: indent / 2, words: bare.split_whitespace().collect() });
    }
    let mut rest = lines.as_slice();
    let mut schemas = Vec::new();
    while let Some(head) = rest.first() {
        ensure!(head.depth == 0, "line {}: a message starts at the margin", head.number);
        let mut schema = parse_head(head).with_context(|| format!("line {}", head.number))?;
        rest = &rest[1..];
        while let Some(line) = rest.first().filter(|line| line.depth == 1) {
            if line.words[0] == "struct" {
                ensure!(line.words.len() == 3, "line {}: struct NAME VERSIONS", line.number);
                let (name, versions) = (line.words[1].to_owned(), Versions::parse(line.words[2])?);
                let (fields, tail) = parse_fields(&rest[1..], 2)?;
                schema.structs.push(Struct { name, versions, fields });
                rest = tail;
            } else {
                let (field, tail) = parse_field(rest, 1)?;
                schema.fields.push(field);
                rest = tail;
            }
        }
        schemas.push(schema);
    }
    Ok(schemas)
}

fn parse_head(line: &Line<'_>) -> Result<Schema> {
    let [kind, name, flags @ ..] = line.words.as_slice() else {
        bail!("KIND NAME versions=… flexible=…")
    };
    let mut schema = Schema {
        kind: (*kind).to_owned(),
        name: (*name).to_owned(),
        key: None,
        listeners: Vec::new(),
        versions: Versions::NONE,
        flexible: Versions::NONE,
        unstable: false,
        fields: Vec::new(),
        structs: Vec::new(),
    };
    for flag in flags {
        match flag.split_once('=') {
            Some(("key", value)) => schema.key = Some(value.parse()?),
            Some(("versions", value)) => schema.versions = Versions::parse(value)?,
            Some(("flexible", value)) => schema.flexible = Versions::parse(value)?,
            Some(("listeners", value)) => schema.listeners = value.split(',').map(str::to_owned).collect(),
            None if *flag == "unstable" => schema.unstable = true,
            _ => bail!("unknown word {flag}"),
        }
    }
    Ok(schema)
}

fn parse_fields<'a, 'b>(mut rest: &'a [Line<'b>], depth: usize) -> Result<(Vec<Field>, &'a [Line<'b>])> {
    let mut fields = Vec::new();
    while rest.first().is_some_and(|line| line.depth == depth) {
        let (field, tail) = parse_field(rest, depth)?;
        fields.push(field);
        rest = tail;
    }
    if let Some(line) = rest.first() {
        ensure!(line.depth < depth, "line {}: indented too far", line.number);
    }
    Ok((fields, rest))
}

fn parse_field<'a, 'b>(rest: &'a [Line<'b>], depth: usize) -> Result<(Field, &'a [Line<'b>])> {
    let line = &rest[0];
    let mut field = parse_field_line(&line.words).with_context(|| format!("line {}", line.number))?;
    let (fields, tail) = parse_fields(&rest[1..], depth + 1)?;
    field.fields = fields;
    Ok((field, tail))
}

fn parse_field_line(words: &[&str]) -> Result<Field> {
    let [name, ty, versions, flags @ ..] = words else { bail!("NAME TYPE VERSIONS …") };
    let mut field = Field {
        name: (*name).to_owned(),
        ty: Type::parse(ty),
        versions: Versions::parse(versions)?,
        nullable: Versions::NONE,
        tag: None,
        default: None,
        ignorable: false,
        map_key: false,
        flexible: None,
        fields: Vec::new(),
    };
    for flag in flags {
        match flag.split_once('=') {
            Some(("null", value)) => field.nullable = Versions::parse(value)?,
            Some(("tag", value)) => {
                let (tag, versions) = value.split_once('@').context("tag=NUMBER@VERSIONS")?;
                field.tag = Some((tag.parse()?, Versions::parse(versions)?));
            }
            Some(("default", value)) => field.default = Some(value.to_owned()),
            Some(("flexible", value)) => field.flexible = Some(Versions::parse(value)?),
            None if *flag == "ignorable" => field.ignorable = true,
            None if *flag == "key" => field.map_key = true,
            _ => bail!("unknown word {flag}"),
        }
    }
    Ok(field)
}
