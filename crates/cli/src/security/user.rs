//! `security user`: add, list, remove.

use std::io::{IsTerminal, Read};
use std::num::NonZeroU32;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use thalweg_authority::password;
use thalweg_client::{Admin, SCRAM_ITERATIONS};
use thalweg_security::sasl;
use thalweg_security::sasl::scram::Hash;

use crate::connect::Connect;
use crate::failure::{NotFound, Usage};
use crate::outcomes::fail_with;
use crate::output::{CommandOutput, Outcomes};
use crate::table::row;

/// Users with passwords: SCRAM credentials.
#[derive(Subcommand, Debug)]
pub enum User {
    Add(Add),
    List(List),
    Remove(Remove),
}

/// A SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mechanism {
    /// SCRAM with SHA-256 (RFC 7677).
    #[value(name = "SCRAM-SHA-256", alias = "scram-sha-256")]
    Sha256,
    /// SCRAM with SHA-512.
    #[value(name = "SCRAM-SHA-512", alias = "scram-sha-512")]
    Sha512,
}

impl From<Mechanism> for Hash {
    fn from(mechanism: Mechanism) -> Hash {
        match mechanism {
            Mechanism::Sha256 => Hash::Sha256,
            Mechanism::Sha512 => Hash::Sha512,
        }
    }
}

impl User {
    /// Runs the command.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        match self {
            User::Add(add) => add.run().await,
            User::List(list) => list.run().await,
            User::Remove(remove) => remove.run().await,
        }
    }
}

/// Add a user, or set another password.
///
/// Without --password-stdin a password is made and printed. A user can have several mechanisms.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg security user add alice
  thalweg security user add alice --password-stdin < secret")]
pub struct Add {
    #[command(flatten)]
    connect: Connect,
    /// The user's name.
    name: String,
    /// The mechanisms that the password is for; can be repeated.
    #[arg(long, value_enum, default_values = ["SCRAM-SHA-512", "SCRAM-SHA-256"])]
    mechanism: Vec<Mechanism>,
    /// Read the password from standard input; a line feed at its end is not part of it.
    #[arg(long)]
    password_stdin: bool,
    /// Iterations of the password's hash, 4096 to 16384.
    #[arg(long, value_name = "NUMBER", default_value_t = SCRAM_ITERATIONS)]
    iterations: NonZeroU32,
    #[command(flatten)]
    output: CommandOutput,
}

impl Add {
    async fn run(&self) -> anyhow::Result<()> {
        let password = match self.password_stdin {
            true => read_password()?,
            false => password(),
        };
        let admin = Admin::new(self.connect.cluster().await?);
        for mechanism in &self.mechanism {
            admin.set_password(&self.name, (*mechanism).into(), &password, self.iterations).await?;
        }
        let mechanisms: Vec<&str> = self.mechanism.iter().map(|one| name((*one).into())).collect();
        let made = (!self.password_stdin).then_some(password);
        let document = json!({ "user": self.name, "mechanisms": mechanisms, "password": made });
        self.output.show(&document, |_| Ok(made.map_or_else(String::new, |password| format!("{password}\n"))))
    }
}

fn read_password() -> anyhow::Result<String> {
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        let how = "standard input is a terminal, which would show the password: use a file or a pipe";
        return Err(Usage(format!("--password-stdin: {how}")).into());
    }
    let mut text = String::new();
    stdin.read_to_string(&mut text).context("Cannot read the password from standard input")?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    match password.is_empty() {
        true => Err(Usage("--password-stdin: the password is empty".to_owned()).into()),
        false => Ok(password.to_owned()),
    }
}

/// List users and their mechanisms.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: CommandOutput,
}

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let users = admin.describe_users(None).await?;
        let mut rows = vec![row(["USER", "MECHANISM", "ITERATIONS"])];
        let mut documents = serde_json::Map::new();
        for (user, credentials) in &users {
            for (hash, iterations) in credentials {
                rows.push(row([user, name(*hash), &iterations.to_string()]));
            }
            let named = credentials
                .iter()
                .map(|(hash, iterations)| json!({ "mechanism": name(*hash), "iterations": iterations }));
            documents.insert(user.clone(), named.collect());
        }
        self.output.show(&documents, |style| Ok(style.table(&rows)))
    }
}

fn name(hash: Hash) -> &'static str {
    sasl::Mechanism::Scram(hash).name()
}

/// Remove users: all their credentials, or those of one mechanism.
#[derive(Args, Debug)]
pub struct Remove {
    #[command(flatten)]
    connect: Connect,
    /// The users to remove.
    #[arg(required = true, value_name = "USER")]
    users: Vec<String>,
    /// Remove only the credential of this mechanism.
    #[arg(long, value_enum)]
    mechanism: Option<Mechanism>,
    #[command(flatten)]
    output: CommandOutput,
}

impl Remove {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        self.output
            .outcomes(async |done| {
                let mut errors = Vec::new();
                for user in &self.users {
                    if let Err(error) = self.remove(&admin, user, done).await {
                        errors.push(error);
                    }
                }
                fail_with(errors)
            })
            .await
    }

    /// Removes one user's credentials.
    async fn remove(&self, admin: &Admin, user: &str, done: &mut Outcomes<'_>) -> anyhow::Result<()> {
        let mut known = admin.describe_users(Some(&[user.to_owned()])).await?;
        let wanted = self.mechanism.map(Hash::from);
        let credentials = known.remove(user).unwrap_or_default().into_keys();
        let removed: Vec<Hash> =
            credentials.filter(|hash| wanted.is_none_or(|wanted| wanted == *hash)).collect();
        if removed.is_empty() {
            return Err(NotFound(format!("User {user} has no such credential")).into());
        }
        for hash in removed {
            admin.remove_credential(user, hash).await?;
            let mechanism = name(hash);
            let outcome = json!({ "user": user, "mechanism": mechanism, "outcome": "removed" });
            done.add(&outcome, &format!("Removed the {mechanism} credential of user {user}."))?;
        }
        Ok(())
    }
}
