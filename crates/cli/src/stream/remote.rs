//! The HTTP client for a broker: for its streams, and for its clients.

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thalweg_client::{Properties, Security, TlsFault};
use tokio::net::TcpStream;

use crate::connect::client_settings;
use crate::failure::{CommandFailure, LoginFailure, NotFound, Usage};
use crate::output::CommandOutput;
use crate::profile;

/// The default of --server.
const SERVER: &str = "http://localhost:9090";
/// The environment variable with the password of `--user`.
const PASSWORD: &str = "THALWEG_PASSWORD";
/// Time limit for an answer. Long, because an undeployment waits for messages in flight.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Size limit of an answer.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Error kinds of wrong input by the user.
const WRONG: [&str; 5] =
    ["wrong definition", "wrong property", "wrong name", "wrong request", "not guaranteed"];

/// The host, the login, and the output format.
#[derive(Args, Debug, Clone)]
pub(crate) struct RemoteHost {
    #[command(flatten)]
    http: Http,
    /// With https: a properties file with client settings, such as ssl.truststore.location and
    /// sasl.jaas.config.
    #[arg(long, value_name = "FILE", env = "THALWEG_COMMAND_CONFIG")]
    command_config: Option<PathBuf>,
    #[command(flatten)]
    pub output: CommandOutput,
}

/// The HTTP server of a node, and the login there.
#[derive(Args, Debug, Clone)]
pub(crate) struct Http {
    /// The http.listener of a node; for streams, of a broker that hosts them. With https, a trusted authority
    /// and the login may come from --command-config, as for the other tools; with http only a login by --user
    /// is sent, and only to this machine [default: server of the profile, or http://localhost:9090].
    #[arg(long, value_name = "http[s]://HOST:PORT", env = "THALWEG_SERVER")]
    server: Option<String>,
    /// Log in as this user. The password is in --password-file, or in the environment as THALWEG_PASSWORD.
    #[arg(long, value_name = "NAME", env = "THALWEG_USER")]
    user: Option<String>,
    /// The file with the password of --user.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// With https: the certificates to trust (PEM, PKCS12 or JKS). Default: those of --command-config, or the
    /// system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// A server's address, TLS settings and login.
struct Server {
    host: String,
    port: u16,
    security: Security,
    /// The Authorization header.
    login: Option<String>,
}

impl RemoteHost {
    /// Sends a request, and reads the answer.
    pub async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let config = self.command_config.as_deref();
        let (uri, status, body) = self.http.exchange(method, path, body, config).await?;
        read(&uri, status, &body, "is it the http.listener of a broker with streams.enabled=true?")
    }

    /// Gets a document of the console's API.
    pub async fn of_console(&self, path: &str) -> anyhow::Result<Value> {
        let config = self.command_config.as_deref();
        let (uri, status, body) = self.http.exchange(Method::GET, path, None, config).await?;
        read(&uri, status, &body, "is it the http.listener of a broker with thalweg.console.enabled=true?")
    }
}

impl Http {
    /// The file with the password of --user.
    pub fn password_file(&self) -> Option<&Path> {
        self.password_file.as_deref()
    }

    fn server(&self) -> &str {
        let default = || profile::active().server.as_deref();
        self.server.as_deref().or_else(default).unwrap_or(SERVER)
    }

    /// The user of `--user`, or of the profile for the profile's own server.
    fn user(&self) -> Option<&str> {
        let of_profile = profile::active().user.as_deref().filter(|_| self.server.is_none());
        self.user.as_deref().or(of_profile)
    }

    fn not_reached(&self) -> String {
        format!(
            "Cannot reach {} (use the http.listener of a broker, for streams of one with streams.enabled=true, not a \
             listener for clients; with http.security.protocol=SSL its address begins with https://)",
            self.server()
        )
    }

    /// Gets a page as text.
    pub async fn text(&self, path: &str, config: Option<&Path>) -> anyhow::Result<String> {
        let (uri, status, body) = self.exchange(Method::GET, path, None, config).await?;
        match status.is_success() {
            true => Ok(String::from_utf8_lossy(&body).into_owned()),
            false => Err(CommandFailure(format!("{uri} answers {status}")).into()),
        }
    }

    /// Sends a request. `config` has client settings for https.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        config: Option<&Path>,
    ) -> anyhow::Result<(String, StatusCode, Bytes)> {
        let server = self.parse(config)?;
        let base = self.server().trim_end_matches('/');
        let uri = format!("{base}{path}");
        let body = body.map(ToString::to_string).unwrap_or_default();
        let host = base.split_once("://").map_or(base, |(_, host)| host);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(login) = &server.login {
            request = request.header(header::AUTHORIZATION, login);
        }
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|_| Usage(format!("{path} is not a path")))?;
        let requested = tokio::time::timeout(ANSWER_TIMEOUT, self.send(&server, request)).await;
        let (status, body) = requested
            .map_err(|_| CommandFailure(format!("{uri}: no answer within {ANSWER_TIMEOUT:?}")))??;
        if status == StatusCode::UNAUTHORIZED && server.login.is_none() {
            let right = "log in with --user and --password-file, or with https by --command-config";
            return Err(LoginFailure(format!("{uri} asks for a login: {right}")).into());
        }
        Ok((uri, status, body))
    }

    async fn send(
        &self,
        server: &Server,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await;
        let stream = stream.with_context(|| self.not_reached())?;
        let address = format!("{}:{}", server.host, server.port);
        let stream = server.security.wrap(Box::new(stream), &address).await;
        let stream = stream.map_err(|fault| self.tls_failed(&fault))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.with_context(|| self.not_reached())?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(|error| match fault(&error) {
                Some(fault) => self.tls_failed(&fault).into(),
                None => anyhow::Error::new(error).context(self.not_reached()),
            })?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| {
                CommandFailure(format!("{}: cannot read the answer: {error}", self.server()))
            })?;
            anyhow::Ok((status, body.to_bytes()))
        };
        let (mut connection, mut exchange) = (pin!(connection), pin!(exchange));
        tokio::select! {
            biased;
            answered = exchange.as_mut() => answered,
            // If the peer closes the connection first, the request has an answer or the error.
            _ = connection.as_mut() => exchange.await,
        }
    }

    fn tls_failed(&self, fault: &TlsFault) -> CommandFailure {
        CommandFailure(format!("{}: {fault} (--ca names the certificates to trust)", self.server()))
    }

    fn parse(&self, config: Option<&Path>) -> anyhow::Result<Server> {
        let wrong =
            || Usage(format!("--server {}: use http://HOST:PORT or https://HOST:PORT", self.server()));
        let uri: Uri = self.server().parse().map_err(|_| wrong())?;
        let has_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong().into()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        if !matches!(uri.path(), "" | "/") {
            return Err(wrong().into());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if has_tls { 443 } else { 80 });
        let user = self.user();
        let given = user.map(|user| anyhow::Ok((user.to_owned(), self.password(user)?)));
        let given: Option<(String, String)> = given.transpose()?;
        if user.is_some_and(|user| user.contains(':')) {
            return Err(Usage("--user: HTTP Basic cannot carry a name with a colon".to_owned()).into());
        }
        if !has_tls {
            if given.is_some() && !is_loopback(&host) {
                let problem = format!("{} would get the password in plain text: use https://", self.server());
                return Err(Usage(problem).into());
            }
            let login = given.map(|(user, password)| basic(&user, &password));
            return Ok(Server { host, port, security: Security::default(), login });
        }
        let security = self.security(config, given.is_some())?;
        let given = given.as_ref().map(|(user, password)| (user.as_str(), password.as_str()));
        let login = given.or(security.password()).map(|(user, password)| basic(user, password));
        Ok(Server { host, port, security, login })
    }

    /// TLS settings, and the login of `--command-config` unless `--user` gives another one.
    fn security(&self, config: Option<&Path>, has_login: bool) -> anyhow::Result<Security> {
        let mut properties = Properties::new();
        for (key, (value, _)) in client_settings(config)? {
            properties.set(&key, &value);
        }
        let ca = self.ca.as_ref().or(profile::active().ca.as_ref());
        let trusted = ca.map(|file| file.to_str().context("--ca is not UTF-8"));
        Ok(Security::take_https(&mut properties, trusted.transpose()?, !has_login)?)
    }

    fn password(&self, user: &str) -> anyhow::Result<String> {
        let of_profile = profile::active().password_file.as_ref().filter(|_| self.user.is_none());
        match (&self.password_file, std::env::var(PASSWORD), of_profile) {
            (Some(file), _, _) | (None, Err(_), Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("Cannot read --password-file {}", file.display()))?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            (None, Ok(password), _) => Ok(password),
            (None, Err(_), None) => {
                let right = format!("--password-file, or {PASSWORD} in the environment");
                Err(Usage(format!("--user {user} needs its password: {right}")).into())
            }
        }
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The TLS fault that ended a connection, if any. In TLS 1.3 a server may refuse a client certificate after
/// the handshake.
fn fault(error: &hyper::Error) -> Option<TlsFault> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(fault) = cause.downcast_ref().and_then(TlsFault::of) {
            return Some(fault);
        }
        source = cause.source();
    }
    None
}

fn read(uri: &str, status: StatusCode, body: &[u8], right: &str) -> anyhow::Result<Value> {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    if status.is_success()
        && let Some(answer) = answer
    {
        return Ok(answer);
    }
    let error = answer.as_ref().map(|answer| &answer["error"]);
    let message = error.and_then(|error| error["message"].as_str());
    let Some(message) = message else {
        return Err(CommandFailure(format!("{uri} answers {status}: {right}")).into());
    };
    let is_wrong = error.and_then(|error| error["kind"].as_str()).is_some_and(|kind| WRONG.contains(&kind));
    let message = message.to_owned();
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => LoginFailure(message).into(),
        StatusCode::NOT_FOUND => NotFound(message).into(),
        _ if is_wrong => Usage(message).into(),
        _ => CommandFailure(message).into(),
    })
}
