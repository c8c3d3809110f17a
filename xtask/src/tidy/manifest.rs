//! Reads the TOML of this repository's manifests: sections, and one `key = value` per line.

use super::tree::Tree;

/// A `key = value` of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Counted from one.
    pub line: usize,
    /// The section heading above it.
    pub section: &'a str,
    pub key: &'a str,
    /// The value, and a comment behind it.
    pub value: &'a str,
}

/// The manifest of a member of the workspace.
pub struct Manifest<'a> {
    pub path: &'a str,
    /// The member's folder, with a slash behind it.
    pub folder: &'a str,
    pub text: &'a str,
}

/// The manifests of all members of the workspace.
pub fn members(tree: &Tree) -> impl Iterator<Item = Manifest<'_>> {
    tree.texts().filter_map(|(path, text)| {
        let folder = path.strip_suffix("Cargo.toml")?;
        let depth = folder.matches('/').count();
        let member = (folder.starts_with("crates/") && depth == 2) || folder == "xtask/";
        member.then_some(Manifest { path, folder, text })
    })
}

/// The entries of a manifest, in order.
pub fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    (1..).zip(text.lines()).filter_map(move |(line, content)| {
        if let Some(rest) = content.strip_prefix('[') {
            section = rest.split(']').next().unwrap_or(rest);
            return None;
        }
        let (key, value) = content.split_once('=')?;
        let is_key = !key.starts_with(|c: char| c == '#' || c.is_whitespace());
        is_key.then_some(Entry { line, section, key: key.trim(), value: value.trim() })
    })
}

impl<'a> Manifest<'a> {
    /// The member's name.
    pub fn name(&self) -> &'a str {
        let name = entries(self.text).find(|entry| entry.section == "package" && entry.key == "name");
        name.map_or("", |entry| entry.value.trim_matches('"'))
    }

    /// The member's dependencies, of any kind.
    pub fn dependencies(&self) -> impl Iterator<Item = Entry<'a>> {
        entries(self.text).filter(|entry| entry.section.ends_with("dependencies"))
    }
}

impl<'a> Entry<'a> {
    /// The crate that an entry of a table of dependencies names.
    pub fn dependency(&self) -> &'a str {
        self.key.split('.').next().unwrap_or(self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_know_their_section() {
        let text =
            "[package]\nname = \"thalweg\" # a river\n\n[dependencies]\n# b = 1\nbytes.workspace = true\n";
        let found: Vec<_> = entries(text).map(|e| (e.line, e.section, e.key, e.value)).collect();
        let name = (2, "package", "name", "\"thalweg\" # a river");
        assert_eq!(found, [name, (6, "dependencies", "bytes.workspace", "true")]);
    }

    #[test]
    fn members_are_the_crates_and_xtask() {
        let files = ["Cargo.toml", "crates/log/Cargo.toml", "crates/log/fuzz/Cargo.toml", "xtask/Cargo.toml"];
        let tree = Tree::of(&files.map(|path| (path, "[package]\nname = \"x\"\n")));
        let paths: Vec<_> = members(&tree).map(|member| (member.path, member.name())).collect();
        assert_eq!(paths, [("crates/log/Cargo.toml", "x"), ("xtask/Cargo.toml", "x")]);
    }
}
