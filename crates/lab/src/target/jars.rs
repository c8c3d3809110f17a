//! Apache Kafka's jars, and the Java to run them. The jars are those in `KAFKA_CLASSPATH`, or else the
//! published artifacts, fetched by Maven. Maven keeps the jars in its repository; the lab keeps the list in
//! the user's cache.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::KAFKA_VERSION;
use super::error::{DirectoryFailed, JarsNotFetched, JavaMissing, JavaTooOld, MavenMissing, TargetError};
use super::process::last_lines;

/// The oldest supported Java.
const JAVA_MIN: u32 = 17;

/// Maven's project: the server, the tools, and the logging backend of Kafka's distribution.
const POM: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>thalweg.lab</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>@KAFKA@</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>@KAFKA@</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>@LOG4J@</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>@LOG4J@</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-1.2-api</artifactId><version>@LOG4J@</version></dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version></plugin>
    </plugins>
  </build>
</project>
"#;

/// The version of the logging framework in that release.
const LOG4J_VERSION: &str = "2.25.4";

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
    /// The origin of the jars, as text.
    pub origin: String,
}

/// Finds Java and the jars, and lets Maven fetch missing jars. Blocking: the first time it can take minutes.
pub fn kafka_jars() -> Result<KafkaJars, TargetError> {
    let (java, java_version) = find_java()?;
    let (classpath, origin) = match std::env::var("KAFKA_CLASSPATH") {
        Ok(classpath) if !classpath.trim().is_empty() => (classpath, "KAFKA_CLASSPATH".to_owned()),
        _ => (fetched()?, "Maven".to_owned()),
    };
    let kafka_version = version_in(&classpath).unwrap_or_else(|| "of an unknown version".to_owned());
    Ok(KafkaJars { java, java_version, classpath, kafka_version, origin })
}

fn find_java() -> Result<(PathBuf, String), TargetError> {
    let program = match std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty()) {
        Some(home) => Path::new(&home).join("bin").join("java"),
        None => PathBuf::from("java"),
    };
    let output = match Command::new(&program).arg("-version").stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(source) => return Err(JavaMissing { program, source }.into()),
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = text.lines().find(|line| line.contains("version")).or(text.lines().next());
    let found = found.unwrap_or_default().trim().to_owned();
    match java_release(&found) {
        Some(release) if release >= JAVA_MIN => Ok((program, found)),
        _ => Err(JavaTooOld { program, found }.into()),
    }
}

/// The release in a line such as `openjdk version "17.0.15" 2025-04-15`.
fn java_release(line: &str) -> Option<u32> {
    let quoted = line.split('"').nth(1)?;
    let digits = quoted.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The class path from Maven, cached.
fn fetched() -> Result<String, TargetError> {
    let cache = cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?;
    let pom = cache.join("pom.xml");
    let list = cache.join("classpath");
    let text = POM.replace("@KAFKA@", KAFKA_VERSION).replace("@LOG4J@", LOG4J_VERSION);
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
    let classpath = run_maven(&cache, &pom, &partial)?;
    std::fs::rename(&partial, &list).map_err(failed(&list))?;
    Ok(classpath)
}

fn run_maven(cache: &Path, pom: &Path, output: &Path) -> Result<String, TargetError> {
    tracing::info!("Fetching Apache Kafka {KAFKA_VERSION} with Maven");
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
        .map_err(|source| MavenMissing { cache: cache.to_owned(), source })?;
    let refused = |reason: String| JarsNotFetched { pom: pom.to_owned(), reason };
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

fn cache_dir(xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, DirectoryFailed> {
    let filled = |dir: Option<OsString>| dir.filter(|dir| Path::new(dir).is_absolute()).map(PathBuf::from);
    let base = filled(xdg).or_else(|| filled(home).map(|home| home.join(".cache")));
    match base {
        Some(base) => Ok(base.join("thalweg").join(format!("kafka-{KAFKA_VERSION}"))),
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
    fn the_cache_is_where_the_user_keeps_caches() {
        let dir = |xdg: Option<&str>, home: Option<&str>| {
            cache_dir(xdg.map(OsString::from), home.map(OsString::from)).map_err(|error| error.to_string())
        };
        let below = |base: &str| Ok(Path::new(base).join("thalweg").join(format!("kafka-{KAFKA_VERSION}")));
        assert_eq!(dir(Some("/caches"), Some("/me")), below("/caches"));
        assert_eq!(dir(Some(""), Some("/me")), below("/me/.cache"));
        assert!(dir(None, None).is_err_and(|error| error.contains("XDG_CACHE_HOME")));
    }

    #[test]
    fn a_class_path_tells_the_version_by_jar_or_directory() {
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
