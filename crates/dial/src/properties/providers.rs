//! Kafka's config providers: `${provider:key}` or `${provider:path:key}` in a value is replaced by the
//! provider's value (KIP-297, KIP-421; `ConfigTransformer`).
//!
//! Supported are the providers that come with Kafka: environment variables, properties files, directories of
//! files. Kafka leaves a placeholder without a value unchanged, so that it becomes the password or the
//! directory name; here it is an error.

use super::Properties;
use regex::{Captures, Regex};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

const PROVIDERS: &str = "config.providers";
/// Package of the provider classes.
const PACKAGE: &str = "org.apache.kafka.common.config.provider.";

/// A placeholder in Kafka's syntax, or a similar text.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\$\{(?:(?<provider>[^}:]*):(?:(?<path>[^}:]*):)?)?(?<key>[^}]*)\}")
        .expect("a valid expression")
});

/// A placeholder without a value, or an unknown provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct UnresolvedSetting {
    /// The setting with the placeholder, or the setting of the provider.
    pub setting: String,
    /// Error and remedy.
    pub reason: String,
}

/// A source of values.
enum Provider {
    /// `EnvVarConfigProvider`: the variables whose whole name matches.
    Variables(Regex),
    /// `FileConfigProvider`.
    File(AllowedPaths),
    /// `DirectoryConfigProvider`.
    Directory(AllowedPaths),
}

/// `allowed.paths`: all paths if unset or empty, and none if it has only commas.
struct AllowedPaths(Option<Vec<PathBuf>>);

impl Properties {
    /// Replaces placeholders by the providers' values, and removes the settings of providers.
    pub fn resolve(mut self) -> Result<Properties, UnresolvedSetting> {
        self.resolved.extend(resolve(&mut self.values)?);
        self.values.retain(|key, _| !is_provider_setting(key));
        Ok(self)
    }
}

/// True if a setting names providers or belongs to one.
pub fn is_provider_setting(key: &str) -> bool {
    key.strip_prefix(PROVIDERS).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Replaces placeholders by values of the providers in `config.providers`. Returns the settings that had
/// placeholders: their values may be secrets, even under harmless names.
pub fn resolve(settings: &mut BTreeMap<String, String>) -> Result<BTreeSet<String>, UnresolvedSetting> {
    if !settings.contains_key(PROVIDERS) && !settings.values().any(|value| value.contains("${")) {
        return Ok(BTreeSet::new());
    }
    let providers = providers(settings)?;
    let mut resolved = BTreeSet::new();
    for (setting, value) in settings.iter_mut() {
        let has_some = PLACEHOLDER.is_match(value);
        let replaced = replace(value, &providers);
        *value = replaced.map_err(|reason| UnresolvedSetting { setting: setting.clone(), reason })?;
        if has_some {
            resolved.insert(setting.clone());
        }
    }
    Ok(resolved)
}

fn providers(settings: &BTreeMap<String, String>) -> Result<BTreeMap<String, Provider>, UnresolvedSetting> {
    let names = settings.get(PROVIDERS).map(String::as_str).unwrap_or_default();
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| Ok((name.to_owned(), provider(name, settings)?))).collect()
}

fn provider(name: &str, settings: &BTreeMap<String, String>) -> Result<Provider, UnresolvedSetting> {
    let setting = format!("{PROVIDERS}.{name}.class");
    let parameter = |key: &str| {
        let setting = format!("{PROVIDERS}.{name}.param.{key}");
        let value = settings.get(&setting).map(|value| value.trim());
        (setting, value)
    };
    let refused = |setting: String, reason: String| UnresolvedSetting { setting, reason };
    let class = settings.get(&setting).map(|class| class.trim()).unwrap_or_default();
    let allowed_paths = || {
        let (setting, value) = parameter("allowed.paths");
        AllowedPaths::parse(value.unwrap_or_default()).map_err(|reason| refused(setting, reason))
    };
    match class.strip_prefix(PACKAGE) {
        Some("EnvVarConfigProvider") => {
            let (setting, pattern) = parameter("allowlist.pattern");
            let pattern = Regex::new(&format!("^(?:{})$", pattern.unwrap_or(".*")));
            pattern.map(Provider::Variables).map_err(|error| refused(setting, error.to_string()))
        }
        Some("FileConfigProvider") => Ok(Provider::File(allowed_paths()?)),
        Some("DirectoryConfigProvider") => Ok(Provider::Directory(allowed_paths()?)),
        _ => {
            let given =
                if class.is_empty() { "It is missing".to_owned() } else { format!("{class} is not served") };
            let served = "expected EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider of";
            Err(refused(setting, format!("{given}; {served} {}", PACKAGE.trim_end_matches('.'))))
        }
    }
}

/// The text with its placeholders replaced. Placeholders inside the values stay unchanged.
fn replace(text: &str, providers: &BTreeMap<String, Provider>) -> Result<String, String> {
    let (mut replaced, mut end) = (String::new(), 0);
    for found in PLACEHOLDER.captures_iter(text) {
        let whole = found.get(0).expect("the match");
        replaced += &text[end..whole.start()];
        replaced += &value_of(&found, providers)
            .map_err(|reason| format!("{} has no value: {reason}", whole.as_str()))?;
        end = whole.end();
    }
    Ok(replaced + &text[end..])
}

fn value_of(placeholder: &Captures<'_>, providers: &BTreeMap<String, Provider>) -> Result<String, String> {
    let part = |name: &str| placeholder.name(name).map_or("", |part| part.as_str());
    let (name, path, key) = (part("provider"), part("path"), part("key"));
    if name.is_empty() {
        return Err("expected ${provider:key} or ${provider:path:key}".to_owned());
    }
    let Some(provider) = providers.get(name) else { return Err(format!("{PROVIDERS} does not name {name}")) };
    match provider {
        Provider::Variables(_) if !path.is_empty() => Err("environment variables have no path".to_owned()),
        Provider::Variables(allowed) if !allowed.is_match(key) => {
            Err("allowlist.pattern does not match this variable".to_owned())
        }
        Provider::Variables(_) => std::env::var(key).map_err(|error| error.to_string()),
        Provider::File(allowed) => {
            let path = allowed.check(path)?;
            let text = read(&path)?;
            let value = Properties::parse(&text).take(key);
            value.ok_or_else(|| format!("{} has no property {key}", path.display()))
        }
        // A path could lead out of the directory.
        Provider::Directory(_) if Path::new(key).file_name() != Some(key.as_ref()) => {
            Err(format!("{key} is not the name of a file"))
        }
        Provider::Directory(allowed) => read(&allowed.check(path)?.join(key)),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

impl AllowedPaths {
    fn parse(text: &str) -> Result<AllowedPaths, String> {
        if text.is_empty() {
            return Ok(AllowedPaths(None));
        }
        // Java's `split` drops trailing empty texts; other empty texts are relative paths.
        let listed = text.trim_end_matches(',');
        let paths = (!listed.is_empty()).then(|| listed.split(',')).into_iter().flatten().map(|path| {
            let path = without_dots(Path::new(path));
            match path.is_absolute() {
                true if path.exists() => Ok(path),
                true => Err(format!("{} does not exist", path.display())),
                false if path.as_os_str().is_empty() => {
                    Err("an entry is empty, which is no absolute path".to_owned())
                }
                false => Err(format!("{} is not absolute", path.display())),
            }
        });
        paths.collect::<Result<_, _>>().map(|paths| AllowedPaths(Some(paths)))
    }

    fn check(&self, path: &str) -> Result<PathBuf, String> {
        if path.is_empty() {
            return Err("it names no path, as ${provider:path:key} does".to_owned());
        }
        let path = without_dots(Path::new(path));
        let is_allowed = |paths: &Vec<PathBuf>| paths.iter().any(|allowed| path.starts_with(allowed));
        if self.0.as_ref().is_none_or(is_allowed) {
            return Ok(path);
        }
        Err(format!("{} is not in allowed.paths", path.display()))
    }
}

/// The path without `.` and `..`, resolved by text only.
fn without_dots(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            component => normal.push(component),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of `key` in the text of a properties file, or the error.
    fn resolved(text: &str) -> Result<String, String> {
        let resolved = Properties::parse(text).resolve().map_err(|error| error.to_string())?;
        Ok(resolved.get("key").expect("it was there").to_owned())
    }

    fn of(name: &str, class: &str, value: &str) -> String {
        format!(
            "config.providers=other, {name}\nconfig.providers.other.class={PACKAGE}EnvVarConfigProvider\n\
                 config.providers.{name}.class={PACKAGE}{class}\nkey={value}\n"
        )
    }

    #[test]
    fn variables_are_values() {
        // Cargo sets this variable for tests.
        let name = std::env::var("CARGO_PKG_NAME").expect("set");
        let text = of("env", "EnvVarConfigProvider", "a ${env:CARGO_PKG_NAME}, ${other::CARGO_PKG_NAME} z");
        assert_eq!(resolved(&text), Ok(format!("a {name}, {name} z")));
        let allowed = |pattern: &str| {
            resolved(&format!("{text}config.providers.env.param.allowlist.pattern={pattern}\n"))
        };
        assert_eq!(allowed("CARGO_.*"), Ok(format!("a {name}, {name} z")));
        assert!(
            allowed("CARGO").expect_err("not the whole name").contains("allowlist.pattern does not match")
        );
        assert!(
            allowed("(")
                .expect_err("no expression")
                .starts_with("config.providers.env.param.allowlist.pattern: ")
        );
    }

    #[test]
    fn files_are_read_where_paths_are_allowed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, file) = (dir.path().display(), dir.path().join("secrets.properties"));
        std::fs::write(&file, "password=a=b ${env:HOME}\n").expect("written");
        std::fs::write(dir.path().join("token"), "of two\nlines\n").expect("written");
        let of_file = of("file", "FileConfigProvider", &format!("${{file:{}:password}}", file.display()));
        let of_dir = of("dir", "DirectoryConfigProvider", &format!("<${{dir:{path}:token}}>"));
        // Placeholders inside the values stay unchanged.
        assert_eq!(resolved(&of_file), Ok("a=b ${env:HOME}".to_owned()));
        assert_eq!(resolved(&of_dir), Ok("<of two\nlines\n>".to_owned()));
        let allowed =
            |name: &str, paths: &str| format!("config.providers.{name}.param.allowed.paths={paths}\n");
        assert!(resolved(&format!("{of_file}{}", allowed("file", &path.to_string()))).is_ok());
        for (text, name) in [(&of_file, "file"), (&of_dir, "dir")] {
            let refused = resolved(&format!("{text}{}", allowed(name, "/proc,/sys"))).expect_err("elsewhere");
            assert!(refused.ends_with("is not in allowed.paths"), "{refused}");
            let refused = resolved(&format!("{text}{}", allowed(name, "/nowhere"))).expect_err("not there");
            assert_eq!(
                refused,
                format!("config.providers.{name}.param.allowed.paths: /nowhere does not exist")
            );
        }
        // Java's `String.split` splits the list in the same way.
        for (paths, is_read) in [("", true), (",", false), (",,", false), ("/proc,", false), ("/,,", true)] {
            assert_eq!(resolved(&format!("{of_dir}{}", allowed("dir", paths))).is_ok(), is_read, "{paths}");
        }
        let gap = resolved(&format!("{of_dir}{}", allowed("dir", "/,,/proc"))).expect_err("an empty path");
        assert!(gap.ends_with(".allowed.paths: an entry is empty, which is no absolute path"), "{gap}");
        let out = of("dir", "DirectoryConfigProvider", &format!("${{dir:{path}/x/../../..:token}}"));
        let refused = resolved(&format!("{out}{}", allowed("dir", &path.to_string())));
        assert!(refused.expect_err("out of it").ends_with("is not in allowed.paths"));
        for (key, reason) in [
            ("../x", "is not the name of a file"),
            ("..", "is not the name of a file"),
            ("absent", "No such file"),
        ] {
            let refused = resolved(&of("dir", "DirectoryConfigProvider", &format!("${{dir:{path}:{key}}}")));
            assert!(refused.as_ref().is_err_and(|error| error.contains(reason)), "{refused:?}");
        }
        let absent = of("file", "FileConfigProvider", &format!("${{file:{}:absent}}", file.display()));
        assert!(resolved(&absent).expect_err("no such property").ends_with("has no property absent"));
    }

    #[test]
    fn the_value_of_a_placeholder_is_not_repeated_by_a_refusal() {
        let text = of("env", "EnvVarConfigProvider", "1")
            + "acks=${env:CARGO_PKG_NAME}\nsecurity.protocol=${env:CARGO_PKG_NAME}\nretries=x\n";
        let mut properties = Properties::parse(&text).resolve().expect("Cargo sets the variable");
        assert!(!format!("{properties:?}").contains(env!("CARGO_PKG_NAME")), "{properties:?}");
        let refused = crate::ConnectionOptions::take(&mut properties, "test").expect_err("no protocol");
        assert!(refused.to_string().starts_with("security.protocol=[hidden] is invalid: "), "{refused}");
        let refused = properties.take_number("acks", 1, -1, 1).expect_err("no number");
        assert!(refused.to_string().starts_with("acks=[hidden] is invalid: "), "{refused}");
        let refused = properties.take_number("retries", 1, 0, 1).expect_err("no number");
        assert!(refused.to_string().starts_with("retries=x is invalid: "), "{refused}");
        let mut renamed =
            Properties::parse(&text.replace("acks=", "message.send.max.retries=").replace("retries=x", ""));
        renamed = renamed.resolve().expect("Cargo sets the variable");
        renamed.rename_librdkafka().expect("names of librdkafka");
        let refused = renamed.take_number("retries", 1, 0, 1).expect_err("no number");
        assert!(refused.to_string().starts_with("retries=[hidden] is invalid: "), "{refused}");
        properties.set("acks", "y");
        let refused = properties.take_bool("acks", true).expect_err("neither");
        assert!(refused.to_string().starts_with("acks=y is invalid: "), "{refused}");
    }

    #[test]
    fn a_placeholder_without_a_value_is_refused() {
        let refused = |value: &str| resolved(&of("env", "EnvVarConfigProvider", value)).expect_err(value);
        assert_eq!(
            refused("x ${vault:a:b}"),
            "key: ${vault:a:b} has no value: config.providers does not name vault"
        );
        assert!(
            refused("${env:THALWEG_NOWHERE}")
                .starts_with("key: ${env:THALWEG_NOWHERE} has no value: environment")
        );
        assert!(refused("${HOME}").ends_with("expected ${provider:key} or ${provider:path:key}"));
        assert!(refused("${env:a:b}").ends_with("environment variables have no path"));
        let class = resolved(&of("env", "VaultProvider", "1")).expect_err("unknown");
        assert!(
            class.starts_with("config.providers.env.class: ")
                && class.contains("VaultProvider is not served"),
            "{class}"
        );
        let missing = resolved("config.providers=env\nkey=1").expect_err("no class");
        assert!(missing.starts_with("config.providers.env.class: It is missing"), "{missing}");
        assert_eq!(resolved("key=$1 {x} $ {y}"), Ok("$1 {x} $ {y}".to_owned()));
    }
}
