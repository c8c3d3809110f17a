//! Who has logged in: a bounded number of sessions, each with a cookie that no script can read, and the logins of programs,
//! which send name and password with each request.
//!
//! People with the same name and password share a [`Person`], and so its connections and what it has read.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, AUTHORIZATION, COOKIE, HOST};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use crate::cluster::View;

/// Sessions at most; the one that has been idle longest makes room.
pub const SESSIONS_MAX: usize = 256;
/// Logins of programs that are remembered.
const PROGRAMS_MAX: usize = 64;
/// A session ends when it has not been used for this long.
const IDLE_MAX: Duration = Duration::from_secs(60 * 60);
/// And after this long in any case.
pub const LIFETIME_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// A program's login is checked by the cluster again after this long.
const PROGRAM_MAX: Duration = Duration::from_secs(60);
/// What is over is dropped this often.
const SWEEP: Duration = Duration::from_secs(15);
/// Random bytes of a session's name.
const NAME_BYTES: usize = 32;

/// One who uses the console.
pub struct Person {
    /// The name of the login; none without one.
    pub user: Option<String>,
    /// The cluster, as this person sees it.
    pub view: Arc<View>,
}

/// A session, by the hash of its cookie.
pub struct SessionKey([u8; 32]);

/// All who have logged in. What is over is dropped by a timer: it has connections to the cluster.
#[derive(Default)]
pub struct Sessions(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// By the hash of the cookie: the time of a comparison says nothing about it.
    sessions: HashMap<[u8; 32], Session>,
    /// By the hash of name and password.
    programs: HashMap<[u8; 32], Program>,
    /// Whether the timer runs.
    is_swept: bool,
    /// Differs from start to start, so that hashes of passwords are worth nothing elsewhere.
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
    /// Begins a session, and returns the value of its cookie.
    pub fn begin(&self, person: Arc<Person>, login: [u8; 32]) -> String {
        let mut bytes = [0; NAME_BYTES];
        getrandom::fill(&mut bytes).expect("the system gives randomness");
        let name = bytes.iter().fold(String::new(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        });
        let now = Instant::now();
        let mut known = self.0.lock();
        known.forget(now);
        if known.sessions.len() >= SESSIONS_MAX
            && let Some(oldest) =
                known.sessions.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| *key)
        {
            known.sessions.remove(&oldest);
        }
        known.sessions.insert(hash(&[name.as_bytes()]), Session { person, login, begun: now, used: now });
        self.sweep(&mut known);
        name
    }

    /// Ends the session of a request.
    pub fn end(&self, headers: &HeaderMap) {
        for name in cookies(headers) {
            self.0.lock().sessions.remove(&hash(&[name.as_bytes()]));
        }
    }

    /// Who asks: by the cookie, or by a login that the cluster has checked lately. A request of a page that refreshes itself
    /// does not keep a session alive.
    pub fn person(&self, headers: &HeaderMap) -> Option<Arc<Person>> {
        let now = Instant::now();
        let is_stream = headers.get(ACCEPT).is_some_and(|accepted| accepted == EVENT_STREAM);
        let is_refresh = is_stream || headers.contains_key(REFRESH);
        let mut known = self.0.lock();
        for name in cookies(headers) {
            let key = hash(&[name.as_bytes()]);
            let Some(session) = known.sessions.get_mut(&key) else { continue };
            if session.is_over(now) {
                known.sessions.remove(&key);
                continue;
            }
            if !is_refresh {
                session.used = now;
            }
            return Some(Arc::clone(&session.person));
        }
        let (user, password) = basic(headers)?;
        let program = known.programs.get(&known.login(&user, &password)?)?;
        (now < program.checked + PROGRAM_MAX).then(|| Arc::clone(&program.person))
    }

    /// The session of a request, if it has one.
    pub fn key(&self, headers: &HeaderMap) -> Option<SessionKey> {
        let known = self.0.lock();
        let mut keys = cookies(headers).into_iter().map(|name| hash(&[name.as_bytes()]));
        keys.find(|key| known.sessions.contains_key(key)).map(SessionKey)
    }

    /// Whether a session has not ended. That does not keep it alive.
    pub fn lasts(&self, session: &SessionKey) -> bool {
        let now = Instant::now();
        self.0.lock().sessions.get(&session.0).is_some_and(|session| !session.is_over(now))
    }

    /// One with this login, if there is one: its connections are used again.
    pub fn with_login(&self, login: &[u8; 32]) -> Option<Arc<Person>> {
        let known = self.0.lock();
        let session = known.sessions.values().find(|session| session.login == *login);
        let program = || known.programs.get(login).map(|program| &program.person);
        session.map(|session| &session.person).or_else(program).map(Arc::clone)
    }

    /// Remembers the login of a program that the cluster has checked.
    pub fn remember(&self, person: Arc<Person>, login: [u8; 32]) {
        let now = Instant::now();
        let mut known = self.0.lock();
        known.forget(now);
        if known.programs.len() < PROGRAMS_MAX {
            known.programs.insert(login, Program { person, checked: now });
        }
        self.sweep(&mut known);
    }

    /// Runs the timer until there is nothing left.
    fn sweep(&self, known: &mut Known) {
        if std::mem::replace(&mut known.is_swept, true) {
            return;
        }
        let all = Arc::downgrade(&self.0);
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

    /// A login, by which those with the same name and password are found.
    pub fn login(&self, user: &str, password: &str) -> [u8; 32] {
        let mut known = self.0.lock();
        if known.salt.is_none() {
            let mut salt = [0; 32];
            getrandom::fill(&mut salt).expect("the system gives randomness");
            known.salt = Some(salt);
        }
        known.login(user, password).expect("there is a salt")
    }
}

impl Known {
    fn login(&self, user: &str, password: &str) -> Option<[u8; 32]> {
        let length = (user.len() as u64).to_be_bytes();
        Some(hash(&[&self.salt?, &length, user.as_bytes(), password.as_bytes()]))
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

/// The header of requests by which a page refreshes itself.
const REFRESH: &str = "x-thalweg-refresh";
/// What a page accepts that opens a live tail, again and again.
const EVENT_STREAM: &str = "text/event-stream";

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    digest(&SHA256, &parts.concat()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The name of the cookie. Browsers share cookies between the ports of a host, so the port is in it.
pub fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let port = if port.bytes().all(|byte| byte.is_ascii_digit()) { port } else { "" };
    format!("thalweg_session_{port}")
}

/// The values of the session's cookie in a request.
fn cookies(headers: &HeaderMap) -> Vec<String> {
    let name = cookie_name(headers);
    let cookies = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
    let pairs = cookies.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).take(4).collect()
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
