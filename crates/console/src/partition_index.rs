//! The partition index of a request: a number, or the text of one. Forms send texts, and answers of the API
//! have numbers.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The forms of the field.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a partition index")]
enum PartitionIndex {
    Number(i32),
    Text(String),
    Nothing(()),
}

/// The index as text; empty without one.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match PartitionIndex::deserialize(deserializer)? {
        PartitionIndex::Number(index) => index.to_string(),
        PartitionIndex::Text(text) => text,
        PartitionIndex::Nothing(()) => String::new(),
    })
}

/// The index as a number; none without one.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    match PartitionIndex::deserialize(deserializer)? {
        PartitionIndex::Number(index) => Ok(Some(index)),
        PartitionIndex::Text(text) if text.trim().is_empty() => Ok(None),
        PartitionIndex::Text(text) => {
            text.trim().parse().map(Some).map_err(|_| D::Error::custom(format!("{text:?} is not a number")))
        }
        PartitionIndex::Nothing(()) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn an_index_is_a_number_or_its_text() {
        let text = |value: Value| super::text(value).map_err(|wrong| wrong.to_string());
        assert_eq!(text(json!(1)).as_deref(), Ok("1"));
        assert_eq!(text(json!("1")).as_deref(), Ok("1"));
        assert_eq!(text(json!(null)).as_deref(), Ok(""));
        assert_eq!(text(json!([1])), Err("expected a partition index".to_owned()));
        let number = |value: Value| super::number(value).map_err(|wrong| wrong.to_string());
        assert_eq!(number(json!(1)), Ok(Some(1)));
        assert_eq!(number(json!("1")), Ok(Some(1)));
        assert_eq!(number(json!("")), Ok(None));
        assert_eq!(number(json!(null)), Ok(None));
        assert_eq!(number(json!("x")), Err("\"x\" is not a number".to_owned()));
    }
}
