//! Escapes for invisible characters and for characters that reorder their surroundings, which may occur in
//! names, keys, values and errors. All parts of a page pass through this module.

use std::borrow::Cow;

use thalweg_security::visible::{escaped, is_unseen};

/// Markup with such characters escaped in texts. Tags and text areas stay unchanged, because browsers send
/// addresses and field values back.
pub fn visible_markup(markup: &str) -> Cow<'_, str> {
    if !markup.contains(is_escaped) {
        return Cow::Borrowed(markup);
    }
    let mut seen = String::with_capacity(markup.len() + 64);
    let mut rest = markup;
    let mut is_edited = false;
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        seen.push_str(&of_text(text, is_edited));
        // Templates escape brackets in attributes, so the next bracket ends the tag.
        let end = tag.find('>').map_or(tag.len(), |end| end + 1);
        let (tag, after) = tag.split_at(end);
        is_edited = tag.starts_with("<textarea") || is_edited && !tag.starts_with("</textarea");
        seen.push_str(tag);
        rest = after;
    }
    seen.push_str(&of_text(rest, is_edited));
    Cow::Owned(seen)
}

fn of_text(text: &str, is_edited: bool) -> Cow<'_, str> {
    if is_edited { Cow::Borrowed(text) } else { escaped(text, is_escaped) }
}

/// In a page, tabs and line ends are plain white space.
fn is_escaped(c: char) -> bool {
    is_unseen(c) && !matches!(c, '\n' | '\r' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::html;

    #[test]
    fn names_cannot_look_like_others() {
        let name = "ali\u{202e}ce\u{200b}";
        let page = html! {
            title { (name) }
            a href={ "/groups/" (name) } title="a>b" { (name) "\r\n" }
            form { input name="group" value=(name); textarea { (name) } }
            pre { "\u{2028}<b>\u{85}" }
        };
        let expected = format!(
            "<title>{0}</title><a href=\"/groups/{name}\" title=\"a&gt;b\">{0}\r\n</a><form><input name=\"group\" \
             value=\"{name}\"><textarea>{name}</textarea></form><pre>\\u{{2028}}&lt;b&gt;\\u{{85}}</pre>",
            "ali\\u{202e}ce\\u{200b}"
        );
        assert_eq!(visible_markup(&page.0), expected);
        assert!(matches!(visible_markup("<p>ünï\n</p>"), Cow::Borrowed(_)));
    }
}
