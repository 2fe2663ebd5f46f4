// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster migrate-config`: converts sssd.conf or nslcd.conf. `roster-migration` converts; this module finds the files,
//! writes the result, and prints the report.

use crate::args::MigrateConfigArgs;
use crate::output::{count_with_noun, lossy, print_error, print_stderr, printable};
use crate::paths::SSSD_CONF;
use anyhow::Result;
use roster_messages::CodedError;
use roster_messages::table::tools;
use roster_migration::krb5_conf::{self, Krb5Conf};
use roster_migration::nslcd::{self, NslcdConf};
use roster_migration::sssd::{self, HostFacts, SssdConf};
use roster_migration::{DomainPlan, Item, Outcome, Plan, Waivers, check, render};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Configuration of nslcd.
const NSLCD_CONF: &str = "/etc/nslcd.conf";
/// Directory of the password files that the result on standard output names.
const PASSWORD_DIRECTORY: &str = "/etc/roster";
/// Names of this host's users.
const PASSWD: &str = "/etc/passwd";

/// Mode of the result. It has no secret.
const CONFIG_MODE: u32 = 0o644;
/// Mode of a password file.
const PASSWORD_MODE: u32 = 0o600;

/// Converts the configuration. Returns whether the result was written.
pub fn run(args: &MigrateConfigArgs, out: &mut dyn Write) -> Result<bool> {
    let output = args.output.as_deref().map(std::path::absolute).transpose()?;
    let facts = facts(args, output.as_deref())?;
    let mut waivers = Waivers::new(&args.without).ignoring_group_policies(args.ignore_gpo);
    let plan = match source(args, |path| Path::new(path).exists())? {
        Source::Sssd(path) => {
            sssd::convert(SssdConf::read(&path).map_err(CodedError::from)?, &facts, &mut waivers)
        }
        Source::Nslcd(path) => {
            let conf = NslcdConf::read(&path).map_err(CodedError::from)?;
            nslcd::convert(&conf, &args.domain, &facts, &mut waivers)
        }
    };
    if plan.stops().next().is_some() {
        return stopped(args, &plan, out).map(|()| false);
    }
    if let Some(name) = waivers.unused().next() {
        let text = format!("--without {name:?}: the setting does not stop the conversion");
        return Err(CodedError::new(&tools::MIGRATE_WAIVER_UNUSED, text).into());
    }
    if waivers.has_unused_group_policies() {
        let text = "--ignore-gpo: no domain of the configuration applies group policies";
        return Err(CodedError::new(&tools::MIGRATE_WAIVER_UNUSED, text).into());
    }
    let text = render(&plan);
    check(&text)?;
    let files = match &output {
        Some(path) => write_files(path, &text, &plan.domains)?,
        None => Vec::new(),
    };
    if args.json {
        writeln!(out, "{:#}", report(&plan, true, &files, output.is_none().then_some(&text)))?;
    } else if output.is_none() {
        out.write_all(text.as_bytes())?;
        out.flush()?;
        print_stderr(next_steps(&plan, None).trim_end());
    } else {
        out.write_all(next_steps(&plan, Some(&files)).as_bytes())?;
    }
    Ok(true)
}

/// The file to convert.
enum Source {
    Sssd(PathBuf),
    Nslcd(PathBuf),
}

fn source(args: &MigrateConfigArgs, exists: impl Fn(&str) -> bool) -> Result<Source, CodedError> {
    if let Some(path) = &args.sssd {
        return Ok(Source::Sssd(path.clone()));
    }
    if let Some(path) = &args.nslcd {
        return Ok(Source::Nslcd(path.clone()));
    }
    match (exists(SSSD_CONF), exists(NSLCD_CONF)) {
        (true, false) => Ok(Source::Sssd(SSSD_CONF.into())),
        (false, true) => Ok(Source::Nslcd(NSLCD_CONF.into())),
        (found, _) => {
            let which = if found { "both exist" } else { "neither exists" };
            let text = format!("{SSSD_CONF} and {NSLCD_CONF}: {which}");
            Err(CodedError::new(&tools::MIGRATE_SOURCE_MISSING, text))
        }
    }
}

fn facts(args: &MigrateConfigArgs, output: Option<&Path>) -> Result<HostFacts, CodedError> {
    let krb5 = match krb5_conf::read(&args.krb5) {
        Ok(conf) => conf,
        Err(error) if error.is_missing() => Krb5Conf::default(),
        Err(error) => return Err(error.into()),
    };
    let folder = output.and_then(Path::parent).unwrap_or(Path::new(PASSWORD_DIRECTORY));
    let passwd = fs::read_to_string(PASSWD).unwrap_or_default();
    let names = passwd.lines().filter_map(|line| line.split(':').next());
    Ok(HostFacts {
        krb5,
        dns_domain: dns_domain(),
        local_users: names.map(str::to_owned).collect(),
        password_directory: folder.to_owned(),
    })
}

/// Returns the DNS domain in the name of this host.
fn dns_domain() -> Option<String> {
    let name = rustix::system::uname();
    let name = name.nodename().to_str().ok()?;
    let (_, domain) = name.split_once('.')?;
    Some(domain.trim_end_matches('.').to_owned()).filter(|domain| domain.contains('.'))
}

fn stopped(args: &MigrateConfigArgs, plan: &Plan, out: &mut dyn Write) -> Result<()> {
    if args.json {
        writeln!(out, "{:#}", report(plan, false, &[], None))?;
        return Ok(());
    }
    for item in plan.stops() {
        let Outcome::Stopped { reason, cure, can_be_waived } = &item.outcome else { continue };
        let Item { origin, section, setting, value, .. } = item;
        let waiver = match can_be_waived {
            true => format!(" Or leave it out: --without {section}/{setting}"),
            false => String::new(),
        };
        let text = format!("{origin}: [{section}] {setting} = {value}: {reason}. {cure}{waiver}");
        print_stderr(printable(&text));
    }
    let count = count_with_noun(plan.stops().count() as u64, "setting");
    print_error(&CodedError::new(&tools::MIGRATE_STOPPED, format!("stopped by {count}")));
    Ok(())
}

/// Writes the password files, then the result. After an error none of them is left.
fn write_files(
    path: &Path,
    text: &str,
    domains: &[DomainPlan],
) -> Result<Vec<PathBuf>, CodedError> {
    let mut written = Vec::new();
    let result = (|| {
        for domain in domains {
            let Some(password) = &domain.password else { continue };
            let file = path.with_file_name(format!("{}.password", domain.name));
            create(&file, password.expose(), PASSWORD_MODE)?;
            written.push(file);
        }
        create(path, text, CONFIG_MODE)?;
        written.push(path.to_owned());
        Ok(())
    })();
    if let Err(error) = result {
        for file in written {
            let _ = fs::remove_file(file);
        }
        return Err(error);
    }
    Ok(written)
}

/// Creates a file that does not exist yet. A partial file is removed.
fn create(path: &Path, text: &str, mode: u32) -> Result<(), CodedError> {
    let name = path.display();
    // The file never has a wider mode, also with an umask of 0.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(PASSWORD_MODE));
    let file = opened.map_err(io::Error::from).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            CodedError::new(&tools::MIGRATE_OUTPUT_EXISTS, format!("{name} exists"))
        }
        _ => write_error(path, error),
    })?;
    let mut file = File::from(file);
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?))
        .and_then(|()| file.sync_all());
    written.map_err(|error| {
        let _ = fs::remove_file(path);
        write_error(path, error)
    })
}

fn write_error(path: &Path, error: io::Error) -> CodedError {
    let text = format!("{} cannot be written", path.display());
    CodedError::new(&tools::MIGRATE_OUTPUT_FAILED, text).caused_by(error)
}

fn next_steps(plan: &Plan, files: Option<&[PathBuf]>) -> String {
    let mut text = String::new();
    let counts =
        [("mapped", "converted"), ("dropped", "dropped"), ("waived", "left out by --without")];
    let counts: Vec<String> = counts
        .iter()
        .map(|(outcome, words)| {
            (plan.items.iter().filter(|item| word(item) == *outcome).count(), words)
        })
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{} {words}", count_with_noun(count as u64, "setting")))
        .collect();
    text += &format!("{}\n", counts.join(", "));
    for file in files.unwrap_or_default() {
        text += &format!("written: {}\n", file.display());
    }
    if !plan.notes.is_empty() {
        text += "\nBehaviour that differs:\n";
    }
    for note in &plan.notes {
        text += &format!("  - {}\n", printable(note));
    }
    text += "\nNext steps:\n";
    if files.is_none() {
        for domain in plan.domains.iter().filter(|domain| domain.password.is_some()) {
            let file = domain.keys.get("bind_password_file").unwrap_or_default();
            text += &format!(
                "  - Write the password of the reader of {} into {file} with mode 0600, or use --output.\n",
                domain.name
            );
        }
    }
    let config = files.and_then(<[PathBuf]>::last).map(|path| path.display().to_string());
    let config = config.unwrap_or_else(|| "/etc/roster/roster.toml".to_owned());
    text +=
        &format!("  - Read the comments in {config}, then run `roster check-config {config}`.\n");
    text += "  - Start rosterd, and compare: `roster domain compare-ids NAME --with sssd`.\n";
    text += "  - Follow docs/how-to/moving-from-sssd.md or moving-from-nslcd.md.\n";
    text
}

fn word(item: &Item) -> &'static str {
    match item.outcome {
        Outcome::Mapped { .. } => "mapped",
        Outcome::Dropped { .. } => "dropped",
        Outcome::Stopped { .. } => "stopped",
        Outcome::Waived { .. } => "waived",
    }
}

fn report(plan: &Plan, written: bool, files: &[PathBuf], toml: Option<&String>) -> Value {
    let settings: Vec<Value> = plan.items.iter().map(item_json).collect();
    let count = |outcome| plan.items.iter().filter(|item| word(item) == outcome).count();
    let mut report = json!({
        "ok": written,
        "sources": plan.sources.iter().map(|path| lossy(path)).collect::<Vec<_>>(),
        "written": files.iter().map(|path| lossy(path)).collect::<Vec<_>>(),
        "counts": {
            "mapped": count("mapped"),
            "dropped": count("dropped"),
            "stopped": count("stopped"),
            "waived": count("waived"),
        },
        "settings": settings,
        "notes": plan.notes,
    });
    if let Some(toml) = toml {
        report["toml"] = json!(toml);
    }
    if !written {
        report["code"] = json!(tools::MIGRATE_STOPPED.code);
    }
    report
}

fn item_json(item: &Item) -> Value {
    let mut value = json!({
        "file": lossy(&item.origin.file),
        "line": item.origin.line,
        "section": item.section,
        "setting": item.setting,
        "value": item.value,
        "outcome": word(item),
    });
    match &item.outcome {
        Outcome::Mapped { keys } => value["keys"] = json!(keys),
        Outcome::Dropped { note } => value["note"] = json!(note),
        Outcome::Waived { reason } => value["reason"] = json!(reason),
        Outcome::Stopped { reason, cure, can_be_waived } => {
            value["reason"] = json!(reason);
            value["cure"] = json!(cure);
            value["can_be_waived"] = json!(can_be_waived);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    const SECRET: &str = "s3cret-of-reader";

    struct Site {
        folder: TempDir,
    }

    impl Site {
        fn new(sssd: &str) -> Self {
            let site = Self { folder: tempfile::tempdir().unwrap() };
            site.write("sssd.conf", sssd, 0o600);
            site
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, text: &str, mode: u32) {
            fs::write(self.path(name), text).unwrap();
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn args(&self, without: &[&str], json: bool) -> MigrateConfigArgs {
            MigrateConfigArgs {
                sssd: Some(self.path("sssd.conf")),
                nslcd: None,
                krb5: self.path("krb5.conf"),
                domain: "ldap".into(),
                output: Some(self.path("roster.toml")),
                without: without.iter().map(|&name| name.to_owned()).collect(),
                ignore_gpo: false,
                json,
            }
        }

        fn run(&self, without: &[&str], json: bool) -> (Result<bool>, String) {
            let mut out = Vec::new();
            let result = run(&self.args(without, json), &mut out);
            (result, String::from_utf8(out).unwrap())
        }
    }

    #[test]
    fn migrate_config_unused_gpo_option_fails() {
        let site = Site::new(&corp(""));
        let args = MigrateConfigArgs { ignore_gpo: true, ..site.args(&[], false) };
        let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("--ignore-gpo: no domain"), "{error}");
        assert!(!site.path("roster.toml").exists());
    }

    fn corp(more: &str) -> String {
        format!(
            "[sssd]\ndomains = corp\n[domain/corp]\nid_provider = ldap\nldap_uri = ldaps://ldap1\n\
             ldap_search_base = dc=example,dc=com\nldap_default_bind_dn = cn=reader,dc=example,dc=com\n\
             ldap_default_authtok = {SECRET}\n{more}\n"
        )
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn migrate_output_has_password_in_own_file() {
        let site = Site::new(&corp(""));
        let (result, text) = site.run(&[], false);
        assert!(result.unwrap(), "{text}");
        let toml = fs::read_to_string(site.path("roster.toml")).unwrap();
        let file = site.path("corp.password");
        assert!(toml.contains(&format!("bind_password_file = \"{}\"", file.display())), "{toml}");
        assert!(!toml.contains(SECRET) && !text.contains(SECRET), "{toml}{text}");
        assert_eq!(fs::read_to_string(&file).unwrap(), SECRET);
        assert_eq!((mode(&file), mode(&site.path("roster.toml"))), (0o600, 0o644));
        assert!(text.contains("compare-ids"), "{text}");
        let (again, _) = site.run(&[], false);
        let error = again.unwrap_err().to_string();
        assert!(error.ends_with(&format!("[{}]", tools::MIGRATE_OUTPUT_EXISTS.code)), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), SECRET, "the old file stays");
    }

    #[test]
    fn migrate_restricting_setting_writes_nothing() {
        let site = Site::new(&corp("override_gid = 100"));
        let (result, _) = site.run(&[], false);
        assert!(!result.unwrap());
        assert!(!site.path("roster.toml").exists() && !site.path("corp.password").exists());
        let (_, text) = site.run(&[], true);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&report["ok"], &report["counts"]["stopped"]), (&json!(false), &json!(1)));
        assert_eq!(report["code"], tools::MIGRATE_STOPPED.code);
        assert!(!text.contains(SECRET), "{text}");
        let (result, _) = site.run(&["override_gid"], false);
        assert!(result.unwrap());
        let toml = fs::read_to_string(site.path("roster.toml")).unwrap();
        assert!(toml.contains("override_gid = 100: LEFT OUT by --without"), "{toml}");
    }

    #[test]
    fn migrate_waiver_without_stop_is_refused() {
        let site = Site::new(&corp(""));
        let (result, _) = site.run(&["overide_gid"], false);
        let error = result.unwrap_err().to_string();
        assert!(error.ends_with(&format!("[{}]", tools::MIGRATE_WAIVER_UNUSED.code)), "{error}");
        assert!(!site.path("roster.toml").exists());
    }

    #[test]
    fn migrate_source_defects_have_codes() {
        let site = Site::new("nonsense");
        let code = |site: &Site| {
            let error = site.run(&[], false).0.unwrap_err().to_string();
            error[error.len() - 9..error.len() - 1].to_owned()
        };
        assert_eq!(code(&site), tools::MIGRATE_SOURCE_SYNTAX.code);
        site.write("sssd.conf", &corp(""), 0o666);
        assert_eq!(code(&site), tools::MIGRATE_SOURCE_UNTRUSTED.code);
        fs::remove_file(site.path("sssd.conf")).unwrap();
        assert_eq!(code(&site), tools::MIGRATE_SOURCE_UNREADABLE.code);
        let site = Site::new(&corp("ldap_backup_uri = nonsense"));
        assert_eq!(code(&site), tools::MIGRATE_RESULT_INVALID.code);
        let site = Site::new(&corp(""));
        fs::create_dir(site.path("corp.password")).unwrap();
        assert_eq!(code(&site), tools::MIGRATE_OUTPUT_EXISTS.code);
        let mut args = site.args(&[], false);
        args.output = Some(site.path("no/such/folder/roster.toml"));
        let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains(tools::MIGRATE_OUTPUT_FAILED.code), "{error}");
    }

    #[test]
    fn migrate_without_one_source_is_refused() {
        let mut args = Site::new("").args(&[], false);
        args.sssd = None;
        for exist in [true, false] {
            let error = source(&args, |_| exist).err().unwrap();
            assert_eq!(error.message.code, tools::MIGRATE_SOURCE_MISSING.code);
        }
        assert!(matches!(source(&args, |path| path == SSSD_CONF), Ok(Source::Sssd(_))));
        assert!(matches!(source(&args, |path| path == NSLCD_CONF), Ok(Source::Nslcd(_))));
    }

    #[test]
    fn migrate_dropin_overrides_main_file() {
        let site = Site::new(&corp("min_id = 2000"));
        fs::create_dir(site.path("conf.d")).unwrap();
        site.write("conf.d/10.conf", "[domain/corp]\nmin_id = 3000\n", 0o600);
        site.write("conf.d/20.conf", "[DOMAIN/CORP]\nMin_Id = 4000\n", 0o600);
        site.write("conf.d/.30.conf", "[domain/corp]\nmin_id = 5000\n", 0o600);
        site.write("conf.d/40.bak", "nonsense", 0o600);
        assert!(site.run(&[], false).0.unwrap());
        let toml = fs::read_to_string(site.path("roster.toml")).unwrap();
        assert!(toml.contains("\nmin_id = 4000\n"), "{toml}");
    }
}
