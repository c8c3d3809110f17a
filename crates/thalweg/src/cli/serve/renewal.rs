//! The certificate of a running node: signed again in time, or its expiry logged. The listeners follow the
//! file.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use thalweg_authority::Directory;

/// Interval of checking the certificate: an operator may have installed another one that expires soon.
const LOOK: Duration = Duration::from_secs(30);
/// Checks between two warnings: a day.
const QUIET_LOOKS: u32 = 24 * 60 * 2;

/// Checks a node's certificate at intervals. Never returns.
pub async fn run(directory: Arc<Directory>, node: u32, hosts: Vec<String>) {
    let mut quiet = 0;
    loop {
        let looked = directory.node_certificate(node, &hosts, Utc::now());
        let warning = match looked {
            Ok(certificate) if certificate.is_new => {
                tracing::info!(file = %certificate.file.display(), "Signed this node's certificate again");
                None
            }
            Ok(certificate) => certificate.ends_in_days.map(|days| ending(&directory, node, days)),
            Err(error) => Some(error.to_string()),
        };
        if let Some(warning) = warning.filter(|_| quiet == 0) {
            tracing::warn!("{warning}");
            quiet = QUIET_LOOKS;
        }
        quiet = quiet.saturating_sub(1);
        tokio::time::sleep(LOOK).await;
    }
}

fn ending(directory: &Directory, node: u32, days: i64) -> String {
    format!(
        "The certificate node-{node}.pem in {} ends in {days} days: sign another where the authority is (thalweg security \
         certificate node) and copy it here; no restart is needed",
        directory.path().display()
    )
}
