//! The latest image, shared by all readers.

use crate::Image;
use parking_lot::RwLock;
use std::sync::Arc;

/// The latest image of the cluster.
#[derive(Debug)]
pub struct ImageCell(RwLock<Arc<Image>>);

impl ImageCell {
    /// A cell with the empty image.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(Image::empty()))))
    }

    /// The latest image.
    pub fn get(&self) -> Arc<Image> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the image.
    pub fn set(&self, image: Arc<Image>) {
        *self.0.write() = image;
    }
}
