//! The two ends of simulated connections, from the view of brokers and clients.

use super::{MachineId, Message, Phase, SharedNetwork, Side, WINDOW_BYTES, address_of, or_wait};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use thalweg_net::{SimulatedListener, SimulatedNetwork, SimulatedStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The network from the view of one machine.
pub(super) struct Machine {
    pub network: SharedNetwork,
    pub machine: MachineId,
}

impl SimulatedNetwork for Machine {
    fn listen(&self, _host: &str, port: u16) -> io::Result<Box<dyn SimulatedListener>> {
        Ok(Box::new(self.network.listen(self.machine, port)?))
    }
}

/// A listening port.
pub(crate) struct Port {
    pub(super) network: SharedNetwork,
    pub(super) machine: MachineId,
    pub(super) port: u16,
}

impl SimulatedListener for Port {
    fn address(&self) -> SocketAddr {
        address_of(self.machine, self.port)
    }

    fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Box<dyn SimulatedStream>, SocketAddr)>> {
        let mut state = self.network.0.lock();
        let Some(listener) = state.ports.get_mut(&(self.machine, self.port)) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let next = listener.waiting.pop_front();
        let Poll::Ready(id) = or_wait(next, &mut listener.waker, context.waker()) else {
            return Poll::Pending;
        };
        let peer = state.connections.get(&id).map_or(self.machine, |connection| connection.client.machine);
        let end = End::new(self.network.clone(), id, Side::Server);
        Poll::Ready(Ok((Box::new(end), address_of(peer, 1))))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut state = self.network.0.lock();
        let Some(listener) = state.ports.remove(&(self.machine, self.port)) else { return };
        // Pending connections are refused.
        for &id in &listener.waiting {
            if let Some(connection) = state.connections.get_mut(&id) {
                connection.server.phase = Phase::Gone;
                state.send(id, Side::Client, Message::Reset);
            }
        }
        drop(state);
        drop(listener);
    }
}

/// One end of a connection. Dropping it notifies the other end.
pub(crate) struct End {
    network: SharedNetwork,
    id: u64,
    side: Side,
}

impl End {
    pub(super) fn new(network: SharedNetwork, id: u64, side: Side) -> End {
        End { network, id, side }
    }

    /// Waits until the other machine has accepted the connection.
    pub(super) async fn established(&self) -> io::Result<()> {
        poll_fn(|context| {
            let mut state = self.network.0.lock();
            let Some(connection) = state.connections.get_mut(&self.id) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into()));
            };
            let half = connection.half(self.side);
            let ready = match half.phase {
                Phase::Connecting => None,
                Phase::Open | Phase::Ended => Some(Ok(())),
                Phase::Reset | Phase::Gone => Some(Err(io::ErrorKind::ConnectionRefused.into())),
            };
            or_wait(ready, &mut half.reader, context.waker())
        })
        .await
    }

    fn poll_readable_by(&self, waker: &Waker) -> Poll<io::Result<()>> {
        let mut state = self.network.0.lock();
        let Some(connection) = state.connections.get_mut(&self.id) else { return Poll::Ready(Ok(())) };
        let half = connection.half(self.side);
        let ready = !half.inbox.is_empty() || !matches!(half.phase, Phase::Connecting | Phase::Open);
        or_wait(ready.then_some(Ok(())), &mut half.reader, waker)
    }

    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.network.0.lock();
        let Some(connection) = state.connections.get_mut(&self.id) else {
            return Err(io::ErrorKind::ConnectionReset.into());
        };
        let half = connection.half(self.side);
        if half.inbox.is_empty() {
            return match half.phase {
                Phase::Connecting | Phase::Open => Err(io::ErrorKind::WouldBlock.into()),
                Phase::Ended => Ok(0),
                Phase::Reset | Phase::Gone => Err(io::ErrorKind::ConnectionReset.into()),
            };
        }
        let count = buffer.len().min(half.inbox.len());
        for (place, byte) in buffer.iter_mut().zip(half.inbox.drain(..count)) {
            *place = byte;
        }
        let writer = half.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        Ok(count)
    }

    fn poll_writable_by(&self, waker: &Waker) -> Poll<io::Result<()>> {
        let mut state = self.network.0.lock();
        let Some(connection) = state.connections.get_mut(&self.id) else { return Poll::Ready(Ok(())) };
        if connection.half(self.side).phase == Phase::Reset {
            return Poll::Ready(Ok(()));
        }
        let half = connection.half(self.side.other());
        let room = half.coming_bytes + half.inbox.len() < WINDOW_BYTES;
        or_wait(room.then_some(Ok(())), &mut half.writer, waker)
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.network.0.lock();
        let Some(connection) = state.connections.get_mut(&self.id) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        if matches!(connection.half(self.side).phase, Phase::Reset | Phase::Gone) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let half = connection.half(self.side.other());
        let room = WINDOW_BYTES.saturating_sub(half.coming_bytes + half.inbox.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(room);
        state.send(self.id, self.side.other(), Message::Bytes(bytes[..count].to_vec()));
        Ok(count)
    }

    fn end(&self) {
        let mut state = self.network.0.lock();
        let Some(connection) = state.connections.get_mut(&self.id) else { return };
        if connection.half(self.side).phase != Phase::Gone {
            state.send(self.id, self.side.other(), Message::End);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.end();
        let mut state = self.network.0.lock();
        let Some(connection) = state.connections.get_mut(&self.id) else { return };
        let half = connection.half(self.side);
        half.phase = Phase::Gone;
        half.inbox.clear();
        let wakers = (half.reader.take(), half.writer.take());
        state.forget_if_over(self.id);
        drop(state);
        drop(wakers);
    }
}

impl SimulatedStream for End {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_readable_by(context.waker())
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_now(buffer)
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writable_by(context.waker())
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_now(bytes)
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.read_now(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            std::task::ready!(self.poll_readable_by(context.waker()))?;
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.write_now(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
            std::task::ready!(self.poll_writable_by(context.waker()))?;
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}
