//! Changes of the quorum's voters (KIP-853), all refused: an embedded controller is the only voter of its
//! quorum.

use thalweg_security::acl::Operation::Alter;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::{
    AddRaftVoterRequest, AddRaftVoterResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse,
};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide};
use super::{ApiError, Moment, Outcome, State};

pub(super) const APIS: &[Api] = &[
    Api::new::<AddRaftVoterRequest>(Cluster(Alter)).forwarded(),
    Api::new::<RemoveRaftVoterRequest>(Cluster(Alter)).forwarded(),
];

impl Decide for AddRaftVoterRequest {
    fn decide(
        &self,
        state: &mut State,
        _: &Call,
        _: Moment,
    ) -> Result<Outcome<AddRaftVoterResponse>, ApiError> {
        Err(state.only_voter(self.cluster_id.as_deref()))
    }
}

impl Decide for RemoveRaftVoterRequest {
    fn decide(
        &self,
        state: &mut State,
        _: &Call,
        _: Moment,
    ) -> Result<Outcome<RemoveRaftVoterResponse>, ApiError> {
        Err(state.only_voter(self.cluster_id.as_deref()))
    }
}

impl State {
    /// The refusal: the request is for another cluster, or the quorum has a fixed single voter.
    fn only_voter(&self, cluster_id: Option<&str>) -> ApiError {
        let own = &self.cluster_id;
        if let Some(other) = cluster_id.filter(|id| id != own) {
            let message = format!("The given id \"{other}\" doesn't match the cluster id \"{own}\"");
            return ApiError::new(ErrorCode::InconsistentClusterId, message);
        }
        let message = "The embedded controller is the only voter of its quorum, which cannot have another. A quorum of \
                       several voters needs Apache Kafka's controllers.";
        ApiError::new(ErrorCode::UnsupportedVersion, message)
    }
}
