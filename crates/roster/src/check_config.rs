// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster check-config`: the mistakes that rosterd would report about a configuration.
//!
//! `roster_config` finds the mistakes in the files. This module adds the checks that depend on the host, and prints the
//! report. It changes nothing, and asks no running rosterd.

use crate::args::CheckConfigArgs;
use crate::output::{count_with_noun, lossy};
use crate::paths::STATE_DIR;
use crate::unserved::UnservedEntries;
use anyhow::Result;
use roster_config::explain::{EffectiveSetting, ValueOrigin, explain};
use roster_config::{ConfigFiles, ParsedConfig, ProviderConfig, parse_files};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Severity};
use roster_sid::{SliceTable, TableMismatch, check_stored, slice_table_file};
use serde_json::{Value, json};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::SystemTime;

/// Checks the file, its drop-ins, and the files that they name. Returns whether rosterd would accept them.
pub fn run(args: &CheckConfigArgs, out: &mut dyn Write) -> Result<bool> {
    let file = &args.file;
    let files = match ConfigFiles::read(file).map_err(CodedError::from) {
        Ok(files) => files,
        Err(error) if args.json => {
            writeln!(out, "{:#}", unreadable_json(file, &error))?;
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    let credentials = roster_config::credentials_directory();
    let (parsed, mut problems) = check(&files, &args.bus.run_dir, credentials.as_deref());
    problems.splice(0..0, files.check_ownership());
    let config = parsed.as_ref().map(|parsed| &parsed.config);
    let unserved =
        config.map(|config| UnservedEntries::new(config, &args.snapshot)).unwrap_or_default();
    problems.extend(unserved.warnings(file));
    let well = problems.iter().all(|problem| problem.severity < Severity::Refusal);
    if args.json {
        writeln!(out, "{:#}", as_json(args, &files, well, parsed.as_ref(), &problems, &unserved))?;
        return Ok(well);
    }
    for problem in &problems {
        writeln!(out, "{problem}")?;
    }
    if let (Some(parsed), true) = (&parsed, args.explain) {
        out.write_all(explain(&parsed.settings).as_bytes())?;
    } else {
        writeln!(out, "{}", summary(file, parsed.as_ref(), &problems))?;
    }
    Ok(well)
}

fn unreadable_json(file: &Path, error: &CodedError) -> Value {
    json!({
        "file": lossy(file),
        "ok": false,
        "error": error.text,
        "fix": error.fix.as_deref().unwrap_or(error.message.fix),
        "code": error.message.code,
    })
}

/// Returns warnings about files of the `files` provider: a missing one, because its mount may be late, and one that the
/// backend refuses to read.
fn source_warnings(parsed: &ParsedConfig) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for domain in &parsed.config.domains {
        let ProviderConfig::Files(files) = &domain.provider else { continue };
        let table = format!("domain.{}", domain.name);
        for (key, path) in [("passwd", &files.passwd), ("group", &files.group)] {
            let is_missing =
                fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
            let error = if is_missing {
                let text = format!("the file {} does not exist", path.display());
                CodedError::new(&codes::SOURCE_FILE_MISSING, text)
            } else if let Err(error) = roster_config::check_ownership(path) {
                CodedError { text: format!("the domain is not read: {}", error.text), ..error }
            } else {
                continue;
            };
            found.push(parsed.value_diagnostic(Severity::Warning, (&table, key), error));
        }
    }
    found
}

/// Returns errors about stored slices of ids that the configuration contradicts, and about slices that two domains have
/// stored. Files that this user cannot read are left out.
fn stored_slice_errors(parsed: &ParsedConfig, state_dir: &Path) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut known: Vec<(&str, SliceTable)> = Vec::new();
    for domain in &parsed.config.domains {
        let Some(mapping) = domain.sid_mapping() else { continue };
        let directory = state_dir.join("domains").join(&domain.name);
        let Ok(Some(stored)) = slice_table_file::read(&directory) else { continue };
        let table = domain.table_path();
        let file = directory.join(slice_table_file::FILE_NAME);
        let mismatch = mapping.range().map(|range| check_stored(&stored, range, mapping.slice));
        if let Ok(Err(mismatch)) = mismatch {
            let key = match mismatch {
                TableMismatch::Slice { .. } => "id_slice",
                _ => "id_mapping",
            };
            let text = format!("{}: {mismatch}", file.display());
            let error = CodedError::new(&codes::ID_TABLE_DISAGREES, text);
            found.push(parsed.value_diagnostic(Severity::Error, (&table, key), error));
        }
        for (other, theirs) in &known {
            let Some((ours, theirs)) = stored.shared_slices(theirs) else { continue };
            let text = format!(
                "{}: stored line {ours:?} and line {theirs:?} of domain {other} have the same ids",
                file.display()
            );
            let error = CodedError::new(&codes::ID_SLICES_OVERLAP, text);
            found.push(parsed.value_diagnostic(Severity::Error, (&table, "id_mapping"), error));
        }
        known.push((&domain.name, stored));
    }
    found
}

/// Returns the configuration, and all mistakes in it and in the files that it names, by line.
fn check(
    files: &ConfigFiles,
    run_dir: &Path,
    credentials: Option<&Path>,
) -> (Option<ParsedConfig>, Vec<Diagnostic>) {
    match parse_files(files) {
        Ok(parsed) => {
            let mut problems = parsed.warnings.clone();
            let was_used = roster_config::was_keytab_used(Path::new(STATE_DIR));
            problems.extend(secret_problems(&parsed, was_used, credentials));
            problems.extend(parsed.check_overrides());
            problems.extend(parsed.warn_missing_authorities(roster_config::host_anchors));
            problems.extend(socket_path_error(&parsed, run_dir));
            problems.extend(source_warnings(&parsed));
            problems.extend(stored_slice_errors(&parsed, Path::new(STATE_DIR)));
            parsed.sort(&mut problems);
            (Some(parsed), problems)
        }
        Err(problems) => (None, problems),
    }
}

/// Returns the defects of files with secrets. Without `credentials` this process is not the service, and a credential is
/// only a warning.
fn secret_problems(
    parsed: &ParsedConfig,
    was_used: bool,
    credentials: Option<&Path>,
) -> Vec<Diagnostic> {
    let mut problems = parsed.read_secrets(was_used, credentials).err().unwrap_or_default();
    problems.extend(parsed.check_keytabs(was_used, credentials));
    problems.extend(parsed.check_client_certificates(SystemTime::now(), credentials));
    if credentials.is_some() {
        return problems;
    }
    for setting in &parsed.settings {
        let value = setting.value.as_deref().and_then(|value| value.strip_prefix('"'));
        let Some(name) = value.and_then(|value| value.strip_prefix("credential:")) else {
            continue;
        };
        let (name, key) =
            (name.trim_end_matches('"'), format!("{}.{}", setting.table, setting.key));
        for problem in problems.iter_mut().filter(|problem| problem.key == key) {
            problem.severity = Severity::Warning;
            problem.message = &codes::CREDENTIAL_UNCHECKED;
            problem.text = format!("the credential {name} is not checked");
            problem.fix = Some(format!(
                "Check with `systemctl cat rosterd` that rosterd.service has \
                 LoadCredential={name}:/PATH."
            ));
        }
    }
    problems
}

/// Returns an error at the first on-demand domain if the path of the responder's socket is too long.
fn socket_path_error(parsed: &ParsedConfig, run_dir: &Path) -> Option<Diagnostic> {
    let run_dir = std::path::absolute(run_dir).ok()?;
    let error = parsed.config.responder_path(&run_dir).err()?;
    let setting = parsed
        .settings
        .iter()
        .find(|set| set.key == "mode" && set.value.as_deref() == Some("\"on-demand\""));
    Some(parsed.value_diagnostic(Severity::Error, (&setting?.table, "mode"), error))
}

fn summary(file: &Path, parsed: Option<&ParsedConfig>, problems: &[Diagnostic]) -> String {
    let errors = problems.iter().filter(|problem| problem.severity > Severity::Warning).count();
    let warnings = count_with_noun((problems.len() - errors) as u64, "warning");
    let file = file.display();
    match (parsed, errors) {
        (Some(parsed), 0) => {
            let names: Vec<_> = parsed.config.domains.iter().map(|d| &*d.name).collect();
            let domains = count_with_noun(names.len() as u64, "domain");
            let but = if problems.is_empty() { String::new() } else { format!(", {warnings}") };
            format!("{file}: valid, {domains} ({}){but}", names.join(", "))
        }
        _ => {
            let and =
                if problems.len() > errors { format!(" and {warnings}") } else { String::new() };
            let worst = problems.iter().map(|problem| problem.severity).max();
            // Other files with mistakes of this severity are those of overrides.
            let is_of_overrides = |problem: &Diagnostic| {
                problem.severity < Severity::Refusal
                    || parsed.is_some_and(|parsed| !parsed.files.contains(&problem.file))
            };
            let effect = match worst {
                Some(Severity::Refusal) if problems.iter().all(is_of_overrides) => {
                    "rosterd would keep the last overrides, and at a start wait for valid ones"
                }
                Some(Severity::Refusal) => "rosterd would deny logins or binds",
                _ => "rosterd would reject this configuration",
            };
            format!("{file}: {}{and}; {effect}", count_with_noun(errors as u64, "error"))
        }
    }
}

fn as_json(
    args: &CheckConfigArgs,
    files: &ConfigFiles,
    well: bool,
    parsed: Option<&ParsedConfig>,
    problems: &[Diagnostic],
    unserved: &UnservedEntries,
) -> Value {
    let (warnings, errors): (Vec<_>, Vec<_>) =
        problems.iter().partition(|problem| problem.severity == Severity::Warning);
    let of = |found: Vec<&Diagnostic>| found.into_iter().map(problem_json).collect::<Vec<_>>();
    let mut report = json!({
        "file": lossy(&args.file),
        "files": files.paths().map(lossy).collect::<Vec<_>>(),
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

fn problem_json(problem: &Diagnostic) -> Value {
    json!({
        "file": lossy(&problem.file),
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "message": problem.text,
        "fix": problem.fix(),
        "code": problem.message.code,
    })
}

fn setting_json(setting: &EffectiveSetting) -> Value {
    let (file, line) = match &setting.origin {
        ValueOrigin::Line { file, line } => (Some(lossy(file)), Some(line)),
        ValueOrigin::Default | ValueOrigin::Follows(_) => (None, None),
    };
    json!({
        "table": setting.table,
        "key": setting.key,
        "value": setting.value,
        "file": file,
        "line": line,
        "origin": setting.origin.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::BusArgs;
    use roster_config::ConfigReadError;
    use roster_sid::{DomainSlice, IdRange, open_mapper};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    const WELL: &str = "[host]\ndomains = ['lab']\n[domain.lab]\nprovider = 'files'\n\
                        passwd = '/dev/null'\ngroup = '/dev/zero'\n";

    fn printed(text: &str, explain: bool, json: bool) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        fs::write(&file, text).unwrap();
        let mut out = Vec::new();
        let bus = BusArgs { run_dir: PathBuf::from("/run/roster") };
        let args = CheckConfigArgs {
            file: file.clone(),
            explain,
            json,
            snapshot: "/no/snapshot".into(),
            bus,
        };
        let well = run(&args, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        (well, text.replace(&format!("{}/", folder.path().display()), ""))
    }

    #[test]
    fn check_config_other_slices_stored_fails() {
        let text = "[host]\ndomains = ['ad.test', 'b']\n\
            [domain.'ad.test']\nprovider = 'ldap'\nuris = ['ldaps://x']\nbase = 'dc=x'\nschema = 'ad'\nid_mapping = 'sid'\nid_slice = 5\n\
            [domain.b]\nprovider = 'ldap'\nuris = ['ldaps://y']\nbase = 'dc=y'\nschema = 'ad'\nid_mapping = 'sid'\nid_slice = 6\n";
        let parsed = roster_config::parse(text).unwrap();
        let state = tempfile::tempdir().unwrap();
        let store = |name: &str, sid: &str, slice| {
            let directory = state.path().join("domains").join(name);
            fs::create_dir_all(&directory).unwrap();
            let domain = DomainSlice { sid: sid.parse().unwrap(), slice: Some(slice) };
            let mapper = open_mapper(IdRange::default(), domain, &[], None).unwrap();
            slice_table_file::write(&directory, &SliceTable::from(&mapper)).unwrap();
        };
        assert!(stored_slice_errors(&parsed, state.path()).is_empty());
        store("ad.test", "S-1-5-21-1-2-3", 5);
        store("b", "S-1-5-21-4-5-6", 6);
        assert!(stored_slice_errors(&parsed, state.path()).is_empty());
        store("ad.test", "S-1-5-21-1-2-3", 6);
        let found = stored_slice_errors(&parsed, state.path());
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let [mismatch, shared] = &found[..] else { panic!("{found:?}") };
        let lines =
            "id-slices: stored line \"slice 6 S-1-5-21-1-2-3 0\" disagrees with id_slice = 5";
        assert!(mismatch.starts_with("roster.toml:9: domain.\"ad.test\".id_slice: "), "{mismatch}");
        assert!(mismatch.contains(lines) && mismatch.contains("RST-1807"), "{mismatch}");
        assert!(shared.contains("line \"slice 6 S-1-5-21-1-2-3 0\" of domain ad.test"), "{shared}");
    }

    #[test]
    fn check_config_valid_file_passes() {
        assert_eq!(
            printed(WELL, false, false),
            (true, "roster.toml: valid, 1 domain (lab)\n".to_owned())
        );
        let old = format!("{WELL}[domain.old]\nprovider = 'files'\npasswd = '/a'\ngroup = '/b'\n");
        assert_eq!(
            printed(&old, false, false),
            (
                true,
                "roster.toml:7: warning: domain.old: is not used. Add the name to domains in [host], or \
                 remove the table. [RST-1060]\nroster.toml: valid, 1 domain (lab), 1 warning\n"
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
            "roster.toml:4: domain.lab.provider: unknown provider \"file\". Did you mean \"files\"? \
             [RST-1019]\nroster.toml: 1 error; rosterd would reject this configuration\n"
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
            ) && text.ends_with("roster.toml: 1 error; rosterd would deny logins or binds\n"),
            "{text}"
        );
        let (_, text) = printed(&krb5(""), false, true);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["ok"], false);
        assert_eq!(report["errors"][0]["key"], "domain.lab.krb5_keytab");
        assert_eq!(report["errors"][0]["code"], codes::KEYTAB_MISSING.code);
        for more in ["", "krb5_discover = true\n"] {
            let (well, text) =
                printed(&krb5(&format!("krb5_validate = 'off'\n{more}")), false, false);
            let warning =
                "roster.toml:11: warning: domain.lab.krb5_validate: KDCs are not verified";
            assert!(well && text.starts_with(warning), "{text}");
            assert!(text.ends_with("roster.toml: valid, 1 domain (lab), 1 warning\n"), "{text}");
        }
    }

    #[test]
    fn check_config_explain_prints_valid_toml() {
        let (well, text) = printed(WELL, true, false);
        assert!(well && text.starts_with("[host]\ndomains = [\"lab\"]"), "{text}");
        assert!(roster_config::parse(&text).is_ok());
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
    fn check_config_missing_source_file_warns() {
        let (well, text) = printed(&WELL.replace("/dev/zero", "/no/group"), false, false);
        assert!(well);
        assert!(
            text.starts_with(
                "roster.toml:6: warning: domain.lab.group: the file /no/group does not exist. Create \
                 the file, or correct its path. [RST-1070]\n"
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
            let bus = BusArgs { run_dir: PathBuf::from("/run/roster") };
            let args = CheckConfigArgs {
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
                        mode 0666, which allows other users to change it. Check the content of passwd, \
                        then run `chmod go-w passwd`. [RST-1105]\n";
        assert!(well && text.starts_with(expected), "{text}");
        set_mode("roster.toml", 0o666);
        let (well, text) = run();
        let expected = "roster.toml: roster.toml has mode 0666, which allows other users to change it. \
                        Check the content of roster.toml, then run `chmod go-w roster.toml`. \
                        [RST-1105]\n";
        assert!(!well && text.starts_with(expected), "{text}");
        let summary = "1 error and 1 warning; rosterd would reject this configuration\n";
        assert!(text.ends_with(summary), "{text}");
    }

    #[test]
    fn check_config_non_utf8_reports_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        fs::write(&file, b"[host]\n# caf\xe9\n").unwrap();
        let bus = BusArgs { run_dir: PathBuf::from("/run/roster") };
        let mut out = Vec::new();
        let args = CheckConfigArgs {
            file,
            explain: false,
            json: false,
            snapshot: "/no/snapshot".into(),
            bus,
        };
        assert!(!run(&args, &mut out).unwrap());
        let text = String::from_utf8(out).unwrap();
        let line = "roster.toml:2: is not text in UTF-8. Save the file as UTF-8. [RST-1102]\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn check_config_credentials_are_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        let text = "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'ldap'\n\
                    uris = ['ldaps://x']\nbase = 'dc=x'\nbind_dn = 'cn=x'\n\
                    bind_password_file = 'credential:corp'\nauth = 'krb5'\nkrb5_realm = 'X'\n\
                    krb5_kdcs = ['x']\nkrb5_keytab = 'credential:keytab'\n";
        fs::write(&file, text).unwrap();
        let files = ConfigFiles::read(&file).unwrap();
        let said = |credentials: Option<&Path>| -> Vec<_> {
            let (_, problems) = check(&files, Path::new("/run/roster"), credentials);
            let is_unchecked =
                |found: &Diagnostic| found.message.code == codes::CREDENTIAL_UNCHECKED.code;
            let secret = problems.into_iter().filter(is_unchecked);
            secret.map(|found| (found.severity, found.line, found.without_position())).collect()
        };
        let unchecked = |line, key: &str, name: &str| {
            let what = format!(
                "domain.corp.{key}: the credential {name} is not checked. Check with `systemctl cat \
                 rosterd` that rosterd.service has LoadCredential={name}:/PATH. [RST-1114]"
            );
            (Severity::Warning, line, what)
        };
        assert_eq!(
            said(None),
            [unchecked(8, "bind_password_file", "corp"), unchecked(12, "krb5_keytab", "keytab")]
        );
        let (_, problems) = check(&files, Path::new("/run/roster"), Some(folder.path()));
        let severities: Vec<_> =
            problems.iter().map(|found| (found.line, found.severity)).collect();
        assert!(severities.contains(&(8, Severity::Error)), "{severities:?}");
        assert!(severities.contains(&(12, Severity::Refusal)), "{severities:?}");
    }

    #[test]
    fn check_config_drop_ins_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roster.toml");
        let drop_ins = folder.path().join("roster.toml.d");
        fs::create_dir(&drop_ins).unwrap();
        fs::write(&file, WELL).unwrap();
        let run = |drop_in: &str, explain, json| {
            fs::write(drop_ins.join("10-x.toml"), drop_in).unwrap();
            let bus = BusArgs { run_dir: PathBuf::from("/run/roster") };
            let (file, snapshot) = (file.clone(), "/no/snapshot".into());
            let mut out = Vec::new();
            let well =
                run(&CheckConfigArgs { file, explain, json, snapshot, bus }, &mut out).unwrap();
            let place = format!("{}/", folder.path().display());
            (well, String::from_utf8(out).unwrap().replace(&place, ""))
        };
        let (well, text) = run("[host]\nmin_id = 0\n", false, false);
        assert!(!well && text.starts_with("roster.toml.d/10-x.toml:2: host.min_id: "), "{text}");
        let (well, text) = run("[host]\nmin_id = 5\n", true, false);
        let line = "min_id = 5                     # roster.toml.d/10-x.toml:2\n";
        assert!(well && text.contains(line), "{text}");
        let (_, text) = run("[host]\nmin_id = 5\n[domain.lab]\npasswd = '/no'\n", true, true);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["files"], json!(["roster.toml", "roster.toml.d/10-x.toml"]));
        let settings = report["settings"].as_array().unwrap();
        let setting = settings.iter().find(|setting| setting["key"] == "min_id").unwrap();
        assert_eq!((&setting["key"], &setting["line"]), (&json!("min_id"), &json!(2)));
        assert_eq!(setting["file"], "roster.toml.d/10-x.toml");
        let warning = &report["warnings"][0];
        assert_eq!((&warning["line"], &warning["key"]), (&json!(4), &json!("domain.lab.passwd")));
        assert_eq!(warning["file"], "roster.toml.d/10-x.toml");
        fs::remove_file(&file).unwrap();
        let (well, text) = run("[log]\n", false, false);
        assert!(!well && text.starts_with("roster.toml:1: host.domains: "), "{text}");
        let (well, text) = run(WELL, false, false);
        assert!(well && text.ends_with("roster.toml: valid, 1 domain (lab)\n"), "{text}");
        fs::remove_file(drop_ins.join("10-x.toml")).unwrap();
        fs::create_dir(drop_ins.join("10-x.toml")).unwrap();
        let found = CodedError::from(ConfigFiles::read(&file).unwrap_err());
        assert!(found.text.ends_with("10-x.toml: not a regular file"), "{found}");
        assert_eq!(found.message, &codes::CONFIG_UNREADABLE);
    }

    #[test]
    fn check_config_unreadable_file_is_json() {
        let bus = BusArgs { run_dir: PathBuf::from("/run/roster") };
        let args = CheckConfigArgs {
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
        assert_eq!(report["code"], codes::CONFIG_MISSING.code);
        assert!(report["error"].as_str().unwrap().starts_with("cannot read /no/such.toml: "));
        let denied = CodedError::from(ConfigReadError {
            message: &codes::CONFIG_UNREADABLE,
            path: "/x".into(),
            is_main: true,
            error: ErrorKind::PermissionDenied.into(),
        });
        assert_eq!(denied.fix.as_deref(), Some("Run the command as root."));
    }

    #[test]
    fn check_config_missing_file_is_named() {
        let bus = BusArgs { run_dir: PathBuf::from("/run/roster") };
        let file = PathBuf::from("/no/such.toml");
        let args = CheckConfigArgs {
            file,
            explain: false,
            json: false,
            snapshot: "/no/snapshot".into(),
            bus,
        };
        let error = run(&args, &mut Vec::new()).unwrap_err();
        let error = format!("{error:#}");
        let begin =
            "cannot read /no/such.toml: No such file or directory (os error 2). Create the file";
        assert!(error.starts_with(begin) && error.ends_with(" [RST-1098]"), "{error}");
    }

    #[test]
    fn config_socket_path_too_long_fails_its_domain() {
        let text = "[host]\ndomains = ['far']\n[domain.far]\nprovider = 'ldap'\n\
                    mode = 'on-demand'\nuris = ['ldaps://x']\nbase = 'dc=x'\n";
        let errors = |run_dir: &str| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("roster.toml");
            fs::write(&file, text).unwrap();
            let files = ConfigFiles::read(&file).unwrap();
            let (_, problems) = check(&files, Path::new(run_dir), None);
            let place = format!("{}/", folder.path().display());
            let errors = problems.into_iter().filter(|found| found.severity == Severity::Error);
            errors.map(|found| found.to_string().replace(&place, "")).collect::<Vec<_>>()
        };
        assert_eq!(errors("/run/roster"), [""; 0]);
        let [error] = &*errors(&format!("/{}", "x".repeat(76))) else { panic!("no error") };
        assert!(
            error.starts_with("roster.toml:5: domain.far.mode: the socket path /xxx"),
            "{error}"
        );
        assert!(error.ends_with("Choose a --run-dir with a shorter path. [RST-1097]"), "{error}");
    }
}
