//! Audit events of this node: clients of connections, decisions, logins, changes of the cluster.
//!
//! The trail itself is `thalweg_audit`; `trails` opens and writes it.

mod change_recorder;
mod changes;
mod connection;

pub(crate) use change_recorder::{ChangeRecorder, record_auto_created};
pub(crate) use changes::{Changes, ClusterChange, Describe, by_name, describe, listed, numbers, worst};
pub use connection::{AuditedConnection, AuditedRequest};
