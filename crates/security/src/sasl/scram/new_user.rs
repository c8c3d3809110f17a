//! Users in the format of Kafka's storage tool, for a newly formatted cluster:
//! `SCRAM-SHA-256=[name=alice,password=alice-secret]`.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::client::ITERATIONS_MIN;
use super::credential::{Credential, ITERATIONS_MAX};
use super::hash::Hash;

/// A user with a credential.
#[derive(Clone, PartialEq, Eq)]
pub struct NewUser {
    /// The user name.
    pub name: String,
    /// The hash function of the mechanism.
    pub hash: Hash,
    /// The credential to store.
    pub credential: Credential,
}

impl fmt::Debug for NewUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewUser").field("name", &self.name).field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// A text that does not describe a user. Contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; expected for example SCRAM-SHA-512=[name=alice,password=alice-secret]")]
pub struct NewUserFault(String);

impl NewUser {
    /// Parses a user: `name`, `password` or `saltedpassword`, and optionally `iterations` and `salt`. Salt
    /// and salted password are in base64. `random` is the default salt. The time is proportional to the
    /// iterations.
    pub fn parse(text: &str, random: &[u8]) -> Result<NewUser, NewUserFault> {
        let fault = |reason: &str| NewUserFault(reason.to_owned());
        let (mechanism, fields) = text.split_once('=').ok_or_else(|| fault("there is no mechanism"))?;
        let Some(hash) = Hash::from_mechanism(mechanism.trim()) else {
            return Err(NewUserFault(format!("{} is no mechanism of SCRAM", mechanism.trim())));
        };
        let inner = fields.trim().strip_prefix('[').and_then(|fields| fields.strip_suffix(']'));
        let inner = inner.ok_or_else(|| fault("the brackets are missing"))?;
        let (mut name, mut password, mut salted, mut salt) = (None, None, None, None);
        let mut iterations = ITERATIONS_MIN;
        let decoded = |value: &str| STANDARD.decode(value).map_err(|_| fault("a value is not base64"));
        for field in inner.split(',') {
            let (key, value) = field.split_once('=').ok_or_else(|| fault("a field is not name=value"))?;
            let value = value.trim();
            let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            match key.trim() {
                "name" => name = Some(unquoted.to_owned()),
                "password" => password = Some(unquoted.to_owned()),
                "saltedpassword" => salted = Some(decoded(unquoted)?),
                "salt" => salt = Some(decoded(unquoted)?),
                "iterations" => {
                    let given = unquoted.parse().ok();
                    let within = |given: &u32| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(given);
                    let reason = format!("iterations is not from {ITERATIONS_MIN} to {ITERATIONS_MAX}");
                    iterations = given.filter(within).ok_or(NewUserFault(reason))?;
                }
                _ => {
                    return Err(fault("a field is none of name, password, saltedpassword, salt, iterations"));
                }
            }
        }
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| fault("name is missing"))?;
        let credential = match (password.filter(|password| !password.is_empty()), salted, salt) {
            (Some(password), None, salt) => {
                let iterations = NonZeroU32::new(iterations).expect("it is at least the minimum");
                let salt = salt.unwrap_or_else(|| random.to_vec());
                Credential::of_password(hash, &password, salt, iterations)
            }
            (None, Some(salted), Some(salt)) if salted.len() == hash.len() => {
                Credential::of_salted_password(hash, &salted, salt, iterations)
            }
            (None, Some(_), Some(_)) => {
                return Err(fault("saltedpassword does not have the length of the hash"));
            }
            (None, Some(_), None) => return Err(fault("saltedpassword needs its salt")),
            (Some(_), Some(_), _) => return Err(fault("both password and saltedpassword are given")),
            (None, None, _) => return Err(fault("password is missing")),
        };
        Ok(NewUser { name, hash, credential })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_given_as_to_kafkas_storage_tool() {
        let parse = |text: &str| NewUser::parse(text, b"random");
        let alice = parse("SCRAM-SHA-256=[name=alice,password=\"alice-secret\"]").expect("a user");
        assert_eq!(
            (alice.name.as_str(), alice.hash, alice.credential.iterations),
            ("alice", Hash::Sha256, 4096)
        );
        assert_eq!(alice.credential.salt, b"random");
        let iterations = NonZeroU32::new(8192).expect("not zero");
        let salted = Hash::Sha512.salted("p", b"salt", iterations);
        let (salt, salted) = (STANDARD.encode("salt"), STANDARD.encode(salted));
        let given =
            parse(&format!("SCRAM-SHA-512=[name=b,iterations=8192,salt={salt},saltedpassword={salted}]"));
        let made = parse(&format!("SCRAM-SHA-512=[name=b,iterations=8192,salt={salt},password=p]"));
        assert_eq!(given, made);
        assert!(given.is_ok());
        assert!(!format!("{alice:?}").contains("secret"));
        for text in [
            "",
            "PLAIN=[name=a,password=hunter2]",
            "SCRAM-SHA-256=name=a,password=hunter2",
            "SCRAM-SHA-256=[password=hunter2]",
            "SCRAM-SHA-256=[name=,password=hunter2]",
            "SCRAM-SHA-256=[name=a]",
            "SCRAM-SHA-256=[name=a,password=]",
            "SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]",
            "SCRAM-SHA-256=[name=a,password=hunter2,iterations=16385]",
            "SCRAM-SHA-256=[name=a,saltedpassword=AAAA]",
            "SCRAM-SHA-256=[name=a,salt=AAAA,saltedpassword=AAAA]",
            "SCRAM-SHA-256=[name=a,password=hunter2,x=y]",
            "SCRAM-SHA-256=[name=a,password=hunter2,salt=?]",
            "SCRAM-SHA-256=[name=a,hunter2]",
        ] {
            let fault = parse(text).expect_err(text).to_string();
            assert!(!fault.contains("hunter2"), "{fault}");
        }
    }
}
