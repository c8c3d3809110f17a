//! Apache Kafka's jars, and the Java to run them. The jars are those in `KAFKA_CLASSPATH`, unless another
//! release is asked for, or else the published artifacts, fetched by Maven. Maven keeps the jars in its
//! repository; the lab keeps the list in the user's cache.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use super::KAFKA_VERSION;
use super::error::{
    DirectoryFailed, JarsNotFetched, JavaMissing, JavaTooNew, JavaTooOld, MavenMissing, TargetError,
};
use super::process::last_lines;

/// The oldest release that the lab can start: the oldest that its clients can talk to.
const KAFKA_MIN: KafkaVersion = KafkaVersion(2, 1, 0);
/// The first release with KRaft for production; earlier ones are started with ZooKeeper.
const KAFKA_KRAFT: KafkaVersion = KafkaVersion(3, 3, 0);
/// The first release for Scala 2.13.
const KAFKA_SCALA_2_13: KafkaVersion = KafkaVersion(2, 4, 0);
/// The first release whose ZooKeeper resolves addresses under Java 14 and later (ZOOKEEPER-3779).
const KAFKA_JAVA_14: KafkaVersion = KafkaVersion(2, 6, 0);
/// The first release with the second version of the logging framework.
const KAFKA_LOG4J_2: KafkaVersion = KafkaVersion(4, 0, 0);

/// A release of Apache Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KafkaVersion(u32, u32, u32);

impl KafkaVersion {
    /// The oldest Java that the release supports.
    fn java_min(self) -> u32 {
        match self {
            release if release >= KAFKA_LOG4J_2 => 17,
            release if release >= KAFKA_KRAFT => 11,
            _ => 8,
        }
    }

    /// The newest Java that the release runs on, if it is an old one.
    fn java_max(self) -> Option<u32> {
        (self < KAFKA_JAVA_14).then_some(13)
    }

    /// True if the brokers need ZooKeeper.
    pub(super) fn has_zookeeper(self) -> bool {
        self < KAFKA_KRAFT
    }

    /// The artifact of the server.
    fn server(self) -> &'static str {
        if self >= KAFKA_SCALA_2_13 { "kafka_2.13" } else { "kafka_2.12" }
    }

    /// True if the release logs with the second version of the logging framework.
    pub(super) fn has_log4j_2(self) -> bool {
        self >= KAFKA_LOG4J_2
    }
}

impl fmt::Display for KafkaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl FromStr for KafkaVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<KafkaVersion, String> {
        let parts: Vec<Option<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        match parts[..] {
            [Some(major), Some(minor), Some(patch)] => match KafkaVersion(major, minor, patch) {
                version if version >= KAFKA_MIN => Ok(version),
                _ => Err(format!(
                    "use {KAFKA_MIN} or later: earlier brokers do not know the requests of the lab's clients"
                )),
            },
            _ => Err(format!("use three numbers, such as {KAFKA_VERSION}")),
        }
    }
}

/// How the lab runs Apache Kafka.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KafkaOptions {
    /// The release; `None` for that in `KAFKA_CLASSPATH`, or else [`KAFKA_VERSION`].
    pub version: Option<KafkaVersion>,
    /// The Java executable, or a directory with `bin/java`; `None` for that of `JAVA_HOME` or `PATH`.
    pub java: Option<PathBuf>,
    /// Options of the brokers' JVMs, after the lab's own.
    pub jvm_options: Vec<String>,
}

/// Adds options of a JVM behind the others. Of two collectors, which a JVM refuses, the later one stays.
pub(crate) fn add_jvm_options(options: &mut Vec<String>, more: &[String]) {
    if more.iter().any(|option| is_collector(option)) {
        options.retain(|option| !is_collector(option));
    }
    options.extend(more.iter().cloned());
}

/// True for an option that chooses a collector, such as `-XX:+UseZGC`.
pub(super) fn is_collector(option: &str) -> bool {
    option.strip_prefix("-XX:+Use").is_some_and(|name| name.ends_with("GC"))
}

/// Maven's project: the server, the tools, and the logging backend of Kafka's distribution.
const POM: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>thalweg.lab</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>@SERVER@</artifactId><version>@KAFKA@</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>@KAFKA@</version></dependency>
@LOGGING@
  </dependencies>
  <build>
    <plugins>
      <plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version></plugin>
    </plugins>
  </build>
</project>
"#;

/// The version of the logging framework in the default release.
const LOG4J_VERSION: &str = "2.25.4";
/// The backend of the first version of the logging framework.
const RELOAD4J_VERSION: &str = "1.7.36";

/// Apache Kafka, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaJars {
    /// The Java executable.
    pub java: PathBuf,
    /// The version of that Java.
    pub java_version: String,
    /// The class path, passed in the environment variable `CLASSPATH`, because as an argument it would hide
    /// all other arguments.
    pub classpath: String,
    /// Kafka's version, from the name of its jars.
    pub kafka_version: String,
    /// The release, or the default one if the names of the jars do not tell.
    pub release: KafkaVersion,
    /// The origin of the jars, as text.
    pub origin: String,
}

/// Finds Java and the jars, and lets Maven fetch missing jars. Blocking: the first time it can take minutes.
pub fn kafka_jars(options: &KafkaOptions) -> Result<KafkaJars, TargetError> {
    let own = std::env::var("KAFKA_CLASSPATH").ok().filter(|classpath| !classpath.trim().is_empty());
    let own = own.map(|classpath| (version_in(&classpath), classpath));
    let own = own.filter(|(version, _)| match options.version {
        Some(wanted) => version.as_deref() == Some(wanted.to_string().as_str()),
        None => true,
    });
    let wanted = options.version.unwrap_or_else(default_version);
    let release = own.as_ref().and_then(|(version, _)| version.as_ref()?.parse().ok()).unwrap_or(wanted);
    let (java, java_version) = find_java(options.java.as_deref(), release)?;
    let (version, classpath, origin) = match own {
        Some((version, classpath)) => (version, classpath, "KAFKA_CLASSPATH"),
        None => {
            let classpath = fetched(release)?;
            (version_in(&classpath), classpath, "Maven")
        }
    };
    let kafka_version = version.unwrap_or_else(|| "of an unknown version".to_owned());
    let origin = origin.to_owned();
    Ok(KafkaJars { java, java_version, classpath, kafka_version, release, origin })
}

fn default_version() -> KafkaVersion {
    KAFKA_VERSION.parse().expect("the constant is a release")
}

/// The Java executable that the user names, by itself or by its directory.
fn java_program(named: Option<&Path>) -> PathBuf {
    let home = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    match (named, home) {
        (Some(named), _) if named.is_dir() => named.join("bin").join("java"),
        (Some(named), _) => named.to_owned(),
        (None, Some(home)) => home.join("bin").join("java"),
        (None, None) => PathBuf::from("java"),
    }
}

fn find_java(named: Option<&Path>, release: KafkaVersion) -> Result<(PathBuf, String), TargetError> {
    let least = release.java_min();
    let (program, found) = java_version("Apache Kafka", least, named)?;
    // The first releases are called 1.8, and so on.
    let java = java_release(&found).map(|java| if java == 1 { 8 } else { java });
    match (java, release.java_max()) {
        (Some(java), Some(most)) if java > most => {
            Err(JavaTooNew { system: format!("Apache Kafka {release}"), least, most, program, found }.into())
        }
        (Some(java), _) if java >= least => Ok((program, found)),
        _ => Err(JavaTooOld { system: format!("Apache Kafka {release}"), least, program, found }.into()),
    }
}

/// The Java executable for a system, and the line of its version.
pub(super) fn java_version(
    system: &'static str,
    least: u32,
    named: Option<&Path>,
) -> Result<(PathBuf, String), JavaMissing> {
    let program = java_program(named);
    let output = match Command::new(&program).arg("-version").stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(source) => return Err(JavaMissing { system, least, program, source }),
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = text.lines().find(|line| line.contains("version")).or(text.lines().next());
    Ok((program, found.unwrap_or_default().trim().to_owned()))
}

/// The release in a line such as `openjdk version "17.0.15" 2025-04-15`.
pub(super) fn java_release(line: &str) -> Option<u32> {
    let quoted = line.split('"').nth(1)?;
    let digits = quoted.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Maven's project for a release.
fn project(release: KafkaVersion) -> String {
    let dependency = |group: &str, name: &str, version: &str| {
        format!(
            "    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        )
    };
    let logging = match release.has_log4j_2() {
        true => ["log4j-slf4j-impl", "log4j-core", "log4j-1.2-api"]
            .map(|name| dependency("org.apache.logging.log4j", name, LOG4J_VERSION))
            .join("\n"),
        false => dependency("org.slf4j", "slf4j-reload4j", RELOAD4J_VERSION),
    };
    POM.replace("@SERVER@", release.server())
        .replace("@KAFKA@", &release.to_string())
        .replace("@LOGGING@", &logging)
}

/// The class path of a release from Maven, cached.
fn fetched(release: KafkaVersion) -> Result<String, TargetError> {
    let cache =
        cache_dir(&format!("kafka-{release}"), std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?;
    let pom = cache.join("pom.xml");
    let list = cache.join("classpath");
    let text = project(release);
    if std::fs::read_to_string(&pom).is_ok_and(|kept| kept == text)
        && let Ok(kept) = std::fs::read_to_string(&list)
        && is_whole(&kept)
    {
        return Ok(kept.trim().to_owned());
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DirectoryFailed { path, source }
    };
    std::fs::create_dir_all(&cache).map_err(failed(&cache))?;
    // Written to a temporary file and renamed, because another lab may run concurrently.
    let partial = cache.join(format!("classpath.{}", std::process::id()));
    std::fs::write(&pom, &text).map_err(failed(&pom))?;
    let classpath = run_maven(release, &cache, &pom, &partial)?;
    std::fs::rename(&partial, &list).map_err(failed(&list))?;
    Ok(classpath)
}

fn run_maven(release: KafkaVersion, cache: &Path, pom: &Path, output: &Path) -> Result<String, TargetError> {
    tracing::info!("Fetching Apache Kafka {release} with Maven");
    let version = release.to_string();
    let ended = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "dependency:build-classpath", "-DincludeScope=runtime", "--file"])
        .arg(pom)
        .arg({
            let mut argument = OsString::from("-Dmdep.outputFile=");
            argument.push(output);
            argument
        })
        .stdin(Stdio::null())
        .output()
        .map_err(|source| MavenMissing { version: version.clone(), cache: cache.to_owned(), source })?;
    let refused = |reason: String| JarsNotFetched { version: version.clone(), pom: pom.to_owned(), reason };
    if !ended.status.success() {
        let text = [ended.stdout, ended.stderr].concat();
        return Err(refused(last_lines(&String::from_utf8_lossy(&text))).into());
    }
    let classpath = std::fs::read_to_string(output).map_err(|error| refused(error.to_string()))?;
    if !is_whole(&classpath) {
        return Err(refused("it listed jars that do not exist".to_owned()).into());
    }
    Ok(classpath.trim().to_owned())
}

/// A directory in the user's cache.
pub(super) fn cache_dir(
    name: &str,
    xdg: Option<OsString>,
    home: Option<OsString>,
) -> Result<PathBuf, DirectoryFailed> {
    let filled = |dir: Option<OsString>| dir.filter(|dir| Path::new(dir).is_absolute()).map(PathBuf::from);
    let base = filled(xdg).or_else(|| filled(home).map(|home| home.join(".cache")));
    match base {
        Some(base) => Ok(base.join("thalweg").join(name)),
        None => {
            let message = "neither XDG_CACHE_HOME nor HOME is set to a directory";
            Err(DirectoryFailed { path: PathBuf::from("the cache"), source: io::Error::other(message) })
        }
    }
}

/// True if a class path has entries, and all exist.
fn is_whole(classpath: &str) -> bool {
    let classpath = classpath.trim();
    !classpath.is_empty() && classpath.split(':').all(|jar| Path::new(jar).exists())
}

/// The version of the jar `kafka-clients`, named by the class path directly or by its directory.
fn version_in(classpath: &str) -> Option<String> {
    classpath.split(':').find_map(|entry| match entry.strip_suffix("/*") {
        Some(dir) => std::fs::read_dir(dir)
            .ok()?
            .filter_map(|file| clients_version(&file.ok()?.file_name().to_string_lossy()))
            .next(),
        None => clients_version(Path::new(entry).file_name()?.to_str()?),
    })
}

fn clients_version(name: &str) -> Option<String> {
    Some(name.strip_prefix("kafka-clients-")?.strip_suffix(".jar")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_java_versions_are_parsed() {
        assert_eq!(java_release("openjdk version \"17.0.15\" 2025-04-15"), Some(17));
        assert_eq!(java_release("java version \"1.8.0_401\""), Some(1));
        assert_eq!(java_release("openjdk version \"25-ea\" 2025-09-16"), Some(25));
        assert_eq!(java_release("Error: could not find libjava.so"), None);
    }

    #[test]
    fn a_release_decides_on_java_and_logging() {
        let release = |text: &str| text.parse::<KafkaVersion>();
        let (old, new) = (release("3.9.1").expect("it has KRaft"), release("4.1.0").expect("it has KRaft"));
        assert_eq!((old.java_min(), new.java_min()), (11, 17));
        let first = release("2.3.0").expect("it has ZooKeeper");
        assert_eq!((first.java_min(), first.java_max(), old.java_max()), (8, Some(13), None));
        assert!(first.has_zookeeper() && release("3.2.3").expect("known").has_zookeeper());
        assert!(!old.has_zookeeper());
        assert!(project(first).contains("<artifactId>kafka_2.12</artifactId><version>2.3.0</version>"));
        let projects = [project(old), project(new), project(default_version())];
        assert!(projects[0].contains("<artifactId>kafka_2.13</artifactId><version>3.9.1</version>"));
        assert!(projects[0].contains("slf4j-reload4j") && !projects[0].contains("log4j-core"));
        assert!(projects[1..].iter().all(|text| text.contains("log4j-core") && !text.contains('@')));
        for (text, why) in [
            ("2.0.1", "use 2.1.0 or later: earlier brokers do not know the requests of the lab's clients"),
            ("4.1", "use three numbers, such as 4.3.1"),
            ("latest", "use three numbers, such as 4.3.1"),
        ] {
            assert_eq!(release(text), Err(why.to_owned()));
        }
    }

    #[test]
    fn java_is_named_by_its_program_or_its_directory() {
        let home = tempfile::tempdir().expect("a directory");
        assert_eq!(java_program(Some(home.path())), home.path().join("bin/java"));
        assert_eq!(java_program(Some(Path::new("/opt/j9/bin/java"))), Path::new("/opt/j9/bin/java"));
    }

    #[test]
    fn the_cache_is_where_the_user_keeps_caches() {
        let dir = |xdg: Option<&str>, home: Option<&str>| {
            cache_dir(&format!("kafka-{KAFKA_VERSION}"), xdg.map(OsString::from), home.map(OsString::from))
                .map_err(|error| error.to_string())
        };
        let below = |base: &str| Ok(Path::new(base).join("thalweg").join(format!("kafka-{KAFKA_VERSION}")));
        assert_eq!(dir(Some("/caches"), Some("/me")), below("/caches"));
        assert_eq!(dir(Some(""), Some("/me")), below("/me/.cache"));
        assert!(dir(None, None).is_err_and(|error| error.contains("XDG_CACHE_HOME")));
    }

    #[test]
    fn a_class_path_has_the_version_by_jar_or_directory() {
        assert_eq!(version_in("/x/scala.jar:/x/kafka-clients-4.3.1.jar").as_deref(), Some("4.3.1"));
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("kafka-clients-4.2.0.jar"), "").expect("written");
        assert_eq!(version_in(&format!("{}/*", dir.path().display())).as_deref(), Some("4.2.0"));
        assert_eq!(version_in("/nowhere/*:/x/y.jar"), None);
    }

    #[test]
    fn the_release_is_that_of_the_project_tests() {
        let pom = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/kafka-jars/pom.xml");
        let pom = std::fs::read_to_string(pom).expect("it is in the tree");
        assert!(pom.contains(&format!("<kafka.version>{KAFKA_VERSION}</kafka.version>")));
        assert!(pom.contains(&format!("<log4j.version>{LOG4J_VERSION}</log4j.version>")));
    }

    #[test]
    fn a_list_with_missing_jars_is_not_trusted() {
        let dir = tempfile::tempdir().expect("a directory");
        let jar = dir.path().join("a.jar");
        std::fs::write(&jar, "").expect("written");
        assert!(is_whole(&format!("{}\n", jar.display())));
        assert!(!is_whole(&format!("{}:/nowhere/b.jar", jar.display())));
        assert!(!is_whole(" \n"));
    }
}
