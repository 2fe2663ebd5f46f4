// SPDX-License-Identifier: MIT OR Apache-2.0
//! Example texts that an expression probably matches. Look-around is ignored, or its text is put before the rest, so
//! the caller has to test an example. The parent module tests it with `matcher`.

use super::parse::{CharSet, PatternNode, SetItem};

/// Limit of an example.
const SAMPLE_CHARS_MAX: usize = 200;

/// Returns a text along the branches of number `branch`, or the first ones. `looks`: with the text of look-ahead.
pub(super) fn sample(node: &PatternNode, branch: usize, looks: bool) -> String {
    let mut sampler = Sampler { out: String::new(), groups: vec![None], branch, looks };
    sampler.node(node);
    sampler.out
}

/// Returns the number of branches of the widest choice outside of repetitions.
pub(super) fn branches(node: &PatternNode) -> usize {
    match node {
        PatternNode::Choice(nodes) => {
            nodes.len().max(nodes.iter().map(branches).max().unwrap_or(1))
        }
        PatternNode::Sequence(nodes) => nodes.iter().map(branches).max().unwrap_or(1),
        PatternNode::Capture(_, node) | PatternNode::Atomic(node) => branches(node),
        _ => 1,
    }
}

struct Sampler {
    out: String,
    /// Texts of the groups.
    groups: Vec<Option<String>>,
    branch: usize,
    looks: bool,
}

impl Sampler {
    fn node(&mut self, node: &PatternNode) {
        if self.out.len() > SAMPLE_CHARS_MAX {
            return;
        }
        match node {
            PatternNode::Set(set) => self.out.extend(member(set)),
            PatternNode::Look { behind: None, negated: false, node } if self.looks => {
                self.node(node);
            }
            PatternNode::Anchor(_) | PatternNode::Look { .. } => {}
            PatternNode::Capture(_, node) => {
                let (group, start) = (self.groups.len(), self.out.len());
                self.groups.push(None);
                self.node(node);
                self.groups[group] = Some(self.out[start..].to_owned());
            }
            PatternNode::Atomic(node) => self.node(node),
            PatternNode::Sequence(nodes) => nodes.iter().for_each(|node| self.node(node)),
            PatternNode::Choice(nodes) => {
                if let Some(node) = nodes.get(self.branch).or(nodes.first()) {
                    self.node(node);
                }
            }
            PatternNode::Repeat { node, min, max, .. } => {
                let once = u64::from(*max != Some(0));
                for _ in 0..(*min).max(once).min(SAMPLE_CHARS_MAX as u64) {
                    self.node(node);
                }
            }
            PatternNode::Reference(group) => {
                if let Some(Some(text)) = self.groups.get(*group).cloned() {
                    self.out.push_str(&text);
                }
            }
        }
    }
}

/// Returns a character of a set, preferably one that can be typed.
fn member(set: &CharSet) -> Option<char> {
    let mut typed = "a1x0bA/.-_=, \n".chars().chain('!'..='~');
    let has = |char: char| {
        let code = u32::from(char);
        let within = set.items.iter().any(|item| match *item {
            SetItem::Range(low, high) => (low..=high).contains(&code),
            SetItem::Class { class, negated, .. } => {
                use super::parse::CharClass::{Digit, Space, Word};
                let is = match class {
                    Digit => char.is_ascii_digit(),
                    Space => crate::python_strings::is_space(char),
                    Word => char.is_alphanumeric() || char == '_',
                };
                is != negated
            }
        });
        within != set.negated
    };
    typed.find(|&char| has(char)).or_else(|| match set.items.first() {
        Some(SetItem::Range(low, _)) if !set.negated => char::from_u32(*low),
        _ => None,
    })
}
