//! The schema registry for decoding messages: an option, or the client settings with Confluent's names.

use std::sync::Arc;

use clap::Args;
use thalweg_browse::Registry;
use thalweg_client::Properties;

use super::failure::Usage;

const URL: &str = "schema.registry.url";
const LOGIN: &str = "basic.auth.user.info";
/// Confluent's setting for the source of the login. Ignored: the login comes from its setting only.
const LOGIN_SOURCE: &str = "basic.auth.credentials.source";

/// The schema registry.
#[derive(Args, Debug, Clone, Default)]
pub struct SchemaRegistry {
    /// Decode keys and values (Avro, Protobuf) with the schemas of this registry, for example
    /// http://localhost:8081 [default: schema.registry.url of the client settings; basic.auth.user.info has
    /// its login]
    #[arg(long, value_name = "URL")]
    schema_registry: Option<String>,
}

impl SchemaRegistry {
    /// The registry of the option, or of the client settings. Removes the registry's settings from `client`.
    pub fn take(&self, client: &mut Properties) -> Result<Option<Arc<Registry>>, Usage> {
        let (url, login) = (client.take(URL), client.take(LOGIN));
        client.take(LOGIN_SOURCE);
        let (name, url) = match (&self.schema_registry, url) {
            (Some(url), _) => ("--schema-registry", url.clone()),
            (None, Some(url)) => (URL, url),
            (None, None) => return Ok(None),
        };
        let registry = Registry::with_login(&url, login.as_deref());
        registry.map(|registry| Some(Arc::new(registry))).map_err(|wrong| Usage(format!("{name}: {wrong}")))
    }
}
