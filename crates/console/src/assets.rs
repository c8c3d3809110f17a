//! The stylesheet, script and icon, embedded in the binary.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// A hash of the assets. A new version gets a new address, so that browsers may cache an asset indefinitely.
const VERSION: u64 = version(&[STYLE, SCRIPT, ICON]);

const fn version(texts: &[&str]) -> u64 {
    // FNV-1a: a name, without cryptographic strength.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < texts.len() {
        let bytes = texts[at].as_bytes();
        let mut byte = 0;
        while byte < bytes.len() {
            hash = (hash ^ bytes[byte] as u64).wrapping_mul(0x0100_0000_01b3);
            byte += 1;
        }
        at += 1;
    }
    hash
}

/// The path of an asset, with the version of all assets as query.
pub fn path(name: &str) -> String {
    format!("/assets/{name}?v={VERSION:x}")
}

/// Serves an asset, cacheable for a year.
pub async fn serve(Path(name): Path<String>) -> Response {
    let (kind, text) = match name.as_str() {
        "console.css" => ("text/css; charset=utf-8", STYLE),
        "console.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")], text).into_response()
}
