//! The APIs that the controller serves: this broker forwards their requests unchanged, and returns the
//! controller's answers.
//!
//! An entry has its versions and, if it changes the cluster, the audit events of its request.

mod access;
mod cluster;
mod topics;

use super::Api;
use super::entry::{Controller, Forwarding};
use super::serve::forward::handle;
use crate::audit::ClusterChange;
use std::ops::RangeInclusive;
use thalweg_wire::Refuse;

/// The entries, by file.
pub(super) const APIS: &[&[Api]] = &[access::APIS, cluster::APIS, topics::APIS];

/// The entry of an API whose requests change the cluster.
const fn changing<R>(versions: RangeInclusive<i16>) -> Api
where
    R: Refuse + ClusterChange + Send + 'static,
    R::Response: Send + 'static,
{
    Api::new(R::KEY, versions, Controller, handle::<R>).forwarded(Forwarding::Changes).changing::<R>()
}

/// The entry of an API whose requests read.
const fn reading<R>(versions: RangeInclusive<i16>) -> Api
where
    R: Refuse + Send + 'static,
    R::Response: Send + 'static,
{
    Api::new(R::KEY, versions, Controller, handle::<R>).forwarded(Forwarding::Reads)
}
