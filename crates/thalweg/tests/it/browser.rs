//! A browser without script: pages, forms and a session.

use serde_json::Value;

use super::node::{self, Answer, FORM, Node};

/// A browser with a session, or without one.
pub struct Browser<'a> {
    node: &'a Node,
    /// The header line with the session; empty without one.
    pub session: String,
}

impl Browser<'_> {
    pub fn of(node: &Node) -> Browser<'_> {
        Browser { node, session: String::new() }
    }

    /// Logs a user in, whose password is `correct horse`.
    pub fn log_in<'a>(node: &'a Node, user: &str) -> Browser<'a> {
        let mut browser = Browser::of(node);
        let answer = browser.send("/login", &format!("user={user}&password=correct+horse"));
        browser.begin(&answer);
        browser
    }

    pub fn get(&self, path: &str) -> Answer {
        node::ask(&self.node.http, "GET", path, &self.session, "")
    }

    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.body))
    }

    pub fn send(&self, path: &str, form: &str) -> Answer {
        let headers = format!("{FORM}Origin: http://{}\r\n{}", self.node.http, self.session);
        node::ask(&self.node.http, "POST", path, &headers, form)
    }

    /// Sends a form, and follows the redirection.
    pub fn post(&self, path: &str, form: &str) -> Answer {
        let answer = self.send(path, form);
        let location = answer.head.lines().find_map(|line| line.strip_prefix("location: "));
        location.map(|location| self.get(location)).unwrap_or(answer)
    }

    /// Takes the session of a login.
    pub fn begin(&mut self, answer: &Answer) {
        let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let pair = cookie.and_then(|cookie| cookie.split(';').next()).expect("a session");
        self.session = format!("Cookie: {pair}\r\n");
    }
}
