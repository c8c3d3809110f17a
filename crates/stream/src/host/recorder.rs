//! Changes that are asked for over HTTP, for an audit trail. The server of a request says who asks, and keeps the trail: it puts a
//! [`Recorder`] among the extensions of the request.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Something is made.
    Create,
    /// It is altered.
    Update,
    /// It is removed.
    Delete,
}

/// A change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The verb, such as `DeployStream`.
    pub request: &'static str,
    /// What it does.
    pub action: Action,
    /// The kind of what is changed, such as `Stream`.
    pub resource_type: &'static str,
    /// Its name.
    pub resource_name: String,
    /// What is changed.
    pub detail: Option<String>,
    /// A short kind and a sentence, if it was not done.
    pub failure: Option<(String, String)>,
    /// The user, where the server of the request does not know it.
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

/// Takes the changes of a request, and knows its principal.
#[derive(Clone)]
pub struct Recorder {
    to: Arc<dyn Fn(Change) + Send + Sync>,
    /// The principal, such as `User:ann`, if the server of the request knows it.
    asker: Option<Arc<str>>,
}

impl Recorder {
    /// One that passes changes on.
    pub fn new(to: impl Fn(Change) + Send + Sync + 'static) -> Recorder {
        Recorder { to: Arc::new(to), asker: None }
    }

    /// The same, for a principal.
    pub fn asked_by(self, principal: &str) -> Recorder {
        Recorder { asker: Some(principal.into()), ..self }
    }

    /// The principal of the request, if it is known.
    pub fn asker(&self) -> Option<String> {
        self.asker.as_deref().map(str::to_owned)
    }

    /// Records a change.
    pub fn record(&self, change: Change) {
        (self.to)(change);
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Recorder {
    type Rejection = Infallible;

    /// That of the request; else one without a trail.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Recorder, Infallible> {
        Ok(parts.extensions.get::<Recorder>().cloned().unwrap_or_else(|| Recorder::new(drop)))
    }
}
