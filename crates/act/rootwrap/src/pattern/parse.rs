// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parser of CPython 3.11's syntax: the result is a tree with resolved flags, names and escapes. It rejects what
//! CPython rejects, and a few constructs that are named as unsupported. It matches nothing. `program` compiles the
//! tree.

use super::PatternFault;
use std::collections::HashMap;

/// Limit of nested groups. CPython stops at a few hundred.
const DEPTH_MAX: u32 = 100;
/// CPython's limit on a repetition's count.
const REPEAT_MAX: u64 = u32::MAX as u64;

/// A regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatternNode {
    /// A character of a set.
    Set(CharSet),
    /// A position.
    Anchor(Anchor),
    /// A group with a number from 1.
    Capture(usize, Box<PatternNode>),
    /// Parts in sequence.
    Sequence(Vec<PatternNode>),
    /// Alternatives. The first one that leads to a match counts.
    Choice(Vec<PatternNode>),
    Repeat {
        node: Box<PatternNode>,
        min: u64,
        max: Option<u64>,
        kind: Greediness,
    },
    Look {
        /// Width of a look-behind in characters. `None`: a look-ahead.
        behind: Option<u64>,
        negated: bool,
        node: Box<PatternNode>,
    },
    /// A part that never gives its match up.
    Atomic(Box<PatternNode>),
    /// The text of a group.
    Reference(usize),
}

impl PatternNode {
    fn is_one_character(&self) -> bool {
        match self {
            Self::Set(_) => true,
            Self::Sequence(nodes) => matches!(&nodes[..], [node] if node.is_one_character()),
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// `\A`, and `^` outside of multi-line mode.
    Start,
    /// `\Z`.
    End,
    /// `$` outside of multi-line mode: the end, or a final newline.
    EndOrNewline,
    StartOfLine,
    EndOfLine,
    Boundary {
        ascii: bool,
    },
    NoBoundary {
        ascii: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greediness {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CharSet {
    pub negated: bool,
    pub items: Vec<SetItem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetItem {
    /// Characters by their first and last code point, surrogates included.
    Range(u32, u32),
    Class {
        class: CharClass,
        negated: bool,
        ascii: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CharClass {
    Digit,
    Space,
    Word,
}

#[derive(Clone, Copy, Default)]
struct PatternFlags {
    ascii: bool,
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
    verbose: bool,
}

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<PatternNode, PatternFault> {
    let mut parser = PatternParser {
        chars: text.chars().collect(),
        at: 0,
        flags: PatternFlags::default(),
        unicode: false,
        widths: vec![None],
        names: HashMap::new(),
        look_behind_groups: None,
        depth: 0,
    };
    let node = parser.choice(true)?;
    if parser.peek().is_some() {
        return Err(PatternFault::Bad("has a ) without its ("));
    }
    Ok(node)
}

struct PatternParser {
    chars: Vec<char>,
    at: usize,
    flags: PatternFlags,
    /// True if the flag `u` was set explicitly.
    unicode: bool,
    /// Minimum and maximum width of each group, from 0. `None` for an open group.
    widths: Vec<Option<(u64, u64)>>,
    names: HashMap<String, usize>,
    /// Number of groups at the start of the outermost look-behind.
    look_behind_groups: Option<usize>,
    depth: u32,
}

impl PatternParser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += 1;
        Some(char)
    }

    /// Returns the next character of a comment. An escaped character is returned as `\\` and does not end it.
    fn token(&mut self) -> Result<Option<char>, PatternFault> {
        let char = self.next();
        if char == Some('\\') {
            self.next().ok_or(BAD_ESCAPE)?;
        }
        Ok(char)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn close(&mut self) -> Result<(), PatternFault> {
        if self.eat(')') { Ok(()) } else { Err(PatternFault::Bad("has a ( without its )")) }
    }

    fn until(&mut self, end: char) -> Result<String, PatternFault> {
        let rest = &self.chars[self.at..];
        let length = rest.iter().position(|&char| char == end);
        let length = length.ok_or(PatternFault::Bad("has a group name without an end"))?;
        let name: String = rest[..length].iter().collect();
        self.at += length + 1;
        if name.is_empty() {
            Err(PatternFault::Bad("has a group without a name"))
        } else {
            Ok(name)
        }
    }

    fn digits(&mut self, radix: u32, most: usize) -> String {
        let rest = &self.chars[self.at..];
        let digits: String =
            rest.iter().take(most).take_while(|char| char.is_digit(radix)).collect();
        self.at += digits.len();
        digits
    }

    fn choice(&mut self, top: bool) -> Result<PatternNode, PatternFault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(PatternFault::Unsupported("nests more than 100 groups"));
        }
        let mut branches = vec![self.sequence(top)?];
        while self.eat('|') {
            branches.push(self.sequence(false)?);
        }
        self.depth -= 1;
        Ok(if branches.len() == 1 { branches.remove(0) } else { PatternNode::Choice(branches) })
    }

    /// `first`: global flags are allowed here.
    fn sequence(&mut self, first: bool) -> Result<PatternNode, PatternFault> {
        let mut items: Vec<PatternNode> = Vec::new();
        while let Some(char) = self.peek() {
            if char == '|' || char == ')' {
                break;
            }
            self.at += 1;
            if self.flags.verbose {
                match char {
                    ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c' => continue,
                    '#' => {
                        while self.token()?.is_some_and(|token| token != '\n') {}
                        continue;
                    }
                    _ => {}
                }
            }
            match char {
                '\\' => items.push(self.escape()?),
                '[' => items.push(self.set()?),
                '*' | '+' | '?' | '{' => self.repeat(char, &mut items)?,
                '.' => items.push(PatternNode::Set(self.any())),
                '(' => {
                    let node = self.group(first && items.is_empty())?;
                    items.extend(node);
                }
                '^' if self.flags.multi_line => {
                    items.push(PatternNode::Anchor(Anchor::StartOfLine));
                }
                '^' => items.push(PatternNode::Anchor(Anchor::Start)),
                '$' if self.flags.multi_line => items.push(PatternNode::Anchor(Anchor::EndOfLine)),
                '$' => items.push(PatternNode::Anchor(Anchor::EndOrNewline)),
                char => items.push(self.literal(char.into())?),
            }
        }
        Ok(PatternNode::Sequence(items))
    }

    fn any(&self) -> CharSet {
        let newline = SetItem::Range(u32::from('\n'), u32::from('\n'));
        CharSet { negated: true, items: if self.flags.dot_all { vec![] } else { vec![newline] } }
    }

    fn literal(&self, char: u32) -> Result<PatternNode, PatternFault> {
        let items = self.cased(vec![SetItem::Range(char, char)])?;
        Ok(PatternNode::Set(CharSet { negated: false, items }))
    }

    /// Adds the other case of letters if the flag `i` is set.
    fn cased(&self, items: Vec<SetItem>) -> Result<Vec<SetItem>, PatternFault> {
        if !self.flags.ignore_case {
            return Ok(items);
        }
        let mut all = items.clone();
        for item in items {
            let SetItem::Range(low, high) = item else { continue };
            if high > 0x7f && !self.flags.ascii {
                return Err(PatternFault::Unsupported("ignores the case of letters outside ASCII"));
            }
            for letter in b'a'..=b'z' {
                let (small, large) = (u32::from(letter), u32::from(letter.to_ascii_uppercase()));
                let has = |char| (low..=high).contains(&char);
                if !has(small) && !has(large) {
                    continue;
                }
                all.push(SetItem::Range(small, small));
                all.push(SetItem::Range(large, large));
                // CPython treats these other letters as equal.
                let others: &[u32] = match letter {
                    b'i' => &[0x130, 0x131],
                    b's' => &[0x17f],
                    b'k' => &[0x212a],
                    _ => &[],
                };
                if !self.flags.ascii {
                    all.extend(others.iter().map(|&char| SetItem::Range(char, char)));
                }
            }
        }
        Ok(all)
    }

    fn repeat(&mut self, char: char, items: &mut Vec<PatternNode>) -> Result<(), PatternFault> {
        let (min, max) = match char {
            '*' => (0, None),
            '+' => (1, None),
            '?' => (0, Some(1)),
            _ => match self.counts()? {
                Some(counts) => counts,
                None => {
                    items.push(self.literal('{'.into())?);
                    return Ok(());
                }
            },
        };
        let node = match items.pop() {
            None | Some(PatternNode::Anchor(_)) => {
                return Err(PatternFault::Bad("repeats nothing"));
            }
            Some(PatternNode::Repeat { .. }) => {
                return Err(PatternFault::Bad("repeats a repetition"));
            }
            Some(node) => node,
        };
        let kind = match self.peek() {
            Some('?') => Greediness::Lazy,
            Some('+') => Greediness::Possessive,
            _ => Greediness::Greedy,
        };
        self.at += usize::from(kind != Greediness::Greedy);
        // Releases of CPython 3.11 differ for other parts.
        if kind == Greediness::Possessive && !node.is_one_character() {
            return Err(PatternFault::Unsupported("repeats more than one character possessively"));
        }
        items.push(PatternNode::Repeat { node: Box::new(node), min, max, kind });
        Ok(())
    }

    /// Parses the counts behind `{`. `None`: the brace is literal.
    fn counts(&mut self) -> Result<Option<(u64, Option<u64>)>, PatternFault> {
        if self.peek() == Some('}') {
            return Ok(None);
        }
        let start = self.at;
        let low = self.digits(10, usize::MAX);
        let high = if self.eat(',') { self.digits(10, usize::MAX) } else { low.clone() };
        if !self.eat('}') {
            self.at = start;
            return Ok(None);
        }
        let number = |digits: &str| match digits.parse::<u64>() {
            _ if digits.is_empty() => Ok(None),
            Ok(number) if number < REPEAT_MAX => Ok(Some(number)),
            _ => Err(PatternFault::Raises("has a repetition count that is too large")),
        };
        let (min, max) = (number(&low)?.unwrap_or(0), number(&high)?);
        if max.is_some_and(|max| max < min) {
            return Err(PatternFault::Bad("has a repetition with its minimum above its maximum"));
        }
        Ok(Some((min, max)))
    }

    fn set(&mut self) -> Result<PatternNode, PatternFault> {
        let negated = self.eat('^');
        let mut items = Vec::new();
        loop {
            let char = self.next().ok_or(NO_BRACKET)?;
            if char == ']' && !items.is_empty() {
                break;
            }
            let item = self.set_item(char)?;
            if !self.eat('-') {
                items.push(item);
                continue;
            }
            let char = self.next().ok_or(NO_BRACKET)?;
            if char == ']' {
                items.push(item);
                items.push(SetItem::Range('-'.into(), '-'.into()));
                break;
            }
            match (item, self.set_item(char)?) {
                (SetItem::Range(low, _), SetItem::Range(high, _)) if low <= high => {
                    items.push(SetItem::Range(low, high));
                }
                _ => return Err(PatternFault::Bad("has a range of characters in reverse order")),
            }
        }
        Ok(PatternNode::Set(CharSet { negated, items: self.cased(items)? }))
    }

    fn set_item(&mut self, char: char) -> Result<SetItem, PatternFault> {
        let one = |char: u32| SetItem::Range(char, char);
        if char != '\\' {
            return Ok(one(char.into()));
        }
        let char = self.next().ok_or(BAD_ESCAPE)?;
        if let Some(item) = self.class(char) {
            return Ok(item);
        }
        if char == 'b' {
            return Ok(one(8));
        }
        if let Some(code) = self.code(char)? {
            return Ok(one(code));
        }
        if char.is_digit(8) {
            self.at -= 1;
            return octal(&self.digits(8, 3)).map(one);
        }
        if char.is_ascii_alphanumeric() { Err(BAD_ESCAPE) } else { Ok(one(char.into())) }
    }

    fn class(&self, char: char) -> Option<SetItem> {
        let class = match char.to_ascii_lowercase() {
            'd' => CharClass::Digit,
            's' => CharClass::Space,
            'w' => CharClass::Word,
            _ => return None,
        };
        Some(SetItem::Class { class, negated: char.is_ascii_uppercase(), ascii: self.flags.ascii })
    }

    /// Parses an escape that means the same inside and outside of sets.
    fn code(&mut self, char: char) -> Result<Option<u32>, PatternFault> {
        let digits = match char {
            'a' => return Ok(Some(7)),
            'f' => return Ok(Some(12)),
            'n' => return Ok(Some(10)),
            'r' => return Ok(Some(13)),
            't' => return Ok(Some(9)),
            'v' => return Ok(Some(11)),
            'N' => return Err(PatternFault::Unsupported("names a character by \\N")),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return Ok(None),
        };
        let hex = self.digits(16, digits);
        match u32::from_str_radix(&hex, 16) {
            Ok(code) if hex.len() == digits && code <= u32::from(char::MAX) => Ok(Some(code)),
            _ => Err(BAD_ESCAPE),
        }
    }

    fn escape(&mut self) -> Result<PatternNode, PatternFault> {
        let ascii = self.flags.ascii;
        let char = self.next().ok_or(BAD_ESCAPE)?;
        if let Some(item) = self.class(char) {
            return Ok(PatternNode::Set(CharSet { negated: false, items: vec![item] }));
        }
        match char {
            'A' => return Ok(PatternNode::Anchor(Anchor::Start)),
            'Z' => return Ok(PatternNode::Anchor(Anchor::End)),
            'b' => return Ok(PatternNode::Anchor(Anchor::Boundary { ascii })),
            'B' => return Ok(PatternNode::Anchor(Anchor::NoBoundary { ascii })),
            '0' => {
                self.at -= 1;
                let code = octal(&self.digits(8, 3))?;
                return self.literal(code);
            }
            '1'..='9' => return self.number(char),
            _ => {}
        }
        if let Some(code) = self.code(char)? {
            return self.literal(code);
        }
        if char.is_ascii_alphabetic() { Err(BAD_ESCAPE) } else { self.literal(char.into()) }
    }

    /// Parses the number of a group, or an octal code of three digits.
    fn number(&mut self, first: char) -> Result<PatternNode, PatternFault> {
        let mut digits = first.to_string();
        if let Some(second) = self.peek().filter(char::is_ascii_digit) {
            self.at += 1;
            digits.push(second);
            if let Some(third) = self.peek().filter(|char| char.is_digit(8))
                && first.is_digit(8)
                && second.is_digit(8)
            {
                self.at += 1;
                digits.push(third);
                let code = octal(&digits)?;
                return self.literal(code);
            }
        }
        let group = digits.parse().unwrap_or(usize::MAX);
        if group >= self.widths.len() {
            return Err(PatternFault::Bad("refers to an unknown group"));
        }
        self.reference(group)
    }

    fn reference(&mut self, group: usize) -> Result<PatternNode, PatternFault> {
        if self.widths.get(group).copied().flatten().is_none() {
            return Err(PatternFault::Bad("refers to a group inside that group"));
        }
        self.check_look_behind(group)?;
        if self.flags.ignore_case {
            return Err(PatternFault::Unsupported("refers to a group and ignores case"));
        }
        Ok(PatternNode::Reference(group))
    }

    /// A look-behind cannot refer to its own groups.
    fn check_look_behind(&self, group: usize) -> Result<(), PatternFault> {
        let Some(groups) = self.look_behind_groups else { return Ok(()) };
        let closed = self.widths.get(group).copied().flatten().is_some();
        if closed && group < groups {
            Ok(())
        } else {
            Err(PatternFault::Bad("refers to a group of the same look-behind"))
        }
    }

    /// Parses the part behind `(`. `None` for comments and flags.
    fn group(&mut self, first: bool) -> Result<Option<PatternNode>, PatternFault> {
        if !self.eat('?') {
            return self.capture(None).map(Some);
        }
        let outer = self.flags;
        match self.next().ok_or(UNKNOWN)? {
            'P' if self.eat('<') => {
                let name = self.until('>')?;
                check_name(&name)?;
                return self.capture(Some(name)).map(Some);
            }
            'P' if self.eat('=') => {
                let name = self.until(')')?;
                check_name(&name)?;
                let group = *self
                    .names
                    .get(&name)
                    .ok_or(PatternFault::Bad("refers to an unknown group name"))?;
                return self.reference(group).map(Some);
            }
            ':' => {}
            '#' => {
                const NO_END: PatternFault = PatternFault::Bad("has a comment without an end");
                while self.token()?.ok_or(NO_END)? != ')' {}
                return Ok(None);
            }
            '=' => return self.look(true, false).map(Some),
            '!' => return self.look(true, true).map(Some),
            '<' if self.eat('=') => return self.look(false, false).map(Some),
            '<' if self.eat('!') => return self.look(false, true).map(Some),
            '(' => return Err(PatternFault::Unsupported("has a condition on a group")),
            '>' => {
                let node = self.choice(false)?;
                self.close()?;
                return Ok(Some(PatternNode::Atomic(Box::new(node))));
            }
            char @ ('a' | 'i' | 'L' | 'm' | 's' | 'u' | 'x' | '-') => {
                if self.set_flags(char)? {
                    let early = "has global flags that are not at its start";
                    return if first { Ok(None) } else { Err(PatternFault::Bad(early)) };
                }
            }
            _ => return Err(UNKNOWN),
        }
        let node = self.choice(false)?;
        self.flags = outer;
        self.close()?;
        // The sequence prevents its use as a bare repetition or position.
        Ok(Some(PatternNode::Sequence(vec![node])))
    }

    fn capture(&mut self, name: Option<String>) -> Result<PatternNode, PatternFault> {
        let group = self.widths.len();
        self.widths.push(None);
        if let Some(name) = name
            && self.names.insert(name, group).is_some()
        {
            return Err(PatternFault::Bad("has two groups with one name"));
        }
        let node = self.choice(false)?;
        self.close()?;
        self.widths[group] = Some(self.width(&node));
        Ok(PatternNode::Capture(group, Box::new(node)))
    }

    fn look(&mut self, ahead: bool, negated: bool) -> Result<PatternNode, PatternFault> {
        let outermost = !ahead && self.look_behind_groups.is_none();
        if outermost {
            self.look_behind_groups = Some(self.widths.len());
        }
        let node = self.choice(false)?;
        if outermost {
            self.look_behind_groups = None;
        }
        self.close()?;
        let (least, most) = self.width(&node);
        // CPython rejects larger widths.
        if !ahead && (least != most || most >= REPEAT_MAX) {
            return Err(PatternFault::Bad("has a look-behind without a fixed width"));
        }
        let behind = (!ahead).then_some(least);
        Ok(PatternNode::Look { behind, negated, node: Box::new(node) })
    }

    /// Parses flags up to `)` or `:`. True: they are global.
    fn set_flags(&mut self, first: char) -> Result<bool, PatternFault> {
        const BAD: PatternFault = PatternFault::Bad("has unknown flags");
        let (mut next, mut on, mut kinds, mut added, mut removed) = (Some(first), true, 0, 0, 0);
        let mut flags = self.flags;
        let (mut added_set, mut removed_set) = (String::new(), String::new());
        loop {
            let char = next.ok_or(BAD)?;
            match char {
                'a' | 'u' if on => {
                    flags.ascii = char == 'a';
                    if !added_set.contains(char) {
                        kinds += 1;
                    }
                }
                'i' => flags.ignore_case = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_all = on,
                'x' => flags.verbose = on,
                '-' if on => {
                    on = false;
                    next = self.next();
                    continue;
                }
                ':' if on || removed > 0 => break,
                ')' if on => {
                    let unicode = added_set.contains('u');
                    if kinds > 1 {
                        return Err(BAD);
                    }
                    // CPython's error for this is not re.error.
                    if (unicode && self.flags.ascii) || (added_set.contains('a') && self.unicode) {
                        return Err(PatternFault::Raises(
                            "has the flags for ASCII and Unicode together",
                        ));
                    }
                    self.unicode |= unicode;
                    self.flags = flags;
                    return Ok(true);
                }
                _ => return Err(BAD),
            }
            let (count, set) =
                if on { (&mut added, &mut added_set) } else { (&mut removed, &mut removed_set) };
            *count += 1;
            set.push(char);
            next = self.next();
        }
        if kinds > 1 || removed_set.chars().any(|char| added_set.contains(char)) {
            return Err(BAD);
        }
        self.flags = flags;
        Ok(false)
    }

    fn width(&self, node: &PatternNode) -> (u64, u64) {
        match node {
            PatternNode::Set(_) => (1, 1),
            PatternNode::Anchor(_) | PatternNode::Look { .. } => (0, 0),
            PatternNode::Capture(_, node) | PatternNode::Atomic(node) => self.width(node),
            PatternNode::Sequence(nodes) => {
                nodes.iter().map(|node| self.width(node)).fold((0, 0), |sum, width| {
                    (sum.0.saturating_add(width.0), sum.1.saturating_add(width.1))
                })
            }
            PatternNode::Choice(nodes) => {
                let widths = nodes.iter().map(|node| self.width(node));
                widths.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
            }
            PatternNode::Repeat { node, min, max, .. } => {
                let (least, most) = self.width(node);
                let most = match max {
                    Some(max) => most.saturating_mul(*max),
                    None if most == 0 => 0,
                    None => REPEAT_MAX,
                };
                (least.saturating_mul(*min), most)
            }
            PatternNode::Reference(group) => {
                self.widths.get(*group).copied().flatten().unwrap_or((0, 0))
            }
        }
    }
}

const NO_BRACKET: PatternFault = PatternFault::Bad("has a [ without its ]");
const BAD_ESCAPE: PatternFault = PatternFault::Bad("has an invalid escape");
const UNKNOWN: PatternFault = PatternFault::Bad("has an unknown extension (?");

fn octal(digits: &str) -> Result<u32, PatternFault> {
    match u32::from_str_radix(digits, 8) {
        Ok(code) if code <= 0o377 => Ok(code),
        _ => Err(BAD_ESCAPE),
    }
}

fn check_name(name: &str) -> Result<(), PatternFault> {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|char| char.is_alphabetic() || char == '_');
    if starts && chars.all(|char| char.is_alphanumeric() || char == '_') {
        Ok(())
    } else {
        Err(PatternFault::Bad("has an invalid group name"))
    }
}
