//! ACLs, and the rights that they grant to a principal.

use serde::{Deserialize, Serialize};
use thalweg_client::{ClientError, ConfigResource, DescribeConfigs};
use thalweg_security::Principal;
use thalweg_security::acl::{
    Acl, AclFilter, Authorizer, CLUSTER_NAME, Operation, PatternType, Permission, Reason, ResourceType,
    Rules, supported_operations,
};
use utoipa::{IntoParams, ToSchema};

use super::View;
use crate::problem::Problem;

/// An ACL of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AclLine {
    /// `TOPIC`, `GROUP`, `CLUSTER`, `TRANSACTIONAL_ID`, `DELEGATION_TOKEN` or `USER`.
    pub resource_type: String,
    /// The resource name, a name prefix, or `*` for all.
    pub resource_name: String,
    /// `LITERAL` or `PREFIXED`.
    #[serde(default = "literal")]
    pub pattern_type: String,
    /// A principal such as `User:alice`; `User:*` for all.
    pub principal: String,
    /// A host address, or `*` for all.
    #[serde(default = "any_host")]
    pub host: String,
    /// An operation such as `READ`, or `ALL`.
    pub operation: String,
    /// `ALLOW` or `DENY`.
    #[serde(default = "allow")]
    pub permission: String,
}

fn literal() -> String {
    PatternType::Literal.name().to_owned()
}

fn any_host() -> String {
    "*".to_owned()
}

fn allow() -> String {
    Permission::Allow.name().to_owned()
}

impl AclLine {
    fn of(acl: &Acl) -> AclLine {
        AclLine {
            resource_type: acl.resource_type.name().to_owned(),
            resource_name: acl.resource_name.clone(),
            pattern_type: acl.pattern_type.name().to_owned(),
            principal: acl.principal.clone(),
            host: acl.host.clone(),
            operation: acl.operation.name().to_owned(),
            permission: acl.permission.name().to_owned(),
        }
    }

    fn read(&self) -> Result<Acl, Problem> {
        let resource_type =
            term("resource type", ResourceType::ALL, ResourceType::name, &self.resource_type)?;
        let resource_name = match resource_type {
            ResourceType::Cluster => CLUSTER_NAME.to_owned(),
            _ => self.resource_name.trim().to_owned(),
        };
        let principal = self.principal.trim();
        if resource_name.is_empty() {
            return Err(Problem::wrong("The resource needs a name, a prefix of names, or * for all"));
        }
        if principal.parse::<Principal>().is_err() {
            return Err(Problem::wrong(format!(
                "{principal:?} is not a principal: use TYPE:NAME, such as User:alice"
            )));
        }
        Ok(Acl {
            resource_type,
            resource_name,
            pattern_type: term("pattern type", PatternType::ALL, PatternType::name, &self.pattern_type)?,
            principal: principal.to_owned(),
            host: Some(self.host.trim()).filter(|host| !host.is_empty()).unwrap_or("*").to_owned(),
            operation: term("operation", Operation::ALL, Operation::name, &self.operation)?,
            permission: term("permission", Permission::ALL, Permission::name, &self.permission)?,
        })
    }
}

fn term<T: Copy>(what: &str, all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T, Problem> {
    let found = all.iter().find(|term| name(**term).eq_ignore_ascii_case(text.trim()));
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|term| name(*term)).collect();
        Problem::wrong(format!("{text:?} is no {what}: use one of {}", names.join(", ")))
    })
}

/// A filter and page of ACLs.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct AclQuery {
    /// A substring of the principal.
    #[param(required = false)]
    pub principal: String,
    /// A substring of the resource name.
    #[param(required = false)]
    pub resource: String,
    /// A resource type; all if empty.
    #[param(required = false)]
    pub resource_type: String,
    /// Page number, from 1.
    #[param(required = false)]
    pub page: usize,
}

/// A page of ACLs.
#[derive(Debug, Serialize, ToSchema)]
pub struct AclList {
    /// ACLs of this page.
    pub acls: Vec<AclLine>,
    /// Number of matching ACLs.
    pub matched: usize,
    /// Page number, from 1.
    pub page: usize,
    /// Number of pages.
    pub pages: usize,
}

const EVERY: AclFilter = AclFilter {
    resource_type: ResourceType::Any,
    resource_name: None,
    pattern_type: PatternType::Any,
    principal: None,
    host: None,
    operation: Operation::Any,
    permission: Permission::Any,
};

/// Lists the ACLs that match a query.
pub async fn list(view: &View, query: &AclQuery) -> Result<AclList, ClientError> {
    let mut acls = view.admin().describe_acls(&EVERY).await?;
    let contains = |text: &str, part: &str| text.to_lowercase().contains(&part.trim().to_lowercase());
    acls.retain(|acl| {
        contains(&acl.principal, &query.principal)
            && contains(&acl.resource_name, &query.resource)
            && (query.resource_type.is_empty() || acl.resource_type.name() == query.resource_type)
    });
    acls.sort_by(|a, b| {
        let key = |acl: &Acl| (acl.resource_type, acl.pattern_type, acl.operation, acl.permission);
        (&a.principal, key(a), &a.resource_name, &a.host).cmp(&(
            &b.principal,
            key(b),
            &b.resource_name,
            &b.host,
        ))
    });
    let (page, pages, range) = super::topics::page_of(acls.len(), query.page, 100);
    Ok(AclList { acls: acls[range].iter().map(AclLine::of).collect(), matched: acls.len(), page, pages })
}

/// Creates an ACL.
pub async fn create(view: &View, line: &AclLine) -> Result<(), Problem> {
    Ok(view.admin().create_acls(&[line.read()?]).await?)
}

/// Finds an ACL that equals this line.
pub async fn find(view: &View, line: &AclLine) -> Result<AclLine, Problem> {
    let acl = line.read()?;
    let found = view.admin().describe_acls(&exactly(&acl)).await?;
    found.first().map(AclLine::of).ok_or_else(|| missing(&acl))
}

/// Deletes an ACL, and returns it.
pub async fn delete(view: &View, line: &AclLine) -> Result<AclLine, Problem> {
    let acl = line.read()?;
    let deleted = view.admin().delete_acls(&exactly(&acl)).await?;
    deleted.first().map(AclLine::of).ok_or_else(|| missing(&acl))
}

fn exactly(acl: &Acl) -> AclFilter {
    AclFilter {
        resource_type: acl.resource_type,
        resource_name: Some(acl.resource_name.clone()),
        pattern_type: acl.pattern_type,
        principal: Some(acl.principal.clone()),
        host: Some(acl.host.clone()),
        operation: acl.operation,
        permission: acl.permission,
    }
}

fn missing(acl: &Acl) -> Problem {
    Problem::missing(format!("There is no such ACL: {acl}"))
}

/// A query for the rights of a principal.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct RightsQuery {
    /// A principal such as `User:alice`.
    #[param(required = false)]
    pub principal: String,
    /// The client address of the principal.
    #[param(required = false)]
    pub host: String,
    /// `TOPIC`, `GROUP`, `CLUSTER`, `TRANSACTIONAL_ID`, `DELEGATION_TOKEN` or `USER`.
    #[param(required = false)]
    pub resource_type: String,
    /// The name of the resource.
    #[param(required = false)]
    pub resource_name: String,
}

/// The decision for one operation, with its reason.
#[derive(Debug, Serialize, ToSchema)]
pub struct Right {
    /// An operation such as `READ`.
    pub operation: String,
    /// True if the operation is allowed. None if the resource has no ACL, and the login may not see whether
    /// `allow.everyone.if.no.acl.found` is set.
    pub is_allowed: Option<bool>,
    /// The ACL that decides. None if no ACL matches: then the operation is denied, unless the resource has no
    /// ACL at all and `allow.everyone.if.no.acl.found` is set.
    pub rule: Option<AclLine>,
}

/// The rights of a principal on a resource, by ACLs and `allow.everyone.if.no.acl.found`. Super users may do
/// everything and do not appear in ACLs.
pub async fn rights(view: &View, query: &RightsQuery) -> Result<Vec<Right>, Problem> {
    let principal = query.principal.trim().parse::<Principal>();
    let principal = principal.map_err(|_| {
        Problem::wrong(format!("{:?} is not a principal: use TYPE:NAME, such as User:alice", query.principal))
    })?;
    let kind = term("resource type", ResourceType::ALL, ResourceType::name, &query.resource_type)?;
    let name = match kind {
        ResourceType::Cluster => CLUSTER_NAME,
        _ => query.resource_name.trim(),
    };
    let host = Some(query.host.trim()).filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
    let (acls, is_open) = tokio::join!(view.admin().describe_acls(&EVERY), is_open_without_acls(view));
    Ok(decided(&acls?, is_open, &principal, host, (kind, name)))
}

/// The decisions for all operations. `is_open` is `allow.everyone.if.no.acl.found`, if known.
fn decided(
    acls: &[Acl],
    is_open: Option<bool>,
    principal: &Principal,
    host: &str,
    (kind, name): (ResourceType, &str),
) -> Vec<Right> {
    let authorizer = |allow_everyone_if_no_acl_found| {
        Authorizer::new(Rules { allow_everyone_if_no_acl_found, ..Rules::default() }, acls.iter().cloned())
    };
    let (strict, open) = (authorizer(false), authorizer(true));
    let rights = supported_operations(kind).iter().map(|operation| {
        let answer = strict.authorize(principal, host, *operation, kind, name);
        let if_open = open.authorize(principal, host, *operation, kind, name);
        let rule = match &answer.reason {
            Reason::Acl(acl) => Some(AclLine::of(acl)),
            Reason::SuperUser | Reason::NoMatch => None,
        };
        let is_allowed =
            if answer.is_allowed == if_open.is_allowed { Some(answer.is_allowed) } else { is_open };
        Right { operation: operation.name().to_owned(), is_allowed, rule }
    });
    rights.collect()
}

/// The value of `allow.everyone.if.no.acl.found` on a broker; none if the login may not see it.
async fn is_open_without_acls(view: &View) -> Option<bool> {
    const NAME: &str = "allow.everyone.if.no.acl.found";
    let catalog = view.catalog().await.ok()?;
    let broker = ConfigResource::Broker(*catalog.brokers.keys().next()?);
    let wanted = DescribeConfigs { names: Some(vec![NAME.to_owned()]), ..DescribeConfigs::default() };
    let described = view.admin().describe_configs_with(std::slice::from_ref(&broker), &wanted).await.ok()?;
    match described.into_values().next()?.ok()?.remove(NAME) {
        Some(entry) => entry.value?.trim().parse().ok(),
        // Apache Kafka's brokers report it only if it is set, and without its value.
        None => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_without_acls_is_open_if_the_cluster_allows_it() {
        let acl = |principal: &str, resource_name: &str| Acl {
            resource_type: ResourceType::Topic,
            resource_name: resource_name.to_owned(),
            pattern_type: PatternType::Literal,
            principal: principal.to_owned(),
            host: "*".to_owned(),
            operation: Operation::Read,
            permission: Permission::Allow,
        };
        let acls = [acl("User:ann", "orders")];
        let ann: Principal = "User:ann".parse().expect("a principal");
        let of = |is_open, topic: &str| {
            let rights = decided(&acls, is_open, &ann, "127.0.0.1", (ResourceType::Topic, topic));
            let named =
                |name: &str| rights.iter().find(|right| right.operation == name).expect("an operation");
            assert_eq!(named("READ").rule.is_some(), topic == "orders");
            (named("READ").is_allowed, named("DELETE").is_allowed)
        };
        for is_open in [Some(true), Some(false), None] {
            assert_eq!(of(is_open, "orders"), (Some(true), Some(false)), "the topic has an ACL");
            assert_eq!(of(is_open, "free"), (is_open, is_open));
        }
    }
}
