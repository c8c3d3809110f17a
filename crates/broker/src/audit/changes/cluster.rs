//! Changes of configurations, groups, features, brokers and voters.

use super::{Changes, by_name, listed, numbers, worst};
use std::collections::BTreeMap;
use thalweg_audit::Action;
use thalweg_config::table;
use thalweg_metadata::ConfigResourceKind;
use thalweg_wire::request::*;

pub(super) fn replace_configs(
    request: &AlterConfigsRequest,
    answer: &AlterConfigsResponse,
    changes: &mut Changes<'_>,
) {
    if request.validate_only {
        return;
    }
    let endings: BTreeMap<_, _> = answer
        .responses
        .iter()
        .map(|r| ((r.resource_type, &*r.resource_name), (r.error_code, r.error_message.as_deref())))
        .collect();
    for resource in &request.resources {
        let kind = ConfigResourceKind::from_id(resource.resource_type);
        let configs = resource.configs.iter().map(|c| (&*c.name, shown(kind, &c.name, c.value.as_deref())));
        let ending = endings.get(&(resource.resource_type, &*resource.resource_name)).copied();
        let name = &resource.resource_name;
        changes.note(Action::Update, in_words(kind), name, listed(configs), ending.unwrap_or((0, None)));
    }
}

pub(super) fn alter_configs(
    request: &IncrementalAlterConfigsRequest,
    answer: &IncrementalAlterConfigsResponse,
    changes: &mut Changes<'_>,
) {
    if request.validate_only {
        return;
    }
    let endings: BTreeMap<_, _> = answer
        .responses
        .iter()
        .map(|r| ((r.resource_type, &*r.resource_name), (r.error_code, r.error_message.as_deref())))
        .collect();
    for resource in &request.resources {
        let kind = ConfigResourceKind::from_id(resource.resource_type);
        let configs = resource.configs.iter().map(|config| {
            let value = shown(kind, &config.name, config.value.as_deref());
            let text = match config.config_operation {
                0 => value,
                1 => "deleted".to_owned(),
                2 => format!("+{value}"),
                3 => format!("-{value}"),
                other => format!("{value} (operation {other})"),
            };
            (&*config.name, text)
        });
        let ending = endings.get(&(resource.resource_type, &*resource.resource_name)).copied();
        let name = &resource.resource_name;
        changes.note(Action::Update, in_words(kind), name, listed(configs), ending.unwrap_or((0, None)));
    }
}

/// A value, unless it is a secret or may be one: keys of brokers that are not known here may be anything.
fn shown(kind: ConfigResourceKind, name: &str, value: Option<&str>) -> String {
    let is_secret =
        kind == ConfigResourceKind::Broker && table::settable_key(name).is_none_or(|key| key.is_sensitive());
    match (is_secret, value) {
        (_, None) => "null".to_owned(),
        (true, Some(_)) => "[hidden]".to_owned(),
        (false, Some(value)) => value.to_owned(),
    }
}

fn in_words(kind: ConfigResourceKind) -> &'static str {
    match kind {
        ConfigResourceKind::Topic => "Topic",
        ConfigResourceKind::Broker => "Broker",
        ConfigResourceKind::BrokerLogger => "BrokerLogger",
        ConfigResourceKind::ClientMetrics => "ClientMetrics",
        ConfigResourceKind::Group => "Group",
        ConfigResourceKind::Unknown(_) => "Unknown",
    }
}

pub(super) fn delete_groups(
    _: &DeleteGroupsRequest,
    answer: &DeleteGroupsResponse,
    changes: &mut Changes<'_>,
) {
    for group in &answer.results {
        changes.note(Action::Delete, "Group", &group.group_id, String::new(), (group.error_code, None));
    }
}

pub(super) fn delete_offsets(
    request: &OffsetDeleteRequest,
    answer: &OffsetDeleteResponse,
    changes: &mut Changes<'_>,
) {
    let ended = by_name(&answer.topics, |topic| &topic.name);
    for topic in &request.topics {
        let partitions = numbers(topic.partitions.iter().map(|partition| partition.partition_index));
        let detail = format!("offsets of topic={} partitions={partitions}", topic.name);
        let ended = ended.get(&*topic.name).into_iter().flat_map(|topic| &topic.partitions);
        let whole = [(answer.error_code, None)];
        let ending = worst(whole.into_iter().chain(ended.map(|partition| (partition.error_code, None))));
        changes.note(Action::Delete, "Group", &request.group_id, detail, ending);
    }
}

pub(super) fn update_features(
    request: &UpdateFeaturesRequest,
    answer: &UpdateFeaturesResponse,
    changes: &mut Changes<'_>,
) {
    if request.validate_only {
        return;
    }
    let ended = by_name(&answer.results, |result| &result.feature);
    for update in &request.feature_updates {
        let whole = [(answer.error_code, answer.error_message.as_deref())];
        let own =
            ended.get(&*update.feature).map(|result| (result.error_code, result.error_message.as_deref()));
        let detail = format!("level={}", update.max_version_level);
        changes.note(Action::Update, "Feature", &update.feature, detail, worst(whole.into_iter().chain(own)));
    }
}

/// A broker or a voter is added or removed.
pub(super) fn node(
    action: Action,
    kind: &'static str,
    id: i32,
    (code, message): (i16, Option<&String>),
    changes: &mut Changes<'_>,
) {
    let ending = (code, message.map(String::as_str));
    changes.note(action, kind, &id.to_string(), String::new(), ending);
}
