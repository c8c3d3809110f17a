//! The outcomes of a request for several objects: successes are printed, failures become the error.

use std::io::Write;

use serde::Serialize;

use super::failure::CommandExit;
use super::output::Outcomes;

/// Limit of the errors that are printed: a thousand similar errors are of no use.
const ERRORS_MAX: usize = 10;

/// Adds an outcome for each object that succeeded, as document and sentence by `describe`; fails if any
/// object failed.
pub(crate) fn add_outcomes<K, T, D: Serialize, E: Into<anyhow::Error>>(
    done: &mut Outcomes<'_>,
    results: impl IntoIterator<Item = (K, Result<T, E>)>,
    mut describe: impl FnMut(&K, T) -> (D, String),
) -> anyhow::Result<()> {
    let mut errors = Vec::new();
    for (key, result) in results {
        match result {
            Ok(value) => {
                let (outcome, sentence) = describe(&key, value);
                done.add(&outcome, &sentence)?;
            }
            Err(error) => errors.push(error),
        }
    }
    fail_with(errors)
}

/// Fails if there are errors, with a special exit code if all errors have the same.
pub(crate) fn fail_with<E: Into<anyhow::Error>>(errors: Vec<E>) -> anyhow::Result<()> {
    let errors: Vec<anyhow::Error> = errors.into_iter().map(Into::into).collect();
    if errors.is_empty() { Ok(()) } else { Err(CommandExit::with(&errors, ERRORS_MAX).into()) }
}

/// Reports a dry run on standard error.
pub(crate) fn dry_run() {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "Dry run: nothing has changed. --execute does it.");
}
