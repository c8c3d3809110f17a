//! The audit trail: decisions, logins and changes of the cluster, as JSON lines in files and in a topic.
//!
//! [`Trail::record`] takes an event from the task that causes it: it never waits, and drops what exceeds the bounds. Each
//! outlet has its own queue. [`Inbox`] is the far end of one, and turns events into lines; it reports what was dropped.
//! [`TrailFile`] is the outlet to files; that to a topic is the broker's, which knows how records are produced.
//!
//! Refuses: knowledge of requests, connections and sessions. Bounds: events in a second of each kind, events in a queue,
//! bytes of a text in an event, bytes of a file and the number of files.

mod drops;
mod event;
mod file;
mod inbox;
mod ocsf;
mod trail;

pub use drops::DropReason;
pub use event::{Action, Change, Client, Decided, Event, Failure, Login, Tls, What};
pub use file::{FileError, TrailFile};
pub use inbox::{Batch, Inbox};
pub use ocsf::Origin;
pub use trail::{Figures, Trail};
