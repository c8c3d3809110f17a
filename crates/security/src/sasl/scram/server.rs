//! The server side, with Kafka's messages and limits. An unknown user gets the same answers as a wrong
//! password: first a salt, then the refusal after the proof.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use subtle::ConstantTimeEq;

use super::client::ITERATIONS_MIN;
use super::credential::{Credential, DecoyForm};
use super::hash::Hash;
use super::{TOKEN_AUTH, auth_message, xor};
use crate::sasl::rejection::{Rejection, other_authorization_id};

/// A client's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFirst {
    /// The user name, or the id of a delegation token.
    pub user: String,
    /// True if `user` is the id of a delegation token.
    pub is_token: bool,
    header: String,
    bare: String,
    nonce: String,
    authorization_id: Option<String>,
}

/// A server that awaits a client's proof.
pub struct ScramServer {
    hash: Hash,
    credential: Credential,
    is_known: bool,
    first: ClientFirst,
    server_first: String,
    nonce: String,
}

impl fmt::Debug for ScramServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramServer").field("user", &self.first.user).finish_non_exhaustive()
    }
}

impl ClientFirst {
    /// Parses a client's first message.
    pub fn parse(message: &[u8]) -> Result<ClientFirst, Rejection> {
        read_first(message).ok_or_else(|| Rejection::hidden("the first message is not valid SCRAM"))
    }
}

fn read_first(message: &[u8]) -> Option<ClientFirst> {
    let text = std::str::from_utf8(message).ok()?;
    let rest = text.strip_prefix("n,")?;
    let (authorization, bare) = rest.split_once(',')?;
    let header = format!("n,{authorization},");
    let authorization_id = match authorization {
        "" => None,
        name => Some(unescaped(name.strip_prefix("a=")?)?),
    };
    let mut fields = bare.split(',').peekable();
    // RFC 5802 requires a server to refuse mandatory extensions; Kafka ignores them.
    fields.next_if(|field| field.starts_with("m="));
    let user = unescaped(fields.next()?.strip_prefix("n=")?)?;
    let nonce = fields.next()?.strip_prefix("r=")?;
    if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let mut is_token = false;
    for extension in fields {
        let (name, value) = extension.split_once('=')?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) || value.is_empty() {
            return None;
        }
        is_token |= name == TOKEN_AUTH && value.eq_ignore_ascii_case("true");
    }
    Some(ClientFirst {
        user,
        is_token,
        header,
        bare: bare.to_owned(),
        nonce: nonce.to_owned(),
        authorization_id,
    })
}

/// A name without escapes: `=2C` for a comma, `=3D` for an equals sign.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut unescaped = parts.next()?.to_owned();
    for part in parts {
        let (escaped, rest) = match part.get(..2)? {
            "2C" => (',', &part[2..]),
            "3D" => ('=', &part[2..]),
            _ => return None,
        };
        unescaped.push(escaped);
        unescaped.push_str(rest);
    }
    (!unescaped.is_empty() && !unescaped.contains('\0')).then_some(unescaped)
}

impl ScramServer {
    /// Answers a first message. `credential` is that of the user, if any; `nonce` must be unique; `decoys` is
    /// the form of credentials for unknown users.
    pub fn begin(
        hash: Hash,
        first: ClientFirst,
        credential: Option<Credential>,
        nonce: &str,
        decoys: &DecoyForm,
    ) -> Result<(ScramServer, Vec<u8>), Rejection> {
        if first.authorization_id.as_ref().is_some_and(|id| *id != first.user) {
            return Err(other_authorization_id());
        }
        let decoy = Credential::decoy(hash, &first.user, decoys);
        let is_usable = |found: &Credential| {
            found.stored_key.len() == hash.len()
                && found.server_key.len() == hash.len()
                && found.iterations >= ITERATIONS_MIN
        };
        let credential = credential.filter(is_usable);
        let is_known = credential.is_some();
        let credential = credential.unwrap_or(decoy);
        let nonce = format!("{}{nonce}", first.nonce);
        let salt = STANDARD.encode(&credential.salt);
        let server_first = format!("r={nonce},s={salt},i={}", credential.iterations);
        let message = server_first.clone().into_bytes();
        Ok((ScramServer { hash, credential, is_known, first, server_first, nonce }, message))
    }

    /// Verifies the proof. Returns the user name or token id, and the last message.
    pub fn finish(self, message: &[u8]) -> Result<(String, Vec<u8>), Rejection> {
        let invalid = || Rejection::hidden("the final message is not valid SCRAM");
        let text = std::str::from_utf8(message).map_err(|_| invalid())?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or_else(invalid)?;
        let mut fields = without_proof.split(',');
        let binding = fields.next().and_then(|field| field.strip_prefix("c=")).ok_or_else(invalid)?;
        let nonce = fields.next().and_then(|field| field.strip_prefix("r=")).ok_or_else(invalid)?;
        // librdkafka before 2.6.1 repeats its own nonce in front. Kafka refuses that since 3.7.2
        // (CVE-2024-56128: it did not compare the nonces). Here the message must end with the whole nonce of
        // this exchange, which the proof covers.
        if !nonce.ends_with(&self.nonce) {
            return Err(Rejection::hidden("the final message answers another exchange"));
        }
        if STANDARD.decode(binding).ok().as_deref() != Some(self.first.header.as_bytes()) {
            return Err(Rejection::hidden("the final message repeats another header"));
        }
        let proof = STANDARD.decode(proof).map_err(|_| invalid())?;
        let signed = auth_message(&self.first.bare, &self.server_first, without_proof);
        let signature = hmac::sign(&self.hash.key(&self.credential.stored_key), signed.as_bytes());
        let stored_key = self.hash.digest(&xor(&proof, signature.as_ref()));
        let is_same = stored_key.as_ref().ct_eq(&self.credential.stored_key);
        let is_long = proof.len() == self.hash.len();
        if !(is_long & self.is_known & bool::from(is_same)) {
            return Err(Rejection::hidden(match self.is_known {
                true => "the password is wrong",
                false => "the user has no credential for this mechanism",
            }));
        }
        let signature = hmac::sign(&self.hash.key(&self.credential.server_key), signed.as_bytes());
        let last = format!("v={}", STANDARD.encode(signature.as_ref()));
        Ok((self.first.user, last.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::sasl::scram::client::ScramClient;

    fn decoys() -> DecoyForm {
        DecoyForm::like(None, b"of the cluster".to_vec())
    }

    fn credential(hash: Hash, password: &str, salt: &[u8]) -> Credential {
        let iterations = NonZeroU32::new(ITERATIONS_MIN).expect("not zero");
        Credential::of_password(hash, password, salt.to_vec(), iterations)
    }

    fn begin(first: &[u8], known: Option<Credential>, hash: Hash) -> (ScramServer, Vec<u8>) {
        let first = ClientFirst::parse(first).expect("a first message");
        ScramServer::begin(hash, first, known, "server", &decoys()).expect("an answer")
    }

    #[test]
    fn the_exchange_is_that_of_rfc_7677() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let known = credential(Hash::Sha256, "pencil", &salt);
        let first = ClientFirst::parse(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").expect("a first message");
        let nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let (server, answer) =
            ScramServer::begin(Hash::Sha256, first, Some(known), nonce, &decoys()).expect("an answer");
        assert_eq!(
            answer,
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let proof = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let (user, last) = server.finish(proof).expect("the proof of the RFC");
        assert_eq!(
            (user.as_str(), last.as_slice()),
            ("user", &b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="[..])
        );
    }

    #[test]
    fn both_sides_agree_for_both_hashes_and_odd_names() {
        for hash in [Hash::Sha256, Hash::Sha512] {
            let known = credential(hash, "p,=\u{e4}", b"salt");
            let (mut client, first) = ScramClient::begin(hash, "a,b=c", "p,=\u{e4}", "nonce", false);
            let (server, answer) = begin(&first, Some(known), hash);
            let proof = client.next(&answer).expect("a proof").expect("a message");
            let (user, last) = server.finish(&proof).expect("the right password");
            assert_eq!((user.as_str(), client.next(&last)), ("a,b=c", Ok(None)));
        }
    }

    #[test]
    fn wrong_passwords_and_unknown_users_are_distinct_in_the_log_only() {
        let hash = Hash::Sha512;
        let ends = |known: Option<Credential>| {
            let (mut client, first) = ScramClient::begin(hash, "alice", "wrong", "nonce", false);
            let (server, answer) = begin(&first, known, hash);
            let proof = client.next(&answer).expect("a proof").expect("a message");
            (answer, server.finish(&proof).expect_err("a rejection"))
        };
        let (_, wrong) = ends(Some(credential(hash, "right", b"salt")));
        let (answer, unknown) = ends(None);
        assert_eq!((wrong.for_client(), unknown.for_client()), (None, None));
        assert_ne!(wrong.to_string(), unknown.to_string());
        assert_eq!(answer, ends(None).0, "the salt of nobody is always the same");
        let other = begin(b"n,,n=bob,r=nonce", None, hash).1;
        assert_ne!(answer, other, "each has another");
    }

    #[test]
    fn weak_credentials_let_nobody_in() {
        let mut weak = credential(Hash::Sha256, "p", b"salt");
        weak.iterations = 1;
        let (server, answer) = begin(b"n,,n=u,r=n", Some(weak), Hash::Sha256);
        assert!(String::from_utf8_lossy(&answer).ends_with(",i=4096"));
        assert!(!server.is_known);
        // A credential of another mechanism.
        let other = credential(Hash::Sha512, "p", b"salt");
        assert!(!begin(b"n,,n=u,r=n", Some(other), Hash::Sha256).0.is_known);
    }

    #[test]
    fn a_nonce_that_is_sent_with_the_clients_once_more_is_taken() {
        let hash = Hash::Sha256;
        let iterations = NonZeroU32::new(ITERATIONS_MIN).expect("not zero");
        let client_key = hmac::sign(&hash.key(&hash.salted("p", b"salt", iterations)), b"Client Key");
        let stored_key = hash.digest(client_key.as_ref());
        for (nonce, is_taken) in [("noncenonceserver", true), ("nonceserver", true), ("noncenonce", false)] {
            let known = Some(credential(hash, "p", b"salt"));
            let (server, answer) = begin(b"n,,n=u,r=nonce", known, hash);
            let without_proof = format!("c=biws,r={nonce}");
            let answer = String::from_utf8(answer).expect("text");
            let signed = auth_message("n=u,r=nonce", &answer, &without_proof);
            let signature = hmac::sign(&hash.key(stored_key.as_ref()), signed.as_bytes());
            let proof = STANDARD.encode(xor(client_key.as_ref(), signature.as_ref()));
            let finished = server.finish(format!("{without_proof},p={proof}").as_bytes());
            assert_eq!(finished.is_ok(), is_taken, "{nonce}");
        }
    }

    #[test]
    fn a_captured_proof_is_of_no_use_in_another_exchange() {
        let known = || Some(credential(Hash::Sha256, "p", b"salt"));
        let (mut client, first) = ScramClient::begin(Hash::Sha256, "u", "p", "nonce", false);
        let (server, answer) = begin(&first, known(), Hash::Sha256);
        let proof = client.next(&answer).expect("a proof").expect("a message");
        server.finish(&proof).expect("the first time");
        let first = ClientFirst::parse(&first).expect("a first message");
        let (again, _) =
            ScramServer::begin(Hash::Sha256, first, known(), "another", &decoys()).expect("an answer");
        let rejection = again.finish(&proof).expect_err("a replay");
        assert_eq!(rejection.to_string(), "the final message answers another exchange");
    }

    #[test]
    fn tokens_are_named_by_the_extension() {
        let first = |text: &str| ClientFirst::parse(text.as_bytes()).expect(text);
        assert!(first("n,,n=id,r=x,tokenauth=true").is_token);
        assert!(!first("n,,n=id,r=x,tokenauth=false").is_token);
        assert!(!first("n,,n=id,r=x,other=true").is_token);
        let other = ScramServer::begin(Hash::Sha256, first("n,a=root,n=u,r=x"), None, "n", &decoys());
        assert!(other.expect_err("another name").for_client().is_some());
    }

    #[test]
    fn other_messages_are_refused() {
        for text in [
            "",
            "n",
            "n,,",
            "n,,n=u",
            "n,,r=x,n=u",
            "y,,n=u,r=x",
            "p=tls-unique,,n=u,r=x",
            "n,,n=,r=x",
            "n,,n=u,r=",
            "n,,n=u,r=a b",
            "n,,n=u=,r=x",
            "n,,n=u=2,r=x",
            "n,,n=u=2c,r=x",
            "n,,n=u,r=x,",
            "n,,n=u,r=x,1=2",
            "n,,n=u,r=x,a",
            "n,b=u,n=u,r=x",
            "n,,n=\u{0},r=x",
        ] {
            assert!(ClientFirst::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(ClientFirst::parse(b"n,,n=\xff,r=x").is_err());
        for text in [
            "",
            "p=",
            "c=biws,p=AAAA",
            "c=biws,r=xserver",
            "r=xserver,c=biws,p=AAAA",
            "c=biws,r=xserver,p=?",
            "c=biws,r=xserver,p=",
            "c=biws,r=xserver,p=AAAA",
            "c=eSws,r=xserver,p=AAAA",
            "c=biws,r=x,p=AAAA",
        ] {
            let known = Some(credential(Hash::Sha256, "p", b"salt"));
            let (server, _) = begin(b"n,,n=u,r=x", known, Hash::Sha256);
            assert!(server.finish(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn no_message_is_a_panic() {
        use rand::{Rng, SeedableRng, rngs::SmallRng};
        let mut random = SmallRng::seed_from_u64(7802);
        let alphabet = b"nrcps=,a=2C3Dbiws\0\xff";
        for _ in 0..20_000 {
            let mut message = |start: &[u8]| {
                let more =
                    (0..random.random_range(0..40)).map(|_| alphabet[random.random_range(0..alphabet.len())]);
                start.iter().copied().chain(more).collect::<Vec<u8>>()
            };
            drop(ClientFirst::parse(&message(b"n,,n=u,r=")));
            drop(ClientFirst::parse(&message(b"")));
            let (server, _) = begin(b"n,,n=u,r=x", None, Hash::Sha256);
            assert!(server.finish(&message(b"c=biws,r=xserver,p=")).is_err());
        }
    }
}
