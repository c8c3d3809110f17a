//! Terminal output: progress during a run, tables after it.
//!
//! Progress goes to standard error: animated on a terminal, plain lines otherwise, JSON for programs. Tables
//! are text for the caller to print.

mod columns;
mod devices;
mod event;
mod notes;
mod profile;
mod progress;
mod table;

pub use columns::{Columns, TextWidth, wrapped};
pub use progress::{PointAt, Progress};
pub use table::{comparison, table, trend};
