//! PLAIN (RFC 4616): sends the password in clear text, so it belongs behind TLS.

use std::collections::BTreeMap;
use std::fmt;

use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

use super::jaas::LoginModule;
use super::rejection::{Rejection, other_authorization_id};

/// Prefix of the options with users' passwords: `user_NAME="password"`.
const USER_OPTION: &str = "user_";

/// Users and passwords of a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, String>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Users {
    /// The users in the options of a login module.
    pub fn of(module: &LoginModule) -> Users {
        let users = module.options.iter().filter_map(|(option, password)| {
            Some((option.strip_prefix(USER_OPTION)?.to_owned(), password.clone()))
        });
        Users(users.collect())
    }

    /// True without users: no login can succeed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks a client's message. Returns the user name.
    pub fn authenticate(&self, message: &[u8]) -> Result<String, Rejection> {
        let text = std::str::from_utf8(message).map_err(|_| Rejection::hidden("the message is not UTF-8"))?;
        let mut parts = text.split('\0');
        let (Some(authorization_id), Some(user), Some(password), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Rejection::hidden("the message does not have three parts"));
        };
        if user.is_empty() {
            return Err(Rejection::hidden("Authentication failed: username not specified"));
        }
        if password.is_empty() {
            return Err(Rejection::hidden("Authentication failed: password not specified"));
        }
        let expected = self.0.get(user).filter(|password| !password.is_empty());
        // Hashes have one length, and an unknown user takes as long as a wrong password.
        let is_same = hashed(password).ct_eq(&hashed(expected.map_or("", String::as_str)));
        if expected.is_none() || !bool::from(is_same) {
            return Err(Rejection::shown("Authentication failed: Invalid username or password"));
        }
        if !authorization_id.is_empty() && authorization_id != user {
            return Err(other_authorization_id());
        }
        Ok(user.to_owned())
    }
}

fn hashed(password: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, password.as_bytes()).as_ref());
    bytes
}

/// The client's message.
pub fn message(user: &str, password: &str) -> Vec<u8> {
    format!("\0{user}\0{password}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sasl::jaas;

    fn users() -> Users {
        let line = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
                    password=\"admin-secret\" user_admin=\"admin-secret\" user_alice='it\\'s' user_empty=\"\";";
        Users::of(&jaas::parse(line).expect("a login module"))
    }

    #[test]
    fn users_of_the_line_log_in() {
        assert_eq!(users().authenticate(&message("admin", "admin-secret")), Ok("admin".to_owned()));
        assert_eq!(users().authenticate(b"alice\0alice\0it's"), Ok("alice".to_owned()));
        assert_eq!(format!("{:?}", users()), r#"{"admin", "alice", "empty"}"#, "no secret is shown");
    }

    #[test]
    fn nobody_else_does() {
        let wrong = Some("Authentication failed: Invalid username or password");
        for (message, shown) in [
            (&b"\0admin\0admin-secre"[..], wrong),
            (b"\0nobody\0admin-secret", wrong),
            (b"\0empty\0x", wrong),
            (b"\0empty\0", None),
            (b"\0\0x", None),
            (b"admin", None),
            (b"", None),
            (b"\0admin\0admin-secret\0", None),
            (b"\0admin\0\xff", None),
            (
                b"alice\0admin\0admin-secret",
                Some(
                    "Authentication failed: Client requested an authorization id that is different from username",
                ),
            ),
        ] {
            let rejection = users().authenticate(message).expect_err("a rejection");
            assert_eq!(rejection.for_client(), shown, "{}", String::from_utf8_lossy(message));
        }
    }
}
