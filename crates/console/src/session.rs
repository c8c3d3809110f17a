//! Logins: a bounded number of sessions, each with a cookie hidden from scripts, and the logins of programs,
//! which send name and password with each request.
//!
//! The number of sessions per user is bounded. If credentials can be looked up, the sessions of a user end
//! when the credential is changed or removed.
//!
//! People with the same name and password share a [`Person`], and thus its connections and cached readings.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{ACCEPT, AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use crate::cluster::View;
use crate::settings::{Credentials, Mechanism};

/// Maximum sessions. The session idle the longest gives way to a new one.
pub const SESSIONS_MAX: usize = 256;
/// Maximum sessions per user. A new session replaces the user's own session idle the longest, so that no user
/// ends sessions of others.
const SESSIONS_OF_USER_MAX: usize = 16;
/// Maximum remembered logins of programs.
const PROGRAMS_MAX: usize = 64;
/// Idle time after which a session ends.
const IDLE_MAX: Duration = Duration::from_secs(60 * 60);
/// Maximum lifetime of a session.
pub const LIFETIME_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Time after which the cluster checks a program's login again.
const PROGRAM_MAX: Duration = Duration::from_secs(60);
/// Interval at which expired logins are dropped.
const SWEEP: Duration = Duration::from_secs(15);
/// Random bytes in the value of a session cookie.
const NAME_BYTES: usize = 32;

/// A user of the console.
pub struct Person {
    /// The user name; none without logins.
    pub user: Option<String>,
    /// The cluster under the login of this person.
    pub view: Arc<View>,
    /// The credential at the time of login, if credentials can be looked up.
    pub credential: Option<Credential>,
}

/// A credential of a user, identified by its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub mechanism: Mechanism,
    pub bytes: Vec<u8>,
}

/// A session, by the hash of its cookie.
pub struct SessionKey([u8; 32]);

/// All logins. A timer drops expired logins, because each holds connections to the cluster.
#[derive(Default)]
pub struct Sessions {
    known: Arc<Mutex<LoginTable>>,
    /// True if browsers reach the console over HTTPS.
    is_https: bool,
}

#[derive(Default)]
struct LoginTable {
    /// Looks up current credentials, if the console runs beside a broker.
    credentials: Option<Credentials>,
    /// Sessions by the hash of the cookie, so that the timing of comparisons reveals nothing about the
    /// cookie.
    sessions: HashMap<[u8; 32], Session>,
    /// Logins of programs by the hash of name and password.
    programs: HashMap<[u8; 32], Program>,
    /// True while the timer runs.
    is_swept: bool,
    /// Random per process, so that password hashes are useless elsewhere.
    salt: Option<[u8; 32]>,
}

struct Session {
    person: Arc<Person>,
    login: [u8; 32],
    begun: Instant,
    used: Instant,
}

struct Program {
    person: Arc<Person>,
    checked: Instant,
}

impl Sessions {
    /// Creates an empty table. With `credentials`, the sessions of a user end when the credential changes.
    pub fn new(credentials: Option<Credentials>, is_https: bool) -> Sessions {
        Sessions {
            known: Arc::new(Mutex::new(LoginTable { credentials, ..LoginTable::default() })),
            is_https,
        }
    }

    /// Begins a session, and returns the cookie value.
    pub fn begin(&self, person: Arc<Person>, login: [u8; 32]) -> String {
        let mut bytes = [0; NAME_BYTES];
        getrandom::fill(&mut bytes).expect("the system gives randomness");
        let name = bytes.iter().fold(String::new(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        });
        let now = Instant::now();
        let mut known = self.known.lock();
        known.forget(now);
        known.make_room(person.user.as_deref());
        known.sessions.insert(hash(&[name.as_bytes()]), Session { person, login, begun: now, used: now });
        self.sweep(&mut known);
        name
    }

    /// Ends the session of a request.
    pub fn end(&self, headers: &HeaderMap) {
        for name in self.cookies(headers) {
            self.known.lock().sessions.remove(&hash(&[name.as_bytes()]));
        }
    }

    /// The person of a request, by the cookie or by a login that the cluster checked recently. Automatic
    /// refreshes of a page do not extend a session.
    pub fn person(&self, headers: &HeaderMap) -> Option<Arc<Person>> {
        let now = Instant::now();
        let is_stream = headers.get(ACCEPT).is_some_and(|accepted| accepted == EVENT_STREAM);
        let is_refresh = is_stream || headers.contains_key(REFRESH);
        let mut known = self.known.lock();
        for name in self.cookies(headers) {
            let key = hash(&[name.as_bytes()]);
            let Some(session) = known.sessions.get(&key) else { continue };
            if session.is_over(now) || !known.is_current(&session.person) {
                known.sessions.remove(&key);
                continue;
            }
            let Some(session) = known.sessions.get_mut(&key) else { continue };
            if !is_refresh {
                session.used = now;
            }
            return Some(Arc::clone(&session.person));
        }
        let (user, password) = basic(headers)?;
        let program = known.programs.get(&known.login(&user, &password)?)?;
        let is_checked = now < program.checked + PROGRAM_MAX && known.is_current(&program.person);
        is_checked.then(|| Arc::clone(&program.person))
    }

    /// The session of a request, if it has one.
    pub fn key(&self, headers: &HeaderMap) -> Option<SessionKey> {
        let known = self.known.lock();
        let mut keys = self.cookies(headers).into_iter().map(|name| hash(&[name.as_bytes()]));
        keys.find(|key| known.sessions.contains_key(key)).map(SessionKey)
    }

    /// True until a session has ended. The call does not extend the session.
    pub fn lasts(&self, session: &SessionKey) -> bool {
        let (now, known) = (Instant::now(), self.known.lock());
        let session = known.sessions.get(&session.0);
        session.is_some_and(|session| !session.is_over(now) && known.is_current(&session.person))
    }

    /// A person with this login and credential, whose connections can be reused.
    pub fn with_login(&self, login: &[u8; 32], credential: Option<&Credential>) -> Option<Arc<Person>> {
        let known = self.known.lock();
        let sessions = known.sessions.values().filter(|session| session.login == *login);
        let persons = sessions.map(|session| &session.person);
        let mut persons = persons.chain(known.programs.get(login).map(|program| &program.person));
        persons.find(|person| person.credential.as_ref() == credential).map(Arc::clone)
    }

    /// The current credential of a user for a mechanism, if known.
    pub fn credential(&self, user: &str, mechanism: Mechanism) -> Option<Credential> {
        let credentials = self.known.lock().credentials.clone()?;
        let bytes = credentials(user, mechanism)?;
        Some(Credential { mechanism, bytes })
    }

    /// True if credentials can be looked up.
    pub fn knows_credentials(&self) -> bool {
        self.known.lock().credentials.is_some()
    }

    /// Remembers a program's login that the cluster has checked.
    pub fn remember(&self, person: Arc<Person>, login: [u8; 32]) {
        let now = Instant::now();
        let mut known = self.known.lock();
        known.forget(now);
        if known.programs.len() < PROGRAMS_MAX || known.programs.contains_key(&login) {
            known.programs.insert(login, Program { person, checked: now });
        }
        self.sweep(&mut known);
    }

    /// The header that sets the session cookie for this many seconds; 0 removes the cookie.
    pub fn cookie(&self, headers: &HeaderMap, session: &str, seconds: u64) -> HeaderValue {
        let secure = if self.is_https { "; Secure" } else { "" };
        let name = self.cookie_name(headers);
        let text = format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
        HeaderValue::from_str(&text).expect("a name of digits and a value of hexadecimal digits are a header")
    }

    /// The cookie name, with the port, because browsers share cookies between the ports of a host.
    /// Browsers accept the `__Host-` prefix only from this host over HTTPS: thus neither a page of another
    /// host of the domain nor a page altered in transit over HTTP can plant the session of another user. Over
    /// HTTP, browsers refuse the prefix.
    fn cookie_name(&self, headers: &HeaderMap) -> String {
        let prefix = if self.is_https { "__Host-" } else { "" };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let port = host.rsplit_once(':').map_or("", |(_, port)| port);
        let port = if port.bytes().all(|byte| byte.is_ascii_digit()) { port } else { "" };
        format!("{prefix}thalweg_session_{port}")
    }

    /// The values of the session cookie in a request.
    fn cookies(&self, headers: &HeaderMap) -> Vec<String> {
        let name = self.cookie_name(headers);
        let cookies = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
        let pairs =
            cookies.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).take(4).collect()
    }

    /// Starts the timer, which runs until no login is left.
    fn sweep(&self, known: &mut LoginTable) {
        if std::mem::replace(&mut known.is_swept, true) {
            return;
        }
        let all = Arc::downgrade(&self.known);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(all) = all.upgrade() else { return };
                let mut known = all.lock();
                known.forget(Instant::now());
                if known.sessions.is_empty() && known.programs.is_empty() {
                    known.is_swept = false;
                    return;
                }
            }
        });
    }

    /// A hash of name and password, by which equal logins share a person.
    pub fn login(&self, user: &str, password: &str) -> [u8; 32] {
        let mut known = self.known.lock();
        if known.salt.is_none() {
            let mut salt = [0; 32];
            getrandom::fill(&mut salt).expect("the system gives randomness");
            known.salt = Some(salt);
        }
        known.login(user, password).expect("there is a salt")
    }
}

impl LoginTable {
    fn login(&self, user: &str, password: &str) -> Option<[u8; 32]> {
        let length = (user.len() as u64).to_be_bytes();
        Some(hash(&[&self.salt?, &length, user.as_bytes(), password.as_bytes()]))
    }

    /// True if the credential of a person is still current.
    fn is_current(&self, person: &Person) -> bool {
        let (Some(credentials), Some(user)) = (&self.credentials, &person.user) else { return true };
        let Some(credential) = &person.credential else { return true };
        credentials(user, credential.mechanism).is_some_and(|bytes| bytes == credential.bytes)
    }

    /// Makes room for a new session of a user.
    fn make_room(&mut self, user: Option<&str>) {
        let of_user = |session: &Session| session.person.user.as_deref() == user;
        let is_full_of_user =
            self.sessions.values().filter(|session| of_user(session)).count() >= SESSIONS_OF_USER_MAX;
        if !is_full_of_user && self.sessions.len() < SESSIONS_MAX {
            return;
        }
        let candidates = self.sessions.iter().filter(|(_, session)| !is_full_of_user || of_user(session));
        let oldest = candidates.min_by_key(|(_, session)| session.used).map(|(key, _)| *key);
        if let Some(oldest) = oldest {
            self.sessions.remove(&oldest);
        }
    }

    fn forget(&mut self, now: Instant) {
        self.sessions.retain(|_, session| !session.is_over(now));
        self.programs.retain(|_, program| now < program.checked + PROGRAM_MAX);
    }
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.used + IDLE_MAX || now >= self.begun + LIFETIME_MAX
    }
}

/// The header of automatic refreshes of a page.
const REFRESH: &str = "x-thalweg-refresh";
/// The Accept value of a page that opens a live tail, again after each end.
const EVENT_STREAM: &str = "text/event-stream";

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    digest(&SHA256, &parts.concat()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// User and password of the Basic scheme (RFC 7617).
pub fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let (scheme, shown) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let shown = String::from_utf8(STANDARD.decode(shown.trim()).ok()?).ok()?;
    let (user, password) = shown.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ReadingRules;
    use thalweg_browse::Masking;
    use thalweg_client::{Admin, Cluster, ConnectionOptions};

    fn person(user: &str, credential: Option<Credential>) -> Arc<Person> {
        let cluster = Cluster::unconnected(&["localhost:1".to_owned()], &ConnectionOptions::default());
        let reading = ReadingRules::new(Masking::default(), None, true);
        let view = View::new(Admin::new(cluster), reading.of(Some(user)), None);
        Arc::new(Person { user: Some(user.to_owned()), view, credential })
    }

    fn with_cookie(name: &str) -> HeaderMap {
        let cookie = HeaderValue::from_str(&format!("thalweg_session_={name}")).expect("a header");
        HeaderMap::from_iter([(COOKIE, cookie)])
    }

    #[tokio::test]
    async fn a_cookie_that_http_could_have_set_is_no_session_over_https() {
        let host =
            |port: &str| HeaderMap::from_iter([(HOST, HeaderValue::from_str(port).expect("a header"))]);
        let text = |cookie: HeaderValue| cookie.to_str().expect("text").to_owned();
        let https = Sessions::new(None, true);
        assert_eq!(
            text(https.cookie(&host("box.example:9090"), "ab", 60)),
            "__Host-thalweg_session_9090=ab; Path=/; HttpOnly; SameSite=Strict; Max-Age=60; Secure"
        );
        let plain = Sessions::new(None, false).cookie(&host("localhost"), "ab", 60);
        assert_eq!(text(plain), "thalweg_session_=ab; Path=/; HttpOnly; SameSite=Strict; Max-Age=60");
        let session = https.begin(person("ann", None), [1; 32]);
        let with = |name: &str| {
            let cookie = HeaderValue::from_str(&format!("{name}={session}")).expect("a header");
            HeaderMap::from_iter([(COOKIE, cookie)])
        };
        assert!(https.person(&with("__Host-thalweg_session_")).is_some());
        assert!(https.person(&with("thalweg_session_")).is_none());
    }

    #[tokio::test]
    async fn many_logins_of_one_user_end_no_session_of_another() {
        let sessions = Sessions::default();
        let root = sessions.begin(person("root", None), [1; 32]);
        let mallory = person("mallory", None);
        let names: Vec<String> =
            (0..2 * SESSIONS_MAX).map(|_| sessions.begin(Arc::clone(&mallory), [2; 32])).collect();
        assert!(sessions.person(&with_cookie(&root)).is_some(), "the first session");
        let lasting = names.iter().filter(|name| sessions.person(&with_cookie(name)).is_some());
        assert_eq!(lasting.count(), SESSIONS_OF_USER_MAX);
        assert!(sessions.person(&with_cookie(&names[2 * SESSIONS_MAX - 1])).is_some(), "the newest");
    }

    #[tokio::test]
    async fn sessions_and_logins_of_programs_end_with_the_credential() {
        let now = Arc::new(Mutex::new(Some(vec![7])));
        let shown = Arc::clone(&now);
        let sessions = Sessions::new(Some(Arc::new(move |_, _| shown.lock().clone())), false);
        for later in [None, Some(vec![8])] {
            *now.lock() = Some(vec![7]);
            let ann = person("ann", sessions.credential("ann", Mechanism::ScramSha512));
            let login = sessions.login("ann", "s3cret");
            let headers = with_cookie(&sessions.begin(Arc::clone(&ann), login));
            sessions.remember(ann, login);
            let value = format!("Basic {}", STANDARD.encode("ann:s3cret"));
            let basic = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&value).expect("text"))]);
            let key = sessions.key(&headers).expect("a session");
            assert!(sessions.person(&headers).is_some() && sessions.person(&basic).is_some());
            assert!(sessions.lasts(&key));
            *now.lock() = later;
            assert!(!sessions.lasts(&key), "so that tails end");
            assert!(sessions.person(&basic).is_none() && sessions.person(&headers).is_none());
            let credential = sessions.credential("ann", Mechanism::ScramSha512);
            assert!(sessions.with_login(&login, credential.as_ref()).is_none(), "it has to log in again");
        }
    }
}
