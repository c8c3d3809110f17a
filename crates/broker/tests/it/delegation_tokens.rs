//! Delegation tokens (KIP-48, KIP-373): who gets one, who may do what with it, and logins with it.

use crate::running::RunningBroker;
use crate::sasl::{Stranger, log_in, log_in_with, start};
use std::path::Path;
use std::time::Duration;
use thalweg_dial::Connection;
use thalweg_security::sasl::scram::{Hash, ScramClient};
use thalweg_wire::request::describe_delegation_token_request::DescribeDelegationTokenOwner;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request};

const SECRET: (&str, &str) = ("delegation.token.secret.key", "secret");

async fn with_tokens(dir: &Path, more: &[(&str, &str)]) -> RunningBroker {
    let mut properties = vec![SECRET];
    properties.extend(more);
    start(dir, &properties).await
}

async fn plain(broker: &RunningBroker, user: &str) -> Connection {
    log_in(broker, "PLAIN", user, &format!("{user}-secret")).await.expect("the right password")
}

async fn ask<R: Request>(connection: &Connection, request: &R) -> R::Response {
    connection.send(request).await.expect("an answer")
}

async fn create(by: &Connection, max_lifetime_ms: i64) -> CreateDelegationTokenResponse {
    let request = CreateDelegationTokenRequest { max_lifetime_ms, ..Default::default() };
    let token = ask(by, &request).await;
    assert_eq!(token.error_code, 0);
    token
}

fn password(token: &CreateDelegationTokenResponse) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(&token.hmac)
}

async fn by_token(
    broker: &RunningBroker,
    mechanism: &str,
    token: &CreateDelegationTokenResponse,
) -> Result<Connection, thalweg_dial::ClientError> {
    let jaas = format!(
        "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"{}\" password=\"{}\" tokenauth=\"true\";",
        token.token_id,
        password(token)
    );
    log_in_with(broker, &[("sasl.mechanism", mechanism), ("sasl.jaas.config", &jaas)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bearer_of_a_token_is_its_owner_but_makes_no_tokens() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    let rules = [("authorizer.class.name", authorizer), ("super.users", "User:ANONYMOUS;User:ann")];
    let broker = with_tokens(dir.path(), &rules).await;
    let token = create(&plain(&broker, "ann").await, -1).await;
    assert_eq!((&*token.principal_type, &*token.principal_name), ("User", "ann"));
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-256"] {
        let bearer = by_token(&broker, mechanism, &token).await.expect("the token logs in");
        let every_acl = DescribeAclsRequest {
            resource_type_filter: 1,
            pattern_type_filter: 1,
            operation: 1,
            permission_type: 1,
            ..Default::default()
        };
        let acls = ask(&bearer, &every_acl).await;
        assert_eq!(acls.error_code, 0, "ann may do everything");
        let refused = ErrorCode::DelegationTokenRequestNotAllowed.code();
        let hmac = token.hmac.clone();
        let made = ask(&bearer, &CreateDelegationTokenRequest::default()).await;
        assert_eq!((made.error_code, made.expiry_timestamp_ms), (refused, -1));
        let renewal = RenewDelegationTokenRequest { hmac: hmac.clone(), renew_period_ms: -1 };
        assert_eq!(ask(&bearer, &renewal).await.error_code, refused);
        let expiry = ExpireDelegationTokenRequest { hmac, expiry_time_period_ms: -1 };
        assert_eq!(ask(&bearer, &expiry).await.error_code, refused);
        assert_eq!(ask(&bearer, &DescribeDelegationTokenRequest { owners: None }).await.error_code, refused);
    }
    let mut other = token.clone();
    other.hmac = b"something else".to_vec().into();
    assert!(by_token(&broker, "SCRAM-SHA-256", &other).await.is_err(), "another password");
    other.token_id = "no token".to_owned();
    assert!(by_token(&broker, "SCRAM-SHA-256", &other).await.is_err(), "another id");
    let as_user = log_in(&broker, "SCRAM-SHA-256", &token.token_id, &password(&token)).await;
    assert!(as_user.is_err(), "a token is no user");
    let expiry = ExpireDelegationTokenRequest { hmac: token.hmac.clone(), expiry_time_period_ms: -1 };
    assert_eq!(ask(&plain(&broker, "ann").await, &expiry).await.error_code, 0);
    assert!(by_token(&broker, "SCRAM-SHA-256", &token).await.is_err(), "the token is gone");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_described_to_owners_and_renewers_and_by_acl() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    let rules = [("authorizer.class.name", authorizer), ("super.users", "User:ANONYMOUS;User:admin")];
    let broker = with_tokens(dir.path(), &rules).await;
    let (ann, admin) = (plain(&broker, "ann").await, plain(&broker, "admin").await);
    let (of_ann, of_admin) = (create(&ann, -1).await, create(&admin, -1).await);
    let listed = async |by: &Connection, owners: Option<&[&str]>| {
        let owner = |name: &&str| DescribeDelegationTokenOwner {
            principal_type: "User".to_owned(),
            principal_name: (*name).to_owned(),
        };
        let owners = owners.map(|owners| owners.iter().map(owner).collect());
        let response = ask(by, &DescribeDelegationTokenRequest { owners }).await;
        assert_eq!(response.error_code, 0);
        let mut ids: Vec<String> = response.tokens.into_iter().map(|token| token.token_id).collect();
        ids.sort();
        ids
    };
    let mut both = vec![of_ann.token_id.clone(), of_admin.token_id.clone()];
    both.sort();
    assert_eq!(listed(&ann, None).await, [&*of_ann.token_id]);
    assert_eq!(listed(&admin, None).await, both);
    assert_eq!(listed(&admin, Some(&["ann"][..])).await, [&*of_ann.token_id]);
    assert!(listed(&ann, Some(&["admin"][..])).await.is_empty());
    assert!(listed(&admin, Some(&[][..])).await.is_empty());
    let token = ask(&ann, &DescribeDelegationTokenRequest { owners: None }).await.tokens.remove(0);
    assert_eq!((token.hmac, token.max_timestamp), (of_ann.hmac, of_ann.max_timestamp_ms));
    let for_other = CreateDelegationTokenRequest {
        owner_principal_type: Some("User".to_owned()),
        owner_principal_name: Some("ann".to_owned()),
        ..Default::default()
    };
    assert_eq!(ask(&admin, &for_other).await.error_code, 0, "it may create tokens for everybody");
    let for_other =
        CreateDelegationTokenRequest { owner_principal_name: Some("admin".to_owned()), ..for_other };
    let refused = ErrorCode::DelegationTokenAuthorizationFailed.code();
    assert_eq!(ask(&ann, &for_other).await.error_code, refused);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_and_clusters_without_a_secret_key_have_no_tokens() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[]).await;
    let not_allowed = ErrorCode::DelegationTokenRequestNotAllowed.code();
    let disabled = ErrorCode::DelegationTokenAuthDisabled.code();
    // The first listener asks nobody for a name.
    assert_eq!(broker.ask(&CreateDelegationTokenRequest::default()).await.error_code, not_allowed);
    assert_eq!(broker.ask(&DescribeDelegationTokenRequest { owners: None }).await.error_code, not_allowed);
    let ann = plain(&broker, "ann").await;
    assert_eq!(ask(&ann, &CreateDelegationTokenRequest::default()).await.error_code, disabled);
    assert_eq!(ask(&ann, &RenewDelegationTokenRequest::default()).await.error_code, disabled);
    assert_eq!(ask(&ann, &ExpireDelegationTokenRequest::default()).await.error_code, disabled);
    assert_eq!(ask(&ann, &DescribeDelegationTokenRequest { owners: None }).await.error_code, disabled);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_token() {
    const LIFETIME_MS: i64 = 2_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = with_tokens(dir.path(), &[]).await;
    let token = create(&plain(&broker, "ann").await, LIFETIME_MS).await;
    let log_in = async |stranger: &mut Stranger| {
        let (mut client, first) =
            ScramClient::begin(Hash::Sha256, &token.token_id, &password(&token), "n", true);
        assert_eq!(stranger.handshake("SCRAM-SHA-256", 1).await.expect("an answer").error_code, 0);
        let answer = stranger.token(&first).await.expect("an answer");
        if answer.error_code != 0 {
            return answer;
        }
        let proof = client.next(&answer.auth_bytes).expect("a challenge").expect("a proof");
        stranger.token(&proof).await.expect("an answer")
    };
    let mut bearer = Stranger::connect(&broker).await;
    let answer = log_in(&mut bearer).await;
    assert_eq!(answer.error_code, 0);
    assert!((1..=LIFETIME_MS).contains(&answer.session_lifetime_ms), "{}", answer.session_lifetime_ms);
    assert!(bearer.is_served().await);
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    assert!(!bearer.is_served().await, "the token has expired");
    let mut late = Stranger::connect(&broker).await;
    let refused = log_in(&mut late).await;
    assert_eq!(refused.error_code, ErrorCode::SaslAuthenticationFailed.code(), "it is not removed yet");
    assert_eq!(
        refused.error_message.as_deref(),
        Some(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
        )
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_outlive_a_restart_and_expired_ones_are_removed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let sweep = [("delegation.token.expiry.check.interval.ms", "100")];
    let broker = with_tokens(dir.path(), &sweep).await;
    let ann = plain(&broker, "ann").await;
    let (kept, short) = (create(&ann, -1).await, create(&ann, 500).await);
    broker.stop().await;
    let broker = with_tokens(dir.path(), &sweep).await;
    by_token(&broker, "SCRAM-SHA-512", &kept).await.expect("the token logs in");
    let ann = plain(&broker, "ann").await;
    let gone = async {
        while ask(&ann, &DescribeDelegationTokenRequest { owners: None }).await.tokens.len() != 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the expired token is removed");
    let renewal = |token: &CreateDelegationTokenResponse| RenewDelegationTokenRequest {
        hmac: token.hmac.clone(),
        renew_period_ms: -1,
    };
    assert_eq!(ask(&ann, &renewal(&kept)).await.error_code, 0);
    assert_eq!(ask(&ann, &renewal(&short)).await.error_code, ErrorCode::DelegationTokenNotFound.code());
    broker.stop().await;
}
