//! The terms of an ACL, with Kafka's codes.

macro_rules! numbered {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $code:literal $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i8)]
        pub enum $name {
            $($variant = $code,)*
        }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The variant of a code.
            pub fn from_code(code: i8) -> Option<$name> {
                match code {
                    $($code => Some($name::$variant),)*
                    _ => None,
                }
            }

            /// Kafka's code in requests and records.
            pub fn code(self) -> i8 {
                self as i8
            }

            /// The name in Kafka's tools and logs.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }
    };
}

numbered! {
    /// The type of a resource (`ResourceType`).
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
    /// The pattern type of a resource name (`PatternType`). `Any` and `Match` are for filters only.
    PatternType {
        Any = 1 "ANY",
        Match = 2 "MATCH",
        Literal = 3 "LITERAL",
        Prefixed = 4 "PREFIXED",
    }
}

numbered! {
    /// The operation on a resource (`AclOperation`).
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
    /// The permission (`AclPermissionType`). `Any` is for filters only.
    Permission {
        Any = 1 "ANY",
        Deny = 2 "DENY",
        Allow = 3 "ALLOW",
    }
}

/// An ACL (`StandardAcl`): allows or denies a principal an operation, from a host, on the resources of a
/// pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The resource type.
    pub resource_type: ResourceType,
    /// A resource name, a name prefix, or `*` for all.
    pub resource_name: String,
    /// The pattern type: literal or prefixed.
    pub pattern_type: PatternType,
    /// The principal as text; `User:*` for all.
    pub principal: String,
    /// The peer address; `*` for all.
    pub host: String,
    /// The operation; `All` covers every operation.
    pub operation: Operation,
    /// Allow or deny.
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
