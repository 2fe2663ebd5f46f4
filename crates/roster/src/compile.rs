//! `roster compile`: from text to a published snapshot, and the report about it.

use crate::args::CompileArgs;
use crate::output::{Progress, bytes, count_with_noun, duration, lossy, print_stderr};
use crate::snapshot_file;
use anyhow::{Context, Result, anyhow, bail};
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

/// For everybody to read, as /etc/passwd is.
const MODE: u32 = 0o644;
/// For root and group `shadow`, as /etc/shadow is.
const SHADOW_MODE: u32 = 0o640;

/// Remarks shown to a person; `--json` has all of them.
const REMARKS_SHOWN: usize = 20;

/// The bar's length. Reading takes about half the time, most of it for groups.
const BAR_STEPS: u64 = 1000;
const GROUPS: u64 = 50;
const INDEXING: u64 = 500;
const PUBLISHING: u64 = 800;

const NOT_PUBLISHED: &str = "nothing was published";

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
    // All is compiled before anything is published, so that an error leaves both old files.
    let shadow = match &args.shadow {
        Some(path) => Some(compile::shadow(path, &mut progress).context(NOT_PUBLISHED)?),
        None => None,
    };
    let accounts =
        compile::accounts(&args.passwd, &args.group, &mut progress).context(NOT_PUBLISHED)?;

    bar.at(PUBLISHING);
    let mut outputs = Vec::new();
    // Hashes first: a user who is there has a password.
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
    set_mark(&args.output);
    copy_to_memory(&args.output);
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

/// From now on programs report a missing snapshot as an error.
fn set_mark(output: &Path) {
    if output == Path::new(snapshot_file::DEFAULT_SNAPSHOT)
        && rustix::process::geteuid().is_root()
        && let Err(error) = mark::set(mark::path())
    {
        print_stderr(format_args!(
            "roster: {}: cannot be created: {error}. Programs take a missing snapshot for a host without \
             users.",
            mark::path().display()
        ));
    }
}

/// Programs map the copy, and a sector of the disk that cannot be read ends none of them.
fn copy_to_memory(output: &Path) {
    if output != Path::new(snapshot_file::DEFAULT_SNAPSHOT) || !rustix::process::geteuid().is_root()
    {
        return;
    }
    let folder = Path::new(copy::DIR);
    let copied = || -> std::io::Result<()> {
        let file = File::open(output)?;
        let stat = file.metadata()?;
        copy::make_dir(folder)?;
        copy::put(folder, &stat, stat.mode(), file)?;
        copy::remove_others(folder, stat.ino())
    };
    // A copy on a disk would gain nothing.
    if let Err(error) = copied()
        && error.kind() != ErrorKind::Unsupported
    {
        print_stderr(format_args!(
            "roster: {}: no copy of the snapshot: {error}. Each program reads the whole file when it opens it.",
            folder.display()
        ));
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

/// Publishing renames over whatever is there. That must be neither what it was made from nor a
/// snapshot of the other kind, nor any other file: all that would be gone with one slip of the pen.
fn check_outputs(args: &CompileArgs, shadow_output: &Path) -> Result<()> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let sources = [Some(&args.passwd), Some(&args.group), args.shadow.as_ref()];
    let accounts = Some((&*args.output, SnapshotKind::Accounts));
    let shadows = args.shadow.is_some().then_some((shadow_output, SnapshotKind::Shadow));
    for (output, kind) in accounts.into_iter().chain(shadows) {
        for source in sources.into_iter().flatten() {
            if identity(output).is_some_and(|found| identity(source) == Some(found)) {
                bail!("{} is a source; choose another output", output.display());
            }
        }
        let there = snapshot_file::read_beginning(output).unwrap_or_default();
        // A damaged snapshot, or one of another version, is there to be replaced: what begins as
        // one does, or has the name of one and no longer its beginning.
        let is_ours = there.is_empty()
            || there.starts_with(&MAGIC)
            || output.extension() == Some(OsStr::new("snap"));
        let held = match snapshot_file::kind(&there) {
            Some(found) if found != kind => kind_contents(found),
            None if !is_ours => "something else",
            _ => continue,
        };
        let name = output.display();
        bail!("{name} holds {held}; choose another output, or remove it first");
    }
    let shared = resolved_path(&args.output)
        .is_some_and(|output| Some(output) == resolved_path(shadow_output));
    if args.shadow.is_some() && shared {
        bail!(
            "{} cannot hold both users and password hashes; choose another --shadow-output",
            shadow_output.display()
        );
    }
    Ok(())
}

/// Where a file is, however it is spelt, and whether or not it is there yet.
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

fn publish_image(path: &Path, rights: FileRights, image: &SnapshotImage) -> Result<Publication> {
    publish(path, rights, |file, generation| image.write(file, generation)).map_err(|error| {
        let advice = advice(&error, path);
        anyhow!("{:#}{advice}", anyhow::Error::new(error))
    })
}

fn advice(error: &PublishError, path: &Path) -> String {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.display(),
        _ => Path::new(".").display(),
    };
    if error.action == SYNC {
        return "; the new file is in place, but a power failure may bring the old one back"
            .to_owned();
    }
    match error.source.kind() {
        ErrorKind::NotFound => format!("; make the folder first: mkdir -p -m 755 {folder}"),
        ErrorKind::PermissionDenied => format!("; run this as a user who may write to {folder}"),
        ErrorKind::StorageFull => {
            format!("; make room in {folder}, what was there before is untouched")
        }
        _ => String::new(),
    }
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

/// The local group that owns /etc/shadow on Debian and its kin. Others have none, and then the
/// file is root's alone.
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

/// The kernel's high-water mark of this process.
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
        format!("{path}:{}: {}", note.line, note.remark)
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
        "text": note.remark.to_string(),
    })
}
