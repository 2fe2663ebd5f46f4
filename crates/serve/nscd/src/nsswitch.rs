// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides from nsswitch.conf(5) which name services a map may contain: `files` and `roster`, if no other service
//! precedes them. A map redirects clients to the name services for results that a later service could add or replace.

/// A service that a map can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// The local files.
    Files,
    /// The snapshot.
    Roster,
}

/// A service in a map, and the actions after its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceStep {
    /// The service.
    pub service: Service,
    /// Whether an entry is final: no later service is queried.
    pub found_is_final: bool,
    /// Whether a missing entry is final: no later service is queried.
    pub absent_is_final: bool,
    /// Whether a service without its file ends the lookup: no later service is queried.
    pub unavailable_is_final: bool,
}

impl ServiceStep {
    /// Returns whether no later service is queried after this one found no entry, or has no file.
    #[must_use]
    pub fn ends_without(self, has_file: bool) -> bool {
        if has_file { self.absent_is_final } else { self.unavailable_is_final }
    }
}

/// The services of one line that a map can contain, up to the first other service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceLine {
    /// The services, in order.
    pub steps: Vec<ServiceStep>,
    /// Whether other services follow.
    pub others_follow: bool,
    /// The line without its database name.
    pub text: String,
}

impl ServiceLine {
    /// Returns the line up to that service. The name services handle that service and all later ones.
    fn up_to(&self, service: Service) -> Self {
        let mut line = self.clone();
        if let Some(place) = line.steps.iter().position(|step| step.service == service) {
            line.steps.truncate(place);
            line.others_follow = true;
        }
        line
    }
}

/// The relevant lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceLines {
    /// Users.
    pub passwd: ServiceLine,
    /// Groups.
    pub group: ServiceLine,
    /// Supplementary groups: the line `initgroups`, or else the line `group` with lookups that continue after a
    /// success.
    pub initgroups: ServiceLine,
    /// Whether the file has an `initgroups` line.
    pub has_initgroups: bool,
}

impl ServiceLines {
    /// Returns the lines for an unreadable snapshot: the NSS module handles all entries that the snapshot may have.
    #[must_use]
    pub fn without_roster(&self) -> Self {
        let [passwd, group, initgroups] =
            [&self.passwd, &self.group, &self.initgroups].map(|line| line.up_to(Service::Roster));
        Self { passwd, group, initgroups, has_initgroups: self.has_initgroups }
    }
}

/// Parses nsswitch.conf(5). A missing line means `files`, as in glibc.
#[must_use]
pub fn parse(text: &[u8]) -> ServiceLines {
    let text = String::from_utf8_lossy(text);
    let passwd = value(&text, "passwd").unwrap_or("files");
    let group = value(&text, "group").unwrap_or("files");
    let initgroups = value(&text, "initgroups");
    ServiceLines {
        passwd: line(passwd, false),
        group: line(group, false),
        initgroups: line(initgroups.unwrap_or(group), initgroups.is_none()),
        has_initgroups: initgroups.is_some(),
    }
}

/// Returns the text after the database name; the last line of a name counts. As in glibc since 2.33, the colon may be
/// missing. A `#` after the name is a missing service, and later services are queried.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut values = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let end = line.find(|c: char| c.is_whitespace() || c == ':')?;
        let (found, value) = line.split_at(end);
        let value = value.trim_start_matches(|c: char| c.is_whitespace() || c == ':').trim_end();
        (found == name).then_some(value)
    });
    values.next_back()
}

/// The action after a status.
#[derive(Clone, Copy, PartialEq)]
enum Action {
    Return,
    Continue,
    Merge,
}

fn line(value: &str, goes_on: bool) -> ServiceLine {
    let mut line = ServiceLine { text: value.to_owned(), ..ServiceLine::default() };
    let mut rest = value;
    while let Some((service, actions, behind)) = service(rest) {
        rest = behind;
        let service = match service {
            "files" => Service::Files,
            "roster" => Service::Roster,
            _ => {
                line.others_follow = true;
                break;
            }
        };
        let StatusActions { found, absent, unavailable } = parse_actions(actions);
        let step = ServiceStep {
            service,
            found_is_final: found == Action::Return && !goes_on,
            absent_is_final: absent == Action::Return,
            unavailable_is_final: unavailable == Action::Return,
        };
        // A repeated service would repeat its result. The name services handle the rest of the line.
        if line.steps.iter().any(|other| other.service == service) {
            line.others_follow = true;
            break;
        }
        line.steps.push(step);
        if step.absent_is_final && step.found_is_final {
            break;
        }
    }
    line
}

/// Splits off the first service and its actions in brackets.
fn service(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| c.is_whitespace() || c == '[').unwrap_or(text.len());
    let (service, rest) = text.split_at(end);
    if service.is_empty() {
        return None;
    }
    match rest.trim_start().strip_prefix('[') {
        Some(inner) => {
            let (actions, rest) = inner.split_once(']').unwrap_or((inner, ""));
            Some((service, actions, rest))
        }
        None => Some((service, "", rest)),
    }
}

/// Actions after success, after a missing entry, and after a failed service.
struct StatusActions {
    found: Action,
    absent: Action,
    unavailable: Action,
}

fn parse_actions(actions: &str) -> StatusActions {
    let (found, other) = (Action::Return, Action::Continue);
    let mut follows = StatusActions { found, absent: other, unavailable: other };
    // `STATUS = ACTION` may have blanks around the sign.
    let spaced = actions.replace('=', " = ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    for three in words.windows(3).filter(|three| three[1] == "=") {
        let next = match three[2].to_ascii_lowercase().as_str() {
            "return" => Action::Return,
            "merge" => Action::Merge,
            _ => Action::Continue,
        };
        let (negated, status) = match three[0].strip_prefix('!') {
            Some(status) => (true, status),
            None => (false, three[0]),
        };
        let StatusActions { found, absent, unavailable } = &mut follows;
        for (name, of) in [("success", found), ("notfound", absent), ("unavail", unavailable)] {
            if status.eq_ignore_ascii_case(name) != negated {
                *of = next;
            }
        }
    }
    follows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(line: &ServiceLine) -> Vec<(Service, bool, bool)> {
        let step = |step: &ServiceStep| (step.service, step.found_is_final, step.absent_is_final);
        line.steps.iter().map(step).collect()
    }

    #[test]
    fn recommended_lines_leave_nothing_open() {
        let lines = parse(
            b"# local first\npasswd: files roster\n#group: sss\ngroup:files roster\n\
              initgroups: files [SUCCESS=continue] roster\n",
        );
        let both = [(Service::Files, true, false), (Service::Roster, true, false)];
        assert_eq!(steps(&lines.passwd), both);
        assert_eq!(steps(&lines.group), both);
        let union = [(Service::Files, false, false), (Service::Roster, true, false)];
        assert_eq!(steps(&lines.initgroups), union);
        assert!(!lines.passwd.others_follow && !lines.initgroups.others_follow);
    }

    #[test]
    fn other_services_end_what_a_map_can_know() {
        let lines = parse(b"passwd: files systemd roster\ngroup: files [SUCCESS=merge] systemd\n");
        assert_eq!(steps(&lines.passwd), [(Service::Files, true, false)]);
        assert!(lines.passwd.others_follow);
        assert_eq!(steps(&lines.group), [(Service::Files, false, false)]);
        assert!(lines.initgroups.others_follow && !lines.has_initgroups);
        assert!(parse(b"passwd: sss files").passwd.steps.is_empty());
    }

    #[test]
    fn without_the_snapshot_all_that_it_may_have_a_say_in_is_open() {
        let lines = parse(b"passwd: files roster\ngroup: roster files\n").without_roster();
        assert_eq!(steps(&lines.passwd), [(Service::Files, true, false)]);
        assert!(lines.passwd.others_follow);
        assert!(lines.group.steps.is_empty() && lines.initgroups.steps.is_empty());
        assert!(lines.group.others_follow && lines.initgroups.others_follow);
        let lines = parse(b"passwd: files\n");
        assert_eq!(lines.without_roster(), lines);
    }

    #[test]
    fn services_behind_a_sign_that_begins_no_comment_are_asked() {
        let lines = parse(b"passwd: files # sss\n group files systemd\ninitgroups :: files\n");
        assert_eq!(steps(&lines.passwd), [(Service::Files, true, false)]);
        assert!(lines.passwd.others_follow);
        assert_eq!(lines.passwd.text, "files # sss");
        assert_eq!(lines.group.text, "files systemd");
        assert_eq!(lines.initgroups.text, "files");
        assert!(lines.has_initgroups);
    }

    #[test]
    fn actions_are_read_as_glibc_does() {
        let of = |text: &str| line(text, false);
        assert_eq!(steps(&of("files [!SUCCESS=return] sss")), [(Service::Files, true, true)]);
        assert!(!of("files [!SUCCESS=return] sss").others_follow);
        assert_eq!(steps(&of("files[NOTFOUND=return]")), [(Service::Files, true, true)]);
        assert_eq!(
            steps(&of("files [success=continue notfound=return] roster")),
            [(Service::Files, false, true), (Service::Roster, true, false)]
        );
    }

    #[test]
    fn a_missing_file_ends_a_line_where_it_says_so() {
        let ends = |text| line(text, false).steps[0].ends_without(false);
        assert!(ends("roster [UNAVAIL=return] files") && ends("roster [!SUCCESS=return] files"));
        assert!(!ends("roster [NOTFOUND=return] files") && !ends("roster files"));
        assert!(!ends("roster [!NOTFOUND=continue] files"));
    }

    #[test]
    fn a_line_that_is_missing_is_files() {
        let lines = parse(b"# nothing\n");
        assert_eq!(steps(&lines.passwd), [(Service::Files, true, false)]);
        assert_eq!(steps(&lines.initgroups), [(Service::Files, false, false)]);
    }
}
