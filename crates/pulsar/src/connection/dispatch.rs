//! From a received frame to its receiver.

use std::sync::Arc;

use bytes::Bytes;

use super::link::Link;
use crate::error::CloseReason;
use crate::frame;
use crate::protocol::{Command, EntryCommand, Pong, SendError, SendReceiptCommand};
use crate::server_error::ServerError;

/// Passes a frame to its receiver. Commands without one (of a closed producer, an answer that came too late,
/// a kind from a later version) are ignored, as in Pulsar's clients. An error ends the connection.
pub(super) fn dispatch(link: &Link, frame: Bytes) -> Result<(), CloseReason> {
    link.note_life_sign();
    let (base, rest) = frame::decode(frame)?;
    let Some(command) = base.command else { return Ok(()) };
    match command {
        Command::SendReceipt(receipt) => return stored(link, &receipt),
        Command::SendError(error) => return refused(link, error),
        Command::Message(command) => return entry(link, command, rest),
        Command::Ping(_) => link.queue(&[frame::encode(Command::Pong(Pong {}))]),
        Command::CloseProducer(close) => {
            let producer = link.routes.lock().producers.remove(&close.producer_id);
            if let Some(producer) = producer {
                producer.closed_by_broker(link.id);
            }
        }
        Command::CloseConsumer(close) => {
            let consumer = link.routes.lock().consumers.remove(&close.consumer_id);
            if let Some(consumer) = consumer {
                consumer.closed_by_broker(link.id);
            }
        }
        Command::ActiveConsumerChange(change) => {
            let consumer = link.routes.lock().consumers.get(&change.consumer_id).map(Arc::clone);
            if let Some(consumer) = consumer {
                consumer.active_changed(change.is_active.unwrap_or_default());
            }
        }
        Command::EndOfTopic(end) => {
            let consumer = link.routes.lock().consumers.get(&end.consumer_id).map(Arc::clone);
            if let Some(consumer) = consumer {
                consumer.end_of_topic();
            }
        }
        answer => {
            if let Some(request_id) = request_id(&answer) {
                link.answered(request_id, answer);
            }
        }
    }
    Ok(())
}

/// The id of the request that a command answers; `None` for other commands.
fn request_id(answer: &Command) -> Option<u64> {
    match answer {
        Command::Success(answer) => Some(answer.request_id),
        Command::Error(answer) => Some(answer.request_id),
        Command::ProducerSuccess(answer) => Some(answer.request_id),
        Command::PartitionsResponse(answer) => Some(answer.request_id),
        Command::LookupResponse(answer) => Some(answer.request_id),
        Command::LastMessageIdResponse(answer) => Some(answer.request_id),
        Command::AckResponse(answer) => answer.request_id,
        _ => None,
    }
}

fn stored(link: &Link, receipt: &SendReceiptCommand) -> Result<(), CloseReason> {
    let producer = link.routes.lock().producers.get(&receipt.producer_id).map(Arc::clone);
    producer.map_or(Ok(()), |producer| producer.stored(link.id, receipt))
}

fn refused(link: &Link, refusal: SendError) -> Result<(), CloseReason> {
    let producer = link.routes.lock().producers.get(&refusal.producer_id).map(Arc::clone);
    let error = ServerError::of(refusal.error);
    producer.map_or(Ok(()), |producer| producer.refused(link.id, refusal.sequence_id, error, refusal.message))
}

fn entry(link: &Link, command: EntryCommand, entry: Bytes) -> Result<(), CloseReason> {
    let consumer = link.routes.lock().consumers.get(&command.consumer_id).map(Arc::clone);
    consumer.map_or(Ok(()), |consumer| consumer.entry(link.id, command, entry))
}
