//! The forwarded APIs about features, brokers and voters.

use super::{changing, reading};
use crate::api::Api;
use crate::api::entry::RefusalMessage;
use crate::audit::{Changes, ClusterChange, by_name, worst};
use thalweg_audit::Action;
use thalweg_wire::request::*;

pub(super) const APIS: &[Api] = &[
    reading::<DescribeQuorumRequest>(0..=2).refusal_message(RefusalMessage::Standard),
    changing::<UpdateFeaturesRequest>(0..=2),
    changing::<UnregisterBrokerRequest>(0..=0).refusal_message(RefusalMessage::StandardUnlessTimeout),
    changing::<AddRaftVoterRequest>(0..=1).refusal_message(RefusalMessage::Standard),
    changing::<RemoveRaftVoterRequest>(0..=0).refusal_message(RefusalMessage::Standard),
];

impl ClusterChange for UpdateFeaturesRequest {
    fn describe(&self, answer: &UpdateFeaturesResponse, changes: &mut Changes<'_>) {
        if self.validate_only {
            return;
        }
        let ended = by_name(&answer.results, |result| &result.feature);
        for update in &self.feature_updates {
            let whole = [(answer.error_code, answer.error_message.as_deref())];
            let own = ended
                .get(&*update.feature)
                .map(|result| (result.error_code, result.error_message.as_deref()));
            let detail = format!("level={}", update.max_version_level);
            changes.note(
                Action::Update,
                "Feature",
                &update.feature,
                detail,
                worst(whole.into_iter().chain(own)),
            );
        }
    }
}

impl ClusterChange for UnregisterBrokerRequest {
    fn describe(&self, answer: &UnregisterBrokerResponse, changes: &mut Changes<'_>) {
        let ending = (answer.error_code, answer.error_message.as_deref());
        changes.note(Action::Delete, "Broker", &self.broker_id.to_string(), String::new(), ending);
    }
}

impl ClusterChange for AddRaftVoterRequest {
    fn describe(&self, answer: &AddRaftVoterResponse, changes: &mut Changes<'_>) {
        let ending = (answer.error_code, answer.error_message.as_deref());
        changes.note(Action::Create, "Voter", &self.voter_id.to_string(), String::new(), ending);
    }
}

impl ClusterChange for RemoveRaftVoterRequest {
    fn describe(&self, answer: &RemoveRaftVoterResponse, changes: &mut Changes<'_>) {
        let ending = (answer.error_code, answer.error_message.as_deref());
        changes.note(Action::Delete, "Voter", &self.voter_id.to_string(), String::new(), ending);
    }
}
