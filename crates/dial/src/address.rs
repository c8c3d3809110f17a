//! Addresses of brokers, `host:port`.

use std::fmt;
use std::net::Ipv6Addr;

use crate::error::{BootstrapError, InvalidAddress, NoBootstrapServer};

/// Security protocols that may precede an address, as in listeners.
const PROTOCOLS: [&str; 4] = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"];

/// The bootstrap brokers in a comma-separated list. An address may be copied from a listener, as in
/// `PLAINTEXT://localhost:9092`: Kafka's clients, too, take the protocol from `security.protocol` alone.
pub fn bootstrap_servers(list: &str) -> Result<Vec<String>, BootstrapError> {
    let mut servers = Vec::new();
    for server in list.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        let address = without_protocol(server);
        check_address(address).map_err(|_| InvalidAddress { address: server.to_owned() })?;
        servers.push(address.to_owned());
    }
    if servers.is_empty() { Err(NoBootstrapServer.into()) } else { Ok(servers) }
}

fn without_protocol(server: &str) -> &str {
    match server.split_once("://") {
        Some((name, address)) if PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(name)) => address,
        _ => server,
    }
}

/// Checks that `address` is a host, a colon and a port. The host is a name or an IP address; an IPv6 address
/// may be in brackets.
pub(crate) fn check_address(address: &str) -> Result<(), InvalidAddress> {
    let parts = address.rsplit_once(':').filter(|(host, port)| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match inner {
            Some(inner) => is_ipv6(inner),
            None => is_name(host) || is_ipv6(host),
        };
        is_host && port.parse::<u16>().is_ok()
    });
    parts.map(drop).ok_or_else(|| InvalidAddress { address: address.to_owned() })
}

fn is_name(host: &str) -> bool {
    !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

/// True for an IPv6 address, with or without a zone.
fn is_ipv6(host: &str) -> bool {
    let (address, _) = host.split_once('%').unwrap_or((host, ""));
    address.parse::<Ipv6Addr>().is_ok()
}

/// `host:port`, with brackets around an IPv6 address.
pub fn host_and_port(host: &str, port: impl fmt::Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_is_refused() {
        let wrong = [
            "",
            "localhost",
            "localhost:",
            ":9092",
            "localhost:99999",
            "localhost:x",
            "localhost:9092:x",
            "localhost:9092:9092",
            "http://localhost:9092",
            "local host:9092",
            "[localhost]:9092",
            "[::1:9092",
        ];
        for address in wrong {
            assert!(check_address(address).is_err(), "{address}");
        }
        for address in
            ["localhost:9092", "[::1]:9092", "::1:9092", "[fe80::1%eth0]:9092", "10.0.0.1:1", "a_b-c.d:1"]
        {
            assert!(check_address(address).is_ok(), "{address}");
        }
    }

    #[test]
    fn a_list_of_brokers_has_one_at_least_and_none_that_is_wrong() {
        assert_eq!(bootstrap_servers(" a:1, b:2,").expect("two"), ["a:1", "b:2"]);
        let listeners = "PLAINTEXT://localhost:9092,sasl_ssl://[::1]:9093";
        assert_eq!(bootstrap_servers(listeners).expect("two"), ["localhost:9092", "[::1]:9093"]);
        for wrong in ["http://localhost:9092", "PLAINTEXT://", "PLAINTEXT://SSL://a:1"] {
            let error = bootstrap_servers(wrong).expect_err(wrong).to_string();
            assert!(error.starts_with(&format!("{wrong:?} is not a broker address")), "{error}");
        }
        assert!(matches!(bootstrap_servers(" ,"), Err(BootstrapError::NoBootstrapServer(_))));
        let wrong = bootstrap_servers("a:1,b").expect_err("no port");
        assert!(
            wrong.to_string().starts_with("\"b\" is not a broker address: expected HOST:PORT"),
            "{wrong}"
        );
    }
}
