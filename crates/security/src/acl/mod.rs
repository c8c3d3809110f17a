//! Access control lists, as Kafka's `StandardAuthorizer` has them: what a rule says ([`Acl`]), what follows from all of them
//! ([`Authorizer`]), which are meant ([`AclFilter`]).

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
pub use decision::{AclInWords, Decision, Logged, Rule};
pub use filter::{AclFilter, RawFilter, UnknownInFilter};
pub use host::host_address;
pub use operations::supported_operations;
pub use terms::{Acl, Operation, PatternType, Permission, ResourceType};
