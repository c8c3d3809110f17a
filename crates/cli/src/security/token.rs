//! `security token`: create, list, renew, expire.
//!
//! Commands name tokens by id. The secret (HMAC) of a token is never an argument, because every user of the
//! machine can see arguments.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat};
use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::{Admin, DelegationToken, NewDelegationToken};
use thalweg_security::Principal;

use super::acl::check_principal;
use crate::connect::Connect;
use crate::failure::{NotFound, Usage};
use crate::output::{Column, CommandOutput};

const MODULE: &str = "org.apache.kafka.common.security.scram.ScramLoginModule";

/// Delegation tokens: they log in as their owner for a while.
#[derive(Subcommand, Debug)]
pub enum Token {
    Create(Create),
    #[command(alias = "describe")]
    List(List),
    Renew(Renew),
    Expire(Expire),
}

impl Token {
    /// Runs the command.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        match self {
            Token::Create(create) => create.run().await,
            Token::List(list) => list.run().await,
            Token::Renew(renew) => renew.run().await,
            Token::Expire(expire) => expire.run().await,
        }
    }
}

/// Create a token.
///
/// Prints the settings that log in with it: add security.protocol and, with TLS, ssl.truststore.location.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg security token create > job.properties
  thalweg security token create --owner User:alice --renewer User:scheduler --max-lifetime-hours 12")]
pub struct Create {
    #[command(flatten)]
    connect: Connect,
    /// User that the token stands for [default: its creator].
    #[arg(long, value_name = "PRINCIPAL")]
    owner: Option<String>,
    /// User that may renew the token, besides its owner; can be repeated.
    #[arg(long = "renewer", value_name = "PRINCIPAL")]
    renewers: Vec<String>,
    /// Maximum lifetime of the token, with renewals [default: the cluster's limit].
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..))]
    max_lifetime_hours: Option<u32>,
    /// The mechanism of the printed settings.
    #[arg(long, default_value = "SCRAM-SHA-512", value_parser = ["SCRAM-SHA-256", "SCRAM-SHA-512"])]
    mechanism: String,
    #[command(flatten)]
    output: CommandOutput,
}

impl Create {
    async fn run(&self) -> anyhow::Result<()> {
        let new = NewDelegationToken {
            owner: self.owner.as_deref().map(principal).transpose()?,
            renewers: self.renewers.iter().map(|text| principal(text)).collect::<Result<_, _>>()?,
            max_lifetime: self.max_lifetime_hours.map(hours),
        };
        let admin = Admin::new(self.connect.cluster().await?);
        let token = admin.create_delegation_token(&new).await?;
        let hmac = STANDARD.encode(&token.hmac);
        let mut document = document(&token);
        document["hmac"] = json!(hmac);
        self.output.show(&document, |_| Ok(self.settings(&token, &hmac)))
    }

    /// Client settings that log in with the token.
    fn settings(&self, token: &DelegationToken, hmac: &str) -> String {
        let DelegationToken { id, owner, expires_ms, max_ms, .. } = token;
        format!(
            "# token {id} of {owner}: expires {}, renewable until {}\n\
             sasl.mechanism={}\n\
             sasl.jaas.config={MODULE} required username=\"{id}\" password=\"{hmac}\" tokenauth=\"true\";\n",
            time(*expires_ms),
            time(*max_ms),
            self.mechanism,
        )
    }
}

/// List the tokens that you may describe.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    /// Show only tokens that this user owns, has requested, or may renew; can be repeated.
    #[arg(long = "owner", value_name = "PRINCIPAL")]
    owners: Vec<String>,
    #[command(flatten)]
    output: CommandOutput,
}

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let owners: Vec<Principal> =
            self.owners.iter().map(|text| principal(text)).collect::<Result<_, _>>()?;
        let admin = Admin::new(self.connect.cluster().await?);
        let owners = (!owners.is_empty()).then_some(owners.as_slice());
        let tokens = admin.describe_delegation_tokens(owners).await?;
        let tokens: Vec<_> = tokens.iter().map(document).collect();
        self.output.rows(&COLUMNS, &tokens)
    }
}

const COLUMNS: [Column<'_>; 6] = [
    ("TOKEN", "id"),
    ("OWNER", "owner"),
    ("REQUESTER", "requester"),
    ("RENEWERS", "renewers"),
    ("EXPIRES", "expires"),
    ("RENEWABLE UNTIL", "renewable_until"),
];

/// Renew a token.
///
/// Prints when it expires.
#[derive(Args, Debug)]
pub struct Renew {
    #[command(flatten)]
    connect: Connect,
    /// The id of the token.
    token: String,
    /// New lifetime of the token [default: the cluster's period].
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..))]
    hours: Option<u32>,
    #[command(flatten)]
    output: CommandOutput,
}

impl Renew {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let token = find(&admin, &self.token).await?;
        let expires_ms = admin.renew_delegation_token(token.hmac, self.hours.map(hours)).await?;
        let expires = time(expires_ms);
        let document = json!({ "id": self.token, "expires": expires });
        self.output.show(&document, |_| Ok(format!("{expires}\n")))
    }
}

/// Let a token expire: at once, or after a while.
#[derive(Args, Debug)]
pub struct Expire {
    #[command(flatten)]
    connect: Connect,
    /// The id of the token.
    token: String,
    /// After how long; default: at once.
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..))]
    hours: Option<u32>,
    #[command(flatten)]
    output: CommandOutput,
}

impl Expire {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let token = find(&admin, &self.token).await?;
        admin.expire_delegation_token(token.hmac, self.hours.map(hours)).await?;
        let outcome = json!([{ "id": self.token, "outcome": "expires" }]);
        self.output.show(&outcome, |_| Ok(String::new()))
    }
}

async fn find(admin: &Admin, id: &str) -> anyhow::Result<DelegationToken> {
    let tokens = admin.describe_delegation_tokens(None).await?;
    let found = tokens.into_iter().find(|token| token.id == id);
    let missing = || NotFound(format!("token {id} does not exist, or you may not describe it"));
    Ok(found.ok_or_else(missing)?)
}

fn principal(text: &str) -> Result<Principal, Usage> {
    check_principal(text)?;
    Ok(text.parse().expect("it was just checked"))
}

fn hours(hours: u32) -> Duration {
    Duration::from_secs(u64::from(hours) * 3600)
}

/// A token without its secret.
fn document(token: &DelegationToken) -> serde_json::Value {
    json!({
        "id": token.id,
        "owner": token.owner.as_str(),
        "requester": token.requester.as_str(),
        "renewers": token.renewers.iter().map(Principal::as_str).collect::<Vec<_>>(),
        "issued": time(token.issued_ms),
        "expires": time(token.expires_ms),
        "renewable_until": time(token.max_ms),
    })
}

fn time(ms: i64) -> String {
    match DateTime::from_timestamp_millis(ms) {
        Some(time) => time.to_rfc3339_opts(SecondsFormat::Secs, true),
        // Times beyond the calendar's range stay numbers.
        None => ms.to_string(),
    }
}
