//! Client properties of Thalweg's driver.

use thalweg_client::Properties;

use crate::worker::Assignment;

/// The assignment's properties, with a `client.id` for client `number`.
pub(super) fn properties(assignment: &Assignment, kind: &str, number: u32) -> Properties {
    let mut properties = Properties::new();
    for (key, value) in &assignment.properties {
        properties.set(key, value);
    }
    // The assignment sets the brokers, and overrides a properties file.
    properties.take("bootstrap.servers");
    properties.set_default("client.id", &format!("thalweg-lab-{kind}-{number}"));
    properties
}

/// A note on properties without effect, for readers of the result.
pub(super) fn note_rest(properties: &Properties) -> Option<String> {
    let rest: Vec<&str> = properties.rest().collect();
    (!rest.is_empty())
        .then(|| format!("Properties without effect, unknown to the driver thalweg: {}", rest.join(", ")))
}
