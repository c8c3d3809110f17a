//! The newest messages that pass stages of streams, collected while a page watches the stage.
//!
//! A stream does not wait for its watchers. The number of watched stages is bounded. A stage is watched until
//! [`IDLE_MAX`] after the last request, and counts against the limit of the user who watched first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_browse::{Masking, TopicMasks};
use thalweg_places::FairPermit;
use thalweg_stream::host::onlooking::{Cut, Look, MESSAGES_MAX, TappedMessage};
use thalweg_stream::host::rest::Hide;
use thalweg_stream::host::{Host, HostError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::problem::Problem;
use crate::reading::Reader;

/// Idle time after which a stage is no longer watched.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Time that the first request waits for a message.
const FIRST: Duration = Duration::from_millis(700);

/// A stream and the label of its stage.
type Stage = (String, String);

/// The watched stages.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<HashMap<Stage, Arc<Tap>>>>);

struct Tap {
    passed: Mutex<VecDeque<TappedMessage>>,
    looked: Mutex<Instant>,
    arrived: Notify,
    _place: FairPermit,
}

/// The reason for a failed request.
pub enum TapProblem {
    Host(HostError),
    Full(Problem),
}

impl Taps {
    /// The last messages that passed a stage, newest first.
    pub async fn look(
        &self,
        host: &Host,
        reader: &Reader,
        stream: &str,
        stage: &str,
    ) -> Result<Vec<TappedMessage>, TapProblem> {
        let tap = self.tap(host, reader, (stream.to_owned(), stage.to_owned()))?;
        let arrived = tap.arrived.notified();
        if tap.passed.lock().is_empty() {
            // Without a message, the page reports that nothing has passed.
            let _ = timeout(FIRST, arrived).await;
        }
        Ok(tap.passed.lock().iter().rev().cloned().collect())
    }

    fn tap(&self, host: &Host, reader: &Reader, stage: Stage) -> Result<Arc<Tap>, TapProblem> {
        let mut taps = self.0.lock();
        if let Some(tap) = taps.get(&stage) {
            *tap.looked.lock() = Instant::now();
            return Ok(Arc::clone(tap));
        }
        let look = host.look_at(&stage.0, &stage.1).map_err(TapProblem::Host)?;
        let place = reader.tap().map_err(TapProblem::Full)?;
        let tap = Arc::new(Tap {
            passed: Mutex::default(),
            looked: Mutex::new(Instant::now()),
            arrived: Notify::new(),
            _place: place,
        });
        taps.insert(stage.clone(), Arc::clone(&tap));
        let gathering = gather(look, Arc::clone(&tap));
        let known = Arc::clone(&self.0);
        // Runs on the runtime of the streams, so that a tap cannot delay the broker.
        host.runtime().spawn(async move {
            gathering.await;
            known.lock().remove(&stage);
        });
        Ok(tap)
    }
}

/// Collects messages until [`IDLE_MAX`] after the last request.
async fn gather(mut look: Look, tap: Arc<Tap>) {
    loop {
        let until = *tap.looked.lock() + IDLE_MAX;
        tokio::select! {
            next = look.next() => {
                let Some(next) = next else { return };
                let mut passed = tap.passed.lock();
                passed.extend(next);
                let old = passed.len().saturating_sub(MESSAGES_MAX);
                passed.drain(..old);
                drop(passed);
                tap.arrived.notify_waiters();
            }
            () = sleep_until(until) => {
                if tap.looked.lock().elapsed() >= IDLE_MAX {
                    return;
                }
            }
        }
    }
}

/// A function that masks messages of a stage; none without rules. All rules apply, because a stream may have
/// read any topic.
pub fn hide(masking: &Masking) -> Option<Hide> {
    let masks = masking.of_any()?;
    Some(Arc::new(move |message: &mut TappedMessage| hide_parts(message, &masks)))
}

/// Masks one message. A truncated part is hidden as a whole, because its fields cannot be found.
fn hide_parts(message: &mut TappedMessage, masks: &TopicMasks) {
    let mut hidden = Vec::new();
    if let Some(key) = &mut message.key
        && masks.key(&key.bytes, &mut hidden)
    {
        *key = whole(&hidden);
    }
    if let Some(value) = &mut message.value
        && masks.value(&value.bytes, &mut hidden)
    {
        *value = whole(&hidden);
    }
    for (name, value) in &mut message.headers {
        if let Some(value) = value
            && let Some(hidden) = masks.header(name.as_bytes(), &value.bytes)
        {
            *value = whole(&hidden);
        }
        if let Some(hidden) = masks.header_name(name.as_bytes()) {
            *name = String::from_utf8_lossy(&hidden).into_owned();
        }
    }
}

fn whole(bytes: &[u8]) -> Cut {
    Cut { bytes: bytes.to_vec().into(), whole_bytes: bytes.len() }
}
