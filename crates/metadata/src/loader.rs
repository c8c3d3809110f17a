//! Conversion of log batches to images (Kafka's `MetadataBatchLoader`), on batch boundaries and never within
//! a metadata transaction (KIP-868).

use crate::{Delta, Image, Provenance, ReplayError};
use std::sync::Arc;
use thalweg_wire::MetadataRecord;

/// A published image, with the changes since the last one.
#[derive(Clone, Debug)]
pub struct PublishedImage {
    /// The changes since the last published image.
    pub delta: Delta,
    /// The published image.
    pub image: Arc<Image>,
}

/// Replays batches and publishes images.
#[derive(Debug)]
pub struct Loader {
    image: Arc<Image>,
    delta: Delta,
    provenance: Provenance,
    /// The delta before the open transaction, restored if the transaction is aborted.
    before_transaction: Option<Box<Delta>>,
}

impl Loader {
    /// Creates a loader that continues from an image.
    pub fn new(image: Arc<Image>) -> Loader {
        Loader {
            delta: Delta::new(image.clone()),
            provenance: image.provenance(),
            image,
            before_transaction: None,
        }
    }

    /// The last published image, or the initial one.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// The last loaded offset, published or not; -1 for none.
    pub fn offset(&self) -> i64 {
        self.provenance.offset
    }

    /// The epoch of the last loaded batch.
    pub fn epoch(&self) -> i32 {
        self.provenance.epoch
    }

    /// True while a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.before_transaction.is_some()
    }

    /// Replayed records that are not published.
    pub fn pending(&self) -> &Delta {
        &self.delta
    }

    /// Loads a batch that ends at `last`. A control batch has no records here, and only advances the offset.
    pub fn load<'a>(
        &mut self,
        last: Provenance,
        records: impl IntoIterator<Item = &'a MetadataRecord>,
    ) -> Result<(), ReplayError> {
        for record in records {
            self.load_record(record)?;
        }
        self.provenance = last;
        Ok(())
    }

    fn load_record(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::BeginTransaction(_) => {
                if self.in_transaction() {
                    return Err(ReplayError::TransactionWithinTransaction);
                }
                self.before_transaction = Some(Box::new(self.delta.clone()));
                Ok(())
            }
            MetadataRecord::EndTransaction(_) => {
                self.before_transaction.take().map(drop).ok_or(ReplayError::NoTransaction)
            }
            MetadataRecord::AbortTransaction(_) => {
                self.delta = *self.before_transaction.take().ok_or(ReplayError::NoTransaction)?;
                Ok(())
            }
            record => self.delta.replay(record),
        }
    }

    /// Publishes all batches loaded since the last call. `None` without new batches, or while a transaction
    /// is open.
    pub fn publish(&mut self) -> Option<PublishedImage> {
        if self.in_transaction() || self.provenance == self.image.provenance() {
            return None;
        }
        let mut delta = std::mem::replace(&mut self.delta, Delta::new(self.image.clone()));
        self.image = delta.apply(self.provenance);
        self.delta = Delta::new(self.image.clone());
        Some(PublishedImage { delta, image: self.image.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::Uuid;
    use thalweg_wire::metadata::{
        AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, TopicRecord,
    };

    fn topic(name: &str, id: u128) -> MetadataRecord {
        MetadataRecord::Topic(TopicRecord { name: name.to_owned(), topic_id: Uuid(id) })
    }

    fn begin() -> MetadataRecord {
        MetadataRecord::BeginTransaction(BeginTransactionRecord::default())
    }

    fn at(offset: i64) -> Provenance {
        Provenance { offset, epoch: 1, timestamp_ms: 0 }
    }

    #[test]
    fn a_batch_becomes_an_image() {
        let mut loader = Loader::new(Arc::new(Image::empty()));
        assert!(loader.publish().is_none());
        loader.load(at(1), &[topic("a", 101), topic("b", 102)]).unwrap();
        let published = loader.publish().unwrap();
        assert_eq!(published.image.offset(), 1);
        assert_eq!(published.image.topics().len(), 2);
        assert_eq!(published.delta.created_topics().count(), 2);
        assert!(loader.publish().is_none());
    }

    #[test]
    fn nothing_is_published_within_a_transaction() {
        let mut loader = Loader::new(Arc::new(Image::empty()));
        loader.load(at(1), &[begin(), topic("a", 101)]).unwrap();
        assert!(loader.publish().is_none());
        loader.load(at(2), &[topic("b", 102)]).unwrap();
        assert!(loader.publish().is_none());
        let end = MetadataRecord::EndTransaction(EndTransactionRecord::default());
        loader.load(at(3), &[end]).unwrap();
        assert_eq!(loader.publish().unwrap().image.topics().len(), 2);
    }

    #[test]
    fn an_aborted_transaction_leaves_no_trace() {
        let mut loader = Loader::new(Arc::new(Image::empty()));
        loader.load(at(0), &[topic("kept", 100)]).unwrap();
        loader.load(at(2), &[begin(), topic("a", 101)]).unwrap();
        let abort = MetadataRecord::AbortTransaction(AbortTransactionRecord::default());
        loader.load(at(3), &[abort]).unwrap();
        let published = loader.publish().unwrap();
        assert_eq!(published.image.offset(), 3);
        assert!(published.image.topic("a").is_none() && published.image.topic("kept").is_some());
        assert_eq!(published.delta.changes().created_topics.len(), 1);
    }

    #[test]
    fn brackets_must_match() {
        let mut loader = Loader::new(Arc::new(Image::empty()));
        let end = MetadataRecord::EndTransaction(EndTransactionRecord::default());
        assert_eq!(loader.load(at(0), &[end]), Err(ReplayError::NoTransaction));
        loader.load(at(0), &[begin()]).unwrap();
        assert_eq!(loader.load(at(1), &[begin()]), Err(ReplayError::TransactionWithinTransaction));
    }
}
