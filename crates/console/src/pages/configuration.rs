//! A configuration as a table with an edit form for one value. Topics and brokers share this table.

use maud::{Markup, html};
use serde::Deserialize;

use crate::cluster::configs::{ConfigChanges, ConfigLine, ConfigSource};
use crate::page::{encode, or_dash};
use crate::units;

/// Filter of the table, and the edited property.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ConfigTableQuery {
    /// A substring of the property names.
    pub filter: String,
    /// `set` restricts the table to values set on this resource.
    pub only: String,
    /// The edited property.
    pub edit: String,
}

/// The form for one value.
#[derive(Deserialize)]
pub struct Change {
    name: String,
    value: Option<String>,
    /// `set` or `reset`.
    action: String,
}

impl Change {
    /// The change as a request to the cluster.
    pub fn changes(self) -> ConfigChanges {
        let mut changes = ConfigChanges::default();
        match self.action.as_str() {
            "reset" => changes.reset.push(self.name),
            _ => drop(changes.set.insert(self.name, self.value.unwrap_or_default())),
        }
        changes
    }

    /// The note after the change.
    pub fn words(&self) -> String {
        match self.action.as_str() {
            "reset" => format!("{} has its default again.", self.name),
            _ => format!("{} was changed.", self.name),
        }
    }
}

/// The table. `path` is the address of the page and of its form.
pub fn table(path: &str, lines: &[ConfigLine], shown: &ConfigTableQuery, may_change: bool) -> Markup {
    let filter = shown.filter.trim().to_lowercase();
    let matches = |line: &&ConfigLine| {
        (shown.only != "set" || line.is_set)
            && (filter.is_empty() || line.name.to_lowercase().contains(&filter))
    };
    let mut matched: Vec<&ConfigLine> = lines.iter().filter(matches).collect();
    // The lines are sorted by name, and the sort is stable.
    matched.sort_by_key(|line| rank(line));
    html! {
        form class="filter" method="get" action=(path) role="search" {
            label { "Property" input type="search" name="filter" value=(shown.filter) placeholder="a part of its name"; }
            label class="check" { input type="checkbox" name="only" value="set" checked[shown.only == "set"]; "Only what is set here" }
            button { "Show" }
        }
        div class="table" tabindex="0" role="region" aria-label="Configuration" {
            table {
                thead { tr {
                    th scope="col" { "Property" } th scope="col" { "Value" } th scope="col" { "Source" } th scope="col" { "Default" }
                    @if may_change { th scope="col" class="actions" { "Change" } }
                } }
                tbody {
                    @for line in matched {
                        tr id=(format!("property-{}", line.name)) {
                            th scope="row" {
                                code { (line.name) }
                                @if let Some(mark) = mark(line) { " " span class="badge warn" { (mark) } }
                                @if let Some(documentation) = &line.documentation {
                                    details { summary class="quiet" { "What it means" } p { (plain(documentation)) } }
                                }
                            }
                            td class="value" {
                                @if may_change && shown.edit == line.name { (form(path, line)) } @else { (value(line)) }
                            }
                            td { @if line.is_set { span class="badge good" { (line.source.words()) } } @else { span class="quiet" { (line.source.words()) } } }
                            td class="value" { (default(line)) }
                            @if may_change { td class="actions" { (actions(path, line)) } }
                        }
                    }
                }
            }
        }
    }
}

/// The place of a property: values that are set on this resource come first, then values from a broker's
/// settings, then defaults.
fn rank(line: &ConfigLine) -> u8 {
    match (line.is_set, line.source) {
        (true, _) => 0,
        (false, ConfigSource::Default) => 2,
        (false, _) => 1,
    }
}

/// The mark of a value that is set on this resource.
fn mark(line: &ConfigLine) -> Option<&'static str> {
    line.is_set.then_some(match &line.default {
        Some(_) if line.value == line.default => "set, as the default",
        Some(_) => "differs from the default",
        None => "set",
    })
}

fn value(line: &ConfigLine) -> Markup {
    html! {
        @match &line.value {
            Some(value) if value.is_empty() => span class="quiet" { "empty" },
            Some(value) => { (value) (words(&line.name, value)) },
            None if line.is_sensitive => span class="quiet" { "hidden" },
            None => span class="quiet" { "not set" },
        }
    }
}

/// The default, which may be that of another property, named after the value in parentheses.
fn default(line: &ConfigLine) -> Markup {
    let Some(text) = &line.default else { return or_dash(None) };
    let named = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("));
    let (value, name) = named.unwrap_or((text, &line.name));
    html! { (text) (words(name, value)) }
}

/// The value of a setting in words, where its unit makes it hard to read.
fn words(name: &str, value: &str) -> Markup {
    html! { @if let Some(words) = units::in_words(name, value) { " " span class="quiet" { "= " (words) } } }
}

fn actions(path: &str, line: &ConfigLine) -> Markup {
    html! {
        @if line.is_read_only {
            span class="quiet" { "needs a restart" }
        } @else {
            a href=(format!("{path}?edit={}#property-{}", encode(&line.name), encode(&line.name))) aria-label=(format!("Change {}", line.name)) { "Change" }
        }
    }
}

fn form(path: &str, line: &ConfigLine) -> Markup {
    html! {
        form method="post" action=(path) {
            input type="hidden" name="name" value=(line.name);
            input name="value" value=(line.value.as_deref().unwrap_or_default()) aria-label=(format!("New value of {}", line.name)) autofocus;
            @if let Some(value) = &line.value { (words(&line.name, value)) }
            button class="primary small" name="action" value="set" { "Set" }
            @if line.is_set { button class="small" name="action" value="reset" { "Reset to the default" } }
            a href=(path) { "Cancel" }
        }
    }
}

/// Documentation without HTML tags, which Apache Kafka includes.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        plain.push_str(before);
        let is_tag = tag[1..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
        match tag.find('>').filter(|_| is_tag) {
            Some(end) => rest = &tag[end + 1..],
            None => {
                plain.push('<');
                rest = &tag[1..];
            }
        }
    }
    plain.push_str(rest);
    plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("&nbsp;", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_is_plain_text() {
        assert_eq!(plain("Use <code>a</code>, <ul><li>b &lt; c</li></ul>1 < 2 <"), "Use a, b < c1 < 2 <");
    }

    #[test]
    fn values_and_defaults_have_their_words_beside_them() {
        let line = ConfigLine {
            name: "retention.ms".to_owned(),
            value: Some("86400000".to_owned()),
            default: Some("168 (log.retention.hours)".to_owned()),
            source: ConfigSource::Topic,
            is_set: true,
            is_read_only: false,
            is_sensitive: false,
            documentation: None,
        };
        let page = |edit: &str| {
            let shown = ConfigTableQuery { edit: edit.to_owned(), ..ConfigTableQuery::default() };
            table("/topics/t/configuration", std::slice::from_ref(&line), &shown, true).0
        };
        assert!(page("").contains(r#"86400000 <span class="quiet">= 1 day</span>"#), "{}", page(""));
        assert!(page("").contains(r#"168 (log.retention.hours) <span class="quiet">= 7 days</span>"#));
        let edited = page("retention.ms");
        assert!(edited.contains(r#"value="86400000""#) && edited.contains("= 1 day</span>"), "{edited}");
    }

    #[test]
    fn a_value_differs_from_a_known_default_only() {
        let mark = |default: Option<&str>| {
            mark(&ConfigLine {
                name: "min.insync.replicas".to_owned(),
                value: Some("1".to_owned()),
                default: default.map(str::to_owned),
                source: ConfigSource::BrokerDefault,
                is_set: true,
                is_read_only: false,
                is_sensitive: false,
                documentation: None,
            })
        };
        assert_eq!(mark(None), Some("set"));
        assert_eq!(mark(Some("1")), Some("set, as the default"));
        assert_eq!(mark(Some("2")), Some("differs from the default"));
    }

    #[test]
    fn values_that_differ_come_first_and_are_marked() {
        let line = |name: &str, source, is_set, value: &str| ConfigLine {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            default: Some("1".to_owned()),
            source,
            is_set,
            is_read_only: false,
            is_sensitive: false,
            documentation: None,
        };
        let lines = [
            line("a.default", ConfigSource::Default, false, "1"),
            line("b.of.the.broker", ConfigSource::PropertiesFile, false, "5"),
            line("c.set", ConfigSource::Topic, true, "7"),
            line("d.set.as.default", ConfigSource::Topic, true, "1"),
        ];
        let page = table("/topics/t/configuration", &lines, &ConfigTableQuery::default(), true).0;
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        let names = ["c.set</code>", "d.set.as.default</code>", "b.of.the.broker</code>", "a.default</code>"];
        assert!(names.map(at).is_sorted(), "{page}");
        assert!(
            page.contains("c.set</code> <span class=\"badge warn\">differs from the default</span>"),
            "{page}"
        );
        assert!(
            page.contains("d.set.as.default</code> <span class=\"badge warn\">set, as the default</span>"),
            "{page}"
        );
        assert_eq!(page.matches("badge warn").count(), 2);
    }
}
