//! A removal that asks for the name of what it removes. Without JavaScript, the server compares the name;
//! with it, the button also waits for the name. A name with invisible characters may be typed with the
//! escapes that pages show for them.

use std::borrow::Cow;

use maud::{Markup, html};
use serde::Deserialize;
use thalweg_security::visible::visible;

use crate::problem::Problem;

/// True if a typed text is a name, or its visible form.
pub fn is_name(typed: &str, name: &str) -> bool {
    typed == name || typed == visible(name)
}

/// The visible form of a name, if it differs from the name.
pub fn visible_form(name: &str) -> Option<String> {
    match visible(name) {
        Cow::Owned(form) => Some(form),
        Cow::Borrowed(_) => None,
    }
}

/// The typed name of a removal.
#[derive(Deserialize)]
pub struct Confirmation {
    #[serde(default)]
    confirm: String,
}

impl Confirmation {
    /// Refuses a removal without the expected name.
    pub fn check(&self, expected: &str) -> Result<(), Problem> {
        match is_name(&self.confirm, expected) {
            true => Ok(()),
            false => {
                let expected = visible(expected);
                Err(Problem::wrong(format!("Nothing was removed: {:?} is not {expected}.", self.confirm)))
            }
        }
    }
}

/// The form of a removal.
pub struct Removal<'a> {
    /// The address that removes.
    pub action: &'a str,
    /// The name to type.
    pub expected: &'a str,
    /// The consequences, as sentences.
    pub hint: &'a str,
    /// The text of the button.
    pub verb: &'a str,
    /// The page to return to without a removal.
    pub back: &'a str,
}

impl Removal<'_> {
    /// The form, after the reason for a refused removal.
    pub fn form(&self, problem: Option<&str>) -> Markup {
        html! {
            @if let Some(problem) = problem { p class="note bad" role="alert" { (problem) } }
            form class="card narrow stack" method="post" action=(self.action) {
                label { "Type " code { (visible(self.expected)) } input name="confirm" required autocomplete="off" spellcheck="false" data-expect=(self.expected) data-visible=[visible_form(self.expected)];
                    span class="hint" { (self.hint) } }
                div class="actions" { button class="danger" { (self.verb) } a class="button" href=(self.back) { "Cancel" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_needs_the_whole_name() {
        let check = |text: &str| Confirmation { confirm: text.to_owned() }.check("User:alice");
        assert!(check("User:alice").is_ok());
        for wrong in ["", "User:alic", "user:alice", " User:alice"] {
            let refused = check(wrong).expect_err(wrong);
            assert_eq!(refused.status.as_u16(), 400);
            assert!(refused.message.ends_with("is not User:alice."), "{}", refused.message);
        }
    }

    #[test]
    fn the_form_needs_no_script() {
        let removal = Removal {
            action: "/acls/delete?principal=User%3A%2A",
            expected: "User:*",
            hint: "All of it.",
            verb: "Delete",
            back: "/acls",
        };
        let page = removal.form(Some("Nothing was removed.")).0;
        for part in [
            "role=\"alert\">Nothing was removed.</p>",
            "method=\"post\" action=\"/acls/delete?principal=User%3A%2A\"",
            "name=\"confirm\" required",
            "data-expect=\"User:*\"",
            "<button class=\"danger\">Delete</button>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("disabled") && !page.contains("data-visible"), "{page}");
        assert!(!removal.form(None).0.contains("alert"));
    }

    #[test]
    fn a_name_with_invisible_characters_may_be_typed_as_it_is_shown() {
        let (name, shown) = ("User:ali\u{200b}ce", r"User:ali\u{200b}ce");
        for (typed, is_right) in [(name, true), (shown, true), ("User:alice", false)] {
            let confirmation = Confirmation { confirm: typed.to_owned() };
            assert_eq!(confirmation.check(name).is_ok(), is_right, "{typed:?}");
        }
        assert!(!is_name(name, shown), "the escapes of one name may be the characters of another");
        let removal = Removal { action: "/", expected: name, hint: "", verb: "Delete", back: "/" };
        let page = removal.form(None).0;
        for part in [format!("<code>{shown}</code>"), format!("data-visible=\"{shown}\"")] {
            assert!(page.contains(&part), "{part}: {page}");
        }
    }
}
