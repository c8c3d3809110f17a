//! HTTP Strict Transport Security (RFC 6797): a browser that has seen this host over HTTPS sends it no more
//! requests over HTTP.
//!
//! A browser applies this policy to all ports of the host. So only a console at HTTPS's own port, under a
//! real name, may send the header: on a laptop, `https://localhost:9090` would make every other server of
//! localhost unreachable over HTTP, and a console at port 9090 would do the same to a Grafana on its machine.
//! Browsers ignore the header for IP addresses and with untrusted certificates.

use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderValue};
use std::net::IpAddr;

/// A month: if a host gives up TLS, a browser cannot reach it for that long after the last visit. Subdomains
/// are not included, because they may belong to other services.
pub(super) const VALUE: HeaderValue = HeaderValue::from_static("max-age=2592000");
const PORT: &str = ":443";

/// True if the request names a host other than this machine, at HTTPS's own port.
pub(super) fn is_site(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.strip_suffix(PORT).unwrap_or(host).trim_end_matches('.').to_ascii_lowercase();
    let is_of_this_machine = name == "localhost" || name.ends_with(".localhost");
    !name.is_empty() && !name.contains(':') && name.parse::<IpAddr>().is_err() && !is_of_this_machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_site_of_a_name_is_strict() {
        let is_strict = |host: &str| {
            let host = HeaderValue::from_str(host).expect("a header");
            is_site(&HeaderMap::from_iter([(HOST, host)]))
        };
        for site in ["console.example.org", "box", "Console.Example.org:443"] {
            assert!(is_strict(site), "{site}");
        }
        for other in [
            "localhost",
            "LOCALHOST:443",
            "localhost.",
            "app.localhost",
            "127.0.0.1",
            "[::1]",
            "[::1]:443",
            "console.example.org:9090",
            "localhost:9090",
            "",
        ] {
            assert!(!is_strict(other), "{other}");
        }
        assert!(!is_site(&HeaderMap::new()));
    }
}
