//! Listeners and connections.
//!
//! A connection is one task. It reads frames into one buffer, passes each to the APIs, and writes the answers
//! in the order of the requests. Work is done inline: a request that can be answered at once is answered
//! before the next frame is read, and the answers to all frames of a buffer are sent together.
//!
//! Limits: the size of a frame; the memory of frames from their first byte to the end of their use; the
//! memory of answers that peers do not read; the number of connections in total and per address; the pending
//! answers of a connection; the time without progress; the frames and time of a peer before authentication,
//! as set by the handler; and the time, bytes and concurrent computations of TLS handshakes. Over TLS the
//! same task encrypts and decrypts.

mod admission;
pub mod answer_parts;
mod answers;
mod behind;
mod connection;
mod flow;
mod handshake;
mod holder;
mod input;
mod large_frame;
mod listener;
mod machine;
mod memory;
mod mute;
mod network;
mod output;
mod peer;
mod repeated_failures;
mod stream;
mod waiting;

pub use admission::{ConnectionFigures, Connections, Ends, OpenPeer};
pub use answers::AnswerMemory;
pub use behind::FramesBehind;
pub use connection::{ConnectionSettings, Handler, Replies, Reply, ReplyBehind, UnprovenLimits};
pub use flow::{ApiFlow, Flow};
pub use handshake::{CertificateObserver, HandshakeTurns, TlsListener};
pub use holder::Holder;
pub use listener::{BindError, BoundListener, SimulatedListener, SocketOptions};
pub use machine::Machine;
pub use memory::FrameMemory;
pub use mute::Mute;
pub use network::{Network, SimulatedNetwork};
pub use output::{Frame, FrameSegment};
pub use peer::{Attachment, Peer, Software};
pub use repeated_failures::RepeatedFailures;
pub use stream::SimulatedStream;
