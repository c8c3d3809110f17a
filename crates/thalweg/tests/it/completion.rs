//! Completions by real shells, and manual pages.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::binary::{Broker, run, run_with_input, thalweg};

/// What bash offers for a line, by the script that the program prints.
fn offered(line: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_thalweg"));
    let (code, script, error) = run(&mut thalweg("completion bash"));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    // As bash calls it: the words, the number of the current one, and the current one and that before as
    // arguments.
    let asks = format!(
        "{script}\n\
         COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; COMP_KEY=9\n\
         read -ra COMP_WORDS <<< \"$COMP_LINE\"\n\
         [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')\n\
         COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n\
         _clap_complete_thalweg thalweg \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    );
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", binary.parent().expect("a directory").display());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &asks]).env("PATH", path).env("THALWEG_CONFIG", "/nonexistent/config.toml");
    bash.env_remove("THALWEG_BOOTSTRAP_SERVER")
        .env_remove("THALWEG_PROFILE")
        .env_remove("THALWEG_COMMAND_CONFIG");
    let (code, out, error) = run(bash.envs(variables.iter().copied()));
    assert_eq!(code, Some(0), "{line}: {error}");
    out.lines().filter(|line| !line.is_empty()).map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    let commands = offered("thalweg topi", &[]);
    assert_eq!(commands, ["topic"]);
    let below = offered("thalweg topic ", &[]);
    assert!(
        ["create", "list", "describe", "delete"].iter().all(|name| below.contains(&(*name).to_owned())),
        "{below:?}"
    );
    assert_eq!(
        offered("thalweg topic create t --repl", &[]),
        ["--replication-factor", "--replica-assignment"]
    );
    assert_eq!(offered("thalweg topic list --format ", &[]), ["table", "json", "yaml"]);
}

#[test]
fn bash_completes_the_names_of_topics_groups_and_profiles() {
    let broker = Broker::start();
    let at = [("THALWEG_BOOTSTRAP_SERVER", broker.address.as_str())];
    for line in ["topic create orders", "topic create payments", "topic create order-lines"] {
        assert_eq!(run(thalweg(line).envs(at)).0, Some(0));
    }
    run_with_input(thalweg("produce orders").envs(at), b"x\n");
    let read = run(thalweg("consume orders --group billing --from-beginning --max-messages 1").envs(at));
    assert_eq!(read.0, Some(0), "{}", read.2);
    assert_eq!(offered("thalweg topic describe ord", &at), ["order-lines", "orders"]);
    assert_eq!(offered(&format!("thalweg topic delete -b {} pay", broker.address), &[]), ["payments"]);
    assert_eq!(offered("thalweg consume pay", &at), ["payments"]);
    assert_eq!(offered("thalweg group describe b", &at), ["billing"]);
    // Without a cluster there is nothing to offer, and no error on the line.
    assert_eq!(
        offered("thalweg topic describe ord", &[("THALWEG_BOOTSTRAP_SERVER", "localhost:1")]),
        [""; 0]
    );
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("config.toml");
    std::fs::write(&config, "[profiles.prod]\n[profiles.dev]\n").expect("a file");
    let config = [("THALWEG_CONFIG", config.to_str().expect("text"))];
    assert_eq!(offered("thalweg topic list --profile ", &config), ["dev", "prod"]);
    assert_eq!(offered("thalweg profile use p", &config), ["prod"]);
}

#[test]
fn every_shell_has_a_script_that_it_understands() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, error) = run(thalweg("completion").arg(shell));
        assert_eq!((code, error.as_str()), (Some(0), ""));
        assert!(script.contains("THALWEG_COMPLETE"), "{shell}: {script}");
        let Ok(mut checked) =
            Command::new(shell).args(["-n", "/dev/stdin"]).stdin(std::process::Stdio::piped()).spawn()
        else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: the completion script of {shell}: install {shell}");
            continue;
        };
        checked.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
        assert!(checked.wait().expect("it ends").success(), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, _, error) = run(thalweg("man --out").arg(dir.path().join("man1")));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let page = |name: &str| {
        let path = dir.path().join("man1").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(page("thalweg.1").contains(".SH SUBCOMMANDS"), "{}", page("thalweg.1"));
    let create = page("thalweg-topic-create.1");
    assert!(create.contains("replication\\-factor") && create.contains("Examples:"), "{create}");
    page("thalweg-security-acl-add.1");
    page("thalweg-debug-bundle.1");
    let hidden = dir.path().join("man1/thalweg-lab-worker.1");
    assert!(!hidden.exists(), "internal commands have no page");
    let Ok(shown) =
        Command::new("man").arg("-l").arg(dir.path().join("man1/thalweg.1")).env("MANPAGER", "cat").output()
    else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: manual pages by man: install man (Debian: man-db)");
        return;
    };
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
}
