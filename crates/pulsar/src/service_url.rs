//! Service URLs, `pulsar://HOST:PORT`, of brokers and of a whole cluster.

use std::fmt;
use std::sync::Arc;

const SCHEME: &str = "pulsar://";
const TLS_SCHEME: &str = "pulsar+ssl://";
/// Pulsar's `brokerServicePort`.
const PORT: u16 = 6650;

/// The address of a broker, `host:port`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BrokerAddress(Arc<str>);

impl BrokerAddress {
    /// The address as `host:port`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text is not a service URL that this client can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidServiceUrl {
    /// The URL is that of a TLS listener. This client has no TLS.
    #[error("{0:?} asks for TLS, which this client lacks: expected pulsar://HOST:PORT")]
    Tls(String),
    /// The text is no URL of Pulsar's binary protocol.
    #[error("{0:?} is not a service URL: expected pulsar://HOST:PORT, for example pulsar://localhost:6650")]
    Syntax(String),
}

/// The addresses in a service URL. Several brokers are separated by commas, and only the first one has the
/// scheme; a missing port is 6650. There is at least one address.
pub(crate) fn addresses(url: &str) -> Result<Vec<BrokerAddress>, InvalidServiceUrl> {
    if url.starts_with(TLS_SCHEME) {
        return Err(InvalidServiceUrl::Tls(url.to_owned()));
    }
    let syntax = || InvalidServiceUrl::Syntax(url.to_owned());
    let hosts = url.strip_prefix(SCHEME).ok_or_else(syntax)?;
    hosts.trim_end_matches('/').split(',').map(|host| address(host.trim()).ok_or_else(syntax)).collect()
}

/// The first address in a service URL: a broker has one.
pub(crate) fn address_of(url: &str) -> Result<BrokerAddress, InvalidServiceUrl> {
    let mut addresses = addresses(url)?;
    Ok(addresses.swap_remove(0))
}

fn address(text: &str) -> Option<BrokerAddress> {
    // An IPv6 address is in brackets, which may be followed by a port.
    let port_at = match text.rfind(']') {
        Some(end) => text[end..].find(':').map(|colon| end + colon),
        None => text.rfind(':'),
    };
    let (host, port) = match port_at {
        Some(colon) => (&text[..colon], text[colon + 1..].parse::<u16>().ok()?),
        None => (text, PORT),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_')),
    };
    is_host.then(|| BrokerAddress(format!("{host}:{port}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(url: &str) -> Vec<String> {
        addresses(url).expect("a service URL").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_service_url_lists_brokers() {
        assert_eq!(texts("pulsar://localhost:6651"), ["localhost:6651"]);
        assert_eq!(texts("pulsar://a:1,b-2.c:2, d/"), ["a:1", "b-2.c:2", "d:6650"]);
        assert_eq!(texts("pulsar://[::1]:7"), ["[::1]:7"]);
        assert_eq!(texts("pulsar://[::1]"), ["[::1]:6650"]);
        assert_eq!(address_of("pulsar://a:1,b:2").expect("one").as_str(), "a:1");
    }

    #[test]
    fn other_texts_are_refused_with_an_example() {
        for wrong in [
            "",
            "localhost:6650",
            "http://a:8080",
            "pulsar://",
            "pulsar://a:x",
            "pulsar://a b",
            "pulsar://a:1,,b:2",
            "pulsar://[a]:1",
        ] {
            let error = addresses(wrong).expect_err(wrong);
            assert_eq!(error, InvalidServiceUrl::Syntax(wrong.to_owned()));
            assert!(error.to_string().contains("pulsar://localhost:6650"), "{error}");
        }
        let tls = addresses("pulsar+ssl://a:6651").expect_err("no TLS");
        assert!(tls.to_string().contains("asks for TLS"), "{tls}");
    }
}
