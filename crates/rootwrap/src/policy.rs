//! A rootwrap.conf with all the filter files that it leads to, from the disk.
//!
//! Every mistake is told with its file and line. That a file could be changed by others is noted with
//! its rules, for strict mode to pass over them; nothing is judged here.

use crate::conf::Conf;
use crate::filters::{self, Rule};
use crate::host::{Facts, Kind};
use crate::ini::FILE_BYTES_MAX;
use crate::judge::Mode;
use crate::problem::{Problem, Severity};
use crate::trust::distrust;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// More files in a folder are a mistake: OpenStack ships a dozen.
const FILES_MAX: usize = 10_000;
/// More rules would make judging slow: OpenStack ships some hundred.
const RULES_MAX: usize = 50_000;

/// What commands are judged by.
#[derive(Debug)]
pub struct Policy {
    /// The rootwrap.conf.
    pub conf: Conf,
    /// What was passed over.
    pub warnings: Vec<Problem>,
    /// In the order of the folders, in which the original takes them.
    rules: Vec<Rule>,
    /// The positions of those in files by the names of their files, which is no matter of chance.
    by_name: Vec<usize>,
}

impl Policy {
    /// Reads a rootwrap.conf and its filter files. An error is every mistake in them for which
    /// nothing can be judged.
    pub fn load(conf_file: &Path, facts: &dyn Facts) -> Result<Self, Vec<Problem>> {
        let bytes = read(conf_file).map_err(|error| {
            let what = format!("cannot be read: {error}");
            let instead = "name a rootwrap.conf that this user may read";
            vec![Problem::error(conf_file, 0, what, instead)]
        })?;
        let conf = Conf::parse(conf_file, &bytes)?;
        let mut loader = Loader { facts, files: Vec::new(), warnings: Vec::new(), errors: vec![] };
        let conf_distrust = loader.distrust(conf_file);
        for folder in &conf.filters_path {
            loader.folder(Path::new(folder));
        }
        let Loader { files, warnings, mut errors, .. } = loader;
        if files.iter().map(|file| file.rules.len()).sum::<usize>() > RULES_MAX {
            let what = format!("leads to more than {RULES_MAX} rules");
            errors.push(Problem::error(conf_file, 0, what, "remove filter files"));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self::of(conf, files, warnings, conf_distrust.as_deref()))
    }

    fn of(
        conf: Conf,
        files: Vec<FilterFile>,
        warnings: Vec<Problem>,
        conf_distrust: Option<&str>,
    ) -> Self {
        let mut sorted: Vec<(usize, OsString, usize)> = Vec::new();
        let mut rules = Vec::new();
        for file in files {
            for rule in file.rules {
                sorted.push((file.folder, file.name.clone(), rules.len()));
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

    /// Out of texts instead of files, all of them trusted: for trials.
    pub fn of_texts(conf: &[u8], filter_files: &[&[u8]]) -> Result<Self, Vec<Problem>> {
        let conf = Conf::parse(Path::new("rootwrap.conf"), conf)?;
        let (mut files, mut warnings) = (Vec::new(), Vec::new());
        for (number, text) in (0_usize..).zip(filter_files) {
            let name = OsString::from(format!("{number:06}.filters"));
            let (rules, passed_over) = filters::parse(Path::new(&name), text)?;
            warnings.extend(passed_over);
            files.push(FilterFile { folder: 0, name, rules });
        }
        Ok(Self::of(conf, files, warnings, None))
    }

    /// The same in files of those names, in the order in which a folder lists them.
    #[cfg(test)]
    pub(crate) fn of_files(conf: &[u8], filter_files: &[(&str, String)]) -> Self {
        let conf = Conf::parse(Path::new("rootwrap.conf"), conf).unwrap();
        let file = |(name, text): &(&str, String)| {
            let (rules, _) = filters::parse(Path::new(name), text.as_bytes()).unwrap();
            FilterFile { folder: 0, name: name.into(), rules }
        };
        Self::of(conf, filter_files.iter().map(file).collect(), Vec::new(), None)
    }

    /// The rules in the order in which a mode takes them. Strict mode takes those of files alone.
    pub fn rules(&self, mode: Mode) -> impl Iterator<Item = &Rule> {
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
    /// The number of its folder.
    folder: usize,
    name: OsString,
    rules: Vec<Rule>,
}

struct Loader<'f> {
    facts: &'f dyn Facts,
    files: Vec<FilterFile>,
    warnings: Vec<Problem>,
    errors: Vec<Problem>,
}

impl Loader<'_> {
    fn folder(&mut self, folder: &Path) {
        if self.facts.status(folder).is_none_or(|status| status.kind != Kind::Folder) {
            let instead = "make it, or take it out of filters_path";
            self.warnings.push(Problem::warning(folder, 0, "is no folder", instead));
            return;
        }
        let names = match names_in(folder) {
            Ok(names) => names,
            Err(error) => {
                let what = format!("cannot be listed: {error}");
                let instead = "let this user read it, or take it out of filters_path";
                self.errors.push(Problem::error(folder, 0, what, instead));
                return;
            }
        };
        let folder_distrust = self.distrust(folder);
        let number = self.files.last().map_or(0, |file| file.folder + 1);
        for name in names {
            let file = folder.join(&name);
            let is_file = |file: &Path| self.facts.status(file).map(|found| found.kind);
            if name.as_bytes().starts_with(b".") || is_file(&file) != Some(Kind::File) {
                continue;
            }
            let rules = self.file(&file, folder_distrust.as_deref());
            self.files.push(FilterFile { folder: number, name, rules });
        }
    }

    fn file(&mut self, file: &Path, folder_distrust: Option<&str>) -> Vec<Rule> {
        let bytes = match read(file) {
            Ok(bytes) => bytes,
            Err(error) => {
                let what = format!("cannot be read: {error}");
                let instead = "let this user read it, or remove it";
                self.errors.push(Problem::error(file, 0, what, instead));
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
        let instead = "strict mode believes nothing in it: give it to root, writable by root alone";
        self.warnings.push(Problem {
            severity: Severity::Warning,
            file: path.to_owned(),
            line: 0,
            what: format!("could be changed by others: {why}"),
            instead: instead.into(),
        });
        Some(why)
    }
}

/// As the folder lists them.
fn names_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        if names.len() == FILES_MAX {
            return Err(io::Error::other(format!("there are more than {FILES_MAX} files in it")));
        }
        names.push(entry?.file_name());
    }
    Ok(names)
}

/// A byte more than may be parsed at the most.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path of a rootwrap.conf in a folder with the given filter files: for tests.
#[cfg(test)]
pub(crate) fn lay_out(folder: &Path, conf: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
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
    use crate::host::ThisHost;
    use std::os::unix::fs::PermissionsExt;

    fn names(policy: &Policy, mode: Mode) -> Vec<&str> {
        policy.rules(mode).map(|rule| &*rule.name).collect()
    }

    #[test]
    fn strict_takes_files_by_name_without_built_in_rule() {
        let folder = tempfile::tempdir().unwrap();
        let rule = |name: &str| format!("[Filters]\n{name}: CommandFilter, {name}, root\n");
        let conf = lay_out(
            folder.path(),
            "",
            &[("b.filters", &rule("b")), ("a", &rule("a")), (".hidden", "no"), ("c~", &rule("c"))],
        );
        let policy = Policy::load(&conf, &ThisHost::new()).unwrap();
        assert_eq!(names(&policy, Mode::Strict), ["a", "b", "c"]);
        assert_eq!(names(&policy, Mode::Compat).last(), Some(&"privsep-helper"));
        assert_eq!(policy.warnings, []);
    }

    #[test]
    fn every_mistake_of_every_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let conf = lay_out(folder.path(), "", &[("a", "[Filters]\nx\n"), ("b", "[filters]\n")]);
        let errors = Policy::load(&conf, &ThisHost::new()).unwrap_err();
        assert_eq!(errors.len(), 2);
        let missing = Policy::load(&folder.path().join("no.conf"), &ThisHost::new()).unwrap_err();
        assert!(missing[0].to_string().contains("cannot be read"));
    }

    #[test]
    fn a_file_that_others_could_change_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        let rule = "[Filters]\nls: CommandFilter, ls, root\n";
        let conf = lay_out(folder.path(), "", &[("a", rule), ("b", rule)]);
        let file = folder.path().join("filters.d/a");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let policy = Policy::load(&conf, &ThisHost::new()).unwrap();
        let distrusted: Vec<_> =
            policy.rules(Mode::Strict).map(|rule| rule.distrust.is_some()).collect();
        assert_eq!(distrusted, [true, false]);
        assert_eq!(policy.warnings.len(), 1);

        fs::set_permissions(&conf, fs::Permissions::from_mode(0o666)).unwrap();
        let policy = Policy::load(&conf, &ThisHost::new()).unwrap();
        assert!(policy.rules(Mode::Strict).all(|rule| rule.distrust.is_some()));
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("rootwrap.conf");
        fs::write(&conf, "[DEFAULT]\nfilters_path=/no/such\n").unwrap();
        fs::set_permissions(&conf, fs::Permissions::from_mode(0o644)).unwrap();
        let policy = Policy::load(&conf, &ThisHost::new()).unwrap();
        assert_eq!(names(&policy, Mode::Compat), ["privsep-helper"]);
        assert!(policy.warnings[0].to_string().starts_with("/no/such: warning: is no folder"));
    }
}
