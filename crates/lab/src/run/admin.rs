//! The lab's own client of a cluster in a run: it makes and removes topics, by Kafka's protocol or by the
//! admin API of Apache Pulsar.

use std::time::Duration;

use super::error::Failure;
use super::topics;
use crate::evidence::PULSAR_SUBSCRIPTION;
use crate::target::{self, Cluster, PulsarAdmin, TargetSpec};
use crate::worker::Driver;
use crate::workload::{Point, Topics};

/// Time limit of making all topics in a cluster of Pulsar.
const CREATE_TIMEOUT: Duration = Duration::from_secs(300);

/// The lab's own client.
#[derive(Clone, Debug)]
pub(super) enum Admin {
    Kafka(thalweg_client::Cluster),
    Pulsar(PulsarAdmin),
}

impl Admin {
    /// Connects to a cluster.
    pub(super) async fn connect(cluster: &Cluster) -> Result<Admin, Failure> {
        match &cluster.pulsar_admin {
            Some(url) => {
                let admin = PulsarAdmin::new(url).map_err(target::TargetError::from)?;
                Ok(Admin::Pulsar(admin))
            }
            None => {
                let connected = target::connect(&cluster.bootstrap, &cluster.client_properties).await?;
                Ok(Admin::Kafka(connected))
            }
        }
    }

    /// The client of Kafka's protocol, if it is one.
    pub(super) fn kafka(&self) -> Option<&thalweg_client::Cluster> {
        match self {
            Admin::Kafka(cluster) => Some(cluster),
            Admin::Pulsar(_) => None,
        }
    }

    /// Makes topics. Those of Pulsar get a subscription that keeps their records until they are read back:
    /// without one, a broker may remove records that no other subscription waits for.
    pub(super) async fn create(&self, names: &[String], topics: &Topics) -> Result<(), Failure> {
        let admin = match self {
            Admin::Kafka(cluster) => return topics::create(cluster, names, topics).await,
            Admin::Pulsar(admin) => admin,
        };
        let creating = async {
            for name in names {
                admin.create_topic(name, topics.partitions, PULSAR_SUBSCRIPTION).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(CREATE_TIMEOUT, creating).await {
            Ok(created) => created,
            Err(_) => Err(Failure::NoLeaders {
                led: 0,
                partitions: names.len() * topics.partitions as usize,
                waited: CREATE_TIMEOUT,
            }),
        }
    }

    /// Deletes topics. Missing topics are no error.
    pub(super) async fn delete(&self, names: &[String]) -> Result<(), Failure> {
        match self {
            Admin::Kafka(cluster) => topics::delete(cluster, names).await,
            Admin::Pulsar(admin) => {
                for name in names {
                    admin.delete_topic(name).await?;
                }
                Ok(())
            }
        }
    }
}

/// What a point asks for that the lab does not do on Apache Pulsar.
pub(super) fn unserved_by_pulsar(spec: &TargetSpec, driver: Driver, point: &Point) -> Result<(), Failure> {
    if !spec.is_pulsar() || point.cluster.brokers == 0 {
        return Ok(());
    }
    let what = match driver {
        Driver::Thalweg if point.cluster.idle_connections > 0 => {
            "idle connections (cluster.idle_connections)"
        }
        Driver::Thalweg if point.cluster.idle_partitions > 0 => "idle partitions (cluster.idle_partitions)",
        Driver::Thalweg if point.topics.created_per_s > 0 => "temporary topics (topics.created_per_s)",
        Driver::Thalweg => return Ok(()),
        other => return Err(Failure::DriverOfKafka { driver: other.words() }),
    };
    Err(Failure::NotOnPulsar { what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::point;

    #[test]
    fn what_pulsar_lacks_is_refused_by_name() {
        let refusal = |driver, point: &Point| {
            unserved_by_pulsar(&TargetSpec::Pulsar, driver, point).map_err(|failure| failure.to_string())
        };
        let mut point = point();
        assert_eq!(refusal(Driver::Thalweg, &point), Ok(()));
        let text = refusal(Driver::Java, &point).expect_err("Kafka's tools");
        assert!(text.contains("java") && text.contains("--driver thalweg"), "{text}");
        point.cluster.idle_connections = 5;
        let text = refusal(Driver::Thalweg, &point).expect_err("no idle connections");
        assert!(text.contains("cluster.idle_connections"), "{text}");
        assert!(unserved_by_pulsar(&TargetSpec::Embedded, Driver::Java, &point).is_ok());
    }
}
