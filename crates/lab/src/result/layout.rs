//! The layout of a result file: JSON that people can read and compare by line, without a line per number.
//!
//! Values down to the fields of a repetition have a line each. Deeper values are on the line of their field,
//! as are arrays and objects that hold only plain values.

use std::collections::HashSet;

/// The containers around a repetition's field: run, workloads, workload, points, point, repetitions,
/// repetition.
const DEPTH_MAX: usize = 7;

/// JSON without white space, laid out.
pub(super) fn laid_out(compact: &[u8]) -> Vec<u8> {
    let nested = nested(compact);
    let mut out = Vec::with_capacity(compact.len() + compact.len() / 8);
    // Whether each open container has a line per value.
    let mut open: Vec<bool> = Vec::new();
    for (at, byte, is_text) in bytes(compact) {
        let by_line = open.last() == Some(&true);
        match byte {
            _ if is_text => out.push(byte),
            b'{' | b'[' => {
                out.push(byte);
                open.push(nested.contains(&at) && open.len() < DEPTH_MAX);
                if open.last() == Some(&true) {
                    end_line(&mut out, open.len());
                }
            }
            b'}' | b']' => {
                open.pop();
                if by_line {
                    end_line(&mut out, open.len());
                }
                out.push(byte);
            }
            b',' if by_line => {
                out.push(byte);
                end_line(&mut out, open.len());
            }
            b':' if by_line => out.extend_from_slice(b": "),
            _ => out.push(byte),
        }
    }
    out.push(b'\n');
    out
}

fn end_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + depth, b' ');
}

/// The places of containers that hold others.
fn nested(compact: &[u8]) -> HashSet<usize> {
    let mut nested = HashSet::new();
    let mut open: Vec<usize> = Vec::new();
    for (at, byte, is_text) in bytes(compact) {
        match byte {
            _ if is_text => {}
            b'{' | b'[' => {
                nested.extend(open.last());
                open.push(at);
            }
            b'}' | b']' => _ = open.pop(),
            _ => {}
        }
    }
    nested
}

/// The bytes of JSON with their places, and whether each is part of a string.
fn bytes(json: &[u8]) -> impl Iterator<Item = (usize, u8, bool)> {
    let (mut in_string, mut is_escaped) = (false, false);
    json.iter().enumerate().map(move |(at, &byte)| {
        let was_in_string = in_string;
        if in_string {
            in_string = byte != b'"' || is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
        } else {
            in_string = byte == b'"';
        }
        (at, byte, was_in_string || in_string)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_share_a_line_and_others_have_their_own() {
        let compact = r#"{"a":[1,2],"b":{"c":"x, y: {\"}","d":[]},"e":[{"f":1},[]],"g":"\\","h":{}}"#;
        let expected = r#"{
 "a": [1,2],
 "b": {
  "c": "x, y: {\"}",
  "d": []
 },
 "e": [
  {"f":1},
  []
 ],
 "g": "\\",
 "h": {}
}
"#;
        assert_eq!(String::from_utf8(laid_out(compact.as_bytes())).expect("text"), expected);
    }

    #[test]
    fn deep_values_are_on_the_line_of_their_field() {
        let deep = format!("{}7{}", "[".repeat(10), "]".repeat(10));
        let text = String::from_utf8(laid_out(deep.as_bytes())).expect("text");
        assert!(text.contains("\n       [[[7]]]\n") && text.lines().count() == 15, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value.to_string(), deep);
    }
}
