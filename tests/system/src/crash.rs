// SPDX-License-Identifier: MIT OR Apache-2.0
//! States in which a power failure may leave files. They are made from a record of the calls that changed the files.
//!
//! A write lasts for certain once its file was synced, a name once its directory was. Before that each may be there or
//! not, in any order, and the last write may be there in part. File systems promise more: a program that copes with
//! these states copes with theirs.

use crate::strace::Strace;
use crate::test_host::{ProgramOutput, find_tool, run};
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of strace, so that a record holds whole strings and paths.
const RECORDING: [&str; 6] = ["-y", "-xx", "-s", "100000000", "-e", TRACE];
/// Some architectures lack the calls with a question mark.
const TRACE: &str = "trace=?open,openat,lseek,write,pwrite64,fsync,fdatasync,?rename,?renameat,renameat2,ftruncate,\
                     ?unlink,unlinkat";
/// Random selections of unsynced writes, for each call.
const SELECTIONS: u64 = 2;
/// A disk writes so much whole.
const SECTOR_BYTES: usize = 512;

/// Files by their paths.
pub type FileMap = BTreeMap<PathBuf, Vec<u8>>;

/// The effect of a call.
#[derive(Clone, Debug)]
enum FileChange {
    Make(PathBuf),
    Write { path: PathBuf, at: usize, bytes: Vec<u8> },
    Length { path: PathBuf, length: usize },
    Sync(PathBuf),
    Rename { from: PathBuf, to: PathBuf },
    Remove(PathBuf),
}

/// One state after a power failure.
#[derive(Clone, Debug)]
pub struct CrashState {
    /// The number of calls before it.
    pub calls: usize,
    /// The part of them that had reached the disk.
    pub description: String,
    /// The files that are there.
    pub files: FileMap,
}

/// Files at a moment, and the calls that changed them since.
#[derive(Debug)]
pub struct Recording {
    root: PathBuf,
    before: FileMap,
    changes: Vec<FileChange>,
    modes: HashMap<PathBuf, u32>,
}

/// A recording in progress.
#[derive(Debug)]
pub struct Recorder {
    root: PathBuf,
    before: FileMap,
    modes: HashMap<PathBuf, u32>,
    strace: Strace,
}

impl Recorder {
    /// Records what running processes do below `root`, by the file `record`.
    ///
    /// # Panics
    /// If the files cannot be read; so do the other functions of this file.
    #[must_use]
    pub fn start(root: &Path, pids: &[Pid], record: &Path) -> Self {
        let strace = Strace::attach(pids, record, &RECORDING);
        strace.wait_until_quiet();
        let (before, modes) = read_files(root);
        Self { root: root.to_owned(), before, modes, strace }
    }

    /// Ends when the processes change nothing any more.
    #[must_use]
    pub fn end(self) -> Recording {
        self.strace.wait_until_quiet();
        Recording::new(&self.root, self.before, self.modes, &self.strace.end())
    }
}

impl Recording {
    /// Records a command that works below `root`. Returns its output, too.
    #[must_use]
    pub fn record_command(root: &Path, record: &Path, command: &Command) -> (Self, ProgramOutput) {
        let (before, modes) = read_files(root);
        let mut traced = Command::new(find_tool("strace", "strace"));
        traced.args(["-f", "-qq", "-o"]).arg(record).args(RECORDING);
        traced.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            traced.env(name, value.unwrap_or_default());
        }
        let done = run(&mut traced);
        let text =
            String::from_utf8_lossy(&fs::read(record).expect("read the record")).into_owned();
        (Self::new(root, before, modes, &text), done)
    }

    fn new(root: &Path, before: FileMap, mut modes: HashMap<PathBuf, u32>, record: &str) -> Self {
        let changes =
            StraceParser { root, offsets: HashMap::new(), known: before.clone() }.changes(record);
        modes.extend(read_files(root).1);
        Self { root: root.to_owned(), before, changes, modes }
    }

    /// Number of calls that changed something.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.changes.len()
    }

    /// The number of the call that made a file.
    #[must_use]
    pub fn creation_call(&self, file: &Path) -> Option<usize> {
        let is_it = |change: &FileChange| matches!(change, FileChange::Make(path) if path == file);
        self.changes.iter().position(is_it).map(|at| at + 1)
    }

    /// All states, each once.
    #[must_use]
    pub fn states(&self) -> Vec<CrashState> {
        let mut disk = SimulatedDisk::from_files(&self.before);
        let mut seen = BTreeSet::new();
        let mut states = Vec::new();
        for calls in 0..=self.changes.len() {
            if let Some(change) = calls.checked_sub(1).map(|last| &self.changes[last]) {
                disk.apply(change);
            }
            for names in [SurvivingNames::All, SurvivingNames::Synced] {
                let selections =
                    (0..SELECTIONS).map(|n| SurvivingWrites::Some((calls as u64) << 8 | n));
                for writes in [SurvivingWrites::All, SurvivingWrites::Synced, SurvivingWrites::Torn]
                    .into_iter()
                    .chain(selections)
                {
                    let files = disk.after_failure(names, writes);
                    if seen.insert(files.clone()) {
                        let last = calls.checked_sub(1).map(|last| self.changes[last].name());
                        let last = last.unwrap_or_else(|| "nothing".to_owned());
                        let what =
                            format!("call {calls} ({last}), names {names:?}, writes {writes:?}");
                        states.push(CrashState { calls, description: what, files });
                    }
                }
            }
        }
        states
    }

    /// Writes the files of a state.
    pub fn write_state(&self, state: &CrashState) {
        write_files(&self.root, &state.files, &self.modes);
    }
}

/// Makes the files below `root` these.
fn write_files(root: &Path, files: &FileMap, modes: &HashMap<PathBuf, u32>) {
    for path in read_files(root).0.keys() {
        fs::remove_file(root.join(path)).expect("remove a file");
    }
    for (path, bytes) in files {
        let place = root.join(path);
        fs::write(&place, bytes).expect("write a file");
        let mode = modes.get(path).copied().unwrap_or(0o600);
        fs::set_permissions(&place, fs::Permissions::from_mode(mode)).expect("chmod");
    }
}

/// All regular files below a directory, and their modes.
fn read_files(root: &Path) -> (FileMap, HashMap<PathBuf, u32>) {
    let (mut files, mut modes) = (FileMap::new(), HashMap::new());
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("list a folder").flatten() {
            let Ok(metadata) = entry.path().symlink_metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() {
                let path = entry.path().strip_prefix(root).expect("below the root").to_owned();
                // It may have been a temporary one.
                let Ok(bytes) = fs::read(entry.path()) else { continue };
                modes.insert(path.clone(), metadata.permissions().mode() & 0o7777);
                files.insert(path, bytes);
            }
        }
    }
    (files, modes)
}

impl FileChange {
    fn name(&self) -> String {
        match self {
            Self::Make(path) => format!("create {}", path.display()),
            Self::Write { path, at, bytes } => {
                format!("write {} bytes at {at} of {}", bytes.len(), path.display())
            }
            Self::Length { path, length } => format!("truncate {} to {length}", path.display()),
            Self::Sync(path) => format!("sync {}", path.display()),
            Self::Rename { from, to } => format!("rename {} to {}", from.display(), to.display()),
            Self::Remove(path) => format!("remove {}", path.display()),
        }
    }
}

/// The names that survive the crash.
#[derive(Clone, Copy, Debug)]
enum SurvivingNames {
    All,
    Synced,
}

/// The writes that survive the crash.
#[derive(Clone, Copy, Debug)]
enum SurvivingWrites {
    All,
    Synced,
    /// All writes, except the end of the last one.
    Torn,
    /// A selection by this seed.
    Some(u64),
}

/// A file system: contents and names apart.
struct SimulatedDisk {
    contents: Vec<FileContent>,
    names: BTreeMap<PathBuf, usize>,
    synced: BTreeMap<PathBuf, usize>,
}

struct FileContent {
    synced: Vec<u8>,
    waiting: Vec<FileChange>,
}

impl SimulatedDisk {
    fn from_files(files: &FileMap) -> Self {
        let contents =
            files.values().map(|bytes| FileContent { synced: bytes.clone(), waiting: Vec::new() });
        let names: BTreeMap<_, _> = files.keys().cloned().zip(0..).collect();
        Self { contents: contents.collect(), synced: names.clone(), names }
    }

    fn apply(&mut self, change: &FileChange) {
        match change {
            FileChange::Make(path) => {
                self.names.insert(path.clone(), self.contents.len());
                self.contents.push(FileContent { synced: Vec::new(), waiting: Vec::new() });
            }
            FileChange::Write { path, .. } | FileChange::Length { path, .. } => {
                if let Some(&file) = self.names.get(path) {
                    self.contents[file].waiting.push(change.clone());
                }
            }
            FileChange::Sync(path) => match self.names.get(path) {
                Some(&file) => self.contents[file].sync(),
                None => self.sync_dir(path),
            },
            FileChange::Rename { from, to } => {
                if let Some(file) = self.names.remove(from) {
                    self.names.insert(to.clone(), file);
                }
            }
            FileChange::Remove(path) => {
                self.names.remove(path);
            }
        }
    }

    fn sync_dir(&mut self, folder: &Path) {
        let is_there = |path: &Path| path.parent() == Some(folder);
        self.synced.retain(|path, _| !is_there(path));
        let names = self.names.iter().filter(|(path, _)| is_there(path));
        self.synced.extend(names.map(|(path, file)| (path.clone(), *file)));
    }

    fn after_failure(&self, names: SurvivingNames, writes: SurvivingWrites) -> FileMap {
        let names = match names {
            SurvivingNames::All => &self.names,
            SurvivingNames::Synced => &self.synced,
        };
        names
            .iter()
            .map(|(path, file)| (path.clone(), self.contents[*file].surviving_bytes(writes)))
            .collect()
    }
}

impl FileContent {
    fn sync(&mut self) {
        self.synced = self.surviving_bytes(SurvivingWrites::All);
        self.waiting.clear();
    }

    fn surviving_bytes(&self, writes: SurvivingWrites) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for (number, change) in self.waiting.iter().enumerate() {
            let is_last = number + 1 == self.waiting.len();
            match writes {
                SurvivingWrites::All => apply(&mut bytes, change, usize::MAX),
                SurvivingWrites::Synced => {}
                SurvivingWrites::Torn if is_last => apply(&mut bytes, change, torn_length(change)),
                SurvivingWrites::Torn => apply(&mut bytes, change, usize::MAX),
                SurvivingWrites::Some(seed) if is_selected(seed, number) => {
                    apply(
                        &mut bytes,
                        change,
                        if is_last { torn_length(change) } else { usize::MAX },
                    );
                }
                SurvivingWrites::Some(_) => {}
            }
        }
        bytes
    }
}

/// Whole sectors, about half of the bytes that a call wrote.
fn torn_length(change: &FileChange) -> usize {
    match change {
        FileChange::Write { bytes, .. } => bytes.len() / 2 / SECTOR_BYTES * SECTOR_BYTES,
        _ => 0,
    }
}

fn is_selected(seed: u64, number: usize) -> bool {
    // SplitMix64.
    let mut x = seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) & 1 == 1
}

fn apply(content: &mut Vec<u8>, change: &FileChange, limit: usize) {
    match change {
        FileChange::Write { at, bytes, .. } => {
            let bytes = &bytes[..bytes.len().min(limit)];
            let end = at + bytes.len();
            if !bytes.is_empty() {
                content.resize(content.len().max(end), 0);
                content[*at..end].copy_from_slice(bytes);
            }
        }
        FileChange::Length { length, .. } if limit > 0 => content.resize(*length, 0),
        _ => {}
    }
}

/// Reads a record of `strace -f -y -xx`.
struct StraceParser<'a> {
    root: &'a Path,
    /// Offsets of descriptors, by number and path.
    offsets: HashMap<(String, PathBuf), usize>,
    known: FileMap,
}

impl StraceParser<'_> {
    fn changes(mut self, record: &str) -> Vec<FileChange> {
        let mut begun: HashMap<&str, &str> = HashMap::new();
        let mut changes = Vec::new();
        for line in record.lines() {
            let Some((pid, call)) = line.split_once(char::is_whitespace) else { continue };
            let call = call.trim_start();
            if let Some(first) = call.strip_suffix(" <unfinished ...>") {
                begun.insert(pid, first);
                continue;
            }
            let whole =
                match call.strip_prefix("<... ").and_then(|rest| rest.split_once("resumed>")) {
                    Some((_, rest)) => format!("{}{rest}", begun.remove(pid).unwrap_or_default()),
                    None => call.to_owned(),
                };
            changes.extend(self.call(&whole));
        }
        changes
    }

    /// The changes that a call made below the root.
    fn call(&mut self, text: &str) -> Vec<FileChange> {
        let Some((call, result)) = text.rsplit_once(" = ") else { return Vec::new() };
        let Some((name, args)) =
            call.trim_end().strip_suffix(')').and_then(|call| call.split_once('('))
        else {
            return Vec::new();
        };
        if result.starts_with('-') {
            return Vec::new();
        }
        let args: Vec<&str> = args.split(", ").collect();
        match (name, &args[..]) {
            ("open", [_, flags, ..]) | ("openat", [_, _, flags, ..]) => self.open(flags, result),
            ("lseek", [file, ..]) => {
                if let (Some(key), Ok(offset)) = (self.open_file(file), result.parse()) {
                    self.offsets.insert(key, offset);
                }
                Vec::new()
            }
            ("write" | "pwrite64", [file, bytes, _, rest @ ..]) => self.write(file, bytes, rest),
            ("ftruncate", [file, length]) => {
                let Some((_, path)) = self.open_file(file) else { return Vec::new() };
                vec![FileChange::Length { path, length: length.parse().expect("a length") }]
            }
            ("fsync" | "fdatasync", [file]) => {
                self.open_file(file).map(|(_, path)| FileChange::Sync(path)).into_iter().collect()
            }
            ("rename", [from, to]) => self.rename("", from, "", to),
            ("renameat", [at, from, other, to]) | ("renameat2", [at, from, other, to, _]) => {
                self.rename(at, from, other, to)
            }
            ("unlink", [path]) => self.remove("", path),
            ("unlinkat", [at, path, _]) => self.remove(at, path),
            _ => Vec::new(),
        }
    }

    fn open(&mut self, flags: &str, result: &str) -> Vec<FileChange> {
        let Some(key) = self.open_file(result) else { return Vec::new() };
        let path = key.1.clone();
        let has = |flag: &str| flags.split('|').any(|one| one == flag);
        self.offsets.insert(key, 0);
        if has("O_CREAT") && self.known.insert(path.clone(), Vec::new()).is_none() {
            return vec![FileChange::Make(path)];
        }
        if has("O_TRUNC") {
            return vec![FileChange::Length { path, length: 0 }];
        }
        assert!(!has("O_APPEND") || !self.known.contains_key(&path), "O_APPEND: {flags} {result}");
        Vec::new()
    }

    fn write(&mut self, file: &str, bytes: &str, rest: &[&str]) -> Vec<FileChange> {
        let Some(key) = self.open_file(file) else { return Vec::new() };
        let bytes = unquoted(bytes);
        let path = key.1.clone();
        let at = match rest {
            [at] => at.parse().expect("an offset"),
            _ => {
                let offset = self.offsets.entry(key).or_default();
                let at = *offset;
                *offset += bytes.len();
                at
            }
        };
        vec![FileChange::Write { path, at, bytes }]
    }

    fn rename(&mut self, at: &str, from: &str, other: &str, to: &str) -> Vec<FileChange> {
        let (Some(from), Some(to)) = (self.resolve(at, from), self.resolve(other, to)) else {
            return Vec::new();
        };
        self.known.remove(&from);
        self.known.insert(to.clone(), Vec::new());
        vec![FileChange::Rename { from, to }]
    }

    fn remove(&mut self, at: &str, path: &str) -> Vec<FileChange> {
        let Some(path) = self.resolve(at, path) else { return Vec::new() };
        self.known.remove(&path);
        vec![FileChange::Remove(path)]
    }

    /// The descriptor and the path of `4<PATH>` below the root.
    fn open_file(&self, text: &str) -> Option<(String, PathBuf)> {
        let (number, path) = text.split_once('<')?;
        let path = to_path(unhex(path.split('>').next()?));
        Some((number.to_owned(), path.strip_prefix(self.root).ok()?.to_owned()))
    }

    fn resolve(&self, at: &str, path: &str) -> Option<PathBuf> {
        let folder = at.split_once('<').map_or("", |(_, path)| path.trim_end_matches('>'));
        let path = to_path(unhex(folder)).join(to_path(unquoted(path)));
        Some(path.strip_prefix(self.root).ok()?.to_owned())
    }
}

fn to_path(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

fn unquoted(text: &str) -> Vec<u8> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    unhex(inner.unwrap_or_else(|| panic!("a string is cut off: {text}")))
}

/// The bytes of `\x61\x62`.
fn unhex(text: &str) -> Vec<u8> {
    let digits = text.split("\\x").skip(1);
    digits.map(|digits| u8::from_str_radix(digits, 16).expect("two digits")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"7 openat(AT_FDCWD<\x2f>, "\x2f\x72\x2f\x61", O_RDWR|O_CREAT, 0600) = 3<\x2f\x72\x2f\x61>
7 write(3<\x2f\x72\x2f\x61>, "\x31\x32", 2 <unfinished ...>
8 unlink("\x2f\x71\x2f\x61") = 0
7 <... write resumed>) = 2
7 fsync(3<\x2f\x72\x2f\x61>) = 0
7 write(3<\x2f\x72\x2f\x61>, "\x33", 1) = 1
7 rename("\x2f\x72\x2f\x61", "\x2f\x72\x2f\x62") = 0
7 rename("\x2f\x72\x2f\x63", "\x2f\x72\x2f\x62") = -1 ENOENT (No such file or directory)
7 fsync(4<\x2f\x72>) = 0
"#;

    #[test]
    fn crash_states_hold_what_was_synced() {
        let before = FileMap::from([("b".into(), b"old".to_vec())]);
        let parser =
            StraceParser { root: Path::new("/r"), offsets: HashMap::new(), known: before.clone() };
        let changes = parser.changes(RECORD);
        assert_eq!(changes.len(), 6, "{changes:?}");
        let recording =
            Recording { root: "/r".into(), before: before.clone(), changes, modes: HashMap::new() };
        let states: Vec<FileMap> =
            recording.states().into_iter().map(|state| state.files).collect();
        let with = |files: &[(&str, &str)]| -> FileMap {
            files.iter().map(|(name, text)| ((*name).into(), text.as_bytes().to_vec())).collect()
        };
        for there in [
            with(&[("b", "old")]),
            with(&[("a", ""), ("b", "old")]),
            with(&[("a", "12"), ("b", "old")]),
            with(&[("a", "123"), ("b", "old")]),
            with(&[("b", "12")]),
            with(&[("b", "123")]),
        ] {
            assert!(states.contains(&there), "{there:?}");
        }
        assert_eq!(states.len(), 6, "{states:?}");
    }
}
