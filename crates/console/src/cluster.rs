//! The cluster as seen by one login: reads for pages and the API, and changes.
//!
//! Expensive reads are cached for some seconds, and all callers share the cache. Reads that cost the cluster
//! work are cached for at least twenty times their read time, but not those that mostly wait for brokers.
//! Thus any number of viewers costs the cluster little. A minute after the last request, the cache is
//! dropped. Topic lists are stored in compact form, not as protocol responses.

pub mod access;
pub mod brokers;
pub mod catalog;
pub mod configs;
pub mod controllers;
pub mod disks;
mod ends;
pub mod fresh;
pub mod group;
pub mod group_members;
pub mod groups;
pub mod groups_by_topic;
pub mod lags;
pub mod message_to_send;
pub mod messages;
mod min_isr;
pub mod moves;
pub mod new_user;
pub mod overview;
pub mod positions;
pub mod purge;
pub mod quorum;
pub mod rates;
mod rights;
pub mod search_result;
#[cfg(test)]
pub mod testing;
pub mod topic;
pub mod topic_defaults;
pub mod topic_groups;
pub mod topics;
pub mod transactions;
pub mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_client::verdict::{Absence, Cause, gap, hidden_topics, partial_view, unknown_directories};
use thalweg_client::{Admin, ClientError, Cluster, ListedOffset, OffsetSpec, TopicMetadata, TopicPartition};
use thalweg_security::acl::Operation;
use tokio::time::Instant;

use brokers::OwnBroker;
use catalog::Catalog;
use controllers::Controllers;
use disks::Disks;
use fresh::CachedReading;
use group_members::GroupMembers;
use groups::GroupCatalog;
use groups_by_topic::GroupsByTopic;
use lags::Lags;
use min_isr::MinIsr;
use rates::Rates;
use topic_groups::TopicGroupReadings;

use crate::problem::Problem;
use crate::reading::Reader;

/// Maximum age of the topic catalog, the disks and the rights.
const CATALOG_AGE: Duration = Duration::from_secs(2);
const DISKS_AGE: Duration = Duration::from_secs(5);
const RIGHTS_AGE: Duration = Duration::from_secs(5);
/// Maximum age of the answers of the controllers, of hidden topics, and of `min.insync.replicas`.
const CONTROLLERS_AGE: Duration = Duration::from_secs(3);
const HIDDEN_AGE: Duration = Duration::from_secs(5);
const MIN_ISR_AGE: Duration = Duration::from_secs(10);
/// Time limit for the answer of a broker about partitions, and for further attempts at a broker that refuses
/// connections. People wait for the page.
const BROKER_WAIT: Duration = Duration::from_secs(3);
const BROKER_RETRY: Duration = Duration::from_secs(1);
/// Time limit for a part of a page that needs the answers of several brokers, one after the other.
const PART_WAIT: Duration = Duration::from_secs(4);
/// Idle time after which all readings are dropped.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Interval of the idle check while readings are cached.
const SWEEP: Duration = Duration::from_secs(15);

/// The cluster as seen by one login.
pub struct View {
    admin: Admin,
    /// For requests that brokers forward. Without an active controller, brokers hold them, and answer later
    /// requests of the same connection no earlier.
    forwarded: Admin,
    reader: Reader,
    own_broker: Option<OwnBroker>,
    catalog: CachedReading<Catalog>,
    disks: CachedReading<Disks>,
    groups: CachedReading<GroupCatalog>,
    rights: CachedReading<i32>,
    describable: CachedReading<BTreeSet<String>>,
    controllers: CachedReading<Controllers>,
    hidden: CachedReading<usize>,
    fenced: CachedReading<BTreeSet<i32>>,
    transactional_ids: CachedReading<bool>,
    min_isr: CachedReading<MinIsr>,
    topic_groups: TopicGroupReadings,
    groups_by_topic: GroupsByTopic,
    group_members: GroupMembers,
    rates: Rates,
    lags: Lags,
    use_: Mutex<ViewUse>,
}

struct ViewUse {
    last: Instant,
    is_swept: bool,
}

impl View {
    /// Creates a view without connecting. `own_broker` is the broker beside which the console runs, if any.
    pub fn new(admin: Admin, reader: Reader, own_broker: Option<OwnBroker>) -> Arc<View> {
        let forwarded = Admin::new(admin.cluster().separate()).with_answer_limit(controllers::ANSWER_WAIT);
        Arc::new(View {
            admin,
            forwarded,
            reader,
            own_broker,
            catalog: CachedReading::default(),
            disks: CachedReading::default(),
            groups: CachedReading::default(),
            rights: CachedReading::default(),
            describable: CachedReading::default(),
            controllers: CachedReading::default(),
            hidden: CachedReading::default(),
            fenced: CachedReading::default(),
            transactional_ids: CachedReading::default(),
            min_isr: CachedReading::default(),
            topic_groups: TopicGroupReadings::default(),
            groups_by_topic: GroupsByTopic::default(),
            group_members: GroupMembers::default(),
            rates: Rates::default(),
            lags: Lags::default(),
            use_: Mutex::new(ViewUse { last: Instant::now(), is_swept: false }),
        })
    }

    /// The admin client.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The admin client for pages: a broker that does not answer soon is left out.
    pub fn prompt_admin(&self) -> Admin {
        self.admin.clone().with_timeout(BROKER_WAIT).with_answer_limit(BROKER_WAIT)
    }

    /// Access to messages.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The broker beside which the console runs, if any.
    pub fn own_broker(&self) -> Option<OwnBroker> {
        self.own_broker
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
        // A silent broker makes a reading slow, and its verdict must not outlive the fault.
        self.disks.get_within(DISKS_AGE, read).await
    }

    /// The answers of the controllers, cached for `CONTROLLERS_AGE`.
    pub async fn controllers(&self) -> Arc<Controllers> {
        let read = || async { Ok::<_, Infallible>(Controllers::read(self.admin(), &self.forwarded).await) };
        let Ok(controllers) = self.controllers.get_within(CONTROLLERS_AGE, read).await;
        controllers
    }

    /// The number of topics that exist and that the login may not describe, cached for `HIDDEN_AGE`. Log
    /// directories name them, for a login that may see those. The number is unknown while a broker does not
    /// report its directories, unless the login may describe topics of any name.
    pub async fn hidden_topics(&self, catalog: &Catalog, disks: &Disks) -> Result<usize, Absence> {
        let names = disks.sizes.keys().filter(|name| catalog.topic(name).is_none());
        let names: Vec<String> = names.cloned().collect();
        let gap = match self.directory_gap(catalog, disks).await {
            Some(gap) if gap.cause == Cause::Denied => return Err(gap),
            gap => gap,
        };
        if names.is_empty() && gap.is_none() {
            return Ok(0);
        }
        let read = || async {
            let asked = hidden_topics(names, gap, |request| self.cluster().first_metadata(request));
            in_time(BROKER_WAIT, asked).await
        };
        self.hidden.get(HIDDEN_AGE, read).await.map(|hidden| *hidden)
    }

    /// The reason why log directories may not name all topics; none if those of all brokers are known.
    async fn directory_gap(&self, catalog: &Catalog, disks: &Disks) -> Option<Absence> {
        if disks.directories.is_empty() && disks.unknown.is_empty() {
            return Some(Absence::silent("no broker answers"));
        }
        let failed = disks.incomplete(catalog).into_iter().filter(|id| !disks.unknown.contains_key(id));
        let fenced = self.fenced().await;
        let others = fenced.iter().flat_map(|fenced| fenced.iter().copied()).chain(failed);
        let gaps = disks.unknown.values().cloned().chain(others.map(unknown_directories));
        gap(gaps.chain(fenced.as_ref().err().cloned()).collect::<Vec<_>>())
    }

    /// The registered brokers that are fenced, cached for `RIGHTS_AGE`.
    async fn fenced(&self) -> Result<Arc<BTreeSet<i32>>, Absence> {
        let read = || in_time(BROKER_RETRY, self.admin.fenced_brokers());
        self.fenced.get_within(RIGHTS_AGE, read).await
    }

    /// The reason why figures over all topics of a group are not known: topics that the login may not
    /// describe exist, or may exist. Brokers leave those out silently.
    pub async fn partial_view(&self) -> Option<String> {
        let read = async {
            let (catalog, disks) = tokio::try_join!(self.catalog(), self.disks())?;
            Ok::<_, ClientError>(self.hidden_topics(&catalog, &disks).await)
        };
        partial_view(&read.await.unwrap_or_else(|error| Err(Absence::of(&error))))
    }

    /// `min.insync.replicas` of these topics, cached for `MIN_ISR_AGE`.
    pub async fn min_isr(&self, topics: BTreeSet<String>) -> Arc<MinIsr> {
        let read = || async { Ok::<_, Infallible>(MinIsr::read(self.admin(), topics.clone()).await) };
        let Ok(known) = self.min_isr.get(MIN_ISR_AGE, read).await;
        if known.covers(&topics) {
            return known;
        }
        self.min_isr.clear().await;
        let Ok(known) = self.min_isr.get(MIN_ISR_AGE, read).await;
        known
    }

    /// The groups of all brokers, cached for `CATALOG_AGE`.
    pub async fn groups(&self) -> Result<Arc<GroupCatalog>, ClientError> {
        // The groups of a broker that was silent are to come back soon.
        self.groups.get_within(CATALOG_AGE, || GroupCatalog::read(self.admin())).await
    }

    /// Readings of the groups of topics.
    pub fn topic_groups(&self) -> &TopicGroupReadings {
        &self.topic_groups
    }

    /// The groups of each topic.
    pub fn groups_by_topic(&self) -> &GroupsByTopic {
        &self.groups_by_topic
    }

    /// The numbers of members of groups.
    pub fn group_members(&self) -> &GroupMembers {
        &self.group_members
    }

    /// Offsets of partitions. A leader that does not answer soon is left out.
    pub async fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
    ) -> BTreeMap<TopicPartition, Result<ListedOffset, ClientError>> {
        self.cluster().list_offsets_within(wanted, false, BROKER_WAIT).await
    }

    /// Reads the metadata of a topic that exists.
    pub async fn topic_metadata(&self, name: &str) -> Result<TopicMetadata, Problem> {
        let metadata = self.cluster().refresh(&[name.to_owned()], false).await?;
        let found = metadata.topics.get(name).filter(|found| found.error.is_none());
        found.cloned().ok_or_else(|| Problem::missing(format!("There is no topic {name}")))
    }

    /// True if the login may do this operation on the cluster.
    pub async fn may(&self, operation: Operation) -> Result<bool, ClientError> {
        let rights = self.rights.get(RIGHTS_AGE, || rights::read(self.cluster())).await?;
        Ok(*rights & (1 << operation.code()) != 0)
    }

    /// The groups of a list that the login may describe, cached for `RIGHTS_AGE`. A login with DESCRIBE on
    /// the cluster lists all groups, but may not describe all of them. A group that is new since the last
    /// reading is missing until the next one.
    pub async fn describable_groups(&self, groups: Vec<String>) -> Arc<BTreeSet<String>> {
        let read = || async {
            let described = self.admin.describe_groups(&groups).await;
            let known = described.into_iter().filter(|(_, outcome)| outcome.is_ok());
            Ok::<_, Infallible>(known.map(|(group, _)| group).collect())
        };
        let Ok(describable) = self.describable.get(RIGHTS_AGE, read).await;
        describable
    }

    /// True if the login may describe transactional ids of any name, cached for `RIGHTS_AGE`; false if that
    /// is not known.
    pub async fn describes_all_transactional_ids(&self) -> bool {
        let admin = self.prompt_admin();
        let read = || async {
            let answer = admin.describes_all_transactional_ids().await;
            answer.map_err(|error| Absence::of(&error))
        };
        let read = || in_time(BROKER_WAIT, read());
        self.transactional_ids.get(RIGHTS_AGE, read).await.is_ok_and(|all| *all)
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
        self.controllers.clear().await;
        self.hidden.clear().await;
        self.fenced.clear().await;
        self.min_isr.clear().await;
        self.topic_groups.clear();
        self.groups_by_topic.note_change();
        self.group_members.clear();
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

/// An answer within a time limit.
async fn in_time<T>(limit: Duration, answer: impl Future<Output = Result<T, Absence>>) -> Result<T, Absence> {
    let late = || Absence::silent(format!("no answer within {} s", limit.as_secs()));
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(late()))
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

/// The wall-clock time of an instant in the past, in milliseconds since 1970.
fn ms_at(at: Instant) -> i64 {
    now_ms() - i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "people compare what they see with their clocks")]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
