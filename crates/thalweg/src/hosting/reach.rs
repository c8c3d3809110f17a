//! The limits of hosted streams outside the cluster, by the settings.
//!
//! A stream acts with the rights of this process. If only users of this machine can reach the node, limits
//! would protect nothing: the API gives each of these users all rights anyway. On other nodes the operator
//! allows programs, files and servers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use thalweg_config::{BrokerConfig, SecurityProtocol};
use thalweg_stream::{EXEC, OUTSIDE, Reach};

/// The limits, by the settings of a node.
pub fn of(config: &BrokerConfig) -> Reach {
    let streams = &config.streams;
    let is_open = is_of_this_machine(config);
    let allowed: BTreeSet<String> = match &streams.allowed_modules {
        Some(named) => named.iter().cloned().collect(),
        None if !is_open => BTreeSet::new(),
        None => {
            // The `exec` stage needs an explicit setting on every node.
            let with_exec = streams.refused_modules.is_some();
            let allowed = OUTSIDE.into_iter().filter(|name| *name != EXEC || with_exec);
            allowed.map(str::to_owned).collect()
        }
    };
    let directories = |named: &Option<Vec<String>>| match named {
        Some(named) => Some(named.iter().map(PathBuf::from).collect()),
        None if is_open => None,
        None => Some(Vec::new()),
    };
    let files = directories(&streams.file_directories);
    Reach::of(Some(allowed), files, directories(&streams.properties_directories))
        .without(streams.refused_modules.clone().unwrap_or_default())
}

/// True if the node has no authorizer, and only this machine can reach the node and the definitions of its
/// streams.
fn is_of_this_machine(config: &BrokerConfig) -> bool {
    let listeners = config.listeners.broker.iter().chain(&config.listeners.controller);
    let is_reachable = listeners.chain(&config.http.as_listener()).any(|listener| listener.is_reachable());
    let protocol =
        config.listeners.broker.first().map_or(SecurityProtocol::Plaintext, |listener| listener.protocol);
    // The definitions may be in another cluster, whose wrong settings are reported at the start.
    let has_near_definitions = super::cluster(&config.streams, "localhost:0", protocol)
        .is_ok_and(|cluster| cluster.bootstrap.split(',').all(is_loopback));
    !config.access.has_authorizer && !is_reachable && has_near_definitions
}

fn is_loopback(server: &str) -> bool {
    let Some((host, _)) = server.trim().rsplit_once(':') else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use thalweg_config::ServerProperties;

    fn reach(settings: &[(&str, &str)]) -> Reach {
        let mut properties = ServerProperties::default();
        for (key, value) in settings {
            properties.set(key, value);
        }
        of(&BrokerConfig::new(&properties).expect("valid settings"))
    }

    /// The refused stages; true if a file is refused.
    fn refused(settings: &[(&str, &str)]) -> (Vec<&'static str>, bool) {
        let reach = reach(settings);
        let mut refused: Vec<&str> =
            ["exec", "file", "http"].into_iter().filter(|name| reach.refusal(name).is_some()).collect();
        refused.extend(reach.refusal_of_option("kafka", "bootstrap", "b:1").map(|_| "kafka"));
        (refused, reach.file(Path::new("/etc/passwd")).is_err())
    }

    #[test]
    fn nodes_that_others_reach_give_nothing_away_by_default() {
        let none = (vec!["exec", "file", "http", "kafka"], true);
        let authorizer = ("authorizer.class.name", thalweg_config::STANDARD_AUTHORIZER_CLASS);
        for settings in [
            &[("listeners", "PLAINTEXT://:9092")] as &[_],
            &[("listeners", "PLAINTEXT://localhost:9092,CONTROLLER://:9093")],
            &[("http.listener", "10.0.0.7:9090")],
            &[authorizer],
            &[("streams.bootstrap.servers", "example.org:9092")],
        ] {
            assert_eq!(refused(settings), none, "{settings:?}");
            let named = [settings, &[("streams.allowed.modules", "file,kafka")]].concat();
            assert_eq!(refused(&named), (vec!["exec", "http"], true), "{settings:?}");
            let named = [&named[..], &[("streams.file.directories", "/etc")]].concat();
            assert_eq!(refused(&named), (vec!["exec", "http"], false), "{settings:?}");
            let less = [&named[..], &[("streams.refused.modules", "file")]].concat();
            assert_eq!(refused(&less).0, ["exec", "file", "http"], "{settings:?}");
            let empty = [settings, &[("streams.refused.modules", "")]].concat();
            assert_eq!(refused(&empty), none, "{settings:?}");
        }
    }

    #[test]
    fn on_a_machine_of_ones_own_only_programs_need_a_name() {
        assert_eq!(refused(&[]), (vec!["exec"], false));
        assert_eq!(refused(&[("streams.bootstrap.servers", "127.0.0.1:1,[::1]:2")]), (vec!["exec"], false));
        assert_eq!(refused(&[("streams.refused.modules", "")]), (vec![], false));
        assert_eq!(refused(&[("streams.refused.modules", "http")]), (vec!["http"], false));
        let named = ("streams.allowed.modules", "exec");
        assert_eq!(refused(&[named]), (vec!["file", "http", "kafka"], false));
        assert_eq!(
            refused(&[named, ("streams.file.directories", "")]),
            (vec!["file", "http", "kafka"], true)
        );
    }
}
