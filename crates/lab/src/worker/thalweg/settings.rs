//! Client properties for the own driver.

use thalweg_client::Properties;

use crate::worker::Assignment;

/// The assignment's properties, with a `client.id` for client `number`.
pub(super) fn properties(assignment: &Assignment, kind: &str, number: u32) -> Properties {
    let mut properties = Properties::new();
    for (key, value) in &assignment.properties {
        properties.set(key, value);
    }
    // The brokers are the assignment's, whatever a file of properties says.
    properties.take("bootstrap.servers");
    properties.set_default("client.id", &format!("thalweg-lab-{kind}-{number}"));
    properties
}

/// What a reader of the result must know about properties that had no effect.
pub(super) fn note_rest(properties: &Properties) -> Option<String> {
    let rest: Vec<&str> = properties.rest().collect();
    (!rest.is_empty()).then(|| {
        format!("The driver thalweg does not know these properties, which had no effect: {}", rest.join(", "))
    })
}
