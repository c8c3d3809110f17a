//! Requests that change the cluster, as audit events: the requested change of each resource, and its outcome.
//!
//! A change is described from the request and its answer, whether this broker, the embedded controller or
//! Apache Kafka's controller has decided. Secrets are left out. Requests with validate_only make no events.

use bytes::Bytes;
use std::collections::BTreeMap;
use thalweg_audit::{Action, Change, Failure};
use thalweg_wire::frame::{decode_request_header, decode_response};
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Request};

/// Maximum number of elements of a request, which was decoded before.
const ELEMENTS_MAX: usize = 1_000_000;

/// A collector for the changes of one request.
pub(crate) struct Changes<'a> {
    request: String,
    take: &'a mut dyn FnMut(Change),
}

/// The outcome of a change: error code and message.
pub(crate) type Ending<'a> = (i16, Option<&'a str>);

impl<'a> Changes<'a> {
    pub fn of(key: ApiKey, take: &'a mut dyn FnMut(Change)) -> Changes<'a> {
        Changes { request: format!("{key:?}"), take }
    }

    pub fn note(
        &mut self,
        action: Action,
        resource_type: &'static str,
        resource_name: &str,
        detail: String,
        (code, message): Ending<'_>,
    ) {
        let name =
            || ErrorCode::from_i16(code).map_or_else(|| code.to_string(), |code| code.name().to_owned());
        let failure = (code != 0).then(|| Failure { code: name(), message: message.map(str::to_owned) });
        (self.take)(Change {
            request: self.request.clone(),
            action,
            resource_type,
            resource_name: resource_name.to_owned(),
            detail: (!detail.is_empty()).then_some(detail),
            failure,
        });
    }
}

/// A request that changes the cluster, in the file of its API.
pub(crate) trait ClusterChange: Request {
    /// Notes the changes of each resource.
    fn describe(&self, answer: &Self::Response, changes: &mut Changes<'_>);
}

/// Describes the changes of a request from the bytes of request and answer, both from the header on.
pub(crate) type Describe = fn(i16, Bytes, Bytes, &mut Changes<'_>);

/// A request or an answer that cannot be decoded has no changes.
pub(crate) fn describe<R: ClusterChange>(
    version: i16,
    request: Bytes,
    answer: Bytes,
    changes: &mut Changes<'_>,
) {
    let mut d = Decoder::new(request).with_elements_max(ELEMENTS_MAX);
    let header = decode_request_header(&mut d, R::KEY, version);
    if let (Ok(_), Ok(request), Ok((_, answer))) =
        (header, R::decode(&mut d, version), decode_response::<R>(answer, version))
    {
        request.describe(&answer, changes);
    }
}

/// Keys and values, as in properties files.
pub(crate) fn listed<'a>(entries: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let entries = entries.into_iter().map(|(key, value)| format!("{key}={value}"));
    entries.collect::<Vec<_>>().join(" ")
}

/// Numbers, separated by commas. Long lists are cut.
pub(crate) fn numbers(numbers: impl IntoIterator<Item = i32>) -> String {
    const SHOWN_MAX: usize = 100;
    let shown: Vec<_> = numbers.into_iter().take(SHOWN_MAX).map(|number| number.to_string()).collect();
    shown.join(",")
}

/// The first error of several endings.
pub(crate) fn worst<'a>(endings: impl IntoIterator<Item = Ending<'a>>) -> Ending<'a> {
    endings.into_iter().find(|(code, _)| *code != 0).unwrap_or((0, None))
}

/// Requests' entries by name.
pub(crate) fn by_name<T>(entries: &[T], name: fn(&T) -> &str) -> BTreeMap<&str, &T> {
    entries.iter().map(|entry| (name(entry), entry)).collect()
}
