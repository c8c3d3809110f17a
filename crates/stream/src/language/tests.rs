use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn parsed(text: &str) -> ParsedDefinition {
    parse(text).unwrap_or_else(|complaints| panic!("{text}: {}", shown(text, complaints)))
}

fn shown(text: &str, complaints: Vec<Complaint>) -> String {
    Complaints { origin: None, text: text.to_owned(), complaints }.to_string()
}

/// A compact form of a stream.
fn compact(stream: &StreamText) -> String {
    let mut compact = stream.name.as_ref().map(|name| format!("{} = ", name.text)).unwrap_or_default();
    for (index, element) in stream.elements.iter().enumerate() {
        compact += if index > 0 { " | " } else { "" };
        match element {
            Element::Topic(topic) => compact += &format!("<{}>", topic.name.text),
            Element::Tap(tap) => {
                let label = tap.label.as_ref().map_or("", |label| label.text.as_str());
                compact += &format!("<tap {} {label}>", tap.stream.text);
            }
            Element::Stage(stage) => {
                compact += &stage.label.as_ref().map(|label| format!("{}: ", label.text)).unwrap_or_default();
                compact += &stage.module.text;
                for option in &stage.options {
                    compact += &format!(" {}={:?}", option.name.text, option.value.text);
                }
            }
        }
    }
    compact
}

#[test]
fn the_stream_of_the_published_measurement_is_understood() {
    let definition = parsed("load-generator --messageCount=500000000 --messageSize=1000 | throughput");
    let [stream] = &definition.streams[..] else { panic!("one stream") };
    assert_eq!(compact(stream), r#"load-generator messageCount="500000000" messageSize="1000" | throughput"#);
    let Element::Stage(stage) = &stream.elements[0] else { panic!("a stage") };
    assert_eq!((stage.span.clone(), stage.options[1].value.span.clone()), (0..58, 54..58));
}

#[test]
fn forms_are_understood() {
    for (text, expected) in [
        ("time|log", "time | log"),
        ("a = time | log", "a = time | log"),
        ("tick: time | out: log", "tick: time | out: log"),
        ("topic:orders > filter | topic:big-orders", "<orders> | filter | <big-orders>"),
        ("topic:a.b_c > log", "<a.b_c> | log"),
        ("time > topic:x", "time | <x>"),
        ("topic:x > topic:y", "<x> | <y>"),
        ("tap:stream:orders.big > counter", "<tap orders big> | counter"),
        ("tap:stream:orders > counter", "<tap orders > | counter"),
        ("x --a='it''s | > \\n' | y", r#"x a="it's | > \\n" | y"#),
        (r#"x --a="say ""hi"" \"you\" \n\t\\ \u{e9}" | y"#, r#"x a="say \"hi\" \"you\" \n\t\\ é" | y"#),
        ("x --a= | y", r#"x a="" | y"#),
        ("x --a=p.n=='a b'&&p.m>1 | y", r#"x a="p.n=='a b'&&p.m>1" | y"#),
        ("x --a=1 # not this | that\n", r#"x a="1""#),
        ("x --a=#1", r##"x a="#1""##),
    ] {
        let definition = parsed(text);
        let compact: Vec<String> = definition.streams.iter().map(compact).collect();
        assert_eq!(compact, [expected], "{text}");
    }
}

#[test]
fn a_file_has_several_streams_over_several_lines() {
    let text = "# Orders come in.\norders = http --port=9000\n  --path=/x |\n\n  topic:orders ; time | log\n\n\
                topic:orders > filter\n# in between\n  | null\n";
    let compact: Vec<String> = parsed(text).streams.iter().map(compact).collect();
    assert_eq!(
        compact,
        ["orders = http port=\"9000\" path=\"/x\" | <orders>", "time | log", "<orders> | filter | null"]
    );
}

#[test]
fn mistakes_are_shown_with_their_position_and_a_suggestion() {
    for (text, place, message, right) in [
        ("", "", "There is no stream", "`time | log`"),
        ("# only words", "", "There is no stream", "`time | log`"),
        ("time |", "", "A stage is missing here", "thalweg stream modules"),
        ("time | | log", "|", "A stage is expected here, not '|'", "source | processor | sink"),
        ("| log", "|", "A stage is expected here", "source"),
        ("time > log", ">", "Neither side of `>`", "Write `|` between stages"),
        ("time --x | log", "--x", "--x has no value", "`--x=VALUE`"),
        ("time --=1 | log", "--", "no name", "--name=value"),
        ("time -x=1 | log", "-x=1", "not expected", "write `--x=1`"),
        ("time x=1 | log", "x=1", "not expected", "--name=value"),
        ("time --x='a | log", "'", "never closed", "Add a closing '"),
        ("time --x=a'b | log", "'", "never closed", "Add a closing '"),
        ("time --x='a'b | log", "'a'", "continues after", "double the quotes"),
        (r#"time --x="a\q" | log"#, r"\q", "no such escape", r"\n"),
        (r#"time --x="\u{d800}" | log"#, r"\u", "no such escape", r"\u{HEX}"),
        ("topic: > log", ">", "A stage is expected here", "source"),
        ("topic:ä > log", "", "This is not a valid name", "topic:NAME"),
        ("topic:x --y=1 > log", "--y=1", "topic:NAME has no options", "Remove them"),
        ("queue:x > log", "queue:", "queue: is not supported yet", "topic:NAME"),
        ("time | tap:stream:x", "tap:stream:x", "A tap can only begin a stream", "tap:stream:NAME"),
        ("tap:jobs:x > log", "tap:jobs", "Only streams", "tap:stream:NAME"),
        ("tap:stream:x. > log", "x.", "This is not a valid name", "LABEL"),
    ] {
        let complaints = parse(text).expect_err(text);
        assert_eq!(&text[complaints[0].span.clone()], place, "{text}");
        let shown = shown(text, complaints);
        assert!(shown.contains(message) && shown.contains(right), "{text}:\n{shown}");
    }
}

#[test]
fn each_invalid_stream_of_a_file_is_reported_once() {
    let text = "time |\nlog\ntime --x | log\n  | more\ntime | log\nx --y='\n";
    let complaints = parse(text).expect_err("three are wrong");
    let places: Vec<&str> = complaints.iter().map(|complaint| &text[complaint.span.clone()]).collect();
    assert_eq!(places, ["--x", "'"]);
}

/// For any text, the parser terminates and its spans lie in the text.
#[test]
fn no_text_makes_the_parser_panic() {
    let parts = [
        "time",
        "log",
        "topic:",
        "tap:stream:",
        "queue:",
        "|",
        ">",
        "=",
        ";",
        "\n",
        " ",
        "#",
        "--",
        "-",
        ":",
        "'",
        "\"",
        "\\",
        "\\u{",
        "}",
        "a",
        "ö",
        "\u{1F600}",
        "\0",
        "\t",
        ".",
        "x.y",
        "--a=",
        "--b='c d'",
        "\r\n",
    ];
    for seed in 0..20_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(0..24);
        let text: String = (0..count).map(|_| parts[random.random_range(0..parts.len())]).collect();
        match parse(&text) {
            Ok(definition) => {
                for stream in &definition.streams {
                    assert!(text.get(stream.span.clone()).is_some(), "seed {seed}: {text:?}");
                    for element in &stream.elements {
                        assert!(text.get(element.span()).is_some(), "seed {seed}: {text:?}");
                    }
                }
            }
            Err(complaints) => {
                assert!(!complaints.is_empty(), "seed {seed}: {text:?}");
                for complaint in &complaints {
                    assert!(
                        text.get(complaint.span.clone()).is_some(),
                        "seed {seed}: {text:?} {complaint:?}"
                    );
                }
                shown(&text, complaints);
            }
        }
    }
}
