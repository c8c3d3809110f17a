//! The parts of a bundle that come from a cluster and from this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use thalweg_client::{Cluster, RefusedRequest};
use thalweg_lab::{doctor, machine};
use thalweg_wire::request::DescribeConfigsRequest;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::describe_configs_response::DescribeConfigsResourceResult;

use crate::connect::{Connect, SourcedSettings};
use crate::{cluster, profile};

/// Kafka's number of the resource type "broker".
const BROKER_RESOURCE: i8 = 4;
/// Kafka's names of the sources of a setting, by their numbers.
const SOURCES: [&str; 9] = [
    "unknown",
    "dynamic topic config",
    "dynamic broker config",
    "dynamic default broker config",
    "static broker config",
    "default",
    "dynamic broker logger config",
    "client metrics config",
    "group config",
];
/// Kernel files with memory, load and pressure of the machine.
const KERNEL_FILES: [&str; 8] = [
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/self/limits",
    "/proc/mounts",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
];

/// The version of this program, and the environment variables that it reads.
pub(crate) fn about(time: &str) -> Value {
    let ours =
        |name: &str| name.starts_with("THALWEG_") || ["RUST_LOG", "NO_COLOR", "LANG", "TERM"].contains(&name);
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| ours(name))?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("THALWEG_COMMIT"),
        "built_with_debug_assertions": cfg!(debug_assertions),
        "time": time,
        "environment": environment.collect::<BTreeMap<_, _>>(),
    })
}

/// The client settings, each with its source; and the profile.
pub(crate) fn client(sourced: &SourcedSettings) -> Value {
    let settings = sourced.iter().map(|(key, (value, source))| {
        // The key is the setting's own name, so that a secret is recognised by its name.
        json!({ key: value, "source": source.to_string() })
    });
    json!({
        "settings": settings.collect::<Vec<_>>(),
        "profile": profile::document(profile::active()),
    })
}

/// The state of the cluster, as `cluster status` shows it.
pub(crate) async fn state(connect: &Connect, within: Duration) -> anyhow::Result<Value> {
    let (bootstrap, options) = connect.addresses()?;
    cluster::state(&bootstrap, &options, within).await
}

/// All settings of all brokers, with their sources; and the topics with their replicas.
pub(crate) async fn brokers(connect: &Connect) -> anyhow::Result<(Value, Value)> {
    let cluster = connect.cluster().await?;
    let metadata = cluster.refresh_all().await?;
    let mut brokers = serde_json::Map::new();
    for &id in metadata.brokers.keys() {
        let settings = settings(&cluster, id).await;
        let document = settings.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        brokers.insert(id.to_string(), document);
    }
    let topics = metadata.topics.values().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            json!({
                "partition": partition.index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch.0,
                "replicas": partition.replicas,
                "isr": partition.isr,
            })
        });
        json!({
            "topic": &*topic.name,
            "topic_id": topic.id.to_string(),
            "partitions": partitions.collect::<Vec<_>>(),
        })
    });
    Ok((Value::Object(brokers), topics.collect()))
}

async fn settings(cluster: &Cluster, id: i32) -> anyhow::Result<Value> {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: BROKER_RESOURCE,
            resource_name: id.to_string(),
            configuration_keys: None,
        }],
        include_synonyms: true,
        ..DescribeConfigsRequest::default()
    };
    let response = cluster.broker(id).await?.send(&request).await?;
    let mut settings = Vec::new();
    for result in response.results {
        let what = || format!("Settings of broker {id}");
        RefusedRequest::check(result.error_code, result.error_message.as_deref(), what)?;
        settings.extend(result.configs.iter().map(setting));
    }
    Ok(Value::Array(settings))
}

fn setting(config: &DescribeConfigsResourceResult) -> Value {
    let name = |source: i8| usize::try_from(source).ok().and_then(|at| SOURCES.get(at)).copied();
    let synonyms = config
        .synonyms
        .iter()
        .map(|other| json!({ &other.name: &other.value, "source": name(other.source) }));
    json!({
        &config.name: &config.value,
        "source": name(config.config_source),
        "read_only": config.read_only,
        "sensitive": config.is_sensitive,
        "synonyms": synonyms.collect::<Vec<_>>(),
    })
}

/// The machine, its limits and its load, and the findings of `lab doctor` without disk writes.
pub(crate) async fn this_machine(dirs: &[PathBuf]) -> Value {
    let place = dirs.first().map_or(Path::new("."), PathBuf::as_path);
    let files = KERNEL_FILES.iter().map(|path| (*path, std::fs::read_to_string(path).ok()));
    let disks = dirs.iter().map(|dir| (dir.display().to_string(), space(dir)));
    json!({
        "machine": machine::fingerprint(place),
        "advice": doctor::examine_host().await,
        "disks": disks.collect::<BTreeMap<_, _>>(),
        "kernel": files.collect::<BTreeMap<_, _>>(),
    })
}

fn space(dir: &Path) -> Value {
    match rustix::fs::statvfs(dir) {
        Ok(found) => json!({
            "bytes": found.f_blocks * found.f_frsize,
            "free_bytes": found.f_bavail * found.f_frsize,
            "inodes": found.f_files,
            "free_inodes": found.f_favail,
        }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// The last bytes of a file, from the beginning of a line.
#[expect(clippy::disallowed_types, reason = "a log for people, which no broker reads")]
pub(crate) fn tail(path: &Path, bytes_max: u64) -> anyhow::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let read = || {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        let start = length.saturating_sub(bytes_max);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        std::io::Result::Ok((start > 0, bytes))
    };
    let (is_cut, bytes) = read().with_context(|| format!("Cannot read {}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    // Drop the first, partial line: it may hold part of a secret without the name that marks it.
    Ok(match (is_cut, text.split_once('\n')) {
        (true, Some((_, rest))) => rest.to_owned(),
        (true, None) => String::new(),
        (false, _) => text.into_owned(),
    })
}
