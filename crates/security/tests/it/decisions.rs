//! Rules by example: what an administrator expects.

use thalweg_security::Principal;
use thalweg_security::acl::*;

fn acl(text: &str) -> Acl {
    let words: Vec<&str> = text.split(' ').collect();
    let [permission, principal, operation, pattern, name, host] = words[..] else { panic!("{text}") };
    let by_name = |operation: &str| {
        Operation::ALL.iter().copied().find(|known| known.name() == operation).expect("an operation")
    };
    Acl {
        resource_type: ResourceType::Topic,
        resource_name: name.to_owned(),
        pattern_type: if pattern == "prefix" { PatternType::Prefixed } else { PatternType::Literal },
        principal: format!("User:{principal}"),
        host: host.to_owned(),
        operation: by_name(operation),
        permission: if permission == "deny" { Permission::Deny } else { Permission::Allow },
    }
}

fn authorizer(acls: &[&str]) -> Authorizer {
    Authorizer::new(Rules::default(), acls.iter().map(|text| acl(text)))
}

fn may(authorizer: &Authorizer, principal: &str, operation: Operation, topic: &str) -> bool {
    let principal = Principal::user(principal);
    authorizer.authorize(&principal, "10.0.0.1", operation, ResourceType::Topic, topic).is_allowed
}

#[test]
fn any_denial_wins() {
    for denial in [
        "deny a READ literal t-1 *",
        "deny * READ prefix t *",
        "deny a ALL literal * *",
        "deny a READ prefix t- 10.0.0.1",
    ] {
        let authorizer = authorizer(&["allow a ALL literal t-1 *", "allow * ALL literal * *", denial]);
        assert!(!may(&authorizer, "a", Operation::Read, "t-1"), "{denial}");
    }
    let authorizer = authorizer(&["allow a READ literal t-1 *", "deny a READ literal t-1 10.0.0.2"]);
    assert!(may(&authorizer, "a", Operation::Read, "t-1"), "the denial is for another host");
}

#[test]
fn only_what_is_allowed_implies() {
    let rules = authorizer(&["allow a READ literal t *", "allow a ALTER_CONFIGS literal t *"]);
    assert!(may(&rules, "a", Operation::Describe, "t"));
    assert!(may(&rules, "a", Operation::DescribeConfigs, "t"));
    assert!(!may(&rules, "a", Operation::Write, "t"));
    let denied = authorizer(&["deny a READ literal t *", "allow a DESCRIBE literal t *"]);
    assert!(may(&denied, "a", Operation::Describe, "t"));
}

#[test]
fn a_resource_with_rules_is_closed_to_others() {
    let rules = Rules { allow_everyone_if_no_acl_found: true, ..Rules::default() };
    let authorizer = Authorizer::new(rules, [acl("allow a READ literal t *"), acl("deny b READ prefix u *")]);
    assert!(!may(&authorizer, "b", Operation::Read, "t"));
    assert!(!may(&authorizer, "a", Operation::Read, "u-1"));
    assert!(may(&authorizer, "b", Operation::Read, "v"));
}

#[test]
fn super_users_come_first() {
    let rules = Rules { super_users: vec![Principal::user("root")], ..Rules::default() };
    let authorizer = Authorizer::new(rules, [acl("deny * ALL literal * *")]);
    assert!(may(&authorizer, "root", Operation::Read, "t"));
    assert!(!may(&authorizer, "a", Operation::Read, "t"));
}

#[test]
fn a_copy_does_not_change() {
    let mut authorizer = authorizer(&["allow a READ literal t *"]);
    let before = authorizer.clone();
    authorizer.add(acl("deny * READ prefix t *"));
    assert!(may(&before, "a", Operation::Read, "t"));
    assert!(!may(&authorizer, "a", Operation::Read, "t"));
    assert!(authorizer.remove(&acl("deny * READ prefix t *")));
    assert!(!authorizer.remove(&acl("deny * READ prefix t *")));
    assert!(may(&authorizer, "a", Operation::Read, "t"));
}

#[test]
fn an_acl_that_was_added_twice_is_there_until_it_was_removed_twice() {
    let mut authorizer = authorizer(&["allow a READ literal t *", "allow a READ literal t *"]);
    assert!(authorizer.remove(&acl("allow a READ literal t *")));
    assert!(may(&authorizer, "a", Operation::Read, "t"));
    assert!(authorizer.remove(&acl("allow a READ literal t *")));
    assert!(!may(&authorizer, "a", Operation::Read, "t"));
    assert!(authorizer.is_empty());
}

#[test]
fn a_principal_cannot_borrow_a_name_by_its_type() {
    let authorizer = authorizer(&["allow a:b READ literal t *"]);
    let ask = |principal: Principal| {
        authorizer.authorize(&principal, "10.0.0.1", Operation::Read, ResourceType::Topic, "t").is_allowed
    };
    assert!(ask(Principal::user("a:b")));
    assert!(!ask(Principal::new("User:a", "b")));
}
