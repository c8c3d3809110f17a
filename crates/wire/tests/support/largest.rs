//! The largest requests of any API, made from the schema alone: one array of the request has as many elements
//! as wanted, all others have one. No API needs a line here, so none that is served can be left out of a test
//! that walks over the table.
//!
//! Owns: the bytes of such requests, at any version. [`Values`] makes a request pass the first checks of its
//! API. An unreadable schema is a panic, because it is a fault of the tree.

use std::collections::HashMap;
use std::path::Path;

/// How the elements of the long array are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Each by its own name, which nothing in the cluster has.
    Distinct,
    /// All by one name, which something in the cluster has.
    Repeated,
    /// The first half by names of their own, the second half by the one that exists.
    Mixed,
}

/// All of them.
pub const NAMINGS: [Naming; 3] = [Naming::Distinct, Naming::Repeated, Naming::Mixed];

/// Field values, by the names of the fields.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// A string that exists in the cluster, for fields of this name; `""` applies to all others.
    pub strings: HashMap<&'static str, String>,
    /// A number for fields of this name. Others count the elements, or are 0 outside of arrays. For booleans,
    /// 0 is false; others are true.
    pub numbers: HashMap<&'static str, i64>,
    /// Values for fields of one message that differ from those of all others: message, field, value.
    pub numbers_of: HashMap<(&'static str, &'static str), i64>,
    /// Fields that count the elements of the long array: message, field.
    pub counted: Vec<(&'static str, &'static str)>,
    /// A UUID that exists in the cluster.
    pub uuid: u128,
}

/// A field of a message.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    kind: String,
    from: i16,
    to: i16,
    nullable: bool,
    null_by_default: bool,
    tag: Option<u8>,
    default: Option<i64>,
    fields: Vec<Field>,
}

/// The request of an API.
#[derive(Clone, Debug)]
pub struct Schema {
    name: String,
    pub key: i16,
    flexible_from: i16,
    fields: Vec<Field>,
}

/// The requests that the schema files describe, by their keys.
pub fn schemas() -> HashMap<i16, Schema> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/schema/request");
    let files = std::fs::read_dir(dir).expect("the schema lies in the tree");
    let texts = files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a text"));
    texts.map(|text| Schema::parse(&text)).map(|schema| (schema.key, schema)).collect()
}

fn versions(text: &str) -> (i16, i16) {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("a version, not {text}"));
    match (text.strip_suffix('+'), text.split_once('-')) {
        (Some(from), _) => (number(from), i16::MAX),
        (None, Some((from, to))) => (number(from), number(to)),
        (None, None) => (number(text), number(text)),
    }
}

impl Schema {
    fn parse(text: &str) -> Schema {
        let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("response")).collect();
        let mut head = lines[0].split(' ');
        assert_eq!(head.next(), Some("request"), "{}", lines[0]);
        let name = head.next().expect("a name").to_owned();
        let value = |name: &str| lines[0].split(' ').find_map(|word| word.strip_prefix(name));
        let key = value("key=").and_then(|key| key.parse().ok()).expect("a key");
        let flexible_from = match value("flexible=") {
            None | Some("none") => i16::MAX,
            Some(text) => versions(text).0,
        };
        let mut structs = HashMap::new();
        let (mut fields, _) = parse_fields(&lines[1..], 2, &mut structs);
        resolve(&mut fields, &structs);
        Schema { name, key, flexible_from, fields }
    }

    /// The paths of the arrays that a request of this version has, and of the fields that hold bytes.
    pub fn arrays(&self, version: i16) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        find_arrays(&self.fields, version, &mut Vec::new(), &mut found);
        found
    }

    /// The body of a request in which the array at `path` has `count` elements.
    pub fn body(
        &self,
        version: i16,
        path: &[String],
        count: usize,
        naming: Naming,
        values: &Values,
    ) -> Vec<u8> {
        let writer =
            Writer { schema: self, version, flexible: version >= self.flexible_from, count, naming, values };
        let mut bytes = Vec::new();
        writer.fields(&mut bytes, &self.fields, Some(path), None);
        bytes
    }

    /// A whole frame, with its length, header and body.
    pub fn frame(
        &self,
        version: i16,
        path: &[String],
        count: usize,
        naming: Naming,
        values: &Values,
    ) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&self.key.to_be_bytes());
        bytes.extend_from_slice(&version.to_be_bytes());
        bytes.extend_from_slice(&7i32.to_be_bytes());
        // The client's name has the old form in every header.
        bytes.extend_from_slice(&[0, 1, b'c']);
        if version >= self.flexible_from {
            bytes.push(0);
        }
        bytes.extend_from_slice(&self.body(version, path, count, naming, values));
        let length = i32::try_from(bytes.len() - 4).expect("a frame");
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }
}

/// The fields at one level of indentation, and their number of lines.
fn parse_fields(
    lines: &[&str],
    depth: usize,
    structs: &mut HashMap<String, Vec<Field>>,
) -> (Vec<Field>, usize) {
    let mut fields: Vec<Field> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let indent = line.len() - line.trim_start().len();
        if line.trim().is_empty() || indent < depth {
            if line.trim().is_empty() {
                at += 1;
                continue;
            }
            break;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (inner, taken) = parse_fields(&lines[at + 1..], depth + 2, structs);
        at += 1 + taken;
        if words[0] == "struct" {
            structs.insert(words[1].to_owned(), inner);
            continue;
        }
        let (from, to) = versions(words[2]);
        let option = |name: &str| words[3..].iter().find_map(|word| word.strip_prefix(name));
        let default = option("default=");
        let number = default.and_then(|text| match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        });
        if !inner.is_empty() {
            structs.insert(words[1].trim_start_matches("[]").to_owned(), inner.clone());
        }
        fields.push(Field {
            name: words[0].to_owned(),
            kind: words[1].to_owned(),
            from,
            to,
            nullable: option("null=").is_some(),
            null_by_default: default == Some("null"),
            tag: option("tag=")
                .map(|tag| tag.split_once('@').expect("the versions of a tag").0.parse().expect("a tag")),
            default: number,
            fields: inner,
        });
    }
    (fields, at)
}

/// Gives fields of structs that are described elsewhere their fields.
fn resolve(fields: &mut [Field], structs: &HashMap<String, Vec<Field>>) {
    for field in fields {
        if field.fields.is_empty()
            && let Some(known) = structs.get(field.kind.trim_start_matches("[]"))
        {
            field.fields = known.clone();
        }
        resolve(&mut field.fields, structs);
    }
}

fn find_arrays(fields: &[Field], version: i16, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    for field in fields.iter().filter(|f| (f.from..=f.to).contains(&version)) {
        path.push(field.name.clone());
        if field.kind.starts_with("[]") || matches!(&*field.kind, "bytes" | "records") {
            found.push(path.clone());
        }
        let is_struct = !field.nullable && field.tag.is_none();
        if is_struct || field.kind.starts_with("[]") {
            find_arrays(&field.fields, version, path, found);
        }
        path.pop();
    }
}

fn varint(bytes: &mut Vec<u8>, mut left: usize) {
    while left >= 0x80 {
        bytes.push(u8::try_from(left & 0x7f).expect("seven bits") | 0x80);
        left >>= 7;
    }
    bytes.push(u8::try_from(left).expect("seven bits"));
}

struct Writer<'a> {
    schema: &'a Schema,
    version: i16,
    flexible: bool,
    count: usize,
    naming: Naming,
    values: &'a Values,
}

impl Writer<'_> {
    /// `path` leads to the long array, if it is inside. `element` is the index of the current element of the
    /// long array.
    fn fields(&self, bytes: &mut Vec<u8>, fields: &[Field], path: Option<&[String]>, element: Option<usize>) {
        let of_version = || fields.iter().filter(|f| (f.from..=f.to).contains(&self.version));
        let within = |field: &Field| path.filter(|path| path[0] == field.name).map(|path| &path[1..]);
        for field in of_version().filter(|field| field.tag.is_none()) {
            self.field(bytes, field, within(field), element);
        }
        if !self.flexible {
            return;
        }
        // Of the tagged fields only the long array, or the one around it, is sent.
        let sent = of_version().find_map(|field| Some((field, field.tag?, within(field)?)));
        bytes.push(u8::from(sent.is_some()));
        if let Some((field, tag, within)) = sent {
            let mut value = Vec::new();
            self.field(&mut value, field, Some(within), element);
            bytes.push(tag);
            varint(bytes, value.len());
            bytes.extend_from_slice(&value);
        }
    }

    fn field(&self, bytes: &mut Vec<u8>, field: &Field, within: Option<&[String]>, element: Option<usize>) {
        let is_long = within.is_some_and(<[String]>::is_empty);
        if let Some(kind) = field.kind.strip_prefix("[]") {
            let count = if is_long { self.count } else { 1 };
            self.length(bytes, count, false);
            for index in 0..count {
                let element = if is_long { Some(index) } else { element };
                if field.fields.is_empty() {
                    self.primitive(bytes, kind, field, element);
                } else {
                    self.fields(bytes, &field.fields, within.filter(|path| !path.is_empty()), element);
                }
            }
        } else if matches!(&*field.kind, "bytes" | "records") {
            let length = if is_long { self.count } else { 4 };
            self.length(bytes, length, false);
            bytes.resize(bytes.len() + length, 7);
        } else if !field.fields.is_empty() {
            if field.nullable {
                bytes.push(0xff);
            } else {
                self.fields(bytes, &field.fields, within, element);
            }
        } else {
            self.primitive(bytes, &field.kind, field, element);
        }
    }

    /// A length as strings, bytes and arrays have it.
    fn length(&self, bytes: &mut Vec<u8>, length: usize, short: bool) {
        if self.flexible {
            varint(bytes, length + 1);
        } else if short {
            bytes.extend_from_slice(&i16::try_from(length).expect("a string").to_be_bytes());
        } else {
            bytes.extend_from_slice(&i32::try_from(length).expect("an array").to_be_bytes());
        }
    }

    /// The value that is set for a field.
    fn number(&self, field: &Field) -> Option<i64> {
        let of_message = self.values.numbers_of.get(&(&*self.schema.name, &*field.name));
        of_message.or_else(|| self.values.numbers.get(&*field.name)).copied()
    }

    fn primitive(&self, bytes: &mut Vec<u8>, kind: &str, field: &Field, element: Option<usize>) {
        let own = match (self.naming, element) {
            (Naming::Distinct, element) => element,
            (Naming::Mixed, Some(element)) if element < self.count / 2 => Some(element),
            _ => None,
        };
        match kind {
            "string" => {
                if field.nullable && field.null_by_default {
                    if self.flexible {
                        bytes.push(0);
                    } else {
                        bytes.extend_from_slice(&[0xff; 2]);
                    }
                    return;
                }
                let known = self.values.strings.get(&*field.name);
                let known = known.or_else(|| self.values.strings.get("")).map_or("x", String::as_str);
                let fixed = known.strip_prefix('=');
                let text = match (own, fixed) {
                    (_, Some(fixed)) => fixed.to_owned(),
                    (Some(own), None) => format!("n.{own}"),
                    (None, None) => known.to_owned(),
                };
                self.length(bytes, text.len(), true);
                bytes.extend_from_slice(text.as_bytes());
            }
            "uuid" => {
                let value = own.map_or(self.values.uuid, |own| 0xabcd_0000_0000 + own as u128);
                bytes.extend_from_slice(&value.to_be_bytes());
            }
            "bool" => bytes.push(u8::from(self.number(field) != Some(0))),
            "float64" => bytes.extend_from_slice(&1000.0f64.to_be_bytes()),
            kind => {
                let counts = self.values.counted.contains(&(&*self.schema.name, &*field.name));
                let set = self.number(field).filter(|_| !(counts && own.is_some()));
                let counted = own.map_or(0, |own| i64::try_from(own).expect("a count"));
                let value = set.or(field.default).unwrap_or(counted).to_be_bytes();
                let size = match kind {
                    "int8" => 1,
                    "int16" | "uint16" => 2,
                    "int32" | "uint32" => 4,
                    "int64" => 8,
                    other => panic!("{}: {} is a {other}", self.schema.name, field.name),
                };
                bytes.extend_from_slice(&value[8 - size..]);
            }
        }
    }
}
