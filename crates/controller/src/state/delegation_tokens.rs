//! Delegation tokens (Kafka's `DelegationTokenControlManager`, KIP-48, KIP-373): CreateDelegationToken,
//! RenewDelegationToken, ExpireDelegationToken, and the removal of expired tokens. The log has all fields of
//! a token except the HMAC, which is derived from the id and the cluster's secret key.
//!
//! Departures: there are limits on tokens in total and per requester, on renewers, and on the length of
//! names. An owner that is not a user is refused, because the bearer of the token would become the user of
//! that name.

use std::sync::Arc;

use bytes::Bytes;
use thalweg_config::DelegationTokenSettings;
use thalweg_hash::HashMap;
use thalweg_metadata::{DelegationToken, Image, VersionedRecord};
use thalweg_security::Principal;
use thalweg_security::acl::{LoggedOutcomes, Operation, ResourceType};
use thalweg_wire::metadata::{DelegationTokenRecord, RemoveDelegationTokenRecord};
use thalweg_wire::request::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse, ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse, RenewDelegationTokenRequest, RenewDelegationTokenResponse,
};
use thalweg_wire::{ErrorCode, MetadataRecord, Uuid};

use super::entry::Access::ByResource;
use super::entry::{Api, Call, Decide};
use super::{ApiError, Moment, Outcome, State};
use crate::request_context::RequestContext;
use crate::requester::Requester;

pub(super) const APIS: &[Api] = &[
    Api::new::<CreateDelegationTokenRequest>(ByResource).forwarded(),
    Api::new::<RenewDelegationTokenRequest>(ByResource).forwarded(),
    Api::new::<ExpireDelegationTokenRequest>(ByResource).forwarded(),
];

impl Decide for CreateDelegationTokenRequest {
    fn decide(
        &self,
        state: &mut State,
        call: &Call,
        now: Moment,
    ) -> Result<Outcome<Self::Response>, ApiError> {
        Ok(state.create_delegation_token(&call.by, self, call.version, now))
    }
}

impl Decide for RenewDelegationTokenRequest {
    fn decide(
        &self,
        state: &mut State,
        call: &Call,
        now: Moment,
    ) -> Result<Outcome<Self::Response>, ApiError> {
        Ok(state.renew_delegation_token(&call.by, self, now))
    }
}

impl Decide for ExpireDelegationTokenRequest {
    fn decide(
        &self,
        state: &mut State,
        call: &Call,
        now: Moment,
    ) -> Result<Outcome<Self::Response>, ApiError> {
        Ok(state.expire_delegation_token(&call.by, self, now))
    }
}

/// Maximum number of delegation tokens in a cluster, including expired ones that are not removed yet.
const TOKENS_MAX: usize = 10_000;
/// Maximum number of tokens requested by one principal, because creating own tokens needs no right.
const TOKENS_OF_REQUESTER_MAX: usize = 1_000;
/// Maximum number of renewers of a token.
const RENEWERS_MAX: usize = 100;
/// Maximum total length of the names of a token's principals, in bytes.
const NAMES_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of expired tokens removed at once (Kafka's `MAX_RECORDS_PER_EXPIRATION`).
const EXPIRED_AT_ONCE_MAX: usize = 1_000;
/// The type of principals that can own and renew tokens.
const USER: &str = "User";

/// The settings, and the ids of tokens by HMAC.
#[derive(Clone)]
pub(super) struct DelegationTokens {
    settings: DelegationTokenSettings,
    /// The ids of the image's tokens. Empty without a secret key.
    ids: Arc<HashMap<Vec<u8>, String>>,
}

impl DelegationTokens {
    pub fn new(settings: DelegationTokenSettings) -> DelegationTokens {
        DelegationTokens { settings, ids: Arc::default() }
    }

    /// Loads the tokens of an image.
    pub fn load(&mut self, image: &Image) {
        let Some(secret) = &self.settings.secret_key else { return };
        let ids = image.delegation_tokens().keys().map(|id| (secret.hmac(id), id.clone()));
        self.ids = Arc::new(ids.collect());
    }

    pub fn add(&mut self, id: &str) {
        if let Some(secret) = &self.settings.secret_key {
            Arc::make_mut(&mut self.ids).insert(secret.hmac(id), id.to_owned());
        }
    }

    pub fn remove(&mut self, id: &str) {
        if let Some(secret) = &self.settings.secret_key {
            Arc::make_mut(&mut self.ids).remove(&secret.hmac(id));
        }
    }
}

/// Expired tokens to remove.
#[derive(Debug)]
pub(crate) struct ExpiredTokens {
    pub records: Vec<VersionedRecord>,
    /// True if there are more.
    pub more: bool,
}

impl State {
    /// CreateDelegationToken: for the requester, or for another user by CREATE_TOKENS on that user.
    pub fn create_delegation_token(
        &self,
        by: &RequestContext,
        request: &CreateDelegationTokenRequest,
        version: i16,
        now: Moment,
    ) -> Outcome<CreateDelegationTokenResponse> {
        let principal = principal_of(by.requester());
        let owner = match request.owner_principal_name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Principal::new(request.owner_principal_type.as_deref().unwrap_or_default(), name),
            None => principal.clone(),
        };
        let mut response = CreateDelegationTokenResponse {
            principal_type: owner.kind().to_owned(),
            principal_name: owner.name().to_owned(),
            ..Default::default()
        };
        if version >= 3 {
            response.token_requester_principal_type = principal.kind().to_owned();
            response.token_requester_principal_name = principal.name().to_owned();
        }
        if owner != principal
            && !self.may(
                by,
                LoggedOutcomes::Both,
                Operation::CreateTokens,
                ResourceType::User,
                owner.as_str(),
            )
        {
            let code = ErrorCode::DelegationTokenAuthorizationFailed.code();
            let refused = CreateDelegationTokenResponse { error_code: code, ..response };
            return Outcome::answer(CreateDelegationTokenResponse {
                issue_timestamp_ms: -1,
                expiry_timestamp_ms: -1,
                max_timestamp_ms: -1,
                ..refused
            });
        }
        let made = self.new_token(&owner, &principal, request, now);
        match made {
            Ok((id, hmac, token)) => {
                response.issue_timestamp_ms = token.issue_timestamp;
                response.expiry_timestamp_ms = token.expiration_timestamp;
                response.max_timestamp_ms = token.max_timestamp;
                response.token_id.clone_from(&id);
                response.hmac = Bytes::from(hmac);
                Outcome::new(vec![record(id, token)], response)
            }
            Err(code) => {
                response.error_code = code.code();
                Outcome::answer(response)
            }
        }
    }

    fn new_token(
        &self,
        owner: &Principal,
        requester: &Principal,
        request: &CreateDelegationTokenRequest,
        now: Moment,
    ) -> Result<(String, Vec<u8>, DelegationToken), ErrorCode> {
        self.check_tokens_are_served()?;
        let secret = self.tokens.settings.secret_key.as_ref().expect("it was just checked");
        if owner.kind() != USER || request.renewers.iter().any(|renewer| renewer.principal_type != USER) {
            return Err(ErrorCode::InvalidPrincipalType);
        }
        let names: usize = request.renewers.iter().map(|renewer| renewer.principal_name.len()).sum();
        let names = names + owner.name().len() + requester.name().len();
        if request.renewers.len() > RENEWERS_MAX || names > NAMES_BYTES_MAX {
            return Err(ErrorCode::InvalidRequest);
        }
        self.check_room_for_token(requester)?;
        let renewers =
            request.renewers.iter().map(|renewer| Principal::user(renewer.principal_name.as_str()));
        let max_timestamp =
            now.wall_ms.saturating_add(shorter(self.max_lifetime_ms(), request.max_lifetime_ms));
        let token = DelegationToken {
            owner: owner.to_string(),
            requester: requester.to_string(),
            renewers: renewers.map(|renewer| renewer.to_string()).collect(),
            issue_timestamp: now.wall_ms,
            max_timestamp,
            expiration_timestamp: max_timestamp.min(now.wall_ms.saturating_add(self.expiry_time_ms())),
        };
        let id = Uuid::random().to_string();
        let hmac = secret.hmac(&id);
        Ok((id, hmac, token))
    }

    /// Checks the limits of tokens, in the cluster and for the requester.
    fn check_room_for_token(&self, requester: &Principal) -> Result<(), ErrorCode> {
        let tokens = self.image.delegation_tokens();
        let of_requester = tokens.values().filter(|token| token.requester == requester.as_str());
        let limit = if tokens.len() >= TOKENS_MAX {
            format!("a cluster has at most {TOKENS_MAX} tokens")
        } else if of_requester.count() >= TOKENS_OF_REQUESTER_MAX {
            format!("a principal has at most {TOKENS_OF_REQUESTER_MAX} tokens that it requested")
        } else {
            return Ok(());
        };
        // The response has no field for a message.
        tracing::debug!(%requester, limit, "Delegation token was refused");
        Err(ErrorCode::PolicyViolation)
    }

    /// RenewDelegationToken, by the owner and the renewers.
    pub fn renew_delegation_token(
        &self,
        by: &RequestContext,
        request: &RenewDelegationTokenRequest,
        now: Moment,
    ) -> Outcome<RenewDelegationTokenResponse> {
        let renewed = self.token_by_hmac(&request.hmac).and_then(|(id, token)| {
            check_unexpired(token, now)?;
            check_renewer(token, by.requester())?;
            let period = shorter(self.expiry_time_ms(), request.renew_period_ms);
            Ok(expiring_at(id, token, now.wall_ms.saturating_add(period)))
        });
        match renewed {
            Ok((expiry_timestamp_ms, record)) => {
                let response = RenewDelegationTokenResponse { expiry_timestamp_ms, ..Default::default() };
                Outcome::new(vec![record], response)
            }
            Err(code) => Outcome::answer(RenewDelegationTokenResponse {
                error_code: code.code(),
                ..Default::default()
            }),
        }
    }

    /// ExpireDelegationToken, by the owner and the renewers: after a period, or immediately if the period is
    /// negative.
    pub fn expire_delegation_token(
        &self,
        by: &RequestContext,
        request: &ExpireDelegationTokenRequest,
        now: Moment,
    ) -> Outcome<ExpireDelegationTokenResponse> {
        let expiring = self.token_by_hmac(&request.hmac).and_then(|(id, token)| {
            check_renewer(token, by.requester())?;
            if request.expiry_time_period_ms < 0 {
                return Ok((now.wall_ms, removal(id)));
            }
            check_unexpired(token, now)?;
            Ok(expiring_at(id, token, now.wall_ms.saturating_add(request.expiry_time_period_ms)))
        });
        match expiring {
            Ok((expiry_timestamp_ms, record)) => {
                let response = ExpireDelegationTokenResponse { expiry_timestamp_ms, ..Default::default() };
                Outcome::new(vec![record], response)
            }
            Err(code) => Outcome::answer(ExpireDelegationTokenResponse {
                error_code: code.code(),
                ..Default::default()
            }),
        }
    }

    /// Interval of removing expired tokens; `None` if tokens are disabled.
    pub fn expire_tokens_interval(&self) -> Option<std::time::Duration> {
        let settings = &self.tokens.settings;
        settings.secret_key.as_ref().map(|_| settings.expiry_check_interval)
    }

    /// Removes expired tokens.
    pub fn remove_expired_tokens(&self, now: Moment) -> ExpiredTokens {
        let tokens = self.image.delegation_tokens().iter();
        let mut expired = tokens.filter(|(_, token)| check_unexpired(token, now).is_err());
        let records = expired.by_ref().take(EXPIRED_AT_ONCE_MAX);
        let records = records.map(|(id, token)| {
            tracing::info!(token_id = id, owner = token.owner, "Delegation token has expired");
            removal(id)
        });
        ExpiredTokens { records: records.collect(), more: expired.next().is_some() }
    }

    fn check_tokens_are_served(&self) -> Result<(), ErrorCode> {
        if self.tokens.settings.secret_key.is_none() {
            return Err(ErrorCode::DelegationTokenAuthDisabled);
        }
        if !self.metadata_version().has_delegation_tokens() {
            return Err(ErrorCode::UnsupportedVersion);
        }
        Ok(())
    }

    fn token_by_hmac(&self, hmac: &[u8]) -> Result<(&str, &DelegationToken), ErrorCode> {
        self.check_tokens_are_served()?;
        let found = self.tokens.ids.get(hmac).and_then(|id| {
            let (id, token) = self.image.delegation_tokens().get_key_value(id)?;
            Some((id.as_str(), &**token))
        });
        found.ok_or(ErrorCode::DelegationTokenNotFound)
    }

    fn max_lifetime_ms(&self) -> i64 {
        i64::try_from(self.tokens.settings.max_lifetime.as_millis()).unwrap_or(i64::MAX)
    }

    fn expiry_time_ms(&self) -> i64 {
        i64::try_from(self.tokens.settings.expiry_time.as_millis()).unwrap_or(i64::MAX)
    }
}

fn principal_of(requester: &Requester) -> Principal {
    match requester {
        Requester::ThisProcess => Principal::anonymous(),
        Requester::Peer { principal, .. } => principal.clone(),
    }
}

/// The configured period, or a shorter requested one.
fn shorter(set_ms: i64, requested_ms: i64) -> i64 {
    if requested_ms > 0 { set_ms.min(requested_ms) } else { set_ms }
}

fn check_unexpired(token: &DelegationToken, now: Moment) -> Result<(), ErrorCode> {
    if token.max_timestamp < now.wall_ms || token.expiration_timestamp < now.wall_ms {
        return Err(ErrorCode::DelegationTokenExpired);
    }
    Ok(())
}

fn check_renewer(token: &DelegationToken, requester: &Requester) -> Result<(), ErrorCode> {
    let principal = principal_of(requester);
    let text = principal.as_str();
    if token.owner == text || token.renewers.iter().any(|renewer| renewer == text) {
        return Ok(());
    }
    Err(ErrorCode::DelegationTokenOwnerMismatch)
}

/// A token with a new expiry, at most its maximum lifetime.
fn expiring_at(id: &str, token: &DelegationToken, end_ms: i64) -> (i64, VersionedRecord) {
    let expiration_timestamp = end_ms.min(token.max_timestamp);
    (expiration_timestamp, record(id.to_owned(), DelegationToken { expiration_timestamp, ..token.clone() }))
}

fn record(token_id: String, token: DelegationToken) -> VersionedRecord {
    let record = DelegationTokenRecord {
        owner: token.owner,
        requester: token.requester,
        renewers: token.renewers,
        issue_timestamp: token.issue_timestamp,
        max_timestamp: token.max_timestamp,
        expiration_timestamp: token.expiration_timestamp,
        token_id,
    };
    VersionedRecord::new(MetadataRecord::DelegationToken(record), 0)
}

fn removal(id: &str) -> VersionedRecord {
    let record = RemoveDelegationTokenRecord { token_id: id.to_owned() };
    VersionedRecord::new(MetadataRecord::RemoveDelegationToken(record), 0)
}
