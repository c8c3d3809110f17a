//! Copies of messages in flight, from which a message is taken that the cluster refuses for good. A copy is
//! dropped soon after its delivery. Pure.

use std::ops::Range;

use crate::message::Batch;

/// Copies of messages that were registered together. A message is identified by its place among them.
pub struct Copies {
    messages: Batch,
    /// The place of each copy, ascending, and whether its message is delivered.
    places: Vec<(u32, bool)>,
    /// The number of copies of delivered messages, and the size of their values.
    delivered: usize,
    delivered_bytes: u64,
    bytes: u64,
}

impl Copies {
    /// Copies of all messages of a batch.
    pub fn of(batch: &Batch) -> Copies {
        let messages = batch.compact();
        let bytes = messages.held_bytes();
        let places = (0..messages.len() as u32).map(|place| (place, false)).collect();
        Copies { messages, places, delivered: 0, delivered_bytes: 0, bytes }
    }

    /// The memory of the copies.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The copy of an undelivered message.
    pub fn get(&self, place: u64) -> Option<Batch> {
        let index = self.places.binary_search_by_key(&place, |(place, _)| u64::from(*place)).ok()?;
        Some(self.messages.single(index))
    }

    /// Drops the copies of some messages, when they are half of all.
    pub fn drop_some(&mut self, places: Range<u64>) {
        let from = self.places.partition_point(|(place, _)| u64::from(*place) < places.start);
        let lengths = self.messages.messages().skip(from).map(|message| message.value.len() as u64);
        for ((place, is_delivered), len) in self.places[from..].iter_mut().zip(lengths) {
            if u64::from(*place) >= places.end {
                break;
            }
            if !std::mem::replace(is_delivered, true) {
                self.delivered += 1;
                self.delivered_bytes += len;
            }
        }
        if self.delivered * 2 < self.places.len() && self.delivered_bytes * 2 < self.bytes {
            return;
        }
        let mut places = self.places.iter();
        self.messages.retain(|_| places.next().is_some_and(|(_, is_delivered)| !is_delivered));
        self.places.retain(|(_, is_delivered)| !is_delivered);
        self.messages = self.messages.compact();
        self.bytes = self.messages.held_bytes();
        (self.delivered, self.delivered_bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_delivered_messages_are_dropped() {
        let mut batch = Batch::new();
        for (sequence, len) in [(10, 10), (11, 100_000), (12, 10), (13, 10), (14, 10)] {
            batch.push(vec![sequence as u8; len].into(), None, 0, sequence);
        }
        let mut copies = Copies::of(&batch);
        assert!(copies.bytes() > 100_000);
        copies.drop_some(1..2);
        assert!(copies.bytes() < 1000, "the largest one is delivered");
        copies.drop_some(0..1);
        let sequence = |copies: &Copies, place| {
            let message = copies.get(place)?;
            message.messages().next().map(|message| (message.sequence, message.value.to_vec()))
        };
        for place in 2..5 {
            let number = place as u8 + 10;
            assert_eq!(sequence(&copies, place), Some((u64::from(number), vec![number; 10])));
        }
        copies.drop_some(2..4);
        assert_eq!((sequence(&copies, 1), sequence(&copies, 2)), (None, None));
        assert_eq!(sequence(&copies, 4), Some((14, vec![14; 10])));
        copies.drop_some(0..5);
        assert_eq!((copies.places.len(), copies.get(4).is_none()), (0, true));
    }
}
