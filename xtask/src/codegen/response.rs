//! The fields common to responses of all APIs: the throttle time, and error codes at any depth.

use super::name;
use crate::schema::{Field, Schema, Struct, Type, Versions};
use std::fmt::Write;

/// The implementation of `Response`.
pub fn implementation(schema: &Schema, structs: &[Struct]) -> String {
    let fields = present(schema, &schema.fields);
    let mut out = format!("impl Response for {} {{\n", schema.name);
    if fields.iter().any(|field| field.name == "ThrottleTimeMs") {
        out += "fn throttle_time_ms(&mut self) -> Option<&mut i32> { Some(&mut self.throttle_time_ms) }\n";
    }
    if let Some(body) = body(schema, structs, &schema.fields) {
        write!(out, "fn each_error_code(&self, each: &mut dyn FnMut(i16)) {{\n{body}}}\n")
            .expect("a String takes all");
    }
    out + "}\n"
}

/// The function of a nested struct that has error codes.
pub fn of_struct(schema: &Schema, structs: &[Struct], nested: &Struct) -> String {
    let Some(body) = body(schema, structs, &nested.fields) else { return String::new() };
    let name = &nested.name;
    format!(
        "\nimpl {name} {{ pub(super) fn each_error_code(&self, each: &mut dyn FnMut(i16)) {{\n{body}}} }}\n"
    )
}

/// Passes on the error codes of these fields, if there are any.
fn body(schema: &Schema, structs: &[Struct], fields: &[Field]) -> Option<String> {
    let lines: String =
        present(schema, fields).into_iter().filter_map(|field| line(schema, structs, field)).collect();
    (!lines.is_empty()).then_some(lines)
}

fn line(schema: &Schema, structs: &[Struct], field: &Field) -> Option<String> {
    let place = format!("self.{}", name::field(&field.name));
    let is_nullable = field.nullable != Versions::NONE;
    match &field.ty {
        Type::Int16 if field.name.ends_with("ErrorCode") => Some(format!("each({place});\n")),
        ty => {
            let nested = structs.iter().find(|nested| Some(nested.name.as_str()) == ty.struct_name())?;
            body(schema, structs, &nested.fields)?;
            let all = match (ty, is_nullable) {
                (Type::Array(_), true) => format!("{place}.iter().flatten()"),
                (Type::Array(_), false) => format!("&{place}"),
                (_, true) => format!("&{place}"),
                (_, false) => return Some(format!("{place}.each_error_code(each);\n")),
            };
            Some(format!("for one in {all} {{ one.each_error_code(each); }}\n"))
        }
    }
}

fn present<'a>(schema: &Schema, fields: &'a [Field]) -> Vec<&'a Field> {
    fields.iter().filter(|field| field.versions.intersect(schema.versions) != Versions::NONE).collect()
}
