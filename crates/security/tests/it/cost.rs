//! A decision costs at most a microsecond with 100,000 ACLs, whatever they are about, and allocates nothing;
//! a change does not copy them all.

use std::hint::black_box;

use thalweg_security::Principal;
use thalweg_security::acl::*;

const ACLS: usize = 100_000;
const STRETCH: usize = 250;

/// Allowed by an ACL, denied for lack of one, and allowed because there is none at all.
const QUESTIONS: [(Operation, ResourceType); 3] = [
    (Operation::Describe, ResourceType::Topic),
    (Operation::Write, ResourceType::Topic),
    (Operation::Read, ResourceType::Group),
];

fn acl(name: String, pattern_type: PatternType, principal: String, host: String) -> Acl {
    Acl {
        resource_type: ResourceType::Topic,
        resource_name: name,
        pattern_type,
        principal,
        host,
        operation: Operation::Read,
        permission: Permission::Allow,
    }
}

/// Scatters numbers, as names do that nobody counted up.
fn scattered(i: usize) -> String {
    format!("{:016x}", (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A shape: its ACLs, and the principal, host and name of a question that the i-th of them answers.
type Shape = (&'static str, fn(usize) -> Acl, fn(usize) -> (String, String, String));

fn owned(principal: &str, host: &str, name: String) -> (String, String, String) {
    (principal.to_owned(), host.to_owned(), name)
}

const SHAPES: [Shape; 9] = [
    (
        "literal names, counted",
        |i| acl(format!("topic-{i:06}"), PatternType::Literal, "User:a".into(), "*".into()),
        |i| owned("a", "10.0.0.1", format!("topic-{i:06}")),
    ),
    (
        "literal names, scattered",
        |i| acl(scattered(i), PatternType::Literal, "User:a".into(), "*".into()),
        |i| owned("a", "10.0.0.1", scattered(i)),
    ),
    (
        "prefixes",
        |i| acl(scattered(i), PatternType::Prefixed, "User:a".into(), "*".into()),
        |i| owned("a", "10.0.0.1", scattered(i) + ".orders"),
    ),
    (
        "prefixes for everyone",
        |i| acl(scattered(i), PatternType::Prefixed, "User:*".into(), "*".into()),
        |i| owned("a", "10.0.0.1", scattered(i) + ".orders"),
    ),
    (
        "wildcards of many principals",
        |i| acl("*".into(), PatternType::Literal, format!("User:{}", scattered(i)), "*".into()),
        |i| owned(&scattered(i), "10.0.0.1", "orders".into()),
    ),
    (
        "principals on one topic",
        |i| acl("orders".into(), PatternType::Literal, format!("User:user-{i}"), "*".into()),
        |i| owned(&format!("user-{i}"), "10.0.0.1", "orders".into()),
    ),
    (
        "hosts",
        |i| acl("orders".into(), PatternType::Literal, "User:a".into(), host(i)),
        |i| owned("a", &host(i), "orders".into()),
    ),
    (
        "principals with a prefix and a host each",
        |i| acl(scattered(i), PatternType::Prefixed, format!("User:user-{i}"), host(i)),
        |i| owned(&format!("user-{i}"), &host(i), scattered(i) + ".orders"),
    ),
    (
        "prefixes within prefixes",
        |i| acl(nested(i), PatternType::Prefixed, format!("User:user-{}", i / 200), "*".into()),
        |i| owned(&format!("user-{}", i / 200), "10.0.0.1", nested(99)),
    ),
];

fn host(i: usize) -> String {
    format!("10.{}.{}.{}", i >> 16, (i >> 8) & 255, i & 255)
}

fn nested(i: usize) -> String {
    "a".repeat(i % 200 + 1)
}

#[test]
#[ignore = "a measurement: cargo test --release -p thalweg-security -- --ignored cost --nocapture"]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn a_decision_costs_at_most_a_microsecond_with_100_000_acls() {
    if cfg!(debug_assertions) {
        crate::skipped("the cost of decisions: run with --release");
        return;
    }
    for (shape, rule, question) in SHAPES {
        let rules = Rules { allow_everyone_if_no_acl_found: true, ..Rules::default() };
        let started = std::time::Instant::now();
        let mut authorizer = Authorizer::new(rules, (0..ACLS).map(rule));
        let load = started.elapsed();
        // In no order that a cache could guess.
        let asked: Vec<_> = (0..ACLS).map(|i| question(i * 7919 % ACLS)).collect();
        let asked: Vec<_> =
            asked.into_iter().map(|(who, host, name)| (Principal::user(who), host, name)).collect();
        // The median of short stretches: the machine may be busy with something else meanwhile.
        let mut stretches: [Vec<u128>; 3] = Default::default();
        for (case, (operation, resource_type)) in QUESTIONS.into_iter().enumerate() {
            for stretch in asked.chunks(STRETCH) {
                let started = std::time::Instant::now();
                for (principal, host, name) in stretch {
                    let answer = authorizer.authorize(principal, host, operation, resource_type, name);
                    assert_eq!(black_box(answer).is_allowed, case != 1, "{shape}: {name}");
                }
                stretches[case].push(started.elapsed().as_nanos() / STRETCH as u128);
            }
        }
        let best = stretches.map(|mut stretches| {
            stretches.sort_unstable();
            stretches[stretches.len() / 2]
        });
        let started = std::time::Instant::now();
        const CHANGES: usize = 1000;
        for i in 0..CHANGES {
            let snapshot = authorizer.clone();
            assert!(authorizer.remove(&rule(i)));
            authorizer.add(rule(i));
            drop(black_box(snapshot));
        }
        let change = started.elapsed().as_nanos() / CHANGES as u128;
        println!(
            "{shape}: allowed {} ns, denied {} ns, no ACL {} ns; a change beside readers {change} ns; loaded in {load:?}",
            best[0], best[1], best[2]
        );
        assert!(best.iter().all(|ns| *ns <= 1000), "{shape}: {best:?} ns");
        assert!(change < 200_000, "{shape}: {change} ns");
    }
}

#[test]
fn a_decision_allocates_nothing() {
    for (shape, rule, question) in SHAPES {
        let authorizer = Authorizer::new(Rules::default(), (0..1000).map(rule));
        let (principal, host, name) = question(500);
        let principal = Principal::user(principal);
        let counted = allocation_counter::measure(|| {
            for operation in Operation::ALL {
                black_box(authorizer.authorize(&principal, &host, *operation, ResourceType::Topic, &name));
            }
        });
        assert_eq!(counted.count_total, 0, "{shape}");
    }
}
