//! The position of `ThrottleTimeMs` in the bytes of responses.

use super::message::condition;
use super::tables::{api, response_of};
use crate::schema::{Field, Schema, Versions};
use anyhow::{Context, Result};
use std::fmt::Write;

/// The function of `ApiKey` that returns the position.
pub fn positions(schemas: &[Schema]) -> Result<String> {
    let mut out = String::from(
        "use crate::{ApiKey, FieldPosition};

        impl ApiKey {
            /// The position of `ThrottleTimeMs` in responses of this version; `None` where there is no such
            /// field, or where fields of variable length surround it.
            pub fn throttle_time(self, version: i16) -> Option<FieldPosition> { match self {\n",
    );
    let mut requests: Vec<_> = schemas.iter().filter(|schema| schema.kind == "request").collect();
    requests.sort_by_key(|request| request.key);
    for request in requests {
        let api = api(request);
        let response = response_of(schemas, api).with_context(|| format!("{api} has no response"))?;
        let Some((position, field)) = position(response) else { continue };
        let value = match &*condition(field.versions, response.versions) {
            "true" => format!("Some(FieldPosition::{position})"),
            served => format!("({served}).then_some(FieldPosition::{position})"),
        };
        writeln!(out, "ApiKey::{api} => {value},")?;
    }
    out += "_ => None, } } }\n";
    Ok(out)
}

/// The variant of `FieldPosition` for the throttle time, with its field.
fn position(response: &Schema) -> Option<(&'static str, &Field)> {
    let fields: Vec<&Field> = response
        .fields
        .iter()
        .filter(|field| field.versions.intersect(response.versions) != Versions::NONE)
        .collect();
    let at = fields.iter().position(|field| field.name == "ThrottleTimeMs")?;
    let is_last = at + 1 == fields.len();
    match at {
        0 => Some(("First", fields[at])),
        _ if is_last => Some(("Last", fields[at])),
        _ => None,
    }
}
