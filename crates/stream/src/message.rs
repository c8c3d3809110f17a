//! Messages, in batches that refer to shared buffers.
//!
//! A [`Batch`] is a list of slots over a few buffers. A filter removes slots, a splitter adds some, and
//! neither touches the bytes of a message; new values of a batch go into one new buffer. Cloning a batch for
//! a second reader copies its slots and shares its buffers. Keys and headers are stored apart from the slots,
//! because most messages have none.

mod headers;
mod provenance;

use bytes::{Bytes, BytesMut};

pub use headers::{Header, HeaderBuffer, Headers};
pub use provenance::{AssignedPartition, Provenance, RevocablePartition, SourceId};

/// Maximum number of messages that a source puts into a batch: few enough to keep the slots in the L1 cache.
pub const BATCH_MESSAGES_MAX: usize = 512;
/// The size at which a source ends a batch. A single message may be larger.
pub const BATCH_BYTES_MAX: usize = 128 << 10;
/// The largest message that any source accepts.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The longest key that a stage remembers, so that a limited number of keys needs limited memory.
pub const KEY_BYTES_MAX: usize = 4 << 10;

/// One message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub value: &'a [u8],
    /// True if the value is null, as in a Kafka tombstone; `value` is empty then.
    pub is_null: bool,
    /// The key, if any.
    pub key: Option<&'a [u8]>,
    pub headers: Headers<'a>,
    /// The timestamp, in milliseconds since 1970.
    pub time_ms: i64,
    /// The message's number, counted by its source from 0.
    pub sequence: u64,
}

/// A range of one of a batch's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    buffer: u32,
    start: u32,
    len: u32,
}

impl Part {
    /// An absent value, key or header list.
    const NONE: Part = Part { buffer: u32::MAX, start: 0, len: 0 };

    fn of(self, buffers: &[Bytes]) -> &[u8] {
        &buffers[self.buffer as usize][self.start as usize..(self.start + self.len) as usize]
    }

    fn of_some(self, buffers: &[Bytes]) -> Option<&[u8]> {
        (self.buffer != Part::NONE.buffer).then(|| self.of(buffers))
    }

    /// The same range after the buffers were appended to another batch.
    fn behind(self, buffers: u32) -> Part {
        if self == Part::NONE { self } else { Part { buffer: self.buffer + buffers, ..self } }
    }
}

/// Fields that few messages have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extra {
    key: Part,
    headers: Part,
}

impl Extra {
    const NONE: Extra = Extra { key: Part::NONE, headers: Part::NONE };
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    value: Part,
    /// Index of the message's extra; [`NO_EXTRA`] if there is none.
    extra: u32,
    time_ms: i64,
    sequence: u64,
}

/// Index value for a message without an extra.
const NO_EXTRA: u32 = u32::MAX;

/// Adds an extra, and returns its index.
fn add_extra(extras: &mut Vec<Extra>, extra: Extra) -> u32 {
    if extra == Extra::NONE {
        return NO_EXTRA;
    }
    extras.push(extra);
    extras.len() as u32 - 1
}

/// Messages that pass through a stream together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    buffers: Vec<Bytes>,
    slots: Vec<Slot>,
    extras: Vec<Extra>,
    /// The previous slots, while new ones are built.
    spare: Vec<Slot>,
    /// The number of the producer, if the source has several: each producer counts its own sequence.
    pub origin: u32,
    /// True if each value begins with its sequence, as eight bytes, big-endian.
    pub is_stamped: bool,
    /// The source partition of the messages; `None` if they are of several, or of none.
    pub provenance: Option<Provenance>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Total size of the values.
    pub fn value_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.value.len)).sum()
    }

    /// The sequence of the last message.
    pub fn last_sequence(&self) -> Option<u64> {
        self.slots.last().map(|slot| slot.sequence)
    }

    /// The lowest sequence: messages of stages that combine others are not in order.
    pub fn lowest_sequence(&self) -> Option<u64> {
        self.slots.iter().map(|slot| slot.sequence).min()
    }

    /// The timestamp of the first message, in milliseconds since 1970.
    pub fn first_time_ms(&self) -> Option<i64> {
        self.slots.first().map(|slot| slot.time_ms)
    }

    /// Empties the batch, and returns its buffers for reuse.
    pub fn take_buffers(&mut self) -> std::vec::Drain<'_, Bytes> {
        self.clear_slots();
        self.buffers.drain(..)
    }

    /// Empties the batch.
    pub fn clear(&mut self) {
        self.clear_slots();
        self.buffers.clear();
    }

    fn clear_slots(&mut self) {
        self.slots.clear();
        self.extras.clear();
        self.origin = 0;
        self.is_stamped = false;
        self.provenance = None;
    }

    /// The messages in order.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = Message<'_>> {
        self.slots.iter().map(|slot| message(slot, &self.extras, &self.buffers))
    }

    /// The value of a message, sharing the buffer.
    pub fn value(&self, index: usize) -> Bytes {
        let part = self.slots[index].value;
        match self.buffers.get(part.buffer as usize) {
            Some(buffer) => buffer.slice(part.start as usize..(part.start + part.len) as usize),
            None => Bytes::new(),
        }
    }

    /// Adds a message with its own buffer.
    pub fn push(&mut self, value: Bytes, key: Option<Bytes>, time_ms: i64, sequence: u64) {
        let value = self.add_buffer(value);
        let key = key.map_or(Part::NONE, |key| self.add_buffer(key));
        let extra = add_extra(&mut self.extras, Extra { key, headers: Part::NONE });
        self.slots.push(Slot { value, extra, time_ms, sequence });
    }

    /// Adds a buffer, and one message for each range of it.
    pub fn push_ranges(
        &mut self,
        buffer: Bytes,
        ranges: impl IntoIterator<Item = std::ops::Range<usize>>,
        time_ms: i64,
        first_sequence: u64,
    ) {
        let whole = self.add_buffer(buffer);
        for (sequence, range) in (first_sequence..).zip(ranges) {
            assert!(range.end <= whole.len as usize, "a message lies in its buffer");
            let value = Part { start: range.start as u32, len: (range.end - range.start) as u32, ..whole };
            self.slots.push(Slot { value, extra: NO_EXTRA, time_ms, sequence });
        }
    }

    /// Adds a buffer with `count` messages of `size` bytes: consecutive, or all the same range.
    pub fn push_run(
        &mut self,
        buffer: Bytes,
        size: usize,
        count: usize,
        is_shared: bool,
        time_ms: i64,
        first_sequence: u64,
    ) {
        let whole = self.add_buffer(buffer);
        let stride = if is_shared { 0 } else { size as u32 };
        let end = stride as usize * count.saturating_sub(1) + size;
        assert!(count == 0 || end <= whole.len as usize, "the messages lie in their buffer");
        let slot = |(index, sequence): (u32, u64)| {
            let value = Part { start: index * stride, len: size as u32, ..whole };
            Slot { value, extra: NO_EXTRA, time_ms, sequence }
        };
        self.slots.extend((0..count as u32).zip(first_sequence..).map(slot));
    }

    fn add_buffer(&mut self, buffer: Bytes) -> Part {
        let len = u32::try_from(buffer.len()).expect("no source makes buffers of 4 GiB");
        self.buffers.push(buffer);
        Part { buffer: self.buffers.len() as u32 - 1, start: 0, len }
    }

    /// Keeps the messages for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(Message<'_>) -> bool) {
        let (extras, buffers) = (&self.extras, &self.buffers);
        self.slots.retain(|slot| keep(message(slot, extras, buffers)));
    }

    /// Keeps the messages at these indexes.
    pub fn keep_range(&mut self, range: std::ops::Range<usize>) {
        if range.end < self.slots.len()
            && let Some(provenance) = &mut self.provenance
        {
            provenance.is_at_end = false;
        }
        self.slots.truncate(range.end);
        self.slots.drain(..range.start);
    }

    /// Replaces each message by the output of `f`: no message, the message, parts of it, or new values. Key,
    /// time and sequence stay unless `f` sets them. Stops at the first error, after which the batch must be
    /// discarded.
    pub fn rewrite<E>(
        &mut self,
        mut f: impl FnMut(Message<'_>, &mut Emitter<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rewrite_some(|message, emit| f(message, emit).map(|()| true)).map(drop)
    }

    /// The same until `f` returns false. The rest, from that message on, is returned as a batch that shares
    /// the buffers.
    pub fn rewrite_some<E>(
        &mut self,
        mut f: impl FnMut(Message<'_>, &mut Emitter<'_>) -> Result<bool, E>,
    ) -> Result<Option<Batch>, E> {
        std::mem::swap(&mut self.slots, &mut self.spare);
        self.slots.clear();
        let mut written = BytesMut::new();
        let next = self.buffers.len() as u32;
        let mut stopped_at = None;
        // New extras follow the existing ones.
        let extras = &mut self.extras;
        for (index, slot) in self.spare.iter().enumerate() {
            let message = message(slot, extras, &self.buffers);
            let begun = (self.slots.len(), written.len());
            let mut emit =
                Emitter { slot, slots: &mut self.slots, extras, written: &mut written, next, begun };
            if !f(message, &mut emit)? {
                stopped_at = Some(index);
                break;
            }
        }
        let rest = stopped_at.map(|index| Batch {
            buffers: self.buffers.clone(),
            slots: self.spare[index..].to_vec(),
            extras: self.extras.clone(),
            spare: Vec::new(),
            origin: self.origin,
            is_stamped: self.is_stamped,
            provenance: self.provenance.clone(),
        });
        if rest.is_some()
            && let Some(provenance) = &mut self.provenance
        {
            provenance.is_at_end = false;
        }
        self.spare.clear();
        if !written.is_empty() {
            self.is_stamped = false;
        }
        // Add the buffer even if it is empty: an empty value may refer to it.
        self.buffers.push(written.freeze());
        Ok(rest)
    }

    /// Renumbers the messages from a start.
    pub fn renumber(&mut self, first_sequence: u64) {
        self.origin = 0;
        self.is_stamped = false;
        for (slot, sequence) in self.slots.iter_mut().zip(first_sequence..) {
            slot.sequence = sequence;
        }
    }

    /// Copies of the messages, which do not keep the buffers alive. Adjacent messages that share a key,
    /// headers or a value share the copy.
    pub fn compact(&self) -> Batch {
        let mut copies = PartCopies { from: &self.buffers, buffers: Vec::new(), written: Vec::new() };
        let (mut slots, mut extras) = (Vec::<Slot>::with_capacity(self.slots.len()), Vec::new());
        let mut before: Option<&Slot> = None;
        for slot in &self.slots {
            let copied = before.zip(slots.last().copied());
            let extra = match (copied, self.extras.get(slot.extra as usize)) {
                (Some((before, copy)), _) if before.extra == slot.extra => copy.extra,
                (_, None) => NO_EXTRA,
                (_, Some(extra)) => {
                    let (key, headers) = (copies.add(extra.key), copies.add(extra.headers));
                    add_extra(&mut extras, Extra { key, headers })
                }
            };
            let value = match copied {
                Some((before, copy)) if before.value == slot.value => copy.value,
                _ => copies.add(slot.value),
            };
            slots.push(Slot { value, extra, ..*slot });
            before = Some(slot);
        }
        Batch { buffers: copies.finish(), slots, extras, ..Batch::default() }
    }

    /// The message at an index alone. It shares the buffers with its bytes.
    pub fn single(&self, index: usize) -> Batch {
        let mut alone = Batch::new();
        let slot = self.slots[index];
        let mut share = |part: Part| match self.buffers.get(part.buffer as usize) {
            Some(buffer) => {
                alone.buffers.push(buffer.clone());
                Part { buffer: alone.buffers.len() as u32 - 1, ..part }
            }
            None => Part::NONE,
        };
        let value = share(slot.value);
        let extra = self.extras.get(slot.extra as usize).copied().unwrap_or(Extra::NONE);
        let extra = Extra { key: share(extra.key), headers: share(extra.headers) };
        let extra = add_extra(&mut alone.extras, extra);
        alone.slots.push(Slot { value, extra, ..slot });
        alone
    }

    /// The memory of a batch that owns its buffers.
    pub fn held_bytes(&self) -> u64 {
        let slots = size_of::<Slot>() * self.slots.len() + size_of::<Extra>() * self.extras.len();
        self.buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>() + slots as u64
    }

    /// Appends messages of another batch from an index on, with new values.
    pub fn append_with_values(
        &mut self,
        other: &Batch,
        from: usize,
        values: impl IntoIterator<Item = Bytes>,
    ) {
        let old = other.slots[from..].iter();
        self.append(&Batch { slots: Vec::new(), spare: Vec::new(), ..other.clone() });
        let extras = (self.extras.len() - other.extras.len()) as u32;
        for (slot, value) in old.zip(values) {
            let value = self.add_buffer(value);
            let extra = if slot.extra == NO_EXTRA { NO_EXTRA } else { slot.extra + extras };
            self.slots.push(Slot { value, extra, ..*slot });
        }
    }

    /// Appends the messages of another batch, sharing its buffers.
    pub fn append(&mut self, other: &Batch) {
        let place = |provenance: &Option<Provenance>| {
            provenance.as_ref().map(|provenance| (provenance.source, provenance.partition))
        };
        self.provenance =
            other.provenance.clone().filter(|_| place(&self.provenance) == place(&other.provenance));
        let (buffers, extras) = (self.buffers.len() as u32, self.extras.len() as u32);
        self.buffers.extend_from_slice(&other.buffers);
        self.extras.extend(
            other.extras.iter().map(|extra| Extra {
                key: extra.key.behind(buffers),
                headers: extra.headers.behind(buffers),
            }),
        );
        self.slots.extend(other.slots.iter().map(|slot| Slot {
            value: slot.value.behind(buffers),
            extra: if slot.extra == NO_EXTRA { NO_EXTRA } else { slot.extra + extras },
            ..*slot
        }));
    }
}

/// Copies of parts, in buffers of at most [`BATCH_BYTES_MAX`] or one part.
struct PartCopies<'a> {
    from: &'a [Bytes],
    buffers: Vec<Bytes>,
    written: Vec<u8>,
}

impl PartCopies<'_> {
    fn add(&mut self, part: Part) -> Part {
        let Some(bytes) = part.of_some(self.from) else { return Part::NONE };
        if !self.written.is_empty() && self.written.len() + bytes.len() > BATCH_BYTES_MAX {
            self.end_buffer();
        }
        let start = self.written.len() as u32;
        self.written.extend_from_slice(bytes);
        Part { buffer: self.buffers.len() as u32, start, len: part.len }
    }

    fn end_buffer(&mut self) {
        // Without the spare capacity.
        self.buffers.push(std::mem::take(&mut self.written).into_boxed_slice().into());
    }

    fn finish(mut self) -> Vec<Bytes> {
        // An empty value may refer to an empty buffer.
        self.end_buffer();
        self.buffers
    }
}

/// Collects copies of messages in one buffer, for sources that do not own their messages' memory.
#[derive(Default)]
pub struct BatchBuilder {
    written: BytesMut,
    slots: Vec<Slot>,
    extras: Vec<Extra>,
}

impl BatchBuilder {
    /// Adds a copy of a message.
    pub fn push<'h>(
        &mut self,
        value: Option<&[u8]>,
        key: Option<&[u8]>,
        headers: impl IntoIterator<Item = Header<'h>>,
        time_ms: i64,
        sequence: u64,
    ) {
        let value = value.map_or(Part::NONE, |value| self.part(value));
        let key = key.map_or(Part::NONE, |key| self.part(key));
        let start = self.written.len();
        for header in headers {
            header.write(&mut self.written);
        }
        let headers = if self.written.len() == start { Part::NONE } else { self.part_since(start) };
        let extra = add_extra(&mut self.extras, Extra { key, headers });
        self.slots.push(Slot { value, extra, time_ms, sequence });
    }

    fn part(&mut self, bytes: &[u8]) -> Part {
        let start = self.written.len();
        self.written.extend_from_slice(bytes);
        self.part_since(start)
    }

    fn part_since(&self, start: usize) -> Part {
        let end = u32::try_from(self.written.len()).expect("a batch has less than 4 GiB");
        Part { buffer: 0, start: start as u32, len: end - start as u32 }
    }

    /// True if the collected messages fill a batch.
    pub fn is_full(&self) -> bool {
        self.slots.len() >= BATCH_MESSAGES_MAX || self.written.len() >= BATCH_BYTES_MAX
    }

    /// True if no message was collected.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes the collected messages as a batch.
    pub fn take(&mut self) -> Batch {
        let buffers = vec![self.written.split().freeze()];
        let (slots, extras) = (std::mem::take(&mut self.slots), std::mem::take(&mut self.extras));
        Batch { buffers, slots, extras, ..Batch::default() }
    }
}

#[inline]
fn message<'a>(slot: &Slot, extras: &[Extra], buffers: &'a [Bytes]) -> Message<'a> {
    let extra = if slot.extra == NO_EXTRA { Extra::NONE } else { extras[slot.extra as usize] };
    let value = slot.value.of_some(buffers);
    Message {
        value: value.unwrap_or_default(),
        is_null: value.is_none(),
        key: extra.key.of_some(buffers),
        headers: Headers::new(extra.headers.of_some(buffers).unwrap_or_default()),
        time_ms: slot.time_ms,
        sequence: slot.sequence,
    }
}

/// Receives the output of [`Batch::rewrite`] for one message.
pub struct Emitter<'a> {
    slot: &'a Slot,
    slots: &'a mut Vec<Slot>,
    extras: &'a mut Vec<Extra>,
    written: &'a mut BytesMut,
    next: u32,
    /// The numbers of messages and of written bytes before this message.
    begun: (usize, usize),
}

impl Emitter<'_> {
    /// Takes back all output for the message.
    pub fn take_back(&mut self) {
        let (messages, bytes) = self.begun;
        self.slots.truncate(messages);
        self.written.truncate(bytes);
    }

    /// The size of all that was written for the batch.
    pub fn written_bytes(&self) -> usize {
        self.written.len()
    }

    /// Emits the message unchanged.
    pub fn keep(&mut self) {
        self.slots.push(*self.slot);
    }

    /// Emits the message with a null value.
    pub fn null(&mut self) {
        self.slots.push(Slot { value: Part::NONE, ..*self.slot });
    }

    /// Emits a part of the message's value.
    pub fn part(&mut self, range: std::ops::Range<usize>) {
        let value = self.slot.value;
        assert!(range.start <= range.end && range.end <= value.len as usize, "a part lies in its value");
        let start = value.start + range.start as u32;
        let value = Part { start, len: (range.end - range.start) as u32, ..value };
        self.slots.push(Slot { value, ..*self.slot });
    }

    /// Emits the message with the value that `write` writes.
    pub fn write<T, E>(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<T, E>) -> Result<T, E> {
        let start = self.written.len();
        match write(self.written) {
            Ok(done) => {
                let part = self.part_since(start);
                self.slots.push(Slot { value: part, ..*self.slot });
                Ok(done)
            }
            Err(error) => {
                self.written.truncate(start);
                Err(error)
            }
        }
    }

    /// Replaces the key of the last emitted message, or removes it.
    pub fn key(&mut self, key: Option<&[u8]>) {
        let Some(key) = key else { return self.change_extra(|extra| extra.key = Part::NONE) };
        let start = self.written.len();
        self.written.extend_from_slice(key);
        let key = self.part_since(start);
        self.change_extra(|extra| extra.key = key);
    }

    /// Replaces the headers of the last emitted message.
    pub fn headers<'h>(&mut self, headers: impl IntoIterator<Item = Header<'h>>) {
        let start = self.written.len();
        for header in headers {
            header.write(self.written);
        }
        let headers = if self.written.len() == start { Part::NONE } else { self.part_since(start) };
        self.change_extra(|extra| extra.headers = headers);
    }

    /// Gives the last message its own extra, because extras may be shared.
    fn change_extra(&mut self, change: impl FnOnce(&mut Extra)) {
        let Some(last) = self.slots.last_mut() else { return };
        let mut extra = self.extras.get(last.extra as usize).copied().unwrap_or(Extra::NONE);
        change(&mut extra);
        last.extra = add_extra(self.extras, extra);
    }

    fn part_since(&self, start: usize) -> Part {
        let end = u32::try_from(self.written.len()).expect("a batch writes less than 4 GiB");
        Part { buffer: self.next, start: start as u32, len: end - start as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(values: &[&'static str]) -> Batch {
        let mut batch = Batch::new();
        for (sequence, value) in (0..).zip(values) {
            batch.push(Bytes::from_static(value.as_bytes()), None, 7, sequence);
        }
        batch
    }

    fn values(batch: &Batch) -> Vec<String> {
        batch.messages().map(|message| String::from_utf8_lossy(message.value).into_owned()).collect()
    }

    #[test]
    fn a_message_becomes_nothing_itself_parts_or_new_values() {
        let mut batch = batch(&["drop", "keep", "a,b", "new"]);
        let rewritten: Result<(), ()> = batch.rewrite(|message, emit| {
            match message.value {
                b"drop" => {}
                b"a,b" => {
                    emit.part(0..1);
                    emit.part(2..3);
                }
                b"new" => {
                    emit.write(|out| {
                        out.extend_from_slice(b"written");
                        Ok(())
                    })?;
                    emit.key(Some(b"k"));
                }
                _ => emit.keep(),
            }
            Ok(())
        });
        assert_eq!(rewritten, Ok(()));
        assert_eq!(values(&batch), ["keep", "a", "b", "written"]);
        let summary: Vec<_> = batch.messages().map(|m| (m.key, m.sequence, m.time_ms)).collect();
        assert_eq!(summary, [(None, 1, 7), (None, 2, 7), (None, 2, 7), (Some(&b"k"[..]), 3, 7)]);
    }

    #[test]
    fn headers_stay_with_their_messages_and_may_be_others() {
        let mut gather = BatchBuilder::default();
        let trace = Header { name: "trace", value: Some(b"1") };
        gather.push(Some(b"a"), Some(b"k"), [trace], 0, 0);
        gather.push(Some(b"b"), None, [], 0, 1);
        let mut batch = gather.take();
        let rewritten: Result<(), ()> = batch.rewrite(|message, emit| {
            assert_eq!(message.headers.iter().count(), usize::from(message.value == b"a"));
            emit.keep();
            if message.value == b"b" {
                emit.headers([Header { name: "why", value: None }]);
                emit.key(Some(b"l"));
            }
            Ok(())
        });
        assert_eq!(rewritten, Ok(()));
        let mut both = self::batch(&["first"]);
        both.append(&batch);
        let summary: Vec<_> =
            both.messages().map(|m| (m.key, m.headers.iter().collect::<Vec<_>>())).collect();
        let why = Header { name: "why", value: None };
        assert_eq!(summary, [(None, vec![]), (Some(&b"k"[..]), vec![trace]), (Some(&b"l"[..]), vec![why])]);
        assert_eq!(both.messages().nth(1).and_then(|m| m.headers.get("trace")), Some(Some(&b"1"[..])));
    }

    #[test]
    fn no_value_stays_none_until_one_is_written() {
        let mut gather = BatchBuilder::default();
        gather.push(None, Some(b"a"), [], 0, 0);
        gather.push(Some(b""), Some(b"b"), [], 0, 1);
        let mut batch = batch(&["before"]);
        batch.append(&gather.take());
        let summary =
            |batch: &Batch| batch.messages().map(|m| (m.value.len(), m.is_null)).collect::<Vec<_>>();
        assert_eq!(summary(&batch), [(6, false), (0, true), (0, false)]);
        assert!(batch.value(1).is_empty());
        let rewritten = batch.rewrite(|message, emit| {
            match message.sequence {
                0 => {
                    emit.keep();
                    emit.key(Some(b"c"));
                    emit.part(0..0);
                }
                _ => emit.write(|out| {
                    out.extend_from_slice(b"x");
                    Ok::<_, ()>(())
                })?,
            }
            Ok(())
        });
        assert_eq!(rewritten, Ok::<_, ()>(()));
        let expected = [(6, false), (0, false), (0, true), (0, true), (1, false)];
        assert_eq!(summary(&batch), expected);
    }

    #[test]
    fn what_was_half_written_is_taken_back() {
        let mut batch = batch(&["bad", "good"]);
        let rewritten: Result<(), ()> = batch.rewrite(|message, emit| {
            let _ = emit.write(|out| {
                out.extend_from_slice(message.value);
                if message.value == b"bad" { Err(()) } else { Ok(()) }
            });
            Ok(())
        });
        assert_eq!(rewritten, Ok(()));
        assert_eq!(values(&batch), ["good"]);
    }

    #[test]
    fn a_run_lies_in_one_buffer_or_shares_its_bytes() {
        let mut batch = Batch::new();
        batch.push_run(Bytes::from_static(b"aabb"), 2, 2, false, 0, 5);
        batch.push_run(Bytes::from_static(b"cc"), 2, 2, true, 0, 7);
        assert_eq!(values(&batch), ["aa", "bb", "cc", "cc"]);
        assert_eq!(batch.messages().map(|m| m.sequence).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert_eq!((batch.value_bytes(), batch.last_sequence()), (8, Some(8)));
    }

    #[test]
    fn copies_of_parts_share_the_copy_of_their_key() {
        let mut batch = Batch::new();
        batch.push(vec![b'v'; 4096].into(), Some(vec![b'k'; 1 << 16].into()), 7, 5);
        batch.push(Bytes::from_static(b"last"), None, 8, 6);
        let rewritten: Result<(), ()> = batch.rewrite(|message, emit| {
            (0..message.value.len()).for_each(|at| emit.part(at..at + 1));
            Ok(())
        });
        assert_eq!(rewritten, Ok(()));
        let copies = batch.compact();
        assert!(copies.messages().eq(batch.messages()));
        assert!(copies.held_bytes() < 1 << 20, "{}", copies.held_bytes());
        for index in [0, 4095, 4096, 4099] {
            assert!(copies.single(index).messages().eq(batch.messages().skip(index).take(1)));
            assert!(batch.single(index).messages().eq(batch.messages().skip(index).take(1)));
        }
        // Nulls, and values of an empty buffer.
        let mut gather = BatchBuilder::default();
        gather.push(None, None, [], 0, 0);
        gather.push(Some(b""), Some(b""), [], 0, 1);
        let batch = gather.take();
        assert!(batch.compact().messages().eq(batch.messages()));
        assert!(batch.single(1).messages().eq(batch.messages().skip(1)));
    }

    #[test]
    fn appended_messages_share_their_buffers() {
        let mut both = batch(&["a"]);
        let mut other = Batch::new();
        other.push(Bytes::from_static(b"b"), Some(Bytes::from_static(b"k")), 0, 9);
        both.append(&other);
        assert_eq!(values(&both), ["a", "b"]);
        assert_eq!(both.messages().nth(1).and_then(|m| m.key), Some(&b"k"[..]));
        assert_eq!(&both.value(1)[..], b"b");
    }
}
