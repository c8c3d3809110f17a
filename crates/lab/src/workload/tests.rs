use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const HEAD: &str = "title = \"T\"\ndescription = \"D\"\n";

fn parse(text: &str) -> Result<Workload, InvalidFile> {
    file::parse("x", "x.toml", &format!("{HEAD}{text}"), Path::new(""))
}

fn points(text: &str) -> Vec<Point> {
    parse(text).unwrap_or_else(|error| panic!("{error}")).points
}

/// The mistakes of a text, whose first line is the third of the file: line, column, key and words.
fn mistakes(text: &str) -> Vec<(u32, u32, String, String)> {
    let invalid = parse(text).expect_err(text);
    let mistake = |mistake: Mistake| {
        let Mistake { position, key, problem, remedy } = mistake;
        (position.line, position.column, key, format!("{problem}; {remedy}"))
    };
    invalid.mistakes.into_iter().map(mistake).collect()
}

/// Asserts that the text has exactly one mistake: line, column, key and words.
#[track_caller]
fn assert_mistake(text: &str, line: u32, column: u32, key: &str, message: &str) {
    assert_eq!(mistakes(text), [(line, column, key.to_owned(), message.to_owned())], "{text}");
}

#[test]
fn without_settings_all_is_default() {
    let points = points("");
    let Point { label, cluster, topics, records, producers, consumers, measure, load, extent, .. } =
        &points[0];
    assert_eq!((points.len(), label.as_str(), cluster.brokers, topics.partitions), (1, "x", 1, 1));
    assert_eq!((records.size_bytes, &records.payload, records.keys), (100, &Payload::Random, None));
    assert_eq!((producers.count, consumers.count, *measure, load), (1, 0, Measure::Produce, &Load::Maximum));
    assert_eq!((extent.warm_up_s, extent.unit, points[0].repetitions), (1.0, Unit::Seconds(5.0), 3));
}

#[test]
fn points_lay_their_settings_over_the_top() {
    let text = "[cluster]\nbrokers = 3\n[producers]\ncount = 4\nproperties = { acks = \"all\", linger.ms = 0 }\n\
                [extent]\nseconds = 9\n[[point]]\nlabel = \"a\"\n[[point]]\nlabel = \"b\"\nproducers.count = 8\n\
                producers.properties.\"linger.ms\" = 5\nextent.records = 1000\n";
    let points = points(text);
    let linger = |point: &Point| point.producers.properties["linger.ms"].clone();
    assert_eq!(points.iter().map(linger).collect::<Vec<_>>(), ["0", "5"]);
    assert_eq!(points.iter().map(|point| point.producers.count).collect::<Vec<_>>(), [4, 8]);
    assert!(
        points.iter().all(|point| point.producers.properties["acks"] == "all" && point.cluster.brokers == 3)
    );
    assert_eq!((points[0].extent.unit, points[1].extent.unit), (Unit::Seconds(9.0), Unit::Records(1000)));
}

#[test]
fn another_kind_of_load_leaves_the_settings_of_the_first_behind() {
    let text = "load = { kind = \"rate\", records_per_s = 50 }\n[[point]]\nlabel = \"a\"\n[[point]]\nlabel = \"b\"\n\
                load.kind = \"maximum\"\n[[point]]\nlabel = \"c\"\nload.records_per_s = 70.5\n";
    let loads: Vec<_> = points(text).into_iter().map(|point| point.load).collect();
    let rate = |records_per_s| Load::Rate { records_per_s };
    assert_eq!(loads, [rate(50.0), Load::Maximum, rate(70.5)]);
}

#[test]
fn lists_make_all_combinations_and_labels_name_them() {
    let text = "label = \"{records.size_bytes} B, {producers.properties.acks}\"\nrecords.size_bytes = [100, 10000]\n\
                producers.properties.acks = [\"1\", \"all\"]\n";
    let labels: Vec<_> = points(text).into_iter().map(|point| point.label).collect();
    assert_eq!(labels, ["100 B, 1", "100 B, all", "10,000 B, 1", "10,000 B, all"]);
    let points = points("topics.partitions = [1, 2]\nverify = \"off\"\n");
    assert_eq!(points[1].label, "topics.partitions 2");
}

#[test]
fn dotted_properties_need_no_quotes() {
    let text = "cluster.properties.num.io.threads = 8\n[topics.properties]\nflush.messages = 1\n\"retention.ms\" = -1\n";
    let point = points(text).remove(0);
    assert_eq!(point.cluster.properties["num.io.threads"], "8");
    assert_eq!(point.topics.properties.len(), 2);
}

#[test]
fn published_figures_stand_beside_their_point() {
    let text = "[publication]\nsystem = \"S\"\nhardware = \"H\"\nsource = \"Q\"\n[[point]]\nlabel = \"a\"\n\
                published = { produced_records_per_s = 5, acknowledge_p99_us = 1.5 }\n[[point]]\nlabel = \"b\"\n\
                [[point.published]]\ndrain_s = 1\n[[point.published]]\nsystem = \"O\"\ndrain_s = 2\n";
    let published = parse(text).expect("it is right").published;
    let rows: Vec<_> =
        published.iter().map(|p| (p.point.as_str(), p.system.as_str(), p.figure.as_str(), p.value)).collect();
    let expected = [
        ("a", "S", "produced_records_per_s", 5.0),
        ("a", "S", "acknowledge_p99_us", 1.5),
        ("b", "S", "drain_s", 1.0),
        ("b", "O", "drain_s", 2.0),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn an_error_shows_the_line() {
    let error = parse("[topics]\npartitions = 0\n").expect_err("0 partitions").to_string();
    let expected = "x.toml:4:14: topics.partitions: 0 is invalid; use a whole number from 1 to 100,000 (partitions)\
                    \n  4 | partitions = 0\n    |              ^";
    assert_eq!(error, expected);
}

#[test]
fn all_mistakes_are_reported_at_once_from_top_to_bottom() {
    let found = mistakes("repetitions = 0\nverify = 1\n[topic]\n[cluster]\nbrokers = -1\n");
    let places: Vec<_> = found.iter().map(|(line, _, key, _)| (*line, key.as_str())).collect();
    assert_eq!(places, [(3, "repetitions"), (4, "verify"), (5, "topic"), (7, "cluster.brokers")]);
}

#[test]
fn invalid_toml() {
    let found = mistakes("a = = 1\n");
    assert_eq!((found[0].0, found[0].2.as_str()), (3, "TOML"));
}

#[test]
fn a_file_without_its_title() {
    let error = file::parse("x", "x.toml", "verify = \"off\"\n", Path::new("")).expect_err("no title");
    let keys: Vec<_> = error.mistakes.iter().map(|mistake| mistake.key.as_str()).collect();
    assert_eq!(keys, ["title", "description"]);
    assert_mistake(
        "[publication]\nsystem = 5\n",
        4,
        10,
        "publication.system",
        "5 is invalid; use a quoted string",
    );
}

#[test]
fn unknown_keys() {
    assert_mistake(
        "[topics]\npartition = 3\n",
        4,
        1,
        "topics.partition",
        "unknown key; did you mean topics.partitions?",
    );
    let beside = "unknown key; use one of cluster.brokers, cluster.security_protocol, \
                  cluster.sasl_mechanism, \
             cluster.node_cpus, cluster.node_memory_mb, cluster.idle_connections, cluster.idle_partitions, cluster.racks, cluster.jvm_options, cluster.properties, cluster.pulsar";
    assert_mistake("cluster.nodes = 3\n", 3, 9, "cluster.nodes", beside);
    let found = mistakes("[publication]\nauthor = \"A\"\n");
    assert_eq!((found[0].0, found[0].2.as_str()), (4, "publication.author"));
    assert!(mistakes("brokers = 3\n")[0].3.contains("cluster"), "the sections are named");
}

#[test]
fn values_of_another_kind_or_out_of_bounds() {
    let whole = "use a whole number from 0 to 1,000 (brokers)";
    assert_mistake("cluster.brokers = 1.5\n", 3, 19, "cluster.brokers", &format!("1.5 is invalid; {whole}"));
    assert_mistake(
        "cluster.brokers = \"3\"\n",
        3,
        19,
        "cluster.brokers",
        &format!("\"3\" is invalid; {whole}"),
    );
    assert_mistake(
        "cluster.brokers = 2000\n",
        3,
        19,
        "cluster.brokers",
        &format!("2000 is invalid; {whole}"),
    );
    let words = "\"yes\" is invalid; use one of \"off\", \"bounded\", \"whole\"";
    assert_mistake("verify = \"yes\"\n", 3, 10, "verify", words);
    let words = "\"all\" is invalid; use one of \"produce\", \"consume\", \"drain\"";
    assert_mistake("measure = \"all\"\n", 3, 11, "measure", words);
    let seconds = "-1 is invalid; use a number from 0 to 86400 (seconds)";
    assert_mistake("extent.warm_up_s = -1\n", 3, 20, "extent.warm_up_s", seconds);
    assert_mistake("label = \" \"\n", 3, 9, "label", "\" \" is invalid; use a quoted string");
    let property = "1979-05-27 is invalid; use a string, a number, true or false";
    assert_mistake("producers.properties.acks = 1979-05-27\n", 3, 29, "producers.properties.acks", property);
}

#[test]
fn a_value_where_a_table_must_be() {
    let table = "3 is invalid; use a table, such as [cluster]";
    assert_mistake("cluster = 3\n", 3, 11, "cluster", table);
    let point = "a table is invalid; put [[point]], with two brackets, above the settings of each point";
    assert_mistake("[point]\nlabel = \"a\"\n", 3, 2, "point", point);
    assert_mistake(
        "publication = 1\n",
        3,
        15,
        "publication",
        "1 is invalid; use a table, such as [publication]",
    );
}

#[test]
fn lists_that_make_no_points_or_too_many() {
    let empty = "the list is empty; use a value, or a list with a value for each point";
    assert_mistake("topics.partitions = []\n", 3, 21, "topics.partitions", empty);
    let wrong = "0 is invalid; use a whole number from 1 to 100,000 (partitions)";
    assert_mistake("topics.partitions = [1, 0]\n", 3, 25, "topics.partitions", wrong);
    let many = (1..=30).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!("topics.partitions = [{many}]\nrepetitions = [{many}]\n");
    let message = "the lists make more than 500 points; use fewer or shorter lists";
    assert_mistake(&text, 1, 1, "point", message);
}

#[test]
fn labels_that_are_missing_or_the_same() {
    let missing = "is missing; add label = \"...\" to each [[point]]";
    assert_mistake("[[point]]\nlabel = \"a\"\n[[point]]\nverify = \"off\"\n", 5, 1, "label", missing);
    let same = "two points are called \"a\"; make the labels differ, for example with {records.size_bytes}";
    assert_mistake("label = \"a\"\nrepetitions = [1, 2]\n", 3, 9, "label", same);
    let strange = "{records.size} is not a setting of the point; use the path of a key that is set, such \
                   as {records.size_bytes}";
    assert_mistake("label = \"{records.size}\"\n", 3, 9, "label", strange);
    assert_mistake("label = \"{a\"\n", 3, 9, "label", "{ without its }; write it as {records.size_bytes}");
}

#[test]
fn published_figures_that_are_none() {
    let about = "[publication]\nsystem = \"S\"\nhardware = \"H\"\nsource = \"Q\"\n[[point]]\n";
    let text = format!("{about}published.produced_record_per_s = 5\n");
    let message = "unknown key; did you mean published.produced_records_per_s?";
    assert_mistake(&text, 8, 11, "published.produced_record_per_s", message);
    let message = "-5 is invalid; use a number that is not negative";
    assert_mistake(&format!("{about}published.drain_s = -5\n"), 8, 21, "published.drain_s", message);
    let message = "5 is invalid; use a table of figures, or a list of such tables";
    assert_mistake(&format!("{about}published = 5\n"), 8, 13, "published", message);
    let message = "is missing; add source = \"...\" here or in [publication]";
    let text = "[[point]]\npublished = { drain_s = 1, system = \"S\", hardware = \"H\" }\n";
    assert_mistake(text, 4, 13, "published.source", message);
    let message = "published figures beside a list, which makes several points; add a [[point]] for each value, with its own \
                figures";
    assert_mistake(
        &format!("{about}published.drain_s = 1\nrepetitions = [1, 2]\n"),
        8,
        1,
        "published",
        message,
    );
}

#[test]
fn topics_that_a_cluster_cannot_have() {
    let message = "3 replicas on 2 brokers; use at most 2, or more cluster.brokers";
    let text = "cluster.brokers = 2\ntopics.replication_factor = 3\n";
    assert_mistake(text, 4, 29, "topics.replication_factor", message);
    let message = "200000 replicas in total; use at most 100,000";
    assert_mistake("topics = { count = 2, partitions = 100000 }\n", 3, 36, "topics.partitions", message);
    let message = "2 with a replication factor of 1; use a whole number from 1 to 1";
    let text = "topics.properties.min.insync.replicas = 2\n";
    assert_mistake(text, 3, 41, "topics.properties.min.insync.replicas", message);
}

#[test]
fn records_that_cannot_be_made() {
    let message = "23 bytes with verify = \"whole\", whose stamp takes 24; use at least 24, or verify = \"bounded\" or \"off\"";
    assert_mistake("verify = \"whole\"\nrecords.size_bytes = 23\n", 4, 22, "records.size_bytes", message);
    assert_eq!(points("verify = \"whole\"\nrecords.size_bytes = 24\n").len(), 1);
    assert_eq!(points("records.size_bytes = 23\n")[0].verify, Verification::Bounded);
    let message = "is missing, with records.payload = \"file\"; add records.file = \"PATH\"";
    assert_mistake("records.payload = \"file\"\n", 1, 1, "records.file", message);
    let message = "has no effect on this payload; remove it, or use records.payload = \"file\"";
    assert_mistake("records.file = \"a\"\n", 3, 16, "records.file", message);
    let message = "no-such-file is not a file; use the path of a file";
    assert_mistake(
        "records = { payload = \"file\", file = \"no-such-file\" }\n",
        3,
        38,
        "records.file",
        message,
    );
}

#[test]
fn more_threads_than_clients() {
    let message =
        "1 process of 3 threads for 2 clients; use processes times threads of at most producers.count";
    assert_mistake("producers = { count = 2, threads = 3 }\n", 3, 36, "producers.threads", message);
    let message =
        "4 processes of 1 thread for 2 clients; use processes times threads of at most consumers.count";
    assert_mistake("consumers = { count = 2, processes = 4 }\n", 3, 38, "consumers.processes", message);
}

#[test]
fn measures_that_lack_something() {
    let message = "no producers, with measure = \"produce\"; use at least 1, or measure = \"consume\" to read records produced before";
    assert_mistake("producers.count = 0\n", 3, 19, "producers.count", message);
    let consume = "measure = \"consume\"\nconsumers.count = 1\nextent.records = 10\n";
    assert_eq!(points(&format!("{consume}producers.count = 0\n"))[0].producers.count, 0);
    let message = "no consumers, with measure = \"consume\"; use at least 1";
    assert_mistake("measure = \"consume\"\nextent.records = 10\n", 1, 1, "consumers.count", message);
    let message = "is missing, with measure = \"consume\"; set the number of records to produce first";
    assert_mistake("measure = \"consume\"\nconsumers.count = 1\n", 1, 1, "extent.records", message);
    let message = "consumers run at the maximum rate, with measure = \"consume\"; use \"maximum\"";
    assert_mistake(
        &format!("{consume}load = {{ kind = \"rate\", records_per_s = 5 }}\n"),
        6,
        17,
        "load.kind",
        message,
    );
    let message =
        "a backlog can only drain if the producers leave capacity; use \"rate\", with load.records_per_s";
    assert_mistake(
        "measure = \"drain\"\nconsumers.count = 1\nextent.records = 10\n",
        1,
        1,
        "load.kind",
        message,
    );
}

#[test]
fn loads_with_settings_of_another_kind_or_without_their_own() {
    let message = "has no effect with load.kind = \"maximum\"; remove it, or use load.kind = \"raise-rate\"";
    assert_mistake("load.factor = 2\n", 3, 15, "load.factor", message);
    let message = "is missing, with load.kind = \"rate\"; add load.records_per_s = NUMBER";
    assert_mistake("load.kind = \"rate\"\n", 1, 1, "load.records_per_s", message);
    let message = "is missing, with load.kind = \"add-producers\"; add load.producers_max = NUMBER";
    assert_mistake("load.kind = \"add-producers\"\n", 1, 1, "load.producers_max", message);
    let message = "2 with 3 initial producers; use at least 3";
    let text = "producers.count = 3\nload = { kind = \"add-producers\", producers_max = 2 }\n";
    assert_mistake(text, 4, 50, "load.producers_max", message);
    let message = "the steps of load.kind = \"raise-rate\" need a duration; use extent.seconds";
    assert_mistake("load.kind = \"raise-rate\"\nextent.records = 5\n", 4, 18, "extent.records", message);
}

#[test]
fn two_lengths_at_once() {
    let message = "cannot be combined with extent.seconds; use one of the two";
    assert_mistake("extent = { seconds = 5, records = 5 }\n", 3, 35, "extent.records", message);
}

#[test]
fn a_name_that_is_neither_built_in_nor_a_file() {
    let error = load("ibm-fat", None).expect_err("no such workload").to_string();
    assert!(
        error.starts_with("There is no workload ibm-fat: use one of quick, ibm-resilient, ibm-fast,"),
        "{error}"
    );
    let error = load("no/such/file.toml", None).expect_err("no such file").to_string();
    assert!(error.starts_with("no/such/file.toml cannot be read: "), "{error}");
}

#[test]
fn a_file_is_read_with_paths_from_its_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("own.toml");
    std::fs::write(folder.path().join("lines.txt"), "a\nb\n").expect("written");
    std::fs::write(&path, format!("{HEAD}records = {{ payload = \"file\", file = \"lines.txt\" }}\n"))
        .expect("written");
    let workload = load(&path.to_string_lossy(), None).unwrap_or_else(|error| panic!("{error}"));
    let lines = folder.path().join("lines.txt").to_string_lossy().into_owned();
    assert_eq!((workload.name.as_str(), &workload.points[0].records.payload), ("own", &Payload::File(lines)));
    std::fs::write(&path, " ".repeat(2 << 20)).expect("written");
    let error = load(&path.to_string_lossy(), None).expect_err("too long").to_string();
    assert!(error.ends_with("it has 2097152 bytes; the limit is 1048576"), "{error}");
}

#[test]
fn a_scale_multiplies_records_seconds_and_rates_and_nothing_else() {
    let text = "topics.partitions = 8\nproducers.count = 8\n[[point]]\nlabel = \"a\"\nextent = { warm_up_s = 2, seconds = 10 }\n\
                load = { kind = \"rate\", records_per_s = 1000 }\n[[point]]\nlabel = \"b\"\nextent.records = 1000\n\
                [[point]]\nlabel = \"c\"\nextent = { warm_up_s = 0, seconds = 0.5 }\nload.kind = \"raise-rate\"\n";
    let whole = parse(text).expect("it is right");
    let small = scaled(&whole, 0.05).expect("within bounds");
    assert_eq!(small.scale, 0.05);
    let extents: Vec<_> =
        small.points.iter().map(|point| (point.extent.warm_up_s, point.extent.unit)).collect();
    assert_eq!(extents, [(0.5, Unit::Seconds(1.0)), (0.5, Unit::Records(50)), (0.0, Unit::Seconds(0.5))]);
    assert_eq!(small.points[0].load, Load::Rate { records_per_s: 50.0 });
    assert!(matches!(small.points[2].load, Load::RaiseRate { first_records_per_s: 500.0, .. }));
    assert!(small.points.iter().all(|point| point.producers.count == 8 && point.topics.partitions == 8));
    assert_eq!(scaled(&whole, 1.0).expect("within bounds"), whole);
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = scaled(&whole, wrong).expect_err("out of bounds").to_string();
        assert!(error.ends_with("is invalid: use a number from 0.001 to 1000"), "{error}");
    }
}

#[test]
fn labels_have_the_numbers_of_the_scaled_workload() {
    let labels = |name: &str, scale| -> Vec<String> {
        let workload = load(name, scale).unwrap_or_else(|error| panic!("{error}"));
        workload.points.into_iter().map(|point| point.label).collect()
    };
    let drain = |scale| labels("queue", scale).swap_remove(6);
    assert_eq!(drain(None), "drain 1,000,000 x 1,000 B");
    assert_eq!(drain(Some(0.02)), "drain 20,000 x 1,000 B");
    assert_eq!(labels("replicated-latency", Some(0.1))[0], "100/s, 3 brokers");
    assert_eq!(labels("quick", Some(2.0))[1], "end to end, 40,000 records/s");
    assert_eq!(labels("growth", Some(0.001))[0], "6 partitions, 200/s");
    // Sizes are not scaled, nor are numbers outside of placeholders.
    assert_eq!(labels("queue", Some(0.1))[0], "produce 1,000 B");
    for name in names() {
        let workload = load(name, Some(0.5)).unwrap_or_else(|error| panic!("{error}"));
        for figure in &workload.published {
            assert!(workload.points.iter().any(|point| point.label == figure.point), "{name}: {figure:?}");
        }
    }
}

#[test]
fn odd_settings_are_warned_of() {
    let text = "topics.properties.no.such = 1\nconsumers.count = 3\nrecords.size_bytes = 2000000\n[producers.properties]\n\
                acks = \"all\"\nlinger.msec = 5\nbatch.num.messages = 10\nssl.anything = 1\n";
    let message = warnings(&parse(text).expect("it is right"));
    let expected = [
        "producers.properties.batch.num.messages: Kafka's Java client has no setting with this name",
        "producers.properties.linger.msec: no Kafka client has a setting with this name",
        "topics.properties.no.such: Kafka has no such topic property",
        "x: 3 consumers of a group share 1 partitions: 2 of them are idle",
        "x: records of 2000000 bytes exceed the client's limit of 1048576: raise the producers' max.request.size (librdkafka: \
         message.max.bytes) and the topic's max.message.bytes",
    ];
    assert_eq!(message, expected);
    let message = |drivers: &str| {
        warnings(
            &parse(&format!(
                "drivers = \"{drivers}\"\n[producers.properties]\nqueuing.strategy = \"fifo\"\n"
            ))
            .expect("it is right"),
        )
    };
    assert_eq!(message("librdkafka, stream"), [""; 0]);
    assert_eq!(message("librdkafka, java").len(), 1);
}

#[test]
fn built_in_workloads_are_whole() {
    for name in names() {
        let workload = load(name, None).unwrap_or_else(|error| panic!("{error}"));
        assert!(describe(&workload).contains(&workload.title), "{name}");
        assert!(
            workload.points.iter().any(|point| point.cluster.brokers <= 1),
            "{name} has nothing for one broker"
        );
        let odd: Vec<_> = warnings(&workload);
        let is_librdkafkas =
            |warning: &str| ["only librdkafka", "Java client"].iter().any(|of| warning.contains(of));
        assert!(odd.iter().all(|warning| is_librdkafkas(warning)), "{name}: {odd:?}");
        let labels: BTreeSet<_> = workload.points.iter().map(|point| &point.label).collect();
        assert!(workload.published.iter().all(|published| labels.contains(&published.point)), "{name}");
    }
}

#[test]
fn streams_in_memory_have_no_cluster_and_nothing_that_needs_one() {
    let without = "drivers = \"stream\"\ncluster.brokers = 0\n";
    assert_mistake(
        &format!("{without}verify = \"off\"\nconsumers.count = 1\n"),
        6,
        19,
        "consumers.count",
        "1 without a cluster (cluster.brokers = 0); use 0",
    );
    let found = mistakes(&format!("{without}verify = \"whole\"\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].3.contains("nothing to read back"), "{found:?}");
    assert!(mistakes("drivers = \"stream, own\"\n")[0].3.contains("thalweg, librdkafka, java or stream"));
}

#[test]
fn built_in_workloads_have_the_published_shapes() {
    let shape = |name: &str| {
        let shape = |point: &Point| {
            let Point { cluster, topics, records, producers, consumers, .. } = point;
            let topics = (topics.partitions, topics.replication_factor);
            (cluster.brokers, producers.count, consumers.count, topics, records.size_bytes)
        };
        load(name, None).expect("it is built in").points.iter().map(shape).collect::<Vec<_>>()
    };
    assert_eq!(
        shape("ibm-resilient")[..3],
        [(3, 6, 6, (6, 3), 128), (6, 12, 12, (12, 3), 128), (9, 18, 18, (18, 3), 128)]
    );
    assert_eq!(shape("ibm-fast")[..2], [(3, 12, 24, (24, 1), 128), (6, 24, 48, (48, 1), 128)]);
    let sizes: Vec<_> = shape("ibm-payload").iter().map(|(.., size)| *size).collect();
    assert_eq!(sizes, [1024, 10_240, 25_600, 51_200, 102_400, 204_800, 512_000]);
    assert_eq!(shape("z-tuning")[0], (1, 4, 0, (1, 1), 100));
    assert_eq!(shape("xd-kafka")[3], (3, 1, 1, (6, 3), 100_000));
    assert_eq!(shape("xd-stream")[..4], shape("xd-kafka")[..4]);
    assert_eq!(shape("xd-direct")[1], (0, 1, 0, (1, 1), 1000));
    assert_eq!(shape("aiven-saturation")[..2], [(3, 1, 0, (3, 1), 512), (5, 1, 0, (5, 1), 512)]);
    assert_eq!(shape("queue")[0], (1, 1, 0, (1, 1), 1000));
}

/// Damages a text: replaces, removes or doubles a piece of it, a few times.
fn damaged(text: &str, random: &mut SmallRng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..chars.len());
        let end = (at + random.random_range(1..12)).min(chars.len());
        let piece: Vec<char> = match random.random_range(0..3) {
            0 => Vec::new(),
            1 => chars[at..end].repeat(2),
            _ => (at..end).map(|_| char::from(random.random_range(b' '..b'~'))).collect(),
        };
        chars.splice(at..end, piece);
    }
    chars.into_iter().collect()
}

#[test]
fn damaged_files_are_mistakes_with_a_place_and_never_a_panic() {
    let seed = 20_191_101;
    let mut random = SmallRng::seed_from_u64(seed);
    let mut refused = 0;
    for round in 0..3000 {
        let name = names()[round % names().len()];
        let text = damaged(source(name).expect("it is built in"), &mut random);
        if let Err(invalid) = file::parse(name, "x.toml", &text, Path::new("")) {
            refused += 1;
            let lines = text.lines().count() as u32 + 1;
            let placed = |mistake: &Mistake| mistake.position.line >= 1 && mistake.position.line <= lines;
            assert!(!invalid.mistakes.is_empty(), "seed {seed}, round {round}");
            assert!(invalid.mistakes.iter().all(placed), "seed {seed}, round {round}: {invalid}");
            assert!(invalid.to_string().starts_with("x.toml:"), "seed {seed}, round {round}");
        }
    }
    assert!(refused > 1000, "only {refused} were refused");
}

#[test]
fn reasons_belong_to_settings() {
    let text = "cluster.brokers = 1\n[producers.properties]\nlinger.ms = 5\n[why]\nlinger.ms = \"Room for more.\"\n\
                cluster.brokers = \"One is enough.\"\n";
    let workload = parse(text).expect("it is right");
    let rows = setting_rows(&workload);
    let of = |setting: &str| rows.iter().find(|row| row.setting == setting).map(|row| row.why.as_str());
    assert_eq!(of("linger.ms=5"), Some("Room for more."));
    assert_eq!(of("cluster.brokers"), Some("One is enough."));
    assert!(tables(&workload).contains("| producer | `linger.ms=5` | all | Room for more. |"));
    for (text, told) in [
        ("[why]\nlinger.ms = \"x\"\n", "why.linger.ms: no point has such a setting"),
        ("[why]\nacks = 5\n", "why.acks: 5 is invalid"),
        ("why = \"all\"\n", "why: \"all\" is invalid"),
    ] {
        let error = parse(text).expect_err("a mistake").to_string();
        assert!(error.contains(told), "{error}");
    }
}
