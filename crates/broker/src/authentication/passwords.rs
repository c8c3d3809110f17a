//! Passwords sent with each request, by HTTP's Basic scheme.
//!
//! Verifying a SCRAM user's password takes thousands of hashes. Passwords are therefore verified one at a
//! time, outside the runtime's workers, and the result is cached (`VerifiedPasswords`) until the user's
//! credential changes. Unknown users cost as much as existing users.

use super::authenticator::{Authenticator, random};
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use thalweg_places::{FairSemaphore, network};
use thalweg_security::sasl::scram::{Credential, Hash, VerifiedPasswords};
use thalweg_security::sasl::{Mechanism, plain};

/// Maximum number of users with a cached password.
const VERIFIED_MAX: usize = 1024;
/// Number of concurrent verifications. Each address has its own queue.
const TURNS: usize = 1;
/// Maximum length of a name or a password in bytes. Longer ones are refused.
const LENGTH_MAX: usize = 1024;

/// The passwords of a listener's users.
pub struct Passwords {
    authenticator: Arc<Authenticator>,
    verified: Mutex<VerifiedPasswords>,
    turns: FairSemaphore<IpAddr>,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("authenticator", &self.authenticator).finish_non_exhaustive()
    }
}

impl Passwords {
    /// The passwords of an authenticator's users.
    pub fn of(authenticator: Arc<Authenticator>) -> Passwords {
        let mut secret = [0; 32];
        random(&mut secret);
        let verified = Mutex::new(VerifiedPasswords::new(&secret, VERIFIED_MAX));
        Passwords { authenticator, verified, turns: FairSemaphore::in_turn(TURNS) }
    }

    /// Delay of the answer to a failed login.
    pub fn failure_delay(&self) -> Duration {
        self.authenticator.failure_delay()
    }

    /// True if a user has this password now. Requests of the same address are verified one at a time.
    pub async fn verify(&self, address: IpAddr, user: &str, password: &str) -> bool {
        if [user, password]
            .iter()
            .any(|text| text.is_empty() || text.len() > LENGTH_MAX || text.contains('\0'))
        {
            return false;
        }
        let users = self.authenticator.users();
        if !users.is_empty() && users.authenticate(&plain::message(user, password)).is_ok() {
            return true;
        }
        let candidates = self.credentials(user);
        if candidates.is_empty() {
            return false;
        }
        if self.verified.lock().contains(user, password, candidates.iter().map(|(_, known)| known)) {
            return true;
        }
        let turn = self.turns.take(&network(address)).await;
        let shown = password.to_owned();
        let found = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            candidates.into_iter().find(|(hash, known)| known.is_of(*hash, &shown))
        });
        // The verification must not panic. If it does, the login fails.
        let Ok(Some((_, credential))) = found.await else { return false };
        self.verified.lock().insert(user, password, credential);
        true
    }

    /// The credentials to verify a user's password against, or a decoy for an unknown user. Empty if no
    /// mechanism has SCRAM users.
    fn credentials(&self, user: &str) -> Vec<(Hash, Credential)> {
        let (mut found, mut decoy) = (Vec::new(), None);
        for mechanism in self.authenticator.mechanisms() {
            let Mechanism::Scram(hash) = *mechanism else { continue };
            match self.authenticator.credential(hash, user) {
                (Some(known), _) => found.push((hash, known)),
                (None, form) => decoy = Some((hash, Credential::decoy(hash, user, &form))),
            }
        }
        if found.is_empty() {
            found.extend(decoy);
        }
        found
    }
}
