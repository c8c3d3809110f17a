//! `serve --add-scram`: the initial users of a new cluster.

use anyhow::Result;
use thalweg_cli::failure::Usage;
use thalweg_config::BrokerConfig;
use thalweg_security::sasl::scram::NewUser;

/// Length of a random salt, in bytes.
const SALT_LEN: usize = 16;

/// Parses the users, for a node that creates the cluster.
pub fn first_users(texts: &[String], config: &BrokerConfig) -> Result<Vec<NewUser>> {
    if !texts.is_empty() && !config.node.roles.controller {
        let problem = "--add-scram: process.roles has no controller, and only a controller creates a cluster";
        return Err(Usage(problem.to_owned()).into());
    }
    texts.iter().map(|text| first_user(text)).collect()
}

/// Parses a user in the syntax of Kafka's `--add-scram`.
pub fn first_user(text: &str) -> Result<NewUser> {
    let mut salt = [0; SALT_LEN];
    getrandom::fill(&mut salt).expect("the system gives randomness");
    NewUser::parse(text, &salt).map_err(|fault| Usage(format!("--add-scram: {fault}")).into())
}
