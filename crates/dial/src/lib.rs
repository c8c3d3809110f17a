//! A connection to a node of a cluster, with everything needed to open it: addresses, TLS, SASL, version
//! negotiation, typed requests, settings as text, retries. Used by clients, brokers and controllers. Knows no
//! topics.
//!
//! - [`Connection`] sends typed requests over any byte stream, many at a time, in the newest common version.
//! - [`Connector`] is the network seam: TCP, or a replacement by a test or simulation.
//! - [`Security`] is TLS and SASL by Kafka's settings; [`Properties`] are these settings as text, and
//!   [`ConnectionOptions`] their values for connections.
//! - [`Retry`] and [`Backoff`] pause between attempts; [`Waits`] reports pending waits and repeated failures.
//!
//! [`ClientError::is_retriable`] is true if a retry may succeed.

mod address;
mod answer_budget;
mod byte_stream;
mod connection;
mod error;
mod frames;
mod handshake;
mod options;
mod properties;
mod retry;
mod security;
mod stream;
mod throttle;
mod versions;
mod waits;

pub use address::{bootstrap_servers, host_and_port};
pub use answer_budget::{AnswerBudget, AnswerPlace, AnswerPlaceFuture};
pub use byte_stream::ByteStream;
pub use connection::{Connection, RequestOptions};
pub use error::{
    AuthenticationFailed, AuthenticationFault, BootstrapError, BrokerUnknown, ClientError, CloseReason,
    ConnectFailed, ConnectTimedOut, ConnectionClosed, HandshakeFailed, HandshakeFault, InvalidAddress,
    NoBootstrapServer, RefusedRequest, RequestTimedOut, ScramFault, TlsFailed, TlsFault, UnencodableRequest,
    UnreadableResponse, VersionMismatch,
};
pub use frames::FrameReader;
pub use handshake::{NegotiatedState, negotiate};
pub use options::ConnectionOptions;
pub use properties::{
    InvalidProperty, InvalidSetting, Properties, UnresolvedSetting, is_provider_setting, resolve,
};
pub use retry::{Backoff, CONCURRENT_TRANSACTIONS_BACKOFF, Retry, backoff_after};
pub use security::Security;
pub use security::tls::TlsSession;
pub use stream::{Connector, write_all_vectored};
pub use thalweg_security::{HIDDEN, is_secret};
pub use throttle::Throttle;
pub use versions::ApiVersions;
pub use waits::{Wait, WaitReport, Waits};
