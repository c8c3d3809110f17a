use super::*;

fn complaint(text: &str) -> String {
    let complaints = Plan::read(text, None, "stream").err();
    complaints.unwrap_or_else(|| panic!("{text} is taken for sound")).to_string()
}

#[test]
fn labels_are_names_of_modules_until_these_repeat() {
    let text = "a = time | filter --expression=true | out: filter --expression=true | filter --expression=true | log";
    let plan = Plan::read(text, None, "stream").unwrap_or_else(|error| panic!("{error}"));
    let labels: Vec<&str> = plan.streams[0].stages().map(|stage| &*stage.label).collect();
    assert_eq!(labels, ["time", "filter", "out", "filter-2", "log"]);
}

#[test]
fn taps_and_topics_join_streams() {
    let text = "a = time | x: filter --expression=true | topic:t\n\
                topic:t > log\ntap:stream:a > counter\ntap:stream:a.x > null";
    let plan = Plan::read(text, None, "stream").unwrap_or_else(|error| panic!("{error}"));
    let inputs: Vec<String> =
        plan.streams.iter().skip(1).map(|stream| format!("{:?}", stream.input)).collect();
    assert_eq!(inputs, ["Topic(\"t\")", "Tap { stream: 0, stage: 0 }", "Tap { stream: 0, stage: 1 }"]);
    let names: Vec<&str> = plan.streams.iter().map(|stream| &*stream.name).collect();
    assert_eq!(names, ["a", "stream-2", "stream-3", "stream-4"]);
}

#[test]
fn options_that_cannot_be_combined_are_reported() {
    for (text, message, right) in [
        ("time --format=%Q | log", "--format cannot be \"%Q\"", "Use a strftime format"),
        ("kafka --topics=a,,b | null", "--topics cannot be", "Use topic names"),
        ("time | kafka --topic='a b'", "--topic cannot be", "letters, digits"),
        ("kafka --topics=t --group=g --partitions=1 | null", "share all partitions", "remove --group"),
        ("kafka --topics=t --group=g --untilEnd=true | null", "can change", "remove --group"),
        ("kafka --topics=t --group=g --from=offset:3 | null", "resumes from", "earliest or latest"),
        ("kafka --topics=t --partitions=1 --from=offset:0=3 | null", "Partition 0 is not among", "Add it"),
        ("time | kafka --topic=t --linger=1h --deliveryTimeout=2h", "at most 15 minutes", "15m"),
        ("time | kafka --topic=t --linger=5m --deliveryTimeout=1m", "leaves no time", "more than --linger"),
        ("time | kafka --topic=t --buffer=1", "too small or too large", "1MiB"),
        ("file --path=x --from=end | null", "needs --mode=follow", "add --mode=follow"),
        ("http --path=/{x} | null", "cannot contain patterns", "/orders"),
        ("load-generator --messageSize=65MiB | null", "at most 64 MiB", "or less"),
        ("load-generator --mode=reference --generateTimestamp=true | null", "the same bytes", "--mode=copy"),
        ("load-generator --messageSize=8 --generateTimestamp=true | null", "take 12 bytes", "larger"),
        ("stdin | splitter --member=a | null", "needs a JSON object", "--by=json"),
        ("stdin | splitter --by=json --delimiter=, | null", "need no delimiter", "remove --by=json"),
        ("stdin | aggregate --figures=sum | null", "need a number", "Add --of"),
        ("stdin | aggregate --window=1h --slide=1ms | null", "10000 windows", "longer"),
        ("stdin | aggregate --window=1s --slide=1m | null", "would lose the messages", "at most --window"),
        ("time | http --url=http://h/ --caFile=x", "needs an https URL", "https://"),
        ("time | http --url=ftp://h/", "--url cannot be", "https://HOST/PATH"),
        ("stdin | null; stdin | null", "Another stream reads standard input", "topic:NAME"),
    ] {
        let shown = complaint(text);
        assert!(shown.contains(message) && shown.contains(right), "{text}:\n{shown}");
        assert!(shown.contains('^'), "{text}:\n{shown}");
    }
}

#[test]
fn mistakes_are_reported_with_advice() {
    for (text, message, right) in [
        ("time | fliter --expression=true | log", "There is no processor fliter", "Did you mean filter?"),
        ("time | frobnicate", "There is no sink frobnicate", "counter, file, histogram"),
        (
            "filter --expression=true | log",
            "filter is a processor, but a source is expected",
            "between source and sink",
        ),
        ("time | time | log", "time is a source, but a processor is expected here", "begins a stream"),
        ("time", "needs a source and a sink", "`time | SINK`"),
        ("log", "needs a source and a sink", "`SOURCE | log`"),
        ("time | filter | log", "filter needs --expression", "`filter --expression=...`"),
        (
            "time | filter --expresion=true | log",
            "filter has no option --expresion",
            "Did you mean --expression?",
        ),
        ("time | null --x=1", "null has no option --x", "null has no options."),
        ("time --fixedDelay=soon | log", "--fixedDelay cannot be \"soon\"", "Use a time such as"),
        ("time --count=1 --count=2 | log", "--count is given twice", "Remove one."),
        ("load-generator --messageSize=-1 | null", "--messageSize cannot be", "Use a size such as"),
        (
            "time | filter --expression='amount > 1' | log",
            "--expression: This is not a valid expression: there is no variable amount",
            "Expressions are CEL",
        ),
        ("time | topic:x | log", "A named destination can only begin or end", "topic:NAME > ..."),
        ("time | topic:x", "No stream of this text reads topic:x", "`topic:x > ...`"),
        ("topic:x > log", "No stream of this text writes topic:x", "`... | topic:x`"),
        ("topic:x > topic:x", "feeds itself", "in the cycle elsewhere"),
        ("a = time | log\na = time | log", "two streams called a", "its own name"),
        (
            "time | filter --expression='payload.a = 1' | log",
            "= is not expected here; == compares",
            "\n                                          ^\n",
        ),
        (
            "time | filter --expression='payload.a > 1 and true' | log",
            "and is not expected here",
            "\n                                              ^\n",
        ),
        ("time | filter --expression='payload.a >' | log", "it ends unexpectedly", "Expressions are CEL"),
        ("time | filter --expression=payload.a > 1 | log", "Neither side of `>`", "Quote a value"),
        ("tap:stream:a > log", "There is no stream a", "`a = SOURCE | SINK`"),
        ("time | router --expression=x", "router is not supported", "topic:NAME > filter"),
        ("time -> log", "-> is not expected here", "stages are joined by `|`"),
        ("time | aggregate --window=0 | log", "cannot be empty", "--window=10s"),
        ("x: time | x: log", "Two stages have the label x", "its own label"),
        ("a = time | log\ntap:stream:b.time > log", "There is no stream b", "Did you mean tap:stream:a?"),
        ("a = time | log\ntap:stream:a.tmie > log", "has no stage tmie", "Did you mean tap:stream:a.time?"),
        ("a = time | log\ntap:stream:a.log > log", "has no stage log", "can be tapped: time."),
    ] {
        let shown = complaint(text);
        assert!(shown.contains(message) && shown.contains(right), "{text}:\n{shown}");
        assert!(shown.contains('^'), "{text}:\n{shown}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let shown = complaint("time --x=1 --fixedDelay=soon | fliter | lgo");
    assert_eq!(
        shown.matches('^').count(),
        "--x".len() + "soon".len() + "fliter".len() + "lgo".len(),
        "{shown}"
    );
}
