//! The laboratory, by its public interface.
#![allow(clippy::print_stdout, reason = "a test that is skipped says so, and a failing one names its seed")]

mod browser;
mod compare;
mod fixture;
mod options;
mod report;
