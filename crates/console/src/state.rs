//! The console: settings, logins, and notes that are shown once.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::http::HeaderMap;
use parking_lot::Mutex;
use thalweg_client::{Admin, ClientError, Cluster, InvalidSetting, Properties};
use thalweg_places::{FairSemaphore, network};

use crate::arrival::Arrival;
use crate::cluster::View;
use crate::cluster::brokers::OwnBroker;
use crate::lab::Lab;
use crate::problem::Problem;
use crate::reading::ReadingRules;
use crate::restoration::Restoration;
use crate::session::{Credential, Person, Sessions};
use crate::settings::{ConsoleSettings, Login, Mechanism};
use crate::streams;
use crate::taps::Taps;

/// Logins that the cluster checks concurrently, in total and per address. An address may be that of a proxy.
const LOGINS_MAX: usize = 8;
const LOGINS_FROM_ONE_MAX: usize = 4;
/// Users with a remembered mechanism.
const SERVED_MAX: usize = 256;
/// Notes that have not been shown yet.
const NOTES_MAX: usize = 64;

/// A console. Clones share one state.
#[derive(Clone)]
pub struct Console(Arc<ConsoleState>);

struct ConsoleState {
    settings: ConsoleSettings,
    sessions: Sessions,
    /// The mechanism of each user's last login, for recent users.
    served_by: Mutex<VecDeque<(String, Mechanism)>>,
    /// The only person of a console without logins.
    everyone: OnceLock<Arc<Person>>,
    /// Permits for logins, shared among addresses and users.
    logins: FairSemaphore<LoginOrigin>,
    notes: Mutex<VecDeque<(String, Note)>>,
    stream_rates: streams::Rates,
    reading: Arc<ReadingRules>,
    taps: Taps,
    lab: Option<Lab>,
}

/// The outcome of a change, shown once on the next page.
#[derive(Clone, Debug)]
pub struct Note {
    pub is_error: bool,
    pub text: String,
    /// The restoration of what the change removed.
    pub restoration: Option<Restoration>,
}

impl Note {
    /// A change that was made.
    pub fn done(text: impl Into<String>) -> Note {
        Note { is_error: false, text: text.into(), restoration: None }
    }

    /// A change that was not made.
    pub fn error(text: impl Into<String>) -> Note {
        Note { is_error: true, text: text.into(), restoration: None }
    }

    /// A removal that can be taken back.
    pub fn removed(text: impl Into<String>, restoration: Restoration) -> Note {
        Note { restoration: Some(restoration), ..Note::done(text) }
    }

    /// The outcome of a change.
    pub fn of<P: Into<Problem>>(outcome: Result<(), P>, words: impl Into<String>) -> Note {
        match outcome {
            Ok(()) => Note::done(words),
            Err(problem) => Note::error(problem.into().message),
        }
    }
}

/// The origin of a login, which limits its share of the places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LoginOrigin {
    /// An unauthenticated peer.
    Address(Option<IpAddr>),
    /// A logged-in user.
    User(String),
}

/// A wrong name or password, or a failed check.
#[derive(Debug)]
pub enum LoginProblem {
    Wrong,
    Failed(Problem),
}

impl Console {
    /// Creates a console without connecting.
    pub fn new(settings: ConsoleSettings) -> Console {
        let has_login = matches!(settings.login, Login::Password(_));
        let reading = ReadingRules::new(settings.masking.clone(), settings.registry.clone(), has_login);
        let lab = settings.lab.clone().map(Lab::new);
        Console(Arc::new(ConsoleState {
            lab,
            sessions: Sessions::new(settings.credentials.clone(), settings.is_https),
            served_by: Mutex::default(),
            settings,
            reading,
            everyone: OnceLock::new(),
            logins: FairSemaphore::new(LOGINS_MAX, LOGINS_FROM_ONE_MAX),
            notes: Mutex::default(),
            stream_rates: streams::Rates::default(),
            taps: Taps::default(),
        }))
    }

    /// Checks the client settings, so that faults are reported at the start.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        match &self.settings().login {
            Login::None => self.settings().options().map(drop),
            Login::Password(mechanisms) => {
                let first = mechanisms.first().copied().unwrap_or(Mechanism::ScramSha512);
                self.settings().options_for(first, "user", "password").map(drop)
            }
            Login::Impossible(_) => Ok(()),
        }
    }

    /// The logged-in user of a request, for the routes beside the console's.
    pub fn user(&self, headers: &HeaderMap) -> Option<String> {
        self.sessions().person(headers)?.user.clone()
    }

    /// True if people log in to the console as users of the cluster.
    pub fn has_login(&self) -> bool {
        matches!(self.settings().login, Login::Password(_))
    }

    pub(crate) fn settings(&self) -> &ConsoleSettings {
        &self.0.settings
    }

    pub(crate) fn stream_rates(&self) -> &streams::Rates {
        &self.0.stream_rates
    }

    pub(crate) fn lab(&self) -> Option<&Lab> {
        self.0.lab.as_ref()
    }

    pub(crate) fn reading(&self) -> &ReadingRules {
        &self.0.reading
    }

    pub(crate) fn taps(&self) -> &Taps {
        &self.0.taps
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// The only person of a console without logins.
    pub(crate) fn everyone(&self) -> Result<Arc<Person>, Problem> {
        if let Some(person) = self.0.everyone.get() {
            return Ok(Arc::clone(person));
        }
        let options = self.settings().options().map_err(|wrong| Problem::wrong(wrong.to_string()))?;
        let cluster = Cluster::unconnected(&self.settings().bootstrap, &options);
        let view = self.view(cluster, None);
        let person = Person { user: None, credential: None, view };
        Ok(Arc::clone(self.0.everyone.get_or_init(|| Arc::new(person))))
    }

    fn view(&self, cluster: Cluster, user: Option<&str>) -> Arc<View> {
        let beside = self.settings().clients.as_ref();
        let own = beside.map(|source| OwnBroker { id: source.broker, started_ms: source.started_ms });
        View::new(Admin::new(cluster), self.0.reading.of(user), own)
    }

    /// Asks the cluster to check a name and a password.
    pub(crate) async fn log_in(
        &self,
        arrival: Option<&Arrival>,
        user: &str,
        password: &str,
    ) -> Result<(Arc<Person>, [u8; 32]), LoginProblem> {
        let login = self.sessions().login(user, password);
        // Credentials are read before the check, so that a concurrent change ends the new session.
        let Login::Password(mechanisms) = &self.settings().login else { return Err(LoginProblem::Wrong) };
        let credentials: Vec<Option<Credential>> =
            mechanisms.iter().map(|mechanism| self.sessions().credential(user, *mechanism)).collect();
        let (cluster, taken_by) = self
            .connect(LoginOrigin::Address(arrival.map(|arrival| network(arrival.address))), user, password)
            .await?;
        let of_login = credentials.into_iter().flatten().find(|credential| credential.mechanism == taken_by);
        // A new user may have been unknown to this broker before the check.
        let of_login = of_login.or_else(|| self.sessions().credential(user, taken_by));
        // The password may have changed during the check, so an existing person needs the same login and
        // credential.
        let person = self.sessions().with_login(&login, of_login.as_ref()).unwrap_or_else(|| {
            let view = self.view(cluster, Some(user));
            Arc::new(Person { user: Some(user.to_owned()), view, credential: of_login })
        });
        Ok((person, login))
    }

    /// Client settings with a name and a password that the cluster has checked.
    pub(crate) async fn properties_of(&self, user: &str, password: &str) -> Result<Properties, LoginProblem> {
        let (_, mechanism) = self.connect(LoginOrigin::User(user.to_owned()), user, password).await?;
        Ok(self.settings().properties_for(mechanism, user, password))
    }

    /// Mechanisms in order of likely success, because each failed attempt is a failed login in the audit
    /// trail.
    fn ordered(&self, mechanisms: &[Mechanism], user: &str) -> Vec<Mechanism> {
        let served_by = self.0.served_by.lock().iter().find(|(known, _)| known == user).map(|(_, by)| *by);
        let knows = self.sessions().knows_credentials();
        let mut ordered = mechanisms.to_vec();
        ordered.sort_by_key(|mechanism| match mechanism {
            mechanism if served_by == Some(*mechanism) => 0,
            Mechanism::Plain => 2,
            mechanism if !knows || self.sessions().credential(user, *mechanism).is_some() => 1,
            _ => 3,
        });
        ordered
    }

    fn remember_mechanism(&self, user: &str, mechanism: Mechanism) {
        let mut served_by = self.0.served_by.lock();
        served_by.retain(|(known, _)| known != user);
        if served_by.len() >= SERVED_MAX {
            served_by.pop_front();
        }
        served_by.push_back((user.to_owned(), mechanism));
    }

    /// Connects with a name and a password, using the first mechanism that the cluster accepts.
    async fn connect(
        &self,
        from: LoginOrigin,
        user: &str,
        password: &str,
    ) -> Result<(Cluster, Mechanism), LoginProblem> {
        let Login::Password(mechanisms) = &self.settings().login else { return Err(LoginProblem::Wrong) };
        let _one = self.0.logins.take(&from).await;
        let mut refused = LoginProblem::Wrong;
        for mechanism in &self.ordered(mechanisms, user) {
            let options = self
                .settings()
                .options_for(*mechanism, user, password)
                .map_err(|wrong| LoginProblem::Failed(Problem::wrong(wrong.to_string())))?;
            match Cluster::connect(&self.settings().bootstrap, &options).await {
                Ok(cluster) => {
                    self.remember_mechanism(user, *mechanism);
                    return Ok((cluster, *mechanism));
                }
                Err(ClientError::Authentication(failed)) if !failed.fault.is_retriable() => {}
                Err(error) => refused = LoginProblem::Failed(error.into()),
            }
        }
        Err(refused)
    }

    /// Stores a note for the next page, and returns the name of the note in the address.
    pub(crate) fn keep(&self, note: Note) -> String {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the system gives randomness");
        let name = bytes.iter().fold(String::new(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        });
        let mut notes = self.0.notes.lock();
        if notes.len() >= NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back((name.clone(), note));
        name
    }

    /// Removes a note and returns it.
    pub(crate) fn note(&self, name: &str) -> Option<Note> {
        let mut notes = self.0.notes.lock();
        let at = notes.iter().position(|(known, _)| known == name)?;
        notes.remove(at).map(|(_, note)| note)
    }
}
