//! `roster enable` and `roster disable`: the edits of [`crate::nsswitch`] on the real file.

use crate::cli::Edit;
use crate::doctor;
use crate::nsswitch;
use crate::replace::{self, Original, Unfit, with_suffix};
use crate::terminal::{Colour, Paint};
use anyhow::{Context, Result, bail};
use similar::{ChangeTag, TextDiff};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// glibc's file.
pub const NSSWITCH: &str = "/etc/nsswitch.conf";

/// Puts Roster on the lines of nsswitch.conf.
pub fn enable(options: &Edit, shadow: bool, out: &mut dyn Write) -> Result<()> {
    let original = open(&options.file)?;
    let text = nsswitch::enable(&original.text, shadow)
        .with_context(|| format!("{} is left as it is", options.file.display()))?;
    if text == original.text {
        writeln!(out, "{}: Roster is enabled already, nothing to change", options.file.display())?;
    } else {
        show(&options.file, &original.text, &text, out)?;
        if !options.dry_run {
            keep_backup(&original, &options.file)?;
            original.replace(&text)?;
            let backup = backup_of(&options.file);
            writeln!(out, "\nRoster is enabled. The file as it was: {}", backup.display())?;
        }
    }
    out.flush()?;
    if options.file == Path::new(NSSWITCH) {
        for finding in doctor::before_enabling(&text) {
            eprintln!("roster: warning: {finding}");
        }
    }
    Ok(())
}

/// Takes Roster off the lines of nsswitch.conf.
pub fn disable(options: &Edit, out: &mut dyn Write) -> Result<()> {
    let current = open(&options.file)?;
    let backup = backup_of(&options.file);
    let original = match fs::read_to_string(&backup) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(error).with_context(|| {
                format!("cannot read {}; move it away to do without", backup.display())
            });
        }
    };
    let text = nsswitch::disable(&current.text, original.as_deref());
    if text == current.text {
        writeln!(out, "{}: Roster is not enabled, nothing to change", options.file.display())?;
        return Ok(());
    }
    show(&options.file, &current.text, &text, out)?;
    if options.dry_run {
        return Ok(());
    }
    current.replace(&text)?;
    writeln!(out, "\nRoster is disabled.")?;
    if original.as_ref() == Some(&text) {
        fs::remove_file(&backup).with_context(|| format!("cannot remove {}", backup.display()))?;
    } else if original.is_some() {
        writeln!(
            out,
            "The file was edited since Roster was enabled, so its backup is kept: {}",
            backup.display()
        )?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<Original> {
    let name = path.display();
    match replace::open(path)? {
        Ok(original) => Ok(original),
        Err(Unfit::Missing) => bail!(
            "{name} does not exist, so glibc goes by what it was built with; write the file first \
             (nsswitch.conf(5)) and try again"
        ),
        Err(Unfit::Link(target)) if target.to_string_lossy().contains("authselect") => bail!(
            "{name} is a link to {}, which authselect writes anew at will. Make a profile of your \
             own (`authselect create-profile roster --base-on …`), put `roster` into its \
             nsswitch.conf, and select it (`authselect select custom/roster`)",
            target.display()
        ),
        Err(Unfit::Link(target)) => bail!(
            "{name} is a link to {}: whatever made the link may undo an edit. If that file is \
             yours to edit, name it with --file",
            target.display()
        ),
    }
}

/// The original is what stood there before Roster did: a second `enable`, which finds Roster on
/// some line, must not replace it, but one after edits without Roster must.
fn keep_backup(original: &Original, path: &Path) -> Result<()> {
    let backup = backup_of(path);
    let names_roster = nsswitch::disable(&original.text, None) != original.text;
    if names_roster && backup.exists() {
        return Ok(());
    }
    original.copy_to(&backup)
}

fn backup_of(path: &Path) -> PathBuf {
    with_suffix(path, ".roster-backup")
}

fn show(path: &Path, before: &str, after: &str, out: &mut dyn Write) -> io::Result<()> {
    let paint = Paint::stdout();
    out.write_all(diff(path, before, after, paint).as_bytes())?;
    out.flush()
}

/// A unified diff, as patch(1) takes it where it is not coloured.
fn diff(path: &Path, before: &str, after: &str, paint: Paint) -> String {
    let name = path.display();
    let mut text = format!("--- {name}\n+++ {name}\n");
    for hunk in TextDiff::from_lines(before, after).unified_diff().context_radius(2).iter_hunks() {
        text += &paint.text(Colour::Cyan, &hunk.header().to_string());
        text.push('\n');
        for change in hunk.iter_changes() {
            let line = format!("{}{}", change.tag(), change.value().trim_end_matches('\n'));
            text += &match change.tag() {
                ChangeTag::Delete => paint.text(Colour::Red, &line),
                ChangeTag::Insert => paint.text(Colour::Green, &line),
                ChangeTag::Equal => line,
            };
            text.push('\n');
            if change.missing_newline() {
                text += "\\ No newline at end of file\n";
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_as_a_unified_diff() {
        let before = "# a\n# b\n# c\npasswd: files\ngroup: files";
        let after = "# a\n# b\n# c\npasswd: files roster\ngroup: files roster\n";
        assert_eq!(
            diff(Path::new("/etc/nsswitch.conf"), before, after, Paint::plain()),
            "--- /etc/nsswitch.conf\n\
             +++ /etc/nsswitch.conf\n\
             @@ -2,4 +2,4 @@\n \
             # b\n \
             # c\n\
             -passwd: files\n\
             -group: files\n\
             \\ No newline at end of file\n\
             +passwd: files roster\n\
             +group: files roster\n"
        );
    }
}
