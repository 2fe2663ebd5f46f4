//! Users and groups that a host serves now, and that a configuration would refuse.

use crate::output::{count_with_noun, printable};
use crate::snapshot_file;
use roster_admission::{LocalFiles, Refusal, Rules};
use roster_config::Config;
use roster_messages::table::config as codes;
use roster_messages::{Diagnostic, Message, Severity};
use roster_snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

/// Entries that a message names.
const NAMED_MAX: usize = 100;

/// One entry that would be refused.
#[derive(Debug, PartialEq, Eq)]
struct UnservedEntry {
    /// `user` or `group`.
    kind: &'static str,
    name: String,
    reason: String,
}

/// All entries of a snapshot that a configuration would refuse.
#[derive(Debug, Default)]
pub struct UnservedEntries {
    entries: Vec<UnservedEntry>,
    /// Why the entries could not be compared.
    failure: Option<String>,
}

impl UnservedEntries {
    /// Judges each entry of the snapshot as rosterd's publisher would with `config`. A snapshot does not tell of
    /// which domain an entry is: one that any domain may have passes. Without a snapshot nothing is compared.
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

    /// A warning for each reason, which names its entries.
    pub fn warnings(&self, config: &Path) -> Vec<Diagnostic> {
        let warning = |message: &'static Message, text, fix| Diagnostic {
            fix,
            ..Diagnostic::of_file(Severity::Warning, message, config, text)
        };
        if let Some(failure) = &self.failure {
            let text = format!("the entries that this host serves are not compared: {failure}");
            return vec![warning(&codes::SERVED_ENTRIES_NOT_COMPARED, text, None)];
        }
        by_reason(self.entries.iter().map(|entry| (&*entry.reason, (entry.kind, &*entry.name))))
            .into_iter()
            .map(|(reason, entries)| {
                let number = count_with_noun(entries.len() as u64, "entry");
                let names = list_names(&entries, "--json lists all");
                let text = format!(
                    "rosterd would reject {number} that this host serves: {reason}: {names}"
                );
                warning(&codes::SERVED_ENTRIES_REJECTED, text, remedy(reason))
            })
            .collect()
    }

    /// Every entry.
    pub fn json(&self) -> Value {
        let entry = |entry: &UnservedEntry| {
            json!({
                "kind": entry.kind,
                "name": entry.name,
                "reason": entry.reason,
                "fix": remedy(&entry.reason),
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
            reason: refusal.to_string(),
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

/// Kinds and names of entries by the reason against them, the commonest reason first.
pub fn by_reason<'e>(
    entries: impl Iterator<Item = (&'e str, (&'e str, &'e str))>,
) -> Vec<(&'e str, Vec<(&'e str, &'e str)>)> {
    let mut reasons: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (reason, entry) in entries {
        let place = *places.entry(reason).or_insert_with(|| {
            reasons.push((reason, Vec::new()));
            reasons.len() - 1
        });
        reasons[place].1.push(entry);
    }
    // The sort is stable: reasons with equal numbers stay in the order of their reports.
    reasons.sort_by_key(|(_, entries)| std::cmp::Reverse(entries.len()));
    reasons
}

/// What an administrator may do about entries that are refused for this reason.
pub fn remedy(reason: &str) -> Option<String> {
    let words: Vec<&str> = reason.split(' ').collect();
    match *words {
        [.., gid, "is", "the", "primary", "gid", "of", "a", "local", "user"] => Some(format!(
            "if the directory may share it: allowed_unnamed_gids = [{gid}] under [host]"
        )),
        ["primary", "gid", gid, "is", "below", "min_id", ..] => Some(format!(
            "if users may have the host's own group {gid} as their primary group: \
                 allowed_local_gids = [{gid}] under [host]; for a group of the directory, lower min_id"
        )),
        ["primary", "gid", gid, "belongs", "to", "a", "local", ..] => Some(format!(
            "if users may have the host's own group {gid} as their primary group: \
                 allowed_local_gids = [{gid}] under [host]"
        )),
        [.., "subordinate", "id", "of", "a", "local", "user"]
        | [.., "subordinate", "ids", "of", "local", "users"] => Some(
            "if local users may take such ids: allow_subordinate_ids = true under [host]".to_owned(),
        ),
        ["the", "name", "belongs", "to", "a", "privileged", ..] => Some(
            "if the directory may give out its rights: allowed_names = [\"NAME\"] under [host]"
                .to_owned(),
        ),
        ["the", "name", "has", "characters", "other", "than", ..] => Some(
            "if such names are to be served: allowed_name_characters under [host]".to_owned(),
        ),
        ["uid" | "gid", _, "is", "below", "min_id", ..] => {
            Some("if such users are to be served, lower min_id".to_owned())
        }
        ["uids" | "gids", "below", "min_id", ..] | ["primary", "gids", "below", "min_id", ..] => {
            Some("if such entries are to be served, lower min_id".to_owned())
        }
        ["the", "home", "directory", "is", "empty"] => Some(
            "a home folder for users that have none: fallback_home = \"/home/%u\" under their domain"
                .to_owned(),
        ),
        [_, _, "is", "above", "max_id", ..] | [_, "above", "max_id", ..] => {
            Some("if such entries are to be served, raise max_id".to_owned())
        }
        _ => None,
    }
}

/// The entries as a list, `rest` behind a list that was cut.
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
                    "{begin}uid 100007 is a subordinate id of a local user: user ben. if local users \
                     may take such ids: allow_subordinate_ids = true under [host]. [RST-1120]"
                ),
                format!(
                    "{begin}primary gid 1501 is the primary gid of a local user: user cy. if the directory \
                     may share it: allowed_unnamed_gids = [1501] under [host]. [RST-1120]"
                ),
                format!(
                    "{begin}the name belongs to a privileged account: group docker. if \
                     the directory may give out its rights: allowed_names = [\"NAME\"] under [host]. \
                     [RST-1120]"
                ),
            ]
        );
        let json = compared("").json();
        assert_eq!((&json[2]["kind"], &json[2]["name"]), (&json!("group"), &json!("docker")));
        // With those keys all of them are served.
        let keys = "allow_subordinate_ids = true\nallowed_unnamed_gids = [1501]\n\
                    allowed_names = ['docker']\n";
        assert_eq!(of(&compared(keys)), Vec::<String>::new());

        std::fs::write(&snapshot, "other").unwrap();
        let said = of(&compared("")).concat();
        assert!(
            said.contains(": the entries that this host serves are not compared: ")
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

    #[test]
    fn remedy_names_the_key_of_its_reason() {
        for (reason, key) in [
            ("primary gid 27 belongs to a local group", "allowed_local_gids = [27]"),
            ("gid 1500 is the primary gid of a local user", "allowed_unnamed_gids = [1500]"),
            (
                "primary gid 1500 is the primary gid of a local user",
                "allowed_unnamed_gids = [1500]",
            ),
            ("uid 7 is a subordinate id of a local user", "allow_subordinate_ids = true"),
            ("gids that are subordinate ids of local users", "allow_subordinate_ids = true"),
            ("the name belongs to a privileged account", "allowed_names"),
        ] {
            let said = remedy(reason).expect("a remedy");
            assert!(said.contains(key), "{reason}: {said}");
        }
    }
}
