//! `profile`: create, list, use, show, delete, edit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use thalweg_client::{InvalidProperty, Properties, bootstrap_servers, is_secret};

use super::failure::{CommandFailure, Usage};
use super::format::FORMATS;
use super::output::{Column, CommandOutput};
use super::profile::{ConfigFile, NONE, Profile, check_name, document};

/// Keep the settings of clusters under names.
///
/// A profile has the defaults of options: brokers, client settings, the HTTP address, the output format.
/// Options and environment variables override it. Profiles are in ~/.config/thalweg/config.toml, or the file
/// in THALWEG_CONFIG. `serve` and `lab` do not read it.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  thalweg profile create prod --bootstrap-server b1:9092,b2:9092 --command-config prod.properties --use
  thalweg profile create local --command-config thalweg-data-security/client.properties     after serve --secure
  thalweg topic list --profile local
  thalweg profile use local
  THALWEG_PROFILE=none thalweg topic list")]
pub enum ProfileCommand {
    Create(Create),
    List(List),
    Use(Use),
    Show(Show),
    Delete(Delete),
    Edit(Edit),
}

impl ProfileCommand {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            ProfileCommand::Create(create) => create.run(),
            ProfileCommand::List(list) => list.run(),
            ProfileCommand::Use(choose) => choose.run(),
            ProfileCommand::Show(show) => show.run(),
            ProfileCommand::Delete(delete) => delete.run(),
            ProfileCommand::Edit(edit) => edit.run(),
        }
    }
}

/// Create a profile.
///
/// Secrets are no arguments, which every user of the machine could see: they are in the file of
/// --command-config.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg profile create dev --bootstrap-server localhost:9092
  thalweg profile create prod -b b1:9092,b2:9092 --command-config prod.properties --server https://b1:9090 --use")]
pub struct Create {
    /// The name of the profile.
    name: String,
    /// The brokers to connect to first.
    #[arg(long, short = 'b', value_name = "HOST:PORT,...")]
    bootstrap_server: Option<String>,
    /// A properties file with client settings. It is read by each command, not copied.
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// A client setting, for example request.timeout.ms=5000; can be repeated. Overrides the file.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// The http.listener of a node.
    #[arg(long, value_name = "http[s]://HOST:PORT")]
    server: Option<String>,
    /// The login there.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The file with the password of --user.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// The certificates to trust there.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The format of results.
    #[arg(long, value_name = "FORMAT", value_parser = FORMATS)]
    default_format: Option<String>,
    /// Use it in all later commands.
    #[arg(long = "use")]
    in_use: bool,
    /// Replace a profile of this name.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl Create {
    fn run(&self) -> anyhow::Result<()> {
        check_name(&self.name)?;
        let profile = self.profile()?;
        let mut file = ConfigFile::read()?;
        if !self.replace && file.names().contains(&self.name) {
            return Err(CommandFailure(format!(
                "there is a profile {} already: --replace replaces it",
                self.name
            ))
            .into());
        }
        file.put(&profile)?;
        if self.in_use {
            file.set_in_use(Some(&self.name));
        }
        file.write()?;
        // Read the profile again, for warnings about its files.
        file.profile(&self.name)?;
        let document = json!([{ "profile": self.name, "outcome": "created", "in_use": self.in_use }]);
        let used = if self.in_use { ", which is in use now" } else { "" };
        self.output.show(&document, |_| Ok(format!("Created profile {}{used}.\n", self.name)))
    }

    fn profile(&self) -> anyhow::Result<Profile> {
        if let Some(servers) = &self.bootstrap_server {
            bootstrap_servers(servers)?;
        }
        let mut settings = BTreeMap::new();
        for text in &self.settings {
            let wrong = || InvalidProperty { text: text.clone() };
            let (key, value) = text.split_once('=').ok_or_else(wrong)?;
            let key = key.trim();
            if is_secret(key) {
                let right = "put it into a file that only you can read, and name that with --command-config";
                return Err(Usage(format!("--set {key}: secrets are no arguments: {right}")).into());
            }
            settings.insert(key.to_owned(), value.to_owned());
        }
        let file = |path: &Option<PathBuf>| path.as_deref().map(found).transpose();
        Ok(Profile {
            name: self.name.clone(),
            bootstrap_server: self.bootstrap_server.clone(),
            command_config: file(&self.command_config)?,
            settings,
            server: self.server.clone(),
            user: self.user.clone(),
            password_file: file(&self.password_file)?,
            ca: file(&self.ca)?,
            format: self.default_format.clone(),
        })
    }
}

/// The absolute path of a file, because later commands may run in other directories.
fn found(path: &Path) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("Cannot read {}", path.display()))
}

/// List profiles.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 4] =
    [("PROFILE", "profile"), ("IN USE", "in_use"), ("BROKERS", "bootstrap_server"), ("SERVER", "server")];

impl List {
    fn run(&self) -> anyhow::Result<()> {
        let file = ConfigFile::read()?;
        let mut rows = Vec::new();
        for name in file.names() {
            let profile = file.profile(&name)?;
            rows.push(json!({
                "profile": name,
                "in_use": file.name_in_use() == Some(&name),
                "bootstrap_server": brokers(&profile),
                "server": profile.server,
            }));
        }
        self.output.rows(&COLUMNS, &rows)
    }
}

/// The brokers of the profile, or of its properties file.
fn brokers(profile: &Profile) -> Option<String> {
    let of_file = || {
        let text = std::fs::read_to_string(profile.command_config.as_ref()?).ok()?;
        Properties::parse(&text).resolve().ok()?.take("bootstrap.servers")
    };
    profile.bootstrap_server.clone().or_else(of_file)
}

/// Use a profile in all later commands.
#[derive(Args, Debug)]
pub struct Use {
    /// The profile; none for no profile.
    #[arg(id = "profile_name", value_name = "NAME")]
    name: String,
    #[command(flatten)]
    output: CommandOutput,
}

impl Use {
    fn run(&self) -> anyhow::Result<()> {
        let mut file = ConfigFile::read()?;
        let chosen = (self.name != NONE).then_some(self.name.as_str());
        if let Some(name) = chosen {
            file.profile(name)?;
        }
        file.set_in_use(chosen);
        file.write()?;
        let document = json!([{ "profile": chosen, "outcome": "in use" }]);
        self.output.show(&document, |_| {
            Ok(chosen
                .map_or("No profile is in use.\n".to_owned(), |name| format!("Profile {name} is in use.\n")))
        })
    }
}

/// Show a profile, without secrets.
#[derive(Args, Debug)]
pub struct Show {
    /// The profile [default: the one in use].
    #[arg(id = "profile_name", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    output: CommandOutput,
}

const FIELDS: [Column<'_>; 2] = [("FIELD", "field"), ("VALUE", "value")];

impl Show {
    fn run(&self) -> anyhow::Result<()> {
        let file = ConfigFile::read()?;
        let name = self.name.as_deref().or(file.name_in_use());
        let Some(name) = name else {
            return Err(
                CommandFailure("no profile is in use: `thalweg profile list` names them".to_owned()).into()
            );
        };
        let profile = file.profile(name)?;
        let document = document(&profile);
        let rows: Vec<Value> = lines(&document);
        self.output.show(&document, |style| style.rows(&FIELDS, &rows))
    }
}

/// The fields that are set, each with its value.
fn lines(document: &Value) -> Vec<Value> {
    let fields = document.as_object().into_iter().flatten();
    let settings = document["settings"].as_object().into_iter().flatten();
    let fields = fields.filter(|(key, value)| *key != "settings" && !value.is_null());
    let fields = fields.map(|(key, value)| json!({ "field": key.replace('_', "-"), "value": value }));
    fields.chain(settings.map(|(key, value)| json!({ "field": key, "value": value }))).collect()
}

/// Delete a profile.
#[derive(Args, Debug)]
pub struct Delete {
    /// The profile to delete.
    #[arg(id = "profile_name", value_name = "NAME")]
    name: String,
    #[command(flatten)]
    output: CommandOutput,
}

impl Delete {
    fn run(&self) -> anyhow::Result<()> {
        let mut file = ConfigFile::read()?;
        file.remove(&self.name)?;
        file.write()?;
        let document = json!([{ "profile": self.name, "outcome": "deleted" }]);
        self.output.show(&document, |_| Ok(format!("Deleted profile {}.\n", self.name)))
    }
}

/// Open the configuration file in an editor, and check it.
///
/// The editor is that of VISUAL or EDITOR, or else vi.
#[derive(Args, Debug)]
pub struct Edit {}

impl Edit {
    fn run(&self) -> anyhow::Result<()> {
        let file = ConfigFile::read();
        // A file with faults can be edited, too.
        let path = match &file {
            Ok(file) if !file.path().exists() => {
                file.write()?;
                file.path().to_owned()
            }
            _ => ConfigFile::path_or_failure()?,
        };
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let editor = variable("VISUAL").or_else(|| variable("EDITOR")).unwrap_or_else(|| "vi".to_owned());
        // The editor may have arguments, as in `code --wait`.
        let mut words = editor.split_whitespace();
        let program = words.next().expect("it is not empty");
        let ended = std::process::Command::new(program).args(words).arg(&path).status();
        let ended = ended.with_context(|| format!("Cannot run the editor {program} (set EDITOR)"))?;
        if !ended.success() {
            return Err(CommandFailure(format!("the editor {program} failed: {ended}")).into());
        }
        let file = ConfigFile::read()?;
        for name in file.names() {
            file.profile(&name)?;
        }
        file.in_use()?;
        Ok(())
    }
}
