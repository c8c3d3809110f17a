//! Signed tokens: header, claims and signature, with the checks of Kafka's `BrokerJwtValidator`.
//!
//! As in Kafka, `exp` and `iat` are required, `nbf` applies if present, and a token with audiences is refused
//! unless one of them is expected, because the token was issued for other services.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::keys::KeySet;

/// Requirements on tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// `sasl.oauthbearer.expected.audience`: a token must name one of these audiences, or none if the list is
    /// empty.
    pub audiences: Vec<String>,
    /// `sasl.oauthbearer.expected.issuer`.
    pub issuer: Option<String>,
    /// `sasl.oauthbearer.scope.claim.name`.
    pub scope_claim: String,
    /// `sasl.oauthbearer.sub.claim.name`: the claim with the user name.
    pub subject_claim: String,
    /// `sasl.oauthbearer.clock.skew.seconds`: the tolerated clock difference.
    pub skew_seconds: i64,
}

/// A verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The user name.
    pub subject: String,
    /// The expiry time in milliseconds since 1970.
    pub expires_ms: i64,
    /// The scopes of the token.
    pub scopes: Vec<String>,
}

/// The reason for refusing a token. Contains only names from the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// Not a JWT, or a claim has the wrong type.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// Unsigned, or signed with an algorithm that is not accepted.
    #[error("the token is signed by {0}, which is not accepted")]
    Algorithm(String),
    /// No known key matches the token's key id.
    #[error("no key {0:?} of the provider is known")]
    UnknownKey(Option<String>),
    /// No key of the provider made the signature.
    #[error("the token's signature is wrong")]
    Signature,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYet,
    /// The issuer is not the expected one.
    #[error("the token's issuer is not sasl.oauthbearer.expected.issuer")]
    Issuer,
    /// The audience is not an expected one.
    #[error("the token's audience is not in sasl.oauthbearer.expected.audience")]
    Audience,
}

impl Token {
    /// Verifies a token at time `now_ms`.
    pub fn verify(text: &str, keys: &KeySet, rules: &TokenRules, now_ms: i64) -> Result<Token, TokenFault> {
        let mut parts = text.split('.');
        let (Some(head), Some(body), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenFault::Malformed("it does not have three parts"));
        };
        let header = object(head)?;
        let algorithm = match header.get("alg").and_then(Value::as_str) {
            Some(name) => Algorithm::from_name(name)
                .ok_or_else(|| TokenFault::Algorithm(name.chars().take(16).collect()))?,
            None => return Err(TokenFault::Malformed("it names no algorithm")),
        };
        if header.contains_key("crit") {
            return Err(TokenFault::Malformed("it has critical extensions"));
        }
        let id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.as_str()),
            Some(_) => return Err(TokenFault::Malformed("kid is not a text")),
        };
        let signature =
            URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenFault::Malformed("the signature"))?;
        let signed = &text.as_bytes()[..head.len() + 1 + body.len()];
        let mut candidates = keys.candidates(id).peekable();
        if candidates.peek().is_none() {
            return Err(TokenFault::UnknownKey(id.map(|id| id.chars().take(64).collect())));
        }
        if !candidates.any(|key| key.verifies(algorithm, signed, &signature)) {
            return Err(TokenFault::Signature);
        }
        rules.check(&object(body)?, now_ms)
    }
}

impl TokenRules {
    fn check(&self, claims: &Map<String, Value>, now_ms: i64) -> Result<Token, TokenFault> {
        let skew_ms = self.skew_seconds.saturating_mul(1000);
        let expires_ms = date(claims, "exp")?.ok_or(TokenFault::Malformed("exp is missing"))?;
        date(claims, "iat")?.ok_or(TokenFault::Malformed("iat is missing"))?;
        if now_ms.saturating_sub(skew_ms) >= expires_ms {
            return Err(TokenFault::Expired);
        }
        if date(claims, "nbf")?.is_some_and(|begins_ms| now_ms.saturating_add(skew_ms) < begins_ms) {
            return Err(TokenFault::NotYet);
        }
        if let Some(issuer) = &self.issuer
            && claims.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return Err(TokenFault::Issuer);
        }
        let audiences = texts(claims, "aud")?;
        let is_expected = match audiences.is_empty() {
            true => self.audiences.is_empty(),
            false => audiences.iter().any(|audience| self.audiences.contains(audience)),
        };
        if !is_expected {
            return Err(TokenFault::Audience);
        }
        let subject = match claims.get(&self.subject_claim) {
            Some(Value::String(subject)) => subject.trim(),
            _ => return Err(TokenFault::Malformed("the claim of the subject is missing or not a text")),
        };
        if subject.is_empty() {
            return Err(TokenFault::Malformed("the claim of the subject is empty"));
        }
        Ok(Token { subject: subject.to_owned(), expires_ms, scopes: texts(claims, &self.scope_claim)? })
    }
}

fn object(part: &str) -> Result<Map<String, Value>, TokenFault> {
    let malformed = |what| move || TokenFault::Malformed(what);
    let bytes = URL_SAFE_NO_PAD.decode(part).ok().ok_or_else(malformed("it is not base64url"))?;
    let UniqueObject(object) = serde_json::from_slice(&bytes)
        .ok()
        .ok_or_else(malformed("it is not a JSON object of distinct names"))?;
    Ok(object)
}

/// A JSON object with unique names. Programs could disagree on the value of a duplicate name.
struct UniqueObject(Map<String, Value>);

impl<'de> Deserialize<'de> for UniqueObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueObject, D::Error> {
        deserializer.deserialize_map(UniqueNames)
    }
}

struct UniqueNames;

impl<'de> Visitor<'de> for UniqueNames {
    type Value = UniqueObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<UniqueObject, A::Error> {
        let mut object = Map::new();
        while let Some((name, value)) = entries.next_entry()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is there twice"));
            }
        }
        Ok(UniqueObject(object))
    }
}

/// A claim in seconds since 1970, converted to milliseconds.
fn date(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, TokenFault> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let malformed = TokenFault::Malformed("a date is not a number of seconds");
    match value.as_f64() {
        // The upper bound is far beyond any token lifetime, and exact in milliseconds.
        Some(seconds) if (0.0..1e12).contains(&seconds) => Ok(Some((seconds * 1000.0) as i64)),
        _ => Err(malformed),
    }
}

/// A claim with one text or several.
fn texts(claims: &Map<String, Value>, name: &str) -> Result<Vec<String>, TokenFault> {
    match claims.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(entries)) => {
            let texts = entries.iter().map(|entry| entry.as_str().map(str::to_owned));
            texts
                .collect::<Option<_>>()
                .ok_or(TokenFault::Malformed("a claim has entries that are not texts"))
        }
        Some(_) => Err(TokenFault::Malformed("a claim is neither a text nor a list")),
    }
}

#[cfg(test)]
mod tests;
