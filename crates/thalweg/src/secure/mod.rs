//! Security without preparation: certificates, passwords and settings, made where there are none.

pub mod directory;
