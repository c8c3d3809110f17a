//! The log through its public interface, on a real file system.

mod ahead;
mod append;
mod compaction;
mod damage;
mod dirs;
mod durability;
mod each_call;
mod epochs;
mod faults;
mod kafka;
mod kill;
mod known_damage;
mod model;
mod moves;
mod power_failure;
mod producers;
mod reading;
mod recovery;
mod refused_calls;
mod retention;
mod shortened;
mod support;
mod timestamps;
mod together;
mod transactions;
mod truncation;
