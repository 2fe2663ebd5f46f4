// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster compile`: publishes a snapshot of passwd and group files, and prints a report. `roster-snapshot-build` compiles
//! and publishes.

use crate::args::CompileArgs;
use crate::output::{
    Progress, bytes, count_with_noun, duration, lossy, print_stderr, print_warning,
};
use crate::snapshot_file;
use anyhow::Result;
use roster_messages::table::tools;
use roster_messages::{CodedError, Message};
use roster_passwd_format::lines::{ParsedLine, group_line};
use roster_snapshot::layout::{MAGIC, SnapshotKind};
use roster_snapshot_build::SnapshotImage;
use roster_snapshot_build::compile::{
    self, CompileNote, CompileProgress as At, CompileReport, CompiledImage, Remark, TextSource,
};
use roster_snapshot_build::publish::{FileRights, Publication, PublishError, SYNC, publish};
use roster_snapshot_build::{copy, mark};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Mode of a snapshot, as that of /etc/passwd.
const MODE: u32 = 0o644;
/// Mode of password hashes, as that of /etc/shadow.
const SHADOW_MODE: u32 = 0o640;

/// Remarks in the text output. `--json` lists all.
const REMARKS_SHOWN: usize = 20;

/// Length of the bar. Reading takes about half of the time, mostly for groups.
const BAR_STEPS: u64 = 1000;
const GROUPS: u64 = 50;
const INDEXING: u64 = 500;
const PUBLISHING: u64 = 800;

/// Compiles, publishes, reports.
pub fn run(args: &CompileArgs, out: &mut dyn Write) -> Result<()> {
    let started = Instant::now();
    let shadow_output = match &args.shadow_output {
        Some(path) => path.clone(),
        None => snapshot_file::shadow_path(&args.output),
    };
    check_outputs(args, &shadow_output)?;

    let mut bar = Progress::new(BAR_STEPS, "Compiling");
    let mut progress = |at| bar.at(progress_steps(at));
    // Both images are compiled before publication, so that an error leaves both old files.
    let shadow = match &args.shadow {
        Some(path) => Some(compile::shadow(path, &mut progress).map_err(not_compiled)?),
        None => None,
    };
    let accounts =
        compile::accounts(&args.passwd, &args.group, &mut progress).map_err(not_compiled)?;

    bar.at(PUBLISHING);
    let mut outputs = Vec::new();
    // Password hashes are published first, so that each published user has one.
    if let Some(CompiledImage { image, report }) = shadow {
        let rights = FileRights { mode: SHADOW_MODE, gid: shadow_group() };
        let published = publish_image(&shadow_output, rights, &image)?;
        outputs.push(CompiledSnapshot {
            path: &shadow_output,
            kind: SnapshotKind::Shadow,
            published,
            report,
        });
    }
    let CompiledImage { image, report } = accounts;
    let published = publish_image(&args.output, FileRights { mode: MODE, gid: None }, &image)?;
    // Programs use the mark and the copy of the default snapshot only.
    if args.output == Path::new(snapshot_file::DEFAULT_SNAPSHOT)
        && rustix::process::geteuid().is_root()
    {
        let copied = copy_to_memory(&args.output, Path::new(copy::DIR));
        let failed = [set_mark(mark::path()), copied].into_iter().filter_map(Result::err);
        failed.for_each(|warning| print_warning(&warning));
    }
    outputs.insert(
        0,
        CompiledSnapshot { path: &args.output, kind: SnapshotKind::Accounts, published, report },
    );
    drop(bar);

    let cost = ResourceUsage { seconds: started.elapsed(), peak_bytes: peak_memory_bytes() };
    if args.json {
        let json = json(args, &outputs, &cost);
        writeln!(out, "{json:#}")?;
    } else {
        for output in &outputs {
            out.write_all(text(output).as_bytes())?;
        }
        writeln!(out, "{}", cost.text())?;
        out.flush()?;
        for remark in outputs.iter().flat_map(|output| remarks(args, &output.report)) {
            print_stderr(remark);
        }
    }
    Ok(())
}

/// Returns the error of sources that cannot be compiled.
fn not_compiled(error: impl std::error::Error + Send + Sync + 'static) -> CodedError {
    CodedError::new(&tools::NOT_COMPILED, "nothing was published").caused_by(error)
}

/// Sets the mark of a published snapshot. Programs then report a missing snapshot as an error.
fn set_mark(mark: &Path) -> Result<(), CodedError> {
    mark::set(mark).map(drop).map_err(|error| {
        let text = format!("{} cannot be created", mark.display());
        CodedError::new(&tools::MARK_NOT_SET, text).caused_by(error)
    })
}

/// Copies the snapshot to memory. Programs map the copy, so that a bad sector of the disk ends none of them.
fn copy_to_memory(output: &Path, folder: &Path) -> Result<(), CodedError> {
    let copied = || -> std::io::Result<()> {
        let file = File::open(output)?;
        let stat = file.metadata()?;
        copy::make_dir(folder)?;
        copy::put(folder, &stat, stat.mode(), file)?;
        copy::remove_others(folder, stat.ino())
    };
    match copied() {
        // A copy on a disk would have no advantage.
        Err(error) if error.kind() != ErrorKind::Unsupported => {
            let text = format!("{}: the snapshot was not copied", folder.display());
            Err(CodedError::new(&tools::COPY_NOT_MADE, text).caused_by(error))
        }
        _ => Ok(()),
    }
}

struct CompiledSnapshot<'a> {
    path: &'a Path,
    kind: SnapshotKind,
    published: Publication,
    report: CompileReport,
}

struct ResourceUsage {
    seconds: std::time::Duration,
    peak_bytes: Option<u64>,
}

impl ResourceUsage {
    fn text(&self) -> String {
        let memory = self.peak_bytes.map(|peak| format!(", at most {} of memory", bytes(peak)));
        format!("{}{}", duration(self.seconds), memory.unwrap_or_default())
    }
}

/// Checks the files that publication would replace: not a source, not a snapshot of the other kind, and not any other
/// file.
fn check_outputs(args: &CompileArgs, shadow_output: &Path) -> Result<(), CodedError> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let sources = [Some(&args.passwd), Some(&args.group), args.shadow.as_ref()];
    let accounts = Some((&*args.output, SnapshotKind::Accounts));
    let shadows = args.shadow.is_some().then_some((shadow_output, SnapshotKind::Shadow));
    for (output, kind) in accounts.into_iter().chain(shadows) {
        for source in sources.into_iter().flatten() {
            if identity(output).is_some_and(|found| identity(source) == Some(found)) {
                let text = format!("{} is a source", output.display());
                return Err(CodedError::new(&tools::OUTPUT_IS_SOURCE, text));
            }
        }
        let there = snapshot_file::read_beginning(output).unwrap_or_default();
        // A damaged snapshot, or one of another version, may be replaced. It has the magic or the name of a snapshot.
        let is_ours = there.is_empty()
            || there.starts_with(&MAGIC)
            || output.extension() == Some(OsStr::new("snap"));
        let held = match snapshot_file::kind(&there) {
            Some(found) if found != kind => kind_contents(found),
            None if !is_ours => "other data",
            _ => continue,
        };
        let text = format!("{} holds {held}", output.display());
        return Err(CodedError::new(&tools::OUTPUT_HAS_OTHER_CONTENT, text));
    }
    let shared = resolved_path(&args.output)
        .is_some_and(|output| Some(output) == resolved_path(shadow_output));
    if args.shadow.is_some() && shared {
        let name = shadow_output.display();
        let text = format!("{name} cannot hold both users and password hashes");
        return Err(CodedError::new(&tools::OUTPUTS_ARE_ONE_FILE, text));
    }
    Ok(())
}

/// Returns the canonical directory and the name of a file, which need not exist yet.
fn resolved_path(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Some((folder.canonicalize().ok()?, path.file_name()?))
}

fn kind_contents(kind: SnapshotKind) -> &'static str {
    match kind {
        SnapshotKind::Accounts => "users and groups",
        SnapshotKind::Shadow => "password hashes",
    }
}

fn publish_image(
    path: &Path,
    rights: FileRights,
    image: &SnapshotImage,
) -> Result<Publication, CodedError> {
    publish(path, rights, |file, generation| image.write(file, generation))
        .map_err(|error| publish_error(error, path))
}

fn publish_error(error: PublishError, path: &Path) -> CodedError {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.display(),
        _ => Path::new(".").display(),
    };
    let (message, fix) = match error.source.kind() {
        _ if error.action == SYNC => (&tools::PUBLICATION_NOT_SYNCED, None),
        ErrorKind::NotFound => (
            &tools::PUBLICATION_DIRECTORY_MISSING,
            Some(format!("Create the directory: `mkdir -p -m 755 {folder}`.")),
        ),
        ErrorKind::PermissionDenied => (
            &tools::PUBLICATION_DENIED,
            Some(format!("Run the command as a user that may write to {folder}.")),
        ),
        ErrorKind::StorageFull => (&tools::PUBLICATION_DISK_FULL, None),
        _ => (&tools::PUBLICATION_FAILED, None),
    };
    let text = format!("{}: the snapshot was not published", path.display());
    CodedError { fix, ..CodedError::new(message, text).caused_by(error) }
}

fn progress_steps(at: At) -> u64 {
    let part = |done: u64, total: u64, of: u64| of * done / total.max(1);
    match at {
        At::Reading { source: TextSource::Shadow, .. } => 0,
        At::Reading { source: TextSource::Passwd, done, total } => part(done, total, GROUPS),
        At::Reading { source: TextSource::Group, done, total } => {
            GROUPS + part(done, total, INDEXING - GROUPS)
        }
        At::Indexing => INDEXING,
    }
}

/// Returns the gid of the local group shadow, which exists on Debian and its derivatives. Otherwise only root can read
/// the file.
fn shadow_group() -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let text = fs::read("/etc/group").ok()?;
    text.split(|&byte| byte == b'\n').find_map(|line| match group_line(line) {
        ParsedLine::Entry(line) if line.group.name == b"shadow" => Some(line.group.gid),
        _ => None,
    })
}

/// Returns the peak memory of this process.
fn peak_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn text(output: &CompiledSnapshot<'_>) -> String {
    let CompiledSnapshot { path, kind, published, report } = output;
    let what = match kind {
        SnapshotKind::Shadow => count_with_noun(report.shadows, "shadow entry"),
        SnapshotKind::Accounts => format!(
            "{}, {}, {}",
            count_with_noun(report.users, "user"),
            count_with_noun(report.groups, "group"),
            count_with_noun(report.memberships, "membership")
        ),
    };
    let mut text = format!(
        "{}: {what}, {}, generation {}\n",
        path.display(),
        bytes(published.bytes),
        published.generation
    );
    if report.skipped > 0 {
        text += &format!("  {} skipped\n", count_with_noun(report.skipped, "line"));
    }
    if report.hidden > 0 {
        text += &format!(
            "  {} hidden behind an earlier one\n",
            count_with_noun(report.hidden, "entry")
        );
    }
    text
}

fn remarks(args: &CompileArgs, report: &CompileReport) -> Vec<String> {
    let shown = report.notes.iter().take(REMARKS_SHOWN).map(|note| {
        let path = source_path(args, note.source).display();
        format!("{path}:{}: {} [{}]", note.line, note.remark, remark_message(note.remark))
    });
    let mut lines: Vec<_> = shown.collect();
    let more = report.notes.len().saturating_sub(REMARKS_SHOWN) as u64 + report.notes_omitted;
    if more > 0 {
        lines.push(format!("… and {}; --json lists them", count_with_noun(more, "more remark")));
    }
    lines
}

fn source_path(args: &CompileArgs, source: TextSource) -> &Path {
    match source {
        TextSource::Passwd => &args.passwd,
        TextSource::Group => &args.group,
        TextSource::Shadow => args.shadow.as_deref().unwrap_or(Path::new("")),
    }
}

fn json(args: &CompileArgs, outputs: &[CompiledSnapshot<'_>], cost: &ResourceUsage) -> Value {
    let outputs: Vec<Value> = outputs
        .iter()
        .map(|CompiledSnapshot { path, published, report, .. }| {
            json!({
                "file": lossy(path),
                "generation": published.generation,
                "bytes": published.bytes,
                "users": report.users,
                "groups": report.groups,
                "memberships": report.memberships,
                "shadows": report.shadows,
                "skipped": report.skipped,
                "hidden": report.hidden,
                "remarks": report.notes.iter().map(|note| remark(args, note)).collect::<Vec<_>>(),
                "remarks_left_out": report.notes_omitted,
            })
        })
        .collect();
    json!({
        "outputs": outputs,
        "seconds": cost.seconds.as_secs_f64(),
        "peak_memory_bytes": cost.peak_bytes,
    })
}

fn remark_message(remark: Remark) -> &'static Message {
    match remark {
        Remark::Skipped(_) => &tools::LINE_SKIPPED,
        Remark::Hidden { .. } => &tools::ENTRY_HIDDEN,
        Remark::Nul => &tools::LINE_HAS_NUL,
        Remark::Garbled => &tools::LAST_LINE_GARBLED,
        Remark::InitgroupsOnly => &tools::GROUP_ONLY_IN_INITGROUPS,
    }
}

fn remark(args: &CompileArgs, note: &CompileNote) -> Value {
    let kind = match note.remark {
        Remark::Skipped(_) => "skipped",
        Remark::Hidden { .. } => "hidden",
        Remark::Nul => "nul",
        Remark::Garbled => "garbled",
        Remark::InitgroupsOnly => "initgroups-only",
    };
    json!({
        "file": lossy(source_path(args, note.source)),
        "line": note.line,
        "kind": kind,
        "code": remark_message(note.remark).code,
        "text": note.remark.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publish_error_has_code_of_condition() {
        for (action, kind, message) in [
            (SYNC, ErrorKind::NotFound, &tools::PUBLICATION_NOT_SYNCED),
            ("open", ErrorKind::NotFound, &tools::PUBLICATION_DIRECTORY_MISSING),
            ("open", ErrorKind::PermissionDenied, &tools::PUBLICATION_DENIED),
            ("write", ErrorKind::StorageFull, &tools::PUBLICATION_DISK_FULL),
            ("write", ErrorKind::TimedOut, &tools::PUBLICATION_FAILED),
        ] {
            let error = PublishError { action, path: PathBuf::from("x"), source: kind.into() };
            assert_eq!(publish_error(error, Path::new("x")).message, message);
        }
    }

    #[test]
    fn compile_mark_and_copy_failures_have_codes() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none");
        let marked = set_mark(&none.join("mark")).unwrap_err();
        assert_eq!(marked.message, &tools::MARK_NOT_SET);
        let copied = copy_to_memory(&none, folder.path()).unwrap_err();
        assert_eq!(copied.message, &tools::COPY_NOT_MADE);
    }
}
