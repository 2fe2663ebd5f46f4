// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts every file of `testdata` and compares the result with the directives in it:
//!
//! - `#? converted`, or `#? stopped: SETTING…` with exactly these settings,
//! - `#? line: TEXT`, a line of the result; `#? text: TEXT`, a part of it; `#? absent: TEXT`,
//! - `#? ignore-gpo` is the option of that name,
//! - `#? file: NAME` begins a drop-in.
//!
//! Each result also passes the parser of rosterd, and no message has the password of the reader.

use super::*;
use crate::krb5_conf::Krb5Conf;
use crate::nslcd::{self, NslcdConf};
use crate::{Outcome, check, render};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const SECRET: &str = "TOPSECRET";

fn facts() -> HostFacts {
    let mut krb5 = Krb5Conf::default();
    let text = "[libdefaults]\ndefault_realm = EXAMPLE.COM\n[realms]\nEXAMPLE.COM = {\nkdc = kdc.example.com\n\
                admin_server = admin.example.com:749\n}\n";
    krb5.add(text.as_bytes()).unwrap();
    HostFacts {
        krb5,
        dns_domain: Some("example.com".into()),
        local_users: vec!["root".into(), "daemon".into()],
        password_directory: "/etc/roster".into(),
    }
}

fn plan_of(name: &str, text: &str, waivers: &[String]) -> Plan {
    let ignores = text.lines().any(|line| line == "#? ignore-gpo");
    let mut waivers = Waivers::new(waivers).ignoring_group_policies(ignores);
    if name.ends_with(".nslcd.conf") {
        let conf = NslcdConf::parse(Path::new(name), text.as_bytes()).unwrap();
        return nslcd::convert(&conf, "ldap", &facts(), &mut waivers);
    }
    let mut conf = SssdConf::default();
    for (place, part) in text.split("#? file: ").enumerate() {
        let (file, part) = if place == 0 { (name, part) } else { part.split_once('\n').unwrap() };
        conf.add(Path::new(file), part.as_bytes())
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    convert(conf, &facts(), &mut waivers)
}

fn directives<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("#? "));
    lines.filter_map(|line| line.strip_prefix(word)).map(str::trim).collect()
}

fn corpus() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut corpus: Vec<_> = files
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    corpus.sort();
    corpus
}

#[test]
fn corpus_files_convert_or_stop_as_expected() {
    let corpus = corpus();
    assert!(corpus.len() >= 80, "{}", corpus.len());
    let mut failures = Vec::new();
    for (name, text) in &corpus {
        let plan = plan_of(name, text, &[]);
        let stops: BTreeSet<&str> = plan.stops().map(|item| &*item.setting).collect();
        let expected: BTreeSet<&str> = directives(text, "stopped:")
            .iter()
            .flat_map(|names| names.split_whitespace())
            .collect();
        assert_eq!(directives(text, "converted").is_empty(), !expected.is_empty(), "{name}");
        if stops != expected {
            failures.push(format!("{name}: stopped by {stops:?}"));
        }
        assert!(!format!("{plan:?}").contains(SECRET), "{name}: the plan shows the secret");
        if !expected.is_empty() {
            continue;
        }
        let toml = render(&plan);
        assert!(!toml.contains(SECRET), "{name}: {toml}");
        if let Err(error) = check(&toml) {
            failures.push(format!("{name}: {error}\n{toml}"));
        }
        for line in directives(text, "line:") {
            if !toml.lines().any(|found| found == line) {
                failures.push(format!("{name}: no line {line}\n{toml}"));
            }
        }
        for part in directives(text, "text:") {
            if !toml.replace("\n#  ", "").contains(part) {
                failures.push(format!("{name}: no text {part}\n{toml}"));
            }
        }
        let keys: Vec<&str> = toml.lines().filter(|line| !line.starts_with('#')).collect();
        for part in directives(text, "absent:") {
            if keys.iter().any(|line| line.contains(part)) {
                failures.push(format!("{name}: has {part}\n{toml}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n---\n"));
}

/// Without a setting for filters the result has no filter, so that the parts must be those of the schema.
#[test]
fn filters_of_active_directory_equal_schema_defaults() {
    for (mapping, extra) in [("sid", ""), ("posix", "ldap_id_mapping = false\n")] {
        let text = format!(
            "[sssd]\ndomains = corp\n[domain/corp]\nid_provider = ad\nfilter_users = x\nfilter_groups = x\n{extra}"
        );
        let plan = plan_of("sssd.conf", &text, &[]);
        let found =
            ["user_filter", "group_filter"].map(|key| plan.domains[0].keys.get(key).unwrap());
        let toml = format!(
            "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\nschema = \"ad\"\n\
             id_mapping = \"{mapping}\"\nuris = [\"ldaps://dc\"]\nbase = \"dc=x\"\n"
        );
        let parsed = roster_config::parse(&toml).unwrap();
        let roster_config::ProviderConfig::Ldap(ldap) = &parsed.config.domains[0].provider else {
            panic!("not LDAP")
        };
        let defaults = [&ldap.users.filter, &ldap.groups.filter];
        // The defaults nest some parts. Equal parts in the same order are the same filter.
        let parts = |filter: &str| {
            filter
                .replace(['&', '(', ')', '"'], " ")
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for (found, default) in found.into_iter().zip(defaults) {
            let mut expected = parts(default);
            expected.extend(["!", "sAMAccountName=x"].map(str::to_owned));
            assert_eq!(parts(found), expected, "{mapping}");
        }
    }
}

#[test]
fn group_policies_stop_without_the_option() {
    let text = "[sssd]\ndomains = corp\n[domain/corp]\nid_provider = ad\naccess_provider = ad\n\
                ldap_id_mapping = false\n";
    let convert_with = |ignores: bool, names: &[String]| {
        let mut conf = SssdConf::default();
        conf.add(Path::new("sssd.conf"), text.as_bytes()).unwrap();
        let mut waivers = Waivers::new(names).ignoring_group_policies(ignores);
        (convert(conf, &facts(), &mut waivers), waivers)
    };
    // `--without` names settings, and does not accept this.
    let (plan, _) = convert_with(false, &["ad_gpo_access_control".to_owned()]);
    let stops: Vec<_> = plan.stops().collect();
    let [stop] = &stops[..] else { panic!("{stops:?}") };
    assert_eq!((&*stop.setting, &*stop.value), ("ad_gpo_access_control", "enforcing (default)"));
    let Outcome::Stopped { reason, cure, can_be_waived: false } = &stop.outcome else {
        panic!("{stop:?}")
    };
    assert!(reason.contains("gPLink") && cure.contains("--ignore-gpo"), "{reason}. {cure}");
    let (plan, waivers) = convert_with(true, &[]);
    assert_eq!(plan.stops().count(), 0);
    assert!(!waivers.has_unused_group_policies());
    let mut waivers = Waivers::default().ignoring_group_policies(true);
    let _ = convert(SssdConf::default(), &facts(), &mut waivers);
    assert!(waivers.has_unused_group_policies());
}

#[test]
fn corpus_settings_have_exactly_one_fate() {
    for (name, text) in corpus() {
        let plan = plan_of(&name, &text, &[]);
        let mut origins: Vec<_> =
            plan.items.iter().map(|item| (&item.origin, &item.setting, &item.section)).collect();
        let count = origins.len();
        origins.sort();
        origins.dedup();
        assert_eq!(origins.len(), count, "{name}");
    }
}

#[test]
fn corpus_waivers_convert_what_may_be_waived() {
    for (name, text) in corpus() {
        let plan = plan_of(&name, &text, &[]);
        let can_waive = |item: &crate::Item| {
            matches!(item.outcome, Outcome::Stopped { can_be_waived: true, .. })
        };
        let waived: Vec<String> = plan
            .stops()
            .filter(|item| can_waive(item))
            .map(|item| format!("{}/{}", item.section, item.setting))
            .collect();
        let plan = plan_of(&name, &text, &waived);
        assert!(!plan.stops().any(can_waive), "{name}");
        if plan.stops().next().is_none() {
            let toml = render(&plan);
            check(&toml).unwrap_or_else(|error| panic!("{name}: {error}\n{toml}"));
            let is_complete = waived.is_empty() && !text.contains("#? ignore-gpo");
            assert_eq!(toml.contains("LEFT OUT"), !is_complete, "{name}: {toml}");
        }
    }
}

/// A small generator (xorshift) with a fixed seed: equal inputs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

#[test]
fn corpus_mutations_never_break_out_of_lines() {
    let pieces = [
        "\n[host]\n",
        "\r",
        "\"",
        "\\",
        "%",
        "?",
        "=",
        "\u{2028}",
        "\0",
        "''",
        "@",
        "[",
        "${",
        "\u{7f}",
    ];
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for (name, text) in corpus() {
        let text: String = text
            .lines()
            .filter(|line| !line.starts_with("#?"))
            .flat_map(|line| [line, "\n"])
            .collect();
        for _ in 0..20 {
            let mut chars: Vec<char> = text.chars().collect();
            for _ in 0..=random.below(3) {
                let place = random.below(chars.len());
                let piece = pieces[random.below(pieces.len())].chars();
                drop(chars.splice(place..place + random.below(2).min(chars.len() - place), piece));
            }
            let changed: String = chars.into_iter().collect();
            let mut waivers = Waivers::default();
            let plan = if name.ends_with(".nslcd.conf") {
                let conf = NslcdConf::parse(Path::new("c"), changed.as_bytes());
                conf.ok().map(|conf| nslcd::convert(&conf, "ldap", &facts(), &mut waivers))
            } else {
                let mut conf = SssdConf::default();
                let parsed = conf.add(Path::new("c"), changed.as_bytes());
                parsed.ok().map(|()| convert(conf, &facts(), &mut waivers))
            };
            let Some(plan) = plan.filter(|plan| plan.stops().next().is_none()) else { continue };
            let toml = render(&plan);
            if let Err(error) = check(&toml) {
                let syntax =
                    ["RST-1016", "RST-1010", "RST-1011", "RST-1012", "RST-1013", "RST-1014"];
                assert!(!syntax.iter().any(|code| error.text.contains(code)), "{error}\n{toml}");
            }
        }
    }
}
