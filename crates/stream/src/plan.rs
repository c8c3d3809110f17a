//! From a text to what is to be run: which stage each word is, its settings, and how streams are joined. All that can be wrong
//! before the first message is found here, and told with its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Cluster;
use crate::kafka::{BOOTSTRAP, PROPERTIES};
use crate::language::{
    self, Complaint, Complaints, Definition, Element, NAME_BYTES_MAX, OptionText, Spanned, StageText,
    StreamText, TapText, TopicText, closest,
};
use crate::module::{self, Absent, Kind, Module, Settings};

/// Streams that can be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order of the text.
    pub streams: Vec<StreamPlan>,
}

/// One stream.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// Its name.
    pub name: Arc<str>,
    /// What it is of the text.
    pub origin: Origin,
    /// How many of it run at the same time.
    pub instances: usize,
    /// Where its messages come from.
    pub input: Input,
    /// What works on them.
    pub processors: Vec<StagePlan>,
    /// Where they go.
    pub output: Output,
}

/// Which part of which stream of the text: all of it, unless topics lie between its stages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The stream.
    pub stream: Arc<str>,
    /// The place of its first stage in the stream.
    pub first: usize,
}

impl Origin {
    /// The place in the text of what a stage of this part lets go of. None of a topic that stands in for the stage before:
    /// that one has let go of it already.
    pub fn stage(&self, place: usize) -> Option<usize> {
        match (self.first, place) {
            (0, place) => Some(place),
            (_, 0) => None,
            (first, place) => Some(first - 1 + place),
        }
    }
}

/// Where the messages of a stream come from.
#[derive(Clone, Debug)]
pub enum Input {
    /// A source.
    Stage(StagePlan),
    /// What other streams write to a named destination.
    Topic(Arc<str>),
    /// What leaves a stage of another stream: 0 is its source.
    Tap {
        /// The place of the stream in the plan.
        stream: usize,
        /// The place of the stage in the stream.
        stage: usize,
    },
    /// What leaves a stage of a stream that runs beside this plan, whenever it runs.
    Beside {
        /// The stream.
        stream: Arc<str>,
        /// The place of the stage in the stream.
        stage: usize,
    },
}

/// Where the messages of a stream go.
#[derive(Clone, Debug)]
pub enum Output {
    /// A sink.
    Stage(StagePlan),
    /// A named destination.
    Topic(Arc<str>),
}

/// One stage.
#[derive(Clone, Debug)]
pub struct StagePlan {
    /// What it is called in its stream.
    pub label: Arc<str>,
    /// What it is.
    pub module: &'static Module,
    /// Its options.
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

    /// The names of its modules.
    pub fn modules(&self) -> impl Iterator<Item = &'static str> {
        self.stages().map(|stage| stage.module.name)
    }
}

/// What a definition that is hosted finds around it.
pub struct Surroundings<'a> {
    /// The cluster of kafka stages that name no other.
    pub cluster: &'a Cluster,
    /// What can be tapped of the other streams: the labels of source and processors.
    pub tappable: &'a dyn Fn(&str) -> Option<Vec<Arc<str>>>,
    /// The names of the other streams, to tell what may have been meant.
    pub names: &'a dyn Fn() -> Vec<Arc<str>>,
    /// Why a stage is not allowed here, if it is not: what is wrong, and what would be right.
    pub refused: &'a dyn Fn(&Module) -> Option<(String, String)>,
}

/// Where named destinations and taps lead.
#[derive(Clone, Copy)]
enum Joined<'a> {
    /// To the streams of the text, in memory.
    InMemory,
    /// To topics of a cluster.
    OverTopics,
    /// Named destinations to topics of a cluster, taps to other streams of the host.
    ByHost(&'a Surroundings<'a>),
}

impl Plan {
    /// Reads a text. `origin` is what it is called in complaints, `name` what its first stream is called if the text does not
    /// say.
    pub fn read(text: &str, origin: Option<&str>, name: &str) -> Result<Plan, Complaints> {
        Plan::read_by(text, origin, name, Joined::InMemory)
    }

    /// The same, for streams that are joined by topics of a cluster: these keep what nobody reads, and others may write them.
    pub fn read_over_topics(text: &str, origin: Option<&str>, name: &str) -> Result<Plan, Complaints> {
        Plan::read_by(text, origin, name, Joined::OverTopics)
    }

    /// Reads the definition of one stream, which is hosted among others under a name.
    pub fn read_hosted(text: &str, name: &str, around: &Surroundings<'_>) -> Result<Plan, Complaints> {
        Plan::read_by(text, None, name, Joined::ByHost(around))
    }

    fn read_by(text: &str, origin: Option<&str>, name: &str, joined: Joined<'_>) -> Result<Plan, Complaints> {
        let complain = |mut complaints: Vec<Complaint>| {
            complaints.sort_by_key(|complaint| complaint.span.start);
            Complaints { origin: origin.map(str::to_owned), text: text.to_owned(), complaints }
        };
        let definition = language::parse(text).map_err(complain)?;
        let mut reading = Reading { joined, complaints: Vec::new(), names: Vec::new() };
        reading.name_streams(&definition, name);
        if let Joined::ByHost(_) = joined {
            reading.check_definition(&definition, name);
        }
        let streams =
            (0..).zip(&definition.streams).map(|(index, stream)| reading.stream(index, stream)).collect();
        reading
            .resolve_taps(&definition, streams)
            .and_then(|plan| {
                if let Joined::InMemory = joined {
                    reading.check_topics(&definition, &plan);
                }
                reading.check_cycles(&definition, &plan);
                reading.check_standard_input(&definition, &plan);
                reading.complaints.is_empty().then_some(plan)
            })
            .ok_or_else(|| complain(reading.complaints))
    }
}

/// The labels of what can be tapped of a definition: its source and its processors. Empty where the text is wrong.
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

/// What a stage is called: by its label, else by its module, with a number where that is taken.
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

struct Reading<'a> {
    joined: Joined<'a>,
    complaints: Vec<Complaint>,
    names: Vec<Arc<str>>,
}

/// A stream whose tap is not looked up yet.
struct Read {
    input: Option<Input>,
    processors: Vec<StagePlan>,
    output: Option<Output>,
}

impl Reading<'_> {
    fn complain(&mut self, span: language::Span, message: impl Into<String>, right: impl Into<String>) {
        self.complaints.push(Complaint::new(span, message, right));
    }

    fn name_streams(&mut self, definition: &Definition, first: &str) {
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
                    "Each needs a name of its own.",
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

    /// Names become parts of names of topics and groups, which have a bound.
    fn check_length(&mut self, name: Option<&Spanned>) {
        if let Some(name) = name.filter(|name| name.text.len() > NAME_BYTES_MAX) {
            let message = format!("This name has {} letters", name.text.len());
            self.complain(name.span.clone(), message, format!("At most {NAME_BYTES_MAX} would be right."));
        }
    }

    fn stream(&mut self, index: usize, stream: &StreamText) -> Read {
        let mut read = Read { input: None, processors: Vec::new(), output: None };
        let [first, middle @ .., last] = &stream.elements[..] else {
            self.only_one_element(stream);
            return read;
        };
        let mut labels = Vec::new();
        read.input = match first {
            Element::Stage(stage) => self.stage(stage, Kind::Source, &mut labels).map(Input::Stage),
            Element::Topic(topic) => Some(Input::Topic(topic.name.text.as_str().into())),
            // Looked up when all streams are known; until then it is a tap of the stream itself.
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
                    self.complain(other.span(), "A named destination stands at an end of a stream", right);
                }
            }
        }
        read.output = match last {
            Element::Stage(stage) => self.stage(stage, Kind::Sink, &mut labels).map(Output::Stage),
            Element::Topic(topic) => Some(Output::Topic(topic.name.text.as_str().into())),
            Element::Tap(tap) => {
                self.complain(
                    tap.span.clone(),
                    "A tap is where a stream begins",
                    "A sink would be right here.",
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
                format!("`SOURCE | {}` would be right.", stage.module.text)
            }
            Element::Stage(stage) => {
                format!("`{} | SINK` would be right, such as `| log`.", stage.module.text)
            }
            Element::Topic(_) | Element::Tap(_) => "`... > SINK` would be right, such as `> log`.".to_owned(),
        };
        self.complain(element.span(), "A stream needs a source and a sink", right);
    }

    fn stage(&mut self, stage: &StageText, kind: Kind, labels: &mut Vec<Arc<str>>) -> Option<StagePlan> {
        let name = stage.module.text.as_str();
        let Some(found) = module::find(kind, name) else {
            self.no_such_stage(stage, kind);
            return None;
        };
        if let Joined::ByHost(around) = self.joined
            && let Some((message, right)) = (around.refused)(found)
        {
            self.complain(stage.module.span.clone(), message, right);
            return None;
        }
        let label = label(stage, labels);
        if labels.contains(&label) {
            let span = stage.label.as_ref().map_or(stage.span.clone(), |label| label.span.clone());
            self.complain(span, format!("Two stages have the label {label}"), "Each needs one of its own.");
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
                Kind::Source => "A source stands where a stream begins.",
                Kind::Processor => "A processor stands between a source and a sink.",
                Kind::Sink => "A sink stands where a stream ends.",
            };
            let message = format!("{name} is a {}, and a {} belongs here", other.kind().name(), kind.name());
            return self.complain(span, message, right);
        }
        if let Some(unserved) = module::UNSERVED.iter().find(|unserved| unserved.name == name) {
            return self.complain(span, format!("{name} is not served yet"), unserved.instead);
        }
        let right = match closest(name, module::of_kind(kind).map(|module| module.name)) {
            Some(meant) => format!("{meant} would be right."),
            None => {
                let names: Vec<&str> = module::of_kind(kind).map(|module| module.name).collect();
                format!("{} would be right: thalweg stream modules says what they do.", names.join(", "))
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
                let names = || module.options.iter().map(|known| known.name);
                let right = match closest(name, names()) {
                    Some(meant) => format!("--{meant} would be right."),
                    None if module.options.is_empty() => format!("{} has no options.", module.name),
                    None => {
                        let names: Vec<String> = names().map(|name| format!("--{name}")).collect();
                        format!("{} would be right.", names.join(", "))
                    }
                };
                let span = option.name.span.start - 2..option.name.span.end;
                self.complain(span, format!("{} has no option --{name}", module.name), right);
            } else if given.insert(name, option).is_some() {
                self.complain(whole, format!("--{name} is given twice"), "Leave one out.");
            }
        }
        for option in module.options {
            if option.default == Absent::Required && !given.contains_key(option.name) {
                let message = format!("{} needs --{}", module.name, option.name);
                let right = format!("`{} --{}=...`: {}", module.name, option.name, option.summary);
                self.complain(stage.module.span.clone(), message, right);
            }
        }
        let joined = self.joined;
        let read = Settings::read(module, |name| match (given.get(name), joined) {
            (Some(option), _) => Some(option.value.text.as_str()),
            (None, Joined::ByHost(around)) if name == BOOTSTRAP.name => Some(&around.cluster.bootstrap),
            // A stage that names another cluster is not to tell it the passwords of this one.
            (None, Joined::ByHost(around))
                if name == PROPERTIES.name && !given.contains_key(BOOTSTRAP.name) =>
            {
                around.cluster.properties.as_deref()
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
                    self.complain(value.span.clone(), message, wrong.right);
                }
                None
            }
        }
    }

    fn resolve_taps(&mut self, definition: &Definition, streams: Vec<Read>) -> Option<Plan> {
        let mut taps = Vec::new();
        for (index, stream) in definition.streams.iter().enumerate() {
            if let Some(Element::Tap(tap)) = stream.elements.first() {
                taps.push((index, self.tapped(tap, &streams)));
            }
        }
        if !self.complaints.is_empty() {
            return None;
        }
        let streams = streams.into_iter().zip(&self.names).enumerate().map(|(index, (read, name))| {
            let tap = taps.iter_mut().find(|(tapping, _)| *tapping == index).and_then(|(_, tap)| tap.take());
            Some(StreamPlan {
                name: name.clone(),
                origin: Origin { stream: name.clone(), first: 0 },
                instances: 1,
                input: tap.or(read.input)?,
                processors: read.processors,
                output: read.output?,
            })
        });
        Some(Plan { streams: streams.collect::<Option<_>>()? })
    }

    /// The stream and the stage that a tap listens to.
    fn tapped(&mut self, tap: &TapText, streams: &[Read]) -> Option<Input> {
        let name = tap.stream.text.as_str();
        let Some(stream) = self.names.iter().position(|known| **known == *name) else {
            if let Joined::ByHost(around) = self.joined {
                return self.tapped_beside(tap, around);
            }
            self.no_such_stream(tap, &self.names.clone());
            return None;
        };
        let Some(label) = &tap.label else { return Some(Input::Tap { stream, stage: 0 }) };
        let source = match &streams[stream].input {
            Some(Input::Stage(stage)) => Some(&stage.label),
            _ => None,
        };
        let tappable = source.into_iter().map(|label| (0, label));
        let tappable = tappable.chain((1..).zip(streams[stream].processors.iter().map(|stage| &stage.label)));
        let tappable: Vec<(usize, Arc<str>)> =
            tappable.map(|(place, label)| (place, label.clone())).collect();
        let found = tappable.iter().find(|(_, known)| **known == *label.text);
        let found = found.map(|(place, _)| Input::Tap { stream, stage: *place });
        if found.is_none() {
            let names: Vec<&str> = tappable.iter().map(|(_, label)| &**label).collect();
            self.no_such_label(name, label, &names);
        }
        found
    }

    /// The same, for a tap of another stream of the host.
    fn tapped_beside(&mut self, tap: &TapText, around: &Surroundings<'_>) -> Option<Input> {
        let name = tap.stream.text.as_str();
        let Some(labels) = (around.tappable)(name) else {
            self.no_such_stream(tap, &(around.names)());
            return None;
        };
        let stage = match &tap.label {
            None => Some(0),
            Some(label) => labels.iter().position(|known| **known == *label.text),
        };
        match (stage, &tap.label) {
            (None, Some(label)) => {
                let names: Vec<&str> = labels.iter().map(|label| &**label).collect();
                self.no_such_label(name, label, &names);
                None
            }
            (stage, _) => Some(Input::Beside { stream: name.into(), stage: stage.unwrap_or(0) }),
        }
    }

    fn no_such_stream(&mut self, tap: &TapText, names: &[Arc<str>]) {
        let name = tap.stream.text.as_str();
        let right = match closest(name, names.iter().map(|name| &**name)) {
            Some(meant) => format!("tap:stream:{meant} would be right."),
            None if names.is_empty() => "There is no other stream here: create it first.".to_owned(),
            None => format!("There are {}.", names.join(", ")),
        };
        self.complain(tap.stream.span.clone(), format!("There is no stream {name}"), right);
    }

    fn no_such_label(&mut self, stream: &str, label: &Spanned, names: &[&str]) {
        let right = match closest(&label.text, names.iter().copied()) {
            Some(meant) => format!("tap:stream:{stream}.{meant} would be right."),
            None => format!("What leaves these can be tapped: {}.", names.join(", ")),
        };
        let message = format!("The stream {stream} has no stage {} that messages leave", label.text);
        self.complain(label.span.clone(), message, right);
    }

    /// A definition is one stream, and has the name that it is created under.
    fn check_definition(&mut self, definition: &Definition, name: &str) {
        if let Some(own) = definition.streams.first().and_then(|stream| stream.name.as_ref())
            && own.text != name
        {
            let message = format!("This names the stream {}, and it is created as {name}", own.text);
            self.complain(own.span.clone(), message, "Leave one of the names out.");
        }
        if let Some(second) = definition.streams.get(1) {
            let right = "Create each under a name of its own: named destinations and taps join them.";
            self.complain(second.span.clone(), "A definition is one stream", right);
        }
    }

    /// In memory, a topic that is only written keeps nothing, and one that is only read never has anything.
    fn check_topics(&mut self, definition: &Definition, plan: &Plan) {
        let topics = |read: bool| {
            definition.streams.iter().filter_map(move |stream| {
                let element = if read { stream.elements.first() } else { stream.elements.last() };
                match element {
                    Some(Element::Topic(topic)) => Some(topic),
                    _ => None,
                }
            })
        };
        let is_read =
            |topic: &TopicText| plan.streams.iter().any(|s| s.input.topic() == Some(&topic.name.text));
        let is_written =
            |topic: &TopicText| plan.streams.iter().any(|s| s.output.topic() == Some(&topic.name.text));
        for topic in topics(true).filter(|topic| !is_written(topic)) {
            let name = &topic.name.text;
            let right = format!("`... | topic:{name}` in another stream would be right. {ONLY_HERE}");
            self.complain(topic.span.clone(), format!("No stream of this text writes topic:{name}"), right);
        }
        for topic in topics(false).filter(|topic| !is_read(topic)) {
            let name = &topic.name.text;
            let right = format!("`topic:{name} > ...` in another stream would be right. {ONLY_HERE}");
            self.complain(topic.span.clone(), format!("No stream of this text reads topic:{name}"), right);
        }
    }

    /// There is one standard input: two streams would each have some of it.
    fn check_standard_input(&mut self, definition: &Definition, plan: &Plan) {
        let reads =
            |stream: &StreamPlan| matches!(&stream.input, Input::Stage(s) if s.module.name == "stdin");
        let readers = plan.streams.iter().zip(&definition.streams).filter(|(stream, _)| reads(stream));
        for (_, text) in readers.skip(1) {
            let right = "`stdin | topic:NAME`, and `topic:NAME > ...` as often as wanted, would be right.";
            self.complain(text.span.clone(), "Standard input is read by one stream already", right);
        }
    }

    /// Streams that feed themselves, over however many others, would wait for themselves.
    fn check_cycles(&mut self, definition: &Definition, plan: &Plan) {
        let feeds = |from: usize, to: usize| match &plan.streams[to].input {
            Input::Topic(topic) => plan.streams[from].output.topic() == Some(topic),
            Input::Tap { stream, .. } => *stream == from,
            Input::Stage(_) | Input::Beside { .. } => false,
        };
        let count = plan.streams.len();
        for start in 0..count {
            let mut reached = vec![false; count];
            let mut next = vec![start];
            while let Some(from) = next.pop() {
                for (to, is_reached) in reached.iter_mut().enumerate() {
                    if feeds(from, to) && !std::mem::replace(is_reached, true) {
                        next.push(to);
                    }
                }
            }
            if reached[start] {
                let message = format!("The stream {} is fed by itself", plan.streams[start].name);
                let right = "Let one of the streams on the way end elsewhere.";
                self.complain(definition.streams[start].span.clone(), message, right);
                return;
            }
        }
    }
}

const ONLY_HERE: &str = "In memory, named destinations join the streams of one text; with --transport=kafka they are topics of a cluster.";

impl Input {
    fn topic(&self) -> Option<&str> {
        match self {
            Input::Topic(name) => Some(name),
            _ => None,
        }
    }
}

impl Output {
    fn topic(&self) -> Option<&str> {
        match self {
            Output::Topic(name) => Some(name),
            Output::Stage(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> String {
        let complaints = Plan::read(text, None, "stream").err();
        complaints.unwrap_or_else(|| panic!("{text} is taken for sound")).to_string()
    }

    #[test]
    fn labels_are_names_of_modules_until_these_repeat() {
        let text = "a = time | filter --expression=true | out: filter --expression=true | filter --expression=true | log";
        let plan = Plan::read(text, None, "stream").unwrap_or_else(|error| panic!("{error}"));
        let labels: Vec<&str> = plan.streams[0].stages().map(|stage| &*stage.label).collect();
        assert_eq!(labels, ["time", "filter", "out", "filter-2", "log"]);
    }

    #[test]
    fn taps_and_topics_join_streams() {
        let text = "a = time | x: filter --expression=true | topic:t\n\
                    topic:t > log\ntap:stream:a > counter\ntap:stream:a.x > null";
        let plan = Plan::read(text, None, "stream").unwrap_or_else(|error| panic!("{error}"));
        let inputs: Vec<String> =
            plan.streams.iter().skip(1).map(|stream| format!("{:?}", stream.input)).collect();
        assert_eq!(inputs, ["Topic(\"t\")", "Tap { stream: 0, stage: 0 }", "Tap { stream: 0, stage: 1 }"]);
        let names: Vec<&str> = plan.streams.iter().map(|stream| &*stream.name).collect();
        assert_eq!(names, ["a", "stream-2", "stream-3", "stream-4"]);
    }

    #[test]
    fn options_that_do_not_go_together_are_told() {
        for (text, message, right) in [
            ("time --format=%Q | log", "--format cannot be \"%Q\"", "directives of strftime"),
            ("kafka --topics=a,,b | null", "--topics cannot be", "Names of topics"),
            ("time | kafka --topic='a b'", "--topic cannot be", "letters, digits"),
            ("kafka --topics=t --group=g --partitions=1 | null", "share all partitions", "leave out --group"),
            ("kafka --topics=t --group=g --untilEnd=true | null", "does not know which", "leave out --group"),
            ("kafka --topics=t --group=g --from=offset:3 | null", "where it left off", "earliest or latest"),
            (
                "kafka --topics=t --partitions=1 --from=offset:0=3 | null",
                "Partition 0 is not among",
                "Name it",
            ),
            ("time | kafka --topic=t --linger=1h --deliveryTimeout=2h", "no longer than 15", "15m"),
            ("time | kafka --topic=t --linger=5m --deliveryTimeout=1m", "time left", "More than --linger"),
            ("time | kafka --topic=t --buffer=1", "no buffer for a producer", "1MiB"),
            ("file --path=x --from=end | null", "Only a file that is followed", "--mode=follow"),
            ("http --path=/{x} | null", "plain text", "/orders"),
            ("load-generator --messageSize=65MiB | null", "64 MiB at the most", "or less"),
            (
                "load-generator --mode=reference --generateTimestamp=true | null",
                "the same bytes",
                "--mode=copy",
            ),
            ("load-generator --messageSize=8 --generateTimestamp=true | null", "take 12 bytes", "larger"),
            ("stdin | splitter --member=a | null", "object of JSON", "--by=json"),
            ("stdin | splitter --by=json --delimiter=, | null", "told apart by JSON", "leave out"),
            ("stdin | aggregate --figures=sum | null", "are of a number", "Add --of"),
            ("stdin | aggregate --window=1h --slide=1ms | null", "10000 windows", "longer"),
            ("stdin | aggregate --window=1s --slide=1m | null", "would be in none", "--window or less"),
            ("time | http --url=http://h/ --caFile=x", "no certificates without https", "https://"),
            ("time | http --url=ftp://h/", "--url cannot be", "https://HOST/PATH"),
            ("stdin | null; stdin | null", "Standard input is read by one stream", "topic:NAME"),
        ] {
            let shown = complaint(text);
            assert!(shown.contains(message) && shown.contains(right), "{text}:\n{shown}");
            assert!(shown.contains('^'), "{text}:\n{shown}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_be_right() {
        for (text, message, right) in [
            (
                "time | fliter --expression=true | log",
                "There is no processor fliter",
                "filter would be right.",
            ),
            ("time | frobnicate", "There is no sink frobnicate", "counter, file, histogram"),
            (
                "filter --expression=true | log",
                "filter is a processor, and a source belongs",
                "between a source and a sink",
            ),
            ("time | time | log", "time is a source, and a processor belongs here", "where a stream begins"),
            ("time", "needs a source and a sink", "`time | SINK`"),
            ("log", "needs a source and a sink", "`SOURCE | log`"),
            ("time | filter | log", "filter needs --expression", "`filter --expression=...`"),
            (
                "time | filter --expresion=true | log",
                "filter has no option --expresion",
                "--expression would be right.",
            ),
            ("time | null --x=1", "null has no option --x", "null has no options."),
            ("time --fixedDelay=soon | log", "--fixedDelay cannot be \"soon\"", "A time such as"),
            ("time --count=1 --count=2 | log", "--count is given twice", "Leave one out."),
            ("load-generator --messageSize=-1 | null", "--messageSize cannot be", "would be right."),
            (
                "time | filter --expression='amount > 1' | log",
                "--expression: This is no expression: there is no variable amount",
                "Expressions are CEL",
            ),
            ("time | topic:x | log", "A named destination stands at an end", "topic:NAME > ..."),
            ("time | topic:x", "No stream of this text reads topic:x", "`topic:x > ...`"),
            ("topic:x > log", "No stream of this text writes topic:x", "`... | topic:x`"),
            ("topic:x > topic:x", "is fed by itself", "end elsewhere"),
            ("a = time | log\na = time | log", "two streams called a", "name of its own"),
            ("x: time | x: log", "Two stages have the label x", "one of its own"),
            (
                "a = time | log\ntap:stream:b.time > log",
                "There is no stream b",
                "tap:stream:a would be right.",
            ),
            (
                "a = time | log\ntap:stream:a.tmie > log",
                "has no stage tmie",
                "tap:stream:a.time would be right.",
            ),
            ("a = time | log\ntap:stream:a.log > log", "has no stage log", "can be tapped: time."),
        ] {
            let shown = complaint(text);
            assert!(shown.contains(message) && shown.contains(right), "{text}:\n{shown}");
            assert!(shown.contains('^'), "{text}:\n{shown}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let shown = complaint("time --x=1 --fixedDelay=soon | fliter | lgo");
        assert_eq!(
            shown.matches('^').count(),
            "--x".len() + "soon".len() + "fliter".len() + "lgo".len(),
            "{shown}"
        );
    }
}
