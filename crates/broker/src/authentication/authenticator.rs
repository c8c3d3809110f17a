//! What a listener knows of those who may connect.

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

/// Entries searched for the next user of the same mechanism: a user has two at most.
const NEIGHBOURS_MAX: usize = 8;

/// The cluster's image, in which users and tokens are.
pub type Images = Arc<dyn Fn() -> Arc<Image> + Send + Sync>;

/// How clients of one listener authenticate.
pub struct Authenticator {
    settings: SaslListener,
    keys: Option<Arc<TokenKeys>>,
    /// None where nobody logs in with a delegation token.
    tokens: Option<Arc<TokenLogins>>,
    images: Images,
    clock: Clock,
    failure_delay: Duration,
    /// Logins that succeeded, and those that failed.
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Makes salts for users who do not exist, while there is none who does.
    secret: [u8; 32],
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("mechanisms", &self.settings.mechanisms).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// For a listener of this name; none if it has no SASL. Starts to read the keys of tokens.
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

    /// How many logins have succeeded, and how many have failed, since the start.
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

    /// A user's credential, and the form that it would have if there were none: that of the next user's, who has another name. It
    /// is the same on all brokers of the cluster while its users are.
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

    /// Whom the bearer of a delegation token is now.
    pub(super) fn bearer(&self, id: &str) -> Option<Bearer> {
        self.tokens.as_ref().and_then(|_| bearer(&(self.images)(), id, self.now_ms()))
    }

    /// The credential of a delegation token that is held now.
    pub(super) fn token_credential(&self, hash: Hash, id: &str) -> Option<Credential> {
        let tokens = self.tokens.as_ref()?;
        self.bearer(id).map(|_| tokens.credential(hash, id))
    }

    /// Verifies a token by the keys that are known.
    pub(super) fn verify(&self, token: &str) -> Result<Token, TokenFault> {
        let (Some(keys), Some(rules)) = (&self.keys, self.rules()) else {
            return Err(TokenFault::UnknownKey(None));
        };
        Token::verify(token, &keys.current(), rules, self.now_ms())
    }

    /// Reads the keys again, if that was not done a moment ago. Returns whether there are others now.
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

/// Fills bytes with what nobody can guess.
pub(super) fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system gives randomness");
}
