//! The outcomes of a request for several objects: those that succeeded are printed, the others are the error.

use std::io::Write;

use serde::Serialize;

use super::failure::Ended;
use super::output::Outcomes;

/// Errors that are shown in full; a thousand of the same kind help nobody.
const ERRORS_MAX: usize = 10;

/// Adds the outcome of each object that succeeded, as `describe` puts it; fails if others did not.
pub fn settle<K, T, D: Serialize, E: Into<anyhow::Error>>(
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

/// Fails if there are errors, with the exit code of their kind if all are of one kind.
pub fn fail_with<E: Into<anyhow::Error>>(errors: Vec<E>) -> anyhow::Result<()> {
    let errors: Vec<anyhow::Error> = errors.into_iter().map(Into::into).collect();
    if errors.is_empty() { Ok(()) } else { Err(Ended::with(&errors, ERRORS_MAX).into()) }
}

/// Says on standard error that nothing has changed.
pub fn dry_run() {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "Dry run: nothing has changed. --execute does it.");
}
