//! Profiles: named defaults of the options that connect to a cluster, in one configuration file.
//!
//! The values of a command come from its options, then the environment, the profile, and the defaults.
//! `--profile` or `THALWEG_PROFILE` names the profile; otherwise the file names the profile in use. `serve`
//! and the lab ignore profiles: no file in a home directory should change a server or a measurement.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

pub(crate) use file::{ConfigFile, check_name};
use serde_json::{Value, json};
use thalweg_client::{HIDDEN, is_secret};

use super::failure::{NotFound, Usage};

/// The environment variable that selects a profile.
pub(crate) const VARIABLE: &str = "THALWEG_PROFILE";
/// The name that selects no profile.
pub(crate) const NONE: &str = "none";

/// The defaults of a profile. Fields are named after the options that they replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    /// The name; empty without a profile.
    pub name: String,
    /// `bootstrap-server`: the brokers to connect to first.
    pub bootstrap_server: Option<String>,
    /// `command-config`: a properties file with client settings.
    pub command_config: Option<PathBuf>,
    /// `settings`: client settings, which override the properties file.
    pub settings: BTreeMap<String, String>,
    /// `server`: the HTTP address of a node.
    pub server: Option<String>,
    /// `user`: the login at `server`.
    pub user: Option<String>,
    /// `password-file`: the file with the password of `user`.
    pub password_file: Option<PathBuf>,
    /// `ca`: the certificates to trust at `server`.
    pub ca: Option<PathBuf>,
    /// `format` of results.
    pub format: Option<String>,
}

/// The profile of this process.
static ACTIVE: OnceLock<Profile> = OnceLock::new();

/// Chooses the profile of this process: the named profile, otherwise the profile in use by the configuration
/// file.
pub fn activate(named: Option<&str>) -> anyhow::Result<()> {
    let profile = match named {
        Some(NONE) => Profile::default(),
        Some(name) => ConfigFile::read()?.profile(name).map_err(as_setting)?,
        None => ConfigFile::read()?.in_use().map_err(as_setting)?,
    };
    // A process chooses its profile once; later choices would have no effect.
    let _ = ACTIVE.set(profile);
    Ok(())
}

/// A missing profile is a usage error here: the profile is not the object of the command.
fn as_setting(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<NotFound>() {
        Ok(NotFound(why)) => Usage(why).into(),
        Err(error) => error,
    }
}

/// The names of all profiles; none if the file cannot be read.
pub(crate) fn names() -> Vec<String> {
    ConfigFile::read().map(|file| file.names()).unwrap_or_default()
}

/// The profile of this process; empty if none is chosen.
pub(crate) fn active() -> &'static Profile {
    ACTIVE.get_or_init(Profile::default)
}

/// A profile without its secrets, fields in the spelling of the file.
pub(crate) fn document(profile: &Profile) -> Value {
    let settings: BTreeMap<&String, &str> = profile
        .settings
        .iter()
        .map(|(key, value)| (key, if is_secret(key) { HIDDEN } else { value.as_str() }))
        .collect();
    json!({
        "profile": profile.name,
        "bootstrap_server": profile.bootstrap_server,
        "command_config": profile.command_config,
        "settings": settings,
        "server": profile.server,
        "user": profile.user,
        "password_file": profile.password_file,
        "ca": profile.ca,
        "format": profile.format,
    })
}
