//! Figures of requests and answers by API: time of a request in the connection's buffer, time to send its
//! answer, and both sizes.
//!
//! A connection's task counts by relaxed additions, and reads the clock once per read and per flush, never
//! per request. Of a request, only the first two bytes are read, the API's number.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thalweg_histogram::{Histogram, microseconds};
use thalweg_wire::ApiKey;

/// Exclusive upper bound of API numbers.
const APIS: usize = 128;
/// The slot of unknown APIs.
const UNKNOWN: u8 = 127;

/// The figures of all connections that share settings. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Flow(Arc<[OnceLock<Box<ApiFlow>>; APIS]>);

/// The figures of one API.
#[derive(Debug)]
pub struct ApiFlow {
    /// Time from the last read of the connection to the start of handling.
    pub queued: Histogram,
    /// Time from the complete answer until the peer's socket has taken it and all earlier answers.
    pub sending: Histogram,
    /// Sizes of requests in bytes.
    pub request_bytes: Histogram,
    /// Sizes of answers in bytes, including records sent from files.
    pub response_bytes: Histogram,
}

/// The slot of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ApiSlot(u8);

impl Default for Flow {
    fn default() -> Flow {
        Flow(Arc::new([const { OnceLock::new() }; APIS]))
    }
}

impl ApiFlow {
    fn new() -> Box<ApiFlow> {
        Box::new(ApiFlow {
            queued: Histogram::of_times(),
            sending: Histogram::of_times(),
            request_bytes: Histogram::of_sizes(),
            response_bytes: Histogram::of_sizes(),
        })
    }
}

impl ApiSlot {
    /// The slot by the first bytes of a request.
    pub(super) fn of(frame: &[u8]) -> ApiSlot {
        let key = frame.first_chunk().and_then(|head| ApiKey::from_i16(i16::from_be_bytes(*head)));
        ApiSlot(key.and_then(|key| u8::try_from(key as i16).ok()).unwrap_or(UNKNOWN))
    }
}

impl Flow {
    /// The APIs with requests so far, by number.
    pub fn apis(&self) -> impl Iterator<Item = (i16, &ApiFlow)> {
        (0..).zip(self.0.iter()).filter_map(|(key, api)| Some((key, &**api.get()?)))
    }

    fn api(&self, slot: ApiSlot) -> &ApiFlow {
        self.0[usize::from(slot.0)].get_or_init(ApiFlow::new)
    }

    /// Counts a request that is about to be handled after waiting this long.
    pub(super) fn received(&self, slot: ApiSlot, bytes: usize, waited: Duration) {
        let api = self.api(slot);
        api.queued.record_time(waited);
        api.request_bytes.record(bytes as u64);
    }

    /// Counts a complete answer.
    fn answered(&self, slot: ApiSlot, bytes: usize) {
        self.api(slot).response_bytes.record(bytes as u64);
    }

    fn sent(&self, slot: ApiSlot, count: u64, us: u64) {
        self.api(slot).sending.record_many(us, count);
    }
}

/// The unsent answers of a connection: a count per API, in order.
#[derive(Debug, Default)]
pub(super) struct UnsentAnswers(VecDeque<(ApiSlot, u64)>);

impl UnsentAnswers {
    /// Adds an unsent answer.
    pub(super) fn push(&mut self, flow: &Flow, slot: ApiSlot, bytes: usize) {
        flow.answered(slot, bytes);
        match self.0.back_mut() {
            Some((last, count)) if *last == slot => *count += 1,
            _ => self.0.push_back((slot, 1)),
        }
    }

    /// Counts all unsent answers as sent after this long.
    pub(super) fn sent(&mut self, flow: &Flow, after: Duration) {
        let us = microseconds(after);
        self.0.drain(..).for_each(|(slot, count)| flow.sent(slot, count, us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_with_the_flush_that_sends_them() {
        let (flow, mut unsent) = (Flow::default(), UnsentAnswers::default());
        let produce = ApiSlot::of(&[0, 0, 0, 9]);
        let strange = ApiSlot::of(&[0x47, 0x45]);
        flow.received(produce, 100, Duration::from_micros(70));
        for slot in [produce, produce, strange, produce] {
            unsent.push(&flow, slot, 10);
        }
        assert_eq!(unsent.0.len(), 3);
        unsent.sent(&flow, Duration::from_millis(2));
        unsent.sent(&flow, Duration::from_millis(2));
        let counts: Vec<_> = flow
            .apis()
            .map(|(key, api)| (key, api.sending.snapshot().count(), api.response_bytes.snapshot().sum))
            .collect();
        assert_eq!(counts, [(0, 3, 30), (127, 1, 10)]);
        let (_, api) = flow.apis().next().expect("Produce");
        assert_eq!((api.queued.snapshot().sum, api.request_bytes.snapshot().sum), (70, 100));
    }

    #[test]
    fn a_frame_without_a_number_has_a_slot() {
        assert_eq!(ApiSlot::of(&[]), ApiSlot::of(&[0xff, 0xff]));
    }
}
