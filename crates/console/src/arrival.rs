//! Where requests come from, which the server of the console knows.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::request::Parts;

use crate::problem::Problem;

/// Where a request comes from. An extension of requests.
#[derive(Clone)]
pub struct Arrival {
    /// The address of the connection's peer.
    pub address: IpAddr,
    /// Called when the request turns out to be of this user, whom the console itself has logged in; false if there is no place
    /// for it.
    pub admit: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl Arrival {
    /// Called when a request turns out to be of this user, whom the console itself has logged in.
    pub(crate) fn admit(request: &Parts, user: &str) -> Result<(), Problem> {
        match request.extensions.get::<Arrival>() {
            Some(arrival) if !(arrival.admit)(user) => Err(Problem {
                status: StatusCode::SERVICE_UNAVAILABLE,
                ..Problem::forbidden("unavailable", "Too many connections are being served: try again")
            }),
            _ => Ok(()),
        }
    }
}
