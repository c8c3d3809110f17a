//! Cluster permissions for requests outside Kafka's protocol, such as HTTP.

use crate::broker::Broker;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use thalweg_audit::{Client, Trail};
use thalweg_config::HTTP_LISTENER;
use thalweg_controller::Controller;
use thalweg_metadata::Image;
use thalweg_security::Principal;
use thalweg_security::acl::{
    Authorizer, CLUSTER_NAME, Decision, LoggedOutcomes, Operation, ResourceType, Rules, host_address,
};

/// The rights of principals on the cluster, by the ACLs of the latest image. Without an authorizer everything
/// is allowed.
pub struct ClusterRights {
    rulings: Rulings,
    trail: Option<Arc<Trail>>,
}

/// The source of the rules.
enum Rulings {
    /// The authorizer of a broker.
    Broker(Arc<Broker>),
    /// An own authorizer: a controller without a broker has one in its task only.
    Controller { controller: Arc<Controller>, followed: Option<Mutex<FollowingAuthorizer>> },
}

/// An authorizer that follows the images of a controller.
struct FollowingAuthorizer {
    image: Arc<Image>,
    authorizer: Arc<Authorizer>,
}

impl fmt::Debug for ClusterRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterRights")
    }
}

impl ClusterRights {
    pub(crate) fn of_broker(broker: Arc<Broker>) -> ClusterRights {
        ClusterRights { rulings: Rulings::Broker(broker), trail: None }
    }

    /// The rights with an audit trail for decisions.
    pub(crate) fn with_trail(self, trail: Option<&Arc<Trail>>) -> ClusterRights {
        ClusterRights { trail: trail.cloned(), ..self }
    }

    /// The trail, for logins.
    pub(crate) fn trail(&self) -> Option<&Arc<Trail>> {
        self.trail.as_ref()
    }

    /// The rights by these rules and the ACLs of the controller's image.
    pub(crate) fn of_controller(controller: Arc<Controller>, rules: Option<Rules>) -> ClusterRights {
        let followed = rules.map(|rules| {
            let authorizer = Arc::new(Authorizer::new(rules, []));
            Mutex::new(FollowingAuthorizer { image: Arc::default(), authorizer })
        });
        ClusterRights { rulings: Rulings::Controller { controller, followed }, trail: None }
    }

    /// Returns true if an operation on the cluster is allowed. `request` is for the log.
    pub fn allow(
        &self,
        principal: &Principal,
        address: IpAddr,
        operation: Operation,
        request: fmt::Arguments<'_>,
    ) -> bool {
        let Some(authorizer) = self.authorizer() else { return true };
        let host = host_address(address);
        let (resource_type, resource_name) = (ResourceType::Cluster, CLUSTER_NAME);
        let answer = authorizer.authorize(principal, &host, operation, resource_type, resource_name);
        let (principal, host, count) = (principal.as_str(), host.as_str(), 1);
        let decision = Decision {
            principal,
            host,
            request,
            operation,
            resource_type,
            resource_name,
            count,
            answer: &answer,
        };
        decision.log(LoggedOutcomes::Both);
        if let Some(trail) = &self.trail {
            trail.record_decision(&decision, || Client {
                principal: principal.to_owned(),
                host: host.to_owned(),
                listener: Some(HTTP_LISTENER.to_owned()),
                ..Client::default()
            });
        }
        answer.is_allowed
    }

    /// Returns true if an operation on a resource is allowed. The check is neither logged nor audited, for
    /// services that act on behalf of a principal and check its rights periodically.
    pub fn permits(
        &self,
        principal: &Principal,
        address: IpAddr,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: &str,
    ) -> bool {
        self.authorizer().is_none_or(|authorizer| {
            let host = host_address(address);
            authorizer.authorize(principal, &host, operation, resource_type, resource_name).is_allowed
        })
    }

    fn authorizer(&self) -> Option<Arc<Authorizer>> {
        match &self.rulings {
            Rulings::Broker(broker) => broker.authorizer(),
            Rulings::Controller { controller, followed } => {
                let mut followed = followed.as_ref()?.lock();
                followed.follow(controller.image());
                Some(Arc::clone(&followed.authorizer))
            }
        }
    }
}

impl FollowingAuthorizer {
    fn follow(&mut self, image: Arc<Image>) {
        if Arc::ptr_eq(&self.image, &image) {
            return;
        }
        if self.image.acls() != image.acls() {
            let ids = |image: &Image| image.acls().iter().map(|(id, _)| id).collect::<Vec<_>>();
            let touched = ids(&self.image).into_iter().chain(ids(&image)).collect();
            let mut next = Authorizer::clone(&self.authorizer);
            image.update_authorizer(&mut next, &self.image, &touched);
            self.authorizer = Arc::new(next);
        }
        self.image = image;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;
    use thalweg_metadata::{Delta, Provenance};
    use thalweg_security::acl::{PatternType, Permission};
    use thalweg_wire::MetadataRecord;
    use thalweg_wire::Uuid;
    use thalweg_wire::metadata::{AccessControlEntryRecord, RemoveAccessControlEntryRecord};

    fn image_after(base: &Arc<Image>, records: impl IntoIterator<Item = MetadataRecord>) -> Arc<Image> {
        let mut delta = Delta::new(Arc::clone(base));
        for record in records {
            delta.replay(&record).expect("it fits");
        }
        delta.apply(Provenance { offset: 0, epoch: 0, timestamp_ms: 0 })
    }

    #[test]
    fn rights_follow_the_images() {
        let may = |followed: &FollowingAuthorizer, operation| {
            let (ann, host) = (Principal::user("ann"), "10.0.0.7");
            let cluster = (ResourceType::Cluster, CLUSTER_NAME);
            followed.authorizer.authorize(&ann, host, operation, cluster.0, cluster.1).is_allowed
        };
        let entry = |id, operation: Operation| {
            MetadataRecord::AccessControlEntry(AccessControlEntryRecord {
                id,
                resource_type: ResourceType::Cluster.code(),
                resource_name: CLUSTER_NAME.to_owned(),
                pattern_type: PatternType::Literal.code(),
                principal: "User:ann".to_owned(),
                host: "*".to_owned(),
                operation: operation.code(),
                permission_type: Permission::Allow.code(),
            })
        };
        let (one, two) = (Uuid(1), Uuid(2));
        let authorizer = Arc::new(Authorizer::new(Rules::default(), []));
        let mut followed = FollowingAuthorizer { image: Arc::default(), authorizer };
        assert!(!may(&followed, Operation::Describe));
        let describe = image_after(&followed.image, [entry(one, Operation::Describe)]);
        followed.follow(Arc::clone(&describe));
        assert!(may(&followed, Operation::Describe) && !may(&followed, Operation::Alter));
        let before = Arc::clone(&followed.authorizer);
        followed.follow(image_after(&describe, iter::empty()));
        assert!(Arc::ptr_eq(&before, &followed.authorizer), "other changes cost nothing");
        let removed = MetadataRecord::RemoveAccessControlEntry(RemoveAccessControlEntryRecord { id: one });
        followed.follow(image_after(&describe, [removed, entry(two, Operation::Create)]));
        assert!(!may(&followed, Operation::Describe) && may(&followed, Operation::Create));
    }
}
