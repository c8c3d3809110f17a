//! Short options of Pulsar's tool with several letters, such as `-bm`, which the options of this program
//! cannot have: they are replaced by the long ones.

use std::ffi::OsString;

const COMMAND: &str = "pulsar-perf";

/// Short and long names. Their arguments follow, or are behind an equals sign.
const NAMES: [(&str, &str); 12] = [
    ("-bb", "--batch-max-bytes"),
    ("-bm", "--batch-max-messages"),
    ("-db", "--disable-batching"),
    ("-ioThreads", "--num-io-threads"),
    ("-lt", "--num-listener-threads"),
    ("-ml", "--memory-limit"),
    ("-ns", "--num-subscriptions"),
    ("-sp", "--subscription-position"),
    ("-ss", "--subscriptions"),
    ("-st", "--subscription-type"),
    ("-threads", "--num-test-threads"),
    ("-time", "--test-duration"),
];

/// The arguments of a process, with long names behind `pulsar-perf`.
pub fn with_long_names(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut is_ours = false;
    let long = |argument: &OsString| {
        let text = argument.to_str()?;
        let (name, rest) = text.split_once('=').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let (_, long) = NAMES.iter().find(|(short, _)| *short == name)?;
        Some(OsString::from(rest.map_or_else(|| (*long).to_owned(), |rest| format!("{long}={rest}"))))
    };
    let each = arguments.into_iter().map(|argument| {
        is_ours |= argument == COMMAND;
        if is_ours { long(&argument).unwrap_or(argument) } else { argument }
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_commands_options_are_replaced() {
        let replaced = |line: &str| -> Vec<String> {
            let arguments = line.split(' ').map(OsString::from);
            with_long_names(arguments).into_iter().map(|one| one.to_string_lossy().into_owned()).collect()
        };
        let line = "thalweg pulsar-perf produce -bm 100 -time=5 -s 1000 -b 2 t";
        let expected =
            "thalweg pulsar-perf produce --batch-max-messages 100 --test-duration=5 -s 1000 -b 2 t";
        assert_eq!(replaced(line), expected.split(' ').collect::<Vec<_>>());
        let other = "thalweg topic list -bm 1";
        assert_eq!(replaced(other), other.split(' ').collect::<Vec<_>>());
    }
}
