//! Workers: the processes that produce and consume. A worker is told what to do in one line of JSON on its standard
//! input, waits for the word to start, and tells in lines of JSON on its standard output how it goes.
//!
//! A worker ends by itself when its standard input closes, so that none outlives the lab.

mod protocol;

pub use protocol::{Assignment, Command, Driver, Event, Interval, Order, Report, Role, Seen, Span, StopWhen};
