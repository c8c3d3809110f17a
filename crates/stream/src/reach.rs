//! Limits of streams outside their cluster: programs, files and servers. A host sets the limits for all its
//! streams; a stream in the foreground has the rights of the user's process.
//!
//! A path is checked by the resolved file, after links and `..`, and that file is opened. Users who can
//! replace directories below an allowed directory can still mislead a stream: allow only directories of
//! trusted users.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::disk;
use crate::stage::IoFailed;
use crate::topics;

/// Programs that stages run.
pub const EXEC: &str = "exec";
/// Files, including those of dead letters.
const FILE: &str = "file";
/// Other servers and open ports.
const HTTP: &str = "http";
/// Other clusters, and files of client settings.
const KAFKA: &str = "kafka";
/// A table of a topic: as `kafka`, it reaches other clusters through its options.
const ENRICH: &str = "enrich";
/// The stages that reach outside the cluster. `kafka` reaches outside only through its options.
pub const OUTSIDE: [&str; 4] = [EXEC, FILE, HTTP, KAFKA];

/// The setting with the allowed stages, for errors.
const ALLOWED: &str = "streams.allowed.modules";
/// The setting with the directories of files, for errors.
const DIRECTORIES: &str = "streams.file.directories";
const PROPERTIES: &str = "streams.properties.directories";

/// The limits of streams outside their cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    refused: BTreeSet<String>,
    /// Allowed stages of [`OUTSIDE`]; `None` for all.
    allowed: Option<BTreeSet<String>>,
    /// Directories of readable and writable files; `None` for all.
    directories: Option<Vec<PathBuf>>,
    /// Directories of client settings and certificates; `None` for all. Settings name further files, so
    /// streams must not write there.
    properties: Option<Vec<PathBuf>>,
}

/// The reason of a refusal, and the remedy.
pub type Refusal = (String, String);

impl Reach {
    /// No limits but those of the process.
    pub fn everything() -> Reach {
        Reach { refused: BTreeSet::new(), allowed: None, directories: None, properties: None }
    }

    /// Limits: allowed stages of [`OUTSIDE`], directories of files, and directories of client settings and
    /// certificates. `None` allows all.
    pub fn of(
        allowed: Option<BTreeSet<String>>,
        directories: Option<Vec<PathBuf>>,
        properties: Option<Vec<PathBuf>>,
    ) -> Reach {
        Reach { allowed, directories, properties, ..Reach::everything() }
    }

    /// The same limits, without these stages.
    pub fn without(self, refused: impl IntoIterator<Item = String>) -> Reach {
        Reach { refused: refused.into_iter().collect(), ..self }
    }

    fn allows(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(name))
    }

    /// The reason why a stage is refused; `None` if allowed.
    pub fn refusal(&self, name: &str) -> Option<Refusal> {
        if self.refused.contains(name) {
            let right = format!("To allow it, remove {name} from the broker's streams.refused.modules.");
            return Some((format!("{name} is not allowed on this host"), right));
        }
        // A kafka stage on the host's own cluster reaches nothing else.
        let is_outside = name != KAFKA && OUTSIDE.contains(&name);
        (is_outside && !self.allows(name)).then(|| {
            let what = match name {
                EXEC => "runs programs",
                FILE => "reads and writes files of the broker's machine",
                _ => "reaches other servers",
            };
            (format!("{name} is not allowed on this host: it {what}"), allowing(name))
        })
    }

    /// The reason why an option of an allowed stage is refused; `None` if allowed.
    pub fn refusal_of_option(&self, module: &str, option: &str, value: &str) -> Option<Refusal> {
        if matches!(module, KAFKA | ENRICH) && !self.allows(KAFKA) {
            match option {
                "bootstrap" => {
                    let message = "--bootstrap names another cluster, which is not allowed on this host";
                    return Some((message.to_owned(), allowing(KAFKA)));
                }
                "properties" => {
                    let message = "--properties reads a file of the broker's machine, which is not allowed on this host";
                    return Some((message.to_owned(), allowing(KAFKA)));
                }
                _ => {}
            }
        }
        if (module, option) == (KAFKA, "topics") && topics::pattern(value).is_some() {
            let message = "--topics=^... may find topics on which nobody has checked the rights";
            return Some((message.to_owned(), "Name the topics: --topics=a,b.".to_owned()));
        }
        let is_secret = module == HTTP && matches!(option, "bearer" | "apiKey");
        if is_secret && value.starts_with("env:") {
            let message =
                format!("--{option} reads the environment of the broker, which no stream of a host may");
            let right = format!("Use file:PATH. {}", naming(PROPERTIES));
            return Some((message, right));
        }
        let path = Path::new(value.strip_prefix("file:").filter(|_| is_secret).unwrap_or(value));
        let (file, setting) = match (module, option) {
            (FILE, "path") => (self.file(path), DIRECTORIES),
            (HTTP, "caFile" | "bearer" | "apiKey") | (KAFKA | ENRICH, "properties") => {
                (self.properties(path), PROPERTIES)
            }
            _ => return None,
        };
        // Other errors are reported at the start of the stream.
        let refused = file.err().filter(|error| error.source.kind() == io::ErrorKind::PermissionDenied);
        refused.map(|error| (error.to_string(), naming(setting)))
    }

    /// The reason why dead letters cannot be written to a file; `None` if they can.
    pub fn refusal_of_dead_letters(&self, path: &Path) -> Option<Refusal> {
        let is_refused = self.refused.contains(FILE) || !self.allows(FILE);
        if is_refused {
            let message =
                "dead-letter:FILE writes a file of the broker's machine, which is not allowed on this host";
            let right = format!("Use dead-letter:topic:NAME. {}", allowing(FILE));
            return Some((message.to_owned(), right));
        }
        let error = self.file(path).err()?;
        let is_refused = error.source.kind() == io::ErrorKind::PermissionDenied;
        is_refused.then(|| (error.to_string(), naming(DIRECTORIES)))
    }

    /// The file to open for a path, which may not exist yet. The path itself if all files are allowed.
    pub fn file(&self, path: &Path) -> Result<PathBuf, IoFailed> {
        match &self.directories {
            Some(directories) => within(directories, path, DIRECTORIES),
            None => Ok(path.to_owned()),
        }
    }

    /// The file to open for a path of client settings or certificates.
    pub fn properties(&self, path: &Path) -> Result<PathBuf, IoFailed> {
        let Some(properties) = &self.properties else { return Ok(path.to_owned()) };
        let file = within(properties, path, PROPERTIES)?;
        match self.directories.as_deref().map(|directories| within(directories, &file, DIRECTORIES)) {
            Some(Err(_)) => Ok(file),
            _ => Err(denied(path, format!("streams of this host may write it ({DIRECTORIES})"))),
        }
    }
}

/// The resolved file of a path, if it is in one of the directories.
fn within(directories: &[PathBuf], path: &Path, setting: &str) -> Result<PathBuf, IoFailed> {
    match disk::resolve(path) {
        Ok(resolved) => {
            // A directory that is missing or unreadable contains nothing.
            let mut real = directories.iter().filter_map(|directory| disk::resolve(directory).ok());
            if real.any(|directory| resolved != directory && resolved.starts_with(directory)) {
                return Ok(resolved);
            }
        }
        // Errors outside the directories are hidden: they would reveal the existence of files.
        Err(error)
            if !path.components().any(|part| part == Component::ParentDir)
                && directories.iter().any(|directory| path.starts_with(directory)) =>
        {
            return Err(error);
        }
        Err(_) => {}
    }
    Err(denied(path, format!("it is not in a directory that streams of this host may use ({setting})")))
}

fn denied(path: &Path, reason: String) -> IoFailed {
    IoFailed::file("open", path, io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

fn naming(setting: &str) -> String {
    format!("Use a file in one of the directories in the broker's {setting}, or add its directory there.")
}

fn allowing(name: &str) -> String {
    format!("To allow it, add {name} to the broker's {ALLOWED}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn named(names: &[&str]) -> Option<BTreeSet<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn files_are_checked_behind_links_and_parents() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["in", "in/deep", "in-not", "out"] {
            std::fs::create_dir(at(name)).expect("a directory");
        }
        for name in ["in/a", "in/deep/b", "in-not/c", "out/secret"] {
            std::fs::write(at(name), name).expect("a file");
        }
        symlink(at("out/secret"), at("in/link")).expect("a link");
        symlink(at("out"), at("in/directory")).expect("a link");
        symlink(at("out/absent"), at("in/dangling")).expect("a link");
        symlink(at("in/a"), at("out/inward")).expect("a link");
        symlink(at("in"), at("alias")).expect("a link");
        let reach = Reach::of(None, Some(vec![at("alias"), at("absent")]), None);
        for allowed in ["in/a", "in/deep/b", "in/new", "in/deep/../a", "in/deep/new", "out/inward", "alias/a"]
        {
            let file = reach.file(&at(allowed)).unwrap_or_else(|error| panic!("{allowed}: {error}"));
            assert!(file.starts_with(at("in").canonicalize().expect("it is there")), "{allowed}: {file:?}");
        }
        for refused in [
            "out/secret",
            "in/link",
            "in/directory/secret",
            "in/directory/new",
            "in/dangling",
            "in/../out/secret",
            "in-not/c",
            "in/deep/../../out/new",
            "in",
            "alias",
            "out/absent/new",
        ] {
            let error = reach.file(&at(refused)).expect_err(refused);
            assert_eq!(error.source.kind(), io::ErrorKind::PermissionDenied, "{refused}: {error}");
        }
        let error = reach.file(&at("alias/absent/new")).expect_err("there is no such directory");
        assert_eq!(
            error.source.kind(),
            io::ErrorKind::NotFound,
            "a followed file may appear with its directory"
        );
        assert!(Reach::of(None, Some(Vec::new()), None).file(&at("in/a")).is_err());
        assert_eq!(Reach::everything().file(&at("in/link")).expect("no limit"), at("in/link"));
    }

    #[test]
    fn settings_are_read_where_streams_cannot_write_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["files", "files/settings", "settings"] {
            std::fs::create_dir(at(name)).expect("a directory");
            std::fs::write(at(name).join("a"), name).expect("a file");
        }
        let settings = vec![at("settings"), at("files/settings")];
        let reach = Reach::of(None, Some(vec![at("files")]), Some(settings.clone()));
        assert!(reach.properties(&at("settings/a")).is_ok() && reach.file(&at("settings/a")).is_err());
        for refused in ["files/a", "files/settings/a", "settings/../files/a"] {
            let error = reach.properties(&at(refused)).expect_err(refused);
            assert_eq!(error.source.kind(), io::ErrorKind::PermissionDenied, "{refused}: {error}");
        }
        let everywhere = Reach::of(None, None, Some(settings));
        assert!(everywhere.properties(&at("settings/a")).is_err(), "streams may write all files");
        assert!(Reach::everything().properties(&at("files/a")).is_ok());
    }

    #[test]
    fn stages_that_reach_outside_are_refused_until_they_are_named() {
        let none = Reach::of(named(&[]), Some(Vec::new()), Some(Vec::new()));
        for refused in ["exec", "file", "http"] {
            let (message, right) = none.refusal(refused).expect(refused);
            assert!(message.contains(refused) && right.contains("streams.allowed.modules"), "{message}");
            let one = Reach::of(named(&[refused]), None, None);
            assert_eq!(one.refusal(refused), None);
            assert!(one.without([refused.to_owned()]).refusal(refused).is_some());
        }
        assert_eq!((none.refusal("kafka"), none.refusal("log")), (None, None));
        for option in ["bootstrap", "properties"] {
            for module in ["kafka", "enrich"] {
                assert!(none.refusal_of_option(module, option, "/etc/passwd").is_some(), "{module} {option}");
            }
        }
        assert_eq!(none.refusal_of_option("kafka", "topic", "t"), None);
        let kafka_anywhere = Reach::of(named(&["kafka"]), Some(Vec::new()), Some(Vec::new()));
        assert_eq!(kafka_anywhere.refusal_of_option("kafka", "bootstrap", "b:1"), None);
        for (stage, option, setting) in [
            ("kafka", "properties", "streams.properties.directories"),
            ("http", "caFile", "streams.properties.directories"),
            ("http", "bearer", "streams.properties.directories"),
            ("http", "apiKey", "streams.properties.directories"),
            ("file", "path", "streams.file.directories"),
        ] {
            let (_, right) = kafka_anywhere.refusal_of_option(stage, option, "/etc/passwd").expect(option);
            assert!(right.contains(setting), "{right}");
        }
        assert!(Reach::everything().refusal_of_option("kafka", "topics", "^a.*").is_some());
        let secret = |value: &str| Reach::everything().refusal_of_option("http", "bearer", value);
        assert_eq!(secret("file:/etc/passwd"), None);
        assert!(secret("env:HOME").expect("the environment is the broker's").1.starts_with("Use file:PATH."));
        assert!(none.refusal_of_dead_letters(Path::new("/tmp/x")).is_some());
        assert_eq!(Reach::everything().refusal_of_dead_letters(Path::new("/tmp/x")), None);
    }
}
