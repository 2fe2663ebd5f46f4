//! Which of the host's name services are in the maps, as nsswitch.conf(5) says: those of `files` and
//! `roster` that are asked before any other. What a later service may add to or take the place of is
//! left open, and the name services are asked.

/// A service whose entries can be in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// The text files.
    Files,
    /// The snapshot.
    Roster,
}

/// A service in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub service: Service,
    /// What it finds is the answer: no later service is asked.
    pub found_is_final: bool,
    /// What it does not find is not there: no later service is asked.
    pub absent_is_final: bool,
    /// Without its file, no later service is asked.
    pub unavailable_is_final: bool,
}

impl Step {
    /// Whether no later service is asked for what this one does not have, or cannot have without its file.
    #[must_use]
    pub fn ends_without(self, has_file: bool) -> bool {
        if has_file { self.absent_is_final } else { self.unavailable_is_final }
    }
}

/// The services of one line that can be in a map, up to the first that cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// In order.
    pub steps: Vec<Step>,
    /// Whether other services follow.
    pub others_follow: bool,
    /// The line as it stands, without its name.
    pub text: String,
}

impl Line {
    /// The line up to where it names that service, which is left to the name services with all behind it.
    fn before(&self, service: Service) -> Self {
        let mut line = self.clone();
        if let Some(place) = line.steps.iter().position(|step| step.service == service) {
            line.steps.truncate(place);
            line.others_follow = true;
        }
        line
    }
}

/// The lines that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Users.
    pub passwd: Line,
    /// Groups.
    pub group: Line,
    /// Groups of users: the line of that name, or that of groups, which goes on after a success.
    pub initgroups: Line,
    /// Whether there is a line of that name.
    pub has_initgroups: bool,
}

impl Lines {
    /// The lines where the snapshot cannot be read: whoever may be in it is asked of the module.
    #[must_use]
    pub fn without_roster(&self) -> Self {
        let [passwd, group, initgroups] =
            [&self.passwd, &self.group, &self.initgroups].map(|line| line.before(Service::Roster));
        Self { passwd, group, initgroups, has_initgroups: self.has_initgroups }
    }
}

/// Reads the text of nsswitch.conf(5). A line that is missing is `files`, as it is to glibc.
#[must_use]
pub fn parse(text: &[u8]) -> Lines {
    let text = String::from_utf8_lossy(text);
    let passwd = value(&text, "passwd").unwrap_or("files");
    let group = value(&text, "group").unwrap_or("files");
    let initgroups = value(&text, "initgroups");
    Lines {
        passwd: line(passwd, false),
        group: line(group, false),
        initgroups: line(initgroups.unwrap_or(group), initgroups.is_none()),
        has_initgroups: initgroups.is_some(),
    }
}

/// What stands behind the name; the last line of a name counts. Read as glibc does since 2.33: the colon may be missing,
/// and behind a name `#` begins no comment, but is a service that is not there, and those behind it are asked.
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

/// What follows a status.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Return,
    Continue,
    Merge,
}

fn line(value: &str, goes_on: bool) -> Line {
    let mut line = Line { text: value.to_owned(), ..Line::default() };
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
        let Actions { found, absent, unavailable } = follows(actions);
        let step = Step {
            service,
            found_is_final: found == Next::Return && !goes_on,
            absent_is_final: absent == Next::Return,
            unavailable_is_final: unavailable == Next::Return,
        };
        // A service that is named twice says the same both times.
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

/// The first service, what stands in brackets behind it, and the rest.
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

/// What follows a success, what follows when nothing was found, and when nothing could be.
struct Actions {
    found: Next,
    absent: Next,
    unavailable: Next,
}

fn follows(actions: &str) -> Actions {
    let (found, other) = (Next::Return, Next::Continue);
    let mut follows = Actions { found, absent: other, unavailable: other };
    // "STATUS = ACTION" may have blanks around the sign.
    let spaced = actions.replace('=', " = ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    for three in words.windows(3).filter(|three| three[1] == "=") {
        let next = match three[2].to_ascii_lowercase().as_str() {
            "return" => Next::Return,
            "merge" => Next::Merge,
            _ => Next::Continue,
        };
        let (negated, status) = match three[0].strip_prefix('!') {
            Some(status) => (true, status),
            None => (false, three[0]),
        };
        let Actions { found, absent, unavailable } = &mut follows;
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

    fn steps(line: &Line) -> Vec<(Service, bool, bool)> {
        let step = |step: &Step| (step.service, step.found_is_final, step.absent_is_final);
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
