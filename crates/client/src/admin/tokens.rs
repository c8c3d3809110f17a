//! Delegation tokens (KIP-48, KIP-373).

use std::time::Duration;

use bytes::Bytes;
use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_security::Principal;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_delegation_token_request::CreatableRenewers;
use thalweg_wire::request::describe_delegation_token_request::DescribeDelegationTokenOwner;
use thalweg_wire::request::{
    CreateDelegationTokenRequest, DescribeDelegationTokenRequest, ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
};

use super::{Admin, refused};

/// A delegation token. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationToken {
    /// The token id, the user name of a login with the token.
    pub id: String,
    /// The HMAC, whose base64 is the password of a login.
    pub hmac: Bytes,
    /// The token's owner, the principal of its bearer.
    pub owner: Principal,
    /// The principal that requested the token.
    pub requester: Principal,
    /// The principals that may renew the token, besides the owner.
    pub renewers: Vec<Principal>,
    /// Time of issue.
    pub issued_ms: i64,
    /// Time of expiry, unless renewed.
    pub expires_ms: i64,
    /// Latest possible time of expiry after renewals.
    pub max_ms: i64,
}

/// A token to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewDelegationToken {
    /// The owner; `None` for the requester.
    pub owner: Option<Principal>,
    /// The principals that may renew the token, besides the owner.
    pub renewers: Vec<Principal>,
    /// Maximum lifetime; `None` for the cluster's limit.
    pub max_lifetime: Option<Duration>,
}

/// Milliseconds in a request; -1 for the cluster's default.
fn period_ms(period: Option<Duration>) -> i64 {
    period.map_or(-1, |period| i64::try_from(period.as_millis()).unwrap_or(i64::MAX))
}

/// `Err` for an error after which the request is retried.
fn retriable(code: i16, what: &str) -> Result<(), RefusedRequest> {
    match ErrorCode::from_i16(code) {
        Some(ErrorCode::NotController | ErrorCode::RequestTimedOut) => {
            RefusedRequest::check(code, None, || what.to_owned())
        }
        _ => Ok(()),
    }
}

impl Admin {
    /// Creates a delegation token.
    pub async fn create_delegation_token(
        &self,
        new: &NewDelegationToken,
    ) -> Result<DelegationToken, ClientError> {
        const WHAT: &str = "Creating a delegation token";
        let renewer = |renewer: &Principal| CreatableRenewers {
            principal_type: renewer.kind().to_owned(),
            principal_name: renewer.name().to_owned(),
        };
        let request = CreateDelegationTokenRequest {
            owner_principal_type: new.owner.as_ref().map(|owner| owner.kind().to_owned()),
            owner_principal_name: new.owner.as_ref().map(|owner| owner.name().to_owned()),
            renewers: new.renewers.iter().map(renewer).collect(),
            max_lifetime_ms: period_ms(new.max_lifetime),
        };
        let made = self.change(&request, |response| retriable(response.error_code, WHAT)).await?;
        refused(made.error_code, None, || WHAT.to_owned())?;
        let owner = Principal::new(made.principal_type, made.principal_name);
        // Before version 3, the requester is the owner.
        let requester = match made.token_requester_principal_name.is_empty() {
            true => owner.clone(),
            false => Principal::new(made.token_requester_principal_type, made.token_requester_principal_name),
        };
        Ok(DelegationToken {
            id: made.token_id,
            hmac: made.hmac,
            owner,
            requester,
            renewers: new.renewers.clone(),
            issued_ms: made.issue_timestamp_ms,
            expires_ms: made.expiry_timestamp_ms,
            max_ms: made.max_timestamp_ms,
        })
    }

    /// Renews a token, for a period or the cluster's default. Returns the time of expiry.
    pub async fn renew_delegation_token(
        &self,
        hmac: Bytes,
        period: Option<Duration>,
    ) -> Result<i64, ClientError> {
        const WHAT: &str = "Renewing a delegation token";
        let request = RenewDelegationTokenRequest { hmac, renew_period_ms: period_ms(period) };
        let renewed = self.change(&request, |response| retriable(response.error_code, WHAT)).await?;
        refused(renewed.error_code, None, || WHAT.to_owned())?;
        Ok(renewed.expiry_timestamp_ms)
    }

    /// Expires a token, after a period or at once. Returns the time of expiry.
    pub async fn expire_delegation_token(
        &self,
        hmac: Bytes,
        after: Option<Duration>,
    ) -> Result<i64, ClientError> {
        const WHAT: &str = "Expiring a delegation token";
        let request = ExpireDelegationTokenRequest { hmac, expiry_time_period_ms: period_ms(after) };
        let expired = self.change(&request, |response| retriable(response.error_code, WHAT)).await?;
        refused(expired.error_code, None, || WHAT.to_owned())?;
        Ok(expired.expiry_timestamp_ms)
    }

    /// The tokens that this client may describe: of these owners, requesters and renewers, or all.
    pub async fn describe_delegation_tokens(
        &self,
        owners: Option<&[Principal]>,
    ) -> Result<Vec<DelegationToken>, ClientError> {
        let owner = |owner: &Principal| DescribeDelegationTokenOwner {
            principal_type: owner.kind().to_owned(),
            principal_name: owner.name().to_owned(),
        };
        let owners = owners.map(|owners| owners.iter().map(owner).collect());
        let request = DescribeDelegationTokenRequest { owners };
        let response = self.change(&request, |_| Ok(())).await?;
        refused(response.error_code, None, || "Describing delegation tokens".to_owned())?;
        let tokens = response.tokens.into_iter().map(|token| {
            let owner = Principal::new(token.principal_type, token.principal_name);
            let requester = match token.token_requester_principal_name.is_empty() {
                true => owner.clone(),
                false => {
                    Principal::new(token.token_requester_principal_type, token.token_requester_principal_name)
                }
            };
            let renewers = token.renewers.into_iter();
            DelegationToken {
                id: token.token_id,
                hmac: token.hmac,
                owner,
                requester,
                renewers: renewers
                    .map(|renewer| Principal::new(renewer.principal_type, renewer.principal_name))
                    .collect(),
                issued_ms: token.issue_timestamp,
                expires_ms: token.expiry_timestamp,
                max_ms: token.max_timestamp,
            }
        });
        Ok(tokens.collect())
    }
}
