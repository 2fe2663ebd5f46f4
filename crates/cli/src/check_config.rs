//! `roster check-config`: what rosterd would say of its configuration, before it reads it.

use crate::cli::{CheckConfig, STATE_DIR};
use crate::terminal::{counted, lossy};
use crate::unserved::Comparison;
use anyhow::{Result, bail};
use roster_config::explain::{Origin, Setting, explain};
use roster_config::{Parsed, Problem, Provider, Severity, parse};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Checks the file and those that it names. `true`: rosterd would run by it.
pub fn run(args: &CheckConfig, out: &mut dyn Write) -> Result<bool> {
    let file = &args.file;
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if args.json => {
            writeln!(
                out,
                "{:#}",
                json!({"file": lossy(file), "ok": false, "error": unread(file, &error)})
            )?;
            return Ok(false);
        }
        Err(error) => bail!(unread(file, &error)),
    };
    let (parsed, mut problems) = match std::str::from_utf8(&text) {
        Ok(text) => check(text, &args.bus.run_dir),
        Err(error) => (None, vec![no_text(&text, error.valid_up_to())]),
    };
    problems.splice(0..0, changeable(file));
    let config = parsed.as_ref().map(|parsed| &parsed.config);
    let unserved = config.map(|config| Comparison::new(config, &args.snapshot)).unwrap_or_default();
    problems.extend(unserved.warnings());
    let well = problems.iter().all(|problem| problem.severity < Severity::Refusal);
    if args.json {
        writeln!(out, "{:#}", as_json(args, well, parsed.as_ref(), &problems, &unserved))?;
        return Ok(well);
    }
    for problem in &problems {
        writeln!(out, "{}", problem.render(file))?;
    }
    if let (Some(parsed), true) = (&parsed, args.explain) {
        out.write_all(explain(&parsed.settings).as_bytes())?;
    } else {
        writeln!(out, "{}", verdict(file, parsed.as_ref(), &problems))?;
    }
    Ok(well)
}

/// Why there is nothing to check, and what to do.
fn unread(file: &Path, error: &io::Error) -> String {
    let file = file.display();
    match error.kind() {
        ErrorKind::NotFound => {
            format!(
                "there is no configuration {file}: write one, as roster.toml(5) shows, or name another"
            )
        }
        ErrorKind::PermissionDenied => {
            format!("cannot read the configuration {file}: {error}; run this as root")
        }
        _ => format!("cannot read the configuration {file}: {error}"),
    }
}

/// Bytes that are no text begin there.
fn no_text(text: &[u8], at: usize) -> Problem {
    let line_start = text[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let line = text[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
    Problem {
        severity: Severity::Error,
        line,
        column: String::from_utf8_lossy(&text[line_start..at]).chars().count() + 1,
        key: String::new(),
        what: "is not text in UTF-8".to_owned(),
        instead: Some("save the file as UTF-8".to_owned()),
    }
}

/// Warnings about files of a domain's entries: one that is missing, for a mount may come later, and one that the
/// backend refuses to read.
fn sources(parsed: &Parsed) -> Vec<Problem> {
    let mut found = Vec::new();
    for domain in &parsed.config.domains {
        let Provider::Files(files) = &domain.provider else { continue };
        let table = format!("domain.{}", domain.name);
        for (key, path) in [("passwd", &files.passwd), ("group", &files.group)] {
            let is_missing =
                fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
            let (what, instead) = if is_missing {
                let what = format!("there is no file {}", path.display());
                (what, "the domain is read when it is there".to_owned())
            } else if let Err((what, instead)) = roster_config::check_ownership(path) {
                (format!("the domain is not read: {what}"), instead)
            } else {
                continue;
            };
            let is_it = |set: &&Setting| set.table == table && set.key == key;
            let line = match parsed.settings.iter().find(is_it).map(|set| set.origin) {
                Some(Origin::Line(line)) => line,
                _ => 0,
            };
            found.push(Problem {
                severity: Severity::Warning,
                line,
                column: 1,
                key: format!("{table}.{key}"),
                what,
                instead: Some(instead),
            });
        }
    }
    found
}

/// The error that a user other than root could change the configuration.
fn changeable(file: &Path) -> Option<Problem> {
    let (what, instead) = roster_config::check_ownership(file).err()?;
    let (severity, key) = (Severity::Error, String::new());
    Some(Problem { severity, line: 0, column: 1, key, what, instead: Some(instead) })
}

/// What the text means, and what is wrong with it or with the files that it names, by line.
fn check(text: &str, run_dir: &Path) -> (Option<Parsed>, Vec<Problem>) {
    match parse(text) {
        Ok(parsed) => {
            let mut problems = parsed.warnings.clone();
            let was_used = roster_config::was_keytab_used(Path::new(STATE_DIR));
            problems.extend(parsed.read_secrets(was_used).err().unwrap_or_default());
            problems.extend(parsed.check_keytabs(was_used));
            problems.extend(parsed.warn_of_authorities(roster_config::host_anchors));
            problems.extend(too_long(&parsed, run_dir));
            problems.extend(sources(&parsed));
            problems.sort_by_key(|problem| problem.line);
            (Some(parsed), problems)
        }
        Err(problems) => (None, problems),
    }
}

/// What is wrong with the first domain on demand if there is no room for the path of the socket.
fn too_long(parsed: &Parsed, run_dir: &Path) -> Option<Problem> {
    let run_dir = std::path::absolute(run_dir).ok()?;
    let what = parsed.config.responder(&run_dir).err()?;
    let setting = parsed
        .settings
        .iter()
        .find(|set| set.key == "mode" && set.value.as_deref() == Some("\"on-demand\""));
    let line = match setting?.origin {
        Origin::Line(line) => line,
        Origin::Default | Origin::Follows(_) => 0,
    };
    let key = format!("{}.mode", setting?.table);
    Some(Problem { severity: Severity::Error, line, column: 1, key, what, instead: None })
}

fn verdict(file: &Path, parsed: Option<&Parsed>, problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|problem| problem.severity > Severity::Warning).count();
    let warnings = counted((problems.len() - errors) as u64, "warning");
    let file = file.display();
    match (parsed, errors) {
        (Some(parsed), 0) => {
            let names: Vec<_> = parsed.config.domains.iter().map(|d| &*d.name).collect();
            let domains = counted(names.len() as u64, "domain");
            let but = if problems.is_empty() { String::new() } else { format!(", {warnings}") };
            format!("{file}: well, {domains} ({}){but}", names.join(", "))
        }
        _ => {
            let and =
                if problems.len() > errors { format!(" and {warnings}") } else { String::new() };
            let worst = problems.iter().map(|problem| problem.severity).max();
            let effect = match worst {
                Some(Severity::Refusal) => "rosterd would refuse logins",
                _ => "rosterd would not use it",
            };
            format!("{file}: {}{and}; {effect}", counted(errors as u64, "error"))
        }
    }
}

fn as_json(
    args: &CheckConfig,
    well: bool,
    parsed: Option<&Parsed>,
    problems: &[Problem],
    unserved: &Comparison,
) -> Value {
    let (warnings, errors): (Vec<_>, Vec<_>) =
        problems.iter().partition(|problem| problem.severity == Severity::Warning);
    let of = |found: Vec<&Problem>| found.into_iter().map(problem_json).collect::<Vec<_>>();
    let mut report = json!({
        "file": lossy(&args.file),
        "ok": well,
        "errors": of(errors),
        "warnings": of(warnings),
        "unserved": unserved.json(),
    });
    if let (Some(parsed), true) = (parsed, args.explain) {
        report["settings"] = parsed.settings.iter().map(setting_json).collect();
    }
    report
}

fn problem_json(problem: &Problem) -> Value {
    json!({
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "message": problem.what,
        "instead": problem.instead,
    })
}

fn setting_json(setting: &Setting) -> Value {
    let line = match setting.origin {
        Origin::Line(line) => Some(line),
        Origin::Default | Origin::Follows(_) => None,
    };
    json!({
        "table": setting.table,
        "key": setting.key,
        "value": setting.value,
        "line": line,
        "origin": setting.origin.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::OnBus;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    const WELL: &str = "[host]\ndomains = ['lab']\n[domain.lab]\nprovider = 'files'\n\
                        passwd = '/dev/null'\ngroup = '/dev/zero'\n";

    fn printed(text: &str, explain: bool, json: bool) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        fs::write(&file, text).unwrap();
        let mut out = Vec::new();
        let bus = OnBus { run_dir: PathBuf::from("/run/roster") };
        let args =
            CheckConfig { file: file.clone(), explain, json, snapshot: "/no/snapshot".into(), bus };
        let well = run(&args, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        (well, text.replace(&format!("{}/", folder.path().display()), ""))
    }

    #[test]
    fn a_good_file_is_said_to_be_well() {
        assert_eq!(
            printed(WELL, false, false),
            (true, "roster.toml: well, 1 domain (lab)\n".to_owned())
        );
        let old = format!("{WELL}[domain.old]\nprovider = 'files'\npasswd = '/a'\ngroup = '/b'\n");
        assert_eq!(
            printed(&old, false, false),
            (
                true,
                "roster.toml:7: warning: domain.old: is not used; name it in domains of [host], or \
                 remove this table\nroster.toml: well, 1 domain (lab), 1 warning\n"
                    .to_owned()
            )
        );
    }

    #[test]
    fn mistakes_in_text_and_in_named_files_fail() {
        let (well, text) = printed(&WELL.replace("files", "file"), false, false);
        assert!(!well);
        assert_eq!(
            text,
            "roster.toml:4: domain.lab.provider: \"file\" is not a provider; did you mean \
             \"files\"?\nroster.toml: 1 error; rosterd would not use it\n"
        );
        let ldap = "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\n\
                    uris = ['ldaps://x']\nbase = 'dc=x'\ntls_ca = '/no/such/file'\n";
        let (well, text) = printed(ldap, false, false);
        assert!(
            !well && text.starts_with("roster.toml:7: domain.corp.tls_ca: cannot read"),
            "{text}"
        );
    }

    #[test]
    fn check_config_unverified_kdcs_reported() {
        let krb5 = |keys: &str| {
            let keytab = "krb5_keytab = '/no/such/keytab'";
            let realm = "krb5_realm = 'LAB.TEST'\nkrb5_kdcs = ['kdc']";
            format!("{WELL}auth = 'krb5'\n{realm}\n{keytab}\n{keys}")
        };
        let (well, text) = printed(&krb5(""), false, false);
        assert!(!well, "{text}");
        assert!(
            text.starts_with(
                "roster.toml:10: domain.lab.krb5_keytab: logins are refused: cannot read \
                 /no/such/keytab: No such file"
            ) && text.ends_with("roster.toml: 1 error; rosterd would refuse logins\n"),
            "{text}"
        );
        let (_, text) = printed(&krb5(""), false, true);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["ok"], false);
        assert_eq!(report["errors"][0]["key"], "domain.lab.krb5_keytab");
        for more in ["", "krb5_discover = true\n"] {
            let (well, text) =
                printed(&krb5(&format!("krb5_validate = 'off'\n{more}")), false, false);
            let warning =
                "roster.toml:11: warning: domain.lab.krb5_validate: KDCs are not verified";
            assert!(well && text.starts_with(warning), "{text}");
            assert!(text.ends_with("roster.toml: well, 1 domain (lab), 1 warning\n"), "{text}");
        }
    }

    #[test]
    fn what_it_explains_is_a_configuration() {
        let (well, text) = printed(WELL, true, false);
        assert!(well && text.starts_with("[host]\ndomains = [\"lab\"]"), "{text}");
        assert!(parse(&text).is_ok());
    }

    #[test]
    fn json_holds_lines_and_origins() {
        let (_, text) = printed(WELL, true, true);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&report["ok"], &report["settings"][0]["line"]), (&json!(true), &json!(2)));
        assert_eq!(report["settings"][1]["origin"], "default");
        let (_, text) = printed("[host]\n", false, true);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["errors"][0]["key"], "host.domains");
    }

    #[test]
    fn files_of_a_domain_that_are_not_there_are_a_warning() {
        let (well, text) = printed(&WELL.replace("/dev/zero", "/no/group"), false, false);
        assert!(well);
        assert!(
            text.starts_with(
                "roster.toml:6: warning: domain.lab.group: there is no file /no/group; the domain is \
                 read when it is there\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn check_config_changeable_files_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["passwd", "roster.toml"] {
            fs::write(path(name), WELL.replace("/dev/null", path("passwd").to_str().unwrap()))
                .unwrap();
        }
        let run = || {
            let bus = OnBus { run_dir: PathBuf::from("/run/roster") };
            let args = CheckConfig {
                file: path("roster.toml"),
                explain: false,
                json: false,
                snapshot: "/no/snapshot".into(),
                bus,
            };
            let mut out = Vec::new();
            let well = run(&args, &mut out).unwrap();
            let place = format!("{}/", folder.path().display());
            (well, String::from_utf8(out).unwrap().replace(&place, ""))
        };
        let set_mode = |name, mode| {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode("passwd", 0o666);
        let (well, text) = run();
        let expected = "roster.toml:5: warning: domain.lab.passwd: the domain is not read: passwd has \
                        mode 0666, by which other users can change it; check the content of passwd, then \
                        chmod go-w passwd\n";
        assert!(well && text.starts_with(expected), "{text}");
        set_mode("roster.toml", 0o666);
        let (well, text) = run();
        let expected = "roster.toml: roster.toml has mode 0666, by which other users can change it; \
                        check the content of roster.toml, then chmod go-w roster.toml\n";
        assert!(!well && text.starts_with(expected), "{text}");
        assert!(text.ends_with("1 error and 1 warning; rosterd would not use it\n"), "{text}");
    }

    #[test]
    fn what_is_no_text_has_a_line_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        fs::write(&file, b"[host]\n# caf\xe9\n").unwrap();
        let bus = OnBus { run_dir: PathBuf::from("/run/roster") };
        let mut out = Vec::new();
        let args =
            CheckConfig { file, explain: false, json: false, snapshot: "/no/snapshot".into(), bus };
        assert!(!run(&args, &mut out).unwrap());
        let problem = no_text("[host]\n# é\u{fffd}".as_bytes(), 11);
        assert_eq!((problem.line, problem.column), (2, 4));
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("roster.toml:2: is not text in UTF-8; save the file as"), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_json_too() {
        let bus = OnBus { run_dir: PathBuf::from("/run/roster") };
        let args = CheckConfig {
            file: "/no/such.toml".into(),
            explain: false,
            json: true,
            snapshot: "/no/snapshot".into(),
            bus,
        };
        let mut out = Vec::new();
        assert!(!run(&args, &mut out).unwrap());
        let report: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(report["ok"], false);
        assert!(report["error"].as_str().unwrap().starts_with("there is no configuration"));
        let denied = unread(Path::new("/x"), &ErrorKind::PermissionDenied.into());
        assert!(denied.ends_with("run this as root"), "{denied}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let bus = OnBus { run_dir: PathBuf::from("/run/roster") };
        let file = PathBuf::from("/no/such.toml");
        let args =
            CheckConfig { file, explain: false, json: false, snapshot: "/no/snapshot".into(), bus };
        let error = run(&args, &mut Vec::new()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with("there is no configuration /no/such.toml: write one"), "{error}");
    }

    #[test]
    fn a_socket_whose_path_no_snapshot_holds_is_an_error_of_the_domain_that_needs_it() {
        let text = "[host]\ndomains = ['far']\n[domain.far]\nprovider = 'ldap'\n\
                    mode = 'on-demand'\nuris = ['ldaps://x']\nbase = 'dc=x'\n";
        let errors = |run_dir: &str| {
            let (_, problems) = check(text, Path::new(run_dir));
            let errors = problems.into_iter().filter(|found| found.severity == Severity::Error);
            errors.map(|found| found.render(Path::new("roster.toml"))).collect::<Vec<_>>()
        };
        assert_eq!(errors("/run/roster"), [""; 0]);
        let [error] = &*errors(&format!("/{}", "x".repeat(76))) else { panic!("no error") };
        assert!(error.starts_with("roster.toml:5: domain.far.mode: /xxx"), "{error}");
        assert!(error.contains("choose a --run-dir with a shorter path"), "{error}");
    }
}
