//! Patterns, and a comparison with RE2/J.

use super::*;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const TOPICS: [&str; 14] = [
    "a",
    "aa",
    "A",
    "b.c",
    "bxc",
    "orders",
    "orders-1",
    "orders-22",
    "Orders",
    "__consumer_offsets",
    "a-b",
    "a_b",
    "1",
    "{",
];

/// Patterns of common clients, details of the syntax, and invalid patterns.
const PATTERNS: &[&str] = &[
    "",
    "a",
    ".*",
    "orders.*",
    "^orders-[0-9]+$",
    "orders|a",
    "(orders|a)-.*",
    "b.c",
    r"b\.c",
    r"\Qb.c\E",
    r"\Qb.c",
    r"\Q\E",
    r"a\Q\E+",
    r"\Qa\E+",
    "[a-c].*",
    "[^a-c].*",
    "[^a]",
    "(?i)orders",
    "(?i:O)rders",
    "(?-i)orders",
    "(?i)o(?-i)rders.*",
    "(?i-s)ORDERS",
    "(?i-i)orders",
    "(?ii)ORDERS",
    "(?)a",
    "(?:)a",
    "(?U)a+",
    "(?s).+",
    "(?m)^a$",
    "a{1,2}",
    "a{2}",
    "a{2,}",
    "a{,2}",
    "a{",
    "a{x}",
    "a{01}",
    "{",
    "{1",
    "a{0}",
    "a{1000}",
    "a{1001}",
    "a{2,1}",
    "a{99999999999}",
    "a{1,99999999999}",
    "a**",
    "a*+",
    "a*?",
    "a+??",
    "a??",
    "a{2}{3}",
    "a{2}?",
    "*",
    "+a",
    "?",
    "(*a)",
    "a|*",
    "a|b|*",
    "^*",
    "$*",
    r"\b+",
    "(a",
    "a)",
    ")",
    "((a)",
    "()",
    "()*",
    "a||b",
    "|",
    "(|a)",
    "[a",
    "[]",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[-a]",
    "[a-b-c]",
    "[a-c-e]+",
    "[b-a]",
    "[[]",
    "[a[b]",
    "[a&&b]",
    "[a--b]",
    "[a~~b]",
    "[[:alpha:]]+",
    "[[:^alpha:]]",
    "[[:word:]]+",
    "[[:foo:]]",
    "[[:alpha:]",
    "[:alpha:]",
    "[[:]",
    "[[:a",
    r"\d",
    r"\w+",
    r"\W",
    r"\S+",
    r"[\d]",
    r"[\w.-]+",
    r"[^\w]",
    r"\pL+",
    r"\p{L}+",
    r"\p{^L}",
    r"\PL",
    r"\P{^L}+",
    r"\p{Greek}",
    r"\p{Lu}",
    r"\pX",
    r"\p{",
    r"\p",
    r"\p{}",
    r"[\pL_]+",
    r"[\p{Nope}]",
    r"\p{Any}",
    r"\a",
    r"\x41",
    r"\x{41}",
    r"\x{00000041}",
    r"\x{}",
    r"\x4",
    r"\x",
    r"\xzz",
    r"\x{110000}",
    r"\x{D800}",
    r"[\x{D800}]",
    r"[^\x{D800}]",
    r"\101",
    r"\1",
    r"\12",
    r"\08",
    r"\141",
    r"\8",
    r"\_",
    r"a\-b",
    r"\<",
    r"\>",
    r"\!",
    r"\e",
    r"\E",
    r"\Z",
    r"\z",
    r"a\z",
    r"\Aa",
    r"\ba\b",
    r"\Ba",
    r"\G",
    r"\C",
    r"\k<a>",
    r"\b{start}",
    r"\",
    r"a\",
    r"[\b]",
    r"[\Q]",
    r"[a-\d]",
    r"[\d-a]",
    r"[\d-]",
    "(?P<n>a)",
    "(?<n>a)",
    "(?P<n>a)(?P<n>b)",
    "(?P<n-x>a)",
    "(?P<>a)",
    "(?P<n",
    "(?P=n)",
    "(?'n'a)",
    "(?=a)",
    "(?!a)",
    "(?<=a)",
    "(?<!a)",
    "(?>a)",
    "(?#a)",
    "(?x)a",
    "(?u)a",
    "(?R)a",
    "(?i",
    "(?",
    "(?i-)a",
    "(?--i)a",
    "a(?i)",
    "é",
    "[é]",
    "[^é]+",
    "日本|a",
    "#",
    "a b",
    "a#b",
    "]",
    "a]",
    "}",
    "a}",
    "&&",
    "~",
    "-",
    "(?i)[a-c]",
    "(?i)[^a-c]+",
    "(?i)k",
    "((((a))))",
    "(a*)*",
    "(a+)+b",
    "(?:a|b)*c?",
    "orders-(1|2){2}",
    "[0-9a-zA-Z._-]+",
];

/// RE2/J's error, or a digit per topic: 1 for a match.
fn answer(pattern: &str) -> String {
    match compile(pattern) {
        Ok(regex) => TOPICS.map(|topic| if regex.is_match(topic) { '1' } else { '0' }).iter().collect(),
        Err(error) => error.reason,
    }
}

#[test]
fn patterns_match_whole_names() {
    for (pattern, expected) in [
        ("orders", vec!["orders"]),
        ("orders|a", vec!["a", "orders"]),
        (r"orders-\d+", vec!["orders-1", "orders-22"]),
        (r"\Qb.c\E", vec!["b.c"]),
        ("(?i)orders", vec!["orders", "Orders"]),
    ] {
        let matching: Vec<&str> =
            TOPICS.into_iter().filter(|topic| compile(pattern).expect("valid").is_match(topic)).collect();
        assert_eq!(matching, expected, "{pattern}");
    }
}

#[test]
fn errors_have_kafkas_words() {
    let error = validate("a**").expect_err("not valid");
    let text =
        "SubscribedTopicRegex `a**` is not a valid regular expression: invalid nested repetition operator.";
    assert_eq!(error.to_string(), text);
}

#[test]
fn large_patterns_are_refused() {
    assert!(validate(&"a".repeat(PATTERN_BYTES_MAX)).is_ok());
    let error = validate(&"a".repeat(PATTERN_BYTES_MAX + 1)).expect_err("too long");
    assert!(error.to_string().len() < 1200, "{error}");
    assert!(validate("((a{1000}){1000}){1000}").is_err());
    assert!(validate(&format!("{}{}", "(".repeat(5000), ")".repeat(5000))).is_err());
    assert!(validate("[a-z]{1000}").is_ok());
}

#[test]
fn no_text_makes_the_translation_panic_or_invent_syntax() {
    let parts = [
        "(", ")", "[", "]", "{", "}", "?", "*", "+", "|", "\\", "^", "-", ",", "1", "a", "é", ":", "p", "x",
        "Q", "E", "P<", "&&",
    ];
    let mut state = 7u64;
    for _ in 0..20_000 {
        let mut pattern = String::new();
        for _ in 0..1 + state % 9 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            pattern.push_str(parts[(state >> 33) as usize % parts.len()]);
        }
        if let Ok(translated) = syntax::translate(&pattern) {
            let known = ["a(?i)+"];
            assert!(Regex::new(&translated).is_ok() || known.contains(&&*pattern), "{pattern} {translated}");
        }
    }
}

#[test]
fn topics_that_may_not_be_described_are_left_out() {
    let patterns: BTreeSet<Arc<str>> = ["o.*", "orders.*", "(", "none"].map(Arc::from).into();
    let mut asked = Vec::new();
    let resolved = resolve(&patterns, TOPICS.into_iter(), |topic, count| {
        asked.push((topic.to_owned(), count));
        topic != "orders-1"
    });
    assert_eq!(
        asked,
        [("orders", 2), ("orders-1", 2), ("orders-22", 2)].map(|(topic, count)| (topic.to_owned(), count))
    );
    let expected: BTreeSet<Arc<str>> = ["orders", "orders-22"].map(Arc::from).into();
    assert_eq!(resolved["o.*"], expected);
    assert_eq!(resolved["orders.*"], expected);
    assert!(resolved["("].is_empty() && resolved["none"].is_empty());
}

#[test]
fn patterns_are_resolved_when_something_changed_or_time_passed() {
    let settled = Refresh {
        subscribed: 2,
        resolved: 2,
        has_new_pattern: false,
        last_ms: Some(1000),
        last_version: 5,
        topics_added_at: 5,
    };
    let interval_ms = 600_000;
    assert!(!settled.is_due(100_000, interval_ms));
    assert!(!settled.is_due(601_000, interval_ms));
    assert!(settled.is_due(601_001, interval_ms));
    for changed in [
        Refresh { has_new_pattern: true, ..settled },
        Refresh { resolved: 1, ..settled },
        Refresh { topics_added_at: 6, ..settled },
    ] {
        assert!(!changed.is_due(11_000, interval_ms), "{changed:?}");
        assert!(changed.is_due(11_001, interval_ms), "{changed:?}");
        assert!(Refresh { last_ms: None, ..changed }.is_due(0, interval_ms), "{changed:?}");
    }
    assert!(!Refresh { subscribed: 0, ..settled }.is_due(i64::MAX, interval_ms));
}

/// The same patterns are valid, match the same topics, and have the same errors.
#[test]
fn patterns_mean_what_they_mean_to_re2j() {
    let Some(classpath) = std::env::var("KAFKA_CLASSPATH").ok().filter(|path| !path.is_empty()) else {
        // Not `eprintln!`: the test harness swallows its output when a test passes.
        let how = "set KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\" to run it";
        writeln!(std::io::stderr(), "SKIPPED: comparison with RE2/J: {how}").expect("stderr takes a line");
        return;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/Patterns.java");
    let mut command = Command::new("java");
    command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.args(["-Dfile.encoding=UTF-8", "-cp", &classpath]).arg(source);
    let mut child =
        command.args(TOPICS).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("java is installed");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(PATTERNS.join("\n").as_bytes()).expect("java reads");
    drop(stdin);
    let output = child.wait_with_output().expect("java ends");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let kafkas: Vec<&str> = text.lines().collect();
    assert_eq!(kafkas.len(), PATTERNS.len());
    let pairs = PATTERNS.iter().zip(kafkas).map(|(pattern, theirs)| (pattern, answer(pattern), theirs));
    let differing: Vec<String> = pairs
        .filter(|(_, ours, theirs)| {
            ours != theirs && !(ours == "unexpected )" && theirs.ends_with("internal error"))
        })
        .map(|(pattern, ours, theirs)| format!("{pattern}: {ours}, RE2/J: {theirs}"))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
