//! Invalid texts and options of every stage, from seeds: never a panic, and every error names the position,
//! the option and what to do.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use thalweg_stream::language::Complaints;
use thalweg_stream::message::Batch;
use thalweg_stream::module::{Kind, MODULES, Module, OptionDefault, OptionType, Settings, Site, StageMaker};
use thalweg_stream::plan::Plan;
use thalweg_stream::stage::{SourceWatch, Turn};
use thalweg_stream::{BadMessages, Cluster, Guarantee, OnError, Reach};
use tokio::time::Instant;

use super::Lines;

/// Plausible and implausible values.
const VALUES: [&str; 48] = [
    "",
    " ",
    "0",
    "1",
    "-1",
    "1.5",
    "007",
    "1e9",
    "1e-300",
    "1e400",
    "nan",
    "inf",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "4294967296",
    "true",
    "TRUE",
    "0ms",
    "1us",
    "5 parsecs",
    "36499d",
    "99999999d",
    "1KiB",
    "17179869183GiB",
    "..",
    ".",
    "a b",
    "ö",
    "\u{0}",
    "\u{1F600}",
    "%",
    "%Y%Q",
    "%Y-%m",
    "%9999d",
    "earliest",
    "offset:1",
    "offset:0=1,0=2",
    "timestamp:99999999999999999999",
    "http://",
    "http://[::1",
    "https://a:99999999/",
    "p50,p999,count",
    "payload.a",
    "payload.a.b.c > 1",
    "1/0",
    "'a'.matches('(')",
    "sequence % 0",
];

/// A value of an option.
fn sample(takes: OptionType) -> String {
    match takes {
        OptionType::Text | OptionType::Name | OptionType::Topic | OptionType::Topics => "x".to_owned(),
        OptionType::Flag => "true".to_owned(),
        OptionType::Integer(min, max) => 10.clamp(min, max).to_string(),
        OptionType::Number(min, max) => 2f64.clamp(min, max).to_string(),
        OptionType::Duration | OptionType::Seconds => "1s".to_owned(),
        OptionType::Size => "2MiB".to_owned(),
        OptionType::Choice(words) => words[0].to_owned(),
        OptionType::Expression => "payload".to_owned(),
        OptionType::Url => "http://127.0.0.1:1/".to_owned(),
        OptionType::Brokers => "localhost:1".to_owned(),
        OptionType::Figures => "count".to_owned(),
        OptionType::TimeFormat => "%H".to_owned(),
        OptionType::Begin => "earliest".to_owned(),
        OptionType::Partitions => "0".to_owned(),
    }
}

/// A stream with a stage that has these options and its required ones.
fn text(module: &Module, options: &[(&str, String)]) -> String {
    let required = module.options.iter().filter(|option| option.default == OptionDefault::Required);
    let missing = required.filter(|option| options.iter().all(|(name, _)| *name != option.name));
    let all = missing.map(|option| (option.name, sample(option.takes))).chain(options.iter().cloned());
    let written = all.map(|(name, value)| format!(" --{name}='{}'", value.replace('\'', "''")));
    let stage = module.name.to_owned() + &written.collect::<String>();
    match module.kind() {
        Kind::Source => format!("{stage} | null"),
        Kind::Processor => format!("time | {stage} | null"),
        Kind::Sink => format!("time | {stage}"),
    }
}

/// Checks that an error has a position, a message and advice.
fn check(complaints: &Complaints, names: &dyn Fn(&str) -> bool) {
    let shown = complaints.to_string();
    assert!(!complaints.complaints.is_empty() && shown.contains('^'), "{shown}");
    for complaint in &complaints.complaints {
        assert!(
            complaints.text.get(complaint.span.clone()).is_some(),
            "{complaint:?} of {:?}",
            complaints.text
        );
        assert!(complaint.right.len() > 3 && !complaint.message.is_empty(), "{shown}");
        assert!(names(&format!("{} {}", complaint.message, complaint.right)), "no option is named: {shown}");
    }
}

#[test]
fn every_option_rejects_invalid_values_by_name() {
    let deep = ["(", "[", "!", "-", "{1:", "a?", "a.b(", "1+"].map(|part| part.repeat(20_000));
    let values = || VALUES.iter().map(|value| (*value).to_owned()).chain(deep.clone());
    let mut refused = 0;
    for module in MODULES {
        for option in module.options {
            for value in values() {
                let text = text(module, &[(option.name, value)]);
                if let Err(complaints) = Plan::read(&text, None, "s") {
                    refused += 1;
                    check(&complaints, &|told| told.contains(&format!("--{}", option.name)));
                }
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

/// Processors that need a program or a cluster.
const OUTSIDE: [&str; 2] = ["enrich", "exec"];

#[test]
fn whatever_options_go_together_work_on_whatever_comes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let processors = || {
        MODULES.iter().filter(|module| module.kind() == Kind::Processor && !OUTSIDE.contains(&module.name))
    };
    let (mut made, mut refused) = (0, 0);
    for seed in 0..4000 {
        let mut random = StdRng::seed_from_u64(seed);
        for module in processors() {
            let mut options = Vec::new();
            for option in module.options {
                match random.random_range(0..4) {
                    0 => options.push((option.name, VALUES[random.random_range(0..VALUES.len())].to_owned())),
                    1 => options.push((option.name, sample(option.takes))),
                    _ => {}
                }
            }
            let text = text(module, &options);
            match Plan::read(&text, None, "s") {
                Ok(_) => {
                    made += 1;
                    runtime.block_on(work(module, &options, &mut random));
                }
                Err(complaints) => {
                    refused += 1;
                    check(&complaints, &|told| {
                        module.options.iter().any(|option| told.contains(&format!("--{}", option.name)))
                    });
                }
            }
        }
    }
    assert!(made > 1000 && refused > 1000, "{made} {refused}");
}

/// Runs a processor on some messages to the end.
async fn work(module: &'static Module, options: &[(&str, String)], random: &mut StdRng) {
    let given =
        |name: &str| options.iter().find(|(option, _)| *option == name).map(|(_, value)| value.clone());
    let texts: Vec<(&str, String)> = module
        .options
        .iter()
        .filter_map(|option| {
            let required = (option.default == OptionDefault::Required).then(|| sample(option.takes));
            Some((option.name, given(option.name).or(required)?))
        })
        .collect();
    let settings = Settings::read(module, |name| {
        texts.iter().find(|(option, _)| *option == name).map(|(_, value)| value.as_str())
    });
    let settings = settings.unwrap_or_else(|_| panic!("a plan has taken them: {texts:?}"));
    let site = Site {
        stream: "s".into(),
        guarantee: Guarantee::AtLeastOnce,
        is_stored: true,
        gives_refused_back: false,
        transactional_id: None,
        has_durable_state: false,
        sources: [].into(),
        tracks_partitions: true,
        console: Arc::new(Lines::default()),
        findings: Default::default(),
        reach: Reach::everything().into(),
    };
    let StageMaker::Processor(make) = module.make else { panic!("it is a processor") };
    let mut processor = make(&settings, &site).unwrap_or_else(|error| panic!("{texts:?}: {error}"));
    let cluster = Cluster { bootstrap: "none".to_owned(), properties: None };
    let mut bad =
        BadMessages::new(&OnError::Skip, &cluster, &Reach::everything(), "s".into(), Arc::default())
            .expect("nothing to open");
    const PAYLOADS: [&str; 9] = [
        "",
        "{}",
        r#"{"a": {"b": {"c": 7}}}"#,
        "[1, 2, [3]]",
        "17",
        "-1e308",
        "x",
        "\u{1F600}\n",
        r#"{"a": "#,
    ];
    let mut batch = Batch::new();
    for sequence in 0..random.random_range(1..20) {
        let payload = PAYLOADS[random.random_range(0..PAYLOADS.len())];
        let time_ms = [0, 1, -1, i64::MIN, i64::MAX, 1_700_000_000_000][random.random_range(0..6)];
        batch.push(payload.into(), None, time_ms, sequence);
    }
    let now = Instant::now();
    let mut turn = Turn { now, time_ms: 1_700_000_000_000, source: SourceWatch::new(now), bad: &mut bad };
    processor.process(&mut batch, &mut turn).unwrap_or_else(|error| panic!("{texts:?}: {error}"));
    let _ = processor.deadline();
    batch.clear();
    processor.tick(&mut batch, &mut turn).unwrap_or_else(|error| panic!("{texts:?}: {error}"));
    batch.clear();
    processor.finish(&mut batch).await.unwrap_or_else(|error| panic!("{texts:?}: {error}"));
}

#[test]
fn a_mistyped_text_is_read_or_refused() {
    const PARTS: [&str; 22] = [
        "|", ">", ";", "\n", "--", "-", "=", "'", "\"", "\\", ":", "tap:", "topic:", "stream:", "#", " ",
        "\t", "ö", "\u{0}", "a", "\u{202e}", "x = ",
    ];
    let texts: Vec<&str> =
        MODULES.iter().flat_map(|module| module.examples.iter().map(|(example, _)| *example)).collect();
    for seed in 0..20_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut text: Vec<char> = texts[random.random_range(0..texts.len())].chars().collect();
        for _ in 0..random.random_range(1..5) {
            let at = random.random_range(0..=text.len());
            let to = (at + random.random_range(0..6)).min(text.len());
            match random.random_range(0..3) {
                0 => drop(text.drain(at..to)),
                1 => drop(text.splice(at..at, PARTS[random.random_range(0..PARTS.len())].chars())),
                _ => {
                    let part: Vec<char> = text[at..to].to_vec();
                    let other = random.random_range(0..=text.len());
                    drop(text.splice(other..other, part));
                }
            }
        }
        let text: String = text.into_iter().collect();
        for read in [Plan::read, Plan::read_over_topics] {
            if let Err(complaints) = read(&text, None, "s") {
                check(&complaints, &|_| true);
            }
        }
    }
}
