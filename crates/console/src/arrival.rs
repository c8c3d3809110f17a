//! The connection of a request, which the server of the console knows.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::request::Parts;

use crate::problem::Problem;

/// The connection of a request. An extension of requests.
#[derive(Clone)]
pub struct Arrival {
    /// The address of the connection's peer.
    pub address: IpAddr,
    /// Takes a place for the connection in the name of a user that the console has logged in; false if there is none.
    pub admit: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl Arrival {
    /// Admits a request in the name of a user that the console has logged in.
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
