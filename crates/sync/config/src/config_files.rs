// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a configuration: their paths, order and bytes. `load` parses them, and `merge` combines them.
//!
//! The vendor's files come first, then the main file, then its drop-ins. A later file overrides an earlier one, key by
//! key. The main file may be absent if there is any other file. This module reads bytes only. [`parse_files`](crate::parse_files) parses them.

use crate::diagnostic::with_position;
use crate::ownership::{check_directory_ownership, check_ownership};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Message, Severity};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The default main file.
pub const MAIN_PATH: &str = "/etc/roster/roster.toml";
/// Directory of the vendor's files, which are used with [`MAIN_PATH`] only.
pub const VENDOR_DIRECTORY: &str = "/usr/lib/roster/roster.toml.d";

/// Limit of the whole configuration, far above any real one.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 20;
/// Limit of the files in a directory.
const DROP_INS_MAX: usize = 100;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// All files, in order of increasing precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFiles {
    pub(crate) files: Vec<ConfigFile>,
    /// The path of the main file.
    pub(crate) main: PathBuf,
    /// The existing directories of drop-ins.
    directories: Vec<PathBuf>,
}

/// A file or directory of the configuration that cannot be read.
#[derive(Debug)]
pub struct ConfigReadError {
    /// The row of the table.
    pub message: &'static Message,
    /// The path.
    pub path: PathBuf,
    /// The path is the main file.
    pub is_main: bool,
    /// The error.
    pub error: io::Error,
}

impl ConfigReadError {
    fn new(path: &Path, is_main: bool, error: io::Error) -> Self {
        let is_missing = is_main && error.kind() == ErrorKind::NotFound;
        let message = if is_missing { &codes::CONFIG_MISSING } else { &codes::CONFIG_UNREADABLE };
        Self { message, path: path.to_owned(), is_main, error }
    }

    /// Returns whether there is no configuration: neither the main file nor a drop-in exists.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.is_main && self.error.kind() == ErrorKind::NotFound
    }
}

impl From<ConfigReadError> for CodedError {
    fn from(found: ConfigReadError) -> Self {
        let error = Self::new(
            found.message,
            format!("cannot read {}: {}", found.path.display(), found.error),
        );
        match found.error.kind() {
            ErrorKind::PermissionDenied => error.fix("Run the command as root."),
            _ => error,
        }
    }
}

/// A source of files.
pub trait FileTree {
    /// Returns the names in a directory. Empty if the directory does not exist. A broken link is an error.
    ///
    /// # Errors
    /// The directory exists and is unreadable.
    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Returns the first `bytes_max` bytes of a regular file.
    ///
    /// # Errors
    /// The file is unreadable.
    fn bytes(&self, file: &Path, bytes_max: u64) -> io::Result<Vec<u8>>;
}

/// The files of this host.
struct HostFiles;

impl FileTree for HostFiles {
    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        match fs::symlink_metadata(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn bytes(&self, file: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        // Opening another type of file, such as a pipe, might block.
        if !fs::metadata(file)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(file)?.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl ConfigFiles {
    /// Reads the files of this host. `main` or a drop-in must exist.
    ///
    /// # Errors
    /// A file or an existing directory cannot be read.
    pub fn read(main: &Path) -> Result<Self, ConfigReadError> {
        Self::read_from(&HostFiles, main)
    }

    /// Reads the files of another tree.
    ///
    /// # Errors
    /// As [`ConfigFiles::read`].
    pub fn read_from(tree: &impl FileTree, main: &Path) -> Result<Self, ConfigReadError> {
        let mut found = Self { files: Vec::new(), main: main.to_owned(), directories: Vec::new() };
        let mut paths = Vec::new();
        // At a reload, rosterd passes the absolute path.
        if std::path::absolute(main).is_ok_and(|path| path == Path::new(MAIN_PATH)) {
            paths.extend(found.list_drop_ins(tree, Path::new(VENDOR_DIRECTORY))?);
        }
        paths.push(main.to_owned());
        paths.extend(found.list_drop_ins(tree, &drop_in_directory(main))?);
        let mut bytes_left = TEXT_BYTES_MAX + 1;
        let has_drop_ins = paths.len() > 1;
        for path in paths {
            let bytes = match tree.bytes(&path, bytes_left as u64) {
                Ok(bytes) => bytes,
                Err(error) if path == main && error.kind() == ErrorKind::NotFound => {
                    if is_listed(tree, main) {
                        let error = io::Error::other("the link leads to a missing file");
                        return Err(ConfigReadError::new(main, true, error));
                    }
                    if has_drop_ins {
                        continue;
                    }
                    return Err(ConfigReadError::new(main, true, error));
                }
                Err(error) => return Err(ConfigReadError::new(&path, path == main, error)),
            };
            bytes_left = bytes_left.saturating_sub(bytes.len());
            found.files.push(ConfigFile { path, bytes });
            // Too many bytes, which the parser rejects.
            if bytes_left == 0 {
                break;
            }
        }
        Ok(found)
    }

    /// Makes a configuration of one text.
    pub(crate) fn from_text(path: &str, text: &str) -> Self {
        let main = PathBuf::from(path);
        let file = ConfigFile { path: main.clone(), bytes: text.as_bytes().to_vec() };
        Self { files: vec![file], main, directories: Vec::new() }
    }

    /// Returns the paths of a directory's drop-ins, sorted by name.
    fn list_drop_ins(
        &mut self,
        tree: &impl FileTree,
        directory: &Path,
    ) -> Result<Vec<PathBuf>, ConfigReadError> {
        let failed = |error| ConfigReadError::new(directory, false, error);
        let mut names = tree.names(directory).map_err(failed)?;
        names.retain(|name| is_drop_in(name));
        names.sort_unstable();
        if names.len() > DROP_INS_MAX {
            let what = format!("{} files; the limit is {DROP_INS_MAX}", names.len());
            let message = &codes::TOO_MANY_DROP_INS;
            return Err(ConfigReadError { message, ..failed(io::Error::other(what)) });
        }
        self.directories.push(directory.to_owned());
        Ok(names.into_iter().map(|name| directory.join(name)).collect())
    }

    /// Returns the paths of all files, in order of increasing precedence.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| &*file.path)
    }

    /// Returns whether the main file was read. Without it, only drop-ins count.
    #[must_use]
    pub fn has_main_file(&self) -> bool {
        self.paths().any(|path| path == self.main)
    }

    /// Reports files and directories that a user other than root could change.
    #[must_use]
    pub fn check_ownership(&self) -> Vec<Diagnostic> {
        let files = self.files.iter().map(|file| (&*file.path, check_ownership(&file.path)));
        let directories = self.directories.iter();
        let directories = directories.map(|path| (&**path, check_directory_ownership(path)));
        let checked = files.chain(directories);
        let problems = checked.filter_map(|(path, checked)| Some((path, checked.err()?)));
        let diagnostic = |(path, error): (&Path, CodedError)| {
            with_position(Severity::Error, (path.to_owned(), 0, 0), String::new(), error)
        };
        problems.map(diagnostic).collect()
    }
}

/// Returns whether a directory has the name of a file, even if that is a broken link. An unreadable directory may have
/// it.
fn is_listed(tree: &impl FileTree, file: &Path) -> bool {
    let directory = match file.parent() {
        Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
        Some(directory) => directory,
        None => return true,
    };
    let names = tree.names(directory);
    names.map_or(true, |names| names.iter().any(|name| Some(&**name) == file.file_name()))
}

/// Returns `FILE.d`.
fn drop_in_directory(main: &Path) -> PathBuf {
    let mut path = main.as_os_str().to_owned();
    path.push(".d");
    path.into()
}

/// Returns whether a drop-in may have this name: `*.toml`, except for hidden files, which editors leave behind.
fn is_drop_in(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.ends_with(b".toml") && !name.starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::table::config;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A tree in which the text of each file is its own path.
    struct Listed(&'static [(&'static str, &'static [&'static str])]);

    impl FileTree for Listed {
        fn names(&self, directory: &Path) -> io::Result<Vec<OsString>> {
            let found = self.0.iter().find(|(path, _)| Path::new(path) == directory);
            Ok(found.map_or(&[][..], |(_, names)| names).iter().map(OsString::from).collect())
        }

        fn bytes(&self, file: &Path, _: u64) -> io::Result<Vec<u8>> {
            Ok(file.as_os_str().as_encoded_bytes().to_vec())
        }
    }

    const TREE: Listed = Listed(&[
        (VENDOR_DIRECTORY, &["50-vendor.toml"]),
        ("/etc/roster/roster.toml.d", &["20-b.toml", "10-a.toml", "README", ".#x.toml", "c.toml~"]),
        ("/x.toml.d", &["1.toml"]),
    ]);

    fn paths(main: &str) -> Vec<String> {
        let found = ConfigFiles::read_from(&TREE, Path::new(main)).unwrap();
        found.paths().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn config_files_come_in_documented_order() {
        assert_eq!(
            paths("/etc/roster/roster.toml"),
            [
                "/usr/lib/roster/roster.toml.d/50-vendor.toml",
                "/etc/roster/roster.toml",
                "/etc/roster/roster.toml.d/10-a.toml",
                "/etc/roster/roster.toml.d/20-b.toml",
            ]
        );
        assert_eq!(paths("/x.toml"), ["/x.toml", "/x.toml.d/1.toml"]);
        assert_eq!(paths("/y.toml"), ["/y.toml"]);
    }

    #[test]
    fn config_files_unreadable_drop_in_is_error() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("r.toml");
        let read = || ConfigFiles::read(&main);
        assert!(read().unwrap_err().is_missing());
        fs::write(&main, "").unwrap();
        assert_eq!(read().unwrap().paths().count(), 1);
        assert!(read().unwrap().has_main_file());

        let drop_ins = folder.path().join("r.toml.d");
        symlink("/no/such/directory", &drop_ins).unwrap();
        let error = read().unwrap_err();
        assert_eq!((&error.path, error.message), (&drop_ins, &config::CONFIG_UNREADABLE));
        fs::remove_file(&drop_ins).unwrap();
        fs::write(&drop_ins, "").unwrap();
        assert_eq!(read().unwrap_err().path, drop_ins, "not a directory");
        fs::remove_file(&drop_ins).unwrap();
        fs::create_dir(&drop_ins).unwrap();
        assert_eq!(read().unwrap().paths().count(), 1);

        for name in ["a.toml", "b.toml"] {
            fs::write(drop_ins.join(name), "").unwrap();
        }
        assert_eq!(read().unwrap().paths().count(), 3);
        let lost = drop_ins.join("c.toml");
        symlink("/no/such/file", &lost).unwrap();
        let error = read().unwrap_err();
        assert_eq!((&error.path, error.is_missing()), (&lost, false));
        fs::remove_file(&lost).unwrap();
        fs::create_dir(&lost).unwrap();
        assert_eq!(read().unwrap_err().path, lost, "not a file");
    }

    #[test]
    fn config_files_drop_ins_need_no_main_file() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("r.toml");
        let drop_ins = folder.path().join("r.toml.d");
        let read = || ConfigFiles::read(&main);
        fs::create_dir(&drop_ins).unwrap();
        fs::write(drop_ins.join("README"), "").unwrap();
        assert!(read().unwrap_err().is_missing(), "the directory has no drop-in");
        let drop_in = drop_ins.join("a.toml");
        fs::write(&drop_in, "").unwrap();
        assert_eq!(read().unwrap().paths().collect::<Vec<_>>(), [&drop_in]);
        assert!(!read().unwrap().has_main_file());
        fs::set_permissions(&drop_in, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(read().unwrap().check_ownership().len(), 1);
        // The administrator wrote a main file, and its keys are lost.
        symlink("/no/such/file", &main).unwrap();
        let error = read().unwrap_err();
        assert_eq!((error.message, error.is_missing()), (&config::CONFIG_UNREADABLE, false));
        fs::remove_file(&drop_in).unwrap();
        assert_eq!(read().unwrap_err().message, &config::CONFIG_UNREADABLE);
    }

    #[test]
    fn config_files_changeable_by_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("r.toml");
        let drop_ins = folder.path().join("r.toml.d");
        fs::create_dir(&drop_ins).unwrap();
        fs::write(&main, "").unwrap();
        let wrong = || -> Vec<String> {
            let problems = ConfigFiles::read(&main).unwrap().check_ownership();
            let place = format!("{}/", folder.path().display());
            problems.iter().map(|problem| problem.to_string().replace(&place, "")).collect()
        };
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(wrong(), [""; 0]);
        set_mode(&drop_ins, 0o777);
        // Another user could have removed a rule.
        assert_eq!(
            wrong(),
            ["r.toml.d: r.toml.d has mode 0777, which allows other users to change it. Check the \
                 content of r.toml.d, then run `chmod go-w r.toml.d`. [RST-1105]"]
        );
        set_mode(&drop_ins, 0o755);
        set_mode(&drop_ins, 0o1777);
        assert_eq!(wrong().len(), 1, "other users can add files to a sticky directory");
        set_mode(&drop_ins, 0o755);
        let drop_in = drop_ins.join("a.toml");
        fs::write(&drop_in, "").unwrap();
        set_mode(&drop_in, 0o666);
        let [said] = &wrong()[..] else { panic!() };
        assert!(said.starts_with("r.toml.d/a.toml: r.toml.d/a.toml has mode 0666"), "{said}");
    }

    #[test]
    fn config_files_reading_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("r.toml");
        let drop_ins = folder.path().join("r.toml.d");
        fs::create_dir(&drop_ins).unwrap();
        fs::write(&main, "#".repeat(600_000)).unwrap();
        for name in ["a.toml", "b.toml"] {
            fs::write(drop_ins.join(name), "#".repeat(600_000)).unwrap();
        }
        let found = ConfigFiles::read(&main).unwrap();
        let bytes: Vec<_> = found.files.iter().map(|file| file.bytes.len()).collect();
        assert_eq!(bytes, [600_000, TEXT_BYTES_MAX + 1 - 600_000]);
        let [problem] = &crate::parse_files(&found).unwrap_err()[..] else { panic!() };
        assert_eq!((&*problem.file, problem.line), (&*drop_ins.join("a.toml"), 1));
        assert_eq!(problem.message, &config::CONFIG_TOO_LARGE);
        for number in 0..DROP_INS_MAX {
            fs::write(drop_ins.join(format!("{number}.toml")), "").unwrap();
        }
        let error = ConfigFiles::read(&main).unwrap_err();
        assert_eq!(error.message, &config::TOO_MANY_DROP_INS);
        assert_eq!(error.error.to_string(), "102 files; the limit is 100");
    }
}
