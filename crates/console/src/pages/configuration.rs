//! A configuration as a table with an edit form for one value. Topics and brokers share this table.

use maud::{Markup, html};
use serde::Deserialize;

use crate::cluster::configs::{ConfigChanges, ConfigLine};
use crate::page::{encode, or_dash};

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
    let matched: Vec<&ConfigLine> = lines.iter().filter(matches).collect();
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
                                @if let Some(documentation) = &line.documentation {
                                    details { summary class="quiet" { "What it means" } p { (plain(documentation)) } }
                                }
                            }
                            td class="value" {
                                @if may_change && shown.edit == line.name { (form(path, line)) } @else { (value(line)) }
                            }
                            td { @if line.is_set { span class="badge good" { (line.source.words()) } } @else { span class="quiet" { (line.source.words()) } } }
                            td class="value" { (or_dash(line.default.clone())) }
                            @if may_change { td class="actions" { (actions(path, line)) } }
                        }
                    }
                }
            }
        }
    }
}

fn value(line: &ConfigLine) -> Markup {
    html! {
        @match &line.value {
            Some(value) if value.is_empty() => span class="quiet" { "empty" },
            Some(value) => (value),
            None if line.is_sensitive => span class="quiet" { "hidden" },
            None => span class="quiet" { "not set" },
        }
    }
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
}
