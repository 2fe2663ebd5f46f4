// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rootwrap.conf with the filter files that it names. Each mistake has its file and line. Rules of files that other
//! users can change are marked, and strict mode ignores them. `evaluate` applies the rules.

use crate::diagnostic::{error, warning};
use crate::filters::{self, FilterRule};
use crate::host_facts::{FileKind, HostFacts};
use crate::ini::FILE_BYTES_MAX;
use crate::mode::Mode;
use crate::path_trust::distrust;
use crate::rootwrap_conf::RootwrapConf;
use roster_messages::Diagnostic;
use roster_messages::table::commands;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Limit of files in a directory. OpenStack ships a dozen.
const FILES_MAX: usize = 10_000;
/// Limit of rules, because more would make decisions slow. OpenStack ships some hundred.
const RULES_MAX: usize = 50_000;

/// The rules and options for decisions.
#[derive(Debug)]
pub struct RootwrapPolicy {
    pub conf: RootwrapConf,
    /// Warnings about ignored rules and directories.
    pub warnings: Vec<Diagnostic>,
    /// Rules in the order of the directories, as oslo.rootwrap reads them.
    rules: Vec<FilterRule>,
    /// Positions of rules, in the order of the names of their files.
    by_name: Vec<usize>,
}

impl RootwrapPolicy {
    /// Reads a rootwrap.conf and its filter files. The errors are all mistakes that make it unusable.
    pub fn load(conf_file: &Path, facts: &dyn HostFacts) -> Result<Self, Vec<Diagnostic>> {
        let bytes = read(conf_file).map_err(|cause| {
            let text = format!("cannot be read: {cause}");
            vec![error(&commands::CONF_UNREADABLE, conf_file, 0, text)]
        })?;
        let conf = RootwrapConf::parse(conf_file, &bytes)?;
        let mut loader =
            PolicyLoader { facts, files: Vec::new(), warnings: Vec::new(), errors: vec![] };
        let conf_distrust = loader.distrust(conf_file);
        for folder in &conf.filters_path {
            loader.load_dir(Path::new(folder));
        }
        let PolicyLoader { files, warnings, mut errors, .. } = loader;
        if files.iter().map(|file| file.rules.len()).sum::<usize>() > RULES_MAX {
            let text = format!("more than {RULES_MAX} filters");
            errors.push(error(&commands::FILTER_RULES_TOO_MANY, conf_file, 0, text));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self::from_parts(conf, files, warnings, conf_distrust.as_deref()))
    }

    fn from_parts(
        conf: RootwrapConf,
        files: Vec<FilterFile>,
        warnings: Vec<Diagnostic>,
        conf_distrust: Option<&str>,
    ) -> Self {
        let mut sorted: Vec<(usize, OsString, usize)> = Vec::new();
        let mut rules = Vec::new();
        for file in files {
            for rule in file.rules {
                sorted.push((file.dir_index, file.name.clone(), rules.len()));
                rules.push(rule);
            }
        }
        sorted.sort();
        let by_name = sorted.into_iter().map(|(.., position)| position).collect();
        rules.push(filters::privsep_helper());
        if let Some(why) = conf_distrust {
            for rule in &mut rules {
                rule.distrust = Some(why.to_owned());
            }
        }
        Self { conf, warnings, rules, by_name }
    }

    /// Creates a policy from texts, which are trusted. For tests and benchmarks.
    pub fn from_texts(conf: &[u8], filter_files: &[&[u8]]) -> Result<Self, Vec<Diagnostic>> {
        let conf = RootwrapConf::parse(Path::new("rootwrap.conf"), conf)?;
        let (mut files, mut warnings) = (Vec::new(), Vec::new());
        for (number, text) in (0_usize..).zip(filter_files) {
            let name = OsString::from(format!("{number:06}.filters"));
            let (rules, passed_over) = filters::parse(Path::new(&name), text)?;
            warnings.extend(passed_over);
            files.push(FilterFile { dir_index: 0, name, rules });
        }
        Ok(Self::from_parts(conf, files, warnings, None))
    }

    /// Returns the rules in the order of a mode. Strict mode has only rules of files.
    pub fn rules(&self, mode: Mode) -> impl Iterator<Item = &FilterRule> {
        let position = move |at| match mode {
            Mode::Compat => at,
            Mode::Strict => self.by_name[at],
        };
        let count = match mode {
            Mode::Compat => self.rules.len(),
            Mode::Strict => self.by_name.len(),
        };
        (0..count).map(move |at| &self.rules[position(at)])
    }
}

struct FilterFile {
    /// The number of the directory.
    dir_index: usize,
    name: OsString,
    rules: Vec<FilterRule>,
}

struct PolicyLoader<'f> {
    facts: &'f dyn HostFacts,
    files: Vec<FilterFile>,
    warnings: Vec<Diagnostic>,
    errors: Vec<Diagnostic>,
}

impl PolicyLoader<'_> {
    fn load_dir(&mut self, folder: &Path) {
        if self.facts.status(folder).is_none_or(|status| status.kind != FileKind::Directory) {
            self.warnings.push(warning(
                &commands::FILTER_DIR_MISSING,
                folder,
                0,
                "not a directory",
            ));
            return;
        }
        let names = match file_names(folder) {
            Ok(names) if names.len() > FILES_MAX => {
                let text = format!("more than {FILES_MAX} files");
                self.errors.push(error(&commands::FILTER_DIR_TOO_LARGE, folder, 0, text));
                return;
            }
            Ok(names) => names,
            Err(cause) => {
                let text = format!("cannot be listed: {cause}");
                self.errors.push(error(&commands::FILTER_DIR_UNREADABLE, folder, 0, text));
                return;
            }
        };
        let folder_distrust = self.distrust(folder);
        let number = self.files.last().map_or(0, |file| file.dir_index + 1);
        for name in names {
            let file = folder.join(&name);
            let is_file = |file: &Path| self.facts.status(file).map(|found| found.kind);
            if name.as_bytes().starts_with(b".") || is_file(&file) != Some(FileKind::File) {
                continue;
            }
            let rules = self.load_file(&file, folder_distrust.as_deref());
            self.files.push(FilterFile { dir_index: number, name, rules });
        }
    }

    fn load_file(&mut self, file: &Path, folder_distrust: Option<&str>) -> Vec<FilterRule> {
        let bytes = match read(file) {
            Ok(bytes) => bytes,
            Err(cause) => {
                let text = format!("cannot be read: {cause}");
                self.errors.push(error(&commands::FILTER_FILE_UNREADABLE, file, 0, text));
                return Vec::new();
            }
        };
        match filters::parse(file, &bytes) {
            Ok((mut rules, warnings)) => {
                self.warnings.extend(warnings);
                let own = folder_distrust.map(str::to_owned).or_else(|| self.distrust(file));
                for rule in &mut rules {
                    rule.distrust.clone_from(&own);
                }
                rules
            }
            Err(errors) => {
                self.errors.extend(errors);
                Vec::new()
            }
        }
    }

    fn distrust(&mut self, path: &Path) -> Option<String> {
        let why = distrust(self.facts, path.as_os_str())?;
        let text = format!("other users can change it, so strict mode ignores its filters: {why}");
        self.warnings.push(warning(&commands::FILTER_UNTRUSTED, path, 0, text));
        Some(why)
    }
}

/// Returns names in the order of the directory, at most one more than `FILES_MAX`.
fn file_names(directory: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(directory)?.take(FILES_MAX + 1).map(|entry| Ok(entry?.file_name())).collect()
}

/// Reads a file up to one byte more than the limit.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a rootwrap.conf with filter files to a directory, and returns its path.
#[cfg(test)]
pub(crate) fn write_test_policy(
    folder: &Path,
    conf: &str,
    files: &[(&str, &str)],
) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let filters = folder.join("filters.d");
    fs::create_dir(&filters).unwrap();
    for (name, text) in files {
        fs::write(filters.join(name), text).unwrap();
        fs::set_permissions(filters.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let file = folder.join("rootwrap.conf");
    fs::write(&file, format!("[DEFAULT]\nfilters_path={}\n{conf}", filters.display())).unwrap();
    for path in [&filters, &file] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_facts::LocalHost;
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::os::unix::fs::PermissionsExt;

    fn names(policy: &RootwrapPolicy, mode: Mode) -> Vec<&str> {
        policy.rules(mode).map(|rule| &*rule.name).collect()
    }

    #[test]
    fn strict_rules_are_those_of_files_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let rule = |name: &str| format!("[Filters]\n{name}: CommandFilter, {name}, root\n");
        let conf = write_test_policy(
            folder.path(),
            "",
            &[("b.filters", &rule("b")), ("a", &rule("a")), (".hidden", "no"), ("c~", &rule("c"))],
        );
        let policy = RootwrapPolicy::load(&conf, &LocalHost::new()).unwrap();
        assert_eq!(names(&policy, Mode::Strict), ["a", "b", "c"]);
        assert_eq!(names(&policy, Mode::Compat).last(), Some(&"privsep-helper"));
        assert_eq!(policy.warnings, []);
    }

    #[test]
    fn every_mistake_of_every_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let conf =
            write_test_policy(folder.path(), "", &[("a", "[Filters]\nx\n"), ("b", "[filters]\n")]);
        let errors = RootwrapPolicy::load(&conf, &LocalHost::new()).unwrap_err();
        assert_eq!(errors.len(), 2);
        let missing =
            RootwrapPolicy::load(&folder.path().join("no.conf"), &LocalHost::new()).unwrap_err();
        assert_eq!(missing[0].message, &commands::CONF_UNREADABLE);
    }

    #[test]
    fn a_file_that_others_could_change_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        let rule = "[Filters]\nls: CommandFilter, ls, root\n";
        let conf = write_test_policy(folder.path(), "", &[("a", rule), ("b", rule)]);
        let file = folder.path().join("filters.d/a");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let policy = RootwrapPolicy::load(&conf, &LocalHost::new()).unwrap();
        let distrusted: Vec<_> =
            policy.rules(Mode::Strict).map(|rule| rule.distrust.is_some()).collect();
        assert_eq!(distrusted, [true, false]);
        let [warning] = &policy.warnings[..] else { panic!("{:?}", policy.warnings) };
        assert_eq!(warning.message, &commands::FILTER_UNTRUSTED);

        fs::set_permissions(&conf, fs::Permissions::from_mode(0o666)).unwrap();
        let policy = RootwrapPolicy::load(&conf, &LocalHost::new()).unwrap();
        assert!(policy.rules(Mode::Strict).all(|rule| rule.distrust.is_some()));
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("rootwrap.conf");
        fs::write(&conf, "[DEFAULT]\nfilters_path=/no/such\n").unwrap();
        fs::set_permissions(&conf, fs::Permissions::from_mode(0o644)).unwrap();
        let policy = RootwrapPolicy::load(&conf, &LocalHost::new()).unwrap();
        assert_eq!(names(&policy, Mode::Compat), ["privsep-helper"]);
        assert_eq!(policy.warnings[0].message, &commands::FILTER_DIR_MISSING);
        let warning = policy.warnings[0].to_string();
        assert!(warning.starts_with("/no/such: warning: not a directory"), "{warning}");
    }

    /// Loads a policy in a thread that cannot bypass permissions of files.
    fn load_without_bypass(conf: &Path) -> Result<RootwrapPolicy, Vec<Diagnostic>> {
        let load = || {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).unwrap();
            RootwrapPolicy::load(conf, &LocalHost::new())
        };
        std::thread::scope(|scope| scope.spawn(load).join().unwrap())
    }

    #[test]
    fn policy_with_unusable_filters_has_code() {
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        type Change<'c> = &'c dyn Fn(&Path);
        let cases: [(Change<'_>, _); 4] = [
            (&|filters| set_mode(filters, 0), &commands::FILTER_DIR_UNREADABLE),
            (&|filters| set_mode(&filters.join("a"), 0), &commands::FILTER_FILE_UNREADABLE),
            (
                &|filters| {
                    for number in 0..FILES_MAX {
                        fs::write(filters.join(number.to_string()), "").unwrap();
                    }
                },
                &commands::FILTER_DIR_TOO_LARGE,
            ),
            (
                &|filters| {
                    // A file is smaller than its limit.
                    let rules = (0..RULES_MAX / 2).map(|number| format!("{number}:IpFilter,i,r\n"));
                    let text = format!("[Filters]\n{}", rules.collect::<String>());
                    for name in ["b", "c"] {
                        fs::write(filters.join(name), &text).unwrap();
                    }
                },
                &commands::FILTER_RULES_TOO_MANY,
            ),
        ];
        for (change, message) in cases {
            let folder = tempfile::tempdir().unwrap();
            let rule = "[Filters]\nls: CommandFilter, ls, root\n";
            let conf = write_test_policy(folder.path(), "", &[("a", rule)]);
            let filters = folder.path().join("filters.d");
            change(&filters);
            let errors = load_without_bypass(&conf).unwrap_err();
            set_mode(&filters, 0o700);
            let [error] = &errors[..] else { panic!("{message}: {errors:?}") };
            assert_eq!(error.message, message);
        }
    }
}
