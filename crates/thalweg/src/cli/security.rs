//! `security`: users, ACLs, certificates, tokens.

mod acl;
mod certificate;
mod token;
mod user;

use clap::Subcommand;

/// Add users, tokens, ACLs and certificates.
///
/// `thalweg serve --secure` makes a first administrator and prints the settings to connect with. With these in
/// --command-config, these commands add others; they work with Apache Kafka's brokers too.
#[derive(Subcommand, Debug)]
#[command(after_help = "Example:
  thalweg serve --secure &
  export THALWEG_COMMAND_CONFIG=thalweg-data-security/client.properties
  thalweg security user add alice
  thalweg security acl add User:alice --topic orders --allow read,write")]
pub enum Security {
    /// Users with passwords: SCRAM credentials.
    #[command(subcommand)]
    User(user::User),
    /// Delegation tokens: they log in as their owner for a while.
    #[command(subcommand)]
    Token(token::Token),
    /// Access control lists: who may do what.
    #[command(subcommand)]
    Acl(acl::AclCommand),
    /// Certificates of nodes and clients, signed by an authority of your own.
    #[command(subcommand)]
    Certificate(certificate::Certificate),
}

impl Security {
    /// Runs the command.
    pub async fn run(&self) -> anyhow::Result<()> {
        match self {
            Security::User(user) => user.run().await,
            Security::Token(token) => token.run().await,
            Security::Acl(acl) => acl.run().await,
            Security::Certificate(certificate) => certificate.run(),
        }
    }
}
