//! Limits that principals share: one takes as much as it can, and another is served as before; the first is
//! served again after it has given everything back. Each limit is an entry of [`LIMITS`]. Limits beyond the
//! reach of this test have one beside their code. `docs/security.md` has the table of all.

use crate::raw::Raw;
use crate::records::{Topic, batch, fetch, fetch_partition, produce};
use crate::running::RunningBroker;
use crate::sasl::{log_in, start};
use bytes::Bytes;
use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use thalweg_dial::Connection;
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};

/// A limit that one user tries to take whole.
struct Limit {
    name: &'static str,
    /// One user takes so many at most, and not one less without the other's.
    most: usize,
    /// A user takes one more, its `number`th; false if it is refused.
    take: for<'a> fn(&'a mut Walk, &'static str, usize) -> Answer<'a, bool>,
    /// A user gives back all it took.
    release: for<'a> fn(&'a mut Walk, &'static str) -> Answer<'a, ()>,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

const LIMITS: &[Limit] = &[
    Limit {
        name: "max.incremental.fetch.session.cache.slots",
        most: 8,
        take: |walk, user, _| Box::pin(walk.open_fetch_session(user)),
        release: |walk, user| Box::pin(walk.close_fetch_sessions(user)),
    },
    Limit {
        name: "group.share.max.share.sessions",
        most: 6,
        take: |walk, user, number| Box::pin(walk.open_share_session(user, number)),
        release: |walk, user| Box::pin(walk.close_share_sessions(user)),
    },
    Limit {
        name: "max.connections.per.ip",
        most: 20,
        take: |walk, user, _| Box::pin(walk.connect(user)),
        release: |walk, user| Box::pin(walk.disconnect(user)),
    },
    Limit {
        name: "thalweg.audit.events.per.second",
        most: 300,
        take: |walk, user, number| Box::pin(walk.be_denied(user, number)),
        release: |_, _| Box::pin(tokio::time::sleep(Duration::from_millis(1100))),
    },
    Limit {
        name: "delegation tokens",
        most: 1_000,
        take: |walk, user, _| Box::pin(walk.create_token(user)),
        release: |walk, user| Box::pin(walk.expire_tokens(user)),
    },
];

const SETTINGS: &[(&str, &str)] = &[
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ("super.users", "User:admin"),
    ("listener.name.clients.plain.sasl.jaas.config", USERS),
    ("delegation.token.secret.key", "secret"),
    ("max.incremental.fetch.session.cache.slots", "8"),
    ("group.share.max.size", "6"),
    ("group.share.max.share.sessions", "6"),
    ("max.connections.per.ip", "20"),
    ("thalweg.audit.events.per.second", "20"),
    ("share.coordinator.state.topic.num.partitions", "1"),
];
const USERS: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
                     password=\"admin-secret\" user_admin=\"admin-secret\" user_eve=\"eve-secret\" \
                     user_ann=\"ann-secret\";";
/// One who takes all it can, and another.
const GREEDY: &str = "eve";
const OTHER: &str = "ann";
const GROUP: &str = "queue";

/// A broker, its users, and their part of each limit.
struct Walk {
    broker: RunningBroker,
    users: HashMap<&'static str, Connection>,
    topic: Topic,
    trail: PathBuf,
    fetch_sessions: HashMap<&'static str, Vec<i32>>,
    share_sessions: HashMap<&'static str, Vec<String>>,
    connections: HashMap<&'static str, Vec<Raw>>,
    tokens: HashMap<&'static str, Vec<Bytes>>,
    denials: usize,
}

impl Walk {
    async fn begin(dir: &tempfile::TempDir) -> Walk {
        let (data, trail) = (dir.path().join("data"), dir.path().join("audit.log"));
        std::fs::create_dir(&data).expect("created");
        let file = ("thalweg.audit.file", trail.to_str().expect("UTF-8"));
        let broker = start(&data, &[SETTINGS, &[file]].concat()).await;
        let mut users = HashMap::new();
        for user in ["admin", GREEDY, OTHER] {
            let connection = log_in(&broker, "PLAIN", user, &format!("{user}-secret")).await;
            users.insert(user, connection.expect("the right password"));
        }
        let topic = set_up(&users["admin"]).await;
        Walk {
            broker,
            users,
            topic,
            trail,
            fetch_sessions: HashMap::new(),
            share_sessions: HashMap::new(),
            connections: HashMap::new(),
            tokens: HashMap::new(),
            denials: 0,
        }
    }

    async fn open_fetch_session(&mut self, user: &'static str) -> bool {
        let request = fetch(12, &self.topic, vec![fetch_partition(0, 0)]);
        let request = FetchRequest { session_id: 0, session_epoch: 0, max_wait_ms: 0, ..request };
        let answer = self.users[user].send_at(&request, 12).await.expect("an answer");
        assert_eq!(answer.error_code, 0, "it is served in any case");
        if answer.session_id != 0 {
            self.fetch_sessions.entry(user).or_default().push(answer.session_id);
        }
        answer.session_id != 0
    }

    async fn close_fetch_sessions(&mut self, user: &'static str) {
        for session_id in self.fetch_sessions.remove(user).unwrap_or_default() {
            let request = fetch(12, &self.topic, Vec::new());
            let request = FetchRequest { session_id, session_epoch: -1, max_wait_ms: 0, ..request };
            self.users[user].send_at(&request, 12).await.expect("an answer");
        }
    }

    async fn open_share_session(&mut self, user: &'static str, number: usize) -> bool {
        let member = format!("{user}-{number}");
        let answer = self.users[user].send(&share_fetch(&member, 0)).await.expect("an answer");
        let is_served = answer.error_code == 0;
        assert!(is_served || answer.error_code == ErrorCode::ShareSessionLimitReached.code(), "{answer:?}");
        if is_served {
            self.share_sessions.entry(user).or_default().push(member);
        }
        is_served
    }

    async fn close_share_sessions(&mut self, user: &'static str) {
        for member in self.share_sessions.remove(user).unwrap_or_default() {
            let answer = self.users[user].send(&share_fetch(&member, -1)).await.expect("an answer");
            // One of them made room.
            let gone = ErrorCode::ShareSessionNotFound.code();
            assert!([0, gone].contains(&answer.error_code), "{answer:?}");
        }
    }

    /// A user without a login is its address.
    async fn connect(&mut self, user: &'static str) -> bool {
        let source = if user == GREEDY { [127, 0, 0, 3] } else { [127, 0, 0, 4] };
        let mut raw = Raw::connect_from(source.into(), self.broker.server().addresses[0].1[0]).await;
        let is_served = raw.ask(&ApiVersionsRequest::default(), 0).await.is_some();
        if is_served {
            self.connections.entry(user).or_default().push(raw);
        }
        is_served
    }

    async fn disconnect(&mut self, user: &'static str) {
        self.connections.remove(user);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    /// Whether a denial is in the audit trail. The one who floods it does not wait for that.
    async fn be_denied(&mut self, user: &'static str, number: usize) -> bool {
        self.denials += 1;
        let topic = Topic { name: format!("{user}-{}", self.denials), id: Uuid::ZERO };
        let request = produce(12, &topic, 0, -1, batch(&[b"value"]));
        self.users[user].send_at(&request, 12).await.expect("an answer");
        if user == GREEDY && number > 0 {
            return number < 300;
        }
        for _ in 0..100 {
            let lines = std::fs::read_to_string(&self.trail).unwrap_or_default();
            if lines.contains(&format!("User:{user} is denied WRITE on Topic {}\"", topic.name)) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn create_token(&mut self, user: &'static str) -> bool {
        let request = CreateDelegationTokenRequest { max_lifetime_ms: -1, ..Default::default() };
        let answer = self.users[user].send(&request).await.expect("an answer");
        if answer.error_code == 0 {
            self.tokens.entry(user).or_default().push(answer.hmac);
        }
        answer.error_code == 0
    }

    async fn expire_tokens(&mut self, user: &'static str) {
        // Some are enough.
        for hmac in self.tokens.remove(user).unwrap_or_default().into_iter().take(3) {
            let request = ExpireDelegationTokenRequest { hmac, expiry_time_period_ms: -1 };
            let answer = self.users[user].send(&request).await.expect("an answer");
            assert_eq!(answer.error_code, 0);
        }
    }
}

/// Creates a topic, and lets the users read it in a group.
async fn set_up(admin: &Connection) -> Topic {
    let topic = CreatableTopic {
        name: "orders".to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() };
    let created = admin.send(&request).await.expect("an answer").topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    // READ on the topic and on the group.
    let acls = [GREEDY, OTHER].into_iter().flat_map(|user| [(user, 2, "orders"), (user, 3, GROUP)]);
    let creations = acls.map(|(user, resource_type, name)| AclCreation {
        resource_type,
        resource_name: name.to_owned(),
        resource_pattern_type: 3,
        principal: format!("User:{user}"),
        host: "*".to_owned(),
        operation: 3,
        permission_type: 3,
    });
    let request = CreateAclsRequest { creations: creations.collect() };
    let answer = admin.send(&request).await.expect("an answer");
    assert!(answer.results.iter().all(|result| result.error_code == 0));
    Topic { name: "orders".to_owned(), id: created.topic_id }
}

fn share_fetch(member: &str, epoch: i32) -> ShareFetchRequest {
    ShareFetchRequest {
        group_id: Some(GROUP.to_owned()),
        member_id: Some(member.to_owned()),
        share_session_epoch: epoch,
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_records: 500,
        batch_size: 500,
        ..ShareFetchRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_principal_takes_more_than_its_share_of_anything() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut walk = Walk::begin(&dir).await;
    let mut wrong = Vec::new();
    for Limit { name, most, take, release } in LIMITS {
        let mut taken = 0;
        while taken <= *most && take(&mut walk, GREEDY, taken).await {
            taken += 1;
        }
        if taken != *most {
            wrong.push(format!("{name}: {GREEDY} took {taken} of {most}"));
        }
        if !take(&mut walk, OTHER, 0).await {
            wrong.push(format!("{name}: {GREEDY} took {taken}, and {OTHER} was refused"));
        }
        release(&mut walk, GREEDY).await;
        release(&mut walk, OTHER).await;
        if !take(&mut walk, GREEDY, 0).await {
            wrong.push(format!("{name}: {GREEDY} was refused although it had given all back"));
        }
        release(&mut walk, GREEDY).await;
    }
    walk.broker.stop().await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}
