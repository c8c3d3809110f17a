//! Deployment properties: the number of instances per stage, and the policy for bad messages.
//!
//! `module.LABEL.count=3` applies to the stage with that label, `module.*.count=2` to all others. A stage
//! with a count above 1 gets a topic before and after it, partitioned by key, and its instances share the
//! partitions as a consumer group. Counts of 0 and 1 bind a stage directly to its neighbours.

use std::collections::BTreeMap;

use crate::Guarantee;
use crate::bad::OnError;
use crate::guarantee::GUARANTEES;
use crate::language::closest;
use crate::plan::{Input, Plan};

/// Maximum instances of a stage in one process.
const COUNT_MAX: usize = 256;
/// The property for the bad message policy.
const ON_ERROR: &str = "onError";
/// The property for the delivery guarantee.
const GUARANTEE: &str = "guarantee";

/// The deployment of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployment {
    /// Number of instances per stage.
    pub counts: Counts,
    /// Policy for bad messages.
    pub on_error: OnError,
    pub guarantee: Guarantee,
}

/// Instances per stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    by_label: BTreeMap<String, usize>,
    others: usize,
}

/// An unknown property or an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The property {key}{} is invalid: use {right}", value.as_deref().map(|value| format!("={value}")).unwrap_or_default())]
pub struct WrongProperty {
    pub key: String,
    /// The property's value, if any.
    pub value: Option<String>,
    /// The remedy, for the message.
    pub right: String,
}

impl Counts {
    /// Number of instances of the stage with this label, at least 1.
    pub fn of(&self, label: &str) -> usize {
        self.by_label.get(label).copied().unwrap_or(self.others).max(1)
    }

    /// True if every stage has one instance.
    pub fn are_single(&self) -> bool {
        self.others <= 1 && self.by_label.values().all(|count| *count <= 1)
    }
}

impl Deployment {
    /// Parses `key=value` pairs separated by commas, the format of Spring XD's `--properties`.
    pub fn parse(text: &str) -> Result<Deployment, WrongProperty> {
        Deployment::read(&pairs(text)?)
    }

    /// Parses single properties.
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

    /// Checks that all labels exist in the plan.
    pub fn check(&self, plan: &Plan) -> Result<(), WrongProperty> {
        let labels: Vec<&str> =
            plan.streams.iter().flat_map(|stream| stream.stages().map(|stage| &*stage.label)).collect();
        for label in self.counts.by_label.keys() {
            if !labels.contains(&label.as_str()) {
                let right = match closest(label, labels.iter().copied()) {
                    Some(meant) => format!("module.{meant}.count"),
                    None => format!("the label of a stage: {}", labels.join(", ")),
                };
                return Err(WrongProperty { key: format!("module.{label}.count"), value: None, right });
            }
        }
        Ok(())
    }
}

/// The `key=value` pairs of a comma-separated text.
pub(crate) fn pairs(text: &str) -> Result<BTreeMap<String, String>, WrongProperty> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| match pair.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(WrongProperty { key: pair.to_owned(), value: None, right: format!("{pair}=VALUE") }),
    };
    pairs.map(pair).collect()
}

/// Number of instances of each stage of a stream, from input to output. A named destination counts as one.
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
    fn mistakes_are_reported_with_advice() {
        for (text, part) in [
            ("module.filter.count", "use module.filter.count=VALUE"),
            ("module.filter.count=many", "module.filter.count=many is invalid: use a number from 0 to 256"),
            ("module.filter.count=257", "a number from 0 to 256"),
            ("module.filter.criteria=x", "module.LABEL.count=N"),
            (
                "guarantee=twice",
                "guarantee=twice is invalid: use at-least-once, at-most-once or exactly-once",
            ),
            ("onError=ignore", "onError=ignore is invalid: use fail, skip, dead-letter:FILE"),
        ] {
            let wrong = Deployment::parse(text).expect_err(text).to_string();
            assert!(wrong.contains(part), "{wrong}");
        }
        let plan = Plan::read("time | big: filter --expression=true | log", None, "s").expect("right");
        let check = |text: &str| Deployment::parse(text).expect(text).check(&plan);
        assert_eq!(check("module.big.count=2"), Ok(()));
        let wrong = check("module.bag.count=2").expect_err("there is no such label").to_string();
        assert!(wrong.contains("use module.big.count"), "{wrong}");
    }
}
