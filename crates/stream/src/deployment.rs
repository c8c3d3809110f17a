//! Properties of a deployment: how many instances each stage has, and what is done with bad messages.
//!
//! `module.LABEL.count=3` is for the stage with that label, `module.*.count=2` for all that nothing else is said of. A stage
//! with a count above one has a topic before it and a topic behind it, partitioned by key, and its instances share the
//! partitions as a consumer group. Counts of 0 and 1 bind a stage directly to its neighbours.

use std::collections::BTreeMap;

use crate::Guarantee;
use crate::bad::OnError;
use crate::guarantee::GUARANTEES;
use crate::language::closest;
use crate::plan::{Input, Plan};

/// The most instances of a stage in one process.
const COUNT_MAX: usize = 256;
/// What bad messages are handled by.
const ON_ERROR: &str = "onError";
/// How often a message may arrive.
const GUARANTEE: &str = "guarantee";

/// How a stream is deployed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployment {
    /// Instances of stages.
    pub counts: Counts,
    /// What is done with messages that cannot be worked on.
    pub on_error: OnError,
    /// How often a message may arrive.
    pub guarantee: Guarantee,
}

/// How many instances stages have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    by_label: BTreeMap<String, usize>,
    others: usize,
}

/// A property that means nothing, or a value that it cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The property {key}{} is wrong: {right} would be right", value.as_deref().map(|value| format!("={value}")).unwrap_or_default())]
pub struct WrongProperty {
    /// The property.
    pub key: String,
    /// Its value, where it has one.
    pub value: Option<String>,
    /// What would be right.
    pub right: String,
}

impl Counts {
    /// How many instances the stage with this label has: one at the least.
    pub fn of(&self, label: &str) -> usize {
        self.by_label.get(label).copied().unwrap_or(self.others).max(1)
    }

    /// Whether no stage has several.
    pub fn are_single(&self) -> bool {
        self.others <= 1 && self.by_label.values().all(|count| *count <= 1)
    }
}

impl Deployment {
    /// Reads `key=value` pairs with commas between, as Spring XD's `--properties` has them.
    pub fn parse(text: &str) -> Result<Deployment, WrongProperty> {
        Deployment::read(&pairs(text)?)
    }

    /// Reads properties.
    pub fn read(properties: &BTreeMap<String, String>) -> Result<Deployment, WrongProperty> {
        let mut deployment = Deployment::default();
        for (key, value) in properties {
            let wrong = |right: String| WrongProperty { key: key.clone(), value: Some(value.clone()), right };
            if key == ON_ERROR {
                deployment.on_error = value.parse().map_err(|_| {
                    wrong("fail, skip, dead-letter:FILE or dead-letter:topic:NAME".to_owned())
                })?;
                continue;
            }
            if key == GUARANTEE {
                deployment.guarantee = value.parse().map_err(|_| wrong(GUARANTEES.to_owned()))?;
                continue;
            }
            let label = key.strip_prefix("module.").and_then(|rest| rest.strip_suffix(".count"));
            let Some(label) = label else {
                return Err(wrong(format!(
                    "module.LABEL.count=N, module.*.count=N, {ON_ERROR}=POLICY or {GUARANTEE}=GUARANTEE"
                )));
            };
            let count = value.parse().ok().filter(|count| *count <= COUNT_MAX);
            let count = count.ok_or_else(|| wrong(format!("a number from 0 to {COUNT_MAX}")))?;
            match label {
                "*" => deployment.counts.others = count,
                label => drop(deployment.counts.by_label.insert(label.to_owned(), count)),
            }
        }
        Ok(deployment)
    }

    /// Whether all labels are those of stages of the plan.
    pub fn check(&self, plan: &Plan) -> Result<(), WrongProperty> {
        let labels: Vec<&str> =
            plan.streams.iter().flat_map(|stream| stream.stages().map(|stage| &*stage.label)).collect();
        for label in self.counts.by_label.keys() {
            if !labels.contains(&label.as_str()) {
                let right = match closest(label, labels.iter().copied()) {
                    Some(meant) => format!("module.{meant}.count"),
                    None => format!("a stage among {}", labels.join(", ")),
                };
                return Err(WrongProperty { key: format!("module.{label}.count"), value: None, right });
            }
        }
        Ok(())
    }
}

/// The `key=value` pairs of a text, with commas between.
pub(crate) fn pairs(text: &str) -> Result<BTreeMap<String, String>, WrongProperty> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| match pair.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(WrongProperty { key: pair.to_owned(), value: None, right: format!("{pair}=VALUE") }),
    };
    pairs.map(pair).collect()
}

/// How many instances each stage of a stream has, from its input to its output. A named destination is there once.
pub(crate) fn counts_along(stream: &crate::plan::StreamPlan, counts: &Counts) -> Vec<usize> {
    let mut along = Vec::new();
    if !matches!(stream.input, Input::Stage(_)) {
        along.push(1);
    }
    along.extend(stream.stages().map(|stage| counts.of(&stage.label)));
    if along.len() < stream.processors.len() + 2 {
        along.push(1);
    }
    along
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_for_one_stage_or_for_all_others() {
        let deployment =
            Deployment::parse("module.filter.count=3, module.*.count=0,onError=skip").expect("right");
        assert_eq!((deployment.counts.of("filter"), deployment.counts.of("log")), (3, 1));
        assert_eq!(deployment.on_error, OnError::Skip);
        assert!(!deployment.counts.are_single());
        assert!(Deployment::parse("module.*.count=0").expect("right").counts.are_single());
        assert_eq!(Deployment::parse(""), Ok(Deployment::default()));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_be_right() {
        for (text, part) in [
            ("module.filter.count", "module.filter.count=VALUE would be right"),
            ("module.filter.count=many", "module.filter.count=many is wrong: a number from 0 to 256"),
            ("module.filter.count=257", "a number from 0 to 256"),
            ("module.filter.criteria=x", "module.LABEL.count=N"),
            ("guarantee=twice", "guarantee=twice is wrong: at-least-once, at-most-once or exactly-once"),
            ("onError=ignore", "onError=ignore is wrong: fail, skip, dead-letter:FILE"),
        ] {
            let wrong = Deployment::parse(text).expect_err(text).to_string();
            assert!(wrong.contains(part), "{wrong}");
        }
        let plan = Plan::read("time | big: filter --expression=true | log", None, "s").expect("right");
        let check = |text: &str| Deployment::parse(text).expect(text).check(&plan);
        assert_eq!(check("module.big.count=2"), Ok(()));
        let wrong = check("module.bag.count=2").expect_err("there is no such label").to_string();
        assert!(wrong.contains("module.big.count would be right"), "{wrong}");
    }
}
