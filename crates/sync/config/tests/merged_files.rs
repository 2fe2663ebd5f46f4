// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several files as one configuration: the effective value, and the file of a mistake.

use roster_config::explain::explain;
use roster_config::{ConfigFiles, FileTree, ParsedConfig, parse_files};
use roster_messages::Diagnostic;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Texts by path.
struct Texts(BTreeMap<&'static str, &'static str>);

impl FileTree for Texts {
    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let paths = self.0.keys().map(Path::new);
        let here = paths.filter(|path| path.parent() == Some(directory));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_owned())).collect())
    }

    fn bytes(&self, file: &Path, _: u64) -> io::Result<Vec<u8>> {
        let found = file.to_str().and_then(|path| self.0.get(path));
        found.map(|text| text.as_bytes().to_vec()).ok_or(io::ErrorKind::NotFound.into())
    }
}

const MAIN: &str = "/etc/roster/roster.toml";
const VENDOR: &str = "/usr/lib/roster/roster.toml.d/50-vendor.toml";
const SITE: &str = "/etc/roster/roster.toml.d/10-site.toml";
const LATE: &str = "/etc/roster/roster.toml.d/20-late.toml";

const LAB: &str = "\
[host]
domains = ['lab']
min_id = 2000
allowed_local_gids = [100, 200]
[domain.lab]
provider = 'files'
passwd = '/p'
group = '/g'
";

fn files(texts: &[(&'static str, &'static str)]) -> ConfigFiles {
    let texts = Texts(texts.iter().copied().collect());
    ConfigFiles::read_from(&texts, Path::new(MAIN)).unwrap()
}

fn parsed(texts: &[(&'static str, &'static str)]) -> ParsedConfig {
    let problems = |problems: Vec<Diagnostic>| {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    parse_files(&files(texts)).map_err(problems).unwrap()
}

fn mistakes(texts: &[(&'static str, &'static str)]) -> Vec<String> {
    let problems = parse_files(&files(texts)).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn merge_later_file_wins_by_key() {
    let parsed = parsed(&[
        (MAIN, LAB),
        (VENDOR, "[host]\nmin_id = 500\nmax_id = 9000\n[log]\nlevel = 'debug'\njson = true\n"),
        (SITE, "host.allowed_local_gids = [300]\nlog.level = 'warn'\n"),
        (LATE, "[host]\nallowed_local_gids = [400]\n[domain.lab.access]\nallowed_users = ['a']\n"),
    ]);
    let host = &parsed.config.host;
    assert_eq!((host.min_id, host.max_id), (2000, 9000));
    assert_eq!(host.allowed_local_gids, [400], "a list is replaced whole");
    assert_eq!((&*parsed.config.log.level, parsed.config.log.json), ("warn", true));
    assert_eq!(parsed.config.domains[0].access.lists.allowed_users.as_deref().unwrap(), ["a"]);
    assert_eq!(parsed.files, [VENDOR, MAIN, SITE, LATE].map(Path::new));
}

#[test]
fn merge_tables_of_every_form() {
    let parsed = parsed(&[
        (MAIN, LAB),
        (SITE, "domain = { lab = { access = { allowed_users = ['a'], denied_users = ['c'] } } }\n"),
        (LATE, "domain.lab.access.allowed_users = ['b']\n"),
    ]);
    let lists = &parsed.config.domains[0].access.lists;
    assert_eq!(lists.allowed_users.as_deref().unwrap(), ["b"]);
    assert_eq!(lists.denied_users.as_deref().unwrap(), ["c"]);
}

#[test]
fn mistake_in_drop_in_names_its_line() {
    assert_eq!(
        mistakes(&[
            (MAIN, LAB),
            (VENDOR, "[log]\nlevel = 'loud'\n"),
            (SITE, "\n[host]\nmin_id = 'x'\nallowed_local_gids = [1,\n  0]\n"),
            (LATE, "[host]\nmin_uid = 3\n[domain.lab]\nmass_deletion_threshold = 7\n"),
        ]),
        [
            "/usr/lib/roster/roster.toml.d/50-vendor.toml:2: log.level: unknown level \"loud\". Write \
             \"error\", \"warn\", \"info\", \"debug\" or \"trace\". [RST-1019]",
            "/etc/roster/roster.toml.d/10-site.toml:3: host.min_id: must be a whole number, and is a \
             string. Write a value of the required type. roster.toml(5) lists the type of each key. \
             [RST-1017]",
            "/etc/roster/roster.toml.d/10-site.toml:5: host.allowed_local_gids: gid 0 is reserved. Remove \
             the gid from the list. [RST-1021]",
            "/etc/roster/roster.toml.d/20-late.toml:2: host.min_uid: is not a key of this table. Did you \
             mean min_id? [RST-1001]",
            "/etc/roster/roster.toml.d/20-late.toml:4: domain.lab.mass_deletion_threshold: 7 is out of \
             range. Write a fraction from 0 to 1, such as 0.5. [RST-1018]",
        ]
    );
}

#[test]
fn mistake_between_files_names_the_value() {
    // Each file alone is valid.
    assert_eq!(
        mistakes(&[(MAIN, LAB), (SITE, "[host]\nmax_id = 1500\n")]),
        [
            "/etc/roster/roster.toml.d/10-site.toml:2: host.max_id: min_id (2000) is larger than max_id \
             (1500). Make max_id larger than min_id. [RST-1063]"
        ]
    );
    // A key that no file has is missing in the main file.
    assert_eq!(
        mistakes(&[(MAIN, "\n"), (VENDOR, "[log]\njson = true\n")])[0],
        "/etc/roster/roster.toml:1: host.domains: is missing. Add it to [host]: domains = [\"corp\"]. [RST-1005]"
    );
    // A table that is a value in another file would lose its rules, or hide a mistake.
    let conflict = "access: is a table in one file and a value in another. Use the same form in both \
                    files. [RST-1008]";
    let (table, value) = ("[domain.lab.access]\ndenied_users = ['a']\n", "domain.lab.access = 5\n");
    for (site, late) in [(table, value), (value, table)] {
        let said = mistakes(&[(MAIN, LAB), (SITE, site), (LATE, late)]);
        let place = "/etc/roster/roster.toml.d/20-late.toml:1: ";
        assert!(said.contains(&format!("{place}{conflict}")), "{said:?}");
    }
}

#[test]
fn broken_drop_in_refuses_the_whole() {
    let said =
        mistakes(&[(MAIN, LAB), (SITE, "[log]\nlevel = \"warn\n"), (LATE, "[host]\nx = \n")]);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].starts_with("/etc/roster/roster.toml.d/10-site.toml:2: is not valid TOML"),
        "{said:?}"
    );
    assert!(
        said[1].starts_with("/etc/roster/roster.toml.d/20-late.toml:2: x lacks a value"),
        "{said:?}"
    );
    let twice = mistakes(&[(MAIN, LAB), (SITE, "[host]\nmin_id = 5000\nmin_id = 1000\n")]);
    assert_eq!(
        twice,
        [
            "/etc/roster/roster.toml.d/10-site.toml:3: this key or table is defined twice. Remove one of \
             the two definitions. [RST-1012]"
        ]
    );
}

#[test]
fn explain_names_file_and_line() {
    let parsed = parsed(&[(MAIN, LAB), (SITE, "\n[host]\nmin_id = 3000\n")]);
    let text = explain(&parsed.settings);
    for line in [
        "domains = [\"lab\"]                # /etc/roster/roster.toml:2",
        "min_id = 3000                    # /etc/roster/roster.toml.d/10-site.toml:3",
        "max_id = 4294967294              # default",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn merge_drop_ins_alone_are_a_configuration() {
    for path in [VENDOR, SITE] {
        let parsed = parsed(&[(path, LAB), (LATE, "[host]\nmin_id = 3000\n")]);
        assert_eq!((parsed.config.host.min_id, &*parsed.config.domains[0].name), (3000, "lab"));
        assert_eq!(parsed.files, [path, LATE].map(PathBuf::from));
    }
    // The administrator adds a missing key to the main file.
    let problems = parse_files(&files(&[(VENDOR, "[log]\n")])).unwrap_err();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!((&*problem.file, problem.key.as_str()), (Path::new(MAIN), "host.domains"));
}
