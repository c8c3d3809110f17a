use super::*;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn declarations_are_sound() {
    let mut seen = BTreeSet::new();
    for module in MODULES {
        assert!(seen.insert((module.kind(), module.name)), "{} is declared twice", module.name);
        assert!(!module.examples.is_empty(), "{} has no example", module.name);
        assert!(!module.summary.ends_with('.'), "{}: {}", module.name, module.summary);
        let mut names = BTreeSet::new();
        for option in module.options {
            assert!(names.insert(option.name), "{} --{} is declared twice", module.name, option.name);
            assert!(option.summary.ends_with('.'), "{} --{}: {}", module.name, option.name, option.summary);
            if let OptionDefault::Value(text) = option.default {
                assert!(option.takes.read(text).is_ok(), "{} --{}={text}", module.name, option.name);
            }
        }
    }
    let sorted: Vec<_> = seen.into_iter().collect();
    assert_eq!(MODULES.iter().map(|module| (module.kind(), module.name)).collect::<Vec<_>>(), sorted);
}

#[test]
fn every_example_of_a_module_is_a_stream_that_can_be_run() {
    for module in MODULES {
        for (example, _) in module.examples {
            let plan =
                crate::plan::Plan::read(example, None, "example").unwrap_or_else(|error| panic!("{error}"));
            let used =
                plan.streams.iter().flat_map(|stream| stream.modules()).any(|used| used == module.name);
            assert!(used, "{example} has no {}", module.name);
        }
    }
}

#[test]
fn values_are_read_and_refused() {
    for (takes, right, wrong) in [
        (OptionType::Flag, &["true", "false"][..], &["yes", ""][..]),
        (OptionType::Integer(1, 10), &["1", "1_0"], &["0", "11", "-1", "1.5", "x", ""]),
        (OptionType::Number(0.0, 1.0), &["0", "0.5", "1e-3"], &["1.1", "nan", ""]),
        (
            OptionType::Duration,
            &["5", "500ms", "1.5s", "2m", "1h", "1d"],
            &["", "s", "5 parsecs", "-5s", "1e99d", "99999999d"],
        ),
        (OptionType::Size, &["5", "64KiB", "10MB", "1GiB"], &["", "1.5KB", "5XB", "99999999999GiB"]),
        (OptionType::Choice(&["a", "b"]), &["a"], &["c", ""]),
        (OptionType::Name, &["x"], &[""]),
        (OptionType::Expression, &["payload.a > 1"], &["payload.a >", ""]),
    ] {
        for text in right {
            assert!(takes.read(text).is_ok(), "{takes:?} {text:?}");
        }
        for text in wrong {
            let error = takes.read(text).expect_err(text);
            assert!(error.right.ends_with('.'), "{takes:?} {text:?}: {}", error.right);
        }
    }
    let Ok(Value::Duration(time)) = OptionType::Duration.read("1.5s") else { panic!("a time") };
    assert_eq!(time.as_millis(), 1500);
    let Ok(Value::Integer(size)) = OptionType::Size.read("64KiB") else { panic!("a size") };
    assert_eq!(size, 65_536);
}

/// `docs/streams/` has a page for each name, and no other; the folder `jobs` has pages of another kind.
/// UPDATE_DOCS=1 rewrites the pages.
#[test]
fn the_pages_are_fresh() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/streams");
    let names: BTreeSet<&str> = MODULES.iter().map(|module| module.name).collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        for name in &names {
            std::fs::write(folder.join(format!("{name}.md")), page(name)).expect("it can be written");
        }
    }
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let pages: BTreeSet<String> = entries
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "jobs")
        .collect();
    assert_eq!(pages, names.iter().map(|name| format!("{name}.md")).collect::<BTreeSet<_>>());
    for name in names {
        let written = std::fs::read_to_string(folder.join(format!("{name}.md"))).expect("the page is there");
        assert!(written == page(name), "docs/streams/{name}.md is stale: run this test with UPDATE_DOCS=1");
    }
}
