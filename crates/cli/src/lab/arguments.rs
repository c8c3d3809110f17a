//! The arguments of a run as stored in its result: enough to repeat it, without secrets.

pub(crate) use thalweg_client::HIDDEN;

/// Arguments between processes, useless in a repeated command.
const INTERNAL: [&str; 2] = ["--controlled", "--progress=json"];

/// The arguments of this process, without secrets.
pub(crate) fn of_process() -> Vec<String> {
    without_secrets(std::env::args().skip(1))
}

/// Removes the values of secret settings.
fn without_secrets(arguments: impl Iterator<Item = String>) -> Vec<String> {
    arguments
        .filter(|argument| !INTERNAL.contains(&argument.as_str()))
        .map(|argument| {
            // `--property=key=value` and `--property key=value`.
            let (before, setting) = match argument.strip_prefix("--property=") {
                Some(setting) => ("--property=", setting),
                None => ("", argument.as_str()),
            };
            let Some((key, _)) = setting.split_once('=') else { return argument };
            match thalweg_client::is_secret(key.trim()) {
                true => format!("{before}{key}={HIDDEN}"),
                false => argument,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let given = [
            "lab",
            "run",
            "--property",
            "sasl.jaas.config=x y=z",
            "--property=ssl.key.password=hunter2",
            "--property",
            "acks=all",
            "--progress=json",
            "--controlled",
            "--seed=4",
        ];
        let kept = without_secrets(given.iter().map(|argument| (*argument).to_owned()));
        assert_eq!(
            kept,
            [
                "lab",
                "run",
                "--property",
                "sasl.jaas.config=[hidden]",
                "--property=ssl.key.password=[hidden]",
                "--property",
                "acks=all",
                "--seed=4",
            ]
        );
    }
}
