//! Instructions to connect to a secured cluster: lines to copy.

use std::path::Path;

use thalweg_authority::{ADMIN, ClientFiles};
use thalweg_security::shell::quoted;

/// The text for a cluster whose administrator's settings are in these files, for a reader whose working
/// directory is `here`.
pub fn text(dir: &Path, files: &ClientFiles, bootstrap: &str, here: &Path) -> String {
    let shown = |path: &Path| {
        let path = path.strip_prefix(here).unwrap_or(path).display().to_string();
        quoted(&path).into_owned()
    };
    let (java, librdkafka) = (shown(&files.java), shown(&files.librdkafka));
    let first = bootstrap.split(',').next().unwrap_or(bootstrap);
    format!(
        "Secured by {dir}: TLS, passwords, ACLs. User {ADMIN} may do everything:\n\
         \n\
         \x20 export THALWEG_COMMAND_CONFIG={java}\n\
         \x20 thalweg profile create local --use --command-config {java}     # or this, for good\n\
         \x20 thalweg topic create orders\n\
         \x20 thalweg security user add alice                # prints a password\n\
         \x20 thalweg security acl add User:alice --topic orders --allow read,write\n\
         \n\
         \x20 kcat -F {librdkafka} -L\n\
         \x20 kafka-topics.sh --bootstrap-server {first} --command-config {java} --list\n",
        dir = shown(dir),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_ready_for_a_shell() {
        let files = |dir: &str| ClientFiles {
            java: Path::new(dir).join("client.properties"),
            librdkafka: Path::new(dir).join("librdkafka.properties"),
        };
        let of = |dir: &str| text(Path::new(dir), &files(dir), "a:1,b:2", Path::new("/ann"));
        let near = of("/ann/data-security");
        assert!(near.contains("export THALWEG_COMMAND_CONFIG=data-security/client.properties\n"), "{near}");
        assert!(near.contains("--bootstrap-server a:1 "), "{near}");
        let odd = of("/ann/bob's data");
        assert!(odd.contains(r"kcat -F 'bob'\''s data/librdkafka.properties' -L"), "{odd}");
    }
}
