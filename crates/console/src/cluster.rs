//! The cluster as seen by one login: reads for pages and the API, and changes.
//!
//! Expensive reads are cached for some seconds, and for at least twenty times their read time, and all
//! callers share the cache. Thus any number of viewers costs the cluster little. A minute after the last
//! request, the cache is dropped. Topic lists are stored in compact form, not as protocol responses.

pub mod access;
pub mod catalog;
pub mod configs;
pub mod disks;
pub mod fresh;
pub mod group;
pub mod groups;
pub mod lags;
pub mod messages;
pub mod moves;
pub mod overview;
pub mod quorum;
pub mod rates;
mod rights;
pub mod topic;
pub mod topics;
pub mod transactions;
pub mod users;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_client::{Admin, ClientError, Cluster};
use thalweg_wire::Request;
use tokio::task::JoinSet;
use tokio::time::Instant;

use catalog::Catalog;
use disks::Disks;
use fresh::CachedReading;
use groups::GroupCatalog;
use lags::Lags;
use rates::Rates;

use crate::reading::Reader;

/// Maximum age of the topic catalog, the disks and the rights.
const CATALOG_AGE: Duration = Duration::from_secs(2);
const DISKS_AGE: Duration = Duration::from_secs(5);
const RIGHTS_AGE: Duration = Duration::from_secs(5);
/// Idle time after which all readings are dropped.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Interval of the idle check while readings are cached.
const SWEEP: Duration = Duration::from_secs(15);

/// The cluster as seen by one login.
pub struct View {
    admin: Admin,
    reader: Reader,
    catalog: CachedReading<Catalog>,
    disks: CachedReading<Disks>,
    groups: CachedReading<GroupCatalog>,
    rights: CachedReading<i32>,
    rates: Rates,
    lags: Lags,
    use_: Mutex<ViewUse>,
}

struct ViewUse {
    last: Instant,
    is_swept: bool,
}

impl View {
    /// Creates a view without connecting.
    pub fn new(admin: Admin, reader: Reader) -> Arc<View> {
        Arc::new(View {
            admin,
            reader,
            catalog: CachedReading::default(),
            disks: CachedReading::default(),
            groups: CachedReading::default(),
            rights: CachedReading::default(),
            rates: Rates::default(),
            lags: Lags::default(),
            use_: Mutex::new(ViewUse { last: Instant::now(), is_swept: false }),
        })
    }

    /// The admin client.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// Access to messages.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The cluster client.
    pub fn cluster(&self) -> &Cluster {
        self.admin.cluster()
    }

    /// The topics and brokers, cached for `CATALOG_AGE`.
    pub async fn catalog(&self) -> Result<Arc<Catalog>, ClientError> {
        self.catalog.get(CATALOG_AGE, || Catalog::read(self.cluster())).await
    }

    /// The log directories of all brokers, cached for `DISKS_AGE`.
    pub async fn disks(&self) -> Result<Arc<Disks>, ClientError> {
        let read = || async {
            let catalog = self.catalog().await?;
            let brokers: Vec<i32> = catalog.brokers.keys().copied().collect();
            Disks::read(self.admin(), &brokers).await
        };
        self.disks.get(DISKS_AGE, read).await
    }

    /// The groups of all brokers, cached for `CATALOG_AGE`.
    pub async fn groups(&self) -> Result<Arc<GroupCatalog>, ClientError> {
        self.groups.get(CATALOG_AGE, || GroupCatalog::read(self.cluster())).await
    }

    /// Permitted operations on the cluster: one bit per operation code.
    pub async fn rights_on_cluster(&self) -> Result<Arc<i32>, ClientError> {
        self.rights.get(RIGHTS_AGE, || rights::read(self.cluster())).await
    }

    /// The latest measurements. Starts a new measurement in the background if one is due.
    pub fn rates(self: &Arc<View>) -> Arc<rates::MeasuredRates> {
        self.rates.measure_if_due(self);
        self.rates.measured()
    }

    /// Lag histories of groups.
    pub fn lags(&self) -> &Lags {
        &self.lags
    }

    /// Drops the readings that a change has outdated.
    pub async fn forget(&self) {
        self.catalog.clear().await;
        self.disks.clear().await;
        self.groups.clear().await;
    }

    /// Records a request, and starts the idle check if needed.
    pub fn touch(self: &Arc<View>) {
        let mut used = self.use_.lock();
        used.last = Instant::now();
        if !std::mem::replace(&mut used.is_swept, true) {
            tokio::spawn(sweep(Arc::clone(self)));
        }
    }
}

async fn sweep(view: Arc<View>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let is_idle = {
            let mut used = view.use_.lock();
            let is_idle = used.last.elapsed() >= IDLE_MAX;
            used.is_swept = !is_idle;
            is_idle
        };
        if is_idle {
            view.forget().await;
            view.rates.clear();
            view.lags.clear();
            return;
        }
    }
}

/// Sends one request to each broker concurrently. The answers are in the order of broker ids.
pub async fn ask_each<R>(
    cluster: &Cluster,
    requests: impl IntoIterator<Item = (i32, R)>,
) -> Vec<(i32, Result<R::Response, ClientError>)>
where
    R: Request + Send + Sync + 'static,
    R::Response: Send,
{
    let mut asked = JoinSet::new();
    for (id, request) in requests {
        let cluster = cluster.clone();
        asked.spawn(async move {
            let answer = match cluster.broker(id).await {
                Ok(connection) => connection.send(&request).await,
                Err(error) => Err(error),
            };
            (id, answer)
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(id, _)| *id);
    answers
}

/// Milliseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "people compare what they see with their clocks")]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
