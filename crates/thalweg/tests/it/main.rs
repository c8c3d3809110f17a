//! The binary, as its users do: started, spoken to, stopped.

mod embedded_target;
mod lab;
mod lab_drivers;
mod lab_worker;
