//! Changes requested over HTTP, for an audit trail. The HTTP server knows the principal and keeps the trail:
//! it puts a [`Recorder`] into the extensions of the request.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// The effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A resource is created.
    Create,
    /// A resource is altered.
    Update,
    /// A resource is deleted.
    Delete,
}

/// A requested change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The verb, such as `DeployStream`.
    pub request: &'static str,
    /// The effect of the change.
    pub action: Action,
    /// The type of the resource, such as `Stream`.
    pub resource_type: &'static str,
    /// The name of the resource.
    pub resource_name: String,
    /// Details of the change.
    pub detail: Option<String>,
    /// If the change failed: a short kind and a sentence.
    pub failure: Option<(String, String)>,
    /// The user, if the HTTP server does not know it.
    pub user: Option<String>,
}

impl Change {
    /// A change of a stream.
    pub fn of_stream(request: &'static str, action: Action, name: &str) -> Change {
        let resource_name = name.to_owned();
        Change {
            request,
            action,
            resource_type: "Stream",
            resource_name,
            detail: None,
            failure: None,
            user: None,
        }
    }
}

/// Receives the changes of a request, and knows its principal.
#[derive(Clone)]
pub struct Recorder {
    to: Arc<dyn Fn(Change) + Send + Sync>,
    /// The principal, such as `User:ann`, if the HTTP server knows it.
    requester: Option<Arc<str>>,
}

impl Recorder {
    /// A recorder that passes changes to `to`.
    pub fn new(to: impl Fn(Change) + Send + Sync + 'static) -> Recorder {
        Recorder { to: Arc::new(to), requester: None }
    }

    /// The same recorder, for a principal.
    pub fn requested_by(self, principal: &str) -> Recorder {
        Recorder { requester: Some(principal.into()), ..self }
    }

    /// The principal of the request, if known.
    pub fn requester(&self) -> Option<String> {
        self.requester.as_deref().map(str::to_owned)
    }

    /// Records a change.
    pub fn record(&self, change: Change) {
        (self.to)(change);
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Recorder {
    type Rejection = Infallible;

    /// The recorder of the request; without one, a recorder without a trail.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Recorder, Infallible> {
        Ok(parts.extensions.get::<Recorder>().cloned().unwrap_or_else(|| Recorder::new(drop)))
    }
}
