// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses nsswitch.conf as glibc does, and edits its text to enable and disable Roster. [`crate::nsswitch_file`] reads and
//! writes the file. The rules are those of glibc 2.36: the last of several lines for one database is in force, the colon
//! is optional, and `#` starts a comment anywhere. A `group:` line that also serves initgroups continues after a success.

use roster_messages::CodedError;
use roster_messages::table::host;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// Name of the service of Roster.
pub const SERVICE: &str = "roster";

/// Databases for lookups of single entries.
const LOOKUPS: [&str; 2] = ["passwd", "group"];

/// Column of the services in a new line, if the file has no line to align with.
const COLUMN: usize = 16;

/// The reason that a file is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditRejection {
    /// The line has an action that glibc cannot parse.
    Malformed { line: usize, database: String, found: String },
    /// The line names no service for local accounts.
    NoFiles { line: usize, database: String },
    /// An action before the position of Roster ends each lookup.
    Hidden { line: usize, database: String, service: String, actions: String },
}

impl EditRejection {
    /// Returns the error for that file.
    pub fn coded(&self, file: &Path) -> CodedError {
        let of = |line: &usize, database: &str, what: String| {
            format!("{}:{line}: {database}: {what}; the file was not changed", file.display())
        };
        match self {
            Self::Malformed { line, database, found } => CodedError::new(
                &host::NSSWITCH_LINE_INVALID,
                of(line, database, format!("glibc cannot parse `{found}`")),
            ),
            Self::NoFiles { line, database } => CodedError::new(
                &host::FILES_NOT_NAMED,
                of(line, database, "neither `files` nor `compat` is named".to_owned()),
            ),
            Self::Hidden { line, database, service, actions } => CodedError::new(
                &host::LOOKUP_ENDS_BEFORE_SERVICE,
                of(
                    line,
                    database,
                    format!("`{service} {actions}` ends each lookup before `{SERVICE}`"),
                ),
            ),
        }
    }
}

/// The action of glibc after the reply of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusAction {
    Return,
    Continue,
    Merge,
}

/// The action for each status, in the order of [`STATUSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusActions([StatusAction; 4]);

const STATUSES: [&str; 4] = ["SUCCESS", "NOTFOUND", "UNAVAIL", "TRYAGAIN"];
const SUCCESS: usize = 0;
const NOTFOUND: usize = 1;

impl StatusActions {
    const DEFAULT: Self = Self([
        StatusAction::Return,
        StatusAction::Continue,
        StatusAction::Continue,
        StatusAction::Continue,
    ]);

    pub fn on_success(self) -> StatusAction {
        self.0[SUCCESS]
    }

    pub fn on_not_found(self) -> StatusAction {
        self.0[NOTFOUND]
    }

    fn with_success(mut self, action: StatusAction) -> Self {
        self.0[SUCCESS] = action;
        self
    }

    /// Parses the text between the brackets.
    fn parse(text: &str) -> Option<Self> {
        let mut actions = Self::DEFAULT;
        let spaced = text.replace('=', " = ").replace('!', " ! ");
        let mut words = spaced.split_whitespace().peekable();
        while words.peek().is_some() {
            let negated = words.next_if_eq(&"!").is_some();
            let status = words.next()?;
            let status = STATUSES.iter().position(|name| name.eq_ignore_ascii_case(status))?;
            words.next_if_eq(&"=")?;
            let action = match words.next()?.to_ascii_lowercase().as_str() {
                "return" => StatusAction::Return,
                "continue" => StatusAction::Continue,
                "merge" => StatusAction::Merge,
                _ => return None,
            };
            for (at, slot) in actions.0.iter_mut().enumerate() {
                if (at == status) != negated {
                    *slot = action;
                }
            }
        }
        Some(actions)
    }
}

/// The shortest text of the actions, which is empty for the defaults of glibc.
impl fmt::Display for StatusActions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open = "[";
        for (at, (action, default)) in self.0.iter().zip(Self::DEFAULT.0).enumerate() {
            if *action != default {
                let action = match action {
                    StatusAction::Return => "return",
                    StatusAction::Continue => "continue",
                    StatusAction::Merge => "merge",
                };
                write!(f, "{open}{}={action}", STATUSES[at])?;
                open = " ";
            }
        }
        if open == " " { f.write_str("]") } else { Ok(()) }
    }
}

/// A service of a line, with its position in the file.
#[derive(Clone, Debug)]
pub struct ServiceEntry {
    pub name: String,
    pub actions: StatusActions,
    /// Name and brackets.
    span: Range<usize>,
    /// The brackets, if the service has any.
    brackets: Option<Range<usize>>,
    /// Whether the next service follows the brackets without a space.
    glued: bool,
}

/// The line in force for one database.
#[derive(Clone, Debug)]
pub struct DatabaseLine {
    /// Counted from 1.
    pub line: usize,
    pub services: Vec<ServiceEntry>,
    /// The text that glibc cannot parse. It ignores the rest of the line.
    pub malformed: Option<String>,
    /// The line with its newline.
    span: Range<usize>,
    /// Columns from the start of the line to the first service.
    column: usize,
    /// Whether tabs separate the services from the name of the database.
    tabbed: bool,
    commented: bool,
}

impl DatabaseLine {
    pub fn position(&self, service: &str) -> Option<usize> {
        self.services.iter().position(|other| other.name == service)
    }

    /// Returns the position of the service for local accounts.
    pub fn local_position(&self) -> Option<usize> {
        self.position("files").or_else(|| self.position("compat"))
    }
}

/// Parses all lines in order. The last of several lines for one database is in force.
fn parse_lines(text: &str) -> Vec<(String, DatabaseLine)> {
    let mut start = 0;
    let mut found = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let place = start..start + line.len();
        start = place.end;
        found.extend(parse_line(index + 1, line, place));
    }
    found
}

/// Returns the lines in force by database.
pub fn parse(text: &str) -> BTreeMap<String, DatabaseLine> {
    parse_lines(text).into_iter().collect()
}

fn parse_line(
    line_number: usize,
    line: &str,
    place: Range<usize>,
) -> Option<(String, DatabaseLine)> {
    let end = line.find('#').unwrap_or(line.len());
    let name_start = skip_space(line, 0, end);
    let name_end = find(line, name_start, end, |c| c == ':' || c.is_ascii_whitespace());
    if name_end == name_start || name_end == end {
        return None;
    }
    let mut services: Vec<ServiceEntry> = Vec::new();
    let mut malformed = None;
    let mut at = skip_space(line, name_end + 1, end);
    let first = at;
    while at < end && malformed.is_none() {
        let name_end = find(line, at, end, |c| c == '[' || c.is_ascii_whitespace());
        let mut service = ServiceEntry {
            name: line[at..name_end].to_owned(),
            actions: StatusActions::DEFAULT,
            span: place.start + at..place.start + name_end,
            brackets: None,
            glued: false,
        };
        let open = skip_space(line, name_end, end);
        at = open;
        if line[open..end].starts_with('[') {
            let close = find(line, open, end, |c| c == ']');
            match StatusActions::parse(&line[open + 1..close]) {
                Some(actions) if close < end && !service.name.is_empty() => {
                    service.actions = actions;
                    at = skip_space(line, close + 1, end);
                    service.glued = at == close + 1 && at < end;
                    service.span.end = place.start + close + 1;
                    service.brackets = Some(place.start + open..service.span.end);
                }
                _ => malformed = Some(line[open..end].trim_end().to_owned()),
            }
        }
        if !service.name.is_empty() {
            services.push(service);
        }
    }
    let database = line[name_start..name_end].to_owned();
    let entry = DatabaseLine {
        line: line_number,
        services,
        malformed,
        span: place,
        column: first,
        tabbed: line[name_end..first].contains('\t'),
        commented: end < line.len(),
    };
    Some((database, entry))
}

fn skip_space(line: &str, from: usize, end: usize) -> usize {
    find(line, from, end, |c| !c.is_ascii_whitespace())
}

fn find(line: &str, from: usize, end: usize, what: impl Fn(char) -> bool) -> usize {
    let from = from.min(end);
    line[from..end].find(what).map_or(end, |at| from + at)
}

/// Returns the text with roster behind `files` on the passwd and group lines, on an existing initgroups line, and with
/// `shadow` on the shadow line. Lines that already name roster stay.
///
/// The function adds no initgroups line. Without one, glibc uses the group line and continues after every success, also
/// for services that packages add to that line later.
pub fn enable(text: &str, shadow: bool) -> Result<String, EditRejection> {
    let entries = parse(text);
    let mut edits = TextEdits::default();
    let mut missing = Vec::new();
    for database in LOOKUPS.into_iter().chain(shadow.then_some("shadow")) {
        match entries.get(database) {
            Some(entry) if entry.position(SERVICE).is_some() => {}
            Some(entry) => add_to_lookups(database, entry, &mut edits)?,
            None => missing.push((database, format!("files {SERVICE}"))),
        }
    }
    if let Some(entry) = entries.get("initgroups")
        && entry.position(SERVICE).is_none()
    {
        add_to_initgroups(entry, &mut edits)?;
    }
    let mut text = edits.apply(text);
    for (database, services) in missing {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text += &new_line(database, &services, entries.values().next());
    }
    Ok(text)
}

/// Returns the position of roster on a line: behind the local accounts, if lookups reach it.
fn insert_position(database: &str, entry: &DatabaseLine) -> Result<usize, EditRejection> {
    let line = entry.line;
    let database = database.to_owned();
    if let Some(found) = entry.malformed.clone() {
        return Err(EditRejection::Malformed { line, database, found });
    }
    let Some(local) = entry.local_position() else {
        return Err(EditRejection::NoFiles { line, database });
    };
    let hiding = entry.services[..=local]
        .iter()
        .find(|service| service.actions.on_not_found() == StatusAction::Return);
    match hiding {
        Some(service) => Err(EditRejection::Hidden {
            line,
            database,
            service: service.name.clone(),
            actions: service.actions.to_string(),
        }),
        None => Ok(local),
    }
}

/// Adds roster to a line for lookups. A service that merges its groups with those of later services must merge with those
/// of roster too. Otherwise the first service with the entry replies.
fn add_to_lookups(
    database: &str,
    entry: &DatabaseLine,
    edits: &mut TextEdits,
) -> Result<(), EditRejection> {
    let local = insert_position(database, entry)?;
    let before = &entry.services[local];
    let is_last = local + 1 == entry.services.len();
    let on_success = if is_last { StatusAction::Return } else { before.actions.on_success() };
    edits.insert(before.span.end, own_service(on_success, before));
    Ok(())
}

/// Adds roster to an initgroups line. Each service before it must continue after a success, and so must roster if others
/// follow. Otherwise users lose groups.
fn add_to_initgroups(entry: &DatabaseLine, edits: &mut TextEdits) -> Result<(), EditRejection> {
    let local = insert_position("initgroups", entry)?;
    for service in &entry.services[..=local] {
        if service.actions.on_success() == StatusAction::Return {
            let actions = service.actions.with_success(StatusAction::Continue);
            match service.brackets.clone() {
                Some(brackets) => edits.replace(brackets, actions.to_string()),
                None => edits.insert(service.span.end, format!(" {actions}")),
            }
        }
    }
    let is_last = local + 1 == entry.services.len();
    let on_success = if is_last { StatusAction::Return } else { StatusAction::Continue };
    let before = &entry.services[local];
    edits.insert(before.span.end, own_service(on_success, before));
    Ok(())
}

/// Formats roster with its actions, as the service behind `before`.
fn own_service(on_success: StatusAction, before: &ServiceEntry) -> String {
    let service = format_service(SERVICE, StatusActions::DEFAULT.with_success(on_success));
    format!(" {service}{}", if before.glued { " " } else { "" })
}

fn format_service(service: &str, actions: StatusActions) -> String {
    format!("{service} {actions}").trim_end().to_owned()
}

/// Returns services and actions with SUCCESS=continue for all.
fn initgroups_meaning(entry: &DatabaseLine) -> Vec<(String, StatusActions)> {
    let services = entry.services.iter();
    services.map(|s| (s.name.clone(), s.actions.with_success(StatusAction::Continue))).collect()
}

fn new_line(database: &str, services: &str, like: Option<&DatabaseLine>) -> String {
    match like {
        Some(entry) if entry.tabbed => format!("{database}:\t{services}\n"),
        like => {
            let column = like.map_or(COLUMN, |entry| entry.column);
            let width = column.max(database.len() + 2);
            format!("{:width$}{services}\n", format!("{database}:"))
        }
    }
}

/// Returns the text without roster. Lines that [`enable`] made of `original` become the original lines, byte for byte.
/// From lines that were edited since, only roster is removed.
pub fn disable(text: &str, original: Option<&str>) -> String {
    let before = original.map(|original| (original, [false, true].map(|s| enable(original, s))));
    if let Some((original, enabled)) = &before
        && enabled.iter().any(|enabled| enabled.as_deref() == Ok(text))
    {
        return (*original).to_owned();
    }
    let known = before.iter().flat_map(|(original, enabled)| {
        let original_lines = lines_of(original);
        enabled.iter().flatten().flat_map(lines_of).map(move |(database, enabled)| {
            let original = original_lines.get(&database).cloned().unwrap_or_default();
            ((database, enabled.trim_end().to_owned()), original)
        })
    });
    let known: BTreeMap<_, _> = known.collect();

    let mut edits = TextEdits::default();
    let counting = parse(text);
    for (database, entry) in parse_lines(text) {
        if entry.position(SERVICE).is_none() {
            continue;
        }
        let line = &text[entry.span.clone()];
        if let Some(original) = known.get(&(database.clone(), line.trim_end().to_owned())) {
            // The last line of the original may have no newline. Here other lines may follow it.
            let ended = original.is_empty() || original.ends_with('\n') || !line.ends_with('\n');
            edits.replace(entry.span, format!("{original}{}", if ended { "" } else { "\n" }));
        } else if database == "initgroups" && is_ours(&entry, counting.get("group")) {
            edits.replace(entry.span, String::new());
        } else {
            remove_from(text, &entry, &mut edits);
        }
    }
    edits.apply(text)
}

fn lines_of(text: impl AsRef<str>) -> BTreeMap<String, String> {
    let text = text.as_ref();
    let counting = parse(text).into_iter();
    counting.map(|(database, entry)| (database, text[entry.span].to_owned())).collect()
}

/// Returns whether an initgroups line without roster has the same meaning as no initgroups line.
fn is_ours(initgroups: &DatabaseLine, group: Option<&DatabaseLine>) -> bool {
    let without_us = |entry: &DatabaseLine| {
        let mut services = initgroups_meaning(entry);
        services.retain(|(name, _)| name != SERVICE);
        services
    };
    let on_group = match group {
        Some(group) => without_us(group),
        None => {
            vec![("files".to_owned(), StatusActions::DEFAULT.with_success(StatusAction::Continue))]
        }
    };
    !initgroups.commented && initgroups.malformed.is_none() && without_us(initgroups) == on_group
}

fn remove_from(text: &str, entry: &DatabaseLine, edits: &mut TextEdits) {
    // A database without services has no entries, not even root.
    let alone = entry.services.iter().all(|service| service.name == SERVICE);
    for (at, service) in entry.services.iter().enumerate() {
        if service.name != SERVICE {
            continue;
        }
        let mut place = service.span.clone();
        if alone && at == 0 {
            edits.replace(place, "files".to_owned());
        } else if at == 0 {
            place.end = entry.services[1].span.start;
            edits.replace(place, String::new());
        } else {
            let before = text[..place.start].trim_end_matches(|c: char| c.is_ascii_whitespace());
            place.start = before.len();
            edits.replace(place, String::new());
        }
    }
}

/// Edits of one text by position, so that no edit moves another.
#[derive(Default)]
struct TextEdits(Vec<(Range<usize>, String)>);

impl TextEdits {
    fn insert(&mut self, at: usize, text: String) {
        self.replace(at..at, text);
    }

    fn replace(&mut self, place: Range<usize>, text: String) {
        self.0.push((place, text));
    }

    fn apply(mut self, text: &str) -> String {
        // Stable, so that insertions at one place keep their order.
        self.0.sort_by_key(|(place, _)| place.start);
        let mut edited = String::with_capacity(text.len() + 128);
        let mut at = 0;
        for (place, new) in self.0 {
            edited += &text[at..place.start.max(at)];
            edited += &new;
            at = place.end.max(at);
        }
        edited + &text[at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn enabled(text: &str) -> String {
        enable(text, false).unwrap_or_else(|refusal| panic!("{text:?}: {refusal:?}"))
    }

    #[test]
    fn roster_goes_right_behind_the_local_accounts() {
        for (before, after) in [
            ("files", "files roster"),
            ("files systemd", "files roster systemd"),
            ("files  sss\t# note", "files roster  sss\t# note"),
            ("compat", "compat roster"),
            ("db files", "db files roster"),
            ("sss files", "sss files roster"),
            ("files [!NOTFOUND=return] sss", "files [!NOTFOUND=return] roster sss"),
            ("files[UNAVAIL=return]sss", "files[UNAVAIL=return] roster sss"),
            (
                "files [SUCCESS=merge] sss [SUCCESS=merge] systemd",
                "files [SUCCESS=merge] roster [SUCCESS=merge] sss [SUCCESS=merge] systemd",
            ),
            ("files [SUCCESS=merge]", "files [SUCCESS=merge] roster"),
            ("roster files", "roster files"),
        ] {
            let text = enabled(&format!("passwd: {before}\n"));
            assert_eq!(text.lines().next(), Some(&*format!("passwd: {after}")), "{before}");
        }
    }

    #[test]
    fn no_initgroups_line_is_brought_in_where_glibc_goes_by_the_group_line() {
        for text in ["passwd: files\ngroup: files systemd\n", "group: files roster sss\n", ""] {
            assert!(!enabled(text).contains("initgroups"), "{text:?}");
        }
    }

    #[test]
    fn an_existing_initgroups_line_goes_on_after_a_success() {
        for (before, after) in [
            ("files", "files [SUCCESS=continue] roster"),
            ("files sss", "files [SUCCESS=continue] roster [SUCCESS=continue] sss"),
            (
                "files [SUCCESS=continue] sss",
                "files [SUCCESS=continue] roster [SUCCESS=continue] sss",
            ),
            ("files [UNAVAIL=return]", "files [SUCCESS=continue UNAVAIL=return] roster"),
            ("db files", "db [SUCCESS=continue] files [SUCCESS=continue] roster"),
        ] {
            let text = enabled(&format!("passwd:files\ngroup:files\ninitgroups: {before}\n"));
            let last = text.lines().last().map(str::to_owned);
            assert_eq!(last, Some(format!("initgroups: {after}")), "{before}");
        }
    }

    #[test]
    fn a_new_line_aligns_with_the_others() {
        assert_eq!(
            enabled("passwd:         files systemd\ngroup:          files systemd\nhosts: dns\n"),
            "passwd:         files roster systemd\n\
             group:          files roster systemd\n\
             hosts: dns\n"
        );
        assert_eq!(
            enabled("passwd:\tfiles\ngroup:\tfiles"),
            "passwd:\tfiles roster\ngroup:\tfiles roster"
        );
    }

    #[test]
    fn missing_lines_are_added_with_what_glibc_assumes_for_them() {
        assert_eq!(
            enable("# nothing here", true).as_deref(),
            Ok("# nothing here\n\
                passwd:         files roster\n\
                group:          files roster\n\
                shadow:         files roster\n")
        );
    }

    #[test]
    fn the_shadow_line_is_touched_only_on_request() {
        let text = "passwd: files\ngroup: files\nshadow: files systemd\n";
        assert!(enabled(text).contains("shadow: files systemd\n"));
        assert!(enable(text, true).unwrap().contains("shadow: files roster systemd\n"));
    }

    #[test]
    fn the_last_line_for_a_database_counts() {
        let text = enabled("passwd: nis\ngroup: files\npasswd: files\n");
        assert!(text.starts_with("passwd: nis\n") && text.ends_with("passwd: files roster\n"));
    }

    #[test]
    fn what_would_hide_roster_is_refused_and_named() {
        for (line, message, text) in [
            (
                "passwd: files [NOTFOUND=return]",
                &host::LOOKUP_ENDS_BEFORE_SERVICE,
                "`files [NOTFOUND=return]` ends each lookup before `roster`",
            ),
            (
                "passwd: nis [notfound=RETURN] files",
                &host::LOOKUP_ENDS_BEFORE_SERVICE,
                "`nis [NOTFOUND=return]` ends each lookup before `roster`",
            ),
            ("passwd: sss", &host::FILES_NOT_NAMED, "neither `files` nor `compat` is named"),
            (
                "passwd: files [NOPE=return] sss # x",
                &host::NSSWITCH_LINE_INVALID,
                "glibc cannot parse `[NOPE=return] sss`",
            ),
            (
                "passwd: files [SUCCESS=return",
                &host::NSSWITCH_LINE_INVALID,
                "glibc cannot parse `[SUCCESS=return`",
            ),
        ] {
            let error = enable(line, false).unwrap_err().coded(Path::new("/etc/x"));
            assert_eq!(error.message, message, "{line}");
            let expected = format!("/etc/x:1: passwd: {text}; the file was not changed");
            assert_eq!(error.text, expected, "{line}");
        }
    }

    const FILES: [&str; 8] = [
        "passwd: files\ngroup: files\n",
        "passwd: files systemd # a\n\n# b\ngroup:\tcompat systemd\nshadow: files",
        "group: files\npasswd: files\ngroup: files",
        "",
        "# only a comment",
        "passwd: db files [!NOTFOUND=return] sss\ngroup: files [SUCCESS=merge] sss\n",
        "passwd: files\ngroup: files sss\ninitgroups: files sss\nhosts: files dns\n",
        "passwd: files\r\ngroup: files\r\nshadow: files\r\n",
    ];

    #[test]
    fn enabling_twice_changes_nothing_more() {
        for text in FILES {
            for shadow in [false, true] {
                let once = enable(text, shadow).unwrap();
                assert_eq!(enable(&once, shadow).as_deref(), Ok(&*once), "{text:?}");
            }
        }
    }

    #[test]
    fn disabling_restores_the_original_byte_for_byte() {
        for text in FILES {
            for shadow in [false, true] {
                let on = enable(text, shadow).unwrap();
                assert_eq!(disable(&on, Some(text)), text);
            }
        }
    }

    #[test]
    fn disabling_without_the_original_takes_out_what_roster_brought() {
        for text in [FILES[0], FILES[1], FILES[2], FILES[5]] {
            let on = enable(text, true).unwrap();
            let off = disable(&on, None);
            let added_shadow = !text.contains("shadow:");
            let off = if added_shadow { off.replace("shadow: files\n", "") } else { off };
            let off = off.lines().filter(|line| !line.starts_with("shadow:      "));
            assert_eq!(off.collect::<Vec<_>>(), text.lines().collect::<Vec<_>>(), "{on}");
        }
    }

    #[test]
    fn disabling_keeps_edits_made_meanwhile() {
        let original = "passwd: files\ngroup: files sss\ninitgroups: files sss\n";
        let on = enable(original, false).unwrap();
        let edited =
            on.replace("passwd: files roster", "passwd: files roster sss # new") + "hosts: files\n";
        assert_eq!(
            disable(&edited, Some(original)),
            "passwd: files sss # new\ngroup: files sss\ninitgroups: files sss\nhosts: files\n"
        );
    }

    #[test]
    fn a_restored_last_line_does_not_swallow_what_was_added_after_it() {
        let original = "passwd: files\ngroup: files";
        let edited = enable(original, false).unwrap() + "\nhosts: files\n";
        assert_eq!(disable(&edited, Some(original)), "passwd: files\ngroup: files\nhosts: files\n");
    }

    #[test]
    fn disabling_takes_roster_out_of_hand_written_lines() {
        for (before, after) in [
            ("passwd: roster files\n", "passwd: files\n"),
            ("passwd: roster [NOTFOUND=return] files\n", "passwd: files\n"),
            ("passwd: roster\n", "passwd: files\n"),
            ("passwd:\tfiles\troster\tsss\n", "passwd:\tfiles\tsss\n"),
            ("gshadow: files roster # x\n", "gshadow: files # x\n"),
            ("# passwd: roster\n", "# passwd: roster\n"),
            (
                "group: files\ninitgroups: files [SUCCESS=continue] roster # mine\n",
                "group: files\ninitgroups: files [SUCCESS=continue] # mine\n",
            ),
            ("initgroups: files [SUCCESS=continue] roster\n", ""),
        ] {
            assert_eq!(disable(before, None), after, "{before:?}");
        }
    }
}
