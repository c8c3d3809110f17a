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
fn options_that_do_not_go_together_are_told() {
    for (text, message, right) in [
        ("time --format=%Q | log", "--format cannot be \"%Q\"", "directives of strftime"),
        ("kafka --topics=a,,b | null", "--topics cannot be", "Names of topics"),
        ("time | kafka --topic='a b'", "--topic cannot be", "letters, digits"),
        ("kafka --topics=t --group=g --partitions=1 | null", "share all partitions", "leave out --group"),
        ("kafka --topics=t --group=g --untilEnd=true | null", "does not know which", "leave out --group"),
        ("kafka --topics=t --group=g --from=offset:3 | null", "where it left off", "earliest or latest"),
        ("kafka --topics=t --partitions=1 --from=offset:0=3 | null", "Partition 0 is not among", "Name it"),
        ("time | kafka --topic=t --linger=1h --deliveryTimeout=2h", "no longer than 15", "15m"),
        ("time | kafka --topic=t --linger=5m --deliveryTimeout=1m", "time left", "More than --linger"),
        ("time | kafka --topic=t --buffer=1", "no buffer for a producer", "1MiB"),
        ("file --path=x --from=end | null", "Only a file that is followed", "--mode=follow"),
        ("http --path=/{x} | null", "plain text", "/orders"),
        ("load-generator --messageSize=65MiB | null", "64 MiB at the most", "or less"),
        ("load-generator --mode=reference --generateTimestamp=true | null", "the same bytes", "--mode=copy"),
        ("load-generator --messageSize=8 --generateTimestamp=true | null", "take 12 bytes", "larger"),
        ("stdin | splitter --member=a | null", "object of JSON", "--by=json"),
        ("stdin | splitter --by=json --delimiter=, | null", "told apart by JSON", "leave out"),
        ("stdin | aggregate --figures=sum | null", "are of a number", "Add --of"),
        ("stdin | aggregate --window=1h --slide=1ms | null", "10000 windows", "longer"),
        ("stdin | aggregate --window=1s --slide=1m | null", "would be in none", "--window or less"),
        ("time | http --url=http://h/ --caFile=x", "no certificates without https", "https://"),
        ("time | http --url=ftp://h/", "--url cannot be", "https://HOST/PATH"),
        ("stdin | null; stdin | null", "Standard input is read by one stream", "topic:NAME"),
    ] {
        let shown = complaint(text);
        assert!(shown.contains(message) && shown.contains(right), "{text}:\n{shown}");
        assert!(shown.contains('^'), "{text}:\n{shown}");
    }
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    for (text, message, right) in [
        ("time | fliter --expression=true | log", "There is no processor fliter", "filter would be right."),
        ("time | frobnicate", "There is no sink frobnicate", "counter, file, histogram"),
        (
            "filter --expression=true | log",
            "filter is a processor, and a source belongs",
            "between a source and a sink",
        ),
        ("time | time | log", "time is a source, and a processor belongs here", "where a stream begins"),
        ("time", "needs a source and a sink", "`time | SINK`"),
        ("log", "needs a source and a sink", "`SOURCE | log`"),
        ("time | filter | log", "filter needs --expression", "`filter --expression=...`"),
        (
            "time | filter --expresion=true | log",
            "filter has no option --expresion",
            "--expression would be right.",
        ),
        ("time | null --x=1", "null has no option --x", "null has no options."),
        ("time --fixedDelay=soon | log", "--fixedDelay cannot be \"soon\"", "A time such as"),
        ("time --count=1 --count=2 | log", "--count is given twice", "Leave one out."),
        ("load-generator --messageSize=-1 | null", "--messageSize cannot be", "would be right."),
        (
            "time | filter --expression='amount > 1' | log",
            "--expression: This is no expression: there is no variable amount",
            "Expressions are CEL",
        ),
        ("time | topic:x | log", "A named destination stands at an end", "topic:NAME > ..."),
        ("time | topic:x", "No stream of this text reads topic:x", "`topic:x > ...`"),
        ("topic:x > log", "No stream of this text writes topic:x", "`... | topic:x`"),
        ("topic:x > topic:x", "is fed by itself", "end elsewhere"),
        ("a = time | log\na = time | log", "two streams called a", "name of its own"),
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
        ("time | filter --expression='payload.a >' | log", "it ends too soon", "Expressions are CEL"),
        ("time | filter --expression=payload.a > 1 | log", "on either side of `>`", "stands in quotes"),
        ("tap:stream:a > log", "There is no stream a", "`a = SOURCE | SINK`"),
        ("time | router --expression=x", "router is not served", "topic:NAME > filter"),
        ("time -> log", "-> is not expected here", "stages are joined by `|`"),
        ("time | aggregate --window=0 | log", "lasts no time", "--window=10s"),
        ("x: time | x: log", "Two stages have the label x", "one of its own"),
        ("a = time | log\ntap:stream:b.time > log", "There is no stream b", "tap:stream:a would be right."),
        ("a = time | log\ntap:stream:a.tmie > log", "has no stage tmie", "tap:stream:a.time would be right."),
        ("a = time | log\ntap:stream:a.log > log", "has no stage log", "can be tapped: time."),
    ] {
        let shown = complaint(text);
        assert!(shown.contains(message) && shown.contains(right), "{text}:\n{shown}");
        assert!(shown.contains('^'), "{text}:\n{shown}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let shown = complaint("time --x=1 --fixedDelay=soon | fliter | lgo");
    assert_eq!(
        shown.matches('^').count(),
        "--x".len() + "soon".len() + "fliter".len() + "lgo".len(),
        "{shown}"
    );
}
