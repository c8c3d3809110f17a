//! SCRAM credentials: the stored keys, and refusals.

use bytes::Bytes;
use thalweg_wire::request::AlterUserScramCredentialsRequest;
use thalweg_wire::request::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};

use super::*;

const SHA_256: i8 = 1;
const SHA_512: i8 = 2;

/// "pencil" under the salt and the 4096 iterations of RFC 7677, and the keys that SCRAM-SHA-256 makes of it.
const SALT: &str = "5b6d99689d12358eeca04b141236fa81";
const SALTED_PASSWORD: &str = "c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d";
const STORED_KEY: &str = "586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6";
const SERVER_KEY: &str = "c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5";

fn hex(text: &str) -> Bytes {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

fn upsertion(user: &str, mechanism: i8, iterations: i32) -> ScramCredentialUpsertion {
    ScramCredentialUpsertion {
        name: user.to_owned(),
        mechanism,
        iterations,
        salt: hex(SALT),
        salted_password: hex(SALTED_PASSWORD),
    }
}

fn deletion(user: &str, mechanism: i8) -> ScramCredentialDeletion {
    ScramCredentialDeletion { name: user.to_owned(), mechanism }
}

/// The answers for each user.
fn alter(
    bench: &mut Bench,
    deletions: Vec<ScramCredentialDeletion>,
    upsertions: Vec<ScramCredentialUpsertion>,
) -> Vec<(String, Option<ErrorCode>)> {
    let request = AlterUserScramCredentialsRequest { deletions, upsertions };
    let outcome = bench.state.alter_user_scram_credentials(&request);
    let results = bench.done(outcome).expect("the request is taken").results;
    results.into_iter().map(|result| (result.user, ErrorCode::from_i16(result.error_code))).collect()
}

fn one(bench: &mut Bench, upsertion: ScramCredentialUpsertion) -> ErrorCode {
    alter(bench, Vec::new(), vec![upsertion])[0].1.expect("a code of Kafka's")
}

#[test]
fn the_keys_of_a_password_are_kept_and_it_is_not() {
    let mut bench = Bench::new();
    assert_eq!(one(&mut bench, upsertion("user", SHA_256, 4096)), ErrorCode::None);
    let credential = &bench.state.image().scram_credentials()[&("user".to_owned(), SHA_256)];
    assert_eq!((&credential.salt, credential.iterations), (&hex(SALT), 4096));
    assert_eq!((&credential.stored_key, &credential.server_key), (&hex(STORED_KEY), &hex(SERVER_KEY)));
}

#[test]
fn a_user_has_a_credential_for_each_mechanism_and_they_go_one_by_one() {
    let mut bench = Bench::new();
    for mechanism in [SHA_256, SHA_512, SHA_256] {
        assert_eq!(one(&mut bench, upsertion("user", mechanism, 8192)), ErrorCode::None);
    }
    assert_eq!(bench.state.image().scram_credentials().len(), 2);
    let gone = alter(&mut bench, vec![deletion("user", SHA_256)], Vec::new());
    assert_eq!(gone, [("user".to_owned(), Some(ErrorCode::None))]);
    let left: Vec<_> = bench.state.image().scram_credentials().keys().cloned().collect();
    assert_eq!(left, [("user".to_owned(), SHA_512)]);
    let again = alter(&mut bench, vec![deletion("user", SHA_256)], Vec::new());
    assert_eq!(again, [("user".to_owned(), Some(ErrorCode::ResourceNotFound))]);
}

#[test]
fn a_user_is_altered_once_in_a_request() {
    let mut bench = Bench::new();
    assert_eq!(one(&mut bench, upsertion("a", SHA_256, 4096)), ErrorCode::None);
    let both = vec![upsertion("a", SHA_512, 4096), upsertion("b", SHA_256, 4096), upsertion("c", 9, 4096)];
    let answered = alter(&mut bench, vec![deletion("a", SHA_256), deletion("c", SHA_256)], both);
    let codes: Vec<_> = answered.into_iter().map(|(_, code)| code.expect("a code of Kafka's")).collect();
    assert_eq!(codes, [ErrorCode::DuplicateResource, ErrorCode::None, ErrorCode::ResourceNotFound]);
    assert_eq!(bench.state.image().scram_credentials().len(), 2, "that of a stays, that of b is new");
}

#[test]
fn unusable_credentials_are_refused() {
    let mut bench = Bench::new();
    let refused = [
        (upsertion("", SHA_256, 4096), ErrorCode::UnacceptableCredential),
        (upsertion("user", 0, 4096), ErrorCode::UnsupportedSaslMechanism),
        (upsertion("user", 3, 4096), ErrorCode::UnsupportedSaslMechanism),
        (upsertion("user", SHA_256, 4095), ErrorCode::UnacceptableCredential),
        (upsertion("user", SHA_512, 16_385), ErrorCode::UnacceptableCredential),
        (
            ScramCredentialUpsertion { salt: vec![7; 1025].into(), ..upsertion("user", SHA_256, 4096) },
            ErrorCode::UnacceptableCredential,
        ),
        (
            ScramCredentialUpsertion { salted_password: Bytes::new(), ..upsertion("user", SHA_256, 4096) },
            ErrorCode::UnacceptableCredential,
        ),
    ];
    for (upsertion, code) in refused {
        assert_eq!(one(&mut bench, upsertion.clone()), code, "{upsertion:?}");
    }
    assert_eq!(one(&mut bench, upsertion("user", SHA_512, 16_384)), ErrorCode::None);
}
