//! The binary, used as its users do.

mod lab_worker;
//! The binary as its users meet it: started, spoken to over the network, stopped.
mod embedded_target;
