//! Listeners and connections.
//!
//! A connection is one task. It reads frames into one buffer, hands each to the APIs, and writes the answers in
//! the order of the requests. Work is done inline: a frame that can be answered at once is answered before the
//! next is looked at, and the answers to all frames of a buffer leave together.
//!
//! What is bounded here: the size of a frame, the memory of frames from their first byte to the end of their use, the
//! memory of answers that peers do not take, the number of connections in all and of one address, the answers that wait
//! on one connection, and the time without progress.
//! Refused: TLS and SASL, which the configuration names before a listener opens.

mod admission;
pub mod answer_parts;
mod answers;
mod connection;
mod input;
mod large;
mod listener;
mod machine;
mod memory;
mod network;
mod output;
mod stream;

pub use admission::ConnectionLimits;
pub use answers::AnswerMemory;
pub use connection::{ConnectionSettings, Handler, Peer, Reply};
pub use listener::{BindError, Listening, SimulatedListener, SocketOptions};
pub use machine::Machine;
pub use memory::FrameMemory;
pub use network::{Network, SimulatedNetwork};
pub use output::{Frame, Segment};
pub use stream::SimulatedStream;
