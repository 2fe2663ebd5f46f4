// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the users and groups of a snapshot that a configuration would reject. `roster-admission` has the rules.

use crate::output::{count_with_noun, printable};
use crate::snapshot_file;
use roster_admission::{LocalFiles, Refusal, Rules};
use roster_config::Config;
use roster_messages::table::config as codes;
use roster_messages::{Diagnostic, Message, Severity};
use roster_snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Entries that a message names.
const NAMED_MAX: usize = 100;

/// An entry that would be rejected.
#[derive(Debug, PartialEq, Eq)]
struct UnservedEntry {
    /// `user` or `group`.
    kind: &'static str,
    name: String,
    refusal: Refusal,
}

/// All entries of a snapshot that a configuration would reject.
#[derive(Debug, Default)]
pub struct UnservedEntries {
    entries: Vec<UnservedEntry>,
    /// The reason that the entries could not be compared.
    failure: Option<String>,
}

impl UnservedEntries {
    /// Applies the rules of `config` to each entry of the snapshot. A snapshot does not have the domain of an entry, so
    /// an entry passes if any domain allows it. Without a snapshot nothing is compared.
    pub fn new(config: &Config, snapshot: &Path) -> Self {
        let rules: Vec<_> =
            config.domains.iter().map(|domain| Rules::new(domain, &config.host)).collect();
        let Some(rules) = Rules::any_of(&rules.iter()) else { return Self::default() };
        if !snapshot.exists() {
            return Self::default();
        }
        match compare(&rules, &LocalFiles::new(&config.host), snapshot) {
            Ok(entries) => Self { entries, failure: None },
            Err(failure) => Self { entries: Vec::new(), failure: Some(failure) },
        }
    }

    /// Returns a warning for each reason, with its entries.
    pub fn warnings(&self, config: &Path) -> Vec<Diagnostic> {
        let warning = |message: &'static Message, text, fix| Diagnostic {
            fix,
            ..Diagnostic::of_file(Severity::Warning, message, config, text)
        };
        if let Some(failure) = &self.failure {
            let text = format!("the users and groups of this host cannot be compared: {failure}");
            return vec![warning(&codes::SERVED_ENTRIES_NOT_COMPARED, text, None)];
        }
        let mut reasons: BTreeMap<String, Vec<&UnservedEntry>> = BTreeMap::new();
        for entry in &self.entries {
            reasons.entry(entry.refusal.to_string()).or_default().push(entry);
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, entries)| std::cmp::Reverse(entries.len()));
        reasons
            .into_iter()
            .map(|(reason, entries)| {
                let number = count_with_noun(entries.len() as u64, "entry");
                let fix = entries.first().map(|entry| fix(&entry.refusal));
                let entries: Vec<_> =
                    entries.iter().map(|entry| (entry.kind, &*entry.name)).collect();
                let names = list_names(&entries, "--json lists all");
                let text = format!(
                    "rosterd would reject {number} that this host serves: {reason}: {names}"
                );
                warning(&codes::SERVED_ENTRIES_REJECTED, text, fix)
            })
            .collect()
    }

    /// Returns every entry.
    pub fn json(&self) -> Value {
        let entry = |entry: &UnservedEntry| {
            json!({
                "kind": entry.kind,
                "name": entry.name,
                "reason": entry.refusal.to_string(),
                "code": entry.refusal.message().code,
                "fix": fix(&entry.refusal),
            })
        };
        self.entries.iter().map(entry).collect()
    }
}

fn compare(rules: &Rules, files: &LocalFiles, path: &Path) -> Result<Vec<UnservedEntry>, String> {
    let locals = files.read().map_err(|error| error.to_string())?;
    let bytes = snapshot_file::read(path).map_err(|error| format!("{error:#}"))?;
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let snapshot = Snapshot::open(&bytes).map_err(|error| of_file(&error))?;
    let shape = snapshot.shape();
    let mut entries = Vec::new();
    let mut judge = |kind, name: &[u8], refusal: Option<Refusal>| {
        entries.extend(refusal.map(|refusal| UnservedEntry {
            kind,
            name: String::from_utf8_lossy(name).into_owned(),
            refusal,
        }));
    };
    for position in 0..shape.users {
        let user = snapshot.user(position).map_err(|error| of_file(&error))?;
        if let Some(user) = user.map(|user| user.record()) {
            judge("user", user.name, rules.user(&user, &locals).err());
        }
    }
    for position in 0..shape.groups {
        let group = snapshot.group(position).map_err(|error| of_file(&error))?;
        if let Some(group) = group.map(|group| group.record()) {
            judge("group", group.name, rules.group(&group, &locals).err());
        }
    }
    Ok(entries)
}

/// Returns the fix with the id at hand, or the table's.
fn fix(refusal: &Refusal) -> String {
    refusal.fix().unwrap_or_else(|| refusal.message().fix.to_owned())
}

/// Lists the entries. `rest` follows a truncated list.
pub fn list_names(entries: &[(&str, &str)], rest: &str) -> String {
    let named =
        entries.iter().take(NAMED_MAX).map(|(kind, name)| format!("{kind} {}", printable(name)));
    let mut text = named.collect::<Vec<_>>().join(", ");
    if entries.len() > NAMED_MAX {
        text += &format!(", and {} more ({rest})", entries.len() - NAMED_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::table::directory;
    use roster_snapshot_build::compile;

    /// A host that served entries which its configuration refuses, and why.
    #[test]
    fn comparison_names_reason_and_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write("passwd", "root:x:0:0::/root:/bin/sh\nbob:x:1500:1501::/home/bob:/bin/sh\n");
        write("group", "root:x:0:\nusers:x:100:\n");
        write("subuid", "bob:100000:65536\n");
        write("subgid", "");
        write(
            "entries.passwd",
            "ann:x:5000:5000::/home/ann:/bin/sh\nben:x:100007:5000::/home/ben:/bin/sh\n\
             cy:x:5002:1501::/home/cy:/bin/sh\ndi:x:5003:100::/home/di:/bin/sh\n",
        );
        write("entries.group", "staff:x:5000:ann\ndocker:x:5001:ann\n");
        let quiet = &mut |_: compile::CompileProgress| {};
        let compiled =
            compile::accounts(&path("entries.passwd"), &path("entries.group"), quiet).unwrap();
        let snapshot = path("roster.v3.snap");
        compiled.image.write(&mut std::fs::File::create(&snapshot).unwrap(), 1).unwrap();
        let compared = |keys: &str| {
            let files = ["passwd", "group", "subuid", "subgid"]
                .map(|name| format!("{name} = {:?}\n", path(name)))
                .concat();
            let text = format!(
                "[host]\ndomains = ['lab']\n{files}{keys}[domain.lab]\nprovider = 'files'\n\
                 passwd = '/a'\ngroup = '/b'\n"
            );
            let parsed = roster_config::parse(&text).unwrap();
            UnservedEntries::new(&parsed.config, &snapshot)
        };
        let of = |comparison: &UnservedEntries| -> Vec<_> {
            comparison.warnings(Path::new("roster.toml")).iter().map(ToString::to_string).collect()
        };
        let begin = "roster.toml: warning: rosterd would reject 1 entry that this host serves: ";
        assert_eq!(
            of(&compared("")),
            [
                format!(
                    "{begin}primary gid 1501 is the primary gid of a local user: user cy. If the \
                     directory may share the gid, set `allowed_unnamed_gids = [1501]` under [host]. [RST-1120]"
                ),
                format!(
                    "{begin}the name belongs to a privileged account: group docker. {} [RST-1120]",
                    directory::PRIVILEGED_NAME.fix
                ),
                format!(
                    "{begin}uid 100007 is a subordinate id of a local user: user ben. {} [RST-1120]",
                    directory::SUBORDINATE_ID.fix
                ),
            ]
        );
        let json = compared("").json();
        assert_eq!((&json[2]["kind"], &json[2]["name"]), (&json!("group"), &json!("docker")));
        assert_eq!(json[2]["code"], directory::PRIVILEGED_NAME.code);
        // With those keys all of them are served.
        let keys = "allow_subordinate_ids = true\nallowed_unnamed_gids = [1501]\n\
                    allowed_names = ['docker']\n";
        assert_eq!(of(&compared(keys)), Vec::<String>::new());

        std::fs::write(&snapshot, "other").unwrap();
        let said = of(&compared("")).concat();
        assert!(
            said.contains(": the users and groups of this host cannot be compared: ")
                && said.ends_with(" [RST-1121]"),
            "{said}"
        );
        std::fs::remove_file(&snapshot).unwrap();
        assert_eq!(of(&compared("")), Vec::<String>::new(), "a host that serves nothing");
    }

    #[test]
    fn names_long_list_is_cut() {
        let all: Vec<String> = (0..NAMED_MAX + 2).map(|number| format!("u{number}")).collect();
        let entries: Vec<_> = all.iter().map(|name| ("user", &**name)).collect();
        let text = list_names(&entries, "--json lists all");
        assert!(text.starts_with("user u0, user u1, "), "{text}");
        assert!(text.ends_with(", user u99, and 2 more (--json lists all)"), "{text}");
        assert_eq!(list_names(&[("group", "a\n")], ""), "group a\\n");
    }
}
