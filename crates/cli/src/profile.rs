//! Profiles: named defaults of the options that connect to a cluster, in one configuration file.
//!
//! What a command uses is decided in this order: its options, the environment, the profile, the default. The profile is
//! the one of `--profile` or `THALWEG_PROFILE`, or else the one that the file says is in use. `serve` and the lab know no
//! profiles: no file in a home directory should change a server or a measurement.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

pub(crate) use file::{ConfigFile, check_name};
use serde_json::{Value, json};
use thalweg_client::{HIDDEN, is_secret};

use super::failure::{NotFound, Usage};

/// The environment variable that selects a profile.
pub const VARIABLE: &str = "THALWEG_PROFILE";
/// The name that selects none.
pub const NONE: &str = "none";

/// The defaults of a profile. Fields are named after the options that they replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Its name; empty without a profile.
    pub name: String,
    /// `bootstrap-server`.
    pub bootstrap_server: Option<String>,
    /// `command-config`: a properties file with client settings.
    pub command_config: Option<PathBuf>,
    /// `settings`: client settings, which override those of the file.
    pub settings: BTreeMap<String, String>,
    /// `server`: the HTTP address of a node.
    pub server: Option<String>,
    /// `user`: the login there.
    pub user: Option<String>,
    /// `password-file`: the file with its password.
    pub password_file: Option<PathBuf>,
    /// `ca`: the certificates to trust there.
    pub ca: Option<PathBuf>,
    /// `format` of results.
    pub format: Option<String>,
}

/// The profile of this process.
static ACTIVE: OnceLock<Profile> = OnceLock::new();

/// Chooses the profile of this process: the named one, or else the one that the configuration file says is in use.
pub fn activate(named: Option<&str>) -> anyhow::Result<()> {
    let profile = match named {
        Some(NONE) => Profile::default(),
        Some(name) => ConfigFile::read()?.profile(name).map_err(as_setting)?,
        None => ConfigFile::read()?.in_use().map_err(as_setting)?,
    };
    // Only the first choice counts; a process makes one.
    let _ = ACTIVE.set(profile);
    Ok(())
}

/// A profile that does not exist is here a wrong setting of a command that is about something else.
fn as_setting(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<NotFound>() {
        Ok(NotFound(why)) => Usage(why).into(),
        Err(error) => error,
    }
}

/// The names of all profiles; none where the file cannot be read.
pub fn names() -> Vec<String> {
    ConfigFile::read().map(|file| file.names()).unwrap_or_default()
}

/// The profile of this process, empty without one.
pub fn active() -> &'static Profile {
    ACTIVE.get_or_init(Profile::default)
}

/// A profile without its secrets, fields in the spelling of the file.
pub fn document(profile: &Profile) -> Value {
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
