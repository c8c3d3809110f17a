//! SCRAM credentials of users (KIP-554). A password never leaves this process: requests contain its salted
//! hash.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_security::sasl::Mechanism;
use thalweg_security::sasl::scram::Hash;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use thalweg_wire::request::describe_user_scram_credentials_request::UserName;
use thalweg_wire::request::{AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest};

use super::{Admin, refused};

/// Default number of hash iterations: Kafka's own default.
pub const SCRAM_ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("it is not zero");
/// Random bytes of a salt.
const SALT_LEN: usize = 24;

/// Hash iterations of a user's credentials, by mechanism.
pub type UserCredentials = BTreeMap<Hash, i32>;

impl Admin {
    /// These users with SCRAM credentials, or all. A named user without credentials is an error.
    pub async fn describe_users(
        &self,
        users: Option<&[String]>,
    ) -> Result<BTreeMap<String, UserCredentials>, ClientError> {
        let named = |names: &[String]| names.iter().map(|name| UserName { name: name.clone() }).collect();
        let request = DescribeUserScramCredentialsRequest { users: users.map(named) };
        let what = || "Describing users".to_owned();
        let response = self.change(&request, |_| Ok(())).await?;
        refused(response.error_code, response.error_message.as_deref(), what)?;
        let mut found = BTreeMap::new();
        for user in response.results {
            let what = || format!("Describing user {}", user.user);
            refused(user.error_code, user.error_message.as_deref(), what)?;
            let credentials = user
                .credential_infos
                .iter()
                .filter_map(|info| Some((Hash::from_code(info.mechanism)?, info.iterations)));
            found.insert(user.user.clone(), credentials.collect());
        }
        Ok(found)
    }

    /// Sets a user's password for a mechanism. The credentials of other mechanisms stay unchanged.
    pub async fn set_password(
        &self,
        user: &str,
        hash: Hash,
        password: &str,
        iterations: NonZeroU32,
    ) -> Result<(), ClientError> {
        let mut salt = [0; SALT_LEN];
        getrandom::fill(&mut salt).expect("the system gives randomness");
        let upsertion = ScramCredentialUpsertion {
            name: user.to_owned(),
            mechanism: hash.code(),
            iterations: i32::try_from(iterations.get()).unwrap_or(i32::MAX),
            salt: salt.to_vec().into(),
            salted_password: hash.salted(password, &salt, iterations).into(),
        };
        let request = AlterUserScramCredentialsRequest { deletions: Vec::new(), upsertions: vec![upsertion] };
        self.alter_credentials(&request, || {
            format!("Setting the password of user {user} for {}", Mechanism::Scram(hash).name())
        })
        .await
    }

    /// Removes a user's credential for a mechanism.
    pub async fn remove_credential(&self, user: &str, hash: Hash) -> Result<(), ClientError> {
        let deletion = ScramCredentialDeletion { name: user.to_owned(), mechanism: hash.code() };
        let request = AlterUserScramCredentialsRequest { deletions: vec![deletion], upsertions: Vec::new() };
        self.alter_credentials(&request, || {
            format!("Removing the credential of user {user} for {}", Mechanism::Scram(hash).name())
        })
        .await
    }

    async fn alter_credentials(
        &self,
        request: &AlterUserScramCredentialsRequest,
        what: impl Fn() -> String,
    ) -> Result<(), ClientError> {
        let is_retriable = |code| {
            matches!(ErrorCode::from_i16(code), Some(ErrorCode::NotController | ErrorCode::RequestTimedOut))
        };
        let response = self
            .change(request, |response| {
                let mut retriable = response.results.iter().filter(|user| is_retriable(user.error_code));
                retriable.next().map_or(Ok(()), |user| {
                    RefusedRequest::check(user.error_code, user.error_message.as_deref(), &what)
                })
            })
            .await?;
        for user in response.results {
            refused(user.error_code, user.error_message.as_deref(), &what)?;
        }
        Ok(())
    }
}
