//! Keys and values on pages: JSON has its characters in place of their escapes, and its escapes behind a
//! click.

use std::borrow::Cow;

use maud::{Markup, html};
use thalweg_browse::show::DisplayText;
use thalweg_security::visible::is_unseen;

/// A key or value. JSON with escapes of readable characters is shown with the characters, and again with the
/// escapes.
pub fn text(shown: &DisplayText) -> Markup {
    let readable = if shown.form == "json" { unescaped(&shown.text) } else { None };
    html! {
        @match readable {
            Some(readable) => {
                pre { (readable) }
                details { summary class="quiet" { "With its escapes" } pre { (shown.text) } }
            },
            None => pre { (shown.text) },
        }
    }
}

/// JSON with readable characters in place of their escapes, also if it is cut.
pub fn readable(json: &str) -> Cow<'_, str> {
    unescaped(json).map_or(Cow::Borrowed(json), Cow::Owned)
}

/// Valid JSON with readable characters in place of their escapes, as `ž` for `\u017d`; none without such an
/// escape. The result is an equivalent document: quotation marks, backslashes and invisible characters stay
/// escaped.
fn unescaped(json: &str) -> Option<String> {
    let mut readable = String::with_capacity(json.len());
    let (mut rest, mut is_changed) = (json, false);
    while let Some(at) = rest.find('\\') {
        readable.push_str(&rest[..at]);
        rest = &rest[at..];
        match escaped_char(rest) {
            Some((c, bytes)) if !is_unseen(c) && !matches!(c, '"' | '\\') => {
                readable.push(c);
                rest = &rest[bytes..];
                is_changed = true;
            }
            _ => {
                // In valid JSON, an ASCII character follows the backslash.
                let (escape, after) = rest.split_at_checked(2)?;
                readable.push_str(escape);
                rest = after;
            }
        }
    }
    readable.push_str(rest);
    is_changed.then_some(readable)
}

/// The character of the escape `\uXXXX`, or of two that form a surrogate pair, at the start of a text, and
/// the bytes of the escape.
fn escaped_char(text: &str) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let units = [Some(unit(0)?), unit(6)];
    let c = char::decode_utf16(units.into_iter().flatten()).next()?.ok()?;
    Some((c, 6 * c.len_utf16()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_browse::Content;
    use thalweg_browse::show::{Form, show};

    #[test]
    fn readable_characters_stand_for_their_escapes() {
        for (json, readable) in [
            (r#""\u017dofka \u00e9""#, Some("\"Žofka é\"")),
            (r#"{"\u017d": "\ud83d\ude00\u0041"}"#, Some("{\"Ž\": \"😀A\"}")),
            (r#""\\u017d \" \n""#, None),
            (r#""\\\u017d""#, Some(r#""\\Ž""#)),
            (r#""\u0022\u005c\u0000\u200b\u202e""#, None),
            (r#""\ud83d \u017d""#, Some(r#""\ud83d Ž""#)),
            (r#""\ude00\ud83d\u017d""#, Some(r#""\ude00\ud83dŽ""#)),
            (r#""Ž""#, None),
        ] {
            assert_eq!(unescaped(json).as_deref(), readable, "{json}");
            if let Some(readable) = readable.filter(|readable| !readable.contains("\\ud83d")) {
                let value = |text| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
                assert_eq!(value(json), value(readable));
            }
        }
    }

    #[test]
    fn the_escapes_stay_available() {
        let page = |json: &str, form| {
            let bytes = json.as_bytes().to_vec().into();
            text(&show(&Content { bytes, whole_bytes: json.len(), schema: None }, form)).0
        };
        let escaped = r#"{"name":"\u017dofka"}"#;
        let both = page(escaped, Form::Auto);
        assert!(both.contains("<pre>{\n  &quot;name&quot;: &quot;Žofka&quot;\n}</pre><details>"), "{both}");
        assert!(both.contains(r"\u017dofka"), "{both}");
        assert_eq!(page(escaped, Form::Text), r"<pre>{&quot;name&quot;:&quot;\u017dofka&quot;}</pre>");
        assert_eq!(page(r#"{"a":1}"#, Form::Auto), "<pre>{\n  &quot;a&quot;: 1\n}</pre>");
    }
}
