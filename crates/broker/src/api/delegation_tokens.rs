//! CreateDelegationToken (38), versions 1 to 3, RenewDelegationToken (39) and ExpireDelegationToken (40),
//! versions 1 and 2: forwarded to the controller. DescribeDelegationToken (41), versions 1 to 3: answered
//! from the image. Version 2 is flexible, version 3 names a requester who is not the owner (KIP-373).
//!
//! Clients must have authenticated, and not by a token: a token cannot make or renew tokens. The answer omits
//! tokens that the client may not describe.

use super::Call;
use super::entry::{Api, ByResource, Controller, Forwarding, now};
use super::serve::forward;
use crate::audit::{Changes, ClusterChange, listed};
use crate::broker::Broker;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use thalweg_audit::Action;
use thalweg_config::BrokerConfig;
use thalweg_metadata::{DelegationToken, Image};
use thalweg_net::Reply;
use thalweg_security::Principal;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::describe_delegation_token_response::{
    DescribedDelegationToken, DescribedDelegationTokenRenewer,
};
use thalweg_wire::request::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse, DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse, ExpireDelegationTokenRequest, ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest, RenewDelegationTokenResponse,
};
use thalweg_wire::{ApiKey, DecodeError, Decoder, ErrorCode, Refuse};

pub(super) const CREATE: Api = Api::new(ApiKey::CreateDelegationToken, 1..=3, Controller, create)
    .forwarded(Forwarding::Changes)
    .changing::<CreateDelegationTokenRequest>();
pub(super) const RENEW: Api = Api::new(ApiKey::RenewDelegationToken, 1..=2, Controller, renew)
    .forwarded(Forwarding::Changes)
    .changing::<RenewDelegationTokenRequest>();
pub(super) const EXPIRE: Api = Api::new(ApiKey::ExpireDelegationToken, 1..=2, Controller, expire)
    .forwarded(Forwarding::Changes)
    .changing::<ExpireDelegationTokenRequest>();
pub(super) const DESCRIBE: Api = Api::new(ApiKey::DescribeDelegationToken, 1..=3, ByResource, |b, c, d| {
    now(b, c, d, |b, c, r| describe(&b.config(), &b.image(), c, r))
});

/// The first version that names the requester of a token (KIP-373).
const REQUESTER_FROM: i16 = 3;
/// The type of principals that can renew tokens.
const USER: &str = "User";
/// The type of tokens in audit events, which name them by their ids, never by their secrets.
const TOKEN: &str = "DelegationToken";

/// Forwards CreateDelegationToken if the client may create a token for this owner.
pub fn create(broker: &Arc<Broker>, call: Call, d: Decoder) -> Result<Reply, DecodeError> {
    check_then_forward::<CreateDelegationTokenRequest>(broker, call, d, |config, call, request| {
        let requester = &*call.principal;
        let owner = match request.owner_principal_name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Principal::new(request.owner_principal_type.as_deref().unwrap_or_default(), name),
            None => requester.clone(),
        };
        let may_create = || call.permissions.may(Operation::CreateTokens, ResourceType::User, owner.as_str());
        let error = if !may_use_tokens(config, call) {
            ErrorCode::DelegationTokenRequestNotAllowed
        } else if owner != *requester && !may_create() {
            ErrorCode::DelegationTokenAuthorizationFailed
        } else if request.renewers.iter().any(|renewer| renewer.principal_type != USER) {
            ErrorCode::InvalidPrincipalType
        } else {
            return None;
        };
        let of_requester =
            |text: &str| if call.version >= REQUESTER_FROM { text.to_owned() } else { String::new() };
        Some(CreateDelegationTokenResponse {
            error_code: error.code(),
            principal_type: owner.kind().to_owned(),
            principal_name: owner.name().to_owned(),
            token_requester_principal_type: of_requester(requester.kind()),
            token_requester_principal_name: of_requester(requester.name()),
            issue_timestamp_ms: -1,
            expiry_timestamp_ms: -1,
            max_timestamp_ms: -1,
            ..Default::default()
        })
    })
}

pub fn renew(broker: &Arc<Broker>, call: Call, d: Decoder) -> Result<Reply, DecodeError> {
    check_then_forward::<RenewDelegationTokenRequest>(broker, call, d, |config, call, _| {
        let error_code = ErrorCode::DelegationTokenRequestNotAllowed.code();
        let refused =
            RenewDelegationTokenResponse { error_code, expiry_timestamp_ms: -1, ..Default::default() };
        (!may_use_tokens(config, call)).then_some(refused)
    })
}

pub fn expire(broker: &Arc<Broker>, call: Call, d: Decoder) -> Result<Reply, DecodeError> {
    check_then_forward::<ExpireDelegationTokenRequest>(broker, call, d, |config, call, _| {
        let error_code = ErrorCode::DelegationTokenRequestNotAllowed.code();
        let refused =
            ExpireDelegationTokenResponse { error_code, expiry_timestamp_ms: -1, ..Default::default() };
        (!may_use_tokens(config, call)).then_some(refused)
    })
}

/// DescribeDelegationToken: tokens that the client owns, may renew, or may describe.
pub fn describe(
    config: &BrokerConfig,
    image: &Image,
    call: &Call,
    request: DescribeDelegationTokenRequest,
) -> DescribeDelegationTokenResponse {
    let refused =
        |code: ErrorCode| DescribeDelegationTokenResponse { error_code: code.code(), ..Default::default() };
    if !may_use_tokens(config, call) {
        return refused(ErrorCode::DelegationTokenRequestNotAllowed);
    }
    let Some(secret) = &config.delegation_tokens.secret_key else {
        return refused(ErrorCode::DelegationTokenAuthDisabled);
    };
    let owners: Option<BTreeSet<String>> = request.owners.map(|owners| {
        let texts =
            owners.into_iter().map(|owner| Principal::new(owner.principal_type, owner.principal_name));
        texts.map(|owner| owner.as_str().to_owned()).collect()
    });
    if owners.as_ref().is_some_and(BTreeSet::is_empty) {
        return DescribeDelegationTokenResponse::default();
    }
    let tokens = image.delegation_tokens().iter().filter(|(id, token)| {
        owners.as_ref().is_none_or(|owners| principals(token).any(|principal| owners.contains(principal)))
            && may_describe(call, id, token)
    });
    let tokens = tokens.map(|(id, token)| described(id, token, secret.hmac(id), call.version));
    DescribeDelegationTokenResponse { tokens: tokens.collect(), ..Default::default() }
}

/// The owner, the requester, and the renewers.
fn principals(token: &DelegationToken) -> impl Iterator<Item = &String> {
    [&token.owner, &token.requester].into_iter().chain(&token.renewers)
}

fn may_describe(call: &Call, id: &str, token: &DelegationToken) -> bool {
    let (principal, permissions) = (call.principal.as_str(), &call.permissions);
    principals(token).any(|own| own == principal)
        || permissions.may_also(Operation::Describe, ResourceType::DelegationToken, id)
        || permissions.may_also(Operation::DescribeTokens, ResourceType::User, &token.owner)
}

fn described(id: &str, token: &DelegationToken, hmac: Vec<u8>, version: i16) -> DescribedDelegationToken {
    let (principal_type, principal_name) = parts(&token.owner);
    let (token_requester_principal_type, token_requester_principal_name) = match version >= REQUESTER_FROM {
        true => parts(&token.requester),
        false => Default::default(),
    };
    let renewers = token.renewers.iter().map(|renewer| {
        let (principal_type, principal_name) = parts(renewer);
        DescribedDelegationTokenRenewer { principal_type, principal_name }
    });
    DescribedDelegationToken {
        principal_type,
        principal_name,
        token_requester_principal_type,
        token_requester_principal_name,
        issue_timestamp: token.issue_timestamp,
        expiry_timestamp: token.expiration_timestamp,
        max_timestamp: token.max_timestamp,
        token_id: id.to_owned(),
        hmac: hmac.into(),
        renewers: renewers.collect(),
    }
}

/// The type and the name of a principal of the metadata log.
fn parts(principal: &str) -> (String, String) {
    let (kind, name) = principal.split_once(':').unwrap_or(("", principal));
    (kind.to_owned(), name.to_owned())
}

/// True if the client has authenticated by SASL or by a certificate, and not by a token.
fn may_use_tokens(config: &BrokerConfig, call: &Call) -> bool {
    let by_sasl = config.sasl.contains_key(&call.peer.listener);
    let by_certificate = call.peer.tls.is_some() && *call.principal != Principal::anonymous();
    !call.is_by_token && (by_sasl || by_certificate)
}

/// Answers a request that `refuse` refuses, and forwards any other.
fn check_then_forward<R>(
    broker: &Arc<Broker>,
    call: Call,
    d: Decoder,
    refuse: fn(&BrokerConfig, &Call, &R) -> Option<R::Response>,
) -> Result<Reply, DecodeError>
where
    R: Refuse + Send + 'static,
    R::Response: Send + 'static,
{
    let request = R::decode(&mut d.clone(), call.version)?;
    match refuse(&broker.config(), &call, &request) {
        Some(response) => {
            call.answered_with(&broker.requests, None, Duration::ZERO, &response);
            Ok(call.reply::<R>(&response))
        }
        None => forward::handle::<R>(broker, call, d),
    }
}

impl ClusterChange for CreateDelegationTokenRequest {
    fn describe(&self, answer: &CreateDelegationTokenResponse, changes: &mut Changes<'_>) {
        let renewers: Vec<_> =
            self.renewers.iter().map(|r| format!("{}:{}", r.principal_type, r.principal_name)).collect();
        let detail = listed([
            ("owner", format!("{}:{}", answer.principal_type, answer.principal_name)),
            ("renewers", renewers.join(",")),
            ("max.timestamp.ms", answer.max_timestamp_ms.to_string()),
        ]);
        changes.note(Action::Create, TOKEN, &answer.token_id, detail, (answer.error_code, None));
    }
}

/// A request names the token by its secret, so the event has no name.
impl ClusterChange for RenewDelegationTokenRequest {
    fn describe(&self, answer: &RenewDelegationTokenResponse, changes: &mut Changes<'_>) {
        let detail = format!("expiry.timestamp.ms={}", answer.expiry_timestamp_ms);
        changes.note(Action::Update, TOKEN, "", detail, (answer.error_code, None));
    }
}

impl ClusterChange for ExpireDelegationTokenRequest {
    fn describe(&self, answer: &ExpireDelegationTokenResponse, changes: &mut Changes<'_>) {
        let detail = format!("expiry.timestamp.ms={}", answer.expiry_timestamp_ms);
        changes.note(Action::Delete, TOKEN, "", detail, (answer.error_code, None));
    }
}
