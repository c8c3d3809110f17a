//! A message in Rust: its structs, their defaults, and their decoding and encoding at every version.

use super::{name, response};
use crate::schema::{Field, Schema, Struct, Type, Versions};
use anyhow::{Context, Result, bail};
use std::fmt::Write;

/// Writes into the generated text; writing to a `String` cannot fail.
macro_rules! out {
    ($out:expr, $($arg:tt)*) => { writeln!($out, $($arg)*).expect("a String takes all") };
}

/// The context of a message for generating its structs.
struct Message<'a> {
    schema: &'a Schema,
    structs: Vec<Struct>,
}

/// The Rust text of a message.
pub fn generate(schema: &Schema) -> Result<String> {
    let mut structs = Vec::new();
    collect_structs(&schema.fields, &mut structs);
    structs.extend(schema.structs.iter().cloned());
    for shared in &schema.structs {
        collect_structs(&shared.fields, &mut structs);
    }
    let context = Message { schema, structs };
    let mut out = String::new();
    out!(
        out,
        "use crate::{{DecodeError, Decoder, EncodeError, Encoder, Message, Records, Response, TaggedFields, Uuid}};"
    );
    out!(out, "use bytes::Bytes;\n");
    let (low, high) = schema.versions.0.context("no versions")?;
    let key = schema.key.map(|k| format!(", API key {k}")).unwrap_or_default();
    out!(
        out,
        "/// Kafka's `{}`: {}{key}, versions {}, flexible {}.",
        schema.name,
        schema.kind,
        schema.versions,
        schema.flexible
    );
    write_struct(&mut out, &context, &schema.name, &schema.fields)?;
    out!(out, "impl Message for {} {{", schema.name);
    out!(out, "const NAME: &'static str = {:?};", schema.name);
    out!(out, "const MIN_VERSION: i16 = {low};\nconst MAX_VERSION: i16 = {high};");
    out!(
        out,
        "{}",
        function("fn is_flexible(version: i16) -> bool", &condition(schema.flexible, schema.versions))
    );
    out!(
        out,
        "fn decode(d: &mut Decoder, version: i16) -> Result<Self, DecodeError> {{ Self::read(d, version) }}"
    );
    out!(
        out,
        "fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {{ self.write(e, version) }}"
    );
    out!(out, "}}");
    let is_response = schema.kind == "response" && schema.key.is_some();
    if is_response {
        out!(out, "\n{}", response::implementation(schema, &context.structs));
    }
    for nested in &context.structs {
        out!(out, "\n/// `{}` of [`{}`].", nested.name, schema.name);
        write_struct(&mut out, &context, &nested.name, &nested.fields)?;
        if is_response {
            out += &response::of_struct(schema, &context.structs, nested);
        }
    }
    // Do not import unused names.
    for unused in ["TaggedFields", "Response", "Records", "Uuid"] {
        if count_word(&out, unused) == 1 {
            out = out.replacen(&format!(", {unused}"), "", 1);
        }
    }
    if count_word(&out, "Bytes") == 1 {
        out = out.replacen("use bytes::Bytes;\n", "", 1);
    }
    Ok(out)
}

fn count_word(text: &str, word: &str) -> usize {
    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '`').filter(|w| *w == word).count()
}

/// True if a text names a variable. A field of the same name does not count.
fn names(text: &str, variable: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(variable).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + variable.len()..]);
        !before.ends_with(|c| is_word(c) || c == '.') && !after.starts_with(is_word)
    })
}

fn collect_structs(fields: &[Field], structs: &mut Vec<Struct>) {
    for field in fields {
        if let (Some(name), false) = (field.ty.struct_name(), field.fields.is_empty()) {
            structs.push(Struct {
                name: name.to_owned(),
                versions: field.versions,
                fields: field.fields.clone(),
            });
        }
        collect_structs(&field.fields, structs);
    }
}

/// A Rust condition on `version` that holds for `wanted`, if the message is at a version in `valid`.
pub fn condition(wanted: Versions, valid: Versions) -> String {
    let Some((low, high)) = wanted.intersect(valid).0 else { return "false".to_owned() };
    let (valid_low, valid_high) = valid.0.expect("a wanted version lies in the valid ones");
    match (low <= valid_low, high >= valid_high) {
        (true, true) => "true".to_owned(),
        (false, true) => format!("version >= {low}"),
        (true, false) => format!("version <= {high}"),
        (false, false) if low == high => format!("version == {low}"),
        (false, false) => format!("({low}..={high}).contains(&version)"),
    }
}

fn present<'a>(context: &Message<'_>, fields: &'a [Field]) -> Vec<&'a Field> {
    fields.iter().filter(|f| f.versions.intersect(context.schema.versions) != Versions::NONE).collect()
}

fn write_struct(out: &mut String, context: &Message<'_>, name: &str, fields: &[Field]) -> Result<()> {
    let fields = present(context, fields);
    let zero_defaults = fields.iter().all(|f| default_is_zero(f));
    let derive_default = if zero_defaults { ", Default" } else { "" };
    out!(out, "#[derive(Clone, Debug, PartialEq{derive_default})]\npub struct {name} {{");
    for field in &fields {
        out!(out, "/// {}", describe(field));
        out!(out, "pub {}: {},", name::field(&field.name), rust_type(field));
    }
    out!(out, "}}\n");
    if !zero_defaults {
        out!(out, "impl Default for {name} {{ fn default() -> Self {{ Self {{");
        for field in &fields {
            out!(out, "{}: {},", name::field(&field.name), default_value(field)?);
        }
        out!(out, "}} }} }}\n");
    }
    out!(out, "impl {name} {{");
    write_decode(out, context, &fields);
    write_encode(out, context, name, &fields)?;
    out!(out, "}}\n");
    Ok(())
}

fn describe(field: &Field) -> String {
    let mut text = format!("`{}`, versions {}", field.name, field.versions);
    if field.nullable != Versions::NONE {
        write!(text, ", null in {}", field.nullable).expect("a String takes all");
    }
    if let Some((tag, versions)) = field.tag {
        write!(text, ", tag {tag} in {versions}").expect("a String takes all");
    }
    if let Some(default) = &field.default {
        write!(text, ", default {default:?}").expect("a String takes all");
    }
    text + "."
}

fn base_type(ty: &Type) -> String {
    match ty {
        Type::Bool => "bool".into(),
        Type::Int8 => "i8".into(),
        Type::Int16 => "i16".into(),
        Type::Uint16 => "u16".into(),
        Type::Int32 => "i32".into(),
        Type::Uint32 => "u32".into(),
        Type::Int64 => "i64".into(),
        Type::Float64 => "f64".into(),
        Type::String => "String".into(),
        Type::Uuid => "Uuid".into(),
        Type::Bytes => "Bytes".into(),
        Type::Records => "Records".into(),
        Type::Array(element) => format!("Vec<{}>", base_type(element)),
        Type::Struct(name) => name.clone(),
    }
}

fn is_nullable(field: &Field) -> bool {
    field.nullable != Versions::NONE
}

fn rust_type(field: &Field) -> String {
    if is_nullable(field) { format!("Option<{}>", base_type(&field.ty)) } else { base_type(&field.ty) }
}

/// True if Rust's default of the field's type is Kafka's default of the field.
fn default_is_zero(field: &Field) -> bool {
    match (&field.default, is_nullable(field)) {
        (Some(text), true) => text == "null",
        (None, true) => false,
        (None, false) => true,
        (Some(text), false) => matches!(text.as_str(), "" | "0" | "false"),
    }
}

fn default_value(field: &Field) -> Result<String> {
    let text = field.default.as_deref().unwrap_or_default();
    if is_nullable(field) && text == "null" {
        return Ok("None".into());
    }
    let value = match &field.ty {
        Type::Bool => {
            if text.is_empty() {
                "false".into()
            } else {
                text.to_owned()
            }
        }
        Type::Int8 | Type::Int16 | Type::Uint16 | Type::Int32 | Type::Uint32 | Type::Int64 => {
            if text.is_empty() { "0".into() } else { text.to_owned() }
        }
        Type::Float64 => {
            if text.is_empty() {
                "0.0".into()
            } else {
                text.to_owned()
            }
        }
        Type::String if !text.is_empty() => format!("{text:?}.to_owned()"),
        _ if text.is_empty() => format!("{}::default()", base_type(&field.ty).replacen("Vec<", "Vec::<", 1)),
        _ => bail!("{}: a default of {text:?} for {}", field.name, field.ty),
    };
    Ok(if is_nullable(field) { format!("Some({value})") } else { value })
}

/// The minimum size of a value of the type at any version, for checking the count of an array.
fn min_size(context: &Message<'_>, ty: &Type) -> usize {
    match ty {
        Type::Bool | Type::Int8 => 1,
        Type::Int16 | Type::Uint16 => 2,
        Type::Int32 | Type::Uint32 => 4,
        Type::Int64 | Type::Float64 => 8,
        Type::Uuid => 16,
        Type::String | Type::Bytes | Type::Records | Type::Array(_) => 1,
        Type::Struct(name) => {
            let nested = context
                .structs
                .iter()
                .find(|s| s.name == *name)
                .expect("every struct is defined in its message");
            let (low, high) = context.schema.versions.0.expect("a generated message has versions");
            let size_at = |version| {
                nested
                    .fields
                    .iter()
                    .filter(|f| {
                        f.versions.contains(version) && !f.tag.is_some_and(|(_, v)| v.contains(version))
                    })
                    .map(|f| if is_nullable(f) { 1 } else { min_size(context, &f.ty) })
                    .sum::<usize>()
            };
            (low..=high).map(size_at).filter(|&s| s > 0).min().unwrap_or(1)
        }
    }
}

/// The expression for whether lengths are compact: the message's flexibility, or the field's own.
fn flexible_of(context: &Message<'_>, field: &Field) -> String {
    match field.flexible {
        Some(versions) => condition(versions, context.schema.versions),
        None => match condition(context.schema.flexible, context.schema.versions) {
            always if always == "true" || always == "false" => always,
            _ => "flexible".to_owned(),
        },
    }
}

/// A function with its body. Parameters that the body does not use start with an underscore.
fn function(head: &str, body: &str) -> String {
    let mut head = head.to_owned();
    for parameter in ["version", "e"] {
        if !names(body, parameter) {
            head = head.replace(&format!("{parameter}: "), &format!("_{parameter}: "));
        }
    }
    format!("{head} {{\n{body}}}")
}

/// Code that depends on flexibility, preceded by its condition if versions differ.
fn with_flexible(context: &Message<'_>, fields: &str, tagged: &str) -> String {
    match condition(context.schema.flexible, context.schema.versions).as_str() {
        "true" => format!("{fields}{tagged}"),
        "false" => fields.to_owned(),
        condition => format!("let flexible = {condition};\n{fields}if flexible {{\n{tagged}}}\n"),
    }
}

fn write_decode(out: &mut String, context: &Message<'_>, fields: &[&Field]) {
    let valid = context.schema.versions;
    let mut body = "let mut m = Self::default();\n".to_owned();
    for field in fields {
        let untagged = untagged_condition(context, field);
        if untagged == "false" {
            continue;
        }
        let read = format!(
            "m.{} = {};",
            name::field(&field.name),
            read_field(context, field, &flexible_of(context, field))
        );
        if untagged == "true" { out!(body, "{read}") } else { out!(body, "if {untagged} {{ {read} }}") }
    }
    let mut tagged = String::new();
    let tagged_fields: Vec<_> = fields.iter().filter(|f| f.tag.is_some()).collect();
    if tagged_fields.is_empty() {
        out!(tagged, "d.skip_tagged_fields()?;");
    } else {
        out!(tagged, "d.tagged_fields(|d, tag| {{ match tag {{");
        for field in tagged_fields {
            let (tag, versions) = field.tag.expect("filtered by it");
            let guard = condition(versions.intersect(field.versions), valid);
            let guard = if guard == "true" { String::new() } else { format!(" if {guard}") };
            out!(tagged, "{tag}{guard} => m.{} = {},", name::field(&field.name), read_tagged(context, field));
        }
        out!(tagged, "_ => return Ok(false), }} Ok(true) }})?;");
    }
    let body = with_flexible(context, &body, &tagged) + "Ok(m)\n";
    let head = "pub(crate) fn read(d: &mut Decoder, version: i16) -> Result<Self, DecodeError>";
    out!(out, "{}\n", function(head, &body));
}

/// The condition under which a field is in the body, not among the tagged fields.
fn untagged_condition(context: &Message<'_>, field: &Field) -> String {
    let valid = context.schema.versions;
    match field.tag {
        Some((_, tagged))
            if field.versions.intersect(valid).intersect(tagged) == field.versions.intersect(valid) =>
        {
            "false".into()
        }
        Some((_, tagged)) => {
            format!("{} && !({})", condition(field.versions, valid), condition(tagged, valid))
        }
        None => condition(field.versions, valid),
    }
}

fn read_field(context: &Message<'_>, field: &Field, flexible: &str) -> String {
    let nullable = condition(field.nullable.intersect(field.versions), context.schema.versions);
    // A field that is nullable in all the versions in which it exists needs no condition.
    let nullable = if field.nullable.intersect(field.versions).intersect(context.schema.versions)
        == field.versions.intersect(context.schema.versions)
    {
        "true".to_owned()
    } else {
        nullable
    };
    match (&field.ty, is_nullable(field)) {
        (Type::String, true) => format!("d.nullable_string({flexible}, {nullable})?"),
        (Type::Bytes, true) => format!("d.nullable_bytes({flexible}, {nullable})?"),
        (Type::Records, true) => format!("d.nullable_bytes({flexible}, {nullable})?.map(Records::Inline)"),
        (Type::Array(element), true) => {
            let size = min_size(context, element);
            format!(
                "match d.nullable_array_len({flexible}, {nullable}, {size})? {{ None => None, Some(count) => Some({}) }}",
                read_elements(element, flexible)
            )
        }
        (Type::Array(element), false) => {
            format!(
                "{{ let count = d.array_len({flexible}, {})?; {} }}",
                min_size(context, element),
                read_elements(element, flexible)
            )
        }
        (Type::Struct(name), true) => {
            format!("if d.is_present({nullable})? {{ Some({name}::read(d, version)?) }} else {{ None }}")
        }
        (ty, false) => read_plain(ty, flexible),
        (ty, true) => unreachable!("Kafka has no nullable {ty}"),
    }
}

/// As [`read_field`]; a tagged struct that may be null is preceded by a varint, not by a byte.
fn read_tagged(context: &Message<'_>, field: &Field) -> String {
    match (&field.ty, is_nullable(field)) {
        (Type::Struct(name), true) => {
            format!("if d.is_tagged_present()? {{ Some({name}::read(d, version)?) }} else {{ None }}")
        }
        _ => read_field(context, field, "true"),
    }
}

fn read_elements(element: &Type, flexible: &str) -> String {
    format!(
        "{{ let mut list = Vec::with_capacity(count); for _ in 0..count {{ list.push({}); }} list }}",
        read_plain(element, flexible)
    )
}

fn read_plain(ty: &Type, flexible: &str) -> String {
    match ty {
        Type::Bool => "d.bool()?".into(),
        Type::String => format!("d.string({flexible})?"),
        Type::Bytes => format!("d.bytes({flexible})?"),
        Type::Records => format!("Records::Inline(d.bytes({flexible})?)"),
        Type::Struct(name) => format!("{name}::read(d, version)?"),
        Type::Array(_) => unreachable!("Kafka has no arrays of arrays"),
        ty => format!("d.{}()?", base_type(ty).to_lowercase()),
    }
}

fn write_encode(out: &mut String, context: &Message<'_>, name: &str, fields: &[&Field]) -> Result<()> {
    let valid = context.schema.versions;
    let mut body = String::new();
    for field in fields {
        let exists = condition(field.versions, valid);
        let untagged = untagged_condition(context, field);
        if exists != "true" && !field.ignorable {
            out!(
                body,
                "if !({exists}) && {} {{ return Err(EncodeError::not_in_version({name:?}, {:?}, version)); }}",
                not_default(field)?,
                field.name
            );
        }
        if untagged != "false" {
            let write = write_field(context, field, name, &flexible_of(context, field));
            if untagged == "true" { out!(body, "{write}") } else { out!(body, "if {untagged} {{ {write} }}") }
        }
    }
    let mut tagged = String::new();
    let mut tagged_fields: Vec<_> = fields.iter().filter(|f| f.tag.is_some()).collect();
    tagged_fields.sort_by_key(|f| f.tag.map(|(tag, _)| tag));
    if tagged_fields.is_empty() {
        out!(tagged, "e.no_tagged_fields();");
    } else {
        out!(tagged, "let mut tagged = TaggedFields::default();");
        for field in tagged_fields {
            let (tag, versions) = field.tag.expect("filtered by it");
            let exists = match condition(versions.intersect(field.versions), valid) {
                always if always == "true" => String::new(),
                condition => format!("{condition} && "),
            };
            out!(
                tagged,
                "if {exists}{} {{ tagged.add({tag}, |e| {{ {} Ok(()) }})?; }}",
                not_default(field)?,
                write_tagged(context, field, name)
            );
        }
        out!(tagged, "e.tagged_fields(tagged);");
    }
    let body = with_flexible(context, &body, &tagged) + "Ok(())\n";
    let head = "pub(crate) fn write(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError>";
    out!(out, "{}", function(head, &body));
    Ok(())
}

fn not_default(field: &Field) -> Result<String> {
    let access = format!("self.{}", name::field(&field.name));
    let default = default_value(field)?;
    Ok(match (&field.ty, is_nullable(field)) {
        (_, true) if default == "None" => format!("{access}.is_some()"),
        (Type::Array(_) | Type::Bytes, true) => format!("{access}.as_ref().is_none_or(|v| !v.is_empty())"),
        (Type::Array(_) | Type::Bytes, false) => format!("!{access}.is_empty()"),
        (Type::String, false) if default == "String::default()" => format!("!{access}.is_empty()"),
        (Type::Bool, false) => {
            if default == "true" {
                format!("!{access}")
            } else {
                access
            }
        }
        _ => format!("{access} != {default}"),
    })
}

fn write_field(context: &Message<'_>, field: &Field, owner: &str, flexible: &str) -> String {
    let access = format!("self.{}", name::field(&field.name));
    if !is_nullable(field) {
        return write_value(field, &access, true, flexible);
    }
    let all_nullable = field.nullable.intersect(field.versions).intersect(context.schema.versions)
        == field.versions.intersect(context.schema.versions);
    let refuse = if all_nullable {
        String::new()
    } else {
        let nullable = condition(field.nullable, context.schema.versions);
        format!("if !({nullable}) {{ return Err(EncodeError::null({owner:?}, {:?}, version)); }}", field.name)
    };
    let (null, prefix) = match &field.ty {
        Type::String => (format!("e.null_string({flexible})"), ""),
        Type::Bytes | Type::Records => (format!("e.null_bytes({flexible})"), ""),
        Type::Array(_) => (format!("e.null_array({flexible})"), ""),
        _ => ("e.i8(-1)".to_owned(), "e.i8(1);"),
    };
    // A struct that may be null is preceded by a byte only in the versions in which it may be.
    let prefix = if prefix.is_empty() || all_nullable {
        prefix.to_owned()
    } else {
        format!("if {} {{ {prefix} }}", condition(field.nullable, context.schema.versions))
    };
    format!(
        "match &{access} {{ None => {{ {refuse} {null}; }} Some(v) => {{ {prefix} {} }} }}",
        write_value(field, "v", false, flexible)
    )
}

/// The value of a field that is not null. The text of an error is truncated if too long for a string.
fn write_value(field: &Field, access: &str, place: bool, flexible: &str) -> String {
    match &field.ty {
        Type::String if field.name.ends_with("ErrorMessage") => {
            let borrowed = if place { format!("&{access}") } else { access.to_owned() };
            format!("e.text({borrowed}, {flexible});")
        }
        ty => write_plain(ty, access, place, flexible),
    }
}

/// As [`write_field`]; a tagged struct that may be null is preceded by a varint, not by a byte.
fn write_tagged(context: &Message<'_>, field: &Field, owner: &str) -> String {
    match (&field.ty, is_nullable(field)) {
        (Type::Struct(_), true) => format!(
            "match &self.{} {{ None => e.uvarint(0), Some(v) => {{ e.uvarint(1); v.write(e, version)?; }} }}",
            name::field(&field.name)
        ),
        _ => write_field(context, field, owner, "true"),
    }
}

fn write_plain(ty: &Type, access: &str, place: bool, flexible: &str) -> String {
    let borrowed = if place { format!("&{access}") } else { access.to_owned() };
    let copied = if place { access.to_owned() } else { format!("*{access}") };
    match ty {
        Type::String => format!("e.string({borrowed}, {flexible})?;"),
        Type::Bytes => format!("e.bytes({borrowed}, {flexible})?;"),
        Type::Records => format!("e.records({borrowed}, {flexible})?;"),
        Type::Struct(_) => format!("{access}.write(e, version)?;"),
        Type::Array(element) => format!(
            "e.array_len({access}.len(), {flexible})?; for v in {borrowed} {{ {} }}",
            write_plain(element, "v", false, flexible)
        ),
        ty => format!("e.{}({copied});", base_type(ty).to_lowercase()),
    }
}
