//! Random ACLs and requests, decided here and by Apache Kafka's `StandardAuthorizer`
//! (`tests/oracle/Decisions.java`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use thalweg_security::Principal;
use thalweg_security::acl::*;

/// ACL sets, and questions on each.
const ROUNDS: usize = 60;
const ROUNDS_AT_NIGHT: usize = 2_500;
const QUESTIONS: usize = 500;

const KINDS: [ResourceType; 3] = [ResourceType::Topic, ResourceType::Group, ResourceType::Cluster];
const PRINCIPALS: [&str; 7] =
    ["User:*", "User:alice", "User:bob", "User:CN=a,OU=b:c", "Role:alice", "User:", ":alice"];
const HOSTS: [&str; 6] = ["*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "::1", "10.0.0.0/8"];
/// Not the user `*`: Kafka fails on it.
const ASKING: [(&str, &str); 6] = [
    ("User", "alice"),
    ("User", "bob"),
    ("User", "CN=a,OU=b:c"),
    ("Role", "alice"),
    ("User", "root"),
    ("User", ""),
];
const ADDRESSES: [&str; 3] = ["10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"];

/// A round's own few names, so that they meet: from letters, the wildcard, one that needs two units in Java,
/// and the name that Kafka asks about where any resource would do.
fn names(random: &mut StdRng) -> Vec<String> {
    let letters = ["a", "b", "*", "-", "é", "𝄞"];
    let mut names: Vec<String> = (0..random.random_range(2..12))
        .map(|_| (0..random.random_range(1..5)).map(|_| *letters.choose(random).expect("some")).collect())
        .collect();
    names.push("*".to_owned());
    if random.random_bool(0.3) {
        names.extend(["hard".to_owned(), "hardcode".to_owned()]);
    }
    if random.random_bool(0.3) {
        let long = names[0].repeat(3);
        names.extend(long.char_indices().skip(1).map(|(at, _)| long[..at].to_owned()));
    }
    names
}

fn pick<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
    *of.choose(random).expect("some")
}

fn random_acl(random: &mut StdRng, names: &[String]) -> Acl {
    let operations = &Operation::ALL[1..];
    Acl {
        resource_type: pick(random, &KINDS),
        resource_name: names.choose(random).expect("some").clone(),
        pattern_type: pick(random, &[PatternType::Literal, PatternType::Prefixed]),
        principal: pick(random, &PRINCIPALS).to_owned(),
        host: if random.random_bool(0.6) { "*".to_owned() } else { pick(random, &HOSTS).to_owned() },
        operation: if random.random_bool(0.2) { Operation::All } else { pick(random, operations) },
        permission: if random.random_bool(0.3) { Permission::Deny } else { Permission::Allow },
    }
}

/// The script for Kafka, and this crate's answers.
#[derive(Default)]
struct Comparison {
    script: String,
    answers: Vec<String>,
    decisions: usize,
}

impl Comparison {
    fn round(&mut self, random: &mut StdRng) {
        let rules = Rules {
            super_users: if random.random_bool(0.2) { vec![Principal::user("root")] } else { Vec::new() },
            allow_everyone_if_no_acl_found: random.random_bool(0.5),
        };
        let supers = if rules.super_users.is_empty() { "" } else { " User:root ; " };
        writeln!(self.script, "new\t{supers}\t{}", rules.allow_everyone_if_no_acl_found).expect("text");
        let mut authorizer = Authorizer::new(rules, []);
        let (names, mut acls, mut next) = (names(random), BTreeMap::new(), 0);
        let size = pick(random, &[1_usize, 4, 12, 40]);
        for question in 0..QUESTIONS {
            if question == 0 || random.random_bool(0.05) {
                // As one delta of the metadata log: some go, some come.
                let gone: Vec<i32> = acls.keys().copied().filter(|_| random.random_bool(0.5)).collect();
                for id in gone {
                    assert!(authorizer.remove(&acls.remove(&id).expect("one of them")));
                    writeln!(self.script, "remove\t{id}").expect("text");
                }
                while acls.len() < size {
                    let acl = random_acl(random, &names);
                    if authorizer.contains(&acl) {
                        break;
                    }
                    let Acl { resource_name, principal, host, .. } = &acl;
                    let (kind, pattern) = (acl.resource_type.code(), acl.pattern_type.code());
                    let (operation, permission) = (acl.operation.code(), acl.permission.code());
                    writeln!(
                        self.script,
                        "add\t{next}\t{kind}\t{resource_name}\t{pattern}\t{principal}\t{host}\t{operation}\t{permission}"
                    )
                    .expect("text");
                    authorizer.add(acl.clone());
                    acls.insert(next, acl);
                    next += 1;
                }
                assert_eq!(authorizer.len(), acls.len());
            }
            match random.random_range(0..10) {
                0 => self.filter(random, &acls, &names),
                1..3 => self.any(random, &authorizer),
                _ => self.ask(random, &authorizer, &names),
            }
        }
    }

    fn ask(&mut self, random: &mut StdRng, authorizer: &Authorizer, names: &[String]) {
        let ((kind, name), host) = (pick(random, &ASKING), pick(random, &ADDRESSES));
        let (operation, resource_type) = (pick(random, &Operation::ALL[1..]), pick(random, &KINDS));
        let mut resource = names.choose(random).expect("some").clone();
        if random.random_bool(0.3) {
            resource.push_str(pick(random, &["a", "x", "*"]));
        }
        let answer =
            authorizer.authorize(&Principal::new(kind, name), host, operation, resource_type, &resource);
        self.answers.push(letter(&answer));
        self.decisions += 1;
        let (operation, resource_type) = (operation.code(), resource_type.code());
        writeln!(self.script, "ask\t{kind}\t{name}\t{host}\t{operation}\t{resource_type}\t{resource}")
            .expect("text");
    }

    fn any(&mut self, random: &mut StdRng, authorizer: &Authorizer) {
        let ((kind, name), host) = (pick(random, &ASKING), pick(random, &ADDRESSES));
        let (operation, resource_type) = (pick(random, &Operation::ALL[1..]), pick(random, &KINDS));
        let principal = Principal::new(kind, name);
        let answer = authorizer.authorize_by_resource_type(&principal, host, operation, resource_type);
        self.answers.push(letter(&answer));
        self.decisions += 1;
        let (operation, resource_type) = (operation.code(), resource_type.code());
        writeln!(self.script, "any\t{kind}\t{name}\t{host}\t{operation}\t{resource_type}").expect("text");
    }

    fn filter(&mut self, random: &mut StdRng, acls: &BTreeMap<i32, Acl>, names: &[String]) {
        let acl = random_acl(random, names);
        let filter = AclFilter {
            resource_type: if random.random_bool(0.5) { ResourceType::Any } else { acl.resource_type },
            resource_name: random.random_bool(0.6).then_some(acl.resource_name),
            pattern_type: pick(random, PatternType::ALL),
            principal: random.random_bool(0.3).then_some(acl.principal),
            host: random.random_bool(0.3).then_some(acl.host),
            operation: if random.random_bool(0.7) { Operation::Any } else { acl.operation },
            permission: if random.random_bool(0.7) { Permission::Any } else { acl.permission },
        };
        let ids: Vec<_> = acls.iter().filter(|(_, acl)| filter.matches(acl)).map(|(id, _)| *id).collect();
        self.answers.push(format!("{ids:?}").replace(' ', ""));
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "~".to_owned());
        writeln!(
            self.script,
            "filter\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            filter.resource_type.code(),
            text(&filter.resource_name),
            filter.pattern_type.code(),
            text(&filter.principal),
            text(&filter.host),
            filter.operation.code(),
            filter.permission.code()
        )
        .expect("text");
    }

    /// Runs Kafka, and names the first answer that is not the same.
    fn against_kafka(&self, classpath: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("script");
        std::fs::write(&script, &self.script).expect("a script");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/Decisions.java");
        let mut java = Command::new("java");
        java.args([
            "-Xmx1g",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dfile.encoding=UTF-8",
            "-cp",
            classpath,
        ])
        .arg(source)
        .arg(script);
        let output = java.output().expect("Java runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).expect("text");
        let lines: Vec<&str> = printed.lines().filter(|line| !line.contains("INFO")).collect();
        assert_eq!(lines.len(), self.answers.len(), "every question is answered");
        let asked = ["ask", "any", "filter", "check"];
        let questions = self.script.lines().enumerate();
        let questions =
            questions.filter(|(_, line)| asked.contains(&line.split('\t').next().unwrap_or_default()));
        let mut different = 0;
        for (((at, question), here), there) in questions.zip(&self.answers).zip(&lines) {
            if here != there {
                different += 1;
                if different <= 5 {
                    let before: Vec<&str> = self.script.lines().take(at).collect();
                    let start = before.iter().rposition(|line| line.starts_with("new")).unwrap_or(0);
                    let rules: Vec<_> = before[start..]
                        .iter()
                        .filter(|line| !asked.contains(&line.split('\t').next().unwrap_or_default()))
                        .collect();
                    eprintln!("{question:?}: {here} here, {there} in Kafka, after {rules:#?}");
                }
            }
        }
        assert_eq!(different, 0, "of {} answers", lines.len());
    }
}

fn letter(answer: &Answer) -> String {
    if answer.is_allowed { "A" } else { "D" }.to_owned()
}

fn classpath() -> Option<String> {
    let set = std::env::var("KAFKA_CLASSPATH").ok().filter(|path| !path.is_empty());
    if set.is_none() {
        crate::skipped("decisions of Kafka's own class: set KAFKA_CLASSPATH (compat/kafka-jars/fetch)");
    }
    set
}

fn compare(rounds: usize, seed: u64) {
    let Some(classpath) = classpath() else { return };
    let mut random = StdRng::seed_from_u64(seed);
    let mut comparison = Comparison::default();
    for _ in 0..rounds {
        comparison.round(&mut random);
    }
    let allowed = comparison.answers.iter().filter(|answer| *answer == "A").count();
    let share = allowed * 100 / comparison.decisions;
    assert!((15..85).contains(&share), "{share} % allowed: the questions say little");
    println!("seed {seed}: {} decisions, {share} % allowed", comparison.decisions);
    comparison.against_kafka(&classpath);
}

#[test]
fn decisions_are_kafkas() {
    compare(ROUNDS, 14);
}

#[test]
#[ignore = "minutes; nightly"]
fn a_million_decisions_are_kafkas() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    compare(ROUNDS_AT_NIGHT, seed);
}

#[test]
fn the_words_for_new_acls_are_kafkas() {
    let Some(classpath) = classpath() else { return };
    let mut comparison = Comparison::default();
    for (kind, pattern, operation, permission) in [
        (2, 3, 3, 3),
        (99, 3, 3, 3),
        (2, 0, 3, 3),
        (2, 99, 3, 3),
        (2, 3, 99, 3),
        (2, 3, 3, 99),
        (4, 4, 13, 2),
    ] {
        for (principal, host) in
            [("User:a", "*"), ("a", "*"), ("", "*"), (":", ""), ("User:a:b", "10.0.0.0/8")]
        {
            let name = if kind == 4 { CLUSTER_NAME } else { "t" };
            let raw = RawAcl {
                resource_type: kind,
                resource_name: name,
                pattern_type: pattern,
                principal,
                host,
                operation,
                permission,
            };
            let words = Acl::to_create(raw).err().map_or("-".to_owned(), |error| error.to_string());
            comparison.answers.push(words);
            writeln!(
                comparison.script,
                "check\t{kind}\t{name}\t{pattern}\t{principal}\t{host}\t{operation}\t{permission}"
            )
            .expect("text");
        }
    }
    comparison.against_kafka(&classpath);
}
