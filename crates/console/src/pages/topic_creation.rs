//! The form for a new topic, also with the settings of another topic.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::topic::path;
use crate::amounts::{self, SIZES, TIMES};
use crate::cluster::topic::{self, TopicCreation};
use crate::cluster::topic_defaults::{self, TopicDefaults};
use crate::page::{Section, Shell, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

const TITLE: &str = "Create a topic";
/// Settings that have a field, with its name.
const CLEANUP: (&str, &str) = ("cleanup.policy", "Cleanup");
const RETENTION: (&str, &str) = ("retention.ms", "Retention time");
const SIZE: (&str, &str) = ("retention.bytes", "Retention size");
/// Kafka's cleanup policies, with their meaning.
const POLICIES: [(&str, &str); 3] = [
    ("delete", "delete old messages"),
    ("compact", "compact: keep the newest message of each key"),
    ("compact,delete", "compact, and delete old messages"),
];

/// The topic whose settings fill the form.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct TemplateQuery {
    like: String,
}

/// The form for a new topic.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Creation {
    name: String,
    partitions: String,
    replicas: String,
    cleanup: String,
    retention: String,
    size: String,
    configuration: String,
    /// The topic whose settings fill the form.
    like: String,
}

/// Shows the form for a new topic.
pub async fn show(shell: Shell, Query(template): Query<TemplateQuery>) -> Response {
    let (creation, unread) = match template.like.as_str() {
        "" => (Creation::default(), None),
        like => match topic_defaults::like(shell.view(), like).await {
            Ok((creation, unread)) => (Creation::of(like, creation), unread),
            Err(problem) => return shell.answer::<Problem>(Section::Topics, TITLE, Err(problem)),
        },
    };
    let defaults = Defaults::read(&shell).await;
    let body = html! {
        @if let Some(reason) = unread {
            p class="note warn" { "The settings of " (creation.like) " are not copied, because they cannot be read: " (reason) }
        }
        (form(&creation, &defaults, None))
    };
    shell.answer::<Problem>(Section::Topics, TITLE, Ok(body))
}

/// Creates a topic.
pub async fn create(
    State(console): State<Console>,
    shell: Shell,
    Form(creation): Form<Creation>,
) -> Response {
    let created = async { topic::create(shell.view(), creation.read()?).await };
    match created.await {
        Ok(()) => {
            let note = Note::done(format!("{} was created.", creation.name.trim()));
            see_other(&console, &path(creation.name.trim()), note)
        }
        Err(problem) => {
            let form = form(&creation, &Defaults::read(&shell).await, Some(&problem.message));
            shell.answer_again(Section::Topics, TITLE, &problem, &form)
        }
    }
}

impl Creation {
    /// The form with the partitions, replicas and settings of a topic.
    fn of(like: &str, template: TopicCreation) -> Creation {
        let mut rest = template.configuration;
        let mut amount = |(setting, _): (&str, &str)| {
            let typed = amounts::typed(setting, rest.get(setting)?)?;
            rest.remove(setting);
            Some(typed)
        };
        let (retention, size) = (amount(RETENTION), amount(SIZE));
        let policy = rest.get(CLEANUP.0).map(|policy| sorted(policy));
        let cleanup = policy.filter(|policy| POLICIES.iter().any(|(known, _)| known == policy));
        if cleanup.is_some() {
            rest.remove(CLEANUP.0);
        }
        Creation {
            name: String::new(),
            partitions: template.partitions.map(|count| count.to_string()).unwrap_or_default(),
            replicas: template.replicas.map(|count| count.to_string()).unwrap_or_default(),
            cleanup: cleanup.unwrap_or_default(),
            retention: retention.unwrap_or_default(),
            size: size.unwrap_or_default(),
            configuration: rest.iter().map(|(name, value)| format!("{name}={value}\n")).collect(),
            like: like.to_owned(),
        }
    }

    fn read(&self) -> Result<TopicCreation, Problem> {
        let number = |name: &str, text: &str| match text.trim() {
            "" => Ok(None),
            text => {
                let parsed = text.parse::<i32>();
                parsed.map(Some).map_err(|_| Problem::wrong(format!("{name}: {text:?} is not a number")))
            }
        };
        let replicas = number("Replicas", &self.replicas)?;
        let replicas = replicas.map(|replicas| i16::try_from(replicas).unwrap_or(i16::MAX));
        Ok(TopicCreation {
            name: self.name.trim().to_owned(),
            partitions: number("Partitions", &self.partitions)?,
            replicas,
            configuration: self.settings()?,
        })
    }

    fn settings(&self) -> Result<BTreeMap<String, String>, Problem> {
        let mut settings = BTreeMap::new();
        for line in self.configuration.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let Some((key, value)) = line.split_once('=') else {
                return Err(Problem::wrong(format!("Configuration: {line:?} is not PROPERTY=VALUE")));
            };
            settings.insert(key.trim().to_owned(), value.trim().to_owned());
        }
        let cleanup = self.cleanup.trim();
        let names = POLICIES.map(|(name, _)| name);
        Problem::unless_known(CLEANUP.1, cleanup, &names)?;
        let retention = match self.retention.trim() {
            "" => None,
            text => Some(amounts::time_ms(RETENTION.1, text)?.to_string()),
        };
        let size = match self.size.trim() {
            "" => None,
            text => Some(amounts::bytes(SIZE.1, text)?.to_string()),
        };
        let cleanup = Some(cleanup.to_owned()).filter(|cleanup| !cleanup.is_empty());
        for ((setting, field), value) in [(CLEANUP, cleanup), (RETENTION, retention), (SIZE, size)] {
            let Some(value) = value else { continue };
            if settings.insert(setting.to_owned(), value).is_some() {
                let message =
                    format!("{setting} is set twice: by the field {field:?} and under Configuration");
                return Err(Problem::wrong(message));
            }
        }
        Ok(settings)
    }
}

/// A list of policies in the order of the form's values.
fn sorted(policy: &str) -> String {
    let mut policies: Vec<&str> = policy.split(',').map(str::trim).collect();
    policies.sort_unstable();
    policies.join(",")
}

/// The defaults that the form shows, or the reason why they are unknown.
struct Defaults {
    known: TopicDefaults,
    unknown: Option<String>,
}

impl Defaults {
    async fn read(shell: &Shell) -> Defaults {
        match topic_defaults::read(shell.view()).await {
            Ok(known) => Defaults { known, unknown: None },
            Err(absence) => {
                Defaults { known: TopicDefaults::default(), unknown: Some(absence.reason().to_owned()) }
            }
        }
    }
}

/// The words for a default in an empty field.
fn default(known: Option<&String>) -> String {
    known.map_or_else(|| "the cluster's default".to_owned(), |known| format!("the default: {known}"))
}

fn form(creation: &Creation, defaults: &Defaults, problem: Option<&str>) -> Markup {
    let known = &defaults.known;
    html! {
        @if let Some(problem) = problem { p class="note bad" role="alert" { (problem) } }
        form class="card narrow stack" method="post" action="/create-topic" {
            @if !creation.like.is_empty() {
                input type="hidden" name="like" value=(creation.like);
                p class="quiet" { "With the partitions, replicas and settings of " bdi { (creation.like) } ". Its messages, groups and ACLs are not copied." }
            }
            label { "Name" input name="name" value=(creation.name) required maxlength="249" pattern="[A-Za-z0-9._\\-]+" autocapitalize="none" spellcheck="false" autofocus;
                span class="hint" { "Letters, digits, dots, underscores and hyphens." } }
            div class="row" {
                label { "Partitions" input name="partitions" value=(creation.partitions) inputmode="numeric" placeholder=(default(known.partitions.as_ref())); }
                label { "Replicas" input name="replicas" value=(creation.replicas) inputmode="numeric" placeholder=(default(known.replicas.as_ref())); }
            }
            label { (CLEANUP.1) select name="cleanup" {
                option value="" selected[creation.cleanup.is_empty()] { (default(known.cleanup.as_ref())) }
                @for (policy, words) in POLICIES { option value=(policy) selected[creation.cleanup == policy] { (words) } }
            } }
            div class="row" {
                (amount(RETENTION.1, "retention", &creation.retention, known.retention.as_ref(), &TIMES))
                (amount(SIZE.1, "size", &creation.size, known.size.as_ref(), &SIZES))
            }
            p class="hint" {
                "Old messages are deleted after the time, or when a partition is larger than the size, whichever comes first. Times in words: 36 hours, 7 days. Sizes: 500 MiB, 10 GiB, for each partition."
                @if let Some(reason) = &defaults.unknown { " The defaults of the brokers are unknown: " (reason) "." }
            }
            label { "Configuration" textarea name="configuration" placeholder="max.message.bytes=2000000" spellcheck="false" { (creation.configuration) }
                span class="hint" { "Further properties, one on each line, as PROPERTY=VALUE. What is not here has the cluster's default." } }
            div class="actions" { button class="primary" { "Create" } a class="button" href="/topics" { "Cancel" } }
        }
    }
}

/// A field for a time or a size, with suggestions.
fn amount(label: &str, name: &str, value: &str, known: Option<&String>, suggestions: &[&str]) -> Markup {
    let list = format!("{name}-suggestions");
    html! {
        label { (label) input name=(name) value=(value) list=(list) placeholder=(default(known)) autocomplete="off" spellcheck="false"; }
        datalist id=(list) { @for suggestion in suggestions { option value=(suggestion) {} } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(creation: &Creation) -> Result<BTreeMap<String, String>, String> {
        creation.settings().map_err(|problem| problem.message)
    }

    #[test]
    fn fields_in_words_become_settings() {
        let creation = Creation {
            cleanup: "compact,delete".to_owned(),
            retention: "36 hours".to_owned(),
            size: "without limit".to_owned(),
            configuration: "max.message.bytes = 2000\n\n".to_owned(),
            ..Creation::default()
        };
        let expected = [
            ("cleanup.policy", "compact,delete"),
            ("max.message.bytes", "2000"),
            ("retention.bytes", "-1"),
            ("retention.ms", "129600000"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(settings(&creation), Ok(expected.into()));
        assert_eq!(settings(&Creation::default()), Ok(BTreeMap::new()));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let field = |change: fn(&mut Creation)| {
            let mut creation = Creation::default();
            change(&mut creation);
            settings(&creation).expect_err("it is wrong")
        };
        for (message, expected) in [
            (field(|it| it.retention = "7".to_owned()), "Retention time: \"7\" is not a time:"),
            (field(|it| it.size = "7 days".to_owned()), "Retention size: \"7 days\" is not a size:"),
            (field(|it| it.cleanup = "shred".to_owned()), "Cleanup: \"shred\" is unknown: use delete,"),
            (field(|it| it.configuration = "x".to_owned()), "Configuration: \"x\" is not PROPERTY=VALUE"),
            (
                field(|it| {
                    it.retention = "7 days".to_owned();
                    it.configuration = "retention.ms=1".to_owned();
                }),
                "retention.ms is set twice: by the field \"Retention time\" and under Configuration",
            ),
        ] {
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn a_clone_has_the_same_settings() {
        let settings = [
            ("cleanup.policy", "delete,compact"),
            ("retention.ms", "129600000"),
            ("retention.bytes", "-1"),
            ("max.message.bytes", "2000"),
        ];
        let template = TopicCreation {
            name: String::new(),
            partitions: Some(6),
            replicas: Some(3),
            configuration: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        let creation = Creation { name: "copy".to_owned(), ..Creation::of("orders", template.clone()) };
        assert_eq!(creation.configuration, "max.message.bytes=2000\n");
        assert_eq!((&*creation.retention, &*creation.size), ("1 day 12 hours", "without limit"));
        let read = creation.read().map_err(|problem| problem.message).expect("it is right");
        assert_eq!((read.partitions, read.replicas), (Some(6), Some(3)));
        let mut expected = template.configuration;
        expected.insert("cleanup.policy".to_owned(), "compact,delete".to_owned());
        assert_eq!(read.configuration, expected);
    }

    #[test]
    fn the_form_shows_the_defaults_or_that_they_are_unknown() {
        let known = TopicDefaults { retention: Some("7 days".to_owned()), ..TopicDefaults::default() };
        let page = form(&Creation::default(), &Defaults { known, unknown: None }, None).0;
        for part in
            ["placeholder=\"the default: 7 days\"", "the cluster's default", "<option value=\"30 days\">"]
        {
            assert!(page.contains(part) || page.contains(&part.replace('\'', "&#39;")), "{part}: {page}");
        }
        let unknown = Some("not visible to this login".to_owned());
        let page = form(&Creation::default(), &Defaults { known: TopicDefaults::default(), unknown }, None).0;
        assert!(
            page.contains("The defaults of the brokers are unknown: not visible to this login."),
            "{page}"
        );
    }
}
