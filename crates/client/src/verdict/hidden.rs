//! Topics that exist and that the login may not describe. A list of all topics leaves them out silently.

use thalweg_dial::{ClientError, Connection};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::MetadataRequest;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;

/// The number of hidden topics among these names, which are in log directories and not in the list of topics.
/// Only a request by name distinguishes a hidden topic from one that was deleted meanwhile.
pub async fn hidden_topics(broker: &Connection, names: Vec<String>) -> Result<usize, ClientError> {
    if names.is_empty() {
        return Ok(0);
    }
    let topics = names
        .into_iter()
        .map(|name| MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() });
    let request = MetadataRequest {
        topics: Some(topics.collect()),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let denied = ErrorCode::TopicAuthorizationFailed.code();
    let response = broker.send(&request).await?;
    Ok(response.topics.iter().filter(|topic| topic.error_code == denied).count())
}
