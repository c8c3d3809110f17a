//! Applies changes of the cluster's metadata to partitions, coordinators and settings (Kafka's
//! `BrokerMetadataPublisher`).
//!
//! The order is: settings, deletions, partitions led here, partitions followed, stray logs, ACLs, the image,
//! reports of directories, coordinators, quotas. A partition in the image is therefore open. A partition that
//! is deleted but still in the image answers with an error.

use crate::broker::Broker;
use crate::connection_limits;
use crate::directory_watch::can_be_spared;
use crate::reconfigure;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_groups::DeletedTopic;
use thalweg_hash::{HashMap, HashSet};
use thalweg_log::disk::{Disk, is_disk_full};
use thalweg_log::{CreateError, DirectoryOffline, LogConfig, LogError, PartitionLog, TopicPartition};
use thalweg_membership::ImageListener;
use thalweg_metadata::feature::SHARE_VERSION;
use thalweg_metadata::topic_name::CoordinatorTopic;
use thalweg_metadata::{
    DIRECTORY_FULL, DIRECTORY_LOST, Delta, Image, LocalChanges, LocalPartition, PartitionIndex,
    TopicIdPartition,
};
use thalweg_replica::partition::Partition;
use thalweg_replica::replication::Fetchers;
use thalweg_wire::Uuid;

/// Partitions by topic and index.
type UnopenedPartitions = HashSet<TopicIdPartition>;

/// Applies each new image to the broker.
pub struct Publisher {
    broker: Arc<Broker>,
    fetchers: Arc<Fetchers>,
    /// Logs found on disk that no image has claimed yet.
    found: Mutex<Option<HashMap<TopicPartition, PartitionLog>>>,
    /// Partitions that failed to open, for example on a full disk, and are retried. The lock is held for a
    /// whole change, so that changes are applied one at a time.
    unopened: Mutex<UnopenedPartitions>,
    /// Partitions that failed to be deleted and are retried. Their names cannot be used before.
    undeleted: Mutex<Vec<Arc<Partition>>>,
    /// Deleted partitions with logs that could neither be opened nor deleted, and are retried.
    undeleted_unopened: Mutex<Vec<TopicPartition>>,
    /// Stray logs that could not be renamed, and are retried.
    strays: Mutex<Vec<PartitionLog>>,
}

impl Publisher {
    /// A publisher for a broker with the logs found at its start.
    pub fn new(broker: Arc<Broker>, fetchers: Arc<Fetchers>, found: Vec<PartitionLog>) -> Self {
        let found = found.into_iter().map(|log| (log.name().clone(), log)).collect();
        Self {
            broker,
            fetchers,
            found: Mutex::new(Some(found)),
            unopened: Mutex::default(),
            undeleted: Mutex::default(),
            undeleted_unopened: Mutex::default(),
            strays: Mutex::default(),
        }
    }

    /// The disk of the log directories.
    pub fn disk(&self) -> &Disk {
        self.broker.log_dirs.disk()
    }

    fn change_partitions(&self, local: &LocalChanges, image: &Image, unopened: &mut UnopenedPartitions) {
        for gone in &local.deletes {
            unopened.remove(&(gone.topic.id, gone.partition));
            self.delete(gone, image);
        }
        for change in local.leaders.iter().chain(&local.followers) {
            if let Err(error) = self.apply(change, image) {
                let (topic, partition) = (&change.topic.name, change.partition);
                tracing::error!(%topic, %partition, %error, "Failed to open a partition, retrying");
                unopened.insert((change.topic.id, partition));
                if matches!(&error, CreateError::Io(error) if is_disk_full(error)) {
                    self.hand_over(change);
                }
            }
        }
    }

    /// Hands a partition without room here over to its other replicas, if one is in sync.
    fn hand_over(&self, change: &LocalPartition) {
        let replication = &self.broker.replication;
        if can_be_spared(&change.registration, self.broker.node_id) && replication.tracks_directories() {
            replication.directories.hand_over(change.topic.id, change.partition);
        }
    }

    /// Retries failed steps, as there may be disk space now. Blocks.
    pub fn retry_failed(&self) {
        self.retry_deletions();
        self.retry_opens();
    }

    fn retry_deletions(&self) {
        let _no_change_beside = self.unopened.lock();
        let dirs = &self.broker.log_dirs;
        self.undeleted.lock().retain(|partition| {
            if let Err(error) = dirs.empty(&partition.dir()) {
                tracing::debug!(?partition, %error, "Failed to empty a deleted partition");
            }
            let deleted = partition.with_log(|log| dirs.delete(log));
            if deleted.is_ok() {
                tracing::info!(?partition, "Deleted a partition after a retry");
            }
            deleted.is_err()
        });
        self.undeleted_unopened.lock().retain(|name| dirs.delete_unopened(name).is_err());
        self.strays.lock().retain_mut(|log| match dirs.set_aside(log) {
            Ok(path) => {
                tracing::warn!(partition = %log.name(), path = %path.display(), "Set aside a log after a retry");
                false
            }
            Err(_) => true,
        });
    }

    fn retry_opens(&self) {
        let mut unopened = self.unopened.lock();
        if unopened.is_empty() {
            return;
        }
        let image = self.broker.image();
        unopened.retain(|&(topic, partition)| {
            let Some(topic) = image.topics().get_by_id(topic) else { return false };
            let Some(registration) = topic.partition(partition) else { return false };
            let (topic, registration) = (Arc::clone(topic), Arc::clone(registration));
            let change = LocalPartition { topic, partition, registration, is_new: true };
            if self.apply(&change, &image).is_err() {
                return true;
            }
            tracing::info!(topic = %change.topic.name, %partition, "Opened a partition after a retry");
            self.change_coordinator(&change);
            self.report_directory(&change);
            false
        });
    }

    /// Restarts a coordinator that failed to load because its partition was not open.
    fn change_coordinator(&self, opened: &LocalPartition) {
        if opened.registration.leader != self.broker.node_id {
            return;
        }
        self.resign(opened, None);
        self.elect(opened);
    }

    /// Starts the coordinator of a partition that is led here.
    fn elect(&self, led: &LocalPartition) {
        let Broker { groups, transactions, share_states, .. } = &*self.broker;
        let (partition, epoch) = (led.partition, led.registration.leader_epoch);
        match CoordinatorTopic::of(&led.topic.name) {
            Some(CoordinatorTopic::Offsets) => groups.on_elected(partition, epoch),
            Some(CoordinatorTopic::Transactions) => transactions.on_elected(partition, epoch),
            Some(CoordinatorTopic::ShareState) => share_states.on_elected(partition, epoch),
            None => {}
        }
    }

    /// Ends the coordinator of a partition that is led elsewhere in this epoch, or not at all.
    fn resign(&self, lost: &LocalPartition, epoch: Option<i32>) {
        let Broker { groups, transactions, share_states, .. } = &*self.broker;
        match CoordinatorTopic::of(&lost.topic.name) {
            Some(CoordinatorTopic::Offsets) => groups.on_resigned(lost.partition, epoch),
            Some(CoordinatorTopic::Transactions) => transactions.on_resigned(lost.partition, epoch),
            Some(CoordinatorTopic::ShareState) => share_states.on_resigned(lost.partition, epoch),
            None => {}
        }
    }

    /// Ends a partition, and deletes its log. The partition can be looked up until the image is set.
    fn delete(&self, gone: &LocalPartition, image: &Image) {
        self.fetchers.unfollow((gone.topic.id, gone.partition));
        let topic = self.broker.partitions.topic_by_id(gone.topic.id);
        let Some(partition) = topic.and_then(|topic| topic.partition(gone.partition)) else {
            self.delete_unopened(TopicPartition::new(&gone.topic.name, gone.partition.0));
            return;
        };
        partition.retire(image.topic_by_id(gone.topic.id).is_none());
        partition.end_move(&self.broker.log_dirs);
        match partition.with_log(|log| self.broker.log_dirs.delete(log)) {
            Ok(()) => tracing::info!(?partition, "Deleted a partition"),
            Err(error) => {
                tracing::error!(?partition, %error, "Failed to delete a partition, retrying");
                self.undeleted.lock().push(partition);
            }
        }
    }

    /// Deletes the log of a partition that waits to be opened.
    fn delete_unopened(&self, name: TopicPartition) {
        let dirs = &self.broker.log_dirs;
        if !dirs.is_unopened(&name) {
            return;
        }
        match dirs.delete_unopened(&name) {
            Ok(()) => tracing::info!(partition = %name, "Deleted a partition that could not be opened"),
            Err(error) => {
                tracing::error!(partition = %name, %error, "Failed to delete a partition that could not be opened, retrying");
                self.undeleted_unopened.lock().push(name);
            }
        }
    }

    /// Applies the image to one partition.
    fn apply(&self, change: &LocalPartition, image: &Image) -> Result<(), CreateError> {
        let topic = self.broker.partitions.topic_by_id(change.topic.id);
        if let Some(partition) = topic.and_then(|topic| topic.partition(change.partition)) {
            partition.apply(&change.registration);
            self.fetchers.follow(&partition, &change.registration);
            return Ok(());
        }
        if self.is_lost(change) {
            let directories = &self.broker.replication.directories;
            // A copy with the controller's consent replaces the log. The copy may lack records, but is better
            // than an empty log.
            let consented = change.registration.directory(self.broker.node_id);
            match self.copy_of(change).is_some_and(|of_copy| Some(of_copy) == consented) {
                true => directories.report_damaged(change.topic.id, change.partition),
                false => directories.report_lost(change.topic.id, change.partition),
            }
            return Ok(());
        }
        let opened = Arc::new(self.open(change, image)?);
        self.note_loss(change, &opened);
        if opened.is_damaged() {
            self.broker.replication.leaving.begin((opened.topic_id, opened.index));
        }
        self.broker.partitions.insert(Arc::clone(&opened));
        self.resume_move(&opened);
        self.fetchers.follow(&opened, &change.registration);
        Ok(())
    }

    /// True if the controller counts on a log that is missing: the log was removed, or the directory that it
    /// was moved from is missing and the copy may lack records. The log is created again after the controller
    /// knows of the loss.
    fn is_lost(&self, change: &LocalPartition) -> bool {
        let name = TopicPartition::new(&change.topic.name, change.partition.0);
        if !self.broker.log_dirs.has_lost(&name) && self.copy_of(change).is_none() {
            return false;
        }
        let is_found = self.found.lock().as_ref().is_some_and(|found| found.contains_key(&name));
        !is_found && !self.broker.log_dirs.is_unopened(&name) && self.is_counted(change)
    }

    /// The directory with the copy of a log that was being moved.
    fn copy_of(&self, change: &LocalPartition) -> Option<Uuid> {
        let name = TopicPartition::new(&change.topic.name, change.partition.0);
        self.broker.log_dirs.directory_of_future(&name, change.topic.id)
    }

    /// True if the controller may elect the replica here and other replicas may have its records.
    fn is_counted(&self, change: &LocalPartition) -> bool {
        let (id, registration) = (self.broker.node_id, &change.registration);
        let counted =
            [&registration.isr, &registration.eligible_leader_replicas, &registration.last_known_elr];
        let online = self.broker.log_dirs.online_ids();
        let is_known = |directory: Uuid| directory == DIRECTORY_FULL || online.contains(&directory);
        registration.replicas.len() > 1
            && counted.iter().any(|replicas| replicas.contains(&id))
            && registration.directory(id).is_some_and(is_known)
    }

    /// A log that lacks its synced end is reported as lost, like a missing log.
    fn note_loss(&self, change: &LocalPartition, opened: &Partition) {
        if !opened.is_damaged() {
            return;
        }
        if self.is_counted(change) {
            self.broker.replication.directories.report_damaged(change.topic.id, change.partition);
        } else if change.registration.replicas.len() == 1 {
            tracing::error!(partition = ?opened, "Synced records of a partition with one replica are missing, and cannot be fetched again");
            opened.accept_loss();
        }
    }

    /// Resumes a partition's move that was interrupted by the broker's stop.
    fn resume_move(&self, opened: &Arc<Partition>) {
        let name = TopicPartition::new(&opened.topic, opened.index.0);
        let Some(copy) = self.broker.log_dirs.take_future(&name) else { return };
        let Some(copy) = self.claim(copy, opened.topic_id) else { return };
        tracing::info!(partition = ?opened, path = %copy.dir().display(), copied_to = copy.log_end_offset().0, "Resumed a move to another log directory");
        if let Err(error) = self.broker.replication.resume_move(opened, copy) {
            tracing::error!(partition = ?opened, %error, "Failed to resume a move to another log directory");
        }
    }

    /// Reports the directory of a replica to the controller, if the latest image differs.
    fn report_directory(&self, change: &LocalPartition) {
        let topic = self.broker.partitions.topic_by_id(change.topic.id);
        if let Some(partition) = topic.and_then(|topic| topic.partition(change.partition)) {
            let known = change.registration.directory(self.broker.node_id);
            self.broker.replication.report_directory(&partition, known);
        }
    }

    fn open(&self, change: &LocalPartition, image: &Image) -> Result<Partition, CreateError> {
        let broker = &self.broker;
        let name = TopicPartition::new(&change.topic.name, change.partition.0);
        let (settings, config) = reconfigure::topic_config(broker, image, &change.topic.name);
        let found = self.find(change, &name, &config)?;
        let is_found = found.is_some();
        let log = match found {
            Some(mut log) => {
                log.set_config(config);
                match log.end_at_gap() {
                    Err(LogError::Io(error)) if log.waits_at_gap() => {
                        broker.log_dirs.keep_unopened(log);
                        return Err(error.into());
                    }
                    Err(error) => tracing::error!(partition = %name, %error, "Failed to examine a log"),
                    Ok(_) => {}
                }
                // The data may come from a process that was killed before a sync. A leader relies on its
                // followers' offsets.
                if log.flush_is_due()
                    && let Err(error) = log.flush()
                {
                    tracing::error!(partition = %name, %error, "Failed to flush a log");
                }
                log
            }
            None => {
                let assigned = change.registration.directory(broker.node_id).filter(|id| !id.is_reserved());
                let preferred = broker.replication.moves.take_preferred(change.topic.id, change.partition);
                let directory = preferred.or(assigned);
                if preferred.is_none() && change.registration.replicas.len() == 1 {
                    self.log_lost(&name, assigned);
                }
                let log = broker.log_dirs.create(&name, Some(change.topic.id), config, directory)?;
                if let Some(copy) = broker.log_dirs.take_future(&name) {
                    self.set_aside(copy);
                }
                log
            }
        };
        let topic = Arc::clone(&change.topic.name);
        let (id, index, registration) = (change.topic.id, change.partition, &change.registration);
        let context = Arc::clone(&broker.replication.context);
        let opened = Partition::new(topic, id, index, context, log, settings, registration);
        if is_found {
            opened.note_found();
        }
        Ok(opened)
    }

    /// Logs that the log of a partition's only replica is missing, so that its records are lost.
    fn log_lost(&self, name: &TopicPartition, assigned: Option<Uuid>) {
        let dirs = &self.broker.log_dirs;
        if let Some(missing) = assigned.filter(|id| !dirs.online_ids().contains(id)) {
            tracing::error!(partition = %name, directory = %missing, "The log of a partition with one replica is in a directory that is not in log.dirs: it begins anew, without its records");
        } else if dirs.has_lost(name) {
            tracing::error!(partition = %name, "The log of a partition with one replica is missing from its directory: it begins anew, without its records");
        }
    }

    /// The log of a partition found on disk, unless the log waits for room to be opened. Otherwise the copy
    /// that the controller has consented to, unless the log may be in an offline directory.
    fn find(
        &self,
        change: &LocalPartition,
        name: &TopicPartition,
        config: &Arc<LogConfig>,
    ) -> Result<Option<PartitionLog>, CreateError> {
        let found = self.found.lock().as_mut().and_then(|found| found.remove(name));
        let found = match found {
            Some(log) => Some(log),
            None => self.broker.log_dirs.open_unopened(name, Arc::clone(config)).transpose()?,
        };
        if let Some(log) = found.and_then(|log| self.claim(log, change.topic.id)) {
            return Ok(Some(log));
        }
        let (dirs, directory) = (&self.broker.log_dirs, change.registration.directory(self.broker.node_id));
        let Some(of_copy) = dirs.directory_of_future(name, change.topic.id) else { return Ok(None) };
        if !dirs.are_complete() {
            return Err(DirectoryOffline { directory }.into());
        }
        // The controller has consented to the move. The broker may have reported the replica as lost since.
        if directory != Some(of_copy) && directory != Some(DIRECTORY_LOST) {
            return Ok(None);
        }
        let Some(copy) = dirs.promote_future(name)? else { return Ok(None) };
        tracing::error!(partition = %name, path = %copy.dir().display(), log_end = copy.log_end_offset().0, "The log was moving and its directory is gone: its copy takes its place, and may lack the last records");
        Ok(self.claim(copy, change.topic.id))
    }

    /// The found log, if it belongs to the topic. A log of another topic with that name is set aside.
    fn claim(&self, mut log: PartitionLog, topic_id: Uuid) -> Option<PartitionLog> {
        match log.assign_topic_id(topic_id) {
            Ok(false) => {
                tracing::warn!(
                    partition = %log.name(), found = ?log.topic_id(), expected = %topic_id, log_end = log.log_end_offset().0,
                    "Found the log of another topic of this name: was the topic deleted and created again? If not, partition.metadata \
                     was damaged, and the log is whole: stop the broker, and put it back with the expected topic id"
                );
                self.set_aside(log);
                None
            }
            Ok(true) => Some(log),
            Err(error) => {
                // No other topic has claimed the log. The topic id is written at the next start, when there
                // is room.
                tracing::warn!(partition = %log.name(), %error, "Failed to write the topic id beside a log");
                Some(log)
            }
        }
    }

    /// After the first image, logs without a partition in the image are strays: their topics were deleted or
    /// their partitions moved while the broker was down, or the metadata belongs to other data. As in Kafka,
    /// strays are renamed and kept, because their deletion was not requested.
    fn set_strays_aside(&self, image: &Image) {
        let Some(strays) = self.found.lock().take() else { return };
        strays.into_values().for_each(|log| self.set_aside(log));
        // A copy is kept if its log may be in an offline directory.
        if self.broker.log_dirs.are_complete() {
            // A copy replaces its missing log after the controller knows.
            let is_stray = |copy: &PartitionLog| {
                let (id, index) =
                    (copy.topic_id().unwrap_or_default(), PartitionIndex(copy.name().partition));
                let is_here = image
                    .partition_by_id(id, index)
                    .is_some_and(|found| found.is_replica(self.broker.node_id));
                !is_here || self.broker.partitions.get(&copy.name().topic, index).is_some()
            };
            self.broker
                .log_dirs
                .take_stray_futures(is_stray)
                .into_iter()
                .for_each(|copy| self.set_aside(copy));
        }
    }

    fn set_aside(&self, mut log: PartitionLog) {
        let partition = log.name().clone();
        match self.broker.log_dirs.set_aside(&mut log) {
            Ok(path) => tracing::warn!(
                %partition, path = %path.display(),
                "Set aside a log that belongs to no topic of the cluster, or is a leftover copy; delete it if it is not needed"
            ),
            Err(error) => {
                tracing::error!(%partition, %error, "Failed to set a log aside, retrying");
                self.strays.lock().push(log);
            }
        }
    }

    /// Closes unclaimed logs, if the broker stops before its first image.
    pub fn close_found(&self) {
        let _no_change_beside = self.unopened.lock();
        for mut log in self.found.lock().take().into_iter().flat_map(HashMap::into_values) {
            if let Err(error) = log.close() {
                tracing::error!(partition = %log.name(), %error, "Failed to close a log");
            }
        }
    }

    fn change_coordinators(&self, local: &LocalChanges, delta: &Delta) {
        let Broker { groups, share_states, .. } = &*self.broker;
        for elsewhere in local.deletes.iter().chain(&local.followers) {
            self.broker.share_partitions.drop_partition((elsewhere.topic.id, elsewhere.partition));
        }
        for gone in &local.deletes {
            self.resign(gone, None);
        }
        for change in &local.followers {
            self.resign(change, Some(change.registration.leader_epoch));
        }
        for change in &local.leaders {
            self.elect(change);
        }
        let deleted: Vec<_> = delta
            .deleted_topics()
            .map(|topic| DeletedTopic { name: topic.name.to_string(), id: topic.id })
            .collect();
        if !deleted.is_empty() {
            groups.on_topics_deleted(&deleted);
            share_states.on_topics_deleted(&deleted.iter().map(|topic| topic.id).collect());
        }
        let changed = changed_topics(delta);
        if !changed.is_empty() {
            groups.on_topics_changed(&changed, delta.created_topics().next().is_some());
        }
    }
}

/// The names of topics that were created or deleted, or changed partitions or replicas.
fn changed_topics(delta: &Delta) -> Vec<String> {
    let (base, image) = (delta.base().topics(), delta.image().topics());
    let is_changed = |id: &Uuid, touched: &std::collections::BTreeSet<PartitionIndex>| {
        let Some(before) = base.get_by_id(*id) else { return true };
        let Some(after) = image.get_by_id(*id) else { return true };
        touched.iter().any(|index| match (before.partition(*index), after.partition(*index)) {
            (Some(before), Some(after)) => before.replicas != after.replicas,
            _ => true,
        })
    };
    let changes = &delta.changes().changed_topics;
    let changed = changes.iter().filter(|(id, touched)| is_changed(id, touched));
    let changed = changed.filter_map(|(id, _)| image.get_by_id(*id));
    changed.chain(delta.deleted_topics()).map(|topic| topic.name.to_string()).collect()
}

impl ImageListener for Publisher {
    fn publish(&self, delta: &Delta, image: Arc<Image>) {
        // Creating directories blocks; other connections continue meanwhile.
        self.disk().work_in_place(|| {
            let local = delta.local_changes(self.broker.node_id);
            let mut unopened = self.unopened.lock();
            // Before any log is opened: a topic may inherit its cleanup policy from all brokers, and the
            // policy explains gaps.
            reconfigure::apply(&self.broker, &image, delta.changes().configs.iter());
            self.change_partitions(&local, &image, &mut unopened);
            self.set_strays_aside(&image);
            // Before the image: a new topic must not be visible before the rules that protect it.
            self.broker.update_authorizer(delta, &image);
            self.broker.set_image(Arc::clone(&image));
            for gone in &local.deletes {
                self.broker.partitions.remove(gone.topic.id, gone.partition);
            }
            for change in local.leaders.iter().chain(&local.followers) {
                self.report_directory(change);
            }
            self.change_coordinators(&local, delta);
            let has_share_groups = |image: &Image| image.features().level(SHARE_VERSION) > 0;
            if has_share_groups(delta.base()) && !has_share_groups(&image) {
                self.broker.share_partitions.end_all();
            }
            if delta.changes().quotas {
                self.broker.quotas.set(image.quotas());
                self.broker.connections.set_ip_rates(connection_limits::ip_rates(image.quotas()));
            }
            drop(unopened);
        });
    }
}
