//! Access control lists, as Kafka's `StandardAuthorizer` has them: what a rule says ([`Acl`]), and what follows from all
//! of them ([`Authorizer`]).

mod authorizer;
mod terms;

pub use authorizer::{Answer, Authorizer, Reason, Rules};
pub use terms::{Acl, Operation, PatternType, Permission, ResourceType};
