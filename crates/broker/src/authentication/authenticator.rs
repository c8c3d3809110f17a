//! The authentication of a listener: mechanisms, users, tokens.

use super::delegation::{Bearer, TokenLogins, bearer};
use super::token_keys::TokenKeys;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_config::{BrokerConfig, SaslListener};
use thalweg_log::Clock;
use thalweg_metadata::{Image, ScramCredential};
use thalweg_security::sasl::Mechanism;
use thalweg_security::sasl::oauth::{Token, TokenFault, TokenRules};
use thalweg_security::sasl::plain::Users;
use thalweg_security::sasl::scram::{Credential, DecoyForm, Hash};

/// Maximum number of entries searched for the next user with the same mechanism. A user has at most two.
const NEIGHBOURS_MAX: usize = 8;

/// Access to the latest image, with users and tokens.
pub type Images = Arc<dyn Fn() -> Arc<Image> + Send + Sync>;

/// The authenticator of one listener.
pub struct Authenticator {
    settings: SaslListener,
    keys: Option<Arc<TokenKeys>>,
    /// `None` if delegation tokens are not accepted.
    tokens: Option<Arc<TokenLogins>>,
    images: Images,
    clock: Clock,
    failure_delay: Duration,
    /// Numbers of successful and failed logins.
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Secret for the salts of unknown users, while the cluster has no SCRAM user.
    secret: [u8; 32],
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("mechanisms", &self.settings.mechanisms).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// The authenticator of a listener; `None` without SASL. Starts to read the keys of token providers.
    pub fn of(
        config: &BrokerConfig,
        listener: &str,
        images: &Images,
        clock: &Clock,
        tokens: Option<&Arc<TokenLogins>>,
    ) -> Option<Arc<Authenticator>> {
        let settings = config.sasl.get(listener)?.clone();
        let keys = settings.tokens.as_ref().map(TokenKeys::watch);
        let mut secret = [0; 32];
        random(&mut secret);
        Some(Arc::new(Authenticator {
            settings,
            keys,
            tokens: tokens.cloned(),
            images: Arc::clone(images),
            clock: clock.clone(),
            failure_delay: config.network.failed_authentication_delay,
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            secret,
        }))
    }

    /// Numbers of successful and of failed logins since the start.
    pub fn logins(&self) -> (u64, u64) {
        (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    pub(super) fn login_succeeded(&self) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn login_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn mechanisms(&self) -> &BTreeSet<Mechanism> {
        &self.settings.mechanisms
    }

    pub(super) fn users(&self) -> &Users {
        &self.settings.users
    }

    pub(super) fn receive_max_bytes(&self) -> usize {
        self.settings.receive_max_bytes
    }

    pub(super) fn max_reauth(&self, mechanism: Mechanism) -> Option<Duration> {
        self.settings.max_reauth.get(&mechanism).copied()
    }

    pub(super) fn failure_delay(&self) -> Duration {
        self.failure_delay
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// A user's credential, and the form of a decoy, which is taken from the next user. The decoy is the same
    /// on all brokers while the users of the cluster stay the same.
    pub(super) fn credential(&self, hash: Hash, user: &str) -> (Option<Credential>, DecoyForm) {
        let image = (self.images)();
        let known = image.scram_credentials();
        let credential = |found: &ScramCredential| Credential {
            salt: found.salt.to_vec(),
            stored_key: found.stored_key.to_vec(),
            server_key: found.server_key.to_vec(),
            iterations: u32::try_from(found.iterations).unwrap_or(0),
        };
        let key = (user.to_owned(), hash.code());
        let found = known.get(&key).map(credential);
        let next = known.range((Bound::Excluded(key), Bound::Unbounded)).chain(known);
        let like = next.take(NEIGHBOURS_MAX).find(|((_, code), _)| *code == hash.code());
        let like = like.map(|(_, next)| credential(next));
        let secret = known.first_key_value().map(|(_, first)| first.server_key.to_vec());
        (found, DecoyForm::like(like.as_ref(), secret.unwrap_or_else(|| self.secret.to_vec())))
    }

    /// The owner of a delegation token now.
    pub(super) fn bearer(&self, id: &str) -> Option<Bearer> {
        self.tokens.as_ref().and_then(|_| bearer(&(self.images)(), id, self.now_ms()))
    }

    /// The credential of an existing delegation token.
    pub(super) fn token_credential(&self, hash: Hash, id: &str) -> Option<Credential> {
        let tokens = self.tokens.as_ref()?;
        self.bearer(id).map(|_| tokens.credential(hash, id))
    }

    /// Verifies a token by the current keys.
    pub(super) fn verify(&self, token: &str) -> Result<Token, TokenFault> {
        let (Some(keys), Some(rules)) = (&self.keys, self.rules()) else {
            return Err(TokenFault::UnknownKey(None));
        };
        Token::verify(token, &keys.current(), rules, self.now_ms())
    }

    /// Reads the keys again, unless they were read a moment ago. Returns true if the keys have changed.
    pub(super) async fn read_keys_again(&self) -> bool {
        match &self.keys {
            Some(keys) => keys.read_again().await,
            None => false,
        }
    }

    fn rules(&self) -> Option<&TokenRules> {
        self.settings.tokens.as_ref().map(|tokens| &tokens.rules)
    }
}

/// Fills bytes with cryptographically secure random values.
pub(super) fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system gives randomness");
}
