//! The binary, used as its users do.

mod lab_worker;
