//! Logins with delegation tokens (KIP-48). The image has the tokens; the credentials follow from their ids
//! and the secret key, and are derived at the first login with each token.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use thalweg_config::BrokerConfig;
use thalweg_metadata::{DelegationToken, Image};
use thalweg_security::sasl::scram::{Credential, Hash};
use thalweg_security::{DelegationTokenSecret, Principal};

/// Maximum number of cached credentials: more than the tokens of a Thalweg cluster, for each hash.
const KEPT_MAX: usize = 20_000;

/// Logins with delegation tokens, shared by the listeners of a broker.
pub struct TokenLogins {
    secret: DelegationTokenSecret,
    /// Cached credentials by token id and code of the hash.
    kept: Mutex<BTreeMap<(String, i8), Credential>>,
}

impl fmt::Debug for TokenLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenLogins").finish_non_exhaustive()
    }
}

/// The owner of a token, and the expiry.
pub(super) struct Bearer {
    /// The owner's name.
    pub name: String,
    pub expires_ms: i64,
}

impl TokenLogins {
    /// Logins with this configuration; `None` without `delegation.token.secret.key`.
    pub fn of(config: &BrokerConfig) -> Option<Arc<TokenLogins>> {
        let secret = config.delegation_tokens.secret_key.clone()?;
        Some(Arc::new(TokenLogins { secret, kept: Mutex::default() }))
    }

    /// The credential of an existing token.
    pub(super) fn credential(&self, hash: Hash, id: &str) -> Credential {
        let key = (id.to_owned(), hash.code());
        if let Some(credential) = self.kept.lock().get(&key) {
            return credential.clone();
        }
        // Without the lock, as this takes milliseconds. Two concurrent derivations have the same result.
        let credential = self.secret.credential(hash, id);
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(key, credential.clone());
        credential
    }
}

/// The owner of a token; `None` if the token is unknown or expired, or its owner is not a user.
pub(super) fn bearer(image: &Image, id: &str, now_ms: i64) -> Option<Bearer> {
    let token: &DelegationToken = image.delegation_tokens().get(id)?;
    let expires_ms = token.expiration_timestamp.min(token.max_timestamp);
    let owner: Principal = token.owner.parse().ok()?;
    let is_user = owner == Principal::user(owner.name());
    (is_user && expires_ms >= now_ms).then(|| Bearer { name: owner.name().to_owned(), expires_ms })
}
