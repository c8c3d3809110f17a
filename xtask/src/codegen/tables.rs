//! Code generated from all messages together: family modules, API keys, error codes, the registry by name.

use super::{Families, name};
use crate::schema::{Schema, Versions};
use anyhow::{Context, Result};
use std::fmt::Write;

macro_rules! out {
    ($out:expr, $($arg:tt)*) => { writeln!($out, $($arg)*).expect("a String takes all") };
}

/// The module file of one family.
pub fn family(family: &str, schemas: &[Schema]) -> String {
    let mut out = String::new();
    let what = match family {
        "request" => "Requests and responses",
        "data" => "Headers, and data embedded in other messages and in control records",
        "metadata" => "Records of the metadata log",
        "group" => "Records of the group coordinator",
        "share" => "Records of the share coordinator",
        _ => "Records of the transaction coordinator",
    };
    out!(out, "//! {what}.\n//!\n//! Each module holds one message and the structs that are nested in it.\n");
    for schema in schemas {
        out!(out, "pub mod {};", name::snake(&schema.name));
    }
    out!(out, "");
    for schema in schemas {
        out!(out, "pub use {}::{};", name::snake(&schema.name), schema.name);
    }
    if family == "request" {
        out!(out, "\nuse crate::{{ApiKey, Request}};\n");
        for request in schemas.iter().filter(|s| s.kind == "request") {
            let api = api(request);
            out!(
                out,
                "impl Request for {} {{ const KEY: ApiKey = ApiKey::{api}; type Response = {api}Response; }}",
                request.name
            );
        }
    }
    out
}

/// The enum of APIs, with their versions and listeners.
pub fn api_keys(schemas: &[Schema]) -> String {
    let mut requests: Vec<_> = schemas.iter().filter(|s| s.kind == "request").collect();
    requests.sort_by_key(|s| s.key);
    let mut out = String::from(
        "/// Kafka's APIs.\n#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i16)]\npub enum ApiKey {\n",
    );
    for s in &requests {
        let key = s.key.unwrap_or(-1);
        out!(out, "/// Key {key}, versions {}.\n{} = {key},", s.versions, api(s));
    }
    out!(out, "}}\n\nimpl ApiKey {{");
    out!(out, "/// Every API, by key.\npub const ALL: [ApiKey; {}] = [", requests.len());
    for s in &requests {
        out!(out, "ApiKey::{},", api(s));
    }
    out!(out, "];\n\n/// The API with this key.");
    out!(out, "pub fn from_i16(key: i16) -> Option<ApiKey> {{ Some(match key {{");
    for s in &requests {
        out!(out, "{} => ApiKey::{},", s.key.unwrap_or(-1), api(s));
    }
    out!(out, "_ => return None }}) }}");
    api_versions(&mut out, &requests);
    let any = |wanted: fn(&Schema) -> bool| {
        let apis: Vec<_> =
            requests.iter().filter(|s| wanted(s)).map(|s| format!("ApiKey::{}", api(s))).collect();
        if apis.is_empty() { "false".to_owned() } else { format!("matches!(self, {})", apis.join(" | ")) }
    };
    out!(out, "\n/// Whether the last version is one that Kafka does not advertise yet.");
    out!(out, "pub fn last_version_is_unstable(self) -> bool {{ {} }}", any(|s| s.unstable));
    out!(out, "\n/// Whether a broker serves it to its clients and peers.");
    out!(
        out,
        "pub fn on_broker(self) -> bool {{ !{} }}",
        any(|s| !s.listeners.iter().any(|l| l == "broker"))
    );
    out!(out, "\n/// Whether a controller serves it.");
    out!(
        out,
        "pub fn on_controller(self) -> bool {{ {} }}",
        any(|s| s.listeners.iter().any(|l| l == "controller"))
    );
    out!(out, "}}");
    out
}

/// The functions of `ApiKey` that return its versions.
fn api_versions(out: &mut String, requests: &[&Schema]) {
    out!(out, "\n/// The versions that Kafka serves: the first, the last.");
    out!(out, "pub fn versions(self) -> (i16, i16) {{ match self {{");
    for s in requests {
        let (low, high) = s.versions.0.expect("a served API has versions");
        out!(out, "ApiKey::{} => ({low}, {high}),", api(s));
    }
    out!(
        out,
        "}} }}\n\n/// The first version whose lengths are compact and that carries tagged fields; `i16::MAX` where there is none."
    );
    out!(out, "pub fn flexible_from(self) -> i16 {{ match self {{");
    for s in requests {
        let first = s.flexible.0.map_or("i16::MAX".to_owned(), |(low, _)| low.to_string());
        out!(out, "ApiKey::{} => {first},", api(s));
    }
    out!(out, "}} }}");
}

/// The response of an API.
pub fn response_of<'a>(schemas: &'a [Schema], api: &str) -> Option<&'a Schema> {
    schemas.iter().find(|schema| schema.name.strip_suffix("Response") == Some(api))
}

/// The name of the API of a request.
pub fn api(request: &Schema) -> &str {
    request.name.strip_suffix("Request").expect("a request's name ends so")
}

/// The enum of error codes, from lines of `CODE NAME [retriable] [refresh]`.
pub fn error_codes(text: &str) -> Result<String> {
    let mut rows = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [code, kafka_name, flags @ ..] = words.as_slice() else { anyhow::bail!("errors.txt: {line}") };
        rows.push((
            code.parse::<i16>().context("a code")?,
            kafka_name.to_string(),
            flags.contains(&"retriable"),
        ));
    }
    let mut out = String::from(
        "/// Kafka's error codes (`org.apache.kafka.common.protocol.Errors`).\n#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(i16)]\npub enum ErrorCode {\n",
    );
    for (code, kafka_name, _) in &rows {
        out!(out, "/// `{kafka_name}`\n{} = {code},", name::camel(kafka_name));
    }
    out!(
        out,
        "}}\n\nimpl ErrorCode {{\n/// The error with this code.\npub fn from_i16(code: i16) -> Option<ErrorCode> {{ Some(match code {{"
    );
    for (code, kafka_name, _) in &rows {
        out!(out, "{code} => ErrorCode::{},", name::camel(kafka_name));
    }
    out!(
        out,
        "_ => return None }}) }}\n\n/// Kafka's name of the error.\npub fn name(self) -> &'static str {{ match self {{"
    );
    for (_, kafka_name, _) in &rows {
        out!(out, "ErrorCode::{} => {kafka_name:?},", name::camel(kafka_name));
    }
    out!(
        out,
        "}} }}\n\n/// Whether a client may expect the same request to succeed later.\npub fn is_retriable(self) -> bool {{ matches!(self, "
    );
    let retriable: Vec<_> =
        rows.iter().filter(|r| r.2).map(|r| format!("ErrorCode::{}", name::camel(&r.1))).collect();
    out!(out, "{}) }}\n}}", retriable.join(" | "));
    Ok(out)
}

/// The enum of metadata records, by API key and version.
pub fn metadata_records(schemas: &[Schema]) -> String {
    let short = |s: &Schema| s.name.strip_suffix("Record").expect("a record's name ends so").to_owned();
    let mut out = String::from(
        "use crate::metadata::*;\nuse crate::{DecodeError, Decoder, EncodeError, Encoder, Message};\n\n/// A record of the metadata log.\n#[derive(Clone, Debug, PartialEq)]\npub enum MetadataRecord {\n",
    );
    for s in schemas {
        out!(out, "/// Record type {}.\n{}({}),", s.key.unwrap_or(-1), short(s), s.name);
    }
    out!(
        out,
        "}}\n\nimpl MetadataRecord {{\n/// The record's type on disk.\npub fn api_key(&self) -> i16 {{ match self {{"
    );
    for s in schemas {
        out!(out, "MetadataRecord::{}(_) => {},", short(s), s.key.unwrap_or(-1));
    }
    out!(
        out,
        "}} }}\n\n/// The highest version of the record's type.\npub fn max_version(&self) -> i16 {{ match self {{"
    );
    for s in schemas {
        out!(out, "MetadataRecord::{}(_) => {}::MAX_VERSION,", short(s), s.name);
    }
    out!(
        out,
        "}} }}\n\npub(crate) fn decode_body(key: i16, version: i16, d: &mut Decoder) -> Result<Option<Self>, DecodeError> {{ Ok(Some(match key {{"
    );
    for s in schemas {
        out!(
            out,
            "{key} if ({name}::MIN_VERSION..={name}::MAX_VERSION).contains(&version) => MetadataRecord::{short}({name}::decode(d, version)?),",
            key = s.key.unwrap_or(-1),
            name = s.name,
            short = short(s)
        );
    }
    out!(
        out,
        "_ => return Ok(None) }})) }}\n\npub(crate) fn encode_body(&self, version: i16, e: &mut Encoder) -> Result<(), EncodeError> {{ match self {{"
    );
    for s in schemas {
        out!(out, "MetadataRecord::{}(m) => m.encode(e, version),", short(s));
    }
    out!(out, "}} }}\n}}\n");
    for s in schemas {
        out!(
            out,
            "impl From<{name}> for MetadataRecord {{ fn from(m: {name}) -> Self {{ MetadataRecord::{short}(m) }} }}",
            name = s.name,
            short = short(s)
        );
    }
    out
}

/// Every message by its name, for tests and tools that handle messages as data.
pub fn registry(families: &Families) -> String {
    let mut out = String::from(
        "use crate::{Message, RegistryError, decode_encode, encode_default};\nuse bytes::Bytes;\n\n/// The name of every message, with its versions.\npub const MESSAGES: &[(&str, i16, i16)] = &[\n",
    );
    let all = || families.iter().flat_map(|(family, schemas)| schemas.iter().map(move |s| (family, s)));
    for (_, s) in all().filter(|(_, s)| s.versions != Versions::NONE) {
        let (low, high) = s.versions.0.expect("filtered by it");
        out!(out, "({:?}, {low}, {high}),", s.name);
    }
    out!(
        out,
        "];\n\n/// Decodes the whole input as the named message, and encodes it again. `None` for an unknown name."
    );
    out!(
        out,
        "pub fn roundtrip(name: &str, version: i16, bytes: Bytes) -> Option<Result<Vec<u8>, RegistryError>> {{ convert(name, version, bytes, version) }}"
    );
    out!(
        out,
        "\n/// Decodes the whole input as the named message at version `from`, and encodes it at version `to`. `None` for an unknown name."
    );
    out!(
        out,
        "pub fn convert(name: &str, from: i16, bytes: Bytes, to: i16) -> Option<Result<Vec<u8>, RegistryError>> {{ Some(match name {{"
    );
    for (family, s) in all() {
        out!(out, "{:?} => decode_encode::<crate::{family}::{}>(from, bytes, to),", s.name, s.name);
    }
    out!(
        out,
        "_ => return None }}) }}\n\n/// Encodes the named message with every field at its default. `None` for an unknown name."
    );
    out!(
        out,
        "pub fn default_bytes(name: &str, version: i16) -> Option<Result<Vec<u8>, RegistryError>> {{ Some(match name {{"
    );
    for (family, s) in all() {
        out!(out, "{:?} => encode_default::<crate::{family}::{}>(version),", s.name, s.name);
    }
    out!(
        out,
        "_ => return None }}) }}\n\n/// Whether lengths are compact at this version of the named message."
    );
    out!(out, "pub fn is_flexible(name: &str, version: i16) -> Option<bool> {{ Some(match name {{");
    for (family, s) in all() {
        out!(out, "{:?} => crate::{family}::{}::is_flexible(version),", s.name, s.name);
    }
    out!(out, "_ => return None }}) }}");
    out
}
