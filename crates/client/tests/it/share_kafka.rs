//! Share groups of Apache Kafka. The broker's tests run the same against Thalweg.

use crate::kafka::kafka;
use crate::sharing;

#[tokio::test]
async fn a_share_group_shares_records() {
    let Some(kafka) = kafka().await else { return };
    sharing::a_share_group_shares_records(&kafka.bootstrap).await;
}
