//! Audit events of this node: clients of connections, decisions, logins, changes of the cluster.
//!
//! The trail itself is `thalweg_audit`; `trails` opens and writes it.

mod changes;
mod connection;
mod watch;

pub(crate) use changes::{Changes, ClusterChange, Describe, by_name, describe, listed, numbers, worst};
pub use connection::{AuditedConnection, AuditedRequest};
pub(crate) use watch::{Watch, record_auto_created};
