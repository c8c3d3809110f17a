//! The trail of a node, and the tasks that write it.

mod topic;

use crate::audit::AuditedConnection;
use crate::broker::Broker;
use crate::secured::SecuredListeners;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use thalweg_audit::{Client, FileError, Inbox, Origin, Trail, TrailFile};
use thalweg_config::BrokerConfig;
use thalweg_controller::Witness;
use thalweg_net::{CertificateObserver, Machine};
use thalweg_security::acl::Decision;
use thalweg_security::tls::TlsHandshakeFault;
use tokio::task::JoinSet;
use topic::TopicWriter;

/// The names of the outlets.
const FILE: &str = "file";
const TOPIC: &str = "topic";
/// Maximum wait of a stop for the last events.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// A node's trail, open until dropped.
#[derive(Debug, Default)]
pub(crate) struct Trails {
    trail: Option<Arc<Trail>>,
    /// The topic's inbox, until a broker writes it.
    topic: Option<Inbox>,
    writing_file: JoinSet<()>,
    writing_topic: JoinSet<()>,
}

impl Trails {
    /// Opens the configured trail, if any, and starts to write its file.
    pub fn open(machine: &Machine, config: &BrokerConfig, cluster_id: &str) -> Result<Trails, FileError> {
        let settings = &config.audit;
        let topic = settings.topic.as_ref().filter(|_| config.node.roles.broker);
        if settings.file.is_none() && topic.is_none() {
            return Ok(Trails::default());
        }
        let origin = Origin { node_id: config.node.id, cluster_id: cluster_id.to_owned() };
        let mut trail = Trail::new(settings, machine.clock.clone());
        let mut writing_file = JoinSet::new();
        if let Some(path) = &settings.file {
            let file = machine.disk.work_in_place(|| TrailFile::open(&machine.disk, path, settings))?;
            let inbox = trail.add_outlet(FILE, origin.clone());
            writing_file.spawn(file.run(inbox));
        }
        let topic = topic.map(|_| trail.add_outlet(TOPIC, origin));
        Ok(Trails { trail: Some(Arc::new(trail)), topic, writing_file, writing_topic: JoinSet::new() })
    }

    /// The trail, if there is one.
    pub fn trail(&self) -> Option<&Arc<Trail>> {
        self.trail.as_ref()
    }

    /// A witness for the decisions of the embedded controller.
    pub fn witness(&self) -> Option<Arc<dyn Witness>> {
        let trail = Arc::clone(self.trail.as_ref()?);
        Some(Arc::new(ControllerWitness(trail)))
    }

    /// Records clients that these listeners refuse by certificate.
    pub fn observe(&self, listeners: &SecuredListeners) {
        if let Some(trail) = &self.trail {
            let observer: Arc<dyn CertificateObserver> = Arc::new(TurnedAway(Arc::clone(trail)));
            listeners.observe(&observer);
        }
    }

    /// Starts to write the topic through a running broker.
    pub fn write_topic(&mut self, broker: &Arc<Broker>, name: &str) {
        if let Some(inbox) = self.topic.take() {
            let broker: Weak<Broker> = Arc::downgrade(broker);
            self.writing_topic.spawn(TopicWriter::new(broker, name).run(inbox));
        }
    }

    /// Lets the writer of the topic finish, and ends it.
    pub async fn close_topic(&mut self) {
        if let Some(trail) = &self.trail {
            trail.close(TOPIC);
            finish(&mut self.writing_topic).await;
        }
    }

    /// Lets the writer of the file finish, and ends it.
    pub async fn close(mut self) {
        if let Some(trail) = &self.trail {
            trail.close(FILE);
            finish(&mut self.writing_file).await;
        }
    }
}

async fn finish(writing: &mut JoinSet<()>) {
    let written = async { while writing.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_EVENTS, written).await.is_err() {
        tracing::warn!("The last audit events could not be written in time");
        writing.shutdown().await;
    }
}

/// Records clients with refused certificates.
#[derive(Debug)]
struct TurnedAway(Arc<Trail>);

impl CertificateObserver for TurnedAway {
    fn turned_away(&self, listener: &str, address: SocketAddr, reason: &TlsHandshakeFault) {
        AuditedConnection::at(&self.0, address, listener, None).certificate_refused(reason);
    }
}

/// Records decisions of the embedded controller, with the client's principal and address.
#[derive(Debug)]
struct ControllerWitness(Arc<Trail>);

impl Witness for ControllerWitness {
    fn wants_permissions(&self) -> bool {
        self.0.wants(thalweg_config::AuditKind::Allowed)
    }

    fn note(&self, decision: &Decision<'_>, client_id: Option<&str>) {
        self.0.record_decision(decision, || Client {
            principal: decision.principal.to_owned(),
            host: decision.host.to_owned(),
            client_id: client_id.map(str::to_owned),
            ..Client::default()
        });
    }
}
