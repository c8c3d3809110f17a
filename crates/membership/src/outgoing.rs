//! Settings of connections to other nodes, whose files are read again for each connection: certificates change without a
//! restart. What cannot be read is logged, and what was read before is used.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_dial::{InvalidSetting, Properties, Security};

/// Security settings, and what was last read of their files. Clones share it.
#[derive(Clone, Debug)]
pub struct OutgoingSecurity {
    settings: Properties,
    last: Arc<Mutex<Last>>,
}

#[derive(Debug)]
struct Last {
    security: Security,
    /// Why the files could not be read since then, as logged.
    failure: Option<InvalidSetting>,
}

impl OutgoingSecurity {
    /// Checks the settings, and reads their files.
    pub fn new(settings: Properties) -> Result<OutgoingSecurity, InvalidSetting> {
        let security = Security::take(&mut settings.clone())?;
        Ok(OutgoingSecurity { settings, last: Arc::new(Mutex::new(Last { security, failure: None })) })
    }

    /// For another connection.
    pub async fn read(&self) -> Security {
        let earlier = self.last.lock().security.clone();
        if earlier.protocol() == Security::default().protocol() {
            return earlier;
        }
        let mut settings = self.settings.clone();
        let read = tokio::task::spawn_blocking(move || Security::take(&mut settings));
        let read = read.await.expect("reading settings does not panic");
        let mut last = self.last.lock();
        match read {
            Ok(security) => *last = Last { security, failure: None },
            // Connections are tried again many times in a second.
            Err(error) if last.failure.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "Failed to read the certificates of this node again, keeping the earlier ones");
                last.failure = Some(error);
            }
        }
        last.security.clone()
    }
}
