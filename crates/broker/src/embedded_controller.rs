//! The broker's way to the controller in its own process.

use bytes::Bytes;
use std::sync::Arc;
use thalweg_controller::{Controller, HandleError, Requester, serves};
use thalweg_membership::{LocalAnswer, LocalController, LocalControllerError};
use thalweg_wire::ApiKey;

/// The controller in this process, called with the permissions of the process itself.
pub struct EmbeddedController(pub Arc<Controller>);

impl LocalController for EmbeddedController {
    fn node_id(&self) -> i32 {
        self.0.node_id()
    }

    fn cluster_id(&self) -> &str {
        self.0.cluster_id()
    }

    fn serves(&self, api: ApiKey) -> bool {
        serves(api)
    }

    fn handle(&self, frame: Bytes) -> LocalAnswer<'_> {
        Box::pin(async move {
            self.0.handle(frame, &Requester::ThisProcess).await.map_err(|error| LocalControllerError {
                is_absence: matches!(error, HandleError::Stopped | HandleError::DiskFull),
                error: error.into(),
            })
        })
    }
}
