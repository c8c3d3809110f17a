//! The users whose passwords are in the security directory: missing users are added to the cluster's
//! metadata.
//!
//! A cluster that was created without `--secure` lacks all these users. A newly made password replaces the
//! cluster's, so removing `admin.password` resets the administrator's password.

use std::time::Duration;

use anyhow::{Context, bail};
use thalweg_authority::{ADMIN, Directory, Password, Settings};
use thalweg_client::{Admin, ClientError, Cluster, ConnectionOptions, Properties, SCRAM_ITERATIONS};
use thalweg_security::sasl::scram::Hash;
use thalweg_wire::ErrorCode;

/// Time limit for adding users, because the start of the node waits.
const WITHIN: Duration = Duration::from_secs(10);

/// Logins until a password counts as wrong: brokers learn of a new password a moment after the controller.
const LOGINS: u32 = 10;
/// Pause between two logins.
const AGAIN: Duration = Duration::from_millis(200);

/// Users with the passwords of the directory's files.
pub type Users = Vec<(&'static str, Password)>;

/// The users among `names` with a password in the directory.
pub fn of(directory: &Directory, names: &[&'static str]) -> anyhow::Result<Users> {
    let mut users = Vec::new();
    for name in names {
        users.extend(directory.known_password(name)?.map(|password| (*name, password)));
    }
    Ok(users)
}

/// Adds missing users to the cluster at this address. Failures are logged, and do not stop the node.
pub async fn ensure(directory: &Directory, bootstrap: &str, users: &Users) {
    let done = tokio::time::timeout(WITHIN, attempt(directory, bootstrap, users)).await;
    let error = match done {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_elapsed) => anyhow::anyhow!("the cluster did not answer within {} s", WITHIN.as_secs()),
    };
    tracing::warn!("Failed to check the users of {}: {error:#}", directory.path().display());
}

async fn attempt(directory: &Directory, bootstrap: &str, users: &Users) -> anyhow::Result<()> {
    let as_node = directory.client_settings(thalweg_authority::NODE)?;
    let admin = Admin::new(connect(bootstrap, &as_node).await?);
    for (user, password) in users {
        let known = admin.describe_users(Some(&[(*user).to_owned()])).await;
        let is_known = match known {
            Ok(known) => known.get(*user).is_some_and(|credentials| !credentials.is_empty()),
            Err(error) if error.error_code() == Some(ErrorCode::ResourceNotFound) => false,
            Err(error) => return Err(error).context("Describing users"),
        };
        if is_known && (!password.is_new || logs_in(directory, bootstrap, user).await?) {
            continue;
        }
        admin.set_password(user, Hash::Sha512, &password.text, SCRAM_ITERATIONS).await?;
        tracing::info!("{} user {user}", if is_known { "Set the password of" } else { "Added" });
    }
    if users.iter().any(|(user, _)| *user == ADMIN) {
        check_admin(directory, bootstrap).await?;
    }
    Ok(())
}

/// Fails if the administrator's password was changed in the cluster only.
async fn check_admin(directory: &Directory, bootstrap: &str) -> anyhow::Result<()> {
    for _ in 0..LOGINS {
        if logs_in(directory, bootstrap, ADMIN).await? {
            return Ok(());
        }
        tokio::time::sleep(AGAIN).await;
    }
    bail!(
        "the cluster has another password for {ADMIN} than admin.password. Write the right one into that file, or remove the \
         file and start again to set a new one"
    )
}

/// True if a user can log in with the directory's password.
async fn logs_in(directory: &Directory, bootstrap: &str, user: &str) -> anyhow::Result<bool> {
    match connect(bootstrap, &directory.client_settings(user)?).await {
        Ok(_) => Ok(true),
        Err(ClientError::Authentication(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn connect(bootstrap: &str, settings: &Settings) -> Result<Cluster, ClientError> {
    let mut properties = Properties::new();
    for (key, value) in settings {
        properties.set(key, value);
    }
    let options = ConnectionOptions::take(&mut properties, "thalweg-users").expect("these settings are ours");
    Cluster::connect(&[bootstrap.to_owned()], &options).await
}
