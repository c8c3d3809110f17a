//! Refusals of whole requests by the error at the top level of the response.

use super::message::condition;
use super::tables::response_of;
use crate::schema::{Field, Schema, Type, Versions};
use anyhow::{Context, Result, ensure};
use std::fmt::Write;

/// The implementations of `Refuse` for the APIs of `refusals.txt`.
pub fn implementations(text: &str, schemas: &[Schema]) -> Result<String> {
    let mut out = String::from("use crate::request::*;\nuse crate::{ErrorCode, Refuse};\n");
    for api in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let response = response_of(schemas, api).with_context(|| format!("refusals.txt: no API {api}"))?;
        out += &implementation(api, response).with_context(|| format!("refusals.txt: {api}"))?;
    }
    Ok(out)
}

fn implementation(api: &str, response: &Schema) -> Result<String> {
    let top = |name: &str| response.fields.iter().find(|field| field.name == name);
    let condition_of = |field: &Field| condition(field.versions, response.versions);
    let code = top("ErrorCode").context("the response has no ErrorCode at its top level")?;
    // A version without the field drops the code when it is encoded; metrics count it all the same.
    ensure!(code.ignorable || condition_of(code) == "true", "a version without ErrorCode is not encoded");
    let message = top("ErrorMessage").map(|field| {
        ensure!(
            matches!(field.ty, Type::String) && field.nullable != Versions::NONE,
            "ErrorMessage is no nullable string"
        );
        Ok(match &*condition_of(field) {
            "true" => "error_message: message.map(str::to_owned),".to_owned(),
            served => format!("error_message: message.filter(|_| {served}).map(str::to_owned),"),
        })
    });
    let message = message.transpose()?.unwrap_or_default();
    let mut out = String::new();
    let argument = |name: &'static str, is_used: bool| if is_used { name } else { "_" };
    write!(
        out,
        "\nimpl Refuse for {api}Request {{ fn refuse(&self, code: ErrorCode, {}: Option<&str>, {}: i16) -> {api}Response {{
            {api}Response {{ error_code: code.code(), {message} ..Default::default() }} }} }}\n",
        argument("message", !message.is_empty()),
        argument("version", message.contains("version")),
    )?;
    Ok(out)
}
