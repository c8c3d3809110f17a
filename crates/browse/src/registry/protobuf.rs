//! Protobuf, decoded to JSON by a schema: a `.proto` file with its imports. Each file is either text or the
//! base64 of a descriptor, as registered by Confluent's Python serializer and returned by Apicurio.
//!
//! After the schema id, a value has the indexes of its possibly nested message in the file, as written by
//! Confluent's serializers. Fields have the names of the file, as in Confluent's tools, so that rules and
//! expressions use the names of the schema. Fields without a value have their default. Numbers of 64 bits are
//! numbers.
//!
//! Untrusted bytes and schemas are decoded in the process of a broker. The compiler recurses as deep as the
//! nesting of a schema, so its stack is large enough for the maximum schema size. The size of a decoded
//! message is limited, because its parts take far more memory than their bytes; the output is limited too,
//! because defaults take many characters and no bytes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::prost::Message;
use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, SerializeOptions};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

/// Maximum bytes of a schema and its imports.
const SCHEMA_BYTES_MAX: usize = 2 << 20;
/// Maximum opening brackets in a schema and its imports.
const BRACKETS_MAX: usize = 20_000;
/// The stack of the compiler: over 12 KiB per bracket. Unused stack takes no memory.
const STACK_BYTES: usize = 256 << 20;
/// Maximum nesting of a message. The compiler rejects deeper schemas.
const DEPTH_MAX: usize = 32;
/// Maximum bytes of a message to decode.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum output in bytes.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// The file name of the schema. No import can have this name.
const FILE: &str = "thalweg/schema of the message.proto";

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    pool: DescriptorPool,
    /// True if the schema was registered as a descriptor.
    is_descriptor: bool,
}

impl Schema {
    /// Compiles a schema with its imports, by name. Google's well-known types are built in.
    pub fn parse(text: String, imports: BTreeMap<String, String>) -> Result<Schema, String> {
        let texts = || imports.values().chain([&text]);
        let bytes: usize = texts().map(String::len).sum();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(format!("it has more than {SCHEMA_BYTES_MAX} bytes"));
        }
        let is_bracket = |byte: &u8| matches!(byte, b'{' | b'[' | b'(' | b'<');
        if texts().map(|text| text.bytes().filter(|byte| is_bracket(byte)).count()).sum::<usize>()
            > BRACKETS_MAX
        {
            return Err(format!("it has more than {BRACKETS_MAX} brackets"));
        }
        let mut files = Files(imports);
        files.0.insert(FILE.to_owned(), text);
        let compiling = std::thread::Builder::new()
            .name("browse-protobuf".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || compile(files))
            .map_err(|error| format!("no thread could be started: {error}"))?;
        compiling.join().map_err(|_| "it cannot be compiled".to_owned())?
    }

    /// Decodes a value to JSON.
    pub fn decode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mut rest = bytes;
        let message = self.message(&mut rest)?;
        if rest.len() > BODY_BYTES_MAX {
            return Err(format!("messages of more than {BODY_BYTES_MAX} bytes are not decoded"));
        }
        let decoded = DynamicMessage::decode(message, rest)
            .map_err(|error| format!("it does not fit its schema: {error}"))?;
        let options = SerializeOptions::new()
            .stringify_64_bit_integers(false)
            .use_proto_field_name(true)
            .skip_default_fields(false);
        let mut json = serde_json::Serializer::new(BoundedWriter(out));
        decoded
            .serialize_with_options(&mut json, &options)
            .map_err(|error| format!("it has no JSON: {error}"))
    }

    /// The message of a value, by the indexes at its beginning.
    fn message(&self, rest: &mut &[u8]) -> Result<MessageDescriptor, String> {
        let wrong = || "the indexes of its message are incomplete".to_owned();
        let mut index = || usize::try_from(zigzag(rest)?).ok();
        let count = index().ok_or_else(wrong)?;
        if count > DEPTH_MAX {
            return Err(format!("it names a message that is nested more than {DEPTH_MAX} deep"));
        }
        // A count of zero means the first message.
        let first = if count == 0 { 0 } else { index().ok_or_else(wrong)? };
        let file = self.pool.get_file_by_name(FILE).ok_or("its schema is empty")?;
        let missing = |index| format!("its schema has no message {index}");
        let mut message = file.messages().nth(first).ok_or_else(|| missing(first))?;
        for _ in 1..count {
            let at = index().ok_or_else(wrong)?;
            // Map entry messages do not appear in the text of a file, but clients that register descriptors
            // count them.
            let counts = |nested: &MessageDescriptor| self.is_descriptor || !nested.is_map_entry();
            let nested = message.child_messages().filter(counts).nth(at);
            message = nested.ok_or_else(|| missing(at))?;
        }
        Ok(message)
    }
}

/// Reads a zigzag varint, as in Protobuf's sint32 and sint64.
fn zigzag(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

fn compile(files: Files) -> Result<Schema, String> {
    let is_descriptor = files.0.get(FILE).is_some_and(|text| described(FILE, text).is_some());
    let mut resolver = ChainFileResolver::new();
    resolver.add(files);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file(FILE).map_err(|error| error.to_string())?;
    let pool = compiler.descriptor_pool();
    for message in pool.all_messages().filter(MessageDescriptor::is_map_entry) {
        if !is_map_entry(&message) {
            return Err(format!("{} is no entry of a map", message.full_name()));
        }
    }
    Ok(Schema { pool, is_descriptor })
}

/// True if a message declared as a map entry has the required fields, without which decoding fails. Only
/// descriptors and options of other compilers can lack them.
fn is_map_entry(message: &MessageDescriptor) -> bool {
    let is_key =
        |kind| !matches!(kind, Kind::Double | Kind::Float | Kind::Bytes | Kind::Message(_) | Kind::Enum(_));
    let single = |number| message.get_field(number).filter(|field| !field.is_list());
    single(1).is_some_and(|key| is_key(key.kind())) && single(2).is_some()
}

/// Decodes a file from its base64 descriptor, with the name of the import. Text of a `.proto` file is not
/// base64.
fn described(name: &str, text: &str) -> Option<FileDescriptorProto> {
    let bytes = STANDARD.decode(text.trim()).ok().filter(|bytes| !bytes.is_empty())?;
    let mut file = FileDescriptorProto::decode(&*bytes).ok()?;
    file.name = Some(name.to_owned());
    Some(file)
}

/// The texts of files, by name.
struct Files(BTreeMap<String, String>);

impl FileResolver for Files {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let text = self.0.get(name).ok_or_else(|| protox::Error::file_not_found(name))?;
        match described(name, text) {
            Some(file) => Ok(File::from_file_descriptor_proto(file)),
            None => File::from_source(name, text),
        }
    }
}

/// A writer with an output limit.
struct BoundedWriter<'a>(&'a mut Vec<u8>);

impl Write for BoundedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_BYTES_MAX {
            return Err(io::Error::other(format!("it would have more than {OUTPUT_BYTES_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const ORDER: &str = r#"
        syntax = "proto3";
        package shop;
        import "money.proto";
        import "google/protobuf/timestamp.proto";
        message Other { string a = 1; }
        message Order {
          message Line { string item_name = 1; Line next = 2; }
          int64 id = 1;
          money.Amount total = 2;
          repeated Line lines = 3;
          map<string, int32> tags = 4;
          bytes raw = 5;
          oneof kind { string card_number = 6; bool cash = 7; }
          google.protobuf.Timestamp at = 8;
          State state = 9;
          optional string note = 10;
        }
        enum State { OPEN = 0; PAID = 1; }
    "#;
    const MONEY: &str =
        "syntax = \"proto3\"; package money; message Amount { sint32 cents = 1; double rate = 2; }";

    fn schema(text: &str) -> Result<Schema, String> {
        Schema::parse(text.to_owned(), BTreeMap::from([("money.proto".to_owned(), MONEY.to_owned())]))
    }

    fn decoded(schema: &Schema, bytes: &[u8]) -> Result<String, String> {
        let mut out = Vec::new();
        schema.decode(bytes, &mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn a_message_is_decoded_by_its_indexes_and_imports() {
        let schema = schema(ORDER).expect("a schema");
        // Message 1 of the file; then id 7, total { cents -5 }, a line, a tag, bytes, the card, a time.
        let bytes = [
            &[2, 2, 8, 7, 18, 2, 8, 9][..],
            &[26, 3, 10, 1, b'x', 34, 5, 10, 1, b'k', 16, 3],
            &[42, 2, 1, 255, 50, 4, b'4', b'7', b'1', b'1', 66, 2, 8, 60, 72, 1],
        ]
        .concat();
        let expected = r#"{"id":7,"total":{"cents":-5,"rate":0.0},"lines":[{"item_name":"x"}],"tags":{"k":3},"raw":"Af8=","card_number":"4711","at":"1970-01-01T00:01:00Z","state":"PAID"}"#;
        let json: serde_json::Value =
            serde_json::from_str(&decoded(&schema, &bytes).expect("a message")).expect("JSON");
        assert_eq!(json, serde_json::from_str::<serde_json::Value>(expected).expect("JSON"));
        // A nested message, and the short form for the first message.
        assert_eq!(decoded(&schema, &[4, 2, 0, 10, 1, b'y']).as_deref(), Ok(r#"{"item_name":"y"}"#));
        assert_eq!(decoded(&schema, &[0, 10, 1, b'z']).as_deref(), Ok(r#"{"a":"z"}"#));
        for (wrong, expected) in [
            (&[2, 4][..], "no message 2"),
            (&[4, 2], "indexes"),
            (&[4, 2, 2], "no message 1"),
            (&[], "indexes"),
            (&[1], "indexes"),
            (&[0, 10, 200], "does not fit"),
            (&[254, 255, 255, 255, 15], "deep"),
        ] {
            let error = decoded(&schema, wrong).expect_err("it is wrong");
            assert!(error.contains(expected), "{wrong:?}: {error}");
        }
    }

    /// The base64 of a file descriptor.
    fn described(schema: &Schema, file: &str) -> String {
        let file = schema.pool.get_file_by_name(file).expect("a file");
        STANDARD.encode(file.file_descriptor_proto().encode_to_vec())
    }

    #[test]
    fn descriptors_are_schemas_too() {
        let text = schema(ORDER).expect("a schema");
        let imports = BTreeMap::from([("money.proto".to_owned(), described(&text, "money.proto"))]);
        let schema = Schema::parse(described(&text, FILE), imports).expect("a schema");
        let order = [2, 2, 8, 7, 18, 2, 8, 9, 34, 5, 10, 1, b'k', 16, 3];
        let expected = decoded(&text, &order).expect("JSON");
        assert!(expected.contains(r#""cents":-5"#) && expected.contains(r#""k":3"#), "{expected}");
        assert_eq!(decoded(&schema, &order), Ok(expected));
        // The entries of `tags` count as a message before or after `Line`.
        let nested = [[4, 2, 0, 10, 1, b'y'], [4, 2, 2, 10, 1, b'y']];
        let mut nested = nested.map(|bytes| decoded(&schema, &bytes).expect("a nested message"));
        nested.sort();
        assert_eq!(nested, [r#"{"item_name":"y"}"#, r#"{"key":"y","value":0}"#]);
    }

    #[test]
    fn random_descriptors_are_an_error_or_a_schema() {
        let text = schema(ORDER).expect("a schema");
        let descriptor = STANDARD.decode(described(&text, FILE)).expect("base64");
        let mut random = StdRng::seed_from_u64(7);
        let mut right = 0;
        for case in 0..2_000 {
            let mut descriptor = descriptor.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..descriptor.len());
                descriptor[at] = random.random_range(0..20);
            }
            let imports = BTreeMap::from([("money.proto".to_owned(), MONEY.to_owned())]);
            let Ok(schema) = Schema::parse(STANDARD.encode(descriptor), imports) else { continue };
            right += 1;
            for body in
                [&[2, 2, 34, 5, 10, 1, b'k', 16, 3][..], &[2, 2, 8, 7, 18, 2, 8, 9], &[4, 2, 0, 10, 1, 1]]
            {
                if let Ok(json) = decoded(&schema, body) {
                    assert!(crate::json::valid(json.as_bytes()).is_some(), "case {case}: {json}");
                }
            }
        }
        assert!(right > 100, "{right} were schemas");
    }

    #[test]
    fn entries_of_maps_have_a_key_and_a_value() {
        let entry = |fields: &str| {
            let entry = format!("message E {{ option map_entry = true; {fields} }}");
            let text = format!("syntax = \"proto3\"; message A {{ {entry} repeated E map = 1; }}");
            Schema::parse(text, BTreeMap::new())
        };
        for wrong in [
            "",
            "string key = 1;",
            "double key = 1; int32 value = 2;",
            "repeated string key = 1; int32 value = 2;",
        ] {
            assert!(entry(wrong).expect_err(wrong).contains("no entry of a map"), "{wrong}");
        }
    }

    #[test]
    fn a_schema_with_a_fault_is_named() {
        assert!(schema("syntax = \"proto3\"; message A { B b = 1; }").expect_err("unknown").contains('B'));
        assert!(
            schema("import \"absent.proto\"; message A {}").expect_err("missing").contains("absent.proto")
        );
        assert!(schema("messag A {}").is_err());
    }

    #[test]
    fn hostile_schemas_and_messages_cost_no_more_than_the_limits() {
        let nested = |depth: usize| {
            format!("syntax = \"proto3\"; {} {}", "message A {".repeat(depth), "}".repeat(depth))
        };
        schema(&nested(10)).expect("it is not too deep");
        assert!(schema(&nested(BRACKETS_MAX - 100)).expect_err("deep").contains("recursion limit"));
        assert!(schema(&nested(BRACKETS_MAX + 1)).expect_err("large").contains("brackets"));
        let deep =
            format!("message A {{ optional int32 a = 1 [(x) = {}]; }}", "{a ".repeat(BRACKETS_MAX - 100));
        assert!(schema(&deep).is_err());
        let fields: String =
            (2..2000).map(|number| format!("int64 a_field_with_a_long_name_{number} = {number};")).collect();
        let wide = schema(&format!("syntax = \"proto3\"; message A {{ repeated A more = 1; {fields} }}"))
            .expect("a schema");
        let many = [&[0][..], &[10, 0].repeat(100_000)].concat();
        assert!(decoded(&wide, &many).expect_err("large").contains("more than"));
        let deep = schema("syntax = \"proto3\"; message A { A next = 1; }").expect("a schema");
        let mut body = Vec::new();
        for _ in 0..200 {
            let mut outer = vec![10];
            let mut length = body.len();
            while length >= 0x80 {
                outer.push((length & 0x7f) as u8 | 0x80);
                length >>= 7;
            }
            outer.push(length as u8);
            body = [outer, body].concat();
        }
        assert!(decoded(&deep, &[&[0][..], &body].concat()).is_err());
    }

    #[test]
    fn random_bytes_are_an_error_or_valid_json() {
        let schema = schema(ORDER).expect("a schema");
        let mut random = StdRng::seed_from_u64(7);
        let (mut right, tags) = (0, [8, 18, 26, 34, 42, 50, 56, 66, 72, 82]);
        for case in 0..20_000 {
            let mut bytes = vec![2, 2];
            for _ in 0..random.random_range(0..12) {
                bytes.push(tags[random.random_range(0..tags.len())]);
                let length = random.random_range(0..4u8);
                bytes.push(length);
                bytes.extend((0..length).map(|_| random.random_range(0..100u8)));
            }
            if let Ok(json) = decoded(&schema, &bytes) {
                right += 1;
                assert!(crate::json::valid(json.as_bytes()).is_some(), "case {case}: {json}");
            }
        }
        assert!(right > 1000, "{right} were decoded");
    }
}
