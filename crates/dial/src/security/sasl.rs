//! SASL: SaslHandshake names the mechanism, SaslAuthenticate carries its messages (KIP-152). PLAIN sends the
//! password and belongs behind TLS; SCRAM does not send it. If the broker limits the session lifetime
//! (KIP-368), the exchange is repeated on the same connection before the session ends, between other
//! requests.
//!
//! The token of OAUTHBEARER is read from a file at each authentication, so that another program can renew it.
//! Requests to an identity provider, and GSSAPI, which needs Kerberos libraries, are refused by name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use thalweg_security::sasl::jaas::{self, LoginModule};
use thalweg_security::sasl::{GSSAPI, Mechanism, oauth, plain, scram};
use thalweg_wire::request::{SaslAuthenticateRequest, SaslHandshakeRequest};
use thalweg_wire::{ErrorCode, Request, frame};

use crate::error::{
    AuthenticationFailed, AuthenticationFault, ClientError, CloseReason, UnencodableRequest,
    UnreadableResponse,
};
use crate::properties::{InvalidSetting, Properties};
use crate::versions::ApiVersions;

const JAAS: &str = "sasl.jaas.config";
const TOKEN_URL: &str = "sasl.oauthbearer.token.endpoint.url";
const MECHANISMS: &str = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER";
/// Maximum size of a token file.
const TOKEN_BYTES_MAX: usize = 256 * 1024;
/// Java classes that read a token in Kafka's clients; not needed here.
const TOKEN_CLASSES: [&str; 3] =
    ["sasl.login.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class", "sasl.login.class"];
/// Random bytes of a nonce.
const NONCE_LEN: usize = 24;
/// The first version of SaslHandshake after which messages are sent in SaslAuthenticate, not raw.
const HANDSHAKE_VERSION: i16 = 1;
/// Maximum number of messages in an exchange. SCRAM has two.
const ROUNDS_MAX: usize = 4;
/// A broker accepts no second exchange within a second.
const RENEWAL_MIN: Duration = Duration::from_secs(1);

/// The login: user and password, or a token file, with the mechanism.
pub(crate) struct Credentials {
    mechanism: Mechanism,
    user: String,
    password: String,
    /// True if user and password are the id and the HMAC of a delegation token.
    by_token: bool,
    /// The file with OAUTHBEARER's token.
    token_file: Option<PathBuf>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("mechanism", &self.mechanism)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Sends a frame and returns the frame of the answer.
pub(crate) trait Exchange {
    fn ask(&mut self, frame: Bytes) -> impl Future<Output = Result<Bytes, CloseReason>> + Send;
}

impl Credentials {
    /// Takes `sasl.mechanism` and the login.
    pub(super) fn take(properties: &mut Properties) -> Result<Credentials, InvalidSetting> {
        let mechanism = take_mechanism(properties)?;
        if mechanism == Mechanism::OAuthBearer {
            return take_token(properties);
        }
        let user = properties.take("sasl.username");
        let password = properties.take("sasl.password");
        if let Some(line) = properties.take(JAAS).filter(|line| !line.trim().is_empty()) {
            let module = jaas::parse(&line).map_err(|fault| {
                InvalidSetting::new(JAAS, &line, format!("another line ({fault}): {}", usage(mechanism)))
            })?;
            return of_module(module, mechanism);
        }
        match (user, password) {
            (Some(user), Some(password)) => {
                Ok(Credentials { mechanism, user, password, by_token: false, token_file: None })
            }
            (Some(_), None) => Err(InvalidSetting::missing("sasl.password", "the password of sasl.username")),
            (None, Some(_)) => {
                Err(InvalidSetting::missing("sasl.username", "the user whose password sasl.password is"))
            }
            (None, None) => Err(InvalidSetting::missing(
                JAAS,
                format!("{}, or sasl.username and sasl.password,", usage(mechanism)),
            )),
        }
    }

    /// `sasl.mechanism`.
    pub(crate) fn mechanism(&self) -> &'static str {
        self.mechanism.name()
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// User and password, unless they belong to a token.
    pub(super) fn as_password(&self) -> Option<(&str, &str)> {
        let is_password = self.token_file.is_none() && !self.by_token;
        is_password.then_some((self.user.as_str(), self.password.as_str()))
    }

    /// The first message, and the state for further messages.
    fn begin(&self) -> Result<(Option<scram::ScramClient>, Vec<u8>), AuthenticationFault> {
        if let Some(file) = &self.token_file {
            let token = read_token(file)?;
            return Ok((None, oauth::FirstMessage::encode(&token, &BTreeMap::new())));
        }
        let Mechanism::Scram(hash) = self.mechanism else {
            return Ok((None, plain::message(&self.user, &self.password)));
        };
        let mut random = [0; NONCE_LEN];
        getrandom::fill(&mut random).expect("the system gives randomness");
        let nonce = URL_SAFE_NO_PAD.encode(random);
        let (client, message) =
            scram::ScramClient::begin(hash, &self.user, &self.password, &nonce, self.by_token);
        Ok((Some(client), message))
    }
}

fn take_mechanism(properties: &mut Properties) -> Result<Mechanism, InvalidSetting> {
    let (key, name) = super::take_first(properties, &["sasl.mechanism", "sasl.mechanisms"])
        .unwrap_or(("sasl.mechanism", GSSAPI.to_owned()));
    let name = name.trim();
    match Mechanism::from_name(&name.to_ascii_uppercase()) {
        Some(mechanism) => Ok(mechanism),
        None if name.eq_ignore_ascii_case(GSSAPI) => {
            let expected = format!("{MECHANISMS} (GSSAPI, which is Kafka's default, is not spoken here)");
            Err(InvalidSetting::new(key, name, expected))
        }
        None => Err(InvalidSetting::new(key, name, MECHANISMS)),
    }
}

/// The settings of OAUTHBEARER.
fn take_token(properties: &mut Properties) -> Result<Credentials, InvalidSetting> {
    for class in TOKEN_CLASSES {
        properties.take(class);
    }
    // The line names the login module, whose options are not needed.
    if let Some(line) = properties.take(JAAS).filter(|line| !line.trim().is_empty()) {
        let expected = format!("{} required;", Mechanism::OAuthBearer.login_module());
        let is_of = jaas::parse(&line).is_ok_and(|module| Mechanism::OAuthBearer.is_of(&module.class));
        if !is_of {
            return Err(InvalidSetting::new(JAAS, &line, expected));
        }
    }
    let expected = "file:/path/of/the/token (requests to an identity provider are not made here)";
    let url = properties.take(TOKEN_URL).ok_or_else(|| InvalidSetting::missing(TOKEN_URL, expected))?;
    let path = url
        .trim()
        .strip_prefix("file:")
        .ok_or_else(|| InvalidSetting::new(TOKEN_URL, url.trim(), expected))?;
    let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
    Ok(Credentials {
        mechanism: Mechanism::OAuthBearer,
        user: String::new(),
        password: String::new(),
        by_token: false,
        token_file: Some(path),
    })
}

fn read_token(file: &Path) -> Result<String, AuthenticationFault> {
    let fails = |reason: String| AuthenticationFault::Token(format!("{}: {reason}", file.display()));
    let token = std::fs::read_to_string(file).map_err(|error| fails(error.to_string()))?;
    let token = token.trim();
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(fails("it does not hold a token alone".to_owned()));
    }
    Ok(token.to_owned())
}

fn usage(mechanism: Mechanism) -> String {
    format!("{} required username=\"USER\" password=\"PASSWORD\";", mechanism.login_module())
}

fn of_module(mut module: LoginModule, mechanism: Mechanism) -> Result<Credentials, InvalidSetting> {
    let wrong = |expected: String| InvalidSetting::new(JAAS, "", expected);
    if !mechanism.is_of(&module.class) {
        let expected = format!("{} for sasl.mechanism={}", usage(mechanism), mechanism.name());
        return Err(wrong(expected));
    }
    let by_token = module.is_true("tokenauth");
    if by_token && mechanism == Mechanism::Plain {
        return Err(wrong("sasl.mechanism=SCRAM-SHA-256 or SCRAM-SHA-512 for tokenauth".to_owned()));
    }
    let mut option = |name| module.options.remove(name);
    match (option("username"), option("password")) {
        (Some(user), Some(password)) => {
            Ok(Credentials { mechanism, user, password, by_token, token_file: None })
        }
        _ => Err(wrong(usage(mechanism))),
    }
}

/// Authenticates on a connection whose peer serves `versions`. Returns the time until re-authentication, if
/// the broker limits the session lifetime.
pub(crate) async fn authenticate(
    credentials: &Credentials,
    exchange: &mut impl Exchange,
    versions: &ApiVersions,
    peer: &Arc<str>,
    client_id: &str,
) -> Result<Option<Duration>, ClientError> {
    let mechanism = credentials.mechanism();
    let failed = |fault| AuthenticationFailed { peer: Arc::clone(peer), mechanism, fault };
    if versions.range(thalweg_wire::ApiKey::SaslAuthenticate).is_none() {
        return Err(failed(AuthenticationFault::NoSasl).into());
    }
    let version = versions.pick::<SaslHandshakeRequest>(peer)?.max(HANDSHAKE_VERSION);
    let handshake = SaslHandshakeRequest { mechanism: mechanism.to_owned() };
    let mut talk = Talk { exchange, peer, client_id, mechanism };
    let answer = talk.send(&handshake, version).await?;
    match ErrorCode::from_i16(answer.error_code).unwrap_or(ErrorCode::UnknownServerError) {
        ErrorCode::None => {}
        ErrorCode::IllegalSaslState => return Err(failed(AuthenticationFault::NoSasl).into()),
        ErrorCode::UnsupportedSaslMechanism => {
            return Err(failed(AuthenticationFault::Mechanism(answer.mechanisms)).into());
        }
        error_code => {
            let message = "SaslHandshake failed".to_owned();
            return Err(failed(AuthenticationFault::Refused { message, error_code }).into());
        }
    }
    let version = versions.pick::<SaslAuthenticateRequest>(peer)?;
    let (mut scram, mut message) = credentials.begin().map_err(failed)?;
    for _ in 0..ROUNDS_MAX {
        let request = SaslAuthenticateRequest { auth_bytes: message.into() };
        let answer = talk.send(&request, version).await?;
        if answer.error_code != 0 {
            let error_code = ErrorCode::from_i16(answer.error_code).unwrap_or(ErrorCode::UnknownServerError);
            let message = answer.error_message.unwrap_or_else(|| "Authentication failed".to_owned());
            return Err(failed(AuthenticationFault::Refused { message, error_code }).into());
        }
        let next = match &mut scram {
            // The broker's reason, which precedes the refusal.
            None if mechanism == Mechanism::OAuthBearer.name() && !answer.auth_bytes.is_empty() => {
                Some(oauth::MORE.to_vec())
            }
            None => None,
            Some(scram) => scram.next(&answer.auth_bytes).map_err(|fault| failed(fault.into()))?,
        };
        match next {
            Some(next) => message = next,
            None => return Ok(renew_after(answer.session_lifetime_ms)),
        }
    }
    Err(failed(AuthenticationFault::Rounds).into())
}

/// Time until the next exchange: well before the session ends, as in Kafka's clients.
fn renew_after(session_lifetime_ms: i64) -> Option<Duration> {
    let lifetime = u64::try_from(session_lifetime_ms).ok().filter(|&ms| ms > 0)?;
    Some(Duration::from_millis(lifetime.saturating_mul(85) / 100).max(RENEWAL_MIN))
}

struct Talk<'a, E> {
    exchange: &'a mut E,
    peer: &'a Arc<str>,
    client_id: &'a str,
    mechanism: &'static str,
}

impl<E: Exchange> Talk<'_, E> {
    async fn send<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response, ClientError> {
        let (peer, api) = (|| Arc::clone(self.peer), R::KEY);
        let frame = frame::encode_request(request, version, 0, Some(self.client_id))
            .map_err(|source| UnencodableRequest { peer: peer(), api, version, source })?;
        let answer = self.exchange.ask(frame).await.map_err(|reason| AuthenticationFailed {
            peer: peer(),
            mechanism: self.mechanism,
            fault: AuthenticationFault::Ended(reason),
        })?;
        let (_, response) = frame::decode_response::<R>(answer, version)
            .map_err(|source| UnreadableResponse { peer: peer(), api, version, source })?;
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(settings: &[(&str, &str)]) -> Result<Credentials, InvalidSetting> {
        let mut properties = Properties::new();
        for (key, value) in settings {
            properties.set(key, value);
        }
        Credentials::take(&mut properties)
    }

    #[test]
    fn users_come_from_a_login_module_or_by_themselves() {
        let jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"ann\" password=\"s\";";
        let by_jaas = take(&[("sasl.mechanism", "SCRAM-SHA-512"), (JAAS, jaas)]).expect("credentials");
        assert_eq!((by_jaas.mechanism(), by_jaas.user(), by_jaas.password()), ("SCRAM-SHA-512", "ann", "s"));
        let by_name = [("sasl.mechanisms", "PLAIN"), ("sasl.username", "bob"), ("sasl.password", "t")];
        let by_name = take(&by_name).expect("credentials");
        assert_eq!(
            (by_name.mechanism(), by_name.begin().expect("a message").1.as_slice()),
            ("PLAIN", &b"\0bob\0t"[..])
        );
        assert!(!format!("{by_jaas:?}").contains("\"s\""), "no secret is shown");
    }

    #[test]
    fn what_is_missing_or_not_spoken_is_named_and_secrets_are_not_repeated() {
        let scram = ("sasl.mechanism", "SCRAM-SHA-256");
        let plain_module = "a.PlainLoginModule required username=\"u\" password=\"hunter2\";";
        for (settings, beginning) in [
            (
                &[] as &[(&str, &str)],
                "sasl.mechanism=GSSAPI is invalid: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or",
            ),
            (
                &[("sasl.mechanism", "OAUTHBEARER")],
                "sasl.oauthbearer.token.endpoint.url=(not set) is invalid: expected file:",
            ),
            (
                &[scram],
                "sasl.jaas.config=(not set) is invalid: expected org.apache.kafka.common.security.scram.",
            ),
            (
                &[scram, ("sasl.username", "u")],
                "sasl.password=(not set) is invalid: expected the password of",
            ),
            (
                &[scram, (JAAS, plain_module)],
                "sasl.jaas.config=[hidden] is invalid: expected org.apache.kafka.common.",
            ),
            (
                &[scram, (JAAS, "x=\"hunter2\"")],
                "sasl.jaas.config=[hidden] is invalid: expected another line (the con",
            ),
        ] {
            let error = take(settings).expect_err("a refusal").to_string();
            assert!(error.starts_with(beginning), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_session_is_renewed_before_it_ends() {
        assert_eq!(renew_after(0), None);
        assert_eq!(renew_after(-1), None);
        assert_eq!(renew_after(100_000), Some(Duration::from_secs(85)));
        assert_eq!(renew_after(500), Some(RENEWAL_MIN));
    }
}
