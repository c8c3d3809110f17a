//! The TLS of this node's listeners: read at the start, and again when a file or a setting changes.
//!
//! A change applies to new connections. Unusable settings are refused, unusable files are logged, and the
//! listener keeps its previous TLS. Files are checked every few seconds by modification time and length.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use thalweg_config::table::broker_key;
use thalweg_config::{BrokerConfig, Listener, TlsKeys, Value};
use thalweg_net::{CertificateObserver, HandshakeTurns, TlsListener};
use thalweg_security::InvalidSetting;
use thalweg_security::tls::{IncompatibleCertificate, ServerTls};
use thalweg_watch as watch;

/// Interval of the check of files.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// `ssl.` settings by Kafka's names.
type Settings = BTreeMap<&'static str, String>;

/// The TLS settings of a listener cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("Listener {listener}: {reason}")]
pub struct TlsRefused {
    /// The listener's name.
    pub listener: String,
    pub reason: TlsRefusal,
}

/// The reason why TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsRefusal {
    /// A setting or its file is invalid.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The new certificate would change the name of a running listener.
    #[error(transparent)]
    Incompatible(#[from] IncompatibleCertificate),
}

/// The listeners that have TLS.
#[derive(Debug, Default)]
pub struct SecuredListeners(Vec<SecuredListener>);

#[derive(Debug)]
struct SecuredListener {
    listener: Listener,
    tls: Arc<TlsListener>,
    read: Mutex<AsRead>,
}

/// The settings and files of the last read.
#[derive(Debug)]
struct AsRead {
    settings: Settings,
    stamps: Vec<Stamp>,
}

/// Modification time and length of a file; `None` if the file is not accessible.
type Stamp = Option<(SystemTime, u64)>;

impl SecuredListeners {
    /// Reads the settings of the listeners with TLS.
    pub fn open<'a>(
        config: &BrokerConfig,
        listeners: impl IntoIterator<Item = &'a Listener>,
    ) -> Result<SecuredListeners, TlsRefused> {
        let mut secured = Vec::new();
        for listener in listeners {
            let Some(settings) = config.tls_of(listener) else { continue };
            let tls = take(&settings).map_err(|error| refused(listener, error.into()))?;
            let read = Mutex::new(AsRead { stamps: stamps(&tls), settings });
            let tls = TlsListener::new(tls, HandshakeTurns::default());
            secured.push(SecuredListener { listener: listener.clone(), tls, read });
        }
        Ok(SecuredListeners(secured))
    }

    /// Reports clients with refused certificates to an observer.
    pub fn observe(&self, observer: &Arc<dyn CertificateObserver>) {
        for secured in &self.0 {
            secured.tls.observe(Arc::clone(observer));
        }
    }

    /// The TLS of a listener; `None` without TLS.
    pub fn of(&self, name: &str) -> Option<Arc<TlsListener>> {
        let secured = self.0.iter().find(|secured| secured.listener.name == name);
        secured.map(|secured| Arc::clone(&secured.tls))
    }

    /// For each listener with TLS: name, expiry of the first certificate to expire in seconds since 1970, and
    /// number of failed handshakes.
    pub fn figures(&self) -> impl Iterator<Item = (&str, Option<i64>, u64)> {
        self.0.iter().map(|secured| {
            let (tls, name) = (&secured.tls, secured.listener.name.as_str());
            (name, tls.current().expires_s(), tls.failures())
        })
    }

    /// For each listener with TLS: name, and the settings for new connections.
    pub fn current(&self) -> impl Iterator<Item = (&str, Arc<ServerTls>)> {
        self.0.iter().map(|secured| (secured.listener.name.as_str(), secured.tls.current()))
    }

    /// Checks the TLS settings of another configuration.
    pub fn check(&self, config: &BrokerConfig) -> Result<(), TlsRefused> {
        let mut changes = self.0.iter().filter_map(|secured| secured.change(config));
        changes.try_for_each(|(_, changed)| changed.map(|_| ()))
    }

    /// Applies another configuration, except for unusable settings.
    pub fn apply(&self, config: &BrokerConfig) {
        for secured in &self.0 {
            let Some((settings, changed)) = secured.change(config) else { continue };
            match changed {
                Ok(tls) => secured.replace(tls, settings),
                Err(error) => tracing::error!(%error, "Kept the TLS settings of a listener"),
            }
        }
    }

    /// Reads changed files again.
    fn look(&self) {
        for secured in &self.0 {
            let settings = {
                let mut read = secured.read.lock();
                let now = stamps(&secured.tls.current());
                if now == read.stamps {
                    continue;
                }
                read.stamps = now;
                read.settings.clone()
            };
            match secured.compatible(&settings) {
                Ok(tls) => secured.replace(tls, settings),
                Err(error) => tracing::error!(%error, "Kept the certificates of a listener"),
            }
        }
    }

    /// Watches the files until the node stops.
    pub async fn watch(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        if self.0.is_empty() {
            return;
        }
        while !*stopping.borrow_and_update() {
            tokio::select! {
                biased;
                changed = stopping.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_AGAIN) => self.look(),
            }
        }
    }
}

impl SecuredListener {
    /// The listener's settings in another configuration, if they differ, with the resulting TLS.
    fn change(&self, config: &BrokerConfig) -> Option<(Settings, Result<ServerTls, TlsRefused>)> {
        let settings = config.tls_of(&self.listener).unwrap_or_default();
        if settings == self.read.lock().settings {
            return None;
        }
        let tls = self.compatible(&settings);
        Some((settings, tls))
    }

    fn compatible(&self, settings: &Settings) -> Result<ServerTls, TlsRefused> {
        let is_true = |name: &str| {
            let value = broker_key(name).zip(settings.get(name)).map(|(key, text)| Value::parse(key, text));
            value == Some(Ok(Value::Boolean(true)))
        };
        let (dn, san) =
            (is_true(TlsKeys::allow_dn_changes.name()), is_true(TlsKeys::allow_san_changes.name()));
        let checked = take(settings).map_err(TlsRefusal::from).and_then(|tls| {
            tls.check_compatible(&self.tls.current(), dn, san)?;
            Ok(tls)
        });
        checked.map_err(|reason| refused(&self.listener, reason))
    }

    fn replace(&self, tls: ServerTls, settings: Settings) {
        *self.read.lock() = AsRead { stamps: stamps(&tls), settings };
        self.tls.replace(tls);
        tracing::info!(listener = self.listener.name, "Reloaded the certificates of a listener");
    }
}

fn take(settings: &Settings) -> Result<ServerTls, InvalidSetting> {
    let mut settings = settings.clone();
    ServerTls::take(&mut |key| settings.remove(key))
}

fn refused(listener: &Listener, reason: TlsRefusal) -> TlsRefused {
    TlsRefused { listener: listener.name.clone(), reason }
}

fn stamps(tls: &ServerTls) -> Vec<Stamp> {
    let stamp = |path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    tls.files().map(stamp).collect()
}
