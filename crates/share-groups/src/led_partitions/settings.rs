//! Settings of share groups for partition leaders: the broker's defaults, and the overrides of groups.

use thalweg_config::{BrokerConfig, EffectiveGroupConfig, ShareOffsetReset};
use thalweg_hash::HashMap;
use thalweg_metadata::{ConfigMap, ConfigResourceKind, Image};
use thalweg_replica::partition::Isolation;
use thalweg_share::ShareLimits;

/// The settings of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareSettings {
    /// Limits on delivery attempts, locks and in-flight records.
    pub limits: ShareLimits,
    /// The isolation level of reads.
    pub isolation: Isolation,
    /// The start offset of a group without one.
    pub reset: ShareOffsetReset,
}

impl From<EffectiveGroupConfig> for ShareSettings {
    fn from(group: EffectiveGroupConfig) -> ShareSettings {
        ShareSettings {
            limits: ShareLimits {
                deliveries: group.share_delivery_count_limit,
                lock_ms: i64::from(group.share_record_lock_duration_ms),
                in_flight: i64::try_from(group.share_partition_max_record_locks).unwrap_or(i64::MAX),
                may_renew: group.share_renew_acknowledge_enable,
            },
            isolation: match group.share_is_read_committed {
                true => Isolation::ReadCommitted,
                false => Isolation::ReadUncommitted,
            },
            reset: group.share_auto_offset_reset,
        }
    }
}

/// The settings of all groups.
#[derive(Clone, Debug)]
pub struct SettingsOfGroups {
    of_broker: ShareSettings,
    by_group: HashMap<String, ShareSettings>,
}

impl SettingsOfGroups {
    /// Settings by the broker's configuration and the groups' overrides in the image.
    pub fn new(config: &BrokerConfig, image: &Image) -> SettingsOfGroups {
        let of = |overrides: &ConfigMap| ShareSettings::from(config.group(overrides).0);
        let groups =
            image.configs().iter().filter(|(resource, _)| resource.kind == ConfigResourceKind::Group);
        SettingsOfGroups {
            of_broker: of(&ConfigMap::default()),
            by_group: groups.map(|(resource, overrides)| (resource.name.clone(), of(overrides))).collect(),
        }
    }

    /// The settings of one group.
    pub fn of(&self, group: &str) -> ShareSettings {
        self.by_group.get(group).copied().unwrap_or(self.of_broker)
    }
}
