//! Sources, one file each.

pub mod file;
pub mod http;
pub mod kafka;
mod lines;
pub mod load_generator;
pub mod stdin;
pub mod time;
