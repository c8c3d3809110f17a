//! The definition of a hosted stream, and its record in the topic of definitions, keyed by the stream's name.
//!
//! ```json
//! {"version": 1, "definition": "time | log", "principal": "User:ann",
//!  "deployed": {"node": 1, "properties": {"module.log.count": "2"}}}
//! ```
//!
//! The principal is the user who created the stream, or deployed it last; older records have none. A stream
//! that is not deployed has no `deployed`; a destroyed stream has a null value. Unknown fields are ignored,
//! unknown versions rejected.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::deployment::pairs;

/// Version of written records, and the newest readable version.
const VERSION: u64 = 1;

/// The definition of a hosted stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The stream's text.
    pub text: String,
    /// The principal whose rights the stream has, such as `User:ann`; `None` in older records.
    pub principal: Option<String>,
    /// The deployment; `None` if undeployed.
    pub deployed: Option<NodeDeployment>,
}

/// A deployment on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDeployment {
    /// The node that runs the stream: the node that received the request.
    pub node: i32,
    /// The properties of the deployment.
    pub properties: BTreeMap<String, String>,
}

/// A record that is not a valid definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The definition of the stream {name} cannot be read: {reason}")]
pub struct UnreadableDefinition {
    /// The key of the record.
    pub name: String,
    /// The fault in the record.
    pub reason: String,
}

impl Definition {
    /// Encodes the record's value.
    pub fn to_record(&self) -> Vec<u8> {
        let mut value = json!({ "version": VERSION, "definition": self.text });
        if let Some(principal) = &self.principal {
            value["principal"] = json!(principal);
        }
        if let Some(deployed) = &self.deployed {
            value["deployed"] = json!({ "node": deployed.node, "properties": deployed.properties });
        }
        value.to_string().into_bytes()
    }

    /// Decodes a record's value.
    pub fn from_record(name: &str, value: &[u8]) -> Result<Definition, UnreadableDefinition> {
        let unreadable = |reason: String| UnreadableDefinition { name: name.to_owned(), reason };
        let value: Value = serde_json::from_slice(value).map_err(|error| unreadable(error.to_string()))?;
        match value["version"].as_u64() {
            Some(1..=VERSION) => {}
            _ => {
                let reason = format!(
                    "version {} is unknown; this program reads versions up to {VERSION}",
                    value["version"]
                );
                return Err(unreadable(reason));
            }
        }
        let text = value["definition"]
            .as_str()
            .ok_or_else(|| unreadable("definition is not a string".to_owned()))?;
        let deployed = match &value["deployed"] {
            Value::Null => None,
            deployed => {
                let node = deployed["node"].as_i64().and_then(|node| i32::try_from(node).ok());
                Some(NodeDeployment {
                    node: node.ok_or_else(|| unreadable("deployed.node is not a node id".to_owned()))?,
                    properties: properties(&deployed["properties"]).map_err(unreadable)?,
                })
            }
        };
        let principal = match &value["principal"] {
            Value::Null => None,
            Value::String(principal) => Some(principal.clone()),
            _ => return Err(unreadable("principal is not a string".to_owned())),
        };
        Ok(Definition { text: text.to_owned(), principal, deployed })
    }
}

/// Properties from `key=value` text or a JSON object.
pub fn properties(value: &Value) -> Result<BTreeMap<String, String>, String> {
    match value {
        Value::Null => Ok(BTreeMap::new()),
        Value::Object(object) => {
            object.iter().map(|(key, value)| Ok((key.clone(), scalar(key, value)?))).collect()
        }
        Value::String(text) => pairs(text).map_err(|wrong| wrong.to_string()),
        _ => Err("properties must be \"key=value,...\" or an object".to_owned()),
    }
}

fn scalar(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(format!("the property {key} cannot be {value}: use a string or a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_as_it_was_written() {
        let properties = BTreeMap::from([("module.*.count".to_owned(), "2".to_owned())]);
        let deployed = Some(NodeDeployment { node: 7, properties });
        for (deployed, principal) in [(None, Some("User:ann".to_owned())), (deployed, None)] {
            let definition = Definition { text: "time | log --name='ö|'".to_owned(), principal, deployed };
            assert_eq!(Definition::from_record("a", &definition.to_record()), Ok(definition));
        }
    }

    #[test]
    fn an_invalid_definition_is_reported_with_its_name() {
        for (record, part) in [
            ("", "EOF"),
            ("{}", "version null is unknown"),
            (r#"{"version":2}"#, "version 2 is unknown; this program reads versions up to 1"),
            (r#"{"version":1}"#, "definition is not a string"),
            (r#"{"version":1,"definition":"a","deployed":{}}"#, "deployed.node"),
            (r#"{"version":1,"definition":"a","principal":7}"#, "principal is not a string"),
            (
                r#"{"version":1,"definition":"a","deployed":{"node":1,"properties":{"a":[]}}}"#,
                "the property a cannot be []",
            ),
        ] {
            let error = Definition::from_record("orders", record.as_bytes()).expect_err(record).to_string();
            assert!(error.contains("stream orders") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn properties_are_a_text_or_an_object() {
        let expected = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "x".to_owned())]);
        assert_eq!(properties(&json!("a=1, b=x")), Ok(expected.clone()));
        assert_eq!(properties(&json!({"a": 1, "b": "x"})), Ok(expected));
        assert_eq!(properties(&Value::Null), Ok(BTreeMap::new()));
        assert!(properties(&json!("a")).is_err_and(|error| error.contains("use a=VALUE")));
        assert!(properties(&json!(7)).is_err());
    }
}
