//! Log lines in memory, for tests.

use std::io;
use std::sync::{Arc, Mutex};

/// A writer into memory. Clones share the text.
#[derive(Clone, Default)]
pub struct CapturedLines(Arc<Mutex<Vec<u8>>>);

impl CapturedLines {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic while it is held").clone()).expect("UTF-8")
    }
}

impl io::Write for CapturedLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic while it is held").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
