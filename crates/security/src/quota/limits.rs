//! Resolution of client quotas, and the clients that share a limit (Kafka's `DefaultQuotaCallback`).
//!
//! A limit is set for a user, a client id, or both, each by name or as the default. The most specific limit
//! applies:
//!
//! | | user | client id | shared by |
//! |---|---|---|---|
//! | 1 | name | name | the user's clients of that id |
//! | 2 | name | default | the user's clients of each id |
//! | 3 | name | | all clients of the user |
//! | 4 | default | name | each user's clients of that id |
//! | 5 | default | default | each user's clients of each id |
//! | 6 | default | | all clients of each user |
//! | 7 | | name | all clients of that id |
//! | 8 | | default | all clients of each id |
//!
//! Defaults apply to a client with a missing or empty client id. In Kafka such a client escapes them.

use thalweg_hash::HashMap;

/// The limits of one quota type, such as `producer_byte_rate`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    by_user: HashMap<Option<String>, UserLimits>,
    /// Limits for client ids alone.
    of_clients: ClientLimits,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct UserLimits {
    /// The limit for all clients of the user together.
    whole: Option<f64>,
    clients: ClientLimits,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ClientLimits {
    named: HashMap<String, f64>,
    default: Option<f64>,
}

impl ClientLimits {
    fn get(&self, client_id: &str) -> Option<f64> {
        self.named.get(client_id).copied().or(self.default)
    }

    fn set(&mut self, client_id: Option<&str>, limit: f64) {
        match client_id {
            Some(client_id) => {
                self.named.insert(client_id.to_owned(), limit);
            }
            None => self.default = Some(limit),
        }
    }
}

/// The clients that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitScope {
    /// All clients of the user.
    User,
    /// All clients with the client id, of any user.
    ClientId,
    /// The user's clients with the client id.
    UserAndClientId,
}

/// The limit of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Units per second.
    pub per_second: f64,
    /// The clients that share the limit.
    pub shared_by: LimitScope,
}

impl Limit {
    /// The key under which this client shares the limit with others.
    pub fn sharers(&self, user: &str, client_id: &str) -> Sharers {
        Sharers {
            user: (self.shared_by != LimitScope::ClientId).then(|| user.into()),
            client_id: (self.shared_by != LimitScope::User).then(|| client_id.into()),
        }
    }
}

/// The clients that share a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sharers {
    /// The user; `None` for any user.
    pub user: Option<Box<str>>,
    /// The client id; `None` for any client id.
    pub client_id: Option<Box<str>>,
}

impl Limits {
    /// Sets a limit. In `user` and `client_id`, the outer `None` means any, the inner `None` the default.
    pub fn set(&mut self, user: Option<Option<&str>>, client_id: Option<Option<&str>>, limit: f64) {
        match (user, client_id) {
            (None, None) => {}
            (None, Some(client_id)) => self.of_clients.set(client_id, limit),
            (Some(user), client_id) => {
                let of_user = self.by_user.entry(user.map(str::to_owned)).or_default();
                match client_id {
                    Some(client_id) => of_user.clients.set(client_id, limit),
                    None => of_user.whole = Some(limit),
                }
            }
        }
    }

    /// True without limits.
    pub fn is_empty(&self) -> bool {
        self.by_user.is_empty() && self.of_clients == ClientLimits::default()
    }

    /// The limit of a client; `None` if unlimited.
    pub fn resolve(&self, user: &str, client_id: &str) -> Option<Limit> {
        // The map's key is an `Option<String>`, so the lookup allocates.
        let named = (!self.by_user.is_empty()).then(|| self.by_user.get(&Some(user.to_owned()))).flatten();
        let default = self.by_user.get(&None);
        named
            .and_then(|of_user| of_user.resolve(client_id))
            .or_else(|| default.and_then(|of_user| of_user.resolve(client_id)))
            .or_else(|| {
                Some(Limit { per_second: self.of_clients.get(client_id)?, shared_by: LimitScope::ClientId })
            })
    }
}

impl UserLimits {
    fn resolve(&self, client_id: &str) -> Option<Limit> {
        let of_client = self.clients.get(client_id).map(|limit| (limit, LimitScope::UserAndClientId));
        let (per_second, shared_by) = of_client.or(self.whole.map(|limit| (limit, LimitScope::User)))?;
        Some(Limit { per_second, shared_by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_limit_holds() {
        use LimitScope::{ClientId, User, UserAndClientId};
        let (user, client) = (Some(Some("ann")), Some(Some("app")));
        let (any, default) = (None, Some(None));
        let levels = [
            (any, default, ClientId),
            (any, client, ClientId),
            (default, any, User),
            (default, default, UserAndClientId),
            (default, client, UserAndClientId),
            (user, any, User),
            (user, default, UserAndClientId),
            (user, client, UserAndClientId),
        ];
        let mut limits = Limits::default();
        assert!(limits.is_empty() && limits.resolve("ann", "app").is_none());
        for (level, (user, client_id, shared_by)) in levels.into_iter().enumerate() {
            let per_second = f64::from(u32::try_from(level).expect("small"));
            limits.set(user, client_id, per_second);
            assert_eq!(limits.resolve("ann", "app"), Some(Limit { per_second, shared_by }), "level {level}");
        }
        let resolve = |user, client_id| limits.resolve(user, client_id).map(|limit| limit.per_second);
        assert_eq!(resolve("ann", "other"), Some(6.0));
        assert_eq!(resolve("bob", "app"), Some(4.0));
        assert_eq!(resolve("bob", "other"), Some(3.0));
        assert_eq!(resolve("bob", ""), Some(3.0));
    }

    #[test]
    fn a_user_without_a_limit_for_the_client_is_held_by_defaults() {
        let mut limits = Limits::default();
        limits.set(Some(Some("ann")), Some(Some("other")), 1.0);
        assert_eq!(limits.resolve("ann", "app"), None);
        limits.set(None, Some(None), 2.0);
        assert_eq!(limits.resolve("ann", "app").map(|limit| limit.shared_by), Some(LimitScope::ClientId));
        assert_eq!(limits.resolve("ann", "other").map(|limit| limit.per_second), Some(1.0));
    }
}
