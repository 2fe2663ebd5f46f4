// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a [`Plan`] as roster.toml: keys, and a comment for each setting without a counterpart.

use crate::plan::{DomainPlan, Item, Outcome, Plan, TomlTable};
use crate::values;

/// Length from which a comment is wrapped.
const LINE_CHARS: usize = 110;

/// Returns the text of the file. It has no secret.
#[must_use]
pub fn render(plan: &Plan) -> String {
    let mut text = String::new();
    let sources: Vec<String> = plan.sources.iter().map(|path| path.display().to_string()).collect();
    comment(&mut text, &format!("Converted by roster migrate-config from {}.", sources.join(", ")));
    comment(&mut text, "Comments list the settings that have no counterpart.");
    if !plan.notes.is_empty() {
        comment(&mut text, "Behaviour that differs:");
    }
    for note in &plan.notes {
        comment(&mut text, &format!("- {note}"));
    }
    text.push_str("\n[host]\n");
    let names: Vec<&str> = plan.domains.iter().map(|domain| &*domain.name).collect();
    text += &format!("domains = {}\n", values::list(&names));
    keys(&mut text, &plan.host);
    let is_of_domain = |item: &Item, domain: &DomainPlan| item.section == domain.section;
    for domain in &plan.domains {
        let header = format!("domain.{}", bare_or_quoted(&domain.name));
        table(&mut text, &header, &domain.keys);
        comments(&mut text, plan.items.iter().filter(|item| is_of_domain(item, domain)));
        for (name, found) in [("attributes", &domain.attributes), ("access", &domain.access)] {
            if !found.is_empty() {
                table(&mut text, &format!("{header}.{name}"), found);
            }
        }
    }
    for (header, found) in [("responder.pam", &plan.responder_pam), ("log", &plan.log)] {
        if !found.is_empty() {
            table(&mut text, header, found);
        }
    }
    let others = plan
        .items
        .iter()
        .filter(|item| !plan.domains.iter().any(|domain| is_of_domain(item, domain)));
    let mut rest = String::new();
    comments(&mut rest, others);
    if !rest.is_empty() {
        text += "\n# Settings of the other sections:\n";
        text += &rest;
    }
    text
}

fn table(text: &mut String, header: &str, found: &TomlTable) {
    *text += &format!("\n[{header}]\n");
    keys(text, found);
}

fn keys(text: &mut String, found: &TomlTable) {
    for (key, value) in found.iter() {
        *text += &format!("{key} = {value}\n");
    }
}

fn comments<'i>(text: &mut String, items: impl Iterator<Item = &'i Item>) {
    for item in items {
        let note = match &item.outcome {
            Outcome::Dropped { note } => note.clone(),
            Outcome::Waived { reason } => format!("LEFT OUT by --without, although {reason}."),
            Outcome::Mapped { .. } | Outcome::Stopped { .. } => continue,
        };
        let Item { origin, setting, value, .. } = item;
        comment(text, &format!("{origin}: {setting} = {value}: {note}"));
    }
}

/// Adds a comment, wrapped at spaces. No character of the text can end it.
fn comment(text: &mut String, content: &str) {
    let plain: String =
        content.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let mut line = String::from("#");
    for word in plain.split(' ').filter(|word| !word.is_empty()) {
        if line.len() > 3 && line.chars().count() + 1 + word.chars().count() > LINE_CHARS {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

fn bare_or_quoted(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.bytes().all(is_bare) { name.to_owned() } else { values::quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Origin;

    #[test]
    fn comment_of_hostile_value_stays_comment() {
        let item = Item {
            origin: Origin { file: "/etc/x\n[host]".into(), line: 3 },
            section: "nss".into(),
            setting: "a".into(),
            value: "b\r\n[host]\u{85}c".into(),
            outcome: Outcome::Dropped { note: "no effect. ".repeat(30) },
        };
        let plan = Plan { items: vec![item], ..Plan::default() };
        let text = render(&plan);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(["", "[host]", "domains = []"].contains(&line), "{text}");
        }
        assert_eq!(text.matches("[host]\n").count(), 1, "{text}");
    }
}
