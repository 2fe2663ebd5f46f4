//! From facts to findings. Pure.

use super::facts::{Facts, Libc, Read, Snapshot, State};
use super::{Finding, Level};
use crate::nsswitch::{self, Action, Entry, SERVICE};
use crate::terminal::{bytes, counted, duration};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Since this version running programs notice a change of nsswitch.conf.
const GLIBC_REREADS: (u32, u32) = (2, 33);

/// An age below this is not worth a number, and may come from two clocks.
const JUST_NOW: Duration = Duration::from_secs(60);

/// Denials to show; the log has the others.
const DENIALS_SHOWN: usize = 3;

/// Every check, in the order of a look-up: configuration, module, snapshot, then what interferes.
pub fn all(facts: &Facts) -> Vec<Finding> {
    let checks =
        [libc, nsswitch, module, snapshot, shadow, redirection, nscd, apparmor, selinux, denials];
    checks.into_iter().flat_map(|check| check(facts)).collect()
}

fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding { level: Level::Ok, check, message: message.into(), advice: None }
}

fn warning(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { level: Level::Warning, check, message: message.into(), advice: Some(advice.into()) }
}

fn problem(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { level: Level::Problem, check, message: message.into(), advice: Some(advice.into()) }
}

fn libc(facts: &Facts) -> Vec<Finding> {
    vec![match facts.libc {
        Libc::Glibc(major, minor) if (major, minor) >= GLIBC_REREADS => {
            ok("libc", format!("glibc {major}.{minor}"))
        }
        Libc::Glibc(major, minor) => warning(
            "libc",
            format!("glibc {major}.{minor}: programs read nsswitch.conf once, when they start"),
            "restart services after `roster enable`",
        ),
        Libc::Musl => problem(
            "libc",
            "musl is the C library here, and knows no name services",
            "use a distribution with glibc",
        ),
        Libc::Unknown => warning(
            "libc",
            "found no glibc in the usual folders",
            "Roster serves programs that use glibc; others do not see its users",
        ),
    }]
}

fn nsswitch(facts: &Facts) -> Vec<Finding> {
    match &facts.nsswitch {
        Read::Have(text) => nsswitch_text(text),
        Read::Missing => vec![problem(
            "nsswitch",
            "/etc/nsswitch.conf does not exist, so glibc asks `files` only",
            "write one (nsswitch.conf(5)), then `roster enable`",
        )],
        Read::Failed(why) => vec![problem(
            "nsswitch",
            format!("/etc/nsswitch.conf cannot be read: {why}"),
            "every program must be able to: chmod 644 /etc/nsswitch.conf",
        )],
    }
}

/// Whether, and in which order, glibc asks Roster.
pub fn nsswitch_text(text: &str) -> Vec<Finding> {
    let entries = nsswitch::parse(text);
    let mut findings = Vec::new();
    for (database, check) in [("passwd", "nsswitch-passwd"), ("group", "nsswitch-group")] {
        findings.extend(lookups(check, database, entries.get(database)));
    }
    findings.extend(initgroups(&entries));
    if let Some(entry) = entries.get("shadow").filter(|entry| entry.position(SERVICE).is_some()) {
        findings.extend(lookups("nsswitch-shadow", "shadow", Some(entry)));
    }
    findings
}

fn lookups(check: &'static str, database: &str, entry: Option<&Entry>) -> Vec<Finding> {
    let Some((entry, ours)) = entry.and_then(|entry| Some((entry, entry.position(SERVICE)?)))
    else {
        return vec![problem(
            check,
            format!("the {database} line of nsswitch.conf does not name `{SERVICE}`"),
            "run `roster enable`",
        )];
    };
    let line = entry.line;
    if let Some(found) = &entry.malformed {
        return vec![problem(
            check,
            format!("nsswitch.conf line {line}: glibc cannot make sense of `{found}`"),
            "correct it (nsswitch.conf(5))",
        )];
    }
    let mut findings = Vec::new();
    let hiding = entry.services[..ours].iter().find(|s| s.actions.on_not_found() == Action::Return);
    if let Some(service) = hiding {
        findings.push(problem(
            check,
            format!(
                "nsswitch.conf line {line}: `{} {}` on the {database} line ends every look-up \
                 before `{SERVICE}` is asked",
                service.name, service.actions
            ),
            format!("remove that action or put it behind `{SERVICE}`"),
        ));
    }
    match entry.local() {
        Some(local) if ours < local => findings.push(problem(
            check,
            format!(
                "nsswitch.conf line {line}: `{SERVICE}` comes before `{}` on the {database} line, \
                 so it can stand in for local accounts, root included",
                entry.services[local].name
            ),
            format!("put `{SERVICE}` right behind it: `roster disable`, then `roster enable`"),
        )),
        Some(_) => {}
        None => findings.push(problem(
            check,
            format!("nsswitch.conf line {line}: local accounts are missing: no `files` on the {database} line"),
            format!("put `files` before `{SERVICE}`"),
        )),
    }
    if findings.is_empty() {
        let names: Vec<_> = entry.services.iter().map(|service| &*service.name).collect();
        findings
            .push(ok(check, format!("nsswitch.conf asks for {database}: {}", names.join(", "))));
    }
    findings
}

/// Without a line of its own initgroups goes by the group line, and goes on after every success.
fn initgroups(entries: &BTreeMap<String, Entry>) -> Vec<Finding> {
    const CHECK: &str = "nsswitch-initgroups";
    let Some(entry) = entries.get("initgroups") else {
        let is_on = entries.get("group").is_some_and(|group| group.position(SERVICE).is_some());
        // Not enabled at all is the finding of the group line.
        return is_on
            .then(|| {
                warning(
                    CHECK,
                    "nsswitch.conf has no initgroups line: groups are complete, but every log-in \
                     and `id` also asks the services behind `roster`",
                    "run `roster enable`, which adds one",
                )
            })
            .into_iter()
            .collect();
    };
    let line = entry.line;
    let Some(ours) = entry.position(SERVICE) else {
        return vec![problem(
            CHECK,
            format!(
                "nsswitch.conf line {line}: the initgroups line does not name `{SERVICE}`, so \
                 users lack their groups of the snapshot"
            ),
            "run `roster enable`",
        )];
    };
    if let Some(found) = &entry.malformed {
        return vec![problem(
            CHECK,
            format!("nsswitch.conf line {line}: glibc cannot make sense of `{found}`"),
            "correct it (nsswitch.conf(5))",
        )];
    }
    let mut findings = Vec::new();
    for service in &entry.services[..ours] {
        let name = &service.name;
        if service.actions.on_success() == Action::Return {
            findings.push(problem(
                CHECK,
                format!(
                    "nsswitch.conf line {line}: users with a group in `{name}` lose all their \
                     groups of `{SERVICE}`"
                ),
                format!("write `{name} [SUCCESS=continue]` on the initgroups line"),
            ));
        }
        if service.actions.on_not_found() == Action::Return {
            findings.push(problem(
                CHECK,
                format!(
                    "nsswitch.conf line {line}: users without a group in `{name}` lose all their \
                     groups of `{SERVICE}`"
                ),
                "remove the NOTFOUND=return of the initgroups line".to_owned(),
            ));
        }
    }
    if ours + 1 < entry.services.len()
        && entry.services[ours].actions.on_success() == Action::Return
    {
        findings.push(warning(
            CHECK,
            format!(
                "nsswitch.conf line {line}: users with a group in `{SERVICE}` have none of the \
                 services behind it"
            ),
            format!("write `{SERVICE} [SUCCESS=continue]` unless that is wanted"),
        ));
    }
    if findings.is_empty() {
        findings.push(ok(CHECK, "nsswitch.conf asks every service for a user's groups"));
    }
    findings
}

/// Whether programs can load the module.
pub fn module(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "module";
    let mut findings = Vec::new();
    for module in &facts.modules {
        let path = module.path.display();
        let finding = if module.machine.is_none() {
            problem(
                CHECK,
                format!("{path} is no library that this user can read"),
                "install it again, mode 644",
            )
        } else if facts.machine.is_some() && module.machine != facts.machine {
            problem(
                CHECK,
                format!("{path} is built for another kind of machine"),
                "install the one for this architecture",
            )
        } else if module.mode & 0o004 == 0 {
            problem(
                CHECK,
                format!("{path} cannot be read by everybody"),
                format!("chmod a+r {path}"),
            )
        } else if module.needs_ldconfig {
            problem(
                CHECK,
                format!("{path} is not in the cache of the dynamic linker"),
                "run `ldconfig`",
            )
        } else {
            // The linker takes the first that fits, so that others do no harm.
            return vec![ok(CHECK, format!("module {path}"))];
        };
        findings.push(finding);
    }
    if findings.is_empty() {
        findings.push(problem(
            CHECK,
            "libnss_roster.so.2 is in none of the library folders",
            "install it (`make install PREFIX=/usr`), or run `ldconfig` if it lies elsewhere",
        ));
    }
    findings
}

/// Whether readers find, may read and will accept the snapshot.
pub fn snapshot(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "snapshot";
    let Snapshot { path, state } = &facts.snapshot;
    let name = path.display();
    let state = match state {
        Read::Have(state) => state,
        Read::Missing => {
            return vec![problem(
                CHECK,
                format!("{name} does not exist"),
                "make it with `roster compile`",
            )];
        }
        Read::Failed(why) => {
            return vec![problem(CHECK, format!("{name}: {why}"), "run `roster doctor` as root")];
        }
    };
    let mut findings = rights(CHECK, path, state);
    if state.mode & 0o004 == 0 {
        findings.push(problem(
            CHECK,
            format!("{name} cannot be read by everybody (mode {:04o})", state.mode),
            format!("chmod 644 {name}"),
        ));
    }
    for folder in &state.closed_folders {
        let folder = folder.display();
        findings.push(problem(
            CHECK,
            format!("programs of other users cannot reach {name} through {folder}"),
            format!("chmod a+x {folder}"),
        ));
    }
    match &state.content {
        Some(Ok(content)) => {
            let age = match facts.now.duration_since(state.published).unwrap_or_default() {
                age if age < JUST_NOW => "just now".to_owned(),
                age => format!("{} ago", duration(age)),
            };
            findings.push(ok(
                CHECK,
                format!(
                    "{name}: generation {}, {}, {}, {}, published {age}",
                    content.generation,
                    counted(content.users, "user"),
                    counted(content.groups, "group"),
                    bytes(state.bytes),
                ),
            ));
        }
        Some(Err(why)) => findings.push(problem(
            CHECK,
            format!("{name}: {why}"),
            "compile it anew; programs that run already go on with what they have",
        )),
        None => findings.push(problem(
            CHECK,
            format!("{name} cannot be read by this user"),
            format!("chmod 644 {name}"),
        )),
    }
    findings
}

/// What makes a reader refuse a file: that somebody else could have written it.
fn rights(check: &'static str, path: &Path, state: &State) -> Vec<Finding> {
    let name = path.display();
    let mut findings = Vec::new();
    if !state.regular {
        findings.push(problem(
            check,
            format!("{name} is not a regular file"),
            "remove it, then `roster compile`",
        ));
    }
    if state.owner != 0 && state.owner != state.folder_owner {
        findings.push(problem(
            check,
            format!("{name} belongs to uid {}, and readers accept root's only", state.owner),
            format!("find out who wrote it, then chown root {name}"),
        ));
    }
    if state.mode & 0o022 != 0 {
        findings.push(problem(
            check,
            format!("{name} can be written by others (mode {:04o})", state.mode),
            format!("readers refuse it: chmod go-w {name}, and compile it anew"),
        ));
    }
    for folder in &state.loose_folders {
        let folder = folder.display();
        findings.push(problem(
            check,
            format!("others can replace {name}, because they can write to {folder}"),
            format!("readers refuse it: chmod go-w {folder}"),
        ));
    }
    findings
}

/// Password hashes are optional; where there are some, they are for few.
fn shadow(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "shadow";
    let Snapshot { path, state } = &facts.shadow;
    let name = path.display();
    let wanted = match &facts.nsswitch {
        Read::Have(text) => {
            nsswitch::parse(text).get("shadow").is_some_and(|e| e.position(SERVICE).is_some())
        }
        _ => false,
    };
    let state = match state {
        Read::Have(state) => state,
        Read::Missing if wanted => {
            return vec![problem(
                CHECK,
                format!("the shadow line names `{SERVICE}`, but {name} does not exist"),
                "make it with `roster compile --shadow`, or take `roster` off that line",
            )];
        }
        Read::Missing => return Vec::new(),
        Read::Failed(why) => {
            return vec![warning(CHECK, format!("{name}: {why}"), "run `roster doctor` as root")];
        }
    };
    let mut findings = rights(CHECK, path, state);
    // Group-writable is a finding of `rights` already.
    if state.mode & 0o107 & !0o022 != 0 {
        findings.push(problem(
            CHECK,
            format!("{name} shows password hashes to everybody (mode {:04o})", state.mode),
            format!("chmod 640 {name}, and have the passwords changed"),
        ));
    }
    match &state.content {
        Some(Ok(content)) if findings.is_empty() => findings.push(ok(
            CHECK,
            format!(
                "{name}: generation {}, {}",
                content.generation,
                counted(content.shadows, "entry")
            ),
        )),
        Some(Err(why)) => {
            findings.push(problem(CHECK, format!("{name}: {why}"), "compile it anew"));
        }
        None if findings.is_empty() => findings.push(ok(
            CHECK,
            format!("{name}: mode {:04o}; its content is for root to check", state.mode),
        )),
        _ => {}
    }
    findings
}

fn redirection(facts: &Facts) -> Vec<Finding> {
    let redirected = facts.redirected_to.iter().map(|path| {
        warning(
            "environment",
            format!("ROSTER_SNAPSHOT={path} here: programs of this shell read that file instead"),
            "unset ROSTER_SNAPSHOT",
        )
    });
    redirected.collect()
}

fn nscd(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "nscd";
    match facts.nscd.as_ref().map(|name| name.as_deref().unwrap_or("nscd")) {
        None => Vec::new(),
        Some("nsncd") => vec![ok(CHECK, "nsncd answers for glibc, and keeps nothing back")],
        Some(name) => vec![warning(
            CHECK,
            format!(
                "{name} is running: it answers from its own memory, and hides changes for minutes"
            ),
            format!(
                "stop it, or turn off passwd and group in /etc/nscd.conf; to see a change at once: \
                 {name} -i passwd; {name} -i group"
            ),
        )],
    }
}

fn apparmor(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "apparmor";
    match facts.apparmor {
        None => Vec::new(),
        Some(true) => vec![ok(CHECK, "AppArmor lets confined programs read the snapshot")],
        Some(false) => vec![problem(
            CHECK,
            "AppArmor is on without our rules: confined programs do not see the snapshot's users",
            "install abstractions/nameservice.d/roster (`make install`), then \
             `systemctl reload apparmor`",
        )],
    }
}

fn selinux(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "selinux";
    let Some(selinux) = &facts.selinux else { return Vec::new() };
    let label = selinux.label.as_deref().unwrap_or("none");
    if label.contains(":roster_var_lib_t:") {
        return vec![ok(CHECK, "SELinux: /var/lib/roster has its label")];
    }
    let message = format!("SELinux label of /var/lib/roster: {label}, not roster_var_lib_t");
    let advice = "install the policy module (`semodule -i roster.pp`), then \
                  `restorecon -R /var/lib/roster`";
    if selinux.enforcing {
        vec![problem(CHECK, format!("{message}: confined programs may not read it"), advice)]
    } else {
        vec![warning(CHECK, format!("{message}; SELinux is permissive"), advice)]
    }
}

fn denials(facts: &Facts) -> Vec<Finding> {
    if facts.denials.is_empty() {
        return Vec::new();
    }
    let number = facts.denials.len();
    let shown = number.min(DENIALS_SHOWN);
    let lines = facts.denials[number - shown..].join("\n    ");
    vec![problem(
        "denials",
        format!("{} within a day, the last:\n    {lines}", counted(number as u64, "denial")),
        "install or reload the AppArmor and SELinux rules (`make install`)",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{Content, Machine, Module, Selinux};
    use std::time::UNIX_EPOCH;

    const NSSWITCH: &str = "passwd: files roster\ngroup: files roster\n\
                            initgroups: files [SUCCESS=continue] roster\n";

    fn healthy() -> Facts {
        let published = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Facts {
            nsswitch: Read::Have(NSSWITCH.to_owned()),
            libc: Libc::Glibc(2, 36),
            modules: vec![Module {
                path: "/usr/lib/libnss_roster.so.2".into(),
                machine: Some(Machine(2, 62)),
                mode: 0o644,
                needs_ldconfig: false,
            }],
            machine: Some(Machine(2, 62)),
            snapshot: Snapshot {
                path: "/var/lib/roster/roster.snap".into(),
                state: Read::Have(State {
                    regular: true,
                    owner: 0,
                    mode: 0o644,
                    folder_owner: 0,
                    loose_folders: Vec::new(),
                    closed_folders: Vec::new(),
                    bytes: 24 << 20,
                    published,
                    content: Some(Ok(Content { generation: 7, users: 1, groups: 2, shadows: 0 })),
                }),
            },
            shadow: Snapshot { path: "/var/lib/roster/shadow.snap".into(), state: Read::Missing },
            nscd: None,
            apparmor: None,
            selinux: None,
            denials: Vec::new(),
            redirected_to: None,
            now: published + Duration::from_secs(7200),
        }
    }

    /// The worst finding of facts that are healthy but for one change.
    fn worst(change: impl FnOnce(&mut Facts)) -> (Level, String) {
        let mut facts = healthy();
        change(&mut facts);
        let findings = all(&facts).into_iter();
        let worst = findings.max_by_key(|finding| finding.level).unwrap();
        assert_eq!(worst.advice.is_some(), worst.level > Level::Ok, "{worst}");
        (worst.level, worst.message)
    }

    #[track_caller]
    fn assert_worst(level: Level, part: &str, change: impl FnOnce(&mut Facts)) {
        let (found, message) = worst(change);
        assert_eq!(found, level, "{message}");
        assert!(message.contains(part), "{message:?} has no {part:?}");
    }

    fn state(snapshot: &mut Snapshot) -> &mut State {
        match &mut snapshot.state {
            Read::Have(state) => state,
            _ => panic!("no state"),
        }
    }

    #[test]
    fn a_healthy_host_has_nothing_but_good_findings() {
        let findings = all(&healthy());
        let text: Vec<_> = findings.iter().map(|finding| finding.message.clone()).collect();
        assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{text:#?}");
        assert_eq!(
            text,
            [
                "glibc 2.36",
                "nsswitch.conf asks for passwd: files, roster",
                "nsswitch.conf asks for group: files, roster",
                "nsswitch.conf asks every service for a user's groups",
                "module /usr/lib/libnss_roster.so.2",
                "/var/lib/roster/roster.snap: generation 7, 1 user, 2 groups, 24.0 MiB, \
                 published 2 hours ago",
            ]
        );
    }

    #[test]
    fn the_order_of_services_is_judged() {
        use Level::{Ok, Problem, Warning};
        for (level, part, lines) in [
            (Problem, "the passwd line of nsswitch.conf does not name", "passwd: files"),
            (Problem, "the group line of nsswitch.conf does not name", "group: files"),
            (Problem, "comes before `files` on the passwd line", "passwd: roster files"),
            (Problem, "ends every look-up before", "passwd: files [NOTFOUND=return] roster"),
            (Problem, "ends every look-up before", "group: sss [!SUCCESS=return] files roster"),
            (Problem, "no `files` on the passwd line", "passwd: roster"),
            (Problem, "cannot make sense of `[NOPE=return]`", "passwd: files roster [NOPE=return]"),
            (Problem, "does not name `roster`, so users lack", "initgroups: files"),
            (Problem, "users with a group in `files` lose", "initgroups: files roster"),
            (
                Problem,
                "users without a group in `files` lose",
                "initgroups: files [SUCCESS=continue NOTFOUND=return] roster",
            ),
            (
                Warning,
                "have none of the services behind it",
                "initgroups: files [SUCCESS=continue] roster systemd",
            ),
            (Ok, "", "passwd: files [UNAVAIL=return] roster sss"),
            (Ok, "", "group: files [SUCCESS=merge] roster"),
        ] {
            // Of two lines for one database the last counts.
            let text = format!("{NSSWITCH}{lines}\n");
            assert_worst(level, part, |facts| facts.nsswitch = Read::Have(text));
        }
        let (lookups, _) = NSSWITCH.split_once("initgroups").unwrap();
        assert_worst(Warning, "has no initgroups line", |facts| {
            facts.nsswitch = Read::Have(lookups.to_owned());
        });
        assert_worst(Problem, "does not exist", |facts| facts.nsswitch = Read::Missing);
    }

    #[test]
    fn a_module_that_cannot_be_loaded_is_a_problem() {
        use Level::Problem;
        assert_worst(Problem, "in none of the library folders", |facts| facts.modules.clear());
        assert_worst(Problem, "another kind of machine", |facts| {
            facts.modules[0].machine = Some(Machine(1, 3));
        });
        assert_worst(Problem, "is no library", |facts| facts.modules[0].machine = None);
        assert_worst(Problem, "read by everybody", |facts| facts.modules[0].mode = 0o600);
        assert_worst(Problem, "dynamic linker", |facts| facts.modules[0].needs_ldconfig = true);
        assert_worst(Level::Ok, "", |facts| {
            let mut other = facts.modules[0].clone();
            other.machine = Some(Machine(1, 3));
            facts.modules.insert(0, other);
        });
    }

    #[test]
    fn a_snapshot_that_readers_refuse_is_a_problem() {
        use Level::Problem;
        assert_worst(Problem, "does not exist", |f| f.snapshot.state = Read::Missing);
        for (part, change) in [
            ("mode 0600", (|s| s.mode = 0o600) as fn(&mut State)),
            ("can be written by others (mode 0664)", |s| s.mode = 0o664),
            ("belongs to uid 1000", |s| s.owner = 1000),
            ("not a regular file", |s| s.regular = false),
            ("write to /var/lib", |s| s.loose_folders = vec!["/var/lib".into()]),
            ("through /var/lib/roster", |s| s.closed_folders = vec!["/var/lib/roster".into()]),
            ("roster.snap: cut", |s| s.content = Some(Err("cut".to_owned()))),
            ("cannot be read by this user", |s| s.content = None),
        ] {
            assert_worst(Problem, part, |facts| change(state(&mut facts.snapshot)));
        }
        assert_worst(Level::Ok, "", |facts| {
            let state = state(&mut facts.snapshot);
            (state.owner, state.folder_owner) = (1000, 1000);
        });
    }

    #[test]
    fn password_hashes_are_for_few() {
        let with_shadow = |facts: &mut Facts, change: fn(&mut State)| {
            facts.shadow.state = facts.snapshot.state.clone();
            let state = state(&mut facts.shadow);
            state.mode = 0o640;
            change(state);
        };
        assert_worst(Level::Ok, "", |facts| with_shadow(facts, |_| {}));
        assert_worst(Level::Ok, "", |facts| with_shadow(facts, |s| s.content = None));
        assert_worst(Level::Problem, "to everybody (mode 0644)", |facts| {
            with_shadow(facts, |s| s.mode = 0o644);
        });
        assert_worst(Level::Problem, "written by others (mode 0660)", |facts| {
            with_shadow(facts, |s| s.mode = 0o660);
        });
        assert_worst(Level::Problem, "shadow.snap does not exist", |facts| {
            facts.nsswitch = Read::Have(format!("{NSSWITCH}shadow: files roster\n"));
        });
    }

    #[test]
    fn what_interferes_is_named() {
        use Level::{Ok, Problem, Warning};
        assert_worst(Warning, "unscd is running", |f| f.nscd = Some(Some("unscd".to_owned())));
        assert_worst(Warning, "nscd is running", |f| f.nscd = Some(None));
        assert_worst(Ok, "", |f| f.nscd = Some(Some("nsncd".to_owned())));
        assert_worst(Problem, "AppArmor is on without our rules", |f| f.apparmor = Some(false));
        assert_worst(Ok, "", |f| f.apparmor = Some(true));
        let label = |label: &str, enforcing| {
            let label = Some(label.to_owned());
            move |facts: &mut Facts| facts.selinux = Some(Selinux { enforcing, label })
        };
        assert_worst(Ok, "", label("system_u:object_r:roster_var_lib_t:s0", true));
        assert_worst(Problem, "may not read it", label("system_u:object_r:var_lib_t:s0", true));
        assert_worst(Warning, "permissive", label("system_u:object_r:var_lib_t:s0", false));
        assert_worst(Problem, "2 denials within a day, the last:\n    one\n    two", |facts| {
            facts.denials = vec!["one".to_owned(), "two".to_owned()];
        });
        assert_worst(Warning, "ROSTER_SNAPSHOT=/x", |f| f.redirected_to = Some("/x".to_owned()));
        assert_worst(Warning, "once, when they start", |f| f.libc = Libc::Glibc(2, 31));
        assert_worst(Problem, "musl", |f| f.libc = Libc::Musl);
    }
}
