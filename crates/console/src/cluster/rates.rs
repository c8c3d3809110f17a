//! Growth rates of topics, from the end offsets of all partitions, polled while the console is in use.
//!
//! Measurements are at least two seconds apart and take at most 1/100 of the time, regardless of the size of
//! the cluster.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use thalweg_client::ClientError;
use thalweg_wire::request::ListOffsetsRequest;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::catalog::Catalog;
use super::disks::Disks;
use super::{View, ask_each, now_ms};

/// The shortest time between two measurements.
const INTERVAL: Duration = Duration::from_secs(2);
/// Measurements take at most one part in this many of the time.
const SHARE: u32 = 100;
/// Measurements kept for the chart.
const HISTORY_MAX: usize = 120;
/// Partitions per request.
const PARTITIONS_MAX: usize = 4000;
/// Maximum age of the previous measurement.
const STALE: Duration = Duration::from_secs(60);

/// Measurements of one view.
#[derive(Default)]
pub struct Rates(Mutex<State>);

#[derive(Default)]
struct State {
    is_measuring: bool,
    last: Option<Ends>,
    measured: Arc<MeasuredRates>,
    due: Option<Instant>,
}

/// The end offsets of all partitions at one time.
struct Ends {
    at: Instant,
    /// By topic: the sum of end offsets, and the number of partitions that answered.
    topics: HashMap<Arc<str>, (i64, usize)>,
    disks: Arc<Disks>,
}

/// Results of the last measurements.
#[derive(Default)]
pub struct MeasuredRates {
    /// Records per second, for topics with a rate above zero.
    pub topics: HashMap<Arc<str>, f64>,
    /// Rates of the whole cluster, oldest first.
    pub history: VecDeque<Point>,
}

/// Rates of the whole cluster at one time.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Point {
    /// Time of the measurement in milliseconds since 1970.
    pub at_ms: i64,
    /// Records produced per second.
    pub records_per_second: f64,
    /// Growth of all logs in bytes per second, over all replicas.
    pub bytes_per_second: f64,
}

impl Rates {
    /// Results of the last measurements.
    pub fn measured(&self) -> Arc<MeasuredRates> {
        Arc::clone(&self.0.lock().measured)
    }

    /// Starts a measurement if one is due and none is running.
    pub fn measure_if_due(&self, view: &Arc<View>) {
        let mut state = self.0.lock();
        if state.is_measuring || state.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        state.is_measuring = true;
        tokio::spawn(measure(Arc::clone(view)));
    }

    /// Drops all measurements.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        state.last = None;
        state.measured = Arc::default();
    }

    fn end(&self, begun: Instant, ends: Result<Ends, ClientError>) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.is_measuring = false;
        state.due = Some(now + INTERVAL.max((now - begun) * SHARE).saturating_sub(now - begun));
        let Ok(ends) = ends else { return };
        if let Some(last) = state.last.take().filter(|last| ends.at - last.at < STALE) {
            let measured = MeasuredRates::between(&last, &ends, &state.measured.history);
            state.measured = Arc::new(measured);
        }
        state.last = Some(ends);
    }
}

impl MeasuredRates {
    fn between(last: &Ends, ends: &Ends, history: &VecDeque<Point>) -> MeasuredRates {
        let seconds = (ends.at - last.at).as_secs_f64().max(0.001);
        let mut topics = HashMap::new();
        let mut records = 0.0;
        for (name, (end, answered)) in &ends.topics {
            let Some((before, answered_before)) = last.topics.get(name) else { continue };
            // A topic that was recreated restarts at zero, and a leader may have answered only one of the two
            // polls.
            if answered == answered_before && end > before {
                let rate = (end - before) as f64 / seconds;
                records += rate;
                topics.insert(Arc::clone(name), rate);
            }
        }
        let (now, before) = (&ends.disks.sizes, &last.disks.sizes);
        let grown = now
            .iter()
            .filter_map(|(name, bytes)| bytes.checked_sub(*before.get(name)?).map(|grown| grown as f64));
        let bytes: f64 = grown.sum();
        let mut history = history.clone();
        if history.len() >= HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(Point {
            at_ms: now_ms(),
            records_per_second: records,
            bytes_per_second: bytes / seconds,
        });
        MeasuredRates { topics, history }
    }
}

async fn measure(view: Arc<View>) {
    let begun = Instant::now();
    let ends = read(&view).await;
    if let Err(error) = &ends {
        tracing::debug!(%error, "Failed to measure rates");
    }
    view.rates.end(begun, ends);
}

async fn read(view: &Arc<View>) -> Result<Ends, ClientError> {
    let catalog = view.catalog().await?;
    let disks = view.disks().await?;
    let at = Instant::now();
    let mut topics: HashMap<Arc<str>, (i64, usize)> = HashMap::new();
    for (_, answer) in ask_each(view.cluster(), requests(&catalog)).await {
        for topic in answer?.topics {
            let Some(line) = catalog.topic(&topic.name) else { continue };
            let sum = topics.entry(Arc::clone(&line.name)).or_default();
            for partition in topic.partitions.iter().filter(|partition| partition.error_code == 0) {
                sum.0 += partition.offset;
                sum.1 += 1;
            }
        }
    }
    Ok(Ends { at, topics, disks })
}

/// Requests for the ends of all partitions, by leader.
fn requests(catalog: &Catalog) -> Vec<(i32, ListOffsetsRequest)> {
    let mut open: BTreeMap<i32, (usize, Vec<ListOffsetsTopic>)> = BTreeMap::new();
    let mut requests = Vec::new();
    let request = |topics| ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    for topic in &catalog.topics {
        for (index, leader) in (0..).zip(&topic.leaders) {
            if !catalog.brokers.contains_key(leader) {
                continue;
            }
            let (count, topics) = open.entry(*leader).or_default();
            if *count >= PARTITIONS_MAX {
                requests.push((*leader, request(std::mem::take(topics))));
                *count = 0;
            }
            *count += 1;
            let latest = ListOffsetsPartition {
                partition_index: index,
                timestamp: -1,
                ..ListOffsetsPartition::default()
            };
            match topics.last_mut().filter(|last| last.name == *topic.name) {
                Some(last) => last.partitions.push(latest),
                None => {
                    topics.push(ListOffsetsTopic { name: topic.name.to_string(), partitions: vec![latest] })
                }
            }
        }
    }
    requests.extend(open.into_iter().map(|(leader, (_, topics))| (leader, request(topics))));
    requests
}
