//! Signs of JSON members in a text that is not JSON: an escaped brace, and Base64.

use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine as _};

/// Escaped forms of a brace in addresses, source code and markup.
const BRACES: [&str; 7] = ["%7b", "\\u007b", "\\x7b", "\\173", "&#123;", "&#x7b;", "&lcub;"];
/// Base64 of an object with a one-letter member is at least this long.
const BASE64_MIN: usize = 10;
/// Characters of both Base64 alphabets that also occur in paths. A path may precede the Base64 text.
const IN_BASE64_AND_PATHS: [char; 4] = ['/', '+', '-', '_'];
/// Maximum positions in a word at which Base64 may begin.
const STARTS_MAX: usize = 16;

/// Padding and trailing bits are ignored, because a text may be truncated.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// True if a text contains an escaped brace.
pub fn has_spelled_brace(text: &str) -> bool {
    text.contains(['%', '\\', '&']) && {
        let text = text.to_ascii_lowercase();
        BRACES.iter().any(|brace| text.contains(brace))
    }
}

/// Decoded Base64 words that begin like JSON, such as the parts of a JWT (RFC 7519).
pub fn in_base64(text: &str) -> impl Iterator<Item = String> {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || IN_BASE64_AND_PATHS.contains(&c);
    text.split(move |c| !is_in_word(c)).filter(|word| word.len() >= BASE64_MIN).flat_map(|word| {
        let inner = word.match_indices(IN_BASE64_AND_PATHS).map(|(at, mark)| at + mark.len());
        let starts = std::iter::once(0).chain(inner).take(STARTS_MAX);
        starts.filter_map(|start| decoded(&word[start..]))
    })
}

/// Decodes a Base64 word if the text begins like JSON with members.
fn decoded(word: &str) -> Option<String> {
    let is_json = |bytes: &[u8]| {
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
        // The last three are such a text in Base64 again.
        text.is_empty()
            || matches!(text[0], b'{' | b'[' | b'"')
            || [b"eyJ", b"ewo", b"W3s"].iter().any(|start| text.starts_with(*start))
    };
    if word.len() < BASE64_MIN || !is_json(&LENIENT.decode(plain(&word[..4])).ok()?) {
        return None;
    }
    // A single remaining character does not encode a byte.
    let end = if word.len() % 4 == 1 { word.len() - 1 } else { word.len() };
    let bytes = LENIENT.decode(plain(&word[..end])).ok()?;
    if !is_json(&bytes) {
        return None;
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // The last character may be truncated.
        Err(error) if error.utf8_error().error_len().is_none() => {
            let end = error.utf8_error().valid_up_to();
            String::from_utf8_lossy(&error.as_bytes()[..end]).into_owned()
        }
        Err(_) => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}

/// Converts to the alphabet of RFC 4648, section 4.
fn plain(word: &str) -> String {
    word.replace('-', "+").replace('_', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_in_base64_is_found_wherever_it_begins() {
        for (text, expected) in [
            ("eyJjYXJkIjo0NzExfQ==", &[r#"{"card":4711}"#][..]),
            ("eyJjYXJkIjo0NzExfQ", &[r#"{"card":4711}"#]),
            ("data:application/json;base64,eyJjYXJkIjo0NzExfQ==", &[r#"{"card":4711}"#]),
            ("/tokens/eyJjYXJkIjo0NzExfQ", &[r#"{"card":4711}"#]),
            ("Bearer eyJhbGciOiJub25lIn0.eyJjYXJkIjo0NzExfQ.x", &[r#"{"alg":"none"}"#, r#"{"card":4711}"#]),
            ("77u/eyJjYXJkIjoxfQ==", &["\u{feff}{\"card\":1}", r#"{"card":1}"#]),
            ("CiAgeyAiY2FyZCI6IDEgfQ", &["\n  { \"card\": 1 }"]),
            ("orders/2024/eyebright", &[]),
            ("customer-17 and a thousand ordinary words", &[]),
        ] {
            assert_eq!(in_base64(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn braces_have_several_spellings() {
        for text in ["q=%7B%22card", "\\u007Bx", "&#123;&quot;card", "\\x7b"] {
            assert!(has_spelled_brace(text), "{text}");
        }
        assert!(!has_spelled_brace("100 % of \\ & more"));
    }
}
