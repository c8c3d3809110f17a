//! DescribeUserScramCredentials (key 50), version 0 (KIP-554): the users with SCRAM credentials and their
//! iteration counts; never the hashes. The credentials come from the image.

use super::entry::{Api, Cost, cluster, now};
use std::collections::BTreeMap;
use thalweg_metadata::{Image, ScramCredentials};
use thalweg_security::acl::Operation;
use thalweg_wire::request::describe_user_scram_credentials_request::UserName;
use thalweg_wire::request::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use thalweg_wire::request::{DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(
    ApiKey::DescribeUserScramCredentials,
    0..=0,
    cluster::<DescribeUserScramCredentialsRequest>(&[Operation::Describe]),
    |b, c, d| now(b, c, d, |b, _, r| handle(&b.image(), r)),
)
.cost(Cost::Always);

/// Describes the requested users, or all.
pub fn handle(
    image: &Image,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    DescribeUserScramCredentialsResponse {
        throttle_time_ms: 0,
        error_code: 0,
        error_message: Some(String::new()),
        results: describe(image.scram_credentials(), request.users.as_deref().unwrap_or_default()),
    }
}

fn describe(known: &ScramCredentials, requested: &[UserName]) -> Vec<DescribeUserScramCredentialsResult> {
    let mut users: BTreeMap<&str, Vec<CredentialInfo>> = BTreeMap::new();
    for ((user, mechanism), credential) in known {
        let info = CredentialInfo { mechanism: *mechanism, iterations: credential.iterations };
        users.entry(user).or_default().push(info);
    }
    if requested.is_empty() {
        return users.into_iter().map(|(user, infos)| found(user, infos)).collect();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for user in requested {
        *counts.entry(user.name.as_str()).or_insert(0) += 1;
    }
    let results = counts.into_iter().map(|(user, count)| match users.remove(user) {
        _ if count > 1 => {
            let message = "Cannot describe SCRAM credentials for the same user twice in a single request: ";
            refused(user, ErrorCode::DuplicateResource, message)
        }
        Some(infos) => found(user, infos),
        None => {
            let message = "Attempt to describe a user credential that does not exist: ";
            refused(user, ErrorCode::ResourceNotFound, message)
        }
    });
    results.collect()
}

fn found(user: &str, credential_infos: Vec<CredentialInfo>) -> DescribeUserScramCredentialsResult {
    DescribeUserScramCredentialsResult {
        user: user.to_owned(),
        error_code: 0,
        error_message: Some(String::new()),
        credential_infos,
    }
}

fn refused(user: &str, error: ErrorCode, message: &str) -> DescribeUserScramCredentialsResult {
    DescribeUserScramCredentialsResult {
        user: user.to_owned(),
        error_code: error.code(),
        error_message: Some(format!("{message}{user}")),
        credential_infos: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::ScramCredential;

    #[test]
    fn users_are_described_as_kafka_does() {
        let credential = ScramCredential {
            salt: bytes::Bytes::from_static(b"salt"),
            stored_key: bytes::Bytes::from_static(b"stored"),
            server_key: bytes::Bytes::from_static(b"server"),
            iterations: 4096,
        };
        let known = ScramCredentials::from([
            (("u".to_owned(), 1), credential.clone()),
            (("u".to_owned(), 2), credential),
        ]);
        let described = |names: &[&str]| {
            let requested: Vec<_> = names.iter().map(|name| UserName { name: (*name).to_owned() }).collect();
            let results = describe(&known, &requested).into_iter();
            results
                .map(|result| (result.user, result.error_code, result.credential_infos.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(described(&[]), [("u".to_owned(), 0, 2)]);
        assert_eq!(
            described(&["nope", "u", "x", "x"]),
            [("nope".to_owned(), 91, 0), ("u".to_owned(), 0, 2), ("x".to_owned(), 92, 0)]
        );
    }
}
