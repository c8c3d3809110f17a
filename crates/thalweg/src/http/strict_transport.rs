//! HTTP Strict Transport Security (RFC 6797): a browser that has seen this host over HTTPS does not ask it over HTTP again.
//!
//! A browser applies it to all ports of the host. So only a console that is the site of its name, at HTTPS's own port, may ask for
//! it: on a laptop, `https://localhost:9090` would make every other server of localhost unreachable over HTTP, and on a machine
//! with a console at port 9090 its Grafana. Browsers ignore it for addresses, and where they do not trust the certificate.

use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderValue};
use std::net::IpAddr;

/// A month: that long after the last visit, a host that gives up TLS is out of reach of a browser. Other names of the domain are
/// none of ours.
pub(super) const VALUE: HeaderValue = HeaderValue::from_static("max-age=2592000");
const PORT: &str = ":443";

/// Whether a request is for a name whose site this is.
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
