//! The keys of an identity provider: read at the start, periodically, and when a token names an unknown key.
//!
//! The keys stay unchanged if the provider does not answer. Reads are limited, because any client can name
//! unknown keys.

use crate::https::{self, with_causes};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use thalweg_config::TokenSettings;
use thalweg_security::sasl::oauth::{KeySet, KeySetFault};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Size limit of a JWKS document.
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Timeout of the provider.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Minimum time between two reads for unknown keys.
const READ_AGAIN_MIN: Duration = Duration::from_secs(10);
/// Lower bound of the configured interval of reads.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The keys of one provider, kept up to date until dropped.
#[derive(Debug)]
pub struct TokenKeys {
    url: String,
    keys: Mutex<Arc<KeySet>>,
    /// True after the first read, whether it succeeded or failed.
    tried: AtomicBool,
    /// Time of the last requested read.
    requested_at: Mutex<Option<Instant>>,
    /// Notified to request a read.
    requested: Notify,
    /// Notified after each read, whether it succeeded or failed.
    done: Notify,
}

/// A failure to read keys.
#[derive(Debug, thiserror::Error)]
enum ReadFault {
    #[error("{0}")]
    File(#[from] std::io::Error),
    #[error("the URL is not valid")]
    Url,
    #[error("{0}")]
    Tls(String),
    #[error("{0}")]
    Http(String),
    #[error("it answers with status {0}")]
    Status(u16),
    #[error("it does not answer within {} s", ANSWERED_WITHIN.as_secs())]
    Late,
    #[error(transparent)]
    Form(#[from] KeySetFault),
}

impl TokenKeys {
    /// Starts to read the keys. Must run inside a runtime.
    pub fn watch(settings: &TokenSettings) -> Arc<TokenKeys> {
        let keys = Arc::new(TokenKeys {
            url: settings.keys_url.clone(),
            keys: Mutex::default(),
            tried: AtomicBool::new(false),
            requested_at: Mutex::new(None),
            requested: Notify::new(),
            done: Notify::new(),
        });
        tokio::spawn(keep(Arc::downgrade(&keys), settings.clone()));
        keys
    }

    /// The keys of the last successful read.
    pub fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.keys.lock())
    }

    /// Requests a read and waits for its end. Returns immediately if a read was requested a moment ago.
    pub async fn read_again(&self) -> bool {
        let done = self.done.notified();
        tokio::pin!(done);
        done.as_mut().enable();
        // During the first read, wait for it: a second read would use up the limit, and a new key may need it
        // soon.
        if !self.tried.load(Ordering::Acquire) {
            done.await;
            return true;
        }
        {
            let mut requested_at = self.requested_at.lock();
            if requested_at.is_some_and(|requested_at| requested_at.elapsed() < READ_AGAIN_MIN) {
                return false;
            }
            *requested_at = Some(Instant::now());
        }
        self.requested.notify_one();
        done.await;
        true
    }
}

/// Reads the keys periodically until they are dropped.
async fn keep(keys: Weak<TokenKeys>, settings: TokenSettings) {
    let backoff = settings.retry_backoff.max(PAUSE_MIN);
    let mut pause = backoff;
    loop {
        let Some(held) = keys.upgrade() else { return };
        let read = read(&held.url).await;
        let rest = match read {
            Ok(found) => {
                tracing::debug!(url = held.url, keys = ?found, "Read the keys of the identity provider");
                *held.keys.lock() = Arc::new(found);
                pause = backoff;
                settings.refresh.max(PAUSE_MIN)
            }
            Err(error) => {
                tracing::warn!(url = held.url, %error, "Failed to read the keys of the identity provider (sasl.oauthbearer.jwks.endpoint.url)");
                let rest = pause;
                pause = (pause * 2).min(settings.retry_backoff_max.max(backoff));
                rest
            }
        };
        held.tried.store(true, Ordering::Release);
        held.done.notify_waiters();
        tokio::select! {
            biased;
            () = held.requested.notified() => {}
            () = tokio::time::sleep(rest) => {}
        }
    }
}

async fn read(url: &str) -> Result<KeySet, ReadFault> {
    let document = match url.strip_prefix("file:") {
        Some(path) => read_file(path).await?,
        None => match tokio::time::timeout(ANSWERED_WITHIN, fetch(url)).await {
            Ok(fetched) => fetched?,
            Err(_) => return Err(ReadFault::Late),
        },
    };
    Ok(KeySet::parse(&document)?)
}

/// The file of a `file:` URL: `file:/path` or `file:///path`.
#[expect(clippy::disallowed_types, reason = "a file of the user, beside the data directories")]
async fn read_file(path: &str) -> Result<Bytes, ReadFault> {
    use std::io::Read;
    let path = path.strip_prefix("//").unwrap_or(path).to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut document = Vec::new();
        let bytes_max = u64::try_from(DOCUMENT_BYTES_MAX).expect("a small number");
        std::fs::File::open(path)?.take(bytes_max).read_to_end(&mut document)?;
        Ok::<_, std::io::Error>(Bytes::from(document))
    });
    let read = read.await.map_err(std::io::Error::other)?;
    Ok(read?)
}

async fn fetch(url: &str) -> Result<Bytes, ReadFault> {
    let uri = url.parse().map_err(|_| ReadFault::Url)?;
    let client = https::client::<Empty<Bytes>>().map_err(|error| ReadFault::Tls(error.to_string()))?;
    let answer = client.get(uri).await.map_err(|error| ReadFault::Http(with_causes(&error)))?;
    // Redirects are not followed: only the configured address is trusted.
    if !answer.status().is_success() {
        return Err(ReadFault::Status(answer.status().as_u16()));
    }
    let body = Limited::new(answer.into_body(), DOCUMENT_BYTES_MAX).collect().await;
    Ok(body.map_err(|error| ReadFault::Http(error.to_string()))?.to_bytes())
}
