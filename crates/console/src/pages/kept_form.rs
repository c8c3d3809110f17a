//! A message that was sent after its session had ended. Its text goes through the login in the pages: the
//! login form carries the text, and the next page shows it to be sent. The console stores nothing, and sends
//! nothing without a click: another person may have logged in.

use axum::body::Body;
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use maud::{Markup, html};
use percent_encoding::percent_decode_str;

/// Maximum bytes of a text that is kept. Within the login form, it may take three times as many.
const KEPT_MAX: usize = 256 << 10;

/// The text of a form, as the browser has sent it.
pub struct KeptForm {
    /// The path that the form was sent to.
    pub path: String,
    /// The fields, URL-encoded.
    pub fields: String,
}

impl KeptForm {
    /// The form of a request, if it is one of those whose text is kept.
    pub async fn of(request: &Parts, body: Body) -> Option<KeptForm> {
        let kind = request.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let path = request.uri.path();
        if request.method != Method::POST
            || !kind.starts_with("application/x-www-form-urlencoded")
            || !is_kept(path)
        {
            return None;
        }
        let bytes = axum::body::to_bytes(body, KEPT_MAX).await.ok()?;
        let fields = String::from_utf8(bytes.to_vec()).ok()?;
        Some(KeptForm { path: path.to_owned(), fields })
    }

    /// The form that a login has carried.
    pub fn carried(path: &str, fields: Option<String>) -> Option<KeptForm> {
        let fields = fields.filter(|fields| !fields.is_empty() && is_kept(path))?;
        Some(KeptForm { path: path.to_owned(), fields })
    }

    /// The fields of the login form that carry the text.
    pub fn hidden(&self) -> Markup {
        html! {
            p class="note warn" role="status" { "Your session had ended, and the message was not sent. Its text is kept: log in, and send it from the next page." }
            input type="hidden" name="form" value=(self.fields);
        }
    }

    /// The page after the login, from which the message is sent.
    pub fn page(&self) -> Markup {
        html! {
            p class="note warn" role="status" { "The message was not sent, because your session had ended. Here is its text." }
            form class="card narrow stack" method="post" action=(self.path) {
                @for (name, value) in pairs(&self.fields) {
                    @if value.is_empty() { input type="hidden" name=(name) value=""; }
                    // Browsers drop a line end at the beginning of a text area.
                    @else { label { (label(&name)) textarea name=(name) spellcheck="false" { "\n" (value) } } }
                }
                div class="actions" { button class="primary" { "Send the message" } a class="button" href=(self.path) { "Discard it" } }
            }
        }
    }
}

/// True for the page that sends messages.
fn is_kept(path: &str) -> bool {
    let name = path.strip_prefix("/topics/").and_then(|rest| rest.strip_suffix("/messages"));
    name.is_some_and(|name| {
        !name.is_empty() && !name.contains('/') && path.bytes().all(|byte| byte.is_ascii_graphic())
    })
}

/// The name of a field with a capital letter, or that of the form of another field.
fn label(name: &str) -> String {
    if let Some(field) = name.strip_suffix("_form") {
        return format!("Form of the {field}");
    }
    let mut letters = name.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The decoded fields of a form.
fn pairs(fields: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = fields.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    async fn kept(method: &str, path: &str, body: &str) -> Option<KeptForm> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(body.to_owned()))
            .expect("a request");
        let (parts, body) = request.into_parts();
        KeptForm::of(&parts, body).await
    }

    #[tokio::test]
    async fn the_text_of_a_message_is_kept_and_shown_to_be_sent() {
        let fields = "key=k%261&partition=&value=a+%3Cb%3E%0D%0Ac";
        let form = kept("POST", "/topics/orders/messages", fields).await.expect("it is kept");
        let hidden = form.hidden().0;
        assert!(
            hidden.contains("name=\"form\" value=\"key=k%261&amp;partition=&amp;value=a+%3Cb%3E%0D%0Ac\""),
            "{hidden}"
        );
        let page = KeptForm::carried(&form.path, Some(form.fields)).expect("it is carried").page().0;
        for part in [
            "method=\"post\" action=\"/topics/orders/messages\"",
            ">Key<textarea name=\"key\" spellcheck=\"false\">\nk&amp;1</textarea>",
            "type=\"hidden\" name=\"partition\" value=\"\"",
            ">\na &lt;b&gt;\r\nc</textarea>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn fields_have_the_words_of_the_form() {
        assert_eq!((&*label("key"), &*label("value_form")), ("Key", "Form of the value"));
    }

    #[tokio::test]
    async fn other_forms_are_not_kept() {
        for (method, path) in [
            ("POST", "/users"),
            ("POST", "/topics/orders/delete"),
            ("POST", "/topics//messages"),
            ("POST", "/topics/a/b/messages"),
            ("GET", "/topics/orders/messages"),
        ] {
            assert!(kept(method, path, "a=b").await.is_none(), "{method} {path}");
        }
        let large = "x".repeat(KEPT_MAX + 1);
        assert!(kept("POST", "/topics/orders/messages", &large).await.is_none());
        for elsewhere in
            ["//evil.example/topics/a/messages", "https://evil.example", "/users", "/topics/a\n/messages"]
        {
            assert!(KeptForm::carried(elsewhere, Some("a=b".to_owned())).is_none(), "{elsewhere}");
        }
    }
}
