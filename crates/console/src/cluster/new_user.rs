//! A new user with a password and the ACLs for its work, made in one step.
//!
//! The cluster makes user and ACLs by separate requests, so a part may be refused: the outcome has each of
//! them. An existing user is refused, because its clients would lose their password.

use serde::Deserialize;
use thalweg_security::acl::{AclFilter, Operation, PatternType, Permission, ResourceType};
use thalweg_security::visible::is_unseen;
use thalweg_wire::ErrorCode;

use super::View;
use super::access::{self, AclLine};
use super::users::{self, NewPassword};
use crate::problem::Problem;

/// The work of a new user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rights {
    /// Reads topics with a group.
    #[default]
    Consumer,
    /// WRITE on topics, which an idempotent producer needs, too.
    Producer,
    /// Reads and writes topics.
    Both,
    /// All operations on all resources.
    Admin,
}

impl Rights {
    /// All presets: the value of the form, and its words.
    pub const ALL: [(Rights, &'static str, &'static str); 4] = [
        (Rights::Consumer, "consumer", "consumer: reads topics with a group"),
        (Rights::Producer, "producer", "producer: writes topics"),
        (Rights::Both, "both", "consumer and producer"),
        (Rights::Admin, "admin", "admin: everything"),
    ];

    fn reads(self) -> bool {
        matches!(self, Rights::Consumer | Rights::Both)
    }
}

/// A user to make.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NewUser {
    pub name: String,
    pub rights: Rights,
    /// A topic, a prefix of topic names, or `*`.
    pub topic: String,
    /// `on` if the topic is a prefix.
    pub topic_prefix: String,
    /// A group, or a prefix of group names. Default: the name of the user.
    pub group: String,
    /// `on` if the group is a prefix.
    pub group_prefix: String,
    /// `SCRAM-SHA-256` or `SCRAM-SHA-512`; the latter if empty.
    pub mechanism: String,
}

/// The ACLs of a cluster, as far as a new user is concerned.
#[derive(Debug, PartialEq, Eq)]
pub enum AclSupport {
    /// The cluster has ACLs, and the login may add some, as far as is known.
    Enabled,
    /// The cluster has no authorizer: everyone may do everything.
    WithoutAuthorizer,
    /// The ACLs could not be read, with the reason.
    Unknown(String),
}

/// A user that was made, and its ACLs.
#[derive(Debug)]
pub struct NewUserOutcome {
    pub added: Vec<AclLine>,
    /// ACLs that were not added, or may not have been, with the reason.
    pub failed: Vec<(AclLine, String)>,
    /// True if the cluster has no authorizer.
    pub is_without_authorizer: bool,
}

impl NewUser {
    /// The name without surrounding space.
    pub fn name(&self) -> &str {
        self.name.trim()
    }

    /// The mechanism of the password.
    pub fn mechanism(&self) -> &str {
        if self.mechanism.trim().is_empty() { "SCRAM-SHA-512" } else { self.mechanism.trim() }
    }

    /// The group of a client that reads; none if the user does not read, or the group is a prefix.
    pub fn group_id(&self) -> Option<&str> {
        (self.rights.reads() && self.group_prefix != "on").then(|| self.group())
    }

    fn group(&self) -> &str {
        if self.group.trim().is_empty() { self.name() } else { self.group.trim() }
    }

    /// The ACLs of the user. READ and WRITE include DESCRIBE, and WRITE includes idempotent producers.
    pub fn acls(&self) -> Result<Vec<AclLine>, Problem> {
        for (what, text) in [("user", &self.name), ("topic", &self.topic), ("group", &self.group)] {
            if text.contains(is_unseen) {
                let message = format!("The name of the {what} has invisible characters: type it again");
                return Err(Problem::wrong(message));
            }
        }
        match self.name() {
            "" => return Err(Problem::wrong("The user needs a name")),
            "*" => {
                return Err(Problem::wrong("A user cannot have the name *: User:* in an ACL means everyone"));
            }
            "ANONYMOUS" => {
                let why = "User:ANONYMOUS is every client without a login";
                return Err(Problem::wrong(format!("A user cannot have the name ANONYMOUS: {why}")));
            }
            _ => {}
        }
        let pattern = |is_prefix| if is_prefix { PatternType::Prefixed } else { PatternType::Literal };
        let line = |kind: ResourceType, name: &str, is_prefix: bool, operation: Operation| AclLine {
            resource_type: kind.name().to_owned(),
            resource_name: name.to_owned(),
            pattern_type: pattern(is_prefix).name().to_owned(),
            principal: format!("User:{}", self.name()),
            host: "*".to_owned(),
            operation: operation.name().to_owned(),
            permission: Permission::Allow.name().to_owned(),
        };
        if self.rights == Rights::Admin {
            let kinds = [
                ResourceType::Topic,
                ResourceType::Group,
                ResourceType::TransactionalId,
                ResourceType::DelegationToken,
                // Delegation tokens for other users.
                ResourceType::User,
            ];
            let every = kinds.map(|kind| line(kind, "*", false, Operation::All));
            let cluster = line(ResourceType::Cluster, "kafka-cluster", false, Operation::All);
            return Ok(every.into_iter().chain([cluster]).collect());
        }
        let topic = self.topic.trim();
        if topic.is_empty() {
            return Err(Problem::wrong("The rights need a topic, a prefix of names, or * for all topics"));
        }
        let of_topic = |operation| line(ResourceType::Topic, topic, self.topic_prefix == "on", operation);
        let mut lines = Vec::new();
        if self.rights.reads() {
            lines.push(of_topic(Operation::Read));
            lines.push(line(ResourceType::Group, self.group(), self.group_prefix == "on", Operation::Read));
        }
        if self.rights != Rights::Consumer {
            lines.push(of_topic(Operation::Write));
        }
        Ok(lines)
    }
}

/// Whether the cluster has ACLs, by those of the new user.
pub async fn acl_support(view: &View, user: &NewUser) -> AclSupport {
    let filter = AclFilter {
        resource_type: ResourceType::Any,
        resource_name: None,
        pattern_type: PatternType::Any,
        principal: Some(format!("User:{}", user.name())),
        host: None,
        operation: Operation::Any,
        permission: Permission::Any,
    };
    match view.admin().describe_acls(&filter).await {
        Ok(_) => AclSupport::Enabled,
        Err(error) if error.error_code() == Some(ErrorCode::SecurityDisabled) => {
            AclSupport::WithoutAuthorizer
        }
        Err(error) => AclSupport::Unknown(error.to_string()),
    }
}

/// Refuses a user that exists.
pub async fn check_absent(view: &View, user: &NewUser) -> Result<(), Problem> {
    let known = users::list(view).await?;
    if known.iter().any(|known| known.name == user.name()) {
        let message = format!(
            "There is a user {} already: set its password on the page Users, and its ACLs on the page ACLs",
            user.name()
        );
        return Err(Problem::wrong(message));
    }
    Ok(())
}

/// Makes the user with this password, then its ACLs. An error means that nothing was made, or that the answer
/// for the user is missing.
pub async fn create(view: &View, user: &NewUser, password: &str) -> Result<NewUserOutcome, Problem> {
    let lines = user.acls()?;
    check_absent(view, user).await?;
    let new = NewPassword {
        name: user.name().to_owned(),
        password: password.to_owned(),
        mechanism: user.mechanism().to_owned(),
    };
    users::set_password(view, &new).await?;
    let mut outcome = NewUserOutcome { added: Vec::new(), failed: Vec::new(), is_without_authorizer: false };
    for line in lines {
        match access::create(view, &line).await {
            Ok(()) => outcome.added.push(line),
            Err(problem) if problem.kind == ErrorCode::SecurityDisabled.to_string() => {
                outcome.is_without_authorizer = true;
                break;
            }
            Err(problem) => outcome.failed.push((line, problem.message)),
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(rights: Rights) -> NewUser {
        NewUser { name: " ann ".to_owned(), rights, topic: "orders".to_owned(), ..NewUser::default() }
    }

    fn words(user: &NewUser) -> Vec<String> {
        let lines = user.acls().map_err(|problem| problem.message).expect("they are right");
        let words = lines.iter().map(|line| {
            assert_eq!((&*line.principal, &*line.permission), ("User:ann", "ALLOW"));
            format!("{} {} {} {}", line.operation, line.resource_type, line.resource_name, line.pattern_type)
        });
        words.collect()
    }

    #[test]
    fn a_preset_has_the_acls_of_its_work_and_no_more() {
        assert_eq!(words(&user(Rights::Consumer)), ["READ TOPIC orders LITERAL", "READ GROUP ann LITERAL"]);
        assert_eq!(words(&user(Rights::Producer)), ["WRITE TOPIC orders LITERAL"]);
        let prefixed = NewUser {
            topic_prefix: "on".to_owned(),
            group: "billing-".to_owned(),
            group_prefix: "on".to_owned(),
            ..user(Rights::Both)
        };
        assert_eq!(
            words(&prefixed),
            ["READ TOPIC orders PREFIXED", "READ GROUP billing- PREFIXED", "WRITE TOPIC orders PREFIXED"]
        );
        assert_eq!(prefixed.group_id(), None, "a prefix is no group");
        assert_eq!(
            (user(Rights::Consumer).group_id(), user(Rights::Producer).group_id()),
            (Some("ann"), None)
        );
        let admin = words(&user(Rights::Admin));
        let resources = [
            "TOPIC * LITERAL",
            "GROUP * LITERAL",
            "TRANSACTIONAL_ID * LITERAL",
            "DELEGATION_TOKEN * LITERAL",
            "USER * LITERAL",
            "CLUSTER kafka-cluster LITERAL",
        ];
        assert_eq!(admin, resources.map(|resource| format!("ALL {resource}")));
    }

    #[test]
    fn a_user_without_a_name_or_a_topic_is_refused() {
        let refused = |user: NewUser| user.acls().expect_err("it is wrong").message;
        assert_eq!(refused(NewUser::default()), "The user needs a name");
        let without = NewUser { topic: String::new(), ..user(Rights::Producer) };
        assert!(refused(without).starts_with("The rights need a topic"));
        for (name, reason) in [
            ("*", "User:* in an ACL means everyone"),
            ("ANONYMOUS", "User:ANONYMOUS is every client without a login"),
        ] {
            let everyone = NewUser { name: format!(" {name} "), ..user(Rights::Admin) };
            let refused = refused(everyone);
            assert!(refused.contains(reason), "{refused}");
        }
        let unseen = NewUser { name: "an\u{200b}n".to_owned(), ..user(Rights::Admin) };
        assert_eq!(refused(unseen), "The name of the user has invisible characters: type it again");
    }
}
