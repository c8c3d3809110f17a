//! `security`: users, ACLs, certificates, tokens.

mod acl;
mod certificate;
mod token;
mod user;

use clap::Subcommand;

use crate::CommandFuture;

/// Add users, tokens, ACLs and certificates.
///
/// `thalweg serve --secure` makes a first administrator and prints the settings to connect with. With these
/// in --command-config, these commands add others; they work with Apache Kafka's brokers too.
#[derive(Subcommand, Debug)]
#[command(after_help = "Example:
  thalweg serve --secure &
  export THALWEG_COMMAND_CONFIG=thalweg-data-security/client.properties
  thalweg security user add alice
  thalweg security acl add User:alice --topic orders --allow read,write")]
pub enum Security {
    #[command(subcommand)]
    User(user::User),
    #[command(subcommand)]
    Token(token::Token),
    #[command(subcommand)]
    Acl(acl::AclCommand),
    #[command(subcommand)]
    Certificate(certificate::Certificate),
}

impl Security {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Security::User(user) => user.run().await,
                Security::Token(token) => token.run().await,
                Security::Acl(acl) => acl.run().await,
                Security::Certificate(certificate) => certificate.run(),
            }
        })
    }
}
