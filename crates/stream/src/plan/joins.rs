//! The connections of a text's streams: resolves taps, and checks that named destinations have both ends,
//! that no stream feeds itself, and that only one stream reads standard input.

use std::sync::Arc;

use super::{
    Input, Origin, Output, Plan, PlanReader, StreamPlan, StreamTransport, Surroundings, UnresolvedStream,
};
use crate::language::{Element, ParsedDefinition, SpannedText, TapText, TopicText, closest};

/// Advice for a named destination with a missing end.
const ONLY_HERE: &str = "In memory, named destinations connect the streams of one text; with --transport=kafka they are topics of a cluster.";

impl PlanReader<'_> {
    /// Resolves the taps of a plan.
    pub(super) fn resolve_taps(
        &mut self,
        definition: &ParsedDefinition,
        streams: Vec<UnresolvedStream>,
    ) -> Option<Plan> {
        let mut taps = Vec::new();
        for (index, stream) in definition.streams.iter().enumerate() {
            if let Some(Element::Tap(tap)) = stream.elements.first() {
                taps.push((index, self.tapped(index, tap, &streams)));
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

    /// The stream and stage of a tap.
    fn tapped(&mut self, tapping: usize, tap: &TapText, streams: &[UnresolvedStream]) -> Option<Input> {
        let name = tap.stream.text.as_str();
        let Some(stream) = self.names.iter().position(|known| **known == *name) else {
            if let StreamTransport::ByHost(around) = self.joined {
                return self.tapped_beside(tap, around);
            }
            let mut others = self.names.clone();
            others.remove(tapping);
            let missing = format!("Add `{name} = SOURCE | SINK` to the text.");
            self.no_such_stream(tap, &others, missing);
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

    /// Resolves a tap of another hosted stream.
    fn tapped_beside(&mut self, tap: &TapText, around: &Surroundings<'_>) -> Option<Input> {
        let name = tap.stream.text.as_str();
        let Some(labels) = (around.tappable)(name) else {
            self.no_such_stream(tap, &(around.names)(), "Create it first.".to_owned());
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

    /// Reports an unknown stream. `missing` is the advice if no other stream exists.
    fn no_such_stream(&mut self, tap: &TapText, names: &[Arc<str>], missing: String) {
        let name = tap.stream.text.as_str();
        let right = match closest(name, names.iter().map(|name| &**name)) {
            Some(meant) => format!("Did you mean tap:stream:{meant}?"),
            None if names.is_empty() => missing,
            None => format!("Existing streams: {}.", names.join(", ")),
        };
        self.complain(tap.stream.span.clone(), format!("There is no stream {name}"), right);
    }

    fn no_such_label(&mut self, stream: &str, label: &SpannedText, names: &[&str]) {
        let right = match closest(&label.text, names.iter().copied()) {
            Some(meant) => format!("Did you mean tap:stream:{stream}.{meant}?"),
            None => format!("These stages can be tapped: {}.", names.join(", ")),
        };
        let message = format!("The stream {stream} has no stage {} that can be tapped", label.text);
        self.complain(label.span.clone(), message, right);
    }

    /// In memory, a topic needs both a writer and a reader.
    pub(super) fn check_topics(&mut self, definition: &ParsedDefinition, plan: &Plan) {
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
            let right = format!("Add another stream, `... | topic:{name}`. {ONLY_HERE}");
            self.complain(topic.span.clone(), format!("No stream of this text writes topic:{name}"), right);
        }
        for topic in topics(false).filter(|topic| !is_read(topic)) {
            let name = &topic.name.text;
            let right = format!("Add another stream, `topic:{name} > ...`. {ONLY_HERE}");
            self.complain(topic.span.clone(), format!("No stream of this text reads topic:{name}"), right);
        }
    }

    /// Several readers of standard input would each get a part of it.
    pub(super) fn check_standard_input(&mut self, definition: &ParsedDefinition, plan: &Plan) {
        let reads =
            |stream: &StreamPlan| matches!(&stream.input, Input::Stage(s) if s.module.name == "stdin");
        let readers = plan.streams.iter().zip(&definition.streams).filter(|(stream, _)| reads(stream));
        for (_, text) in readers.skip(1) {
            let right = "Write `stdin | topic:NAME` once, and `topic:NAME > ...` for each reader.";
            self.complain(text.span.clone(), "Another stream reads standard input already", right);
        }
    }

    /// Streams in a cycle would wait for each other forever.
    pub(super) fn check_cycles(&mut self, definition: &ParsedDefinition, plan: &Plan) {
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
                let message = format!("The stream {} feeds itself", plan.streams[start].name);
                let right = "End one of the streams in the cycle elsewhere.";
                self.complain(definition.streams[start].span.clone(), message, right);
                return;
            }
        }
    }
}

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
