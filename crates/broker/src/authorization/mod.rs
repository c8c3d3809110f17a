//! What the client of a request may do, and the log of decisions.
//!
//! [`Permissions`] is made once for each request and asks the authorizer in force; without an authorizer everything is allowed,
//! at the price of one branch. Which API needs what is said in the table that serves it (`api`).

mod cluster;
mod permissions;

pub use cluster::ClusterRights;
pub use permissions::{Denials, Permissions};
