//! From passwd(5), group(5) and shadow(5) text to an image that answers as glibc's `files` would
//! from the same text. Whatever `files` passes over or hides is named in the [`Report`].

use crate::{Builder, Duplicate, Finished, Gaps, Image, Key, Members, TooLarge};
use roster_record::text::{self, Line, Skip};
use roster_snapshot::layout::Kind;
use std::fmt;
use std::path::{Path, PathBuf};

/// Text between two calls of the progress function.
const PROGRESS_BYTES: usize = 1 << 20;
/// Notes kept one by one; above it they are only counted.
pub const NOTES_MAX: usize = 100_000;

/// Why nothing was compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A source cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The source.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An entry exceeds the format.
    #[error("{path}:{line} cannot be compiled")]
    TooLarge {
        /// The source.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is too large.
        source: TooLarge,
    },
    /// All entries together exceed the format.
    #[error("these sources cannot be compiled")]
    Whole {
        /// What is too large.
        source: TooLarge,
    },
}

/// A source by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// passwd(5)
    Passwd,
    /// group(5)
    Group,
    /// shadow(5)
    Shadow,
}

impl Source {
    /// The map's name in nsswitch.conf(5).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passwd => "passwd",
            Self::Group => "group",
            Self::Shadow => "shadow",
        }
    }
}

/// How far a compilation is: bytes of one source, then the indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Reading this source.
    Reading {
        /// Which.
        source: Source,
        /// Bytes read.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// Building lists and indices.
    Indexing,
}

/// Something about a line that its author may not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// `files` passes it over.
    Skipped(Skip),
    /// Look-ups by this key answer an earlier line; enumeration shows both.
    Hidden {
        /// The look-up.
        key: Key,
        /// The line that is found.
        by_line: u64,
    },
    /// It holds a NUL byte, and ends there for `files`.
    Nul,
    /// It is the last line, starts with white space and has no newline. glibc (2.36) then repeats
    /// the end of the line; it is compiled as if the newline were there.
    Garbled,
    /// A comment, or otherwise no group; yet initgroups counts it for the members that it names.
    InitgroupsOnly,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(skip) => write!(f, "skipped, as `files` does: {skip}"),
            Self::Hidden { key, by_line } => {
                let key = match key {
                    Key::UserName | Key::GroupName | Key::ShadowName => "name",
                    Key::Uid => "uid",
                    Key::Gid => "gid",
                };
                write!(
                    f,
                    "look-ups by {key} are answered from line {by_line}, which has the same {key}"
                )
            }
            Self::Nul => f.write_str("has a NUL byte, and ends there for `files`"),
            Self::Garbled => f.write_str(
                "starts with white space and has no newline at its end, which `files` garbles: \
                 compiled as if it had one",
            ),
            Self::InitgroupsOnly => f.write_str(
                "is not served as a group, yet initgroups counts it for the members it names, \
                 as `files` does: delete the line rather than comment it out",
            ),
        }
    }
}

/// A remark and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The source.
    pub source: Source,
    /// The line, from 1.
    pub line: u64,
    /// The remark.
    pub remark: Remark,
}

/// What was found in the sources.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Passwd entries.
    pub users: u64,
    /// Group entries.
    pub groups: u64,
    /// Members of all groups together.
    pub memberships: u64,
    /// Shadow entries.
    pub shadows: u64,
    /// Lines that `files` skips.
    pub skipped: u64,
    /// Entries that some look-up does not reach.
    pub hidden: u64,
    /// Remarks in source order, the hidden entries last.
    pub notes: Vec<Note>,
    /// Remarks beyond [`NOTES_MAX`].
    pub notes_left_out: u64,
}

impl Report {
    fn note(&mut self, source: Source, line: u64, remark: Remark) {
        match remark {
            Remark::Skipped(_) => self.skipped += 1,
            Remark::Hidden { .. } => self.hidden += 1,
            Remark::Nul | Remark::Garbled | Remark::InitgroupsOnly => {}
        }
        if self.notes.len() < NOTES_MAX {
            self.notes.push(Note { source, line, remark });
        } else {
            self.notes_left_out += 1;
        }
    }
}

/// An image and what there is to say about its sources.
pub struct Compiled {
    /// The file to be.
    pub image: Image,
    /// The report.
    pub report: Report,
}

/// Compiles users and groups. Takes about the memory of the larger source and of the snapshot.
pub fn accounts(
    passwd: &Path,
    group: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Compiled, CompileError> {
    let mut report = Report::default();
    let mut builder = Builder::new(0);
    let mut user_lines = Lines::default();
    read(passwd, Source::Passwd, &mut report, progress, |line, raw, report| {
        match text::passwd_line(raw) {
            Line::Entry(user) => {
                builder.user(&user, Gaps::default())?;
                user_lines.push(line);
                report.users += 1;
            }
            Line::Blank => {}
            Line::Skipped(skip) => report.note(Source::Passwd, line, Remark::Skipped(skip)),
        }
        Ok(())
    })?;
    let mut group_lines = Lines::default();
    read(group, Source::Group, &mut report, progress, |line, raw, report| {
        if group_line(&mut builder, line, raw, report)? {
            group_lines.push(line);
        }
        Ok(())
    })?;
    let lines = [(Source::Passwd, &user_lines), (Source::Group, &group_lines)];
    finish(builder, Kind::Accounts, report, &lines, progress)
}

/// Compiles shadow entries.
pub fn shadow(shadow: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Compiled, CompileError> {
    let mut report = Report::default();
    let mut builder = Builder::new(0);
    let mut lines = Lines::default();
    read(shadow, Source::Shadow, &mut report, progress, |line, raw, report| {
        match text::shadow_line(raw) {
            Line::Entry(entry) => {
                builder.shadow(&entry)?;
                lines.push(line);
                report.shadows += 1;
            }
            Line::Blank => {}
            Line::Skipped(skip) => report.note(Source::Shadow, line, Remark::Skipped(skip)),
        }
        Ok(())
    })?;
    finish(builder, Kind::Shadow, report, &[(Source::Shadow, &lines)], progress)
}

/// Adds what look-ups and initgroups make of a group line. Says whether look-ups serve it.
fn group_line(
    builder: &mut Builder,
    line: u64,
    raw: &[u8],
    report: &mut Report,
) -> Result<bool, TooLarge> {
    let served = text::group_line(raw);
    let counted = if text::initgroups_differs(raw) { text::initgroups_line(raw) } else { served };
    match (served, counted) {
        (Line::Entry(group), Line::Entry(_)) => {
            builder.group(&group.group, group.members(), Members::Both, Gaps::default())?;
        }
        (Line::Entry(group), _) => {
            builder.group(&group.group, group.members(), Members::Shown, Gaps::default())?;
        }
        (_, Line::Entry(group)) => {
            if group.members().next().is_some() {
                builder.initgroups_only(group.group.gid, group.members())?;
                report.note(Source::Group, line, Remark::InitgroupsOnly);
            }
            return Ok(false);
        }
        (Line::Skipped(skip), _) => {
            report.note(Source::Group, line, Remark::Skipped(skip));
            return Ok(false);
        }
        (Line::Blank, _) => return Ok(false),
    }
    report.groups += 1;
    Ok(true)
}

/// Line numbers by position of the entry.
#[derive(Default)]
struct Lines(Vec<u32>);

impl Lines {
    fn push(&mut self, line: u64) {
        self.0.push(u32::try_from(line).unwrap_or(u32::MAX));
    }

    fn of(&self, position: u32) -> u64 {
        self.0[position as usize].into()
    }
}

/// Gives every line of a file, with its number from 1 and without its newline, to `take`.
fn read(
    path: &Path,
    source: Source,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
    mut take: impl FnMut(u64, &[u8], &mut Report) -> Result<(), TooLarge>,
) -> Result<(), CompileError> {
    let text = std::fs::read(path)
        .map_err(|source| CompileError::Read { path: path.to_owned(), source })?;
    let total = text.len() as u64;
    let mut told = 0;
    let mut start = 0;
    for (line, end) in (1..).zip(memchr::memchr_iter(b'\n', &text).chain([text.len()])) {
        let raw = &text[start..end];
        if memchr::memchr(0, raw).is_some() {
            report.note(source, line, Remark::Nul);
        }
        let starts_blank = raw.first().is_some_and(u8::is_ascii_whitespace);
        if end == text.len() && starts_blank && !raw.trim_ascii().is_empty() {
            report.note(source, line, Remark::Garbled);
        }
        take(line, raw, report).map_err(|source| CompileError::TooLarge {
            path: path.to_owned(),
            line,
            source,
        })?;
        if end - told >= PROGRESS_BYTES {
            told = end;
            progress(Progress::Reading { source, done: end as u64, total });
        }
        start = end + 1;
    }
    Ok(())
}

fn finish(
    builder: Builder,
    kind: Kind,
    mut report: Report,
    lines: &[(Source, &Lines)],
    progress: &mut dyn FnMut(Progress),
) -> Result<Compiled, CompileError> {
    progress(Progress::Indexing);
    let Finished { image, duplicates } =
        builder.finish(kind).map_err(|source| CompileError::Whole { source })?;
    for Duplicate { key, position, first } in duplicates {
        let source = match key {
            Key::UserName | Key::Uid => Source::Passwd,
            Key::GroupName | Key::Gid => Source::Group,
            Key::ShadowName => Source::Shadow,
        };
        if let Some((_, lines)) = lines.iter().find(|(of, _)| *of == source) {
            let by_line = lines.of(first);
            report.note(source, lines.of(position), Remark::Hidden { key, by_line });
        }
    }
    report.memberships = image.memberships();
    Ok(Compiled { image, report })
}
