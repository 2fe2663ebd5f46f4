//! The tree of an expression as a pattern for the engine, in which nothing is left to what the engine
//! would read differently: every character is written by its number, every class by what is in it.
//!
//! Arguments are bytes and the engine matches text. A byte that is part of no character is a
//! surrogate to Python, which text in Rust cannot hold; it goes by a private character, 0x100000
//! above, and so do the surrogates of an expression.

use super::parse::{At, CharClass, Greed, Item, Node, Set};
use crate::judge::Mode;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Surrogates that stand for bytes 0x80 to 0xff.
const BYTES: (u32, u32) = (0xdc80, 0xdcff);
/// From those surrogates to what goes for them.
const SHIFT: u32 = 0x10_0000;
const SURROGATES: (u32, u32) = (0xd800, 0xdfff);

/// An argument as the engine sees it; `None` where it holds one of the private characters itself.
pub(super) fn subject(arg: &OsStr) -> Option<Cow<'_, str>> {
    let is_private = |char| (BYTES.0 + SHIFT..=BYTES.1 + SHIFT).contains(&u32::from(char));
    let mut text = String::new();
    for chunk in arg.as_bytes().utf8_chunks() {
        if chunk.valid().chars().any(is_private) {
            return None;
        }
        if chunk.invalid().is_empty() && text.is_empty() {
            return Some(Cow::Borrowed(chunk.valid()));
        }
        text.push_str(chunk.valid());
        let bytes = chunk.invalid().iter();
        text.extend(bytes.filter_map(|&byte| char::from_u32(SHIFT + 0xdc00 + u32::from(byte))));
    }
    Some(Cow::Owned(text))
}

/// What a match may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Characters of the expression, those of what is repeated as often as it is.
    pub(super) size: usize,
    /// What is no automaton's, counted likewise: look-around, references, and what is not given up again.
    pub(super) looks: usize,
}

/// The whole pattern. Compat matches from the start and wherever the expression ends; strict the
/// whole argument, and `$` is the end and nothing else, except where that would let more through.
pub(super) fn emit(node: &Node, mode: Mode) -> (String, Cost) {
    let (cost, times) = (Cost::default(), 1);
    let out = String::from(r"\A(?:");
    let mut emitter = Emitter { out, mode, cost, times, is_plain: true };
    emitter.node(node, true);
    emitter.out.push(')');
    if mode == Mode::Strict {
        emitter.out.push_str(r"\z");
    }
    (emitter.out, emitter.cost)
}

struct Emitter {
    out: String,
    mode: Mode,
    cost: Cost,
    /// How often what is emitted now is repeated at the least.
    times: usize,
    /// Whether what is emitted matches where the whole does: not so where something is negated, or not given up
    /// again, for there a narrower meaning may let more through.
    is_plain: bool,
}

impl Emitter {
    /// `last`: nothing of the expression follows.
    fn node(&mut self, node: &Node, last: bool) {
        match node {
            Node::Set(set) => self.set(set),
            Node::At(at) => self.at(*at, last && self.mode == Mode::Compat),
            Node::Capture(node) => self.wrapped("(", node),
            Node::Atomic(node) => {
                self.looks(1);
                self.within(true, |emitter| emitter.wrapped("(?>", node));
            }
            Node::Sequence(nodes) => {
                self.out.push_str("(?:");
                for (position, node) in (1..).zip(nodes) {
                    self.node(node, last && position == nodes.len());
                }
                self.out.push(')');
            }
            Node::Choice(nodes) => {
                self.out.push_str("(?:");
                for (position, node) in (0..).zip(nodes) {
                    if position > 0 {
                        self.out.push('|');
                    }
                    self.node(node, last);
                }
                self.out.push(')');
            }
            Node::Repeat { node, min, max, kind } => {
                self.out.push_str(if *kind == Greed::Possessive { "(?>" } else { "(?:" });
                self.looks(usize::from(*kind == Greed::Possessive));
                self.out.push_str("(?:");
                self.within(*kind == Greed::Possessive, |emitter| {
                    emitter.repeated(node, max.unwrap_or(*min));
                });
                // The engine repeats no bare look-around. This branch is never taken.
                self.out.push_str(if takes_nothing(node) { "|[a&&b])" } else { ")" });
                let _ = match (min, max) {
                    (0, None) => write!(self.out, "*"),
                    (1, None) => write!(self.out, "+"),
                    (0, Some(1)) => write!(self.out, "?"),
                    (min, None) => write!(self.out, "{{{min},}}"),
                    (min, Some(max)) => write!(self.out, "{{{min},{max}}}"),
                };
                self.out.push_str(if *kind == Greed::Lazy { "?)" } else { ")" });
            }
            Node::Look { ahead, negated, node } => {
                let start = match (ahead, negated) {
                    (true, false) => "(?=",
                    (true, true) => "(?!",
                    (false, false) => "(?<=",
                    (false, true) => "(?<!",
                };
                self.looks(1);
                self.within(*negated, |emitter| emitter.wrapped(start, node));
            }
            Node::Reference(group) => {
                self.looks(1);
                let _ = write!(self.out, r"(?:\{group})");
            }
        }
    }

    fn wrapped(&mut self, start: &str, node: &Node) {
        self.out.push_str(start);
        self.node(node, false);
        self.out.push(')');
    }

    /// Emits what is within a look-around that is negated, or the like.
    fn within(&mut self, is_odd: bool, emit: impl FnOnce(&mut Self)) {
        let is_plain = self.is_plain;
        self.is_plain = is_plain && !is_odd;
        emit(self);
        self.is_plain = is_plain;
    }

    fn looks(&mut self, count: usize) {
        self.cost.looks = self.cost.looks.saturating_add(count.saturating_mul(self.times));
    }

    fn repeated(&mut self, node: &Node, count: u64) {
        let times = self.times;
        let count = usize::try_from(count).unwrap_or(usize::MAX).max(1);
        self.times = times.saturating_mul(count);
        self.node(node, false);
        self.times = times;
    }

    fn at(&mut self, at: At, last: bool) {
        let word = |ascii| class_items(CharClass::Word, false, ascii);
        let text: String = match at {
            At::Start => r"\A".into(),
            At::End => r"\z".into(),
            At::EndOrNewline if self.mode == Mode::Strict && self.is_plain => r"\z".into(),
            // Where nothing follows, a look-ahead is not needed, and without one an automaton can do it.
            At::EndOrNewline if last => r"(?:\x{A}?\z)".into(),
            At::EndOrNewline => r"(?=\x{A}?\z)".into(),
            At::StartOfLine => r"(?:\A|(?<=\x{A}))".into(),
            At::EndOfLine => r"(?=\x{A}|\z)".into(),
            At::Boundary { ascii } => {
                let word = word(ascii);
                format!("(?:(?<={word})(?!{word})|(?<!{word})(?={word}))")
            }
            // CPython up to 3.13 sees none in nothing.
            At::NoBoundary { ascii } => {
                let word = word(ascii);
                format!(r"(?:(?<={word})(?={word})|(?<!{word})(?!{word})(?!\A\z))")
            }
        };
        self.looks(
            text.matches("(?=").count() + text.matches("(?!").count() + text.matches("(?<").count(),
        );
        self.out.push_str(&text);
    }

    fn set(&mut self, set: &Set) {
        self.cost.size = self.cost.size.saturating_add(self.times);
        if let (false, [Item::Range(low, high)]) = (set.negated, &*set.items)
            && low == high
            && char::from_u32(*low).is_some_and(|char| char.is_ascii_alphanumeric())
        {
            self.out.extend(char::from_u32(*low));
            return;
        }
        let mut items = String::new();
        for item in &set.items {
            match item {
                Item::Range(low, high) => ranges(&mut items, *low, *high),
                Item::Class { class, negated, ascii } => {
                    let _ = write!(items, "{}", class_items(*class, *negated, *ascii));
                }
            }
        }
        self.out.push_str(match (set.negated, items.is_empty()) {
            (true, true) => r"[\x{0}-\x{10FFFF}]",
            // Of lone surrogates: nothing has them.
            (false, true) => r"[a&&b]",
            (true, false) => "[^",
            (false, false) => "[",
        });
        if !items.is_empty() {
            self.out.push_str(&items);
            self.out.push(']');
        }
    }
}

/// Whether an expression is one place or look-around, or empty.
fn takes_nothing(node: &Node) -> bool {
    match node {
        Node::At(_) | Node::Look { .. } => true,
        Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().all(takes_nothing),
        _ => false,
    }
}

/// A range without surrogates and without what goes for them, and that if they are in it.
fn ranges(out: &mut String, low: u32, high: u32) {
    let shifted = (BYTES.0 + SHIFT, BYTES.1 + SHIFT);
    let parts = [
        (0, SURROGATES.0 - 1),
        (SURROGATES.1 + 1, shifted.0 - 1),
        (shifted.1 + 1, u32::from(char::MAX)),
    ];
    let mut put = |low: u32, high: u32| {
        if low <= high {
            let _ = write!(out, r"\x{{{low:X}}}-\x{{{high:X}}}");
        }
    };
    for part in parts {
        put(low.max(part.0), high.min(part.1));
    }
    let (low, high) = (low.max(BYTES.0), high.min(BYTES.1));
    if low <= high {
        put(low + SHIFT, high + SHIFT);
    }
}

/// What is in a class, for use within brackets.
fn class_items(class: CharClass, negated: bool, ascii: bool) -> String {
    let items = match (class, ascii) {
        (CharClass::Digit, true) => "0-9",
        (CharClass::Digit, false) => r"\p{Nd}",
        (CharClass::Space, true) => r"\x{9}-\x{D}\x{20}",
        // `str.isspace`, as [`is_space`](crate::python::is_space) has it.
        (CharClass::Space, false) => {
            r"\x{9}-\x{D}\x{1C}-\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
        }
        (CharClass::Word, true) => "0-9A-Z_a-z",
        // `str.isalnum`: marks are no letters, unlike in Unicode's own definition.
        (CharClass::Word, false) => r"\p{L}\p{N}_",
    };
    if negated { format!("[^{items}]") } else { format!("[{items}]") }
}
