//! Options before or after any command. Each command declares the options that it knows, and shows them in
//! its help; the same options are accepted before the command. An option that the command would ignore is
//! refused.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};

use super::format::FORMATS;
use super::profile;

/// The options. Those of a command have the same ids, and take these values.
#[derive(Args, Debug)]
pub struct GlobalOptions {
    #[arg(long, value_name = "FORMAT", value_parser = FORMATS, global = true, hide = true)]
    format: Option<String>,
    #[arg(long, conflicts_with = "format", global = true, hide = true)]
    json: bool,
    /// The profile with the defaults of connections; none for no profile [default: the one in use].
    #[arg(long, value_name = "NAME", env = profile::VARIABLE, global = true, help_heading = "Global options")]
    pub profile: Option<String>,
}

/// Clap's ids of the global options.
const OPTIONS: [&str; 3] = ["format", "json", PROFILE];
const PROFILE: &str = "profile";
/// Commands on which a profile has no effect, with their subcommands.
const WITHOUT_PROFILE: [&[&str]; 13] = [
    &["serve"],
    &["cluster", "up"],
    &["security", "certificate"],
    &["lab"],
    &["stream", "modules"],
    &["producer-perf-test"],
    &["consumer-perf-test"],
    &["share-consumer-perf-test"],
    &["e2e-latency"],
    &["pulsar-perf"],
    &["profile"],
    &["completion"],
    &["man"],
];

/// Hides `--profile` on commands on which a profile has no effect.
pub fn hide_without_effect(command: Command) -> Command {
    fn hide(command: Command, path: &[&str]) -> Command {
        match path {
            [] => command.arg(Arg::new(PROFILE).long(PROFILE).value_name("NAME").global(true).hide(true)),
            [name, below @ ..] => command.mut_subcommand(name, |command| hide(command, below)),
        }
    }
    WITHOUT_PROFILE.into_iter().fold(command, hide)
}

/// True if a profile has an effect on the command of these arguments.
pub fn uses_profile(matches: &ArgMatches) -> bool {
    let chosen = |mut matches: &ArgMatches, path: &[&str]| {
        path.iter().all(|name| match matches.subcommand() {
            Some((chosen, below)) if chosen == *name => {
                matches = below;
                true
            }
            _ => false,
        })
    };
    !WITHOUT_PROFILE.into_iter().any(|path| chosen(matches, path))
}

/// Fails if an option was given to a command without this option.
pub fn refuse_without_effect(root: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let (mut path, mut command, mut matches) = (Vec::new(), &*root, matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { return Ok(()) };
        path.push(name.to_owned());
        (command, matches) = (found, below);
    }
    let has = |id: &str| command.get_arguments().any(|known| known.get_id() == id && !known.is_hide_set());
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let Some(id) = OPTIONS.into_iter().find(|id| is_given(id) && !has(id)) else { return Ok(()) };
    let why = match id {
        PROFILE => "it connects to no cluster of a profile",
        _ if has("json") => "it has --json",
        _ => "it prints no result that could have another format",
    };
    let text = format!("--{id} has no effect on `{}`: {why}", path.join(" "));
    Err(root.error(ErrorKind::UnknownArgument, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_an_effect_unless_the_command_is_listed() {
        let root = || {
            let cluster = Command::new("cluster").subcommands(["up", "status"].map(Command::new));
            let lab = Command::new("lab").subcommand(Command::new("run"));
            Command::new("thalweg").subcommands([cluster, lab, Command::new("up")])
        };
        for (line, expected) in [
            ("thalweg up", true),
            ("thalweg cluster status", true),
            ("thalweg cluster up", false),
            ("thalweg lab run", false),
        ] {
            let matches = root().get_matches_from(line.split(' '));
            assert_eq!(uses_profile(&matches), expected, "{line}");
        }
    }
}
