//! SCRAM credentials of users (Kafka's `ScramControlManager`, KIP-554). Clients send passwords salted and
//! hashed; the stored keys verify a password, but cannot be used to log in, unlike the salted password.
//!
//! Departures: an empty salted password is refused with a message; Kafka answers UNKNOWN_SERVER_ERROR. A long
//! salt is refused, because the image of every node has each user's salt.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use thalweg_metadata::VersionedRecord;
use thalweg_security::acl::Operation::Alter;
use thalweg_security::sasl::scram::{Credential, Hash, ITERATIONS_MAX, ITERATIONS_MIN, NewUser};
use thalweg_wire::metadata::{RemoveUserScramCredentialRecord, UserScramCredentialRecord};
use thalweg_wire::request::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use thalweg_wire::request::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use thalweg_wire::request::{AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse};
use thalweg_wire::{ErrorCode, MetadataRecord};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide, ELEMENTS_MAX};
use super::{ApiError, Moment, Outcome, RECORDS_PER_REQUEST_MAX, State};

pub(super) const APIS: &[Api] =
    &[Api::new::<AlterUserScramCredentialsRequest>(Cluster(Alter)).anywhere(ELEMENTS_MAX).forwarded()];

impl Decide for AlterUserScramCredentialsRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.alter_user_scram_credentials(self)
    }
}

/// Maximum length of a salt in bytes. Clients use about 20.
const SALT_BYTES_MAX: usize = 1024;

impl State {
    /// Adds users to the first records of a new cluster.
    pub fn begin_with_users(&mut self, users: &[NewUser]) {
        let record = |user: &NewUser| UserScramCredentialRecord {
            name: user.name.clone(),
            mechanism: user.hash.code(),
            salt: user.credential.salt.clone().into(),
            stored_key: user.credential.stored_key.clone().into(),
            server_key: user.credential.server_key.clone().into(),
            iterations: i32::try_from(user.credential.iterations).expect("it is at most the maximum"),
        };
        let records = users.iter().map(|user| MetadataRecord::UserScramCredential(record(user)));
        self.bootstrap.extend(records.map(|record| VersionedRecord::new(record, 0)));
    }

    /// AlterUserScramCredentials. A user may appear once in a request, for any mechanism. Repeated users are
    /// refused.
    pub fn alter_user_scram_credentials(
        &self,
        request: &AlterUserScramCredentialsRequest,
    ) -> Result<Outcome<AlterUserScramCredentialsResponse>, ApiError> {
        let deletions = request.deletions.iter().map(|deletion| (&deletion.name, self.delete(deletion)));
        let upsertions = request.upsertions.iter().map(|upsertion| (&upsertion.name, self.upsert(upsertion)));
        let mut altered: BTreeMap<&String, Result<MetadataRecord, ApiError>> = BTreeMap::new();
        for (user, record) in deletions.chain(upsertions) {
            match altered.entry(user) {
                Entry::Vacant(free) => {
                    free.insert(record);
                }
                Entry::Occupied(mut first) if first.get().is_ok() => {
                    let message = "A user credential cannot be altered twice in the same request";
                    *first.get_mut() = Err(ApiError::new(ErrorCode::DuplicateResource, message));
                }
                Entry::Occupied(_) => {}
            }
        }
        let (mut records, mut results) = (Vec::new(), Vec::new());
        for (user, record) in altered {
            let (error_code, error_message) = match record {
                Ok(record) => {
                    records.push(VersionedRecord::new(record, 0));
                    (0, None)
                }
                Err(error) => (error.code.code(), error.message),
            };
            results.push(AlterUserScramCredentialsResult { user: user.clone(), error_code, error_message });
        }
        if records.len() > RECORDS_PER_REQUEST_MAX {
            return Err(super::too_many_records());
        }
        Ok(Outcome::new(records, AlterUserScramCredentialsResponse { results, ..Default::default() }))
    }

    fn delete(&self, deletion: &ScramCredentialDeletion) -> Result<MetadataRecord, ApiError> {
        let (name, mechanism) = (deletion.name.clone(), deletion.mechanism);
        self.check(&name, mechanism)?;
        if !self.image.scram_credentials().contains_key(&(name.clone(), mechanism)) {
            let message = "Attempt to delete a user credential that does not exist";
            return Err(ApiError::new(ErrorCode::ResourceNotFound, message));
        }
        let record = RemoveUserScramCredentialRecord { name, mechanism };
        Ok(MetadataRecord::RemoveUserScramCredential(record))
    }

    fn upsert(&self, upsertion: &ScramCredentialUpsertion) -> Result<MetadataRecord, ApiError> {
        let hash = self.check(&upsertion.name, upsertion.mechanism)?;
        let unacceptable = |message: &str| Err(ApiError::new(ErrorCode::UnacceptableCredential, message));
        let iterations = match u32::try_from(upsertion.iterations) {
            Ok(iterations) if iterations > ITERATIONS_MAX => return unacceptable("Too many iterations"),
            Ok(iterations) if iterations >= ITERATIONS_MIN => iterations,
            _ => return unacceptable("Too few iterations"),
        };
        if upsertion.salt.len() > SALT_BYTES_MAX {
            return unacceptable(&format!("The salt must not be longer than {SALT_BYTES_MAX} bytes"));
        }
        if upsertion.salted_password.is_empty() {
            return unacceptable("The salted password must not be empty");
        }
        let salt = upsertion.salt.to_vec();
        let made = Credential::of_salted_password(hash, &upsertion.salted_password, salt, iterations);
        Ok(MetadataRecord::UserScramCredential(UserScramCredentialRecord {
            name: upsertion.name.clone(),
            mechanism: upsertion.mechanism,
            salt: upsertion.salt.clone(),
            stored_key: made.stored_key.into(),
            server_key: made.server_key.into(),
            iterations: upsertion.iterations,
        }))
    }

    /// Common checks of a change to a user's credential.
    fn check(&self, user: &str, mechanism: i8) -> Result<Hash, ApiError> {
        if !self.metadata_version().has_scram() {
            let message = "The current metadata.version does not support SCRAM";
            return Err(ApiError::new(ErrorCode::UnsupportedVersion, message));
        }
        if user.is_empty() {
            return Err(ApiError::new(ErrorCode::UnacceptableCredential, "Username must not be empty"));
        }
        let unknown = || ApiError::new(ErrorCode::UnsupportedSaslMechanism, "Unknown SCRAM mechanism");
        Hash::from_code(mechanism).ok_or_else(unknown)
    }
}
