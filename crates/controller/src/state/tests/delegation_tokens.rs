//! Delegation tokens: creation, renewal, expiry, removal.

use thalweg_security::acl::{Acl, Operation, PatternType, Permission, ResourceType, Rules as AclRules};
use thalweg_security::{DelegationTokenSecret, Principal};
use thalweg_wire::metadata::AccessControlEntryRecord;
use thalweg_wire::request::create_delegation_token_request::CreatableRenewers;
use thalweg_wire::request::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse, ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
};

use super::*;
use crate::Requester;
use crate::request_context::RequestContext;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

fn secret() -> DelegationTokenSecret {
    DelegationTokenSecret::new("secret").expect("not empty")
}

/// With a secret key or without, and with an authorizer.
fn bench(secret_key: Option<DelegationTokenSecret>) -> Bench {
    let mut options = ControllerOptions { authorizer: Some(AclRules::default()), ..options() };
    options.delegation_tokens.secret_key = secret_key;
    let mut bench = Bench::new();
    let (image, offset) = (bench.state.image().clone(), bench.state.next_offset());
    bench.state = State::new(&options, Arc::new(Rules), 42);
    bench.state.activate(image, offset, HashMap::default(), bench.now);
    bench
}

fn user(name: &str) -> RequestContext {
    let peer = Requester::peer(Principal::user(name), [10, 0, 0, 1].into());
    RequestContext::new(peer, thalweg_wire::ApiKey::CreateDelegationToken)
}

fn renewers(names: &[&str]) -> Vec<CreatableRenewers> {
    let renewer = |name: &&str| CreatableRenewers {
        principal_type: "User".to_owned(),
        principal_name: (*name).to_owned(),
    };
    names.iter().map(renewer).collect()
}

fn create(
    bench: &mut Bench,
    by: &str,
    request: &CreateDelegationTokenRequest,
) -> CreateDelegationTokenResponse {
    let outcome = bench.state.create_delegation_token(&user(by), request, 3, bench.now);
    bench.apply(outcome.records);
    outcome.response
}

fn renew(bench: &mut Bench, by: &str, hmac: &[u8], renew_period_ms: i64) -> (i16, i64) {
    let request = RenewDelegationTokenRequest { hmac: hmac.to_vec().into(), renew_period_ms };
    let outcome = bench.state.renew_delegation_token(&user(by), &request, bench.now);
    bench.apply(outcome.records);
    (outcome.response.error_code, outcome.response.expiry_timestamp_ms)
}

fn expire(bench: &mut Bench, by: &str, hmac: &[u8], expiry_time_period_ms: i64) -> (i16, i64) {
    let request = ExpireDelegationTokenRequest { hmac: hmac.to_vec().into(), expiry_time_period_ms };
    let outcome = bench.state.expire_delegation_token(&user(by), &request, bench.now);
    bench.apply(outcome.records);
    (outcome.response.error_code, outcome.response.expiry_timestamp_ms)
}

#[test]
fn a_token_lasts_for_a_day_and_is_renewed_for_a_week() {
    let mut bench = bench(Some(secret()));
    let start = bench.now.wall_ms;
    let request = CreateDelegationTokenRequest { renewers: renewers(&["bob"]), ..Default::default() };
    let token = create(&mut bench, "ann", &request);
    assert_eq!((token.error_code, token.principal_name.as_str()), (0, "ann"));
    assert_eq!(token.hmac, secret().hmac(&token.token_id));
    let times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms);
    assert_eq!(times, (start, start + DAY_MS, start + 7 * DAY_MS));
    bench.now.wall_ms += HOUR_MS;
    assert_eq!(renew(&mut bench, "bob", &token.hmac, -1), (0, start + HOUR_MS + DAY_MS));
    assert_eq!(renew(&mut bench, "ann", &token.hmac, 5), (0, start + HOUR_MS + 5), "it may get shorter");
    assert_eq!(renew(&mut bench, "ann", &token.hmac, i64::MAX), (0, start + HOUR_MS + DAY_MS));
    assert_eq!(expire(&mut bench, "bob", &token.hmac, i64::MAX), (0, start + 7 * DAY_MS));
    bench.now.wall_ms = start + 7 * DAY_MS;
    assert_eq!(renew(&mut bench, "ann", &token.hmac, -1), (0, start + 7 * DAY_MS), "not past its life");
}

#[test]
fn refusals_have_the_codes_of_kafka() {
    let code = |error: ErrorCode| (error.code(), 0);
    let mut bench = bench(Some(secret()));
    let request = CreateDelegationTokenRequest { max_lifetime_ms: HOUR_MS, ..Default::default() };
    let token = create(&mut bench, "ann", &request);
    assert_eq!(token.max_timestamp_ms, bench.now.wall_ms + HOUR_MS);
    let hmac = token.hmac.clone();
    assert_eq!(renew(&mut bench, "eve", &hmac, -1), code(ErrorCode::DelegationTokenOwnerMismatch));
    assert_eq!(expire(&mut bench, "eve", &hmac, -1), code(ErrorCode::DelegationTokenOwnerMismatch));
    assert_eq!(renew(&mut bench, "ann", b"other", -1), code(ErrorCode::DelegationTokenNotFound));
    assert_eq!(expire(&mut bench, "ann", b"", -1), code(ErrorCode::DelegationTokenNotFound));
    bench.now.wall_ms += HOUR_MS + 1;
    assert_eq!(renew(&mut bench, "eve", &hmac, -1), code(ErrorCode::DelegationTokenExpired));
    assert_eq!(expire(&mut bench, "eve", &hmac, 1), code(ErrorCode::DelegationTokenOwnerMismatch));
    assert_eq!(expire(&mut bench, "ann", &hmac, 1), code(ErrorCode::DelegationTokenExpired));
    let now = bench.now.wall_ms;
    assert_eq!(expire(&mut bench, "ann", &hmac, -1), (0, now), "it can still be removed");
    assert!(bench.state.image().delegation_tokens().is_empty());
    assert_eq!(expire(&mut bench, "ann", &hmac, -1), code(ErrorCode::DelegationTokenNotFound));
}

#[test]
fn without_a_secret_key_or_with_an_old_metadata_version_there_are_no_tokens() {
    let mut disabled = bench(None);
    let request = CreateDelegationTokenRequest::default();
    let expected = ErrorCode::DelegationTokenAuthDisabled.code();
    assert_eq!(create(&mut disabled, "ann", &request).error_code, expected);
    assert_eq!(renew(&mut disabled, "ann", b"x", -1), (expected, 0));
    assert_eq!(expire(&mut disabled, "ann", b"x", -1), (expected, 0));
    assert_eq!(disabled.state.expire_tokens_interval(), None);

    let mut old = bench(Some(secret()));
    let level = thalweg_wire::metadata::FeatureLevelRecord {
        name: feature::METADATA_VERSION.to_owned(),
        feature_level: 13,
    };
    old.apply(vec![VersionedRecord::new(MetadataRecord::FeatureLevel(level), 0)]);
    let expected = ErrorCode::UnsupportedVersion.code();
    assert_eq!(create(&mut old, "ann", &request).error_code, expected);
    assert_eq!(renew(&mut old, "ann", b"x", -1), (expected, 0));
}

#[test]
fn a_user_who_has_its_share_of_tokens_leaves_room_for_others() {
    let mut bench = bench(Some(secret()));
    let request = CreateDelegationTokenRequest::default();
    let mut made = 0;
    while made < 2_000 && create(&mut bench, "eve", &request).error_code == 0 {
        made += 1;
    }
    assert_eq!(create(&mut bench, "eve", &request).error_code, ErrorCode::PolicyViolation.code());
    assert_eq!(create(&mut bench, "ann", &request).error_code, 0, "ann has none yet, eve has {made}");
    let token = bench.state.image().delegation_tokens().iter().find(|(_, token)| token.owner == "User:eve");
    let hmac = secret().hmac(token.expect("eve has tokens").0);
    assert_eq!(expire(&mut bench, "eve", &hmac, -1).0, 0);
    assert_eq!(create(&mut bench, "eve", &request).error_code, 0, "one has expired");
}

#[test]
fn a_token_for_another_owner_needs_create_tokens() {
    let mut bench = bench(Some(secret()));
    let request = CreateDelegationTokenRequest {
        owner_principal_type: Some("User".to_owned()),
        owner_principal_name: Some("ann".to_owned()),
        ..Default::default()
    };
    let refused = create(&mut bench, "hive", &request);
    assert_eq!(refused.error_code, ErrorCode::DelegationTokenAuthorizationFailed.code());
    assert_eq!((refused.issue_timestamp_ms, refused.hmac.len()), (-1, 0));
    let acl = Acl {
        resource_type: ResourceType::User,
        resource_name: "User:ann".to_owned(),
        pattern_type: PatternType::Literal,
        principal: "User:hive".to_owned(),
        host: "*".to_owned(),
        operation: Operation::CreateTokens,
        permission: Permission::Allow,
    };
    let record = AccessControlEntryRecord {
        id: Uuid::random(),
        resource_type: acl.resource_type.code(),
        resource_name: acl.resource_name,
        pattern_type: acl.pattern_type.code(),
        principal: acl.principal,
        host: acl.host,
        operation: acl.operation.code(),
        permission_type: acl.permission.code(),
    };
    bench.apply(vec![VersionedRecord::new(MetadataRecord::AccessControlEntry(record), 0)]);
    let token = create(&mut bench, "hive", &request);
    assert_eq!(token.error_code, 0);
    assert_eq!((&*token.principal_name, &*token.token_requester_principal_name), ("ann", "hive"));
    assert_eq!(
        renew(&mut bench, "hive", &token.hmac, -1).0,
        ErrorCode::DelegationTokenOwnerMismatch.code(),
        "its requester is no renewer"
    );
}

#[test]
fn renewers_and_owners_are_users_and_bounded() {
    let mut bench = bench(Some(secret()));
    let mut request = CreateDelegationTokenRequest { renewers: renewers(&["bob"]), ..Default::default() };
    request.renewers[0].principal_type = "Group".to_owned();
    assert_eq!(create(&mut bench, "ann", &request).error_code, ErrorCode::InvalidPrincipalType.code());
    request.renewers = renewers(&vec!["bob"; 101]);
    assert_eq!(create(&mut bench, "ann", &request).error_code, ErrorCode::InvalidRequest.code());
    request.renewers = renewers(&[&"b".repeat(9_000)]);
    assert_eq!(create(&mut bench, "ann", &request).error_code, ErrorCode::InvalidRequest.code());
    assert!(bench.state.image().delegation_tokens().is_empty());
}

#[test]
fn expired_tokens_are_removed_a_thousand_at_a_time_and_known_after_a_restart() {
    let mut bench = bench(Some(secret()));
    let short = CreateDelegationTokenRequest { max_lifetime_ms: HOUR_MS, ..Default::default() };
    for number in 0..1_001 {
        create(&mut bench, if number % 2 == 0 { "ann" } else { "bob" }, &short);
    }
    let kept = create(&mut bench, "ann", &CreateDelegationTokenRequest::default());
    assert!(bench.state.remove_expired_tokens(bench.now).records.is_empty());
    bench.now.wall_ms += HOUR_MS + 1;
    let first = bench.state.remove_expired_tokens(bench.now);
    assert_eq!((first.records.len(), first.more), (1_000, true));
    bench.apply(first.records);
    let second = bench.state.remove_expired_tokens(bench.now);
    assert_eq!((second.records.len(), second.more), (1, false));
    bench.apply(second.records);
    assert_eq!(bench.state.image().delegation_tokens().len(), 1);

    let (image, offset) = (bench.state.image().clone(), bench.state.next_offset());
    let mut options = options();
    options.delegation_tokens.secret_key = Some(secret());
    bench.state = State::new(&options, Arc::new(Rules), 42);
    bench.state.activate(image, offset, HashMap::default(), bench.now);
    assert_eq!(renew(&mut bench, "ann", &kept.hmac, -1).0, 0);
}
