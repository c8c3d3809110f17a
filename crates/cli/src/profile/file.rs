//! The configuration file: `$XDG_CONFIG_HOME/thalweg/config.toml`, or the path in `THALWEG_CONFIG`.
//!
//! Comments and order survive changes. A configuration file with secrets, and a file of secrets that it
//! names, should be readable by the owner only; otherwise a warning is logged. Unknown fields are errors that
//! list the known fields.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use thalweg_client::{Properties, is_secret};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value, value};

use super::{NONE, Profile};
use crate::failure::{NotFound, Usage};
use crate::format::FORMATS;
use crate::notice::print_notice;

/// The environment variable with the path of the file.
const VARIABLE: &str = "THALWEG_CONFIG";
/// The field with the name of the profile in use.
const IN_USE: &str = "profile";
/// The table of profiles.
const PROFILES: &str = "profiles";
/// The table of client settings in a profile.
const SETTINGS: &str = "settings";
/// Limit of the file's size.
const BYTES_MAX: u64 = 1 << 20;
/// Limit of the length of a profile's name.
const NAME_CHARS_MAX: usize = 64;

/// The fields of a profile that are texts.
const FIELDS: [&str; 7] =
    ["bootstrap-server", "command-config", "server", "user", "password-file", "ca", "format"];

/// The file and its content.
pub(crate) struct ConfigFile {
    path: PathBuf,
    document: DocumentMut,
    /// True if group or others may read the file.
    is_public: bool,
}

impl ConfigFile {
    /// Reads the file. A missing file has no profiles.
    pub fn read() -> anyhow::Result<ConfigFile> {
        match path() {
            Some(path) => ConfigFile::read_from(path),
            None => Ok(ConfigFile { path: PathBuf::new(), document: DocumentMut::new(), is_public: false }),
        }
    }

    fn read_from(path: PathBuf) -> anyhow::Result<ConfigFile> {
        let failed = || format!("Cannot read {}", path.display());
        let metadata = match std::fs::metadata(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(ConfigFile { path, document: DocumentMut::new(), is_public: false });
            }
            read => read.with_context(failed)?,
        };
        if metadata.len() > BYTES_MAX {
            return Err(Usage(format!("{}: more than {BYTES_MAX} bytes", path.display())).into());
        }
        let text = std::fs::read_to_string(&path).with_context(failed)?;
        let document = text.parse().map_err(|error| Usage(format!("{}: {error}", path.display())))?;
        let file = ConfigFile { path, document, is_public: is_public(&metadata) };
        file.check_fields()?;
        Ok(file)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file, even if the file is missing or faulty.
    pub fn path_or_failure() -> Result<PathBuf, Usage> {
        path().ok_or_else(no_home)
    }

    fn check_fields(&self) -> Result<(), Usage> {
        let unknown = self.document.iter().find(|(key, _)| ![IN_USE, PROFILES].contains(key));
        if let Some((key, _)) = unknown {
            return Err(self.wrong(key, &format!("unknown: expected {IN_USE} or [{PROFILES}.NAME]")));
        }
        match self.document.get(IN_USE) {
            Some(item) if !item.is_str() => return Err(self.wrong(IN_USE, "expected the name of a profile")),
            _ => {}
        }
        match self.document.get(PROFILES) {
            Some(item) if !item.is_table_like() => {
                Err(self.wrong(PROFILES, &format!("expected tables: [{PROFILES}.NAME]")))
            }
            _ => Ok(()),
        }
    }

    fn wrong(&self, field: &str, why: &str) -> Usage {
        Usage(format!("{}: {field}: {why}", self.path.display()))
    }

    fn profiles(&self) -> Option<&dyn TableLike> {
        self.document.get(PROFILES)?.as_table_like()
    }

    /// The names of all profiles.
    pub fn names(&self) -> Vec<String> {
        self.profiles().into_iter().flat_map(|all| all.iter().map(|(name, _)| name.to_owned())).collect()
    }

    /// The name of the profile in use, which may not exist.
    pub fn name_in_use(&self) -> Option<&str> {
        self.document.get(IN_USE)?.as_str().filter(|name| *name != NONE)
    }

    /// The profile in use, or an empty profile.
    pub fn in_use(&self) -> anyhow::Result<Profile> {
        match self.name_in_use() {
            None => Ok(Profile::default()),
            Some(name) => self.profile(name),
        }
    }

    /// A profile by its name. Warns if other users can read secrets of the profile.
    pub fn profile(&self, name: &str) -> anyhow::Result<Profile> {
        let found = self.profiles().and_then(|all| all.get(name));
        let Some(found) = found else { return Err(self.missing(name).into()) };
        let place = format!("{PROFILES}.{name}");
        let Some(table) = found.as_table_like() else {
            return Err(self.wrong(&place, "expected a table").into());
        };
        let mut texts = BTreeMap::new();
        let mut settings = BTreeMap::new();
        for (key, item) in table.iter() {
            let place = format!("{place}.{key}");
            match (key, item) {
                (SETTINGS, item) => settings = self.settings(&place, item)?,
                (key, item) if FIELDS.contains(&key) => {
                    let text = self.text(&place, item)?;
                    texts.insert(key, text);
                }
                _ => {
                    let known = FIELDS.join(", ");
                    return Err(self
                        .wrong(&place, &format!("unknown: expected {known} or {SETTINGS}"))
                        .into());
                }
            }
        }
        if let Some(format) = texts.get("format").filter(|format| !FORMATS.contains(&format.as_str())) {
            let why = format!("{format}: expected {}", FORMATS.join(", "));
            return Err(self.wrong(&format!("{place}.format"), &why).into());
        }
        let profile = Profile {
            name: name.to_owned(),
            bootstrap_server: texts.remove("bootstrap-server"),
            command_config: texts.remove("command-config").map(|text| self.file(&text)),
            settings,
            server: texts.remove("server"),
            user: texts.remove("user"),
            password_file: texts.remove("password-file").map(|text| self.file(&text)),
            ca: texts.remove("ca").map(|text| self.file(&text)),
            format: texts.remove("format"),
        };
        self.warn_of_readers(&profile);
        Ok(profile)
    }

    fn missing(&self, name: &str) -> NotFound {
        let known = match self.names() {
            names if names.is_empty() => "it has none".to_owned(),
            names => format!("it has {}", names.join(", ")),
        };
        NotFound(format!("{}: there is no profile {name}; {known}", self.path.display()))
    }

    /// A field's text; a list of servers may be an array of texts.
    fn text(&self, place: &str, item: &Item) -> anyhow::Result<String> {
        let list = item.as_array().map(|items| {
            let texts: Option<Vec<&str>> = items.iter().map(|item| item.as_str()).collect();
            texts.map(|texts| texts.join(","))
        });
        let text = item.as_str().map(str::to_owned).or(list.flatten());
        text.ok_or_else(|| self.wrong(place, "expected a text in quotes").into())
    }

    /// Settings by name. A dotted key without quotes is a table in TOML, and means the same setting.
    fn settings(&self, place: &str, item: &Item) -> anyhow::Result<BTreeMap<String, String>> {
        let Some(table) = item.as_table_like() else {
            return Err(self.wrong(place, "expected a table of client settings").into());
        };
        let mut settings = BTreeMap::new();
        for (key, item) in table.iter() {
            let place = format!("{place}.{key}");
            match item.as_table_like() {
                Some(_) => {
                    let below = self.settings(&place, item)?;
                    settings.extend(below.into_iter().map(|(rest, value)| (format!("{key}.{rest}"), value)));
                }
                None => {
                    settings.insert(key.to_owned(), self.setting(&place, item)?);
                }
            }
        }
        Ok(settings)
    }

    fn setting(&self, place: &str, item: &Item) -> anyhow::Result<String> {
        let number = || item.as_integer().map(|number| number.to_string());
        let truth = || item.as_bool().map(|truth| truth.to_string());
        let text = item.as_str().map(str::to_owned).or_else(number).or_else(truth);
        text.ok_or_else(|| self.wrong(place, "expected a text, a number, true or false").into())
    }

    /// A path; a relative path starts at the directory of this file.
    fn file(&self, text: &str) -> PathBuf {
        let home = || std::env::var_os("HOME").map(PathBuf::from);
        match text.strip_prefix("~/").and_then(|rest| Some(home()?.join(rest))) {
            Some(path) => path,
            None => self.path.parent().unwrap_or(Path::new("")).join(text),
        }
    }

    fn warn_of_readers(&self, profile: &Profile) {
        if self.is_public && profile.settings.keys().any(|key| is_secret(key)) {
            warn(&self.path);
        }
        let has_secret = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            Properties::parse(&text).rest().any(is_secret)
        };
        let named = profile.command_config.as_deref().filter(|path| has_secret(path));
        for path in named.into_iter().chain(profile.password_file.as_deref()) {
            if std::fs::metadata(path).is_ok_and(|metadata| is_public(&metadata)) {
                warn(path);
            }
        }
    }

    /// Adds a profile, or replaces it.
    pub fn put(&mut self, profile: &Profile) -> Result<(), Usage> {
        check_name(&profile.name)?;
        let mut table = Table::new();
        let texts = [
            ("bootstrap-server", profile.bootstrap_server.clone()),
            ("command-config", profile.command_config.as_deref().map(shown)),
            ("server", profile.server.clone()),
            ("user", profile.user.clone()),
            ("password-file", profile.password_file.as_deref().map(shown)),
            ("ca", profile.ca.as_deref().map(shown)),
            ("format", profile.format.clone()),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                table.insert(key, value(text));
            }
        }
        if !profile.settings.is_empty() {
            let mut settings = Table::new();
            for (key, setting) in &profile.settings {
                settings.insert(key, value(setting));
            }
            table.insert(SETTINGS, Item::Table(settings));
        }
        let all = self.document.entry(PROFILES).or_insert_with(|| {
            let mut all = Table::new();
            all.set_implicit(true);
            Item::Table(all)
        });
        let all = all.as_table_like_mut().expect("it was checked when the file was read");
        all.insert(&profile.name, Item::Table(table));
        Ok(())
    }

    /// Sets the profile in use. The line keeps its place and its comments.
    pub fn set_in_use(&mut self, name: Option<&str>) {
        let mut new = Value::from(name.unwrap_or(NONE));
        match self.document.get_mut(IN_USE).and_then(Item::as_value_mut) {
            Some(known) => {
                *new.decor_mut() = known.decor().clone();
                *known = new;
            }
            None => drop(self.document.insert(IN_USE, Item::Value(new))),
        }
    }

    /// Removes a profile; fails if there is no such profile.
    pub fn remove(&mut self, name: &str) -> Result<(), NotFound> {
        let all = self.document.get_mut(PROFILES).and_then(Item::as_table_like_mut);
        match all.and_then(|all| all.remove(name)) {
            None => return Err(self.missing(name)),
            Some(_) if self.name_in_use() == Some(name) => self.set_in_use(None),
            Some(_) => {}
        }
        Ok(())
    }

    /// Replaces the file atomically, readable by its owner only.
    pub fn write(&self) -> anyhow::Result<()> {
        if self.path.as_os_str().is_empty() {
            return Err(no_home().into());
        }
        let failed = || format!("Cannot write {}", self.path.display());
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir).with_context(failed)?;
        }
        // Follow a symbolic link, so that the link stays and its target is replaced.
        let path = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        thalweg_authority::replace_secret(&path, &self.document.to_string()).with_context(failed)?;
        Ok(())
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Letters, digits, `-`, `_` and `.`, because names are used in shells and in TOML.
pub(crate) fn check_name(name: &str) -> Result<(), Usage> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name == NONE {
        return Err(Usage(format!("the name {NONE}: --profile {NONE} selects no profile")));
    }
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(is_allowed) {
        let right = format!("expected up to {NAME_CHARS_MAX} letters, digits, '-', '_' and '.'");
        return Err(Usage(format!("the name {name:?}: {right}")));
    }
    Ok(())
}

fn is_public(metadata: &std::fs::Metadata) -> bool {
    metadata.permissions().mode() & 0o077 != 0
}

fn warn(path: &Path) {
    let path = path.display();
    // `say`, because the log does not exist yet when a profile is chosen.
    print_notice(&format!("{path} has secrets, and other users may read it: `chmod 600 {path}`"));
}

fn no_home() -> Usage {
    Usage(format!("there is no home directory: set HOME, or name the configuration file with {VARIABLE}"))
}

/// The path by the environment; none without a home directory.
fn path() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = || {
        // Relative paths are ignored, as the XDG Base Directory Specification requires.
        let config = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        config.or_else(|| Some(variable("HOME")?.join(".config")))
    };
    variable(VARIABLE).or_else(|| Some(config()?.join("thalweg/config.toml")))
}

#[cfg(test)]
mod tests;
