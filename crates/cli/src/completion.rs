//! `completion`: the completion script of a shell, and the answers to that script.
//!
//! The script runs this program at each press of the completion key, so that the names of topics and groups
//! come from the cluster on the command line. An answer takes at most a second; without an answer, nothing is
//! completed.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use thalweg_wire::request::ListGroupsRequest;

use super::connect::Connect;
use super::profile;

/// The environment variable that marks a request of the script.
const VARIABLE: &str = "THALWEG_COMPLETE";
/// The name of the program on command lines.
const PROGRAM: &str = "thalweg";
/// Time limit for names from a cluster.
const WITHIN: Duration = Duration::from_secs(1);
/// Limit of the names in an answer.
const NAMES_MAX: usize = 1000;

/// As a file of `fpath`, zsh's script runs at the first press of the key, and only defines the completion
/// function. These lines also call the function; without the call, the first press would do nothing.
const ZSH_FIRST: &str = r#"
if [[ "$funcstack[1]" == _thalweg ]]; then
    _clap_dynamic_completer_thalweg "$@"
fi
"#;

/// Print the completion script of a shell.
///
/// The script completes commands, options, files, and the names of profiles, topics and groups.
#[derive(Args, Debug)]
#[command(after_help = "\
Install it:
  thalweg completion bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completion zsh > ~/.zfunc/_thalweg          with fpath+=~/.zfunc in ~/.zshrc, before compinit
  thalweg completion fish > ~/.config/fish/completions/thalweg.fish")]
pub struct Completion {
    /// The shell to print the completions for.
    shell: Shell,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completion {
    /// Prints the script of the shell.
    pub fn run(&self) -> anyhow::Result<()> {
        let shell: &dyn EnvCompleter = match self.shell {
            Shell::Bash => &Bash,
            Shell::Zsh => &Zsh,
            Shell::Fish => &Fish,
        };
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
        if matches!(self.shell, Shell::Zsh) {
            script.extend_from_slice(ZSH_FIRST.as_bytes());
        }
        Ok(std::io::stdout().lock().write_all(&script)?)
    }
}

/// If this process is a request of a completion script, answers the request and ends the process. `whole`
/// makes the root command.
pub fn answer(whole: fn() -> Command) {
    CompleteEnv::with_factory(|| with_names(whole())).var(VARIABLE).complete();
}

/// Adds completion of names to arguments for topics, groups and profiles.
fn with_names(command: Command) -> Command {
    let names_profile = ["use", "show", "delete"].contains(&command.get_name());
    command.mut_args(|arg| with_names_of(arg, names_profile)).mut_subcommands(with_names)
}

fn with_names_of(arg: Arg, names_profile: bool) -> Arg {
    match arg.get_id().as_str() {
        "topic" | "topics" => arg.add(ArgValueCompleter::new(topics)),
        "group" | "groups" => arg.add(ArgValueCompleter::new(groups)),
        "profile" => arg.add(ArgValueCompleter::new(profiles)),
        "profile_name" if names_profile => arg.add(ArgValueCompleter::new(profiles)),
        _ => arg,
    }
}

fn profiles(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, profile::names())
}

fn topics(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = of_cluster(async |connect| {
        let metadata = connect.cluster().await?.refresh_all().await?;
        Ok(metadata.topics.keys().cloned().collect())
    });
    candidates(current, names)
}

fn groups(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = of_cluster(async |connect| {
        let cluster = connect.cluster().await?;
        let mut names = Vec::new();
        for &id in cluster.metadata().brokers.keys() {
            let answer = cluster.broker(id).await?.send(&ListGroupsRequest::default()).await?;
            names.extend(answer.groups.into_iter().map(|group| group.group_id));
        }
        Ok(names)
    });
    candidates(current, names)
}

/// The names that continue the typed text and need no quotes in a shell. Names with two leading underscores
/// are Kafka's internal names; they are offered only after these underscores.
fn candidates(current: &OsStr, mut names: Vec<String>) -> Vec<CompletionCandidate> {
    let Some(typed) = current.to_str() else { return Vec::new() };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+');
    names.retain(|name| {
        name.starts_with(typed)
            && name.chars().all(is_plain)
            && (typed.starts_with("__") || !name.starts_with("__"))
    });
    names.sort_unstable();
    names.truncate(NAMES_MAX);
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Names from the cluster on the command line. Any failure gives no names, because a shell has no place for
/// errors.
fn of_cluster(request: impl AsyncFnOnce(&Connect) -> anyhow::Result<Vec<String>>) -> Vec<String> {
    let words: Vec<String> = std::env::args().skip_while(|word| word != "--").skip(1).collect();
    let chosen = option(&words, &["--profile"]).or_else(|| variable(profile::VARIABLE));
    if profile::activate(chosen.as_deref()).is_err() {
        return Vec::new();
    }
    let connect = Connect::new(
        option(&words, &["--bootstrap-server", "-b"]).or_else(|| variable("THALWEG_BOOTSTRAP_SERVER")),
        option(&words, &["--command-config"])
            .or_else(|| variable("THALWEG_COMMAND_CONFIG"))
            .map(PathBuf::from),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let requested = runtime.block_on(async { tokio::time::timeout(WITHIN, request(&connect)).await });
    requested.ok().and_then(Result::ok).unwrap_or_default()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The value of an option: the next word, or the text behind `=`. Bash passes `=` and `:` as separate words.
fn option(words: &[String], names: &[&str]) -> Option<String> {
    let at = |(place, word): (usize, &String)| {
        if names.contains(&word.as_str()) {
            let mut rest = words[place + 1..].iter().skip_while(|word| *word == "=").peekable();
            let mut value = rest.next()?.clone();
            while rest.next_if(|word| *word == ":").is_some() {
                value = format!("{value}:{}", rest.next()?);
            }
            return Some(value);
        }
        let (name, value) = word.split_once('=')?;
        names.contains(&name).then(|| value.to_owned())
    };
    words.iter().enumerate().find_map(at)
}

#[cfg(test)]
mod tests {
    use clap::Subcommand;

    use super::*;
    use crate::topic::Topic;

    #[test]
    fn options_of_a_line_are_found() {
        let words: Vec<String> =
            "thalweg topic describe -b a:1 --profile=x --set q".split(' ').map(str::to_owned).collect();
        assert_eq!(option(&words, &["--bootstrap-server", "-b"]).as_deref(), Some("a:1"));
        assert_eq!(option(&words, &["--profile"]).as_deref(), Some("x"));
        assert_eq!(option(&words, &["--command-config"]), None);
        let words: Vec<String> = "-b a : 1,b : 2 --profile = x".split(' ').map(str::to_owned).collect();
        assert_eq!(option(&words, &["-b"]).as_deref(), Some("a:1,b:2"));
        assert_eq!(option(&words, &["--profile"]).as_deref(), Some("x"));
    }

    #[test]
    fn names_continue_what_was_typed_and_need_no_quotes() {
        let names = ["orders", "order$(id)", "__consumer_offsets", "payments", "odd name"];
        let named = |typed: &str| -> Vec<String> {
            let found = candidates(OsStr::new(typed), names.map(str::to_owned).to_vec());
            found.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(named("o"), ["orders"]);
        assert_eq!(named(""), ["orders", "payments"]);
        assert_eq!(named("__"), ["__consumer_offsets"]);
    }

    #[test]
    fn arguments_of_every_command_are_known() {
        let topic = with_names(Topic::augment_subcommands(Command::new("topic")));
        let describe = topic.find_subcommand("describe");
        let arg = describe.and_then(|describe| describe.get_arguments().find(|arg| arg.get_id() == "topics"));
        assert!(arg.is_some_and(|arg| arg.get::<ArgValueCompleter>().is_some()));
    }
}
