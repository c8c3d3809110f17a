//! Removes secrets from the content of an archive.
//!
//! Three kinds of text are removed: values of settings with the name of a secret; all other occurrences of
//! these values; and texts that look like a password, a key or a token. Doubtful texts are removed, too:
//! missing text can be sent later, but a sent secret cannot be withdrawn.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};
use thalweg_client::{HIDDEN, Properties, is_secret};

/// Shorter values are not searched elsewhere: too many words contain them.
const CHARS_MIN: usize = 4;

/// The secrets seen so far.
#[derive(Default)]
pub(crate) struct Secrets {
    known: BTreeSet<String>,
}

/// The name of a secret and its value: in quotes, or up to the end of the list or line.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let name = r#"[\w.\-]*(?:password|passwd|passphrase|secret|jaas|token|credential|keystore\.key|private[_.\-]?key)[\w.\-]*"#;
    let value = r#"\\?"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'][^\n,;"']*"#;
    expression(&format!(r#"(?i)({name}\\?"?\s*[=:]\s*)(?:{value})"#))
});
/// The login of an HTTP request.
static LOGIN: LazyLock<Regex> =
    LazyLock::new(|| expression(r#"(?i)\b(basic|bearer)\s+[A-Za-z0-9+/._~\-]{6,}=*"#));
/// The login in an address.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| expression(r"(\w://)[^/\s:@]+:[^/\s@]+@"));
/// A JSON Web Token, as in OAuth.
static JWT: LazyLock<Regex> =
    LazyLock::new(|| expression(r"\beyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]*)?"));
/// A private key in PEM, on several lines or on one.
static KEY: LazyLock<Regex> = LazyLock::new(|| {
    expression(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)")
});
/// A value in quotes in a JAAS configuration, after the name of a secret.
static IN_JAAS: LazyLock<Regex> =
    LazyLock::new(|| expression(r#"(?i)\b\w*(?:password|secret|token)\w*\s*=\s*"((?:[^"\\]|\\.)*)""#));

fn expression(text: &str) -> Regex {
    Regex::new(text).expect("the expression is a constant")
}

impl Secrets {
    /// Remembers the value of a setting, if it is a secret.
    pub fn learn(&mut self, key: &str, value: &str) {
        for found in IN_JAAS.captures_iter(value) {
            self.remember(&found[1]);
        }
        // The lifetime of a token is no secret, although its name contains "token".
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        if is_secret(key) && !(is_number && key.to_ascii_lowercase().contains("token")) {
            self.remember(value);
        }
    }

    /// Remembers a secret.
    pub fn remember(&mut self, secret: &str) {
        for line in [secret].into_iter().chain(secret.lines()).map(str::trim) {
            // The value of a flag, such as `tokenauth`, is no secret.
            if line.chars().count() >= CHARS_MIN && line != "true" && line != "false" {
                self.known.insert(line.to_owned());
            }
        }
    }

    /// The settings of a properties file, sorted, without comments, which may contain old secrets.
    pub fn properties(&mut self, text: &str) -> String {
        let properties = Properties::parse(text);
        let mut shown = String::new();
        for key in properties.rest() {
            let value = properties.get(key).unwrap_or_default();
            self.learn(key, value);
            shown.push_str(&Properties::line(key, if is_secret(key) { HIDDEN } else { value }));
        }
        shown
    }

    /// A text without secrets.
    pub fn clean(&self, text: &str) -> String {
        let text = KEY.replace_all(text, HIDDEN);
        let text = NAMED.replace_all(&text, |found: &regex::Captures<'_>| format!("{}{HIDDEN}", &found[1]));
        let text = LOGIN.replace_all(&text, |found: &regex::Captures<'_>| format!("{} {HIDDEN}", &found[1]));
        let text =
            ADDRESS.replace_all(&text, |found: &regex::Captures<'_>| format!("{}{HIDDEN}@", &found[1]));
        self.without_known(&JWT.replace_all(&text, HIDDEN))
    }

    /// A text without known secrets. Longer secrets are replaced first, so that no part of a longer one
    /// remains.
    fn without_known(&self, text: &str) -> String {
        let mut known: Vec<&String> = self.known.iter().collect();
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        known.into_iter().fold(text.to_owned(), |text, secret| match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), HIDDEN),
            false => text,
        })
    }

    /// A document without secrets, in values and in names.
    pub fn clean_document(&self, document: &Value) -> Value {
        match document {
            Value::String(text) => Value::String(self.clean(text)),
            Value::Array(items) => items.iter().map(|item| self.clean_document(item)).collect(),
            Value::Object(fields) => {
                let clean = |(key, value): (&String, &Value)| {
                    let value = match value {
                        // Only a plain value below the name of a secret is a secret, not a whole structure.
                        Value::String(_) | Value::Number(_) if is_secret(key) => {
                            Value::String(HIDDEN.to_owned())
                        }
                        value => self.clean_document(value),
                    };
                    (self.without_known(key), value)
                };
                Value::Object(fields.iter().map(clean).collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_looks_like_a_secret_is_removed() {
        let secrets = Secrets::default();
        for (line, expected) in [
            ("user=alice password=PLANTED", "user=alice password=[hidden]"),
            ("password: PLANTED is wrong", "password: [hidden]"),
            ("{\"sasl.password\":\"PLANTED\",\"a\":1}", "{\"sasl.password\":[hidden],\"a\":1}"),
            (
                "required username=\"a\" password=\"PLA\\\"NTED\";",
                "required username=\"a\" password=[hidden];",
            ),
            ("SCRAM-SHA-512=[name=a,password=PLANTED]", "SCRAM-SHA-512=[name=a,password=[hidden]"),
            ("Authorization: Basic UExBTlRFRA==", "Authorization: Basic [hidden]"),
            ("http://a:PLANTED@host:1/", "http://[hidden]@host:1/"),
            ("got eyJhbGciOi.PLANTED.c2ln today", "got [hidden] today"),
            ("listener.name.x.ssl.keystore.key=PLANTED", "listener.name.x.ssl.keystore.key=[hidden]"),
            ("a -----BEGIN PRIVATE KEY-----\nPLANTED\n-----END PRIVATE KEY----- b", "a [hidden] b"),
            ("-----BEGIN EC PRIVATE KEY-----\nPLANTED", "[hidden]"),
        ] {
            assert_eq!(secrets.clean(line), expected);
        }
        let plain = "Broker 1 listens on PLAINTEXT://localhost:9092; started in 12 ms";
        assert_eq!(secrets.clean(plain), plain);
    }

    #[test]
    fn a_secret_that_was_seen_is_removed_everywhere() {
        let mut secrets = Secrets::default();
        let jaas = "org.apache.X required username=\"alice\" password=\"hunter22\" tokenauth=\"true\";";
        let shown = secrets.properties(&format!(
            "# the password was hunter21\nacks=all\nsasl.jaas.config={jaas}\nssl.key.password=letmein\n"
        ));
        assert_eq!(shown, "acks=all\nsasl.jaas.config=[hidden]\nssl.key.password=[hidden]\n");
        assert_eq!(
            secrets.clean("tried hunter22, letmein as alice: true"),
            "tried [hidden], [hidden] as alice: true"
        );
        let document =
            json!({ "letmein": ["x hunter22"], "password": "p", "token": { "id": 7 }, "tokens": 3 });
        let expected = json!({ "[hidden]": ["x [hidden]"], "password": "[hidden]", "token": { "id": 7 }, "tokens": "[hidden]" });
        assert_eq!(secrets.clean_document(&document), expected);
    }
}
