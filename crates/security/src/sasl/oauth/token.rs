//! Signed tokens: header, claims and signature, and what Kafka's `BrokerJwtValidator` requires of them.
//!
//! As in Kafka, `exp` and `iat` are required, `nbf` counts where it is given, and a token that names audiences is refused
//! unless one of them is expected: it was made for others.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::keys::KeySet;

/// What tokens must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// `sasl.oauthbearer.expected.audience`: a token must name one of them. Without any, it must name none.
    pub audiences: Vec<String>,
    /// `sasl.oauthbearer.expected.issuer`.
    pub issuer: Option<String>,
    /// `sasl.oauthbearer.scope.claim.name`.
    pub scope_claim: String,
    /// `sasl.oauthbearer.sub.claim.name`: the claim that names the user.
    pub subject_claim: String,
    /// `sasl.oauthbearer.clock.skew.seconds`: how far the clocks may differ.
    pub skew_seconds: i64,
}

/// A token that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The user.
    pub subject: String,
    /// The end of its life, in milliseconds since 1970.
    pub expires_ms: i64,
    /// Its scopes.
    pub scopes: Vec<String>,
}

/// Why a token is not accepted. Contains nothing of the token but names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// It is not a JWT, or a claim has another type.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// It is not signed, or by an algorithm that is not accepted.
    #[error("the token is signed by {0}, which is not accepted")]
    Algorithm(String),
    /// No key that is known may have signed it.
    #[error("no key {0:?} of the provider is known")]
    UnknownKey(Option<String>),
    /// The signature is none of the provider's.
    #[error("the token's signature is wrong")]
    Signature,
    /// It is past its end.
    #[error("the token has expired")]
    Expired,
    /// It does not hold yet.
    #[error("the token is not valid yet")]
    NotYet,
    /// It is from another issuer than expected.
    #[error("the token's issuer is not sasl.oauthbearer.expected.issuer")]
    Issuer,
    /// It is meant for others.
    #[error("the token's audience is not in sasl.oauthbearer.expected.audience")]
    Audience,
}

impl Token {
    /// Verifies a token at a time.
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
    let Unique(object) = serde_json::from_slice(&bytes)
        .ok()
        .ok_or_else(malformed("it is not a JSON object of distinct names"))?;
    Ok(object)
}

/// A JSON object in which each name is there once: of two, programs could take different ones.
struct Unique(Map<String, Value>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_map(UniqueNames)
    }
}

struct UniqueNames;

impl<'de> Visitor<'de> for UniqueNames {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Unique, A::Error> {
        let mut object = Map::new();
        while let Some((name, value)) = entries.next_entry()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is there twice"));
            }
        }
        Ok(Unique(object))
    }
}

/// A date of seconds since 1970, in milliseconds.
fn date(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, TokenFault> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let malformed = TokenFault::Malformed("a date is not a number of seconds");
    match value.as_f64() {
        // Far beyond any life of a token, and exact as milliseconds.
        Some(seconds) if (0.0..1e12).contains(&seconds) => Ok(Some((seconds * 1000.0) as i64)),
        _ => Err(malformed),
    }
}

/// A claim of one text or several.
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
