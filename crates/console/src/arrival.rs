//! The connection of a request, as the server of the console knows it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::request::Parts;

use crate::problem::Problem;

/// The connection of a request. An extension of requests.
#[derive(Clone)]
pub struct Arrival {
    /// The peer address of the connection.
    pub address: IpAddr,
    /// Takes a place for the connection under the name of a logged-in user. False if no place is free.
    pub admit: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl Arrival {
    /// Admits a request of a logged-in user.
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
