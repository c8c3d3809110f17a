//! The binary as a person meets it: exit codes, and what it says about a cluster that is not there.

mod failures;
