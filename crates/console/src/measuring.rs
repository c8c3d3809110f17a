//! The lab under the login of a person: rights on the cluster, the login of a run, and the log of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use thalweg_security::acl::Operation;
use thalweg_stream::host::recorder::{Action, Change, Recorder};

use crate::lab::{Comparison, Lab, LabOverview, NewRun, Target};
use crate::problem::Problem;
use crate::session::Person;
use crate::settings::Login;
use crate::state::{Console, LoginProblem};

/// A person who calls the lab.
pub struct Visitor {
    console: Console,
    person: Arc<Person>,
    recorder: Recorder,
}

impl FromRequestParts<Console> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Visitor, Response> {
        let person = parts.extensions.get::<Arc<Person>>();
        let person = person.expect("the lab has no path that is open to all");
        let person = Arc::clone(person);
        let Ok(recorder) = Recorder::from_request_parts(parts, console).await;
        Ok(Visitor { console: console.clone(), person, recorder })
    }
}

impl Visitor {
    /// Returns the lab if the person may do this operation on the cluster.
    async fn lab(&self, operation: Operation) -> Result<&Lab, Problem> {
        let lab = self.console.lab().ok_or_else(off)?;
        if !self.person.view.may(operation).await? {
            let message = format!(
                "The lab needs the operation {} on the resource Cluster:kafka-cluster: it takes this machine's time, and creates topics \
                 in the cluster",
                operation.name()
            );
            return Err(Problem::forbidden("forbidden", message));
        }
        Ok(lab)
    }

    /// Reads the state of the lab.
    pub async fn overview(&self) -> Result<LabOverview, Problem> {
        self.lab(Operation::Describe).await?.overview().await
    }

    /// The HTML report of a result.
    pub async fn report(&self, name: &str) -> Result<Vec<u8>, Problem> {
        self.lab(Operation::Describe).await?.report(name).await
    }

    /// Compares two results.
    pub async fn compare(&self, a: &str, b: &str) -> Result<Comparison, Problem> {
        self.lab(Operation::Describe).await?.compare(a, b).await
    }

    /// Starts a run, and returns the run name.
    pub async fn start(&self, new: &NewRun) -> Result<String, Problem> {
        let started = self.start_unrecorded(new).await;
        let name = started.as_ref().unwrap_or(&new.workload);
        let detail = format!("workload {}, target {}", new.workload, new.target);
        self.record("StartLabRun", Action::Create, name, Some(detail), started.as_ref().err());
        started
    }

    fn record(
        &self,
        request: &'static str,
        action: Action,
        name: &str,
        detail: Option<String>,
        problem: Option<&Problem>,
    ) {
        self.recorder.record(Change {
            request,
            action,
            resource_type: "LabRun",
            resource_name: name.to_owned(),
            detail,
            failure: problem.map(|problem| (problem.kind.clone(), problem.message.clone())),
            user: self.person.user.clone(),
        });
    }

    async fn start_unrecorded(&self, new: &NewRun) -> Result<String, Problem> {
        let lab = self.lab(Operation::Alter).await?;
        let target = match new.target.as_str() {
            "embedded" => Target::Embedded,
            "cluster" => Target::Cluster {
                bootstrap: self.console.settings().bootstrap.join(","),
                settings: self.settings(&new.password).await?,
            },
            other => {
                return Err(Problem::wrong(format!("{other:?} is no target: use embedded or cluster")));
            }
        };
        let name = lab.start(new, target, self.person.user.clone()).await?;
        tracing::info!(user = self.person.user, name, "Run of the lab started");
        Ok(name)
    }

    /// Client settings with the person's own login.
    async fn settings(&self, password: &str) -> Result<BTreeMap<String, String>, Problem> {
        let console = self.console.settings();
        let properties = match (&console.login, &self.person.user) {
            (Login::Password(_), Some(user)) => {
                let checked = self.console.properties_of(user, password).await;
                checked.map_err(|problem| match problem {
                    LoginProblem::Failed(problem) => problem,
                    LoginProblem::Wrong => Problem::forbidden(
                        "wrong password",
                        "The cluster does not take this password. A run on the cluster needs yours, because it has your rights",
                    ),
                })?
            }
            _ => console.client.clone(),
        };
        let value = |key: &str| Some((key.to_owned(), properties.get(key)?.to_owned()));
        Ok(properties.rest().filter_map(value).collect())
    }

    /// True if a run on the cluster needs the person's password.
    pub fn needs_password(&self) -> bool {
        self.console.has_login()
    }

    /// Stops the current run, and returns its name.
    pub async fn stop(&self) -> Result<String, Problem> {
        let lab = self.lab(Operation::Alter).await?;
        let stopped = lab.stop().await;
        let named = stopped.as_deref().unwrap_or_default();
        self.record("StopLabRun", Action::Update, named, None, stopped.as_ref().err());
        let name = stopped?;
        tracing::info!(user = self.person.user, name, "Run of the lab stopped");
        Ok(name)
    }

    /// Deletes a result.
    pub async fn delete(&self, name: &str) -> Result<(), Problem> {
        let deleted = self.lab(Operation::Alter).await?.delete(name).await;
        self.record("DeleteLabResult", Action::Delete, name, None, deleted.as_ref().err());
        deleted?;
        tracing::info!(user = self.person.user, name, "Result of the lab deleted");
        Ok(())
    }
}

/// The problem of a disabled lab, with instructions to enable it.
fn off() -> Problem {
    Problem::missing(
        "The lab is off here. To turn it on, name a directory for its results: thalweg.console.lab.directory=DIR of a broker, or \
         --lab-dir DIR of thalweg console. Then those who have ALTER on the cluster can start measurements on this machine, which take \
         its processor and its disk.",
    )
}
