//! The audit trail: decisions, logins and changes of the cluster, as JSON lines in files and in a topic.
//!
//! [`Trail::record`] takes an event from the calling task without waiting, and drops events above the limits.
//! Each outlet has its own queue. [`Inbox`] is the receiving end of a queue, which turns events into lines
//! and reports drops. [`TrailFile`] is the file outlet. The topic outlet belongs to the broker, which
//! produces records.
//!
//! Refuses: knowledge of requests, connections and sessions. Bounds: events per second of each kind, events
//! in a queue, bytes of a text in an event, bytes of a file and the number of files.

mod drops;
mod event;
mod file;
mod inbox;
mod ocsf;
mod trail;

pub use drops::DropReason;
pub use event::{Action, AuthorizerDecision, Change, Client, Event, EventContent, Failure, Login, Tls};
pub use file::{FileError, TrailFile};
pub use inbox::{Batch, Inbox};
pub use ocsf::Origin;
pub use trail::{OutletFigures, Trail};
