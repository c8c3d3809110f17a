//! Options of Spring XD's modules that have another name here, or none.

use super::Kind;

/// An option of Spring XD, and its replacement.
struct RenamedOption {
    /// The kind and name of the module; `None` for every module.
    module: Option<(Kind, &'static str)>,
    /// The option's names in Spring XD.
    names: &'static [&'static str],
    instead: &'static str,
}

const fn of(
    kind: Kind,
    module: &'static str,
    names: &'static [&'static str],
    instead: &'static str,
) -> RenamedOption {
    RenamedOption { module: Some((kind, module)), names, instead }
}

const RENAMED: &[RenamedOption] = &[
    of(
        Kind::Source,
        "file",
        &["dir", "pattern"],
        "Use --path, with a pattern for several files: --path='DIR/*.csv'.",
    ),
    of(Kind::Source, "file", &["ref", "withMarkers"], "Use --mode: lines, csv, whole or follow."),
    of(
        Kind::Source,
        "file",
        &["fixedDelay", "preventDuplicates", "initialDelay"],
        "Remove it: the files that match --path at the start are read once.",
    ),
    of(Kind::Source, "http", &["maxContentLength"], "Use --maxSize."),
    of(
        Kind::Source,
        "http",
        &["https", "sslPropertiesLocation"],
        "Remove it, and put a proxy with TLS before --host.",
    ),
    of(Kind::Source, "kafka", &["topic"], "Use --topics."),
    of(
        Kind::Source,
        "kafka",
        &["zkconnect", "brokerList"],
        "Use --bootstrap, with the addresses of brokers.",
    ),
    of(Kind::Source, "kafka", &["groupId"], "Use --group."),
    of(
        Kind::Source,
        "kafka",
        &["initialOffsets", "autoOffsetReset"],
        "Use --from: earliest, latest or offset:PARTITION=N.",
    ),
    of(
        Kind::Source,
        "kafka",
        &[
            "streams",
            "fetchMaxBytes",
            "fetchMaxWait",
            "fetchSize",
            "queueSize",
            "maxWait",
            "socketBufferBytes",
        ],
        "Use --properties, a file with the settings of Kafka's consumers.",
    ),
    of(Kind::Sink, "kafka", &["brokerList", "zkconnect"], "Use --bootstrap."),
    of(Kind::Sink, "kafka", &["compressionCodec"], "Use --compression."),
    of(
        Kind::Sink,
        "kafka",
        &["requestRequiredAck"],
        "Remove it: all replicas in sync acknowledge each message.",
    ),
    of(Kind::Sink, "kafka", &["maxBufferTime"], "Use --linger."),
    of(
        Kind::Sink,
        "kafka",
        &["topicMetadataRefreshInterval", "maxSendRetries", "sendBufferSize", "batchCount", "batchBytes"],
        "Use --properties, a file with the settings of Kafka's producers.",
    ),
    of(Kind::Sink, "file", &["dir", "name", "suffix"], "Use --path: --path=DIR/NAME.SUFFIX."),
    of(
        Kind::Sink,
        "file",
        &["dirExpression", "nameExpression"],
        "Use a date in --path, or a stream with a filter for each file.",
    ),
    of(
        Kind::Sink,
        "file",
        &["binary", "charset"],
        "Remove it: messages are written as they are. --delimiter='' writes nothing between them.",
    ),
    of(Kind::Sink, "log", &["expression"], "Use `transform --expression=...` before `log`."),
    of(Kind::Sink, "log", &["level"], "Remove it: each message is a line of output."),
    of(Kind::Sink, "counter", &["nameExpression", "fieldName"], "Use --by, such as --by=payload.country."),
    of(Kind::Source, "time", &["maxMessages"], "Use --count."),
    of(
        Kind::Processor,
        "filter",
        &["script", "propertiesLocation", "variables"],
        "Use --expression, or `exec` to run a script.",
    ),
    of(
        Kind::Processor,
        "transform",
        &["script", "propertiesLocation", "variables"],
        "Use --expression, or `exec` to run a script.",
    ),
    of(
        Kind::Processor,
        "splitter",
        &["expression"],
        "Use --by=json, with --member=NAME for an array in an object.",
    ),
    of(Kind::Sink, "http", &["uri"], "Use --url, or --address for an address by message."),
    RenamedOption {
        module: None,
        names: &["timeUnit"],
        instead: "Remove it, and write the unit behind the time, as in 500ms or 5m.",
    },
    RenamedOption {
        module: None,
        names: &["inputType", "outputType"],
        instead: "Remove it: expressions see a message as JSON (payload), text or bytes (raw), and stages pass bytes on unchanged.",
    },
];

/// The replacement of an option of Spring XD.
pub fn replacement(kind: Kind, module: &str, option: &str) -> Option<&'static str> {
    let of_module = |renamed: &&RenamedOption| renamed.module.is_none_or(|of| of == (kind, module));
    let found = RENAMED.iter().filter(of_module).find(|renamed| renamed.names.contains(&option));
    found.map(|renamed| renamed.instead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::{MODULES, find};

    #[test]
    fn replaced_options_are_none_of_ours_and_replacements_are() {
        for renamed in RENAMED {
            let of_module =
                renamed.module.map(|(kind, name)| find(kind, name).unwrap_or_else(|| panic!("{name}")));
            for module in of_module.map_or(MODULES, |_| &[]).iter().copied().chain(of_module) {
                for name in renamed.names {
                    let is_known = module.options.iter().any(|option| option.name == *name);
                    assert!(!is_known || module.name == "throughput", "{} has --{name}", module.name);
                }
                let mut used = renamed.instead.split("Use --").skip(1);
                let used = used.next().map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next());
                if let Some(Some(option)) = used {
                    assert!(
                        module.options.iter().any(|known| known.name == option),
                        "{} has no --{option}",
                        module.name
                    );
                }
            }
        }
    }

    #[test]
    fn an_option_of_spring_xd_is_refused_with_the_new_word() {
        let refused = |text: &str| crate::plan::Plan::read(text, None, "s").expect_err(text).to_string();
        for (text, part) in [
            ("file --dir=/tmp | log", "Use --path, with a pattern"),
            ("kafka --topic=a | log", "Use --topics."),
            ("stdin | kafka --brokerList=a:1 --topic=t", "Use --bootstrap."),
            ("time --timeUnit=SECONDS | log", "write the unit behind the time"),
            ("time | log --inputType=text/plain", "expressions see a message as JSON"),
        ] {
            assert!(refused(text).contains(part), "{}", refused(text));
        }
    }
}
