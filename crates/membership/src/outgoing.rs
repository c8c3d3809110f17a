//! Security settings of outgoing connections. Their files are read again for each connection, because
//! certificates change without a restart. If files cannot be read, the error is logged, and the previous
//! contents are used.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_dial::{InvalidSetting, Properties, Security};

/// Security settings, and the last contents of their files. Clones share both.
#[derive(Clone, Debug)]
pub struct OutgoingSecurity {
    settings: Properties,
    last: Arc<Mutex<LastContents>>,
}

#[derive(Debug)]
struct LastContents {
    security: Security,
    /// Why the files could not be read since then, as logged.
    failure: Option<InvalidSetting>,
}

impl OutgoingSecurity {
    /// Checks the settings and reads their files.
    pub fn new(settings: Properties) -> Result<OutgoingSecurity, InvalidSetting> {
        let security = Security::take(&mut settings.clone())?;
        Ok(OutgoingSecurity {
            settings,
            last: Arc::new(Mutex::new(LastContents { security, failure: None })),
        })
    }

    /// The security of a new connection.
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
            Ok(security) => *last = LastContents { security, failure: None },
            // Connections are retried many times a second, so a repeated error is not logged.
            Err(error) if last.failure.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "Failed to read the certificates of this node again, keeping the earlier ones");
                last.failure = Some(error);
            }
        }
        last.security.clone()
    }
}
