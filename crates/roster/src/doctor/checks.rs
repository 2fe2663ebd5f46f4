// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of `roster doctor`: findings from the state of the host. Pure: [`collect`](super::collect) reads the host,
//! and [`snapshot_checks`](super::snapshot_checks) has the checks of snapshot files.

use super::collect::{
    DaemonActivity, FileKind, FloorState, HostState, Libc, LoginState, NscdServer, ReadResult,
    SnapshotLocation, SnapshotMetadata, TestLookup, TestLookupOutcome,
};
use super::snapshot_checks::{JUST_NOW, check_snapshot, check_trust};
use crate::finding::{Finding, ok, problem, split_code, warning};
use crate::nsswitch_lines::{self, DatabaseLine, SERVICE, StatusAction};
use crate::output::{count_with_noun, duration};
use crate::paths::CONFIG;
use roster_messages::table::{host, status};
use roster_snapshot::Floor;
use roster_snapshot::floor::DEFAULT_MIN_ID;
use roster_snapshot_build::floor_file;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// First version of glibc that rereads nsswitch.conf in running programs.
const GLIBC_REREADS: (u32, u32) = (2, 33);

/// Denials in a finding. The log has the others.
const DENIALS_SHOWN: usize = 3;

/// Makes every check, in the order of a lookup: configuration, module, snapshot, then other programs and modules.
pub fn check_all(facts: &HostState) -> Vec<Finding> {
    let checks = [
        libc,
        kernel,
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
    const CHECK: &str = "libc";
    vec![match facts.libc {
        Libc::Glibc(major, minor) if (major, minor) >= GLIBC_REREADS => {
            let client = if facts.has_nscd_client { "with" } else { "without" };
            ok(CHECK, format!("glibc {major}.{minor}, {client} a client of nscd"))
        }
        Libc::Glibc(major, minor) => warning(
            CHECK,
            &host::GLIBC_READS_NSSWITCH_ONCE,
            format!("glibc {major}.{minor}: programs read nsswitch.conf only when they start"),
        ),
        Libc::Musl => {
            problem(CHECK, &host::LIBC_IS_MUSL, "the C library is musl, which has no name services")
        }
        Libc::Unknown => {
            warning(CHECK, &host::GLIBC_NOT_FOUND, "the library directories have no glibc")
        }
    }]
}

fn kernel(facts: &HostState) -> Vec<Finding> {
    let findings = facts.missing_kernel_features.iter().map(|feature| {
        let (name, version) = feature.name_and_version();
        let text = format!("the kernel has no {name} (Linux {version}): {}", feature.loss());
        warning("kernel", &status::KERNEL_FEATURE_MISSING, text)
    });
    findings.collect()
}

fn nsswitch(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "nsswitch";
    match &facts.nsswitch {
        ReadResult::Present(text) => nsswitch_text(text),
        ReadResult::Missing => vec![problem(
            CHECK,
            &host::NSSWITCH_MISSING,
            "/etc/nsswitch.conf does not exist: glibc uses its built-in defaults",
        )],
        ReadResult::Failed(why) => vec![problem(
            CHECK,
            &host::NSSWITCH_UNREADABLE,
            format!("/etc/nsswitch.conf cannot be read: {why}"),
        )],
    }
}

/// Checks whether, and in which order, glibc asks roster.
pub fn nsswitch_text(text: &str) -> Vec<Finding> {
    let entries = nsswitch_lines::parse(text);
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
            &host::SERVICE_NOT_NAMED,
            format!("nsswitch.conf: the {database} line does not name `{SERVICE}`"),
        )];
    };
    let line = entry.line;
    if let Some(found) = &entry.malformed {
        return vec![invalid_line(check, line, database, found)];
    }
    let mut findings = Vec::new();
    let hiding =
        entry.services[..ours].iter().find(|s| s.actions.on_not_found() == StatusAction::Return);
    if let Some(service) = hiding {
        findings.push(problem(
            check,
            &host::LOOKUP_ENDS_BEFORE_SERVICE,
            format!(
                "nsswitch.conf:{line}: {database}: `{} {}` ends each lookup before `{SERVICE}`",
                service.name, service.actions
            ),
        ));
    }
    match entry.local_position() {
        Some(local) if ours < local => findings.push(problem(
            check,
            &host::SERVICE_BEFORE_FILES,
            format!(
                "nsswitch.conf:{line}: {database}: `{SERVICE}` comes before `{}`: its entries can replace \
                 local accounts, including root",
                entry.services[local].name
            ),
        )),
        Some(_) => {}
        None => findings.push(problem(
            check,
            &host::FILES_NOT_NAMED,
            format!("nsswitch.conf:{line}: {database}: `files` is missing: programs find no local accounts"),
        )),
    }
    if findings.is_empty() {
        findings.extend(earlier_directory(check, database, entry, ours));
    }
    if findings.is_empty() {
        let names: Vec<_> = entry.services.iter().map(|service| &*service.name).collect();
        findings
            .push(ok(check, format!("nsswitch.conf asks for {database}: {}", names.join(", "))));
    }
    findings
}

/// Services of other software that serve the users of a directory.
const DIRECTORY_SERVICES: [&str; 4] = ["sss", "ldap", "winbind", "cache"];

/// Checks whether such a service answers before roster is asked.
fn earlier_directory(
    check: &'static str,
    database: &str,
    entry: &DatabaseLine,
    ours: usize,
) -> Option<Finding> {
    let service = entry.services[..ours].iter().find(|service| {
        DIRECTORY_SERVICES.contains(&&*service.name)
            && service.actions.on_success() == StatusAction::Return
    })?;
    let (line, name) = (entry.line, &service.name);
    let text = format!(
        "nsswitch.conf:{line}: {database}: `{name}` comes before `{SERVICE}`, and answers for its users"
    );
    Some(warning(check, &host::DIRECTORY_SERVICE_FIRST, text))
}

fn invalid_line(check: &'static str, line: usize, database: &str, found: &str) -> Finding {
    let text = format!("nsswitch.conf:{line}: {database}: glibc cannot parse `{found}`");
    problem(check, &host::NSSWITCH_LINE_INVALID, text)
}

/// Checks the initgroups line. Without that line glibc uses the group line and continues after every success, so there
/// is nothing to check.
fn initgroups(entries: &BTreeMap<String, DatabaseLine>) -> Vec<Finding> {
    const CHECK: &str = "nsswitch-initgroups";
    let Some(entry) = entries.get("initgroups") else { return Vec::new() };
    let place = format!("nsswitch.conf:{}: initgroups", entry.line);
    let Some(ours) = entry.position(SERVICE) else {
        return vec![problem(
            CHECK,
            &host::INITGROUPS_SERVICE_NOT_NAMED,
            format!("{place}: `{SERVICE}` is missing: users lack their groups of the snapshot"),
        )];
    };
    if let Some(found) = &entry.malformed {
        return vec![invalid_line(CHECK, entry.line, "initgroups", found)];
    }
    let mut findings = Vec::new();
    for service in &entry.services[..ours] {
        let name = &service.name;
        if service.actions.on_success() == StatusAction::Return {
            findings.push(
                problem(
                    CHECK,
                    &host::INITGROUPS_ENDS_ON_SUCCESS,
                    format!(
                        "{place}: users with a group in `{name}` lose all their groups of `{SERVICE}`"
                    ),
                )
                .advice(format!("Write `{name} [SUCCESS=continue]` on the initgroups line.")),
            );
        }
        if service.actions.on_not_found() == StatusAction::Return {
            findings.push(problem(
                CHECK,
                &host::INITGROUPS_ENDS_ON_NOTFOUND,
                format!(
                    "{place}: users without a group in `{name}` lose all their groups of `{SERVICE}`"
                ),
            ));
        }
    }
    if ours + 1 < entry.services.len()
        && entry.services[ours].actions.on_success() == StatusAction::Return
    {
        findings.push(warning(
            CHECK,
            &host::INITGROUPS_ENDS_AFTER_SERVICE,
            format!("{place}: users with a group in `{SERVICE}` get no groups of later services"),
        ));
    }
    let group = entries.get("group").map(|group| &*group.services).unwrap_or_default();
    for service in group.iter().filter(|service| entry.position(&service.name).is_none()) {
        let name = &service.name;
        findings.push(
            problem(
                CHECK,
                &host::INITGROUPS_SERVICE_MISSING,
                format!(
                    "{place}: `{name}` of the group line is missing: users lack their groups of `{name}`"
                ),
            )
            .advice(format!(
                "Add `{name}`, with [SUCCESS=continue] behind the service before it, or remove the \
                 initgroups line."
            )),
        );
    }
    if findings.is_empty() {
        findings.push(ok(CHECK, "nsswitch.conf asks every service for the groups of a user"));
    }
    findings
}

/// Checks whether programs can load the module.
pub fn module(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "module";
    let mut findings = Vec::new();
    for module in &facts.modules.files {
        let path = module.path.display();
        let finding = if module.machine.is_none() {
            let text = format!("{path} is not a library that this user can read");
            problem(CHECK, &host::MODULE_UNREADABLE, text)
        } else if facts.modules.machine.is_some() && module.machine != facts.modules.machine {
            let text = format!("{path} is built for another architecture");
            problem(CHECK, &host::MODULE_FOR_OTHER_MACHINE, text)
        } else if module.mode & 0o004 == 0 {
            problem(
                CHECK,
                &host::MODULE_NOT_PUBLIC,
                format!("{path} is not readable for all users (mode {:04o})", module.mode & 0o7777),
            )
            .advice(format!("Run `chmod a+r {path}`."))
        } else if module.needs_ldconfig {
            let text = format!("{path} is not in the cache of the dynamic linker");
            problem(CHECK, &host::MODULE_NOT_IN_LINKER_CACHE, text)
        } else {
            // The linker loads the first usable file. Findings about other copies do not matter.
            return vec![ok(CHECK, format!("module {path}"))];
        };
        findings.push(finding);
    }
    if findings.is_empty() {
        findings.push(problem(
            CHECK,
            &host::MODULE_MISSING,
            "libnss_roster.so.2 is in none of the library directories",
        ));
    }
    findings
}

/// Checks whether programs find, can read and accept the snapshot.
pub fn snapshot(facts: &HostState) -> Vec<Finding> {
    check_snapshot(&facts.snapshot, facts.now, is_mirrored(facts), true)
}

/// Returns whether rosterd publishes the snapshot.
fn is_mirrored(facts: &HostState) -> bool {
    !matches!(facts.daemon.config, ReadResult::Missing)
        || !matches!(facts.daemon.running, DaemonActivity::Unknown | DaemonActivity::No)
}

/// Checks rosterd, which publishes changes of directories into the snapshot.
fn daemon(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "daemon";
    let mut findings = Vec::new();
    match &facts.daemon.config {
        ReadResult::Present(Err(mistakes)) => {
            let first = mistakes.first().map(String::as_str).unwrap_or_default();
            let number = count_with_noun(mistakes.len() as u64, "mistake");
            let text = format!("{CONFIG} has {number}: {first}");
            findings.push(problem(CHECK, &host::CONFIGURATION_INVALID, text));
        }
        ReadResult::Failed(why) => {
            let text = format!("{CONFIG} cannot be read: {why}");
            findings.push(warning(CHECK, &host::CONFIGURATION_UNREADABLE, text));
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
                    _ => ": programs do not see changes of the directories".to_owned(),
                },
                ReadResult::Missing | ReadResult::Failed(_) => String::new(),
            };
            let text = format!("rosterd is configured but not running{stale}");
            findings.push(problem(CHECK, &host::DAEMON_STOPPED, text));
        }
        DaemonActivity::No => {}
        DaemonActivity::NotAllowed => {
            findings.push(ok(CHECK, "rosterd is running; run doctor as root for its status"));
        }
        DaemonActivity::Silent(finding) => findings.push(finding.clone()),
        DaemonActivity::Yes { snapshot, findings: own } => {
            findings.extend(own.iter().cloned());
            let elsewhere = snapshot.as_ref().filter(|path| **path != facts.snapshot.path);
            if let Some(path) = elsewhere {
                findings.push(problem(
                    CHECK,
                    &host::OTHER_SNAPSHOT_PUBLISHED,
                    format!(
                        "rosterd publishes {}, and programs read {}",
                        path.display(),
                        facts.snapshot.path.display()
                    ),
                ));
            }
            if findings.is_empty() {
                findings.push(ok(CHECK, "rosterd is running, and every directory is reachable"));
            }
        }
    }
    findings
}

/// Checks whether the PAM stacks and the configuration agree on logins.
fn logins(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "log-ins";
    let LoginState { domains, stack, missing, unverified } = &facts.logins;
    let finding = match (domains.as_deref(), stack, missing) {
        (_, Some(stack), Some(module)) => problem(
            CHECK,
            &host::PAM_MODULE_MISSING,
            format!("/etc/pam.d/{stack} names {module}, which is not installed"),
        ),
        (Some([]), Some(stack), None) => problem(
            CHECK,
            &host::NO_DOMAIN_WITH_LOGINS,
            format!("/etc/pam.d/{stack} names pam_roster.so, and no domain has `auth`"),
        ),
        (Some([domain, ..]), None, _) => warning(
            CHECK,
            &host::NO_STACK_WITH_MODULE,
            format!("{domain} has `auth`, and no stack in /etc/pam.d names pam_roster.so"),
        ),
        (Some([domain, ..]), Some(stack), None) => {
            ok(CHECK, format!("/etc/pam.d/{stack} names pam_roster.so, for users of {domain}"))
        }
        (None, Some(_), None) | (None | Some([]), None, _) => return Vec::new(),
    };
    let mut findings = vec![finding];
    // The findings of a running daemon include these.
    if !matches!(facts.daemon.running, DaemonActivity::Yes { .. }) {
        findings.extend(unverified.iter().map(|(domain, found)| {
            let text = format!("{domain}: {}", found.what);
            let finding = match found.is_refused {
                true => problem(CHECK, found.message, text),
                false => warning(CHECK, found.message, text),
            };
            finding.advice(found.instead.clone())
        }));
    }
    findings
}

/// Checks whether programs accept the ids that the publisher admits.
fn floor_findings(facts: &HostState) -> Vec<Finding> {
    check_floor(&facts.floors, Path::new(CONFIG))
}

/// Checks the floor of ids against the configuration in `config`.
pub fn check_floor(floors: &FloorState, config: &Path) -> Vec<Finding> {
    const CHECK: &str = "floor";
    let (name, config) = (floor_file::path().display(), config.display());
    let found = match &floors.file {
        Ok(found) => *found,
        Err(why) => {
            let text = format!("{name} {why}: programs accept ids from {DEFAULT_MIN_ID} on");
            return vec![problem(CHECK, &host::FLOOR_INVALID, text)];
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
    let (in_force, configured) = (shown(&in_force), shown(configured));
    vec![match found {
        _ if is_same => ok(CHECK, format!("programs accept {in_force}")),
        Some(_) => problem(
            CHECK,
            &host::FLOOR_DIFFERS,
            format!("{name} has {in_force}, and {config} has {configured}"),
        ),
        None => problem(
            CHECK,
            &host::FLOOR_MISSING,
            format!(
                "{name} does not exist: programs accept {in_force}, and {config} has {configured}"
            ),
        ),
    }]
}

/// Checks the result of a lookup by a program of this host.
fn lookup(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "lookup";
    let Some(TestLookup { user, outcome }) = &facts.lookup else { return Vec::new() };
    let command = format!("getent -s {SERVICE} passwd {user}");
    vec![match outcome {
        TestLookupOutcome::Found => ok(CHECK, format!("a lookup through the module finds {user}")),
        TestLookupOutcome::NotFound => problem(
            CHECK,
            &host::LOOKUP_FINDS_NO_USER,
            format!("`{command}` finds no user, although the snapshot has {user}"),
        )
        .advice(format!(
            "Fix the other findings. If there are none, check the module with `LD_DEBUG=libs {command}`."
        )),
        TestLookupOutcome::Failed(how) => {
            let text = format!("`{command}` ends without a result: {how}");
            problem(CHECK, &host::LOOKUP_FAILED, text)
        }
        TestLookupOutcome::TimedOut => {
            problem(CHECK, &host::LOOKUP_HANGS, format!("`{command}` does not end"))
                .advice(format!("Find the system call that blocks: `strace -f {command}`."))
        }
    }]
}

/// Checks the password hashes, which are optional and only for root and group shadow.
fn shadow(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "shadow";
    let SnapshotLocation { path, state, .. } = &facts.shadow;
    let name = path.display();
    let wanted = match &facts.nsswitch {
        ReadResult::Present(text) => {
            nsswitch_lines::parse(text).get("shadow").is_some_and(|e| e.position(SERVICE).is_some())
        }
        _ => false,
    };
    let state = match state {
        ReadResult::Present(state) => state,
        ReadResult::Missing if wanted => {
            let text = format!("the shadow line names `{SERVICE}`, and {name} does not exist");
            return vec![problem(CHECK, &host::SHADOW_MISSING, text)];
        }
        ReadResult::Missing => return Vec::new(),
        ReadResult::Failed(why) => {
            let text = format!("{name} cannot be examined: {why}");
            return vec![warning(CHECK, &host::SNAPSHOT_NOT_EXAMINED, text)];
        }
    };
    let mut findings = check_trust(CHECK, &facts.shadow);
    // `check_trust` reports write permissions.
    if state.kind == FileKind::File && state.mode & 0o107 & !0o022 != 0 {
        let text = format!("{name} is readable for all users (mode {:04o})", state.mode);
        let advice = format!("Run `chmod 640 {name}`, and change the passwords.");
        findings.push(problem(CHECK, &host::SHADOW_PUBLIC, text).advice(advice));
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
            findings.push(problem(CHECK, &host::SNAPSHOT_INVALID, format!("{name}: {why}")));
        }
        None if findings.is_empty() => findings.push(ok(
            CHECK,
            format!("{name}: mode {:04o}; run doctor as root to check its content", state.mode),
        )),
        _ => {}
    }
    findings
}

fn redirection(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "environment";
    let Some(snapshot) = &facts.redirected else { return Vec::new() };
    let path = snapshot.path.display();
    if !snapshot.path.is_absolute() {
        let text = format!("ROSTER_SNAPSHOT={path} is not an absolute path");
        return vec![problem(CHECK, &host::ENVIRONMENT_PATH_RELATIVE, text)];
    }
    let text = format!("ROSTER_SNAPSHOT={path}: programs of this shell read that file instead");
    let mut findings = vec![warning(CHECK, &host::ENVIRONMENT_NAMES_SNAPSHOT, text)];
    findings.extend(check_trust(CHECK, snapshot));
    let unusable = |text| problem(CHECK, &host::ENVIRONMENT_SNAPSHOT_UNUSABLE, text);
    match &snapshot.state {
        ReadResult::Missing => findings.push(unusable(format!("{path} does not exist"))),
        ReadResult::Failed(why)
        | ReadResult::Present(SnapshotMetadata { content: Some(Err(why)), .. }) => {
            findings.push(unusable(format!("{path}: {why}")));
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
        NscdServer::Silent { is_root: true } => {
            vec![warning(CHECK, &host::NSCD_NO_REPLY, "roster nscd: the server does not reply")]
        }
        NscdServer::Silent { is_root: false } => {
            vec![ok(CHECK, "roster nscd is running; run doctor as root for its status")]
        }
        NscdServer::Other(name) if name == "nsncd" => {
            vec![ok(CHECK, "nsncd is running; it caches no replies")]
        }
        NscdServer::Other(name) => {
            let text =
                format!("{name} is running and caches replies: changes can take minutes to appear");
            let advice = format!(
                "Stop {name}, or set `enable-cache passwd no` and `enable-cache group no` in \
                 /etc/nscd.conf. To see a change at once, run `{name} -i passwd` and `{name} -i group`."
            );
            vec![warning(CHECK, &host::NSCD_CACHES_REPLIES, text).advice(advice)]
        }
    }
}

/// Checks the statistics of roster nscd. A line that ends with a code is a fault.
fn maps(
    check: &'static str,
    figures: &str,
    without_map: &[String],
    has_client: bool,
) -> Vec<Finding> {
    let mut findings: Vec<_> = figures
        .lines()
        .map(|line| match split_code(line) {
            (text, Some(message)) => warning(check, message, format!("roster nscd: {text}")),
            (text, None) => ok(check, format!("roster nscd: {text}")),
        })
        .collect();
    if !without_map.is_empty() {
        findings.push(ok(
            check,
            format!(
                "roster nscd: programs that use the NSS module instead of a map: {}. They started \
                 before the server, were refused a map, or enumerate users",
                without_map.join(", "),
            ),
        ));
    }
    if !has_client {
        let text = "roster nscd: the C library has no client of nscd, so programs do not use it";
        findings.push(warning(check, &host::NSCD_NOT_USED, text));
    }
    findings
}

fn apparmor(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "apparmor";
    match facts.security.apparmor {
        None => Vec::new(),
        Some(true) => vec![ok(CHECK, "AppArmor allows confined programs to read the snapshot")],
        Some(false) => vec![problem(
            CHECK,
            &host::APPARMOR_RULES_MISSING,
            "AppArmor lacks the rules of Roster: confined programs do not see its users",
        )],
    }
}

fn selinux(facts: &HostState) -> Vec<Finding> {
    const CHECK: &str = "selinux";
    let Some(selinux) = &facts.security.selinux else { return Vec::new() };
    let label = selinux.label.as_deref().unwrap_or("none");
    if label.contains(":roster_var_lib_t:") {
        return vec![ok(CHECK, "SELinux: the label of /var/lib/roster is correct")];
    }
    let text = format!("SELinux: the label of /var/lib/roster is {label}, not roster_var_lib_t");
    let message = &host::SELINUX_LABEL_WRONG;
    vec![match selinux.enforcing {
        true => problem(CHECK, message, format!("{text}: confined programs cannot read it")),
        false => warning(CHECK, message, format!("{text}; SELinux is permissive")),
    }]
}

fn denials(facts: &HostState) -> Vec<Finding> {
    if facts.security.denials.is_empty() {
        return Vec::new();
    }
    let number = facts.security.denials.len();
    let shown = number.min(DENIALS_SHOWN);
    let lines = facts.security.denials[number - shown..].join("\n    ");
    let count = count_with_noun(number as u64, "denial");
    let text = format!("{count} within a day, the last:\n    {lines}");
    vec![problem("denials", &host::ACCESS_DENIALS, text)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::collect::{
        DaemonState, ElfMachine, NssModuleFile, NssModules, ParentDir, SecurityModules, Selinux,
        SnapshotContent,
    };
    use crate::doctor::kernel_features::KernelFeature;
    use crate::finding::FindingLevel;
    use roster_config::VerificationProblem;
    use roster_messages::Message;
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
            missing_kernel_features: Vec::new(),
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

    /// Returns the text of a finding with its code.
    fn coded(finding: &Finding) -> String {
        let code = finding.message.map_or(String::new(), |message| format!(" [{message}]"));
        format!("{}{code}", finding.text)
    }

    /// Returns the worst finding, with its code, of facts that are healthy but for one change.
    fn worst(change: impl FnOnce(&mut HostState)) -> (FindingLevel, String) {
        let mut facts = healthy();
        change(&mut facts);
        let findings = check_all(&facts).into_iter();
        let worst = findings.max_by_key(|finding| finding.level).unwrap();
        assert_eq!(worst.message.is_some(), worst.level > FindingLevel::Ok, "{worst}");
        (worst.level, coded(&worst))
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
        let stale = "not running: programs see the users and groups of 2 hours ago [RST-2044]";
        assert_worst(FindingLevel::Problem, stale, configured);
        let (level, message) = worst(|facts| {
            configured(facts);
            facts.snapshot.state = ReadResult::Missing;
        });
        assert!(level == FindingLevel::Problem && message.contains(host::DAEMON_STOPPED.code));
        assert!(!check_all(&healthy()).iter().any(|finding| finding.check == "daemon"));
    }

    #[test]
    fn a_configuration_that_the_daemon_would_refuse_is_a_problem() {
        let mistakes = ["roster.toml:3: x".to_owned(), "roster.toml:4: y".to_owned()];
        assert_worst(
            FindingLevel::Problem,
            "has 2 mistakes: roster.toml:3: x [RST-2042]",
            |facts| {
                facts.daemon.config = ReadResult::Present(Err(mistakes.to_vec()));
                facts.daemon.running = DaemonActivity::NotAllowed;
            },
        );
    }

    #[test]
    fn doctor_unreadable_configuration_warns() {
        assert_worst(FindingLevel::Warning, host::CONFIGURATION_UNREADABLE.code, |facts| {
            facts.daemon.config = ReadResult::Failed("Permission denied".to_owned());
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
        assert!(daemon(&facts)[0].text.contains("every directory is reachable"));
        let offline = problem("daemon", &status::DOMAIN_OFFLINE, "corp is offline");
        facts.daemon.running =
            running("/var/lib/roster/snap/roster.v3.snap", vec![offline.clone()]);
        assert_eq!(daemon(&facts), [offline]);
        facts.daemon.running = running("/tmp/state/roster.v3.snap", Vec::new());
        assert!(daemon(&facts)[0].text.contains("publishes /tmp/state/roster.v3.snap"));
        assert_eq!(daemon(&facts)[0].message, Some(&host::OTHER_SNAPSHOT_PUBLISHED));
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
        assert_worst(FindingLevel::Warning, host::NO_STACK_WITH_MODULE.code, |f| {
            f.logins = log_ins(&corp, &None, false);
        });
        let nobodys = Some(Vec::new());
        assert_worst(FindingLevel::Problem, host::NO_DOMAIN_WITH_LOGINS.code, |f| {
            f.logins = log_ins(&nobodys, &stack, false);
        });
        for domains in [&corp, &nobodys, &None] {
            assert_worst(FindingLevel::Problem, host::PAM_MODULE_MISSING.code, |f| {
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
        let text = "corp: KDCs are not verified [RST-1119]";
        assert_worst(FindingLevel::Warning, text, |facts| {
            unverified(facts, false);
        });
        assert_worst(FindingLevel::Problem, text, |facts| {
            unverified(facts, true);
        });
        let mut facts = healthy();
        unverified(&mut facts, true);
        facts.daemon.running = DaemonActivity::Yes { snapshot: None, findings: Vec::new() };
        assert!(logins(&facts).iter().all(|finding| finding.level == FindingLevel::Ok));
    }

    #[test]
    fn a_healthy_host_has_nothing_but_good_findings() {
        let findings = check_all(&healthy());
        let text: Vec<_> = findings.iter().map(coded).collect();
        assert!(findings.iter().all(|finding| finding.level == FindingLevel::Ok), "{text:#?}");
        assert_eq!(
            text,
            [
                "glibc 2.36, with a client of nscd",
                "nsswitch.conf asks for passwd: files, roster",
                "nsswitch.conf asks for group: files, roster",
                "nsswitch.conf asks every service for the groups of a user",
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
            (Problem, "the passwd line does not name `roster` [RST-2006]", "passwd: files"),
            (Problem, "the group line does not name `roster` [RST-2006]", "group: files"),
            (Problem, "passwd: `roster` comes before `files`", "passwd: roster files"),
            (
                Problem,
                "ends each lookup before `roster` [RST-2008]",
                "passwd: files [NOTFOUND=return] roster",
            ),
            (
                Problem,
                "ends each lookup before `roster` [RST-2008]",
                "passwd: sss [!SUCCESS=return] files roster",
            ),
            (
                Problem,
                "passwd: `files` is missing: programs find no local accounts [RST-2010]",
                "passwd: roster",
            ),
            (
                Problem,
                "glibc cannot parse `[NOPE=return]` [RST-2007]",
                "passwd: files roster [NOPE=return]",
            ),
            (Problem, "users lack their groups of the snapshot [RST-2011]", "initgroups: files"),
            (
                Problem,
                "with a group in `files` lose all their groups of `roster` [RST-2012]",
                "initgroups: files roster",
            ),
            (
                Problem,
                "without a group in `files` lose all their groups of `roster` [RST-2013]",
                "initgroups: files [SUCCESS=continue NOTFOUND=return] roster",
            ),
            (
                Warning,
                "get no groups of later services [RST-2014]",
                "initgroups: files [SUCCESS=continue] roster systemd",
            ),
            (Ok, "", "passwd: files [UNAVAIL=return] roster sss"),
            (
                Warning,
                "passwd: `sss` comes before `roster`, and answers for its users [RST-2065]",
                "passwd: sss files roster",
            ),
            (
                Warning,
                "group: `ldap` comes before `roster`, and answers for its users [RST-2065]",
                "group: files ldap roster\ninitgroups: files [SUCCESS=continue] ldap [SUCCESS=continue] roster",
            ),
            (Ok, "", "passwd: sss [SUCCESS=continue] files roster"),
            (
                Problem,
                "`sss` of the group line is missing: users lack their groups of `sss` [RST-2015]",
                "group: files roster sss",
            ),
            (Ok, "", "group: files [SUCCESS=merge] roster"),
        ] {
            // The last of two lines for one database is in force.
            let text = format!("{NSSWITCH}{lines}\n");
            assert_worst(level, part, |facts| facts.nsswitch = ReadResult::Present(text));
        }
        let (lookups, _) = NSSWITCH.split_once("initgroups").unwrap();
        assert_worst(Ok, "", |facts| {
            facts.nsswitch = ReadResult::Present(lookups.to_owned());
        });
        assert_worst(Problem, host::NSSWITCH_MISSING.code, |facts| {
            facts.nsswitch = ReadResult::Missing;
        });
        assert_worst(Problem, host::NSSWITCH_UNREADABLE.code, |facts| {
            facts.nsswitch = ReadResult::Failed("Permission denied".to_owned());
        });
    }

    #[test]
    fn a_module_that_cannot_be_loaded_is_a_problem() {
        use FindingLevel::Problem;
        assert_worst(Problem, host::MODULE_MISSING.code, |facts| {
            facts.modules.files.clear();
        });
        assert_worst(Problem, host::MODULE_FOR_OTHER_MACHINE.code, |facts| {
            facts.modules.files[0].machine = Some(ElfMachine(1, 3));
        });
        assert_worst(Problem, host::MODULE_UNREADABLE.code, |facts| {
            facts.modules.files[0].machine = None;
        });
        assert_worst(Problem, "(mode 0600) [RST-2018]", |facts| {
            facts.modules.files[0].mode = 0o600;
        });
        assert_worst(Problem, host::MODULE_NOT_IN_LINKER_CACHE.code, |facts| {
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
        assert_worst(Problem, host::SNAPSHOT_NOT_COMPILED.code, |f| {
            f.snapshot.state = ReadResult::Missing;
        });
        assert_worst(Problem, host::SNAPSHOT_NOT_PUBLISHED.code, |f| {
            f.snapshot.state = ReadResult::Missing;
            f.daemon.running = DaemonActivity::NotAllowed;
        });
        assert_worst(Problem, "through /var/lib/roster [RST-2024]", |f| {
            f.snapshot.parents[3].mode = 0o700;
        });
        for (part, change) in [
            ("(mode 0600) [RST-2025]", (|s| s.mode = 0o600) as fn(&mut SnapshotMetadata)),
            ("roster.v3.snap: cut [RST-2026]", |s| s.content = Some(Err("cut".to_owned()))),
            (host::SNAPSHOT_ACCESS_DENIED.code, |s| s.content = None),
        ] {
            assert_worst(Problem, part, |facts| change(state(&mut facts.snapshot)));
        }
        assert_worst(Problem, host::PUBLISHED_SNAPSHOT_INVALID.code, |facts| {
            facts.daemon.running = DaemonActivity::NotAllowed;
            state(&mut facts.snapshot).content = Some(Err("cut".to_owned()));
        });
        let failed = || ReadResult::Failed("Permission denied".to_owned());
        assert_worst(Problem, host::SNAPSHOT_NOT_EXAMINED.code, |f| f.snapshot.state = failed());
        assert_worst(FindingLevel::Warning, host::SNAPSHOT_NOT_EXAMINED.code, |facts| {
            facts.shadow.state = failed();
        });
        // A user without access to the directory sees only this finding.
        let mut facts = healthy();
        facts.snapshot.state = ReadResult::Failed("Permission denied".to_owned());
        facts.snapshot.parents[3].mode = 0o700;
        let findings = snapshot(&facts);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert!(findings[0].text.contains("through /var/lib/roster"), "{findings:#?}");
    }

    /// Rows: the difference, and the refusals of readers, in the default place and at the path in the
    /// environment of uid 1000.
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
            (
                |_, s| s.mode = 0o664,
                Some("can write to /var/lib/roster/snap/roster.v3.snap (mode 0664)"),
                Some("can write to"),
            ),
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
                let text: Vec<_> = found.iter().map(|finding| &*finding.text).collect();
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
    fn doctor_untrusted_paths_have_codes() {
        type Change = fn(&mut [ParentDir], &mut SnapshotMetadata);
        let rows: [(&Message, Change); 3] = [
            (&host::DIRECTORY_IS_LINK, |folders, _| folders[4].is_link = true),
            (&host::SNAPSHOT_NOT_A_FILE, |_, file| file.kind = FileKind::Other),
            (&host::DIRECTORY_OWNER_UNTRUSTED, |folders, _| folders[2].owner = 1001),
        ];
        for (message, change) in rows {
            let mut snapshot = healthy().snapshot;
            snapshot.chosen_by = Some(1000);
            let mut folders = folders("/var/lib/roster/snap");
            change(&mut folders, state(&mut snapshot));
            snapshot.parents = folders;
            let codes: Vec<_> =
                check_trust("test", &snapshot).iter().map(|finding| finding.message).collect();
            assert_eq!(codes, [Some(message)]);
        }
    }

    #[test]
    fn floor_other_than_configured_is_problem() {
        use FindingLevel::{Ok as Well, Problem};
        let floor = |min_id, gids: &[u32]| Floor::new(min_id, gids.iter().copied()).unwrap();
        let not_root = "belongs to uid 902, not to root".to_owned();
        let lacks = "does not exist: programs accept ids from 1000 on, and /etc/roster/roster.toml \
                     has ids from 500 on and primary gids 100 [RST-2041]";
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
            (
                Err(not_root),
                None,
                Some((
                    Problem,
                    "floor belongs to uid 902, not to root: programs accept ids from 1000 on [RST-2039]",
                )),
            ),
        ] {
            let mut facts = healthy();
            facts.floors = FloorState { file: found, configured };
            let findings = floor_findings(&facts);
            let Some((level, part)) = expected else {
                assert!(findings.is_empty(), "{findings:#?}");
                continue;
            };
            assert_eq!((findings.len(), findings[0].level), (1, level), "{findings:#?}");
            assert!(coded(&findings[0]).contains(part), "{findings:#?}");
        }
    }

    #[test]
    fn doctor_writable_parent_directory_is_own_finding() {
        let (level, message) = worst(|facts| facts.snapshot.parents[2].mode = 0o777);
        assert_eq!(level, FindingLevel::Problem);
        assert!(message.ends_with("can write to /var/lib [RST-2036]"), "{message}");
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
            host::LOOKUP_FINDS_NO_USER.code,
            lookup(TestLookupOutcome::NotFound),
        );
        assert_worst(
            FindingLevel::Problem,
            host::LOOKUP_HANGS.code,
            lookup(TestLookupOutcome::TimedOut),
        );
        let failed = lookup(TestLookupOutcome::Failed("signal: 7 (SIGBUS)".to_owned()));
        assert_worst(
            FindingLevel::Problem,
            "without a result: signal: 7 (SIGBUS) [RST-2050]",
            failed,
        );
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
        assert_worst(
            FindingLevel::Warning,
            host::ENVIRONMENT_NAMES_SNAPSHOT.code,
            redirected(path, |_| {}),
        );
        assert_worst(
            FindingLevel::Problem,
            host::ENVIRONMENT_PATH_RELATIVE.code,
            redirected("x.snap", |_| {}),
        );
        let loose = redirected(path, |snapshot| snapshot.parents[1].mode = 0o777);
        assert_worst(FindingLevel::Problem, "can write to /var (mode 0777)", loose);
        let missing = redirected(path, |snapshot| snapshot.state = ReadResult::Missing);
        assert_worst(FindingLevel::Problem, "x.snap does not exist [RST-2054]", missing);
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
        assert_worst(FindingLevel::Problem, "(mode 0644) [RST-2038]", |facts| {
            with_shadow(facts, |s| s.mode = 0o644);
        });
        assert_worst(FindingLevel::Problem, "(mode 0660): readers reject it [RST-2035]", |facts| {
            with_shadow(facts, |s| s.mode = 0o660);
        });
        // Only root may write or replace them.
        assert_worst(FindingLevel::Problem, "belongs to uid 902, not to root", |facts| {
            with_shadow(facts, |s| s.owner = 902);
        });
        assert_worst(
            FindingLevel::Problem,
            "shadow belongs to uid 902, which can replace",
            |facts| {
                with_shadow(facts, |_| {});
                facts.shadow.parents[4].owner = 902;
            },
        );
        assert_worst(FindingLevel::Problem, "shadow.v3.snap does not exist [RST-2037]", |facts| {
            facts.nsswitch = ReadResult::Present(format!("{NSSWITCH}shadow: files roster\n"));
        });
    }

    #[test]
    fn what_interferes_is_named() {
        use FindingLevel::{Ok, Problem, Warning};
        let other = |name: &str| NscdServer::Other(name.to_owned());
        assert_worst(Warning, "unscd is running and caches replies", |f| f.nscd = other("unscd"));
        assert_worst(Warning, host::NSCD_CACHES_REPLIES.code, |f| f.nscd = other("nscd"));
        assert_worst(Ok, "", |f| f.nscd = other("nsncd"));
        assert_worst(Warning, host::NSCD_NO_REPLY.code, |f| {
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
        assert_worst(Warning, host::NSCD_NOT_USED.code, |f| {
            (f.nscd, f.has_nscd_client) = (maps(served), false);
        });
        let none = "passwd: no map; programs ask their name services [RST-2057]\n";
        assert_worst(Warning, none.trim_end(), |f| f.nscd = maps(none));
        let of_maps = |line: &str| maps(&format!("{served}{line}\n"));
        let beside = "maps: /run/roster-nscd is not a dedicated file system [RST-2058]";
        assert_worst(Warning, beside, |f| f.nscd = of_maps(beside));
        let sent = "referred to the name services: sshd (uid 0) 1 times [RST-2060]";
        assert_worst(Warning, sent, |f| f.nscd = of_maps(sent));
        let mut facts = healthy();
        let asked = "socket lookups of entries that a map has: busybox (uid 0) 4 times";
        facts.nscd = NscdServer::Maps {
            figures: format!("{served}{asked}\n"),
            processes_without_map: vec![
                "sshd (process 7)".to_owned(),
                "cron (process 9)".to_owned(),
            ],
        };
        let told: Vec<_> = check_all(&facts).iter().map(coded).collect();
        for part in
            ["that a map has: busybox", "instead of a map: sshd (process 7), cron (process 9)"]
        {
            assert!(told.iter().any(|text| text.contains(part)), "{told:?}");
        }
        assert_worst(Problem, host::APPARMOR_RULES_MISSING.code, |f| {
            f.security.apparmor = Some(false);
        });
        assert_worst(Ok, "", |f| f.security.apparmor = Some(true));
        let label = |label: &str, enforcing| {
            let label = Some(label.to_owned());
            move |facts: &mut HostState| facts.security.selinux = Some(Selinux { enforcing, label })
        };
        assert_worst(Ok, "", label("system_u:object_r:roster_var_lib_t:s0", true));
        assert_worst(
            Problem,
            "cannot read it [RST-2063]",
            label("system_u:object_r:var_lib_t:s0", true),
        );
        assert_worst(Warning, "permissive", label("system_u:object_r:var_lib_t:s0", false));
        assert_worst(
            Problem,
            "2 denials within a day, the last:\n    one\n    two [RST-2064]",
            |facts| {
                facts.security.denials = vec!["one".to_owned(), "two".to_owned()];
            },
        );
        assert_worst(Warning, host::GLIBC_READS_NSSWITCH_ONCE.code, |f| {
            f.libc = Libc::Glibc(2, 31);
        });
        assert_worst(Warning, host::GLIBC_NOT_FOUND.code, |f| f.libc = Libc::Unknown);
        assert_worst(Problem, host::LIBC_IS_MUSL.code, |f| f.libc = Libc::Musl);
    }

    #[test]
    fn kernel_without_feature_named_with_loss() {
        let code = status::KERNEL_FEATURE_MISSING.code;
        let found = worst(|facts| facts.missing_kernel_features = vec![KernelFeature::Landlock]);
        assert_eq!(found.0, FindingLevel::Warning);
        for part in ["no Landlock (Linux 5.13)", "nothing from TCP ports", code] {
            assert!(found.1.contains(part), "{found:?}");
        }
    }
}
