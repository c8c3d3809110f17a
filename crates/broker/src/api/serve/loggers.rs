//! The loggers of a broker as a resource with a configuration (KIP-412): in DescribeConfigs and
//! IncrementalAlterConfigs.
//!
//! Each key is a logger, and its value a level. Changes hold for this process until it ends. A broker that is
//! embedded in another program has no loggers, because the log belongs to that program.

use super::verdicts::ConfigVerdict;
use thalweg_config::alter::{AlterOp, Alteration};
use thalweg_config::describe::{ConfigSource, DescribedConfig, WantedKeys};
use thalweg_config::{ConfigType, LoggerChange, LoggerError, Loggers};
use thalweg_wire::ErrorCode;

/// The level of each logger, or of the wanted loggers.
pub fn describe(loggers: Option<&Loggers>, wanted: Option<&WantedKeys<'_>>) -> Vec<DescribedConfig> {
    let Some(loggers) = loggers else { return Vec::new() };
    let levels = loggers.levels();
    let is_wanted = |name: &str| wanted.is_none_or(|keys| keys.contains(name));
    let described = levels.all().filter(|(name, _)| is_wanted(name)).map(|(name, level)| DescribedConfig {
        name: name.to_owned(),
        value: Some(level.name().to_owned()),
        source: ConfigSource::BrokerLogger,
        config_type: ConfigType::Unknown,
        is_sensitive: false,
        read_only: false,
        synonyms: Vec::new(),
        documentation: None,
    });
    described.collect()
}

/// Changes levels, all or none.
pub fn alter(
    loggers: Option<&Loggers>,
    alterations: Vec<Alteration>,
    validate_only: bool,
) -> Result<(), ConfigVerdict> {
    let changes: Vec<_> = alterations.into_iter().map(change).collect::<Result<_, _>>()?;
    let Some(loggers) = loggers else {
        let missing = changes.into_iter().next().map(|change| LoggerError::Unknown(change.logger));
        return missing.map_or(Ok(()), |missing| Err(missing.into()));
    };
    loggers.alter(&changes, validate_only)?;
    if !validate_only {
        for LoggerChange { logger, level } in &changes {
            let level = level.as_deref().unwrap_or("that of the root");
            tracing::warn!(logger, level, "Changed a log level");
        }
    }
    Ok(())
}

fn change(Alteration { name, op, value }: Alteration) -> Result<LoggerChange, ConfigVerdict> {
    let refused = |operation: &str| {
        ConfigVerdict::invalid(format!("{operation} operation is not allowed for the BROKER_LOGGER resource"))
    };
    match op {
        AlterOp::Set => Ok(LoggerChange { logger: name, level: value }),
        AlterOp::Delete => Ok(LoggerChange { logger: name, level: None }),
        AlterOp::Append => Err(refused("APPEND")),
        AlterOp::Subtract => Err(refused("SUBTRACT")),
    }
}

impl From<LoggerError> for ConfigVerdict {
    fn from(error: LoggerError) -> ConfigVerdict {
        let code = match error {
            LoggerError::Unknown(_) | LoggerError::Level { .. } => ErrorCode::InvalidConfig,
            LoggerError::Root => ErrorCode::InvalidRequest,
        };
        ConfigVerdict::new(code, error.to_string())
    }
}
