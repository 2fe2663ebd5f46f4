// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles passwd(5), group(5) and shadow(5) text to an image with the same answers as glibc's `files`. The
//! [`CompileReport`] lists lines that `files` skips or hides.

use crate::{
    BuiltSnapshot, Duplicate, IncompleteFlags, LookupKey, MemberVisibility, SnapshotBuilder,
    SnapshotImage, TooLarge,
};
use roster_messages::Message;
use roster_messages::table::tools;
use roster_passwd_format::lines::{self, ParsedLine, SkipReason};
use roster_snapshot::layout::SnapshotKind;
use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes of text between two calls of the progress function.
const PROGRESS_BYTES: usize = 1 << 20;
/// Maximum number of stored notes; further ones are only counted.
pub const NOTES_MAX: usize = 100_000;

/// Reasons that nothing was compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A source cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Path of the source.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// An entry exceeds a limit of the format.
    #[error("{path}:{line} cannot be compiled")]
    TooLarge {
        /// Path of the source.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The exceeded limit.
        source: TooLarge,
    },
    /// All entries together exceed a limit of the format.
    #[error("these sources cannot be compiled")]
    TooLargeInAll {
        /// The exceeded limit.
        source: TooLarge,
    },
}

impl CompileError {
    /// Returns the code of the error.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Read { .. } => &tools::COMPILE_SOURCE_UNREADABLE,
            Self::TooLarge { .. } => &tools::COMPILE_ENTRY_TOO_LARGE,
            Self::TooLargeInAll { .. } => &tools::COMPILE_TOO_LARGE,
        }
    }
}

/// Source files by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextSource {
    /// passwd(5)
    Passwd,
    /// group(5)
    Group,
    /// shadow(5)
    Shadow,
}

impl TextSource {
    /// Returns the map's name in nsswitch.conf(5).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passwd => "passwd",
            Self::Group => "group",
            Self::Shadow => "shadow",
        }
    }
}

/// Progress of a compilation: bytes of one source, then the indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompileProgress {
    /// Reading this source.
    Reading {
        /// The source.
        source: TextSource,
        /// Bytes read.
        done: u64,
        /// Total bytes.
        total: u64,
    },
    /// Building lists and indices.
    Indexing,
}

/// Remarks on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// `files` skips the line.
    Skipped(SkipReason),
    /// Lookups by this key return an earlier line; enumeration returns both.
    Hidden {
        /// The kind of lookup.
        key: LookupKey,
        /// The line that lookups find.
        by_line: u64,
    },
    /// The line contains a NUL byte, where it ends for `files`.
    Nul,
    /// The last line begins with white space and has no newline. glibc 2.36 then repeats the end of the line. It is
    /// compiled as if it had the newline.
    Garbled,
    /// A comment or another invalid group line, which initgroups still counts for the members that it names.
    InitgroupsOnly,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(skip) => write!(f, "skipped, as `files` does: {skip}"),
            Self::Hidden { key, by_line } => {
                let key = match key {
                    LookupKey::UserName | LookupKey::GroupName | LookupKey::ShadowName => "name",
                    LookupKey::Uid => "uid",
                    LookupKey::Gid => "gid",
                };
                write!(
                    f,
                    "lookups by {key} are answered from line {by_line}, which has the same {key}"
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

/// A remark with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileNote {
    /// The source.
    pub source: TextSource,
    /// Line number, from 1.
    pub line: u64,
    /// The remark.
    pub remark: Remark,
}

/// Counts and notes of a compilation.
#[derive(Clone, Debug, Default)]
pub struct CompileReport {
    /// Number of passwd entries.
    pub users: u64,
    /// Number of group entries.
    pub groups: u64,
    /// Number of members in all groups.
    pub memberships: u64,
    /// Number of shadow entries.
    pub shadows: u64,
    /// Number of lines that `files` skips.
    pub skipped: u64,
    /// Number of entries that a kind of lookup does not find.
    pub hidden: u64,
    /// Notes in source order; notes on hidden entries come last.
    pub notes: Vec<CompileNote>,
    /// Number of notes beyond [`NOTES_MAX`].
    pub notes_omitted: u64,
}

impl CompileReport {
    fn note(&mut self, source: TextSource, line: u64, remark: Remark) {
        match remark {
            Remark::Skipped(_) => self.skipped += 1,
            Remark::Hidden { .. } => self.hidden += 1,
            Remark::Nul | Remark::Garbled | Remark::InitgroupsOnly => {}
        }
        if self.notes.len() < NOTES_MAX {
            self.notes.push(CompileNote { source, line, remark });
        } else {
            self.notes_omitted += 1;
        }
    }
}

/// An image with the report on its sources.
pub struct CompiledImage {
    /// The snapshot image.
    pub image: SnapshotImage,
    /// The report.
    pub report: CompileReport,
}

/// Compiles users and groups. Needs about the memory of the larger source and of the snapshot.
pub fn accounts(
    passwd: &Path,
    group: &Path,
    progress: &mut dyn FnMut(CompileProgress),
) -> Result<CompiledImage, CompileError> {
    let mut report = CompileReport::default();
    let mut builder = SnapshotBuilder::new(0);
    let mut user_lines = LineNumbers::default();
    read(passwd, TextSource::Passwd, &mut report, progress, |line, raw, report| {
        match lines::passwd_line(raw) {
            ParsedLine::Entry(user) => {
                builder.user(&user, IncompleteFlags::default())?;
                user_lines.push(line);
                report.users += 1;
            }
            ParsedLine::Blank => {}
            ParsedLine::Skipped(skip) => {
                report.note(TextSource::Passwd, line, Remark::Skipped(skip));
            }
        }
        Ok(())
    })?;
    let mut group_lines = LineNumbers::default();
    read(group, TextSource::Group, &mut report, progress, |line, raw, report| {
        if group_line(&mut builder, line, raw, report)? {
            group_lines.push(line);
        }
        Ok(())
    })?;
    let lines = [(TextSource::Passwd, &user_lines), (TextSource::Group, &group_lines)];
    finish(builder, SnapshotKind::Accounts, report, &lines, progress)
}

/// Compiles shadow entries.
pub fn shadow(
    shadow: &Path,
    progress: &mut dyn FnMut(CompileProgress),
) -> Result<CompiledImage, CompileError> {
    let mut report = CompileReport::default();
    let mut builder = SnapshotBuilder::new(0);
    let mut lines = LineNumbers::default();
    read(shadow, TextSource::Shadow, &mut report, progress, |line, raw, report| {
        match lines::shadow_line(raw) {
            ParsedLine::Entry(entry) => {
                builder.shadow(&entry)?;
                lines.push(line);
                report.shadows += 1;
            }
            ParsedLine::Blank => {}
            ParsedLine::Skipped(skip) => {
                report.note(TextSource::Shadow, line, Remark::Skipped(skip));
            }
        }
        Ok(())
    })?;
    finish(builder, SnapshotKind::Shadow, report, &[(TextSource::Shadow, &lines)], progress)
}

/// Adds a group line for lookups and initgroups. Returns whether lookups serve it.
fn group_line(
    builder: &mut SnapshotBuilder,
    line: u64,
    raw: &[u8],
    report: &mut CompileReport,
) -> Result<bool, TooLarge> {
    let served = lines::group_line(raw);
    let counted = if lines::initgroups_differs(raw) { lines::initgroups_line(raw) } else { served };
    match (served, counted) {
        (ParsedLine::Entry(group), ParsedLine::Entry(_)) => {
            builder.group(
                &group.group,
                group.members(),
                MemberVisibility::GroupAndInitgroups,
                IncompleteFlags::default(),
            )?;
        }
        (ParsedLine::Entry(group), _) => {
            builder.group(
                &group.group,
                group.members(),
                MemberVisibility::GroupOnly,
                IncompleteFlags::default(),
            )?;
        }
        (_, ParsedLine::Entry(group)) => {
            if group.members().next().is_some() {
                builder.initgroups_only(group.group.gid, group.members())?;
                report.note(TextSource::Group, line, Remark::InitgroupsOnly);
            }
            return Ok(false);
        }
        (ParsedLine::Skipped(skip), _) => {
            report.note(TextSource::Group, line, Remark::Skipped(skip));
            return Ok(false);
        }
        (ParsedLine::Blank, _) => return Ok(false),
    }
    report.groups += 1;
    Ok(true)
}

/// Line numbers by position of the entry.
#[derive(Default)]
struct LineNumbers(Vec<u32>);

impl LineNumbers {
    fn push(&mut self, line: u64) {
        self.0.push(u32::try_from(line).unwrap_or(u32::MAX));
    }

    fn line_at(&self, position: u32) -> u64 {
        self.0[position as usize].into()
    }
}

/// Calls `take` with every line of a file: its number from 1, and its bytes without the newline.
fn read(
    path: &Path,
    source: TextSource,
    report: &mut CompileReport,
    progress: &mut dyn FnMut(CompileProgress),
    mut take: impl FnMut(u64, &[u8], &mut CompileReport) -> Result<(), TooLarge>,
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
            progress(CompileProgress::Reading { source, done: end as u64, total });
        }
        start = end + 1;
    }
    Ok(())
}

fn finish(
    builder: SnapshotBuilder,
    kind: SnapshotKind,
    mut report: CompileReport,
    lines: &[(TextSource, &LineNumbers)],
    progress: &mut dyn FnMut(CompileProgress),
) -> Result<CompiledImage, CompileError> {
    progress(CompileProgress::Indexing);
    let BuiltSnapshot { image, duplicates } =
        builder.finish(kind).map_err(|source| CompileError::TooLargeInAll { source })?;
    for Duplicate { key, position, first } in duplicates {
        let source = match key {
            LookupKey::UserName | LookupKey::Uid => TextSource::Passwd,
            LookupKey::GroupName | LookupKey::Gid => TextSource::Group,
            LookupKey::ShadowName => TextSource::Shadow,
        };
        if let Some((_, lines)) = lines.iter().find(|(of, _)| *of == source) {
            let by_line = lines.line_at(first);
            report.note(source, lines.line_at(position), Remark::Hidden { key, by_line });
        }
    }
    report.memberships = image.memberships();
    Ok(CompiledImage { image, report })
}
