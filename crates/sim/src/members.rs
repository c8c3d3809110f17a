//! Members of a consumer group: each reads its partitions and commits its position. Invariant: the new owner
//! of a partition starts at the last acknowledged commit or later, never before it.

use crate::chance::Chance;
use crate::clients::{AGAIN, Clients};
use crate::history::{GROUP, TOPIC};
use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_client::{
    Cluster, Consumer, ConsumerConfig, ConsumerError, OffsetReset, PollEvent, TopicPartition,
};

/// The shortest session timeout that brokers allow.
const SESSION: Duration = Duration::from_secs(6);

impl Clients {
    /// Joins, reads and leaves repeatedly, as long as the future is polled.
    pub(crate) async fn be_member(self, id: u32) {
        let mut chance = Chance::new(self.seed, 2000 + u64::from(id));
        loop {
            let cluster = self.cluster(&format!("member-{id}")).await;
            if let Err(error) = self.be_member_once(id, cluster, &mut chance).await {
                tracing::info!(id, %error, "Restarting a member");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Runs from joining to leaving. A commit with unknown outcome also ends the membership: as long as a
    /// member with this name and generation exists, the commit may still arrive.
    async fn be_member_once(
        &self,
        id: u32,
        cluster: Cluster,
        chance: &mut Chance,
    ) -> Result<(), ConsumerError> {
        let config = ConsumerConfig {
            group: Some(GROUP.to_owned()),
            session_timeout: SESSION,
            heartbeat_interval: Duration::from_millis(500),
            rebalance_timeout: SESSION,
            offset_reset: OffsetReset::Earliest,
            auto_commit: None,
            fetch_wait_max: Duration::from_millis(100),
            metadata_max_age: Duration::from_secs(5),
            connection: self.options(format!("member-{id}")),
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(cluster, config);
        consumer.subscribe(vec![TOPIC.to_owned()])?;
        loop {
            let before = self.history.with(|known| known.committed.clone());
            if let PollEvent::Assigned(_) = consumer.poll(Duration::from_millis(300)).await? {
                self.check_positions(id, &consumer, &before, "begins at");
            }
            if chance.one_in(4) {
                self.commit(id, &mut consumer).await?;
            }
            if chance.one_in(300) {
                return consumer.close().await;
            }
        }
    }

    async fn commit(&self, id: u32, consumer: &mut Consumer) -> Result<(), ConsumerError> {
        let before = self.history.with(|known| known.committed.clone());
        consumer.commit().await?;
        // A commit for partitions that now belong to another member must have been refused.
        self.check_positions(id, consumer, &before, "has committed");
        for (partition, position) in positions(consumer) {
            // Another member may have continued from this position before this answer arrived.
            self.history.with(|known| {
                let committed = known.committed.entry(partition).or_default();
                *committed = position.max(*committed);
            });
        }
        Ok(())
    }

    fn check_positions(&self, id: u32, consumer: &Consumer, committed: &BTreeMap<i32, i64>, did: &str) {
        for (partition, position) in positions(consumer) {
            let least = committed.get(&partition).copied().unwrap_or(0);
            if position < least {
                self.history.violation(format!(
                    "partition {partition}: member {id} {did} {position}, although the commit of {least} was acknowledged"
                ));
            }
        }
    }
}

/// The position of a consumer in each of its partitions.
fn positions(consumer: &Consumer) -> BTreeMap<i32, i64> {
    let position = |at: TopicPartition| Some((at.partition, consumer.position(&at)?.0));
    consumer.assignment().filter_map(position).collect()
}
