//! Resolves a text: stages by name, their settings, and the connections of streams (`joins`). All mistakes
//! that can be found before the first message are reported here, with their position.

mod joins;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Cluster;
use crate::kafka::{BOOTSTRAP, PROPERTIES};
use crate::language::{
    self, Complaint, Complaints, Element, NAME_BYTES_MAX, OptionText, ParsedDefinition, SpannedText,
    StageText, StreamText, closest,
};
use crate::module::{self, Kind, Module, OptionDefault, Settings};
use crate::reach::{Reach, Refusal};

/// Streams that can be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The streams, in text order.
    pub streams: Vec<StreamPlan>,
}

#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// The stream's name.
    pub name: Arc<str>,
    /// The part of the text that the stream runs.
    pub origin: Origin,
    /// Number of instances.
    pub instances: usize,
    /// The stream's input.
    pub input: Input,
    /// The stream's processors.
    pub processors: Vec<StagePlan>,
    /// The stream's output.
    pub output: Output,
}

/// A part of a stream in the text: the whole, unless topics separate its stages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub stream: Arc<str>,
    /// The index of the part's first stage in the stream.
    pub first: usize,
}

impl Origin {
    /// The index in the text of a stage of this part. `None` for a topic that replaces the preceding stage,
    /// whose output another part counts.
    pub fn stage(&self, place: usize) -> Option<usize> {
        match (self.first, place) {
            (0, place) => Some(place),
            (_, 0) => None,
            (first, place) => Some(first - 1 + place),
        }
    }
}

/// The input of a stream.
#[derive(Clone, Debug)]
pub enum Input {
    /// A source, as the first stage.
    Stage(StagePlan),
    /// A named destination.
    Topic(Arc<str>),
    /// The output of another stream's stage; 0 is the source.
    Tap {
        /// The index of the stream in the plan.
        stream: usize,
        /// The index of the stage in the stream.
        stage: usize,
    },
    /// The output of a stage of a stream outside this plan, while that stream runs.
    Beside {
        stream: Arc<str>,
        /// The index of the stage in the stream.
        stage: usize,
    },
}

/// The output of a stream.
#[derive(Clone, Debug)]
pub enum Output {
    /// A sink, as the last stage.
    Stage(StagePlan),
    /// A named destination.
    Topic(Arc<str>),
}

#[derive(Clone, Debug)]
pub struct StagePlan {
    /// The stage's label.
    pub label: Arc<str>,
    /// The stage's module.
    pub module: &'static Module,
    /// The stage's options.
    pub settings: Settings,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl StreamPlan {
    /// The stages that are modules, from source to sink.
    pub fn stages(&self) -> impl Iterator<Item = &StagePlan> {
        let first = match &self.input {
            Input::Stage(stage) => Some(stage),
            _ => None,
        };
        let last = match &self.output {
            Output::Stage(stage) => Some(stage),
            Output::Topic(_) => None,
        };
        first.into_iter().chain(&self.processors).chain(last)
    }

    /// The names of the stream's modules.
    pub fn modules(&self) -> impl Iterator<Item = &'static str> {
        self.stages().map(|stage| stage.module.name)
    }
}

/// The context of a hosted definition.
pub struct Surroundings<'a> {
    /// The cluster for kafka stages without an address.
    pub cluster: &'a Cluster,
    /// The labels of another stream's source and processors, which can be tapped.
    pub tappable: &'a dyn Fn(&str) -> Option<Vec<Arc<str>>>,
    /// The names of the other streams, for suggestions.
    pub names: &'a dyn Fn() -> Vec<Arc<str>>,
    /// The reason why this host refuses a stage, with the remedy; `None` if allowed.
    pub refused: &'a dyn Fn(&Module) -> Option<Refusal>,
    /// The limits of files and servers in the options of a stage.
    pub reach: &'a Reach,
}

/// Transport between named destinations and taps.
#[derive(Clone, Copy)]
enum StreamTransport<'a> {
    /// To streams of the text, in memory.
    InMemory,
    /// To topics of a cluster.
    OverTopics,
    /// Named destinations to topics of a cluster, taps to other streams of the host.
    ByHost(&'a Surroundings<'a>),
}

impl Plan {
    /// Resolves a text. `origin` is its name in error messages; `name` names its first stream if the text
    /// does not.
    pub fn read(text: &str, origin: Option<&str>, name: &str) -> Result<Plan, Complaints> {
        Plan::read_by(text, origin, name, StreamTransport::InMemory, None)
    }

    /// Resolves streams connected by topics of a cluster, which may have other readers and writers or none.
    pub fn read_over_topics(text: &str, origin: Option<&str>, name: &str) -> Result<Plan, Complaints> {
        Plan::read_by(text, origin, name, StreamTransport::OverTopics, None)
    }

    /// Resolves a text like [`Plan::read`], or with `over_topics` like [`Plan::read_over_topics`]; `kafka`
    /// stages without an address use `cluster`.
    pub fn read_for(
        cluster: &Cluster,
        text: &str,
        origin: Option<&str>,
        name: &str,
        over_topics: bool,
    ) -> Result<Plan, Complaints> {
        let joined = if over_topics { StreamTransport::OverTopics } else { StreamTransport::InMemory };
        Plan::read_by(text, origin, name, joined, Some(cluster))
    }

    /// Resolves the definition of one hosted stream.
    pub fn read_hosted(text: &str, name: &str, around: &Surroundings<'_>) -> Result<Plan, Complaints> {
        Plan::read_by(text, None, name, StreamTransport::ByHost(around), Some(around.cluster))
    }

    fn read_by(
        text: &str,
        origin: Option<&str>,
        name: &str,
        joined: StreamTransport<'_>,
        cluster: Option<&Cluster>,
    ) -> Result<Plan, Complaints> {
        let complain = |mut complaints: Vec<Complaint>| {
            complaints.sort_by_key(|complaint| complaint.span.start);
            Complaints { origin: origin.map(str::to_owned), text: text.to_owned(), complaints }
        };
        let definition = language::parse(text).map_err(complain)?;
        let mut reading = PlanReader { text, joined, cluster, complaints: Vec::new(), names: Vec::new() };
        reading.name_streams(&definition, name);
        if let StreamTransport::ByHost(_) = joined {
            reading.check_definition(&definition, name);
        }
        let streams =
            (0..).zip(&definition.streams).map(|(index, stream)| reading.stream(index, stream)).collect();
        reading
            .resolve_taps(&definition, streams)
            .and_then(|plan| {
                if let StreamTransport::InMemory = joined {
                    reading.check_topics(&definition, &plan);
                }
                reading.check_cycles(&definition, &plan);
                reading.check_standard_input(&definition, &plan);
                reading.complaints.is_empty().then_some(plan)
            })
            .ok_or_else(|| complain(reading.complaints))
    }
}

/// The labels of a definition's source and processors, which can be tapped. Empty if the text is invalid.
pub fn tappable(text: &str) -> Vec<Arc<str>> {
    let Ok(definition) = language::parse(text) else { return Vec::new() };
    let Some(stream) = definition.streams.first() else { return Vec::new() };
    let mut labels = Vec::new();
    for element in stream.elements.iter().take(stream.elements.len().saturating_sub(1)) {
        let label = match element {
            Element::Stage(stage) => label(stage, &labels),
            Element::Topic(topic) => format!("topic:{}", topic.name.text).into(),
            Element::Tap(_) => "tap".into(),
        };
        labels.push(label);
    }
    labels
}

/// Labels a stage: its label or its module, with a number if taken.
fn label(stage: &StageText, taken: &[Arc<str>]) -> Arc<str> {
    if let Some(label) = &stage.label {
        return label.text.as_str().into();
    }
    let name = stage.module.text.as_str();
    (1..)
        .map(|number| if number == 1 { name.to_owned() } else { format!("{name}-{number}") })
        .find(|label| !taken.iter().any(|taken| **taken == **label))
        .map_or_else(|| name.into(), Arc::from)
}

struct PlanReader<'a> {
    text: &'a str,
    joined: StreamTransport<'a>,
    /// The cluster of stages without an address; `None` for the default.
    cluster: Option<&'a Cluster>,
    complaints: Vec<Complaint>,
    names: Vec<Arc<str>>,
}

/// A stream whose tap is not resolved yet.
struct UnresolvedStream {
    input: Option<Input>,
    processors: Vec<StagePlan>,
    output: Option<Output>,
}

impl PlanReader<'_> {
    fn complain(&mut self, span: language::Span, message: impl Into<String>, right: impl Into<String>) {
        self.complaints.push(Complaint::new(span, message, right));
    }

    fn name_streams(&mut self, definition: &ParsedDefinition, first: &str) {
        for (index, stream) in definition.streams.iter().enumerate() {
            let name: Arc<str> = match &stream.name {
                Some(name) => name.text.as_str().into(),
                None if index == 0 => first.into(),
                None => format!("{first}-{}", index + 1).into(),
            };
            if self.names.contains(&name) {
                let span = stream.name.as_ref().map_or(stream.span.clone(), |name| name.span.clone());
                self.complain(
                    span,
                    format!("There are two streams called {name}"),
                    "Give each its own name.",
                );
            }
            self.check_length(stream.name.as_ref());
            for element in &stream.elements {
                match element {
                    Element::Stage(stage) => self.check_length(stage.label.as_ref()),
                    Element::Topic(topic) => self.check_length(Some(&topic.name)),
                    Element::Tap(_) => {}
                }
            }
            self.names.push(name);
        }
    }

    /// Limits the length of a name, which becomes part of topic and group names.
    fn check_length(&mut self, name: Option<&SpannedText>) {
        if let Some(name) = name.filter(|name| name.text.len() > NAME_BYTES_MAX) {
            let message = format!("This name has {} bytes", name.text.len());
            self.complain(name.span.clone(), message, format!("The limit is {NAME_BYTES_MAX}."));
        }
    }

    fn stream(&mut self, index: usize, stream: &StreamText) -> UnresolvedStream {
        let mut read = UnresolvedStream { input: None, processors: Vec::new(), output: None };
        let [first, middle @ .., last] = &stream.elements[..] else {
            self.only_one_element(stream);
            return read;
        };
        let mut labels = Vec::new();
        read.input = match first {
            Element::Stage(stage) => self.stage(stage, Kind::Source, &mut labels).map(Input::Stage),
            Element::Topic(topic) => Some(Input::Topic(topic.name.text.as_str().into())),
            // Resolved when all streams are known. Until then the tap points to its own stream.
            Element::Tap(_) => Some(Input::Tap { stream: index, stage: 0 }),
        };
        for element in middle {
            match element {
                Element::Stage(stage) => {
                    let stage = self.stage(stage, Kind::Processor, &mut labels);
                    read.processors.extend(stage);
                }
                other => {
                    let right = "Let this stream end there, and begin another with it: \
                                 `... | topic:NAME` and `topic:NAME > ...`.";
                    self.complain(other.span(), "A named destination can only begin or end a stream", right);
                }
            }
        }
        read.output = match last {
            Element::Stage(stage) => self.stage(stage, Kind::Sink, &mut labels).map(Output::Stage),
            Element::Topic(topic) => Some(Output::Topic(topic.name.text.as_str().into())),
            Element::Tap(tap) => {
                self.complain(
                    tap.span.clone(),
                    "A tap can only begin a stream",
                    "End the stream with a sink.",
                );
                None
            }
        };
        read
    }

    fn only_one_element(&mut self, stream: &StreamText) {
        let Some(element) = stream.elements.first() else { return };
        let right = match element {
            Element::Stage(stage) if module::find(Kind::Sink, &stage.module.text).is_some() => {
                format!("Write `SOURCE | {}`.", stage.module.text)
            }
            Element::Stage(stage) => {
                format!("Write `{} | SINK`, for example with `| log`.", stage.module.text)
            }
            Element::Topic(_) | Element::Tap(_) => "Write `... > SINK`, for example with `> log`.".to_owned(),
        };
        self.complain(element.span(), "A stream needs a source and a sink", right);
    }

    fn stage(&mut self, stage: &StageText, kind: Kind, labels: &mut Vec<Arc<str>>) -> Option<StagePlan> {
        let name = stage.module.text.as_str();
        let Some(found) = module::find(kind, name) else {
            self.no_such_stage(stage, kind);
            return None;
        };
        if let StreamTransport::ByHost(around) = self.joined
            && let Some((message, right)) = (around.refused)(found)
        {
            self.complain(stage.module.span.clone(), message, right);
            return None;
        }
        let label = label(stage, labels);
        if labels.contains(&label) {
            let span = stage.label.as_ref().map_or(stage.span.clone(), |label| label.span.clone());
            self.complain(span, format!("Two stages have the label {label}"), "Give each its own label.");
        }
        labels.push(label.clone());
        let settings = self.settings(stage, found)?;
        Some(StagePlan { label, module: found, settings })
    }

    fn no_such_stage(&mut self, stage: &StageText, kind: Kind) {
        let name = stage.module.text.as_str();
        let span = stage.module.span.clone();
        if let Some(other) = module::named(name).next() {
            let right = match other.kind() {
                Kind::Source => "A source begins a stream.",
                Kind::Processor => "A processor comes between source and sink.",
                Kind::Sink => "A sink ends a stream.",
            };
            let message =
                format!("{name} is a {}, but a {} is expected here", other.kind().name(), kind.name());
            return self.complain(span, message, right);
        }
        if let Some(unserved) = module::UNSERVED.iter().find(|unserved| unserved.name == name) {
            return self.complain(span, format!("{name} is not supported yet"), unserved.instead);
        }
        let right = match closest(name, module::of_kind(kind).map(|module| module.name)) {
            Some(meant) => format!("Did you mean {meant}?"),
            None => {
                let names: Vec<&str> = module::of_kind(kind).map(|module| module.name).collect();
                format!("Use one of {}; `thalweg stream modules` describes them.", names.join(", "))
            }
        };
        self.complain(span, format!("There is no {} {name}", kind.name()), right);
    }

    fn settings(&mut self, stage: &StageText, module: &'static Module) -> Option<Settings> {
        let before = self.complaints.len();
        let mut given: BTreeMap<&str, &OptionText> = BTreeMap::new();
        for option in &stage.options {
            let name = option.name.text.as_str();
            let whole = option.name.span.start - 2..option.value.span.end;
            if !module.options.iter().any(|known| known.name == name) {
                let right = instead_of(module, name);
                let span = option.name.span.start - 2..option.name.span.end;
                self.complain(span, format!("{} has no option --{name}", module.name), right);
            } else if given.insert(name, option).is_some() {
                self.complain(whole, format!("--{name} is given twice"), "Remove one.");
            }
            if let StreamTransport::ByHost(around) = self.joined
                && let Some((message, right)) =
                    around.reach.refusal_of_option(module.name, name, &option.value.text)
            {
                self.complain(option.value.span.clone(), message, right);
            }
        }
        for option in module.options {
            if option.default == OptionDefault::Required && !given.contains_key(option.name) {
                let message = format!("{} needs --{}", module.name, option.name);
                let right = format!("`{} --{}=...`: {}", module.name, option.name, option.summary);
                self.complain(stage.module.span.clone(), message, right);
            }
        }
        let read = Settings::read(module, |name| match (given.get(name), self.cluster) {
            (Some(option), _) => Some(option.value.text.as_str()),
            (None, Some(cluster)) if name == BOOTSTRAP.name => Some(&cluster.bootstrap),
            // Do not send the passwords of this cluster to another.
            (None, Some(cluster)) if name == PROPERTIES.name && !given.contains_key(BOOTSTRAP.name) => {
                cluster.properties.as_deref()
            }
            (None, _) => None,
        });
        match read {
            Ok(settings) => {
                if let Err(wrong) = (module.check)(&settings) {
                    let span =
                        given.get(wrong.option).map_or(&stage.module.span, |option| &option.value.span);
                    let message = format!("--{}: {}", wrong.option, wrong.message);
                    self.complain(span.clone(), message, wrong.right);
                }
                (self.complaints.len() == before).then_some(settings)
            }
            Err(wrong) => {
                for (option, wrong) in wrong {
                    let value = &given[option.name].value;
                    let message = match wrong.message {
                        Some(message) => format!("--{}: {message}", option.name),
                        None => format!("--{} cannot be {:?}", option.name, value.text),
                    };
                    let at = wrong.at.and_then(|at| self.place_in(value, at));
                    self.complain(at.unwrap_or(value.span.clone()), message, wrong.right);
                }
                None
            }
        }
    }

    /// The position in the text of a byte of a value, if the value is written literally.
    fn place_in(&self, value: &SpannedText, at: usize) -> Option<language::Span> {
        let written = self.text.get(value.span.clone())?;
        let inside = written.trim_start_matches(['\'', '"']);
        let wrong = value.text.get(at..)?.chars().next().map_or(0, char::len_utf8);
        let start = value.span.start + written.len() - inside.len() + at;
        inside.starts_with(&value.text).then_some(start..start + wrong)
    }

    /// Checks that a definition is one stream whose name matches the request.
    fn check_definition(&mut self, definition: &ParsedDefinition, name: &str) {
        if let Some(own) = definition.streams.first().and_then(|stream| stream.name.as_ref())
            && own.text != name
        {
            let message =
                format!("The definition names the stream {}, but it is created as {name}", own.text);
            self.complain(own.span.clone(), message, "Remove one of the names.");
        }
        if let Some(second) = definition.streams.get(1) {
            let right = "Create each under its own name, and connect them by named destinations and taps.";
            self.complain(second.span.clone(), "A definition is one stream", right);
        }
    }
}

/// The remedy for an option that a module lacks.
fn instead_of(module: &Module, name: &str) -> String {
    let names = || module.options.iter().map(|known| known.name);
    match (module::replacement(module.kind(), module.name, name), closest(name, names())) {
        (Some(instead), _) => instead.to_owned(),
        (None, Some(meant)) => format!("Did you mean --{meant}?"),
        (None, None) if module.options.is_empty() => format!("{} has no options.", module.name),
        (None, None) => {
            let names: Vec<String> = names().map(|name| format!("--{name}")).collect();
            format!("Use one of {}.", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
