//! What the lab shows on a terminal: progress while it measures, a table when it has.
//!
//! Progress goes to standard error: moving lines on a terminal, plain ones elsewhere. Tables are text for the caller to
//! print.

mod progress;
mod table;

pub use progress::{PointAt, Progress};
pub use table::{comparison, table};
