//! Delegation tokens at a broker of Apache Kafka and at ours, under Apache Kafka's controllers and under the
//! embedded one: the same requests get the same answers, and Kafka's own tools create a token and log in with
//! it.

use super::controllers::{Controllers, Quorum};
use super::mixed::Jvm;
use super::tools::tool;
use super::{jars, join, until};
use crate::running::RunningBroker;
use std::path::Path;
use thalweg_dial::{Connection, ConnectionOptions, Properties};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::create_delegation_token_request::CreatableRenewers;
use thalweg_wire::request::describe_delegation_token_request::DescribeDelegationTokenOwner;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request};

const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required";
const SCRAM_LINE: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
const USERS: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required user_admin=\"admin-secret\" \
                     user_ann=\"ann-secret\" user_bob=\"bob-secret\" user_eve=\"eve-secret\";";

/// Of controllers and brokers alike.
const OF_ALL: [(&str, &str); 6] = [
    ("delegation.token.secret.key", "the secret of the cluster"),
    ("delegation.token.max.lifetime.ms", "600000"),
    ("delegation.token.expiry.time.ms", "300000"),
    ("delegation.token.expiry.check.interval.ms", "3600000"),
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ("super.users", "User:ANONYMOUS;User:admin"),
];
const OF_BROKERS: [(&str, &str); 6] = [
    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"),
    ("listener.name.clients.plain.sasl.jaas.config", USERS),
    ("listener.name.clients.scram-sha-256.sasl.jaas.config", SCRAM_LINE),
    ("listener.name.clients.scram-sha-512.sasl.jaas.config", SCRAM_LINE),
    ("offsets.topic.replication.factor", "1"),
];

fn lines(settings: &[(&str, &str)]) -> String {
    settings.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

fn jaas(id: &str, hmac: &[u8]) -> String {
    use base64::Engine;
    let password = base64::engine::general_purpose::STANDARD.encode(hmac);
    format!("{SCRAM} username=\"{id}\" password=\"{password}\" tokenauth=\"true\";")
}

/// A broker's listener with SASL.
struct Target {
    address: String,
}

impl Target {
    async fn log_in(&self, sasl: &[(&str, &str)]) -> Result<Connection, thalweg_dial::ClientError> {
        let mut properties = Properties::new();
        properties.set("security.protocol", "SASL_PLAINTEXT");
        for (key, value) in sasl {
            properties.set(key, value);
        }
        let options = ConnectionOptions::take(&mut properties, "test").expect("settings");
        Connection::connect(&self.address, &options).await
    }

    async fn user(&self, name: &str) -> Connection {
        let password = format!("{name}-secret");
        let user = [("sasl.mechanism", "PLAIN"), ("sasl.username", name), ("sasl.password", &password)];
        self.log_in(&user).await.expect("the right password")
    }

    async fn bearer(
        &self,
        mechanism: &str,
        id: &str,
        hmac: &[u8],
    ) -> Result<Connection, thalweg_dial::ClientError> {
        let jaas = jaas(id, hmac);
        self.log_in(&[("sasl.mechanism", mechanism), ("sasl.jaas.config", &jaas)]).await
    }
}

async fn ask<R: Request>(connection: &Connection, request: &R) -> R::Response {
    connection.send(request).await.expect("an answer")
}

fn name(code: i16) -> String {
    ErrorCode::from_i16(code).map_or_else(|| code.to_string(), |error| error.name().to_owned())
}

fn for_owner(
    owner: Option<(&str, &str)>,
    renewers: &[(&str, &str)],
    max: i64,
) -> CreateDelegationTokenRequest {
    CreateDelegationTokenRequest {
        owner_principal_type: owner.map(|(kind, _)| kind.to_owned()),
        owner_principal_name: owner.map(|(_, name)| name.to_owned()),
        renewers: renewers
            .iter()
            .map(|(kind, name)| CreatableRenewers {
                principal_type: (*kind).to_owned(),
                principal_name: (*name).to_owned(),
            })
            .collect(),
        max_lifetime_ms: max,
    }
}

/// The answer without what differs from one run to the next.
fn made(what: &str, token: &CreateDelegationTokenResponse) -> String {
    let (issued, len) = (token.issue_timestamp_ms, (token.token_id.len(), token.hmac.len()));
    let lives = (token.expiry_timestamp_ms - issued, token.max_timestamp_ms - issued);
    format!(
        "{what}: {} owner {}:{} requester {}:{} lives {lives:?} lengths {len:?} issued {}",
        name(token.error_code),
        token.principal_type,
        token.principal_name,
        token.token_requester_principal_type,
        token.token_requester_principal_name,
        issued.signum()
    )
}

/// Everything that a client can see of tokens.
async fn transcript(target: &Target) -> Vec<String> {
    let mut seen = Vec::new();
    let (ann, bob, eve, admin) =
        tokio::join!(target.user("ann"), target.user("bob"), target.user("eve"), target.user("admin"));
    let token = ask(&ann, &for_owner(None, &[("User", "bob")], -1)).await;
    seen.push(made("own", &token));
    seen.push(made("short", &ask(&ann, &for_owner(None, &[], 1_000)).await));
    seen.push(made("long", &ask(&ann, &for_owner(None, &[], i64::MAX)).await));
    seen.push(made("group", &ask(&ann, &for_owner(None, &[("Group", "g")], -1)).await));
    seen.push(made("empty owner", &ask(&ann, &for_owner(Some(("User", "")), &[], -1)).await));
    seen.push(made("of another", &ask(&ann, &for_owner(Some(("User", "bob")), &[], -1)).await));
    let of_bob = ask(&admin, &for_owner(Some(("User", "bob")), &[], -1)).await;
    seen.push(made("by the administrator", &of_bob));

    let renew = async |by: &Connection, hmac: &[u8], renew_period_ms: i64| {
        let now_ms = token.issue_timestamp_ms;
        let request = RenewDelegationTokenRequest { hmac: hmac.to_vec().into(), renew_period_ms };
        let answer = ask(by, &request).await;
        // Rounded, since a run takes time.
        let left = (answer.expiry_timestamp_ms - now_ms).div_euclid(60_000);
        let left = if answer.error_code == 0 { left } else { answer.expiry_timestamp_ms };
        format!("renew: {} {left}", name(answer.error_code))
    };
    // Kafka's controller answers a change before the next request finds it. To eve, who may renew nothing, it
    // says what it knows of a token.
    let is_known_as = async |hmac: &[u8], state: &str| renew(&eve, hmac, -1).await.contains(state);
    for hmac in [&token.hmac, &of_bob.hmac] {
        until("the controller knows the token", async || is_known_as(hmac, "OWNER_MISMATCH").await).await;
    }
    seen.push(renew(&ann, &token.hmac, -1).await);
    seen.push(renew(&bob, &token.hmac, 200_000).await);
    seen.push(renew(&bob, &token.hmac, i64::MAX).await);
    seen.push(renew(&eve, &token.hmac, -1).await);
    seen.push(renew(&ann, b"unknown", -1).await);
    seen.push(renew(&admin, &of_bob.hmac, -1).await);

    let ids = [(&token.token_id, "TOKEN"), (&of_bob.token_id, "OF_BOB")];
    let knows = async |by: &Connection| {
        let answer = ask(by, &DescribeDelegationTokenRequest { owners: None }).await;
        answer.tokens.iter().filter(|found| ids.iter().any(|(id, _)| **id == found.token_id)).count()
    };
    // Kafka's broker may answer before it has seen the change.
    until("the tokens are known", async || knows(&admin).await == 2).await;
    let listed = async |by: &Connection, owners: Option<&[&str]>| {
        let owner = |name: &&str| DescribeDelegationTokenOwner {
            principal_type: "User".to_owned(),
            principal_name: (*name).to_owned(),
        };
        let owners = owners.map(|owners| owners.iter().map(owner).collect());
        let answer = ask(by, &DescribeDelegationTokenRequest { owners }).await;
        let mut found: Vec<String> = Vec::new();
        for listed in &answer.tokens {
            // Other tokens are those of an earlier run.
            let Some((_, known)) = ids.iter().find(|(id, _)| **id == listed.token_id) else { continue };
            let renewers: Vec<_> = listed.renewers.iter().map(|r| &*r.principal_name).collect();
            let is_known = [&token.hmac, &of_bob.hmac].contains(&&listed.hmac);
            found.push(format!(
                "{known} {}:{} by {}:{} {renewers:?} {is_known}",
                listed.principal_type,
                listed.principal_name,
                listed.token_requester_principal_type,
                listed.token_requester_principal_name
            ));
        }
        found.sort();
        format!("describe: {} {found:?}", name(answer.error_code))
    };
    for by in [&ann, &bob, &eve, &admin] {
        seen.push(listed(by, None).await);
        seen.push(listed(by, Some(&["ann"][..])).await);
        seen.push(listed(by, Some(&["bob", "admin"][..])).await);
        seen.push(listed(by, Some(&[][..])).await);
    }
    let acl = |kind: ResourceType, name: &str, operation: Operation| AclCreation {
        resource_type: kind.code(),
        resource_name: name.to_owned(),
        resource_pattern_type: 3,
        principal: "User:eve".to_owned(),
        host: "*".to_owned(),
        operation: operation.code(),
        permission_type: 3,
    };
    let creations = vec![
        acl(ResourceType::DelegationToken, &token.token_id, Operation::Describe),
        acl(ResourceType::User, "User:bob", Operation::DescribeTokens),
        acl(ResourceType::User, "User:ann", Operation::CreateTokens),
    ];
    let created = ask(&admin, &CreateAclsRequest { creations }).await;
    seen.push(format!("{:?}", created.results));
    until("the ACLs are in force", async || knows(&eve).await == 2).await;
    seen.push(listed(&eve, None).await);
    let for_ann = for_owner(Some(("User", "ann")), &[], -1);
    let refused = ErrorCode::DelegationTokenAuthorizationFailed.code();
    let mut by_acl = ask(&eve, &for_ann).await;
    until("the controller knows the ACLs", async || {
        if by_acl.error_code == refused {
            by_acl = ask(&eve, &for_ann).await;
        }
        by_acl.error_code != refused
    })
    .await;
    seen.push(made("by ACL", &by_acl));

    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let bearer = target.bearer(mechanism, &token.token_id, &token.hmac).await.expect("the token logs in");
        seen.push(made("by token", &ask(&bearer, &for_owner(None, &[], -1)).await));
        seen.push(renew(&bearer, &token.hmac, -1).await);
        seen.push(listed(&bearer, None).await);
    }
    let refusal = async |id: &str, hmac: &[u8]| match target.bearer("SCRAM-SHA-256", id, hmac).await {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string().replace(&target.address, "ADDRESS"),
    };
    seen.push(refusal(&token.token_id, b"wrong").await);
    seen.push(refusal("unknown", b"wrong").await);

    let expire = async |by: &Connection, hmac: &[u8], expiry_time_period_ms: i64| {
        let request = ExpireDelegationTokenRequest { hmac: hmac.to_vec().into(), expiry_time_period_ms };
        let answer = ask(by, &request).await;
        let is_late = answer.expiry_timestamp_ms - token.issue_timestamp_ms >= 600_000;
        format!("expire: {} {} {is_late}", name(answer.error_code), answer.expiry_timestamp_ms.signum())
    };
    seen.push(expire(&eve, &token.hmac, -1).await);
    seen.push(expire(&ann, b"unknown", -1).await);
    seen.push(expire(&ann, &token.hmac, i64::MAX).await);
    seen.push(expire(&bob, &of_bob.hmac, 0).await);
    until("the token has expired", async || is_known_as(&of_bob.hmac, "EXPIRED").await).await;
    seen.push(renew(&bob, &of_bob.hmac, -1).await);
    seen.push(expire(&bob, &of_bob.hmac, 1).await);
    seen.push(expire(&bob, &of_bob.hmac, -1).await);
    seen.push(expire(&ann, &token.hmac, -1).await);
    until("the token is removed", async || is_known_as(&token.hmac, "NOT_FOUND").await).await;
    seen.push(expire(&ann, &token.hmac, -1).await);
    until("the token is gone", async || {
        target.bearer("SCRAM-SHA-256", &token.token_id, &token.hmac).await.is_err()
    })
    .await;
    seen
}

/// Kafka's own tools: a token is created, described and renewed, and its bearer consumes what was produced
/// with it.
async fn kafkas_tools(jars: &str, target: &Target, dir: &Path) {
    const TOKENS: &str = "org.apache.kafka.tools.DelegationTokenCommand";
    let file = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.to_str().expect("a path in UTF-8").to_owned()
    };
    let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
                 password=\"admin-secret\";";
    let sasl = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=";
    let of_admin = file("admin.properties", format!("{sasl}PLAIN\nsasl.jaas.config={plain}\n"));
    let to = ["--bootstrap-server", &target.address, "--command-config", &of_admin];
    let create = ["--create", "--max-life-time-period", "-1", "--renewer-principal", "User:ann"];
    let printed = tool(jars, TOKENS, &[&to, &create[..]].concat(), "").await;
    let row = printed.lines().find(|line| line.contains("User:admin")).expect(&printed);
    let fields: Vec<&str> = row.split_whitespace().collect();
    let (id, hmac) = (fields[0], fields[1]);
    // Without owners the tool of 4.3.1 asks for those of nobody.
    let describe = [&to[..], &["--describe", "--owner-principal", "User:admin"]].concat();
    until("the token is described", async || tool(jars, TOKENS, &describe, "").await.contains(id)).await;
    let renew = ["--renew", "--renew-time-period", "-1", "--hmac", hmac];
    let renewed = tool(jars, TOKENS, &[&to, &renew[..]].concat(), "").await;
    assert!(renewed.contains("Completed renew operation"), "{renewed}");

    let module = format!("{SCRAM} username=\"{id}\" password=\"{hmac}\" tokenauth=\"true\";");
    let of_bearer = file("bearer.properties", format!("{sasl}SCRAM-SHA-256\nsasl.jaas.config={module}\n"));
    let topic = ["--bootstrap-server", &target.address, "--topic", "by-token"];
    let produce = [&topic[..], &["--command-config", &of_bearer]].concat();
    tool(jars, "org.apache.kafka.tools.ConsoleProducer", &produce, "hello\n").await;
    let consume = ["--command-config", &of_bearer, "--from-beginning", "--max-messages", "1"];
    let consume = [&topic[..], &consume, &["--timeout-ms", "60000"]].concat();
    let consumed = tool(jars, "org.apache.kafka.tools.consumer.ConsoleConsumer", &consume, "").await;
    assert!(consumed.contains("hello"), "{consumed}");
    let expire = ["--expire", "--expiry-time-period", "-1", "--hmac", hmac];
    let expired = tool(jars, TOKENS, &[&to, &expire[..]].concat(), "").await;
    assert!(expired.contains("Completed expire operation"), "{expired}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "many starts of Apache Kafka: in the nightly form of scripts/test"]
async fn tokens_are_the_same_on_kafkas_brokers_and_ours() {
    let Some(jars) = jars() else { return };
    let controllers = Controllers::start(jars.clone(), Quorum::OfKafkasDefaults, &lines(&OF_ALL)).await;
    let clients = format!("127.0.0.1:{}", thalweg_ports::free_port());
    let listeners = format!("listeners=PLAINTEXT://ADDRESS,CLIENTS://{clients}\n");
    let more = listeners + &lines(&OF_ALL) + &lines(&OF_BROKERS);
    let mut jvm = Jvm::new(jars.clone(), &controllers, 1, &more);
    jvm.begin();
    let kafkas = Target { address: clients };
    let listens = async || {
        let user = [("sasl.mechanism", "PLAIN"), ("sasl.username", "ann"), ("sasl.password", "ann-secret")];
        kafkas.log_in(&user).await.is_ok()
    };
    until("Apache Kafka listens", listens).await;
    let expected = transcript(&kafkas).await;
    drop(jvm);

    let ours =
        [&OF_ALL[..], &OF_BROKERS[..], &[("listeners", "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0")]];
    let ours = ours.concat();
    let clients = |broker: &RunningBroker| {
        let (name, addresses) = &broker.server().addresses[1];
        assert_eq!(name, "CLIENTS");
        Target { address: addresses[0].to_string() }
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = join(dir.path(), "2", &controllers.servers(), &ours).await;
    let admin = clients(&broker).user("admin").await;
    clean(&admin).await;
    // Topics are not to be placed on Kafka's broker, which is no more.
    until("Kafka's broker is fenced", async || broker.server().broker.image().alive_brokers().count() == 1)
        .await;
    assert_eq!(transcript(&clients(&broker)).await, expected, "under Apache Kafka's controllers");
    kafkas_tools(&jars, &clients(&broker), dir.path()).await;
    broker.stop().await;

    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &ours).await;
    assert_eq!(transcript(&clients(&broker)).await, expected, "under the embedded controller");
    kafkas_tools(&jars, &clients(&broker), dir.path()).await;
    broker.stop().await;
}

/// Removes the ACLs of an earlier run.
async fn clean(admin: &Connection) {
    let everything = delete_acls_request::DeleteAclsFilter {
        resource_type_filter: 1,
        resource_name_filter: None,
        pattern_type_filter: 1,
        principal_filter: None,
        host_filter: None,
        operation: 1,
        permission_type: 1,
    };
    let deleted = ask(admin, &DeleteAclsRequest { filters: vec![everything] }).await;
    assert_eq!(deleted.filter_results[0].matching_acls.len(), 3);
}
