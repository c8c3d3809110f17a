//! Apache Pulsar's distribution, and the Java to run it. The distribution is that in `PULSAR_HOME`, or else
//! the one that the user has unpacked in the user's cache. The lab does not fetch it: it has 245 MB.

use std::path::{Path, PathBuf};

use super::home_of;
use crate::target::error::{JavaTooOld, JavaWithoutHome, PulsarMissing, TargetError};
use crate::target::jars::{cache_dir, java_release, java_version};

/// The release of Pulsar in instructions, and in the cache.
pub const PULSAR_VERSION: &str = "4.0.8";
/// Maven's coordinates of the distribution.
pub const PULSAR_ARTIFACT: &str = "org.apache.pulsar:pulsar-server-distribution:4.0.8:tar.gz:bin";
/// The environment variable with the directory of the distribution.
const HOME: &str = "PULSAR_HOME";
/// The oldest Java of Pulsar's brokers.
const JAVA_MIN: u32 = 17;
/// The jar whose name has the version.
const BROKER_JAR: &str = "org.apache.pulsar-pulsar-broker-";

/// Apache Pulsar, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulsarDistribution {
    /// The unpacked distribution, with `bin/pulsar`.
    pub home: PathBuf,
    /// Pulsar's version, from the name of its jar.
    pub version: String,
    /// The Java executable.
    pub java: PathBuf,
    /// The version of that Java.
    pub java_version: String,
}

impl PulsarDistribution {
    /// The start script.
    pub(super) fn script(&self) -> PathBuf {
        self.home.join("bin").join("pulsar")
    }

    /// The settings of the standalone mode.
    pub(super) fn settings(&self) -> PathBuf {
        self.home.join("conf").join("standalone.conf")
    }

    /// `JAVA_HOME` for the script; `None` to let it take the program of `PATH`.
    pub(super) fn java_home(&self) -> Option<PathBuf> {
        home_of(&self.java)
    }
}

/// Finds the distribution and Java, which `java` names, or else `JAVA_HOME` or `PATH`. Blocking.
pub fn pulsar_distribution(java: Option<&Path>) -> Result<PulsarDistribution, TargetError> {
    let home = match std::env::var_os(HOME).filter(|home| !home.is_empty()) {
        Some(home) => PathBuf::from(home),
        None => {
            let cache = cache_dir(
                &format!("pulsar-{PULSAR_VERSION}"),
                std::env::var_os("XDG_CACHE_HOME"),
                std::env::var_os("HOME"),
            )?;
            cache.join(format!("apache-pulsar-{PULSAR_VERSION}"))
        }
    };
    find(&home, java)
}

fn find(home: &Path, java: Option<&Path>) -> Result<PulsarDistribution, TargetError> {
    let (java, java_version) = java_version("Apache Pulsar", JAVA_MIN, java)?;
    let java = in_a_home(java)?;
    let Some(version) = version_in(&home.join("lib")).filter(|_| home.join("bin/pulsar").exists()) else {
        return Err(PulsarMissing { home: home.to_owned(), java_version }.into());
    };
    match java_release(&java_version) {
        Some(release) if release >= JAVA_MIN => {
            // Absolute, because the script runs in another directory.
            let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
            Ok(PulsarDistribution { home, version, java, java_version })
        }
        _ => Err(JavaTooOld {
            system: format!("Apache Pulsar {version}"),
            least: JAVA_MIN,
            program: java,
            found: java_version,
        }
        .into()),
    }
}

/// The program that Pulsar's script can be made to run: that of `PATH`, or by its home. An absolute path,
/// since the script changes its directory.
fn in_a_home(java: PathBuf) -> Result<PathBuf, JavaWithoutHome> {
    if java == Path::new("java") {
        return Ok(java);
    }
    // The program has just run.
    let found = java.canonicalize().unwrap_or(java);
    match found.ends_with("bin/java") {
        true => Ok(found),
        false => Err(JavaWithoutHome { program: found }),
    }
}

/// The version of the broker's jar in a directory.
fn version_in(lib: &Path) -> Option<String> {
    let version = |name: &str| Some(name.strip_prefix(BROKER_JAR)?.strip_suffix(".jar")?.to_owned());
    // Other jars continue the name by a word: the version begins with a digit.
    let is_version = |text: &String| text.starts_with(|first: char| first.is_ascii_digit());
    std::fs::read_dir(lib)
        .ok()?
        .flatten()
        .filter_map(|file| version(&file.file_name().to_string_lossy()))
        .find(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_has_a_script_and_a_jar() {
        let home = tempfile::tempdir().expect("a directory");
        let at = |path: &str| home.path().join(path);
        let java = at("bin/java");
        std::fs::create_dir(at("bin")).expect("made");
        std::fs::write(&java, "#!/bin/sh\necho 'openjdk version \"21.0.2\"' >&2\n").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&java, mode).expect("set");
        let found = || find(home.path(), Some(&java)).map_err(|error| error.to_string());

        let missing = found().expect_err("nothing is there");
        for part in
            [PULSAR_ARTIFACT, "245 MB", "PULSAR_HOME", "Java 17 or later", "openjdk version \"21.0.2\""]
        {
            assert!(missing.contains(part), "{part}: {missing}");
        }
        std::fs::create_dir(at("lib")).expect("made");
        std::fs::write(at("bin/pulsar"), "").expect("written");
        for name in ["broker-common-4.0.8", "broker-4.0.8"] {
            std::fs::write(at(&format!("lib/org.apache.pulsar-pulsar-{name}.jar")), "").expect("written");
        }
        let whole = found().expect("it is whole");
        assert_eq!((&*whole.version, &whole.java), ("4.0.8", &java.canonicalize().expect("it exists")));

        std::fs::write(&java, "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n").expect("written");
        let old = found().expect_err("it is too old");
        assert!(old.starts_with("Apache Pulsar 4.0.8 needs Java 17 or later, but "), "{old}");
    }

    #[test]
    fn the_java_that_is_checked_is_the_one_that_runs() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().canonicalize().expect("it exists").join("jdk");
        std::fs::create_dir_all(home.join("bin")).expect("made");
        for program in ["bin/java", "java17"] {
            std::fs::write(home.join(program), "").expect("written");
        }
        let link = dir.path().join("java");
        std::os::unix::fs::symlink(home.join("bin/java"), &link).expect("linked");
        assert_eq!(in_a_home(link).expect("it has a home"), home.join("bin/java"));
        let around = home.join("bin/../bin/java");
        assert_eq!(in_a_home(around).expect("it has a home"), home.join("bin/java"));
        assert_eq!(in_a_home("java".into()).expect("that of PATH"), Path::new("java"));
        let text = in_a_home(home.join("java17")).expect_err("it has none").to_string();
        assert!(text.contains("jdk/java17") && text.contains("bin/java"), "{text}");
    }
}
