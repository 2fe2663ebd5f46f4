//! From facts to findings. Pure.

use super::collect::{
    DaemonActivity, FileKind, FloorState, HostState, Libc, LoginState, NscdServer, ReadResult,
    SnapshotLocation, SnapshotMetadata, TestLookup, TestLookupOutcome,
};
use super::snapshot_checks::{JUST_NOW, check_snapshot, check_trust};
use crate::finding::{Finding, ok, problem, warning};
use crate::nsswitch::{self, DatabaseLine, SERVICE, StatusAction};
use crate::output::{count_with_noun, duration};
use crate::paths::CONFIG;
use roster_snapshot::Floor;
use roster_snapshot::floor::DEFAULT_MIN_ID;
use roster_snapshot_build::floor_file;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Since this version running programs notice a change of nsswitch.conf.
const GLIBC_REREADS: (u32, u32) = (2, 33);

/// Denials to show; the log has the others.
const DENIALS_SHOWN: usize = 3;

/// Every check, in the order of a look-up: configuration, module, snapshot, then what interferes.
pub fn check_all(facts: &HostState) -> Vec<Finding> {
    let checks = [
        libc,
        nsswitch,
        module,
        snapshot,
        floor_findings,
        daemon,
        logins,
        shadow,
        lookup,
        redirection,
        nscd,
        apparmor,
        selinux,
        denials,
    ];
    checks.into_iter().flat_map(|check| check(facts)).collect()
}

fn libc(facts: &HostState) -> Vec<Finding> {
    vec![match facts.libc {
        Libc::Glibc(major, minor) if (major, minor) >= GLIBC_REREADS => {
            let client = if facts.has_nscd_client { "with" } else { "without" };
            ok("libc", format!("glibc {major}.{minor}, {client} a client of nscd"))
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

fn nsswitch(facts: &HostState) -> Vec<Finding> {
    match &facts.nsswitch {
        ReadResult::Present(text) => nsswitch_text(text),
        ReadResult::Missing => vec![problem(
            "nsswitch",
            "/etc/nsswitch.conf does not exist, so glibc asks `files` only",
            "write one (nsswitch.conf(5)), then `roster enable`",
        )],
        ReadResult::Failed(why) => vec![problem(
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

fn lookups(check: &'static str, database: &str, entry: Option<&DatabaseLine>) -> Vec<Finding> {
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
    let hiding =
        entry.services[..ours].iter().find(|s| s.actions.on_not_found() == StatusAction::Return);
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
    match entry.local_position() {
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

/// Without a line of its own initgroups goes by the group line, and goes on after every success, so
/// that there is nothing to judge then.
fn initgroups(entries: &BTreeMap<String, DatabaseLine>) -> Vec<Finding> {
    const CHECK: &str = "nsswitch-initgroups";
    let Some(entry) = entries.get("initgroups") else { return Vec::new() };
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
        if service.actions.on_success() == StatusAction::Return {
            findings.push(problem(
                CHECK,
                format!(
                    "nsswitch.conf line {line}: users with a group in `{name}` lose all their \
                     groups of `{SERVICE}`"
                ),
                format!("write `{name} [SUCCESS=continue]` on the initgroups line"),
            ));
        }
        if service.actions.on_not_found() == StatusAction::Return {
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
        && entry.services[ours].actions.on_success() == StatusAction::Return
    {
        findings.push(warning(
            CHECK,
            format!(
                "nsswitch.conf line {line}: users with a group in `{SERVICE}` get no groups from \
                 the services behind it"
            ),
            format!("write `{SERVICE} [SUCCESS=continue]` unless that is wanted"),
        ));
    }
    let group = entries.get("group").map(|group| &*group.services).unwrap_or_default();
    // As when a package adds its service to all lines but this one.
    for service in group.iter().filter(|service| entry.position(&service.name).is_none()) {
        let name = &service.name;
        findings.push(problem(
            CHECK,
            format!(
                "nsswitch.conf line {line}: the initgroups line lacks `{name}`, which the group \
                 line names: users lack their groups of `{name}`"
            ),
            format!(
                "add `{name}`, with [SUCCESS=continue] behind the service before it; or remove the \
                 line, and glibc goes by the group line"
            ),
        ));
    }
    if findings.is_empty() {
        findings.push(ok(CHECK, "nsswitch.conf asks every service for a user's groups"));
    }
    findings
}

/// Whether programs can load the module.
pub fn module(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "module";
    let mut findings = Vec::new();
    for module in &facts.modules.files {
        let path = module.path.display();
        let finding = if module.machine.is_none() {
            problem(
                CHECK,
                format!("{path} is no library that this user can read"),
                "install it again, mode 644",
            )
        } else if facts.modules.machine.is_some() && module.machine != facts.modules.machine {
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
pub fn snapshot(facts: &HostState) -> Vec<Finding> {
    check_snapshot(&facts.snapshot, facts.now, is_mirrored(facts), true)
}

/// Whether the snapshot is rosterd's to make.
fn is_mirrored(facts: &HostState) -> bool {
    !matches!(facts.daemon.config, ReadResult::Missing)
        || !matches!(facts.daemon.running, DaemonActivity::Unknown | DaemonActivity::No)
}

/// Whether what keeps the snapshot true to the directories does so.
fn daemon(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "daemon";
    let mut findings = Vec::new();
    let check_config = format!("`roster check-config {CONFIG}` shows all that is wrong");
    match &facts.daemon.config {
        ReadResult::Present(Err(mistakes)) => {
            let first = mistakes.first().map(String::as_str).unwrap_or_default();
            let number = count_with_noun(mistakes.len() as u64, "mistake");
            findings.push(problem(
                CHECK,
                format!("rosterd does not take its configuration, which has {number}: {first}"),
                check_config,
            ));
        }
        ReadResult::Failed(why) => {
            findings.push(warning(CHECK, format!("{CONFIG} cannot be read: {why}"), check_config));
        }
        ReadResult::Present(Ok(())) | ReadResult::Missing => {}
    }
    match &facts.daemon.running {
        DaemonActivity::Unknown => {}
        DaemonActivity::No if is_mirrored(facts) => {
            let stale = match &facts.snapshot.state {
                ReadResult::Present(state) => match facts.now.duration_since(state.published) {
                    Ok(age) if age >= JUST_NOW => {
                        format!(": programs see the users and groups of {} ago", duration(age))
                    }
                    _ => ", so that changes of the directories are not seen".to_owned(),
                },
                ReadResult::Missing | ReadResult::Failed(_) => String::new(),
            };
            findings.push(problem(
                CHECK,
                format!("rosterd is configured and does not run{stale}"),
                format!("`systemctl enable --now rosterd`; without a daemon, remove {CONFIG}"),
            ));
        }
        DaemonActivity::No => {}
        DaemonActivity::NotAllowed => {
            findings.push(ok(CHECK, "rosterd runs; how it is doing, it tells root"));
        }
        DaemonActivity::Silent(why) => findings.push(problem(
            CHECK,
            why.clone(),
            "`systemctl restart rosterd`; what was published is served meanwhile",
        )),
        DaemonActivity::Yes { snapshot, findings: own } => {
            findings.extend(own.iter().cloned());
            let elsewhere = snapshot.as_ref().filter(|path| **path != facts.snapshot.path);
            if let Some(path) = elsewhere {
                findings.push(problem(
                    CHECK,
                    format!(
                        "rosterd publishes to {}, and programs read {}",
                        path.display(),
                        facts.snapshot.path.display()
                    ),
                    "run it without --state-dir",
                ));
            }
            if findings.is_empty() {
                findings.push(ok(CHECK, "rosterd runs, and every directory answers"));
            }
        }
    }
    findings
}

/// Whether programs that let people in ask about users of the domains.
fn logins(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "log-ins";
    const TAKE_OUT: &str = "`pam-auth-update --disable roster` (Debian)";
    let LoginState { domains, stack, missing, unverified } = &facts.logins;
    let finding = match (domains.as_deref(), stack, missing) {
        (_, Some(stack), Some(module)) => problem(
            CHECK,
            format!(
                "/etc/pam.d/{stack} names {module}, and PAM finds none: who needs it is denied"
            ),
            format!("`make install` with PREFIX=/usr; or take it out: {TAKE_OUT}"),
        ),
        (Some([]), Some(stack), None) => problem(
            CHECK,
            format!(
                "/etc/pam.d/{stack} asks pam_roster.so, and no domain has `auth`: whoever is not in \
                 /etc/passwd is denied"
            ),
            format!("set `auth` in a domain (roster.toml(5)), or take it out: {TAKE_OUT}"),
        ),
        (Some([domain, ..]), None, _) => warning(
            CHECK,
            format!(
                "users of {domain} are to log in, and no stack in /etc/pam.d names pam_roster.so"
            ),
            "`pam-auth-update --enable roster` (Debian), `authselect select vendor/roster`, or by \
             hand: docs/how-to/logins.md",
        ),
        (Some([domain, ..]), Some(stack), None) => {
            ok(CHECK, format!("/etc/pam.d/{stack} asks pam_roster.so, for users of {domain}"))
        }
        (None, Some(_), None) | (None | Some([]), None, _) => return Vec::new(),
    };
    let mut findings = vec![finding];
    // A running daemon has said so itself, see [`rosterd_client`].
    if !matches!(facts.daemon.running, DaemonActivity::Yes { .. }) {
        findings.extend(unverified.iter().map(|(domain, found)| {
            let message = format!("{domain}: {}", found.what);
            match found.is_refused {
                true => problem(CHECK, message, found.instead.clone()),
                false => warning(CHECK, message, found.instead.clone()),
            }
        }));
    }
    findings
}

/// Whether programs accept of the publisher's snapshot what the publisher admits.
fn floor_findings(facts: &HostState) -> Vec<Finding> {
    check_floor(&facts.floors, Path::new(CONFIG))
}

/// The same of any configuration.
pub fn check_floor(floors: &FloorState, config: &Path) -> Vec<Finding> {
    const CHECK: &str = "floor";
    let (name, config) = (floor_file::path().display(), config.display());
    let advice = "`systemctl reload rosterd`, or `roster enable` as root, writes it";
    let found = match &floors.file {
        Ok(found) => *found,
        Err(why) => {
            return vec![problem(
                CHECK,
                format!(
                    "{name} {why}: of a snapshot of the publisher's programs accept ids from \
                     {DEFAULT_MIN_ID} on"
                ),
                advice,
            )];
        }
    };
    let Some(configured) = &floors.configured else { return Vec::new() };
    let in_force = found.unwrap_or_default();
    let is_same = in_force.min_id() == configured.min_id()
        && in_force.gids().collect::<BTreeSet<_>>() == configured.gids().collect();
    let shown = |floor: &Floor| {
        let gids: Vec<_> = floor.gids().map(|gid| gid.to_string()).collect();
        let also = if gids.is_empty() {
            String::new()
        } else {
            format!(" and primary gids {}", gids.join(", "))
        };
        format!("ids from {} on{also}", floor.min_id())
    };
    vec![match found {
        _ if is_same => ok(CHECK, format!("programs accept {}", shown(&in_force))),
        Some(_) => problem(
            CHECK,
            format!("{name} has {}, and {config} has {}", shown(&in_force), shown(configured)),
            advice,
        ),
        None => problem(
            CHECK,
            format!(
                "{name} does not exist: programs accept {}, and {config} has {}",
                shown(&in_force),
                shown(configured)
            ),
            advice,
        ),
    }]
}

/// What a program of this host gets, which is what all the rest is about.
fn lookup(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "lookup";
    let Some(TestLookup { user, outcome }) = &facts.lookup else { return Vec::new() };
    let command = format!("getent -s {SERVICE} passwd {user}");
    vec![match outcome {
        TestLookupOutcome::Found => ok(CHECK, format!("a look-up through the module finds {user}")),
        TestLookupOutcome::NotFound => problem(
            CHECK,
            format!("`{command}` finds nobody, though the snapshot has {user}"),
            format!(
                "mend what is said above; if that is nothing, `LD_DEBUG=libs {command}` shows \
                 whether the module is loaded"
            ),
        ),
        TestLookupOutcome::Failed(how) => problem(
            CHECK,
            format!("`{command}` does not get to an answer: {how}"),
            "the module's file may be damaged: install it again",
        ),
        TestLookupOutcome::TimedOut => problem(
            CHECK,
            format!("`{command}` hangs"),
            format!("`strace -f {command}` shows where"),
        ),
    }]
}

/// Password hashes are optional; where there are some, they are for few.
fn shadow(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "shadow";
    let SnapshotLocation { path, state, .. } = &facts.shadow;
    let name = path.display();
    let wanted = match &facts.nsswitch {
        ReadResult::Present(text) => {
            nsswitch::parse(text).get("shadow").is_some_and(|e| e.position(SERVICE).is_some())
        }
        _ => false,
    };
    let state = match state {
        ReadResult::Present(state) => state,
        ReadResult::Missing if wanted => {
            return vec![problem(
                CHECK,
                format!("the shadow line names `{SERVICE}`, but {name} does not exist"),
                "make it with `roster compile --shadow`, or take `roster` off that line",
            )];
        }
        ReadResult::Missing => return Vec::new(),
        ReadResult::Failed(why) => {
            return vec![warning(CHECK, format!("{name}: {why}"), "run `roster doctor` as root")];
        }
    };
    let mut findings = check_trust(CHECK, &facts.shadow);
    // That others may write is a finding of `refusals` already.
    if state.kind == FileKind::File && state.mode & 0o107 & !0o022 != 0 {
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
                count_with_noun(content.shadows, "entry")
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

fn redirection(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "environment";
    let Some(snapshot) = &facts.redirected else { return Vec::new() };
    let path = snapshot.path.display();
    let unset = "unset ROSTER_SNAPSHOT, or have it name a snapshot";
    if !snapshot.path.is_absolute() {
        return vec![problem(
            CHECK,
            format!(
                "ROSTER_SNAPSHOT={path} here is no absolute path: programs of this shell read no snapshot at all"
            ),
            unset,
        )];
    }
    let mut findings = vec![warning(
        CHECK,
        format!("ROSTER_SNAPSHOT={path} here: programs of this shell read that file instead"),
        "unset ROSTER_SNAPSHOT",
    )];
    findings.extend(check_trust(CHECK, snapshot));
    match &snapshot.state {
        ReadResult::Missing => {
            findings.push(problem(CHECK, format!("{path} does not exist"), unset));
        }
        ReadResult::Failed(why)
        | ReadResult::Present(SnapshotMetadata { content: Some(Err(why)), .. }) => {
            findings.push(problem(CHECK, format!("{path}: {why}"), unset));
        }
        ReadResult::Present(_) => {}
    }
    findings
}

fn nscd(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "nscd";
    match &facts.nscd {
        NscdServer::None => Vec::new(),
        NscdServer::Maps { figures, processes_without_map } => {
            maps(CHECK, figures, processes_without_map, facts.has_nscd_client)
        }
        NscdServer::Silent { is_root: true } => vec![warning(
            CHECK,
            "in place of nscd: a server of Roster is there and does not answer",
            "see its log; `systemctl restart roster-nscd`",
        )],
        NscdServer::Silent { is_root: false } => vec![ok(
            CHECK,
            "in place of nscd: a server of Roster is there; it tells root how it is: run this as root",
        )],
        NscdServer::Other(name) if name == "nsncd" => {
            vec![ok(CHECK, "nsncd answers for glibc, and keeps nothing back")]
        }
        NscdServer::Other(name) => vec![warning(
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

/// What a server of ours says: of each table how its map is, and how many questions came by the socket.
fn maps(
    check: &'static str,
    figures: &str,
    without_map: &[String],
    has_client: bool,
) -> Vec<Finding> {
    let mut findings: Vec<_> = figures
        .lines()
        .map(|line| {
            let is_well = line.contains(" entries in a map of ") || line.starts_with("socket: ");
            let is_well = is_well || line.starts_with("asked over the socket ");
            let advice = match line.split(':').next() {
                Some("maps") => {
                    "mount a tmpfs there: `systemctl enable --now 'run-roster\\x2dnscd.mount'`, or a line in /etc/fstab; then restart \
                     what serves"
                }
                Some("descriptors") => {
                    "the units have that mount; without systemd, a line in /etc/fstab with bind,ro; then restart what serves"
                }
                Some("sent to the name services") => {
                    "they go on without a map, some until they are restarted; counted since the server's start"
                }
                _ => "programs go on without that; its log says more, and `roster nscd -i TABLE` tries again",
            };
            match is_well {
                true => ok(check, format!("in place of nscd: {line}")),
                false => warning(check, format!("in place of nscd: {line}"), advice),
            }
        })
        .collect();
    if !without_map.is_empty() {
        findings.push(ok(
            check,
            format!(
                "in place of nscd: running programs that use the module and no map: {}; they were started \
                 before the server, were sent away by it, or list everybody",
                without_map.join(", "),
            ),
        ));
    }
    if !has_client {
        findings.push(warning(
            check,
            "nscd's socket is served, and the C library has no client of nscd that would ask there",
            "only programs on musl do: switch it off if there are none (`systemctl disable --now roster-nscd.socket roster-nscd`)",
        ));
    }
    findings
}

fn apparmor(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "apparmor";
    match facts.security.apparmor {
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

fn selinux(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "selinux";
    let Some(selinux) = &facts.security.selinux else { return Vec::new() };
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

fn denials(facts: &HostState) -> Vec<Finding> {
    if facts.security.denials.is_empty() {
        return Vec::new();
    }
    let number = facts.security.denials.len();
    let shown = number.min(DENIALS_SHOWN);
    let lines = facts.security.denials[number - shown..].join("\n    ");
    vec![problem(
        "denials",
        format!(
            "{} within a day, the last:\n    {lines}",
            count_with_noun(number as u64, "denial")
        ),
        "install or reload the AppArmor and SELinux rules (`make install`)",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::collect::{
        DaemonState, ElfMachine, NssModuleFile, NssModules, ParentDir, SecurityModules, Selinux,
        SnapshotContent,
    };
    use crate::finding::FindingLevel;
    use roster_config::VerificationProblem;
    use roster_snapshot::layout::SnapshotKind;
    use std::path::PathBuf;
    use std::time::{Duration, UNIX_EPOCH};

    const NSSWITCH: &str = "passwd: files roster\ngroup: files roster\n\
                            initgroups: files [SUCCESS=continue] roster\n";

    fn folders(own: &str) -> Vec<ParentDir> {
        let folder =
            |path: &str| ParentDir { path: path.into(), is_link: false, owner: 0, mode: 0o755 };
        ["/", "/var", "/var/lib", "/var/lib/roster", own].map(folder).into()
    }

    fn healthy() -> HostState {
        let published = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        HostState {
            nsswitch: ReadResult::Present(NSSWITCH.to_owned()),
            libc: Libc::Glibc(2, 36),
            modules: NssModules {
                files: vec![NssModuleFile {
                    path: "/usr/lib/libnss_roster.so.2".into(),
                    machine: Some(ElfMachine(2, 62)),
                    mode: 0o644,
                    needs_ldconfig: false,
                }],
                machine: Some(ElfMachine(2, 62)),
            },
            snapshot: SnapshotLocation {
                path: "/var/lib/roster/snap/roster.v3.snap".into(),
                kind: SnapshotKind::Accounts,
                chosen_by: None,
                parents: folders("/var/lib/roster/snap"),
                state: ReadResult::Present(SnapshotMetadata {
                    kind: FileKind::File,
                    owner: 0,
                    mode: 0o644,
                    bytes: 24 << 20,
                    published,
                    content: Some(Ok(SnapshotContent {
                        generation: 7,
                        users: 1,
                        groups: 2,
                        shadows: 0,
                        sample: None,
                    })),
                }),
            },
            shadow: SnapshotLocation {
                path: "/var/lib/roster/shadow/shadow.v3.snap".into(),
                kind: SnapshotKind::Shadow,
                chosen_by: None,
                parents: folders("/var/lib/roster/shadow"),
                state: ReadResult::Missing,
            },
            floors: FloorState { file: Ok(None), configured: None },
            lookup: None,
            nscd: NscdServer::None,
            has_nscd_client: true,
            security: SecurityModules::default(),
            redirected: None,
            daemon: DaemonState { config: ReadResult::Missing, running: DaemonActivity::No },
            logins: LoginState::default(),
            now: published + Duration::from_secs(7200),
        }
    }

    /// The worst finding of facts that are healthy but for one change.
    fn worst(change: impl FnOnce(&mut HostState)) -> (FindingLevel, String) {
        let mut facts = healthy();
        change(&mut facts);
        let findings = check_all(&facts).into_iter();
        let worst = findings.max_by_key(|finding| finding.level).unwrap();
        assert_eq!(worst.advice.is_some(), worst.level > FindingLevel::Ok, "{worst}");
        (worst.level, worst.message)
    }

    #[track_caller]
    fn assert_worst(level: FindingLevel, part: &str, change: impl FnOnce(&mut HostState)) {
        let (found, message) = worst(change);
        assert_eq!(found, level, "{message}");
        assert!(message.contains(part), "{message:?} has no {part:?}");
    }

    fn state(snapshot: &mut SnapshotLocation) -> &mut SnapshotMetadata {
        match &mut snapshot.state {
            ReadResult::Present(state) => state,
            _ => panic!("no state"),
        }
    }

    #[test]
    fn doctor_stopped_daemon_leaves_snapshot_stale() {
        let configured = |facts: &mut HostState| facts.daemon.config = ReadResult::Present(Ok(()));
        let stale = "does not run: programs see the users and groups of 2 hours ago";
        assert_worst(FindingLevel::Problem, stale, configured);
        let (level, message) = worst(|facts| {
            configured(facts);
            facts.snapshot.state = ReadResult::Missing;
        });
        assert!(level == FindingLevel::Problem && message.contains("configured and does not run"));
        assert!(!check_all(&healthy()).iter().any(|finding| finding.check == "daemon"));
    }

    #[test]
    fn a_configuration_that_the_daemon_would_refuse_is_a_problem() {
        let mistakes = ["roster.toml:3: x".to_owned(), "roster.toml:4: y".to_owned()];
        assert_worst(FindingLevel::Problem, "which has 2 mistakes: roster.toml:3: x", |facts| {
            facts.daemon.config = ReadResult::Present(Err(mistakes.to_vec()));
            facts.daemon.running = DaemonActivity::NotAllowed;
        });
    }

    #[test]
    fn what_a_running_daemon_says_of_itself_is_taken_over() {
        let running = |snapshot: &str, findings| DaemonActivity::Yes {
            snapshot: Some(snapshot.into()),
            findings,
        };
        let mut facts = healthy();
        facts.daemon.running = running("/var/lib/roster/snap/roster.v3.snap", Vec::new());
        assert!(daemon(&facts)[0].message.contains("every directory answers"));
        let offline = problem("daemon", "corp is offline", "wait");
        facts.daemon.running =
            running("/var/lib/roster/snap/roster.v3.snap", vec![offline.clone()]);
        assert_eq!(daemon(&facts), [offline]);
        facts.daemon.running = running("/tmp/state/roster.v3.snap", Vec::new());
        assert!(daemon(&facts)[0].message.contains("publishes to /tmp/state/roster.v3.snap"));
        facts.daemon.running = DaemonActivity::NotAllowed;
        assert_eq!(daemon(&facts)[0].level, FindingLevel::Ok);
    }

    #[test]
    fn doctor_logins_need_auth_domain_and_stack() {
        let (corp, stack) = (Some(vec!["corp".to_owned()]), Some("common-auth".to_owned()));
        let log_ins = |domains: &Option<Vec<String>>, stack: &Option<String>, missing: bool| {
            let missing = missing.then(|| "pam_roster.so".to_owned());
            LoginState {
                domains: domains.clone(),
                stack: stack.clone(),
                missing,
                unverified: Vec::new(),
            }
        };
        assert_worst(FindingLevel::Warning, "no stack", |f| {
            f.logins = log_ins(&corp, &None, false);
        });
        let nobodys = Some(Vec::new());
        assert_worst(FindingLevel::Problem, "no domain has `auth`", |f| {
            f.logins = log_ins(&nobodys, &stack, false);
        });
        for domains in [&corp, &nobodys, &None] {
            assert_worst(FindingLevel::Problem, "PAM finds none", |f| {
                f.logins = log_ins(domains, &stack, true);
            });
        }
        for (domains, stack) in [(&corp, &stack), (&nobodys, &None), (&None, &stack)] {
            let (level, message) = worst(|f| f.logins = log_ins(domains, stack, false));
            assert_eq!(level, FindingLevel::Ok, "{message}");
        }
    }

    #[test]
    fn log_ins_unverified_kdcs_reported_once() {
        let found = |is_refused| VerificationProblem {
            message: &roster_messages::table::config::KDCS_UNVERIFIED,
            is_refused,
            what: "KDCs are not verified".to_owned(),
            instead: "write a key".to_owned(),
        };
        let unverified = |facts: &mut HostState, is_refused| {
            facts.logins.domains = Some(vec!["corp".to_owned()]);
            facts.logins.stack = Some("common-auth".to_owned());
            facts.logins.unverified = vec![("corp".to_owned(), found(is_refused))];
        };
        assert_worst(FindingLevel::Warning, "corp: KDCs", |facts| unverified(facts, false));
        assert_worst(FindingLevel::Problem, "corp: KDCs", |facts| unverified(facts, true));
        let mut facts = healthy();
        unverified(&mut facts, true);
        facts.daemon.running = DaemonActivity::Yes { snapshot: None, findings: Vec::new() };
        assert!(logins(&facts).iter().all(|finding| finding.level == FindingLevel::Ok));
    }

    #[test]
    fn a_healthy_host_has_nothing_but_good_findings() {
        let findings = check_all(&healthy());
        let text: Vec<_> = findings.iter().map(|finding| finding.message.clone()).collect();
        assert!(findings.iter().all(|finding| finding.level == FindingLevel::Ok), "{text:#?}");
        assert_eq!(
            text,
            [
                "glibc 2.36, with a client of nscd",
                "nsswitch.conf asks for passwd: files, roster",
                "nsswitch.conf asks for group: files, roster",
                "nsswitch.conf asks every service for a user's groups",
                "module /usr/lib/libnss_roster.so.2",
                "/var/lib/roster/snap/roster.v3.snap: generation 7, 1 user, 2 groups, 24.0 MiB, \
                 published 2 hours ago",
            ]
        );
    }

    #[test]
    fn the_order_of_services_is_judged() {
        use FindingLevel::{Ok, Problem, Warning};
        for (level, part, lines) in [
            (Problem, "the passwd line of nsswitch.conf does not name", "passwd: files"),
            (Problem, "the group line of nsswitch.conf does not name", "group: files"),
            (Problem, "comes before `files` on the passwd line", "passwd: roster files"),
            (Problem, "ends every look-up before", "passwd: files [NOTFOUND=return] roster"),
            (Problem, "ends every look-up before", "passwd: sss [!SUCCESS=return] files roster"),
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
                "get no groups from the services behind it",
                "initgroups: files [SUCCESS=continue] roster systemd",
            ),
            (Ok, "", "passwd: files [UNAVAIL=return] roster sss"),
            (
                Problem,
                "lacks `sss`, which the group line names: users lack their groups of `sss`",
                "group: files roster sss",
            ),
            (Ok, "", "group: files [SUCCESS=merge] roster"),
        ] {
            // Of two lines for one database the last counts.
            let text = format!("{NSSWITCH}{lines}\n");
            assert_worst(level, part, |facts| facts.nsswitch = ReadResult::Present(text));
        }
        let (lookups, _) = NSSWITCH.split_once("initgroups").unwrap();
        assert_worst(Ok, "", |facts| {
            facts.nsswitch = ReadResult::Present(lookups.to_owned());
        });
        assert_worst(Problem, "does not exist", |facts| facts.nsswitch = ReadResult::Missing);
    }

    #[test]
    fn a_module_that_cannot_be_loaded_is_a_problem() {
        use FindingLevel::Problem;
        assert_worst(Problem, "in none of the library folders", |facts| {
            facts.modules.files.clear();
        });
        assert_worst(Problem, "another kind of machine", |facts| {
            facts.modules.files[0].machine = Some(ElfMachine(1, 3));
        });
        assert_worst(Problem, "is no library", |facts| facts.modules.files[0].machine = None);
        assert_worst(Problem, "read by everybody", |facts| facts.modules.files[0].mode = 0o600);
        assert_worst(Problem, "dynamic linker", |facts| {
            facts.modules.files[0].needs_ldconfig = true;
        });
        assert_worst(FindingLevel::Ok, "", |facts| {
            let mut other = facts.modules.files[0].clone();
            other.machine = Some(ElfMachine(1, 3));
            facts.modules.files.insert(0, other);
        });
    }

    #[test]
    fn a_snapshot_that_programs_do_not_get_at_is_a_problem() {
        use FindingLevel::Problem;
        assert_worst(Problem, "does not exist", |f| f.snapshot.state = ReadResult::Missing);
        assert_worst(Problem, "through /var/lib/roster", |f| f.snapshot.parents[3].mode = 0o700);
        for (part, change) in [
            ("mode 0600", (|s| s.mode = 0o600) as fn(&mut SnapshotMetadata)),
            ("roster.v3.snap: cut", |s| s.content = Some(Err("cut".to_owned()))),
            ("cannot be read by this user", |s| s.content = None),
        ] {
            assert_worst(Problem, part, |facts| change(state(&mut facts.snapshot)));
        }
        // For a user whom the folder keeps out that is all there is to see.
        let mut facts = healthy();
        facts.snapshot.state = ReadResult::Failed("Permission denied".to_owned());
        facts.snapshot.parents[3].mode = 0o700;
        let findings = snapshot(&facts);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert!(findings[0].message.contains("through /var/lib/roster"), "{findings:#?}");
    }

    /// Rows: what is different, and what readers then refuse, in the default place and where the
    /// environment of uid 1000 led.
    #[test]
    fn doctor_refuses_what_readers_refuse() {
        type Change = fn(&mut [ParentDir], &mut SnapshotMetadata);
        let rows: [(Change, Option<&str>, Option<&str>); 14] = [
            (|_, _| {}, None, None),
            (|f, _| f[4].mode = 0o777, Some("can write to /var/lib/roster"), Some("can write to")),
            (|f, _| f[4].mode = 0o775, Some("can write to /var/lib/roster"), Some("can write to")),
            (|f, _| f[4].mode = 0o1777, Some("can write to /var/lib/roster"), None),
            (|f, _| f[2].mode = 0o777, None, Some("can write to /var/lib ")),
            (|f, _| f[4].is_link = true, Some("snap is a symbolic link"), Some("is a symbolic")),
            (|f, _| f[1].is_link = true, None, Some("/var is a symbolic link")),
            (|_, s| s.owner = 1000, Some("belongs to uid 1000"), None),
            (|_, s| s.owner = 1001, Some("belongs to uid 1001"), Some("belongs to uid 1001")),
            (|f, s| (f[4].owner, s.owner) = (1000, 1000), None, None),
            (|f, s| (f[4].owner, s.owner) = (1001, 1001), None, Some("snap belongs to uid 1001")),
            (|f, _| f[2].owner = 1001, None, Some("/var/lib belongs to uid 1001")),
            (|_, s| s.mode = 0o664, Some("written by others (mode 0664)"), Some("written by")),
            (
                |_, s| (s.kind, s.mode) = (FileKind::Link, 0o777),
                Some("a symbolic"),
                Some("a symbolic"),
            ),
        ];
        for (row, (change, by_default, chosen)) in rows.into_iter().enumerate() {
            for (chosen_by, expected) in [(None, by_default), (Some(1000), chosen)] {
                let mut snapshot = healthy().snapshot;
                snapshot.chosen_by = chosen_by;
                let mut folders = folders("/var/lib/roster/snap");
                change(&mut folders, state(&mut snapshot));
                snapshot.parents = folders;
                let found = check_trust("test", &snapshot);
                let text: Vec<_> = found.iter().map(|finding| &*finding.message).collect();
                match expected {
                    None => assert!(text.is_empty(), "row {row}, {chosen_by:?}: {text:#?}"),
                    Some(part) => {
                        assert!(text[0].contains(part), "row {row}, {chosen_by:?}: {text:#?}");
                    }
                }
            }
        }
    }

    #[test]
    fn floor_other_than_configured_is_problem() {
        use FindingLevel::{Ok as Well, Problem};
        let floor = |min_id, gids: &[u32]| Floor::new(min_id, gids.iter().copied()).unwrap();
        let not_root = "belongs to uid 902, not to root".to_owned();
        let lacks = "does not exist: programs accept ids from 1000 on, and /etc/roster/roster.toml \
                     has ids from 500 on and primary gids 100";
        let differs = "/etc/roster/floor has ids from 500 on, and";
        for (found, configured, expected) in [
            (Ok(None), None, None),
            (Ok(Some(floor(500, &[]))), None, None),
            (Ok(None), Some(floor(1000, &[])), Some((Well, "programs accept ids from 1000 on"))),
            (Ok(None), Some(floor(500, &[100])), Some((Problem, lacks))),
            (
                Ok(Some(floor(500, &[20, 100]))),
                Some(floor(500, &[100, 20])),
                Some((Well, "ids from 500 on and primary gids 20, 100")),
            ),
            (Ok(Some(floor(500, &[]))), Some(floor(1000, &[])), Some((Problem, differs))),
            (Ok(Some(floor(500, &[]))), Some(floor(500, &[100])), Some((Problem, differs))),
            (Err(not_root), None, Some((Problem, "floor belongs to uid 902, not to root: of a"))),
        ] {
            let mut facts = healthy();
            facts.floors = FloorState { file: found, configured };
            let findings = floor_findings(&facts);
            let Some((level, part)) = expected else {
                assert!(findings.is_empty(), "{findings:#?}");
                continue;
            };
            assert_eq!((findings.len(), findings[0].level), (1, level), "{findings:#?}");
            assert!(findings[0].message.contains(part), "{findings:#?}");
        }
    }

    #[test]
    fn doctor_writable_parent_directory_is_own_finding() {
        let (level, message) = worst(|facts| facts.snapshot.parents[2].mode = 0o777);
        assert_eq!(level, FindingLevel::Problem);
        assert!(message.ends_with("because they can write to /var/lib"), "{message}");
        assert_worst(FindingLevel::Ok, "", |facts| facts.snapshot.parents[2].mode = 0o1777);
    }

    #[test]
    fn the_word_of_the_module_itself_counts() {
        let lookup = |outcome| {
            move |facts: &mut HostState| {
                facts.lookup = Some(TestLookup { user: "ann".to_owned(), outcome });
            }
        };
        assert_worst(FindingLevel::Ok, "", lookup(TestLookupOutcome::Found));
        assert_worst(
            FindingLevel::Problem,
            "passwd ann` finds nobody",
            lookup(TestLookupOutcome::NotFound),
        );
        assert_worst(
            FindingLevel::Problem,
            "passwd ann` hangs",
            lookup(TestLookupOutcome::TimedOut),
        );
        let failed = lookup(TestLookupOutcome::Failed("signal: 7 (SIGBUS)".to_owned()));
        assert_worst(FindingLevel::Problem, "to an answer: signal: 7", failed);
    }

    #[test]
    fn another_snapshot_by_the_environment_is_judged_by_the_stricter_rule() {
        let redirected = |path: &str, change: fn(&mut SnapshotLocation)| {
            let mut snapshot = healthy().snapshot;
            (snapshot.path, snapshot.chosen_by) = (PathBuf::from(path), Some(1000));
            change(&mut snapshot);
            move |facts: &mut HostState| facts.redirected = Some(snapshot)
        };
        let path = "/var/lib/roster/x.snap";
        assert_worst(FindingLevel::Warning, "ROSTER_SNAPSHOT=/var", redirected(path, |_| {}));
        assert_worst(FindingLevel::Problem, "no absolute path", redirected("x.snap", |_| {}));
        let loose = redirected(path, |snapshot| snapshot.parents[1].mode = 0o777);
        assert_worst(FindingLevel::Problem, "can write to /var (mode 0777)", loose);
        let missing = redirected(path, |snapshot| snapshot.state = ReadResult::Missing);
        assert_worst(FindingLevel::Problem, "x.snap does not exist", missing);
    }

    #[test]
    fn password_hashes_are_for_few() {
        let with_shadow = |facts: &mut HostState, change: fn(&mut SnapshotMetadata)| {
            facts.shadow.state = facts.snapshot.state.clone();
            let state = state(&mut facts.shadow);
            state.mode = 0o640;
            change(state);
        };
        assert_worst(FindingLevel::Ok, "", |facts| with_shadow(facts, |_| {}));
        assert_worst(FindingLevel::Ok, "", |facts| with_shadow(facts, |s| s.content = None));
        assert_worst(FindingLevel::Problem, "to everybody (mode 0644)", |facts| {
            with_shadow(facts, |s| s.mode = 0o644);
        });
        assert_worst(FindingLevel::Problem, "written by others (mode 0660)", |facts| {
            with_shadow(facts, |s| s.mode = 0o660);
        });
        // Nobody but root may write them, nor put others in their place.
        assert_worst(FindingLevel::Problem, "belongs to uid 902, not to root", |facts| {
            with_shadow(facts, |s| s.owner = 902);
        });
        assert_worst(
            FindingLevel::Problem,
            "shadow belongs to uid 902, who can replace",
            |facts| {
                with_shadow(facts, |_| {});
                facts.shadow.parents[4].owner = 902;
            },
        );
        assert_worst(FindingLevel::Problem, "shadow.v3.snap does not exist", |facts| {
            facts.nsswitch = ReadResult::Present(format!("{NSSWITCH}shadow: files roster\n"));
        });
    }

    #[test]
    fn what_interferes_is_named() {
        use FindingLevel::{Ok, Problem, Warning};
        let other = |name: &str| NscdServer::Other(name.to_owned());
        assert_worst(Warning, "unscd is running", |f| f.nscd = other("unscd"));
        assert_worst(Warning, "nscd is running", |f| f.nscd = other("nscd"));
        assert_worst(Ok, "", |f| f.nscd = other("nsncd"));
        assert_worst(Warning, "of Roster is there and does not answer", |f| {
            f.nscd = NscdServer::Silent { is_root: true };
        });
        assert_worst(Ok, "", |f| {
            f.nscd = NscdServer::Silent { is_root: false };
        });
        let maps = |figures: &str| NscdServer::Maps {
            figures: figures.to_owned(),
            processes_without_map: Vec::new(),
        };
        let served = "passwd: 5 entries in a map of 9 bytes\nsocket: 0 connections\n";
        assert_worst(Ok, "", |f| f.nscd = maps(served));
        assert_worst(Warning, "has no client of nscd", |f| {
            (f.nscd, f.has_nscd_client) = (maps(served), false);
        });
        let none = "passwd: no map; programs ask the name services themselves\n";
        assert_worst(Warning, "passwd: no map", |f| f.nscd = maps(none));
        let of_maps = |line: &str| maps(&format!("{served}{line}\n"));
        let beside = "maps: /run/roster-nscd has no file system of its own";
        assert_worst(Warning, beside, |f| f.nscd = of_maps(beside));
        let sent = "sent to the name services: sshd (uid 0) 1 times";
        assert_worst(Warning, sent, |f| f.nscd = of_maps(sent));
        let mut facts = healthy();
        let asked = "asked over the socket what a map has: busybox (uid 0) 4 times";
        facts.nscd = NscdServer::Maps {
            figures: format!("{served}{asked}\n"),
            processes_without_map: vec![
                "sshd (process 7)".to_owned(),
                "cron (process 9)".to_owned(),
            ],
        };
        let told: Vec<_> = check_all(&facts).into_iter().map(|finding| finding.message).collect();
        for part in ["what a map has: busybox", "no map: sshd (process 7), cron (process 9)"] {
            assert!(told.iter().any(|message| message.contains(part)), "{told:?}");
        }
        assert_worst(Problem, "AppArmor is on without our rules", |f| {
            f.security.apparmor = Some(false);
        });
        assert_worst(Ok, "", |f| f.security.apparmor = Some(true));
        let label = |label: &str, enforcing| {
            let label = Some(label.to_owned());
            move |facts: &mut HostState| facts.security.selinux = Some(Selinux { enforcing, label })
        };
        assert_worst(Ok, "", label("system_u:object_r:roster_var_lib_t:s0", true));
        assert_worst(Problem, "may not read it", label("system_u:object_r:var_lib_t:s0", true));
        assert_worst(Warning, "permissive", label("system_u:object_r:var_lib_t:s0", false));
        assert_worst(Problem, "2 denials within a day, the last:\n    one\n    two", |facts| {
            facts.security.denials = vec!["one".to_owned(), "two".to_owned()];
        });
        assert_worst(Warning, "once, when they start", |f| f.libc = Libc::Glibc(2, 31));
        assert_worst(Problem, "musl", |f| f.libc = Libc::Musl);
    }
}
