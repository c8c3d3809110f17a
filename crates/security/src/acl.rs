//! Access control lists, as in Kafka's `StandardAuthorizer`: rules ([`Acl`]), decisions ([`Authorizer`]) and
//! filters ([`AclFilter`]).

mod authorizer;
mod bytes;
mod create;
mod decision;
mod filter;
mod host;
mod index;
mod operations;
mod table;
mod terms;
mod trie;

pub use authorizer::{Answer, Authorizer, Reason, Rules};
pub use create::{CLUSTER_NAME, InvalidAcl, RawAcl};
pub use decision::{AclInWords, Decision, LoggedOutcomes, Rule};
pub use filter::{AclFilter, RawFilter, UnknownFilterCode};
pub use host::host_address;
pub use operations::supported_operations;
pub use terms::{Acl, Operation, PatternType, Permission, ResourceType};
