//! Client properties for the own driver.

use thalweg_client::Properties;

use super::UnservedSecurity;
use crate::worker::{Assignment, WorkerError};

/// The assignment's properties, with a `client.id` for client `number`. TLS and SASL are refused by name.
pub(super) fn properties(
    assignment: &Assignment,
    kind: &str,
    number: u32,
) -> Result<Properties, WorkerError> {
    let mut properties = Properties::new();
    for (key, value) in &assignment.properties {
        refuse_security(key, value).map_err(WorkerError::driver)?;
        properties.set(key, value);
    }
    // The brokers are the assignment's, whatever a file of properties says.
    properties.take("bootstrap.servers");
    properties.set_default("client.id", &format!("thalweg-lab-{kind}-{number}"));
    Ok(properties)
}

fn refuse_security(key: &str, value: &str) -> Result<(), UnservedSecurity> {
    let plain = key == "security.protocol" && value.trim() == "PLAINTEXT";
    let asks = key == "security.protocol" || key.starts_with("ssl.") || key.starts_with("sasl.");
    if plain || !asks {
        return Ok(());
    }
    let secret =
        key.contains("password") || key.contains("jaas") || key.contains("key") || key.contains("secret");
    let value = if secret { "(hidden)" } else { value };
    Err(UnservedSecurity { key: key.to_owned(), value: value.to_owned() })
}

/// What a reader of the result must know about properties that had no effect.
pub(super) fn note_rest(properties: &Properties) -> Option<String> {
    let rest: Vec<&str> = properties.rest().collect();
    (!rest.is_empty()).then(|| {
        format!("The driver thalweg does not know these properties, which had no effect: {}", rest.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_is_refused_by_name_and_secrets_are_not_repeated() {
        assert_eq!(refuse_security("security.protocol", "PLAINTEXT"), Ok(()));
        assert_eq!(refuse_security("acks", "1"), Ok(()));
        let error = refuse_security("security.protocol", "SASL_SSL").expect_err("refused");
        assert_eq!(
            error.to_string(),
            "security.protocol=SASL_SSL: the driver thalweg speaks neither TLS nor SASL yet; the drivers librdkafka \
             and java do (--driver librdkafka, --driver java)"
        );
        let error = refuse_security("sasl.jaas.config", "password='x'").expect_err("refused");
        assert!(error.to_string().starts_with("sasl.jaas.config=(hidden): "), "{error}");
    }
}
