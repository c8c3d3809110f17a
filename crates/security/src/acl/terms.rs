//! The terms of an ACL, with the numbers that they have in requests and records.

macro_rules! numbered {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $code:literal $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i8)]
        pub enum $name {
            $($variant = $code,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// By its number.
            pub fn from_code(code: i8) -> Option<$name> {
                match code {
                    $($code => Some($name::$variant),)*
                    _ => None,
                }
            }

            /// Its number.
            pub fn code(self) -> i8 {
                self as i8
            }

            /// Its name in Kafka's tools and logs.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

numbered! {
    /// What is protected (`ResourceType`).
    ResourceType {
        Any = 1 "ANY",
        Topic = 2 "TOPIC",
        Group = 3 "GROUP",
        Cluster = 4 "CLUSTER",
        TransactionalId = 5 "TRANSACTIONAL_ID",
        DelegationToken = 6 "DELEGATION_TOKEN",
        User = 7 "USER",
    }
}

numbered! {
    /// How a name is meant (`PatternType`). `Any` and `Match` are for filters only.
    PatternType {
        Any = 1 "ANY",
        Match = 2 "MATCH",
        Literal = 3 "LITERAL",
        Prefixed = 4 "PREFIXED",
    }
}

numbered! {
    /// What is done (`AclOperation`).
    Operation {
        Any = 1 "ANY",
        All = 2 "ALL",
        Read = 3 "READ",
        Write = 4 "WRITE",
        Create = 5 "CREATE",
        Delete = 6 "DELETE",
        Alter = 7 "ALTER",
        Describe = 8 "DESCRIBE",
        ClusterAction = 9 "CLUSTER_ACTION",
        DescribeConfigs = 10 "DESCRIBE_CONFIGS",
        AlterConfigs = 11 "ALTER_CONFIGS",
        IdempotentWrite = 12 "IDEMPOTENT_WRITE",
        CreateTokens = 13 "CREATE_TOKENS",
        DescribeTokens = 14 "DESCRIBE_TOKENS",
        TwoPhaseCommit = 15 "TWO_PHASE_COMMIT",
    }
}

numbered! {
    /// Whether it may be done (`AclPermissionType`). `Any` is for filters only.
    Permission {
        Any = 1 "ANY",
        Deny = 2 "DENY",
        Allow = 3 "ALLOW",
    }
}

/// One rule (`StandardAcl`): a principal may, or may not, do an operation from a host on the resources of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The kind of resource.
    pub resource_type: ResourceType,
    /// Its name, a prefix of names, or `*` for all.
    pub resource_name: String,
    /// How the name is meant: literal or prefixed.
    pub pattern_type: PatternType,
    /// The principal as text, `User:*` for all.
    pub principal: String,
    /// The peer's address, `*` for all.
    pub host: String,
    /// The operation.
    pub operation: Operation,
    /// Allowed or denied.
    pub permission: Permission,
}

impl std::fmt::Display for Acl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Acl { resource_name, principal, host, .. } = self;
        let (permission, operation) = (self.permission.name(), self.operation.name());
        let (kind, pattern) = (self.resource_type.name(), self.pattern_type.name());
        write!(
            f,
            "{permission} {operation} on {kind} {resource_name} ({pattern}) for {principal} from {host}"
        )
    }
}
