//! Avro's binary encoding, decoded to JSON by a schema.
//!
//! A custom decoder, because untrusted bytes are decoded in the process of a broker: with a recursive schema
//! and hostile data, libraries overflow the stack by recursion, or allocate by a count from the data. This
//! decoder limits depth and output.
//!
//! Union members are written without their type name. Bytes and fixed are text with one character per byte,
//! as in Avro's JSON encoding. Decimals up to 16 bytes are numbers.

use std::collections::BTreeMap;

use serde_json::Value;

/// Maximum nesting of schemas and data.
const DEPTH_MAX: usize = 64;
/// Maximum number of types in a schema.
const NODES_MAX: usize = 20_000;
/// Maximum output in bytes.
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// A schema: types that refer to each other by index, and the root type of the data.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    root: usize,
}

#[derive(Debug)]
enum Node {
    /// A named type whose definition is still being parsed.
    Open,
    Null,
    Boolean,
    Int,
    Float,
    Double,
    /// Bytes, with the scale if they are a decimal.
    Bytes(Option<u32>),
    String,
    Fixed(usize, Option<u32>),
    Enum(Vec<String>),
    Array(usize),
    Map(usize),
    Union(Vec<usize>),
    /// Field names as JSON, with their types.
    Record(Vec<(String, usize)>),
}

impl Schema {
    /// Parses schemas. Each schema may refer to names of earlier ones. The last schema is that of the data.
    pub fn parse(texts: &[String]) -> Result<Schema, String> {
        let mut reading = SchemaReader { nodes: Vec::new(), names: BTreeMap::new() };
        let mut root = None;
        for text in texts {
            // A schema that is just a primitive type name may lack quotes.
            let json = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.trim().to_owned()));
            root = Some(reading.node(&json, "", 0)?);
        }
        let root = root.ok_or("there is no schema")?;
        Ok(Schema { nodes: reading.nodes, root })
    }

    /// Decodes a value to JSON.
    pub fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mut decoding = ValueDecoder { nodes: &self.nodes, rest: bytes, out };
        decoding.value(self.root, 0)?;
        match decoding.rest.len() {
            0 => Ok(()),
            rest => Err(format!("{rest} bytes follow the value: it does not fit its schema")),
        }
    }
}

struct SchemaReader {
    nodes: Vec<Node>,
    names: BTreeMap<String, usize>,
}

impl SchemaReader {
    fn add(&mut self, node: Node) -> Result<usize, String> {
        if self.nodes.len() == NODES_MAX {
            return Err(format!("it has more than {NODES_MAX} types"));
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    fn node(&mut self, json: &Value, namespace: &str, depth: usize) -> Result<usize, String> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested more than {DEPTH_MAX} deep"));
        }
        match json {
            Value::String(name) => self.by_name(name, namespace),
            Value::Array(members) => {
                let members = members.iter().map(|member| self.node(member, namespace, depth + 1));
                let members = members.collect::<Result<Vec<_>, _>>()?;
                self.add(Node::Union(members))
            }
            Value::Object(_) => self.declared(json, namespace, depth),
            _ => Err(format!("{json} is no type")),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str) -> Result<usize, String> {
        let primitive = match name {
            "null" => Node::Null,
            "boolean" => Node::Boolean,
            "int" | "long" => Node::Int,
            "float" => Node::Float,
            "double" => Node::Double,
            "bytes" => Node::Bytes(None),
            "string" => Node::String,
            _ => {
                let known = self.names.get(&full_name(name, namespace)).or_else(|| self.names.get(name));
                return known.copied().ok_or_else(|| format!("there is no type {name}"));
            }
        };
        self.add(primitive)
    }

    fn declared(&mut self, json: &Value, namespace: &str, depth: usize) -> Result<usize, String> {
        let scale = (json["logicalType"] == "decimal")
            .then(|| json["scale"].as_u64().unwrap_or(0).try_into().unwrap_or(u32::MAX));
        let kind = match &json["type"] {
            Value::String(kind) => kind.as_str(),
            nested => return self.node(nested, namespace, depth + 1),
        };
        match kind {
            "array" => {
                let items = self.node(&json["items"], namespace, depth + 1)?;
                self.add(Node::Array(items))
            }
            "map" => {
                let values = self.node(&json["values"], namespace, depth + 1)?;
                self.add(Node::Map(values))
            }
            "bytes" => self.add(Node::Bytes(scale)),
            "record" | "error" | "enum" | "fixed" => {
                let name = json["name"].as_str().ok_or_else(|| format!("a {kind} has no name"))?;
                let name = full_name(name, json["namespace"].as_str().unwrap_or(namespace));
                let namespace = name.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
                // A named type may refer to itself.
                let index = self.add(Node::Open)?;
                self.names.insert(name, index);
                self.nodes[index] = match kind {
                    "enum" => {
                        let symbols = json["symbols"].as_array().into_iter().flatten();
                        Node::Enum(
                            symbols
                                .map(|symbol| Value::from(symbol.as_str().unwrap_or_default()).to_string())
                                .collect(),
                        )
                    }
                    "fixed" => {
                        let size = json["size"].as_u64().and_then(|size| usize::try_from(size).ok());
                        Node::Fixed(size.ok_or("a fixed has no size")?, scale)
                    }
                    _ => {
                        let mut fields = Vec::new();
                        for field in json["fields"].as_array().into_iter().flatten() {
                            let name = field["name"].as_str().ok_or("a field has no name")?;
                            let node = self.node(&field["type"], &namespace, depth + 1)?;
                            fields.push((Value::from(name).to_string(), node));
                        }
                        Node::Record(fields)
                    }
                };
                Ok(index)
            }
            name => self.by_name(name, namespace),
        }
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

struct ValueDecoder<'a> {
    nodes: &'a [Node],
    rest: &'a [u8],
    out: &'a mut Vec<u8>,
}

impl<'a> ValueDecoder<'a> {
    fn value(&mut self, node: usize, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("the value is nested more than {DEPTH_MAX} deep"));
        }
        if self.out.len() > OUTPUT_BYTES_MAX {
            return Err(format!("the value has more than {OUTPUT_BYTES_MAX} bytes as JSON"));
        }
        match &self.nodes[node] {
            Node::Union(members) => {
                let member = *self.chosen(members, "a union has no member")?;
                self.value(member, depth + 1)?;
            }
            Node::Record(fields) => {
                self.put("{");
                for (at, (name, node)) in fields.iter().enumerate() {
                    if at > 0 {
                        self.put(",");
                    }
                    self.put(name);
                    self.put(":");
                    self.value(*node, depth + 1)?;
                }
                self.put("}");
            }
            Node::Array(items) => {
                self.put("[");
                self.blocks(|this| this.value(*items, depth + 1))?;
                self.put("]");
            }
            Node::Map(values) => {
                self.put("{");
                self.blocks(|this| {
                    let name =
                        std::str::from_utf8(this.counted()?).map_err(|_| "a name is not UTF-8".to_owned())?;
                    this.text(name);
                    this.put(":");
                    this.value(*values, depth + 1)
                })?;
                self.put("}");
            }
            scalar => self.scalar(scalar)?,
        }
        Ok(())
    }

    /// Decodes a value without nested values.
    fn scalar(&mut self, node: &Node) -> Result<(), String> {
        match node {
            Node::Open => return Err("its schema is incomplete".to_owned()),
            Node::Null => self.put("null"),
            Node::Boolean => match self.take(1)? {
                [0] => self.put("false"),
                _ => self.put("true"),
            },
            Node::Int => {
                let value = self.long()?;
                self.put(&value.to_string());
            }
            Node::Float => {
                let value = f32::from_le_bytes(*self.take(4)?.first_chunk().expect("four were taken"));
                self.number(value.is_finite(), &value.to_string());
            }
            Node::Double => {
                let value = f64::from_le_bytes(*self.take(8)?.first_chunk().expect("eight were taken"));
                self.number(value.is_finite(), &value.to_string());
            }
            Node::Bytes(scale) => {
                let bytes = self.counted()?;
                self.bytes(bytes, *scale);
            }
            Node::Fixed(size, scale) => {
                let bytes = self.take(*size)?;
                self.bytes(bytes, *scale);
            }
            Node::String => {
                let bytes = self.counted()?;
                let text = std::str::from_utf8(bytes).map_err(|_| "a string is not UTF-8".to_owned())?;
                self.text(text);
            }
            Node::Enum(symbols) => {
                let symbol = self.chosen(symbols, "an enum has no symbol")?;
                self.put(symbol);
            }
            Node::Union(_) | Node::Record(_) | Node::Array(_) | Node::Map(_) => {
                unreachable!("they are no scalars")
            }
        }
        Ok(())
    }

    /// The element of a list whose index follows in the data.
    fn chosen<'t, T>(&mut self, list: &'t [T], otherwise: &str) -> Result<&'t T, String> {
        let index = self.long()?;
        let chosen = usize::try_from(index).ok().and_then(|index| list.get(index));
        chosen.ok_or_else(|| format!("{otherwise} {index}"))
    }

    /// Blocks of items, each with a count in front, up to an empty block. A negative count is followed by the
    /// byte size of the block.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        let mut is_first = true;
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                self.long()?;
                count = count.checked_neg().ok_or("a count is out of range")?;
            }
            for _ in 0..count {
                if !is_first {
                    self.put(",");
                }
                is_first = false;
                item(self)?;
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("the value ends early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn counted(&mut self) -> Result<&'a [u8], String> {
        let count = self.long()?;
        self.take(usize::try_from(count).map_err(|_| "a length is negative".to_owned())?)
    }

    /// A zigzag varint.
    fn long(&mut self) -> Result<i64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err("an integer does not end".to_owned())
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// JSON has no NaN or infinity, which become texts.
    fn number(&mut self, is_finite: bool, text: &str) {
        if is_finite { self.put(text) } else { self.text(text) }
    }

    fn text(&mut self, text: &str) {
        // Writing to a `Vec` cannot fail.
        let _ = serde_json::to_writer(&mut *self.out, text);
    }

    fn bytes(&mut self, bytes: &[u8], scale: Option<u32>) {
        match scale {
            Some(scale) if (1..=16).contains(&bytes.len()) && scale <= 38 => {
                let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
                let unscaled = bytes.iter().fold(sign, |value: i128, byte| value << 8 | i128::from(*byte));
                self.put(&decimal(unscaled, scale as usize));
            }
            _ => {
                let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
                self.text(&text);
            }
        }
    }
}

fn decimal(unscaled: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const ORDER: &str = r#"{"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "price", "type": "double"}, {"name": "state", "type": "State"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "next", "type": ["null", "shop.Order"]}]}"#;

    fn schema(text: &str) -> Schema {
        Schema::parse(&[text.to_owned()]).expect("a schema")
    }

    fn decoded(schema: &Schema, bytes: &[u8]) -> Result<String, String> {
        let mut out = Vec::new();
        schema.decode(bytes, &mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn a_value_is_decoded_by_its_schema() {
        let mut bytes = vec![0x8d, 0x01, 2, 4, b'h', b'i', 4, 0xfb, 0x2e, 2];
        // One line in a block with a size, then the end; a tag; the hash; no next.
        bytes.extend([1, 18]);
        bytes.extend(1.5f64.to_le_bytes());
        bytes.extend([0, 0, 2, 2, b't', 13, 0, 0xff, b'"', 0]);
        let expected = concat!(
            r#"{"id":-71,"note":"hi","amount":-12.34,"state":"PAID","lines":[{"price":1.5,"state":"OPEN"}],"#,
            "\"tags\":{\"t\":-7},\"hash\":\"\u{ff}\\\"\",\"next\":null}"
        );
        assert_eq!(decoded(&schema(ORDER), &bytes).as_deref(), Ok(expected));
        bytes.push(0);
        assert!(decoded(&schema(ORDER), &bytes).expect_err("too long").contains("1 bytes follow"));
    }

    #[test]
    fn numbers_and_decimals_are_written_as_json() {
        assert_eq!(decimal(5, 2), "0.05");
        assert_eq!(decimal(-1234, 3), "-1.234");
        assert_eq!(decimal(12, 0), "12");
        assert_eq!(decoded(&schema("\"float\""), &f32::NAN.to_le_bytes()).as_deref(), Ok("\"NaN\""));
        assert_eq!(
            decoded(&schema("long"), &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).as_deref(),
            Ok("9223372036854775807")
        );
    }

    #[test]
    fn schemas_refer_to_earlier_ones() {
        let texts = [r#"{"type":"enum","name":"a.E","symbols":["X"]}"#, r#"{"type":"array","items":"a.E"}"#];
        let schema = Schema::parse(&texts.map(str::to_owned)).expect("schemas");
        assert_eq!(decoded(&schema, &[2, 0, 0]).as_deref(), Ok("[\"X\"]"));
        assert!(Schema::parse(&[r#"["b.E"]"#.to_owned()]).expect_err("unknown").contains("b.E"));
    }

    #[test]
    fn hostile_values_cost_no_more_than_the_limits() {
        let list = schema(r#"{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}"#);
        assert!(decoded(&list, &[2; 1 << 20]).expect_err("deep").contains("deep"));
        let nulls = schema(r#"{"type":"array","items":"null"}"#);
        let endless = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert!(decoded(&nulls, &endless).expect_err("large").contains("bytes as JSON"));
        let fixed = schema(r#"{"type":"fixed","name":"F","size":18446744073709551615}"#);
        assert!(decoded(&fixed, &[0; 9]).is_err());
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        assert!(Schema::parse(&[deep]).is_err());
    }

    #[test]
    fn random_bytes_are_an_error_or_valid_json() {
        let schema = schema(ORDER);
        let mut random = StdRng::seed_from_u64(7);
        for case in 0..20_000 {
            let bytes: Vec<u8> = (0..random.random_range(0..60))
                .map(|_| [0, 2, 4, random.random()][random.random_range(0..4)])
                .collect();
            if let Ok(json) = decoded(&schema, &bytes) {
                assert!(crate::json::valid(json.as_bytes()).is_some(), "case {case}: {json}");
            }
        }
    }
}
