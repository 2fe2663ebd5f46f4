// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiler from the tree of an expression to a program for `matcher`. Groups without a reference leave no trace.
//! In strict mode the compiler decides the position of `$`.

use super::chars::CompiledCharSet;
use super::parse::{Anchor, CharSet, Greediness, PatternNode};
use crate::mode::Mode;

/// The value of a register before it is set, and the maximum of an unbounded repetition.
pub(super) const NONE: u32 = u32::MAX;

/// A program. Positions in it are indices of `steps`.
#[derive(Debug, Default)]
pub(super) struct MatchProgram {
    pub(super) steps: Vec<Instruction>,
    pub(super) sets: Vec<CompiledCharSet>,
    /// Characters of all [`Instruction::Text`].
    pub(super) text: Vec<u32>,
    pub(super) registers: u32,
    /// Number of marks in the first registers: start and end of each group with a reference.
    pub(super) marks: u32,
}

/// A test of one character.
#[derive(Clone, Copy, Debug)]
pub(super) enum SingleChar {
    Char(u32),
    Set(u32),
}

/// The part behind a repetition. The matcher skips ends at which it cannot match.
#[derive(Clone, Copy, Debug)]
pub(super) enum FollowedBy {
    Unknown,
    Char(u32),
    End,
    EndOrNewline,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    SingleChar(SingleChar),
    Text {
        from: u32,
        length: u32,
    },
    Anchor(Anchor),
    /// A repetition of one character.
    Run {
        one: SingleChar,
        min: u32,
        max: u32,
        greed: Greediness,
        next: FollowedBy,
    },
    /// Continues with the next step, and after a mismatch with another.
    Branch {
        other: u32,
    },
    Jump {
        to: u32,
    },
    /// Stores the position in a register.
    Mark {
        register: u32,
    },
    /// Compares with the text between two marks.
    Reference {
        marks: u32,
    },
    /// Begins a repetition. Its registers count turns and hold the position of the last optional one.
    Enter {
        register: u32,
    },
    /// Decides about the next turn of a repetition. The body follows.
    Until {
        register: u32,
        min: u32,
        max: u32,
        exit: u32,
    },
    /// Decides about the next turn of a lazy repetition. [`Instruction::More`] and the body follow.
    LazyUntil {
        register: u32,
        min: u32,
        max: u32,
        exit: u32,
    },
    More {
        register: u32,
    },
    /// Stores the height of the stack in a register.
    Atomic {
        register: u32,
    },
    /// Drops all choices above the stored height.
    Commit {
        register: u32,
    },
    /// Begins a look-around. Its registers hold the height of the stack and the position.
    Look {
        register: u32,
        behind: u32,
        negated: bool,
        exit: u32,
    },
    LookEnd {
        register: u32,
        negated: bool,
    },
    Match,
}

/// Compiles an expression. Compat mode matches a prefix from the start, and strict mode the whole argument. In strict
/// mode `$` means only the end, except where that would allow more.
pub(super) fn compile(node: &PatternNode, mode: Mode) -> MatchProgram {
    let mut groups = Vec::new();
    find_references(node, &mut groups);
    groups.sort_unstable();
    groups.dedup();
    let marks = to_u32(groups.len() * 2);
    let program = MatchProgram { marks, registers: marks, ..MatchProgram::default() };
    let mut compiler = PatternCompiler { program, mode, groups, is_plain: true };
    compiler.node(node);
    if mode == Mode::Strict {
        compiler.push(Instruction::Anchor(Anchor::End));
    }
    compiler.push(Instruction::Match);
    join_characters(&mut compiler.program);
    look_ahead(&mut compiler.program);
    compiler.program
}

struct PatternCompiler {
    program: MatchProgram,
    mode: Mode,
    /// Numbers of groups with a reference.
    groups: Vec<usize>,
    /// True if a narrower match of the part narrows the whole match. In a negated look-around or an atomic part it
    /// could widen it.
    is_plain: bool,
}

impl PatternCompiler {
    fn node(&mut self, node: &PatternNode) {
        match node {
            PatternNode::Set(set) => {
                let one = self.single_char(set);
                self.push(Instruction::SingleChar(one));
            }
            PatternNode::Anchor(Anchor::EndOrNewline)
                if self.mode == Mode::Strict && self.is_plain =>
            {
                self.push(Instruction::Anchor(Anchor::End));
            }
            PatternNode::Anchor(at) => self.push(Instruction::Anchor(*at)),
            PatternNode::Capture(group, node) => self.capture(*group, node),
            PatternNode::Sequence(nodes) => nodes.iter().for_each(|node| self.node(node)),
            PatternNode::Choice(nodes) => self.choice(nodes),
            PatternNode::Repeat { node, min, max, kind } => {
                let max = max.map_or(NONE, count);
                self.repeat(node, count(*min), max, *kind);
            }
            PatternNode::Look { behind, negated, node } => self.look(*behind, *negated, node),
            PatternNode::Atomic(node) => self.atomic(|compiler| compiler.node(node)),
            PatternNode::Reference(group) => match self.marks(*group) {
                Some(marks) => self.push(Instruction::Reference { marks }),
                // The group was compiled before.
                None => self.push(Instruction::SingleChar(SingleChar::Char(NONE))),
            },
        }
    }

    fn capture(&mut self, group: usize, node: &PatternNode) {
        let Some(marks) = self.marks(group) else { return self.node(node) };
        self.push(Instruction::Mark { register: marks });
        self.node(node);
        self.push(Instruction::Mark { register: marks + 1 });
    }

    fn choice(&mut self, nodes: &[PatternNode]) {
        let mut jumps = Vec::new();
        let Some((last, nodes)) = nodes.split_last() else { return };
        for node in nodes {
            let branch = self.here();
            self.push(Instruction::Branch { other: 0 });
            self.node(node);
            jumps.push(self.here());
            self.push(Instruction::Jump { to: 0 });
            self.set(branch, Instruction::Branch { other: self.here() });
        }
        self.node(last);
        for jump in jumps {
            self.set(jump, Instruction::Jump { to: self.here() });
        }
    }

    fn repeat(&mut self, node: &PatternNode, min: u32, max: u32, greed: Greediness) {
        if let Some(set) = self.single(node) {
            let one = self.single_char(set);
            return self.push(Instruction::Run { one, min, max, greed, next: FollowedBy::Unknown });
        }
        // The parser accepts only single characters as possessive.
        if greed == Greediness::Possessive {
            return self.atomic(|compiler| compiler.repeat(node, min, max, Greediness::Greedy));
        }
        let register = self.registers(2);
        self.push(Instruction::Enter { register });
        let until = self.here();
        self.push(Instruction::Match);
        if greed == Greediness::Lazy {
            self.push(Instruction::More { register });
        }
        self.node(node);
        self.push(Instruction::Jump { to: until });
        let exit = self.here();
        let step = match greed {
            Greediness::Lazy => Instruction::LazyUntil { register, min, max, exit },
            _ => Instruction::Until { register, min, max, exit },
        };
        self.set(until, step);
    }

    fn atomic(&mut self, compile: impl FnOnce(&mut Self)) {
        let register = self.registers(1);
        self.push(Instruction::Atomic { register });
        self.within(true, compile);
        self.push(Instruction::Commit { register });
    }

    fn look(&mut self, behind: Option<u64>, negated: bool, node: &PatternNode) {
        let register = self.registers(2);
        let begin = self.here();
        self.push(Instruction::Match);
        // The content of a group depends on the first way to match.
        let is_read = |group: usize| self.marks(group).is_some();
        let is_odd = negated || captures(node, &is_read);
        self.within(is_odd, |compiler| compiler.node(node));
        self.push(Instruction::LookEnd { register, negated });
        let behind = behind.map_or(0, count);
        self.set(begin, Instruction::Look { register, behind, negated, exit: self.here() });
    }

    /// Returns the set of an expression that is a single character in any groups.
    fn single<'n>(&self, node: &'n PatternNode) -> Option<&'n CharSet> {
        match node {
            PatternNode::Set(set) => Some(set),
            PatternNode::Capture(group, node) if self.marks(*group).is_none() => self.single(node),
            PatternNode::Sequence(nodes) => match &nodes[..] {
                [node] => self.single(node),
                _ => None,
            },
            _ => None,
        }
    }

    fn single_char(&mut self, set: &CharSet) -> SingleChar {
        use super::parse::SetItem::Range;
        match &set.items[..] {
            [Range(low, high)] if low == high && !set.negated => SingleChar::Char(*low),
            _ => {
                self.program.sets.push(CompiledCharSet::new(set));
                SingleChar::Set(to_u32(self.program.sets.len() - 1))
            }
        }
    }

    fn marks(&self, group: usize) -> Option<u32> {
        self.groups.binary_search(&group).ok().map(|index| to_u32(index * 2))
    }

    fn within(&mut self, is_odd: bool, compile: impl FnOnce(&mut Self)) {
        let is_plain = self.is_plain;
        self.is_plain = is_plain && !is_odd;
        compile(self);
        self.is_plain = is_plain;
    }

    fn registers(&mut self, count: u32) -> u32 {
        self.program.registers += count;
        self.program.registers - count
    }

    fn here(&self) -> u32 {
        to_u32(self.program.steps.len())
    }

    fn push(&mut self, step: Instruction) {
        self.program.steps.push(step);
    }

    fn set(&mut self, at: u32, step: Instruction) {
        self.program.steps[at as usize] = step;
    }
}

fn find_references(node: &PatternNode, groups: &mut Vec<usize>) {
    match node {
        PatternNode::Reference(group) => groups.push(*group),
        PatternNode::Set(_) | PatternNode::Anchor(_) => {}
        PatternNode::Capture(_, node)
        | PatternNode::Atomic(node)
        | PatternNode::Repeat { node, .. }
        | PatternNode::Look { node, .. } => find_references(node, groups),
        PatternNode::Sequence(nodes) | PatternNode::Choice(nodes) => {
            nodes.iter().for_each(|node| find_references(node, groups));
        }
    }
}

/// Returns true if an expression contains one of some groups.
fn captures(node: &PatternNode, is_one: &dyn Fn(usize) -> bool) -> bool {
    match node {
        PatternNode::Capture(group, node) => is_one(*group) || captures(node, is_one),
        PatternNode::Reference(_) | PatternNode::Set(_) | PatternNode::Anchor(_) => false,
        PatternNode::Atomic(node)
        | PatternNode::Repeat { node, .. }
        | PatternNode::Look { node, .. } => captures(node, is_one),
        PatternNode::Sequence(nodes) | PatternNode::Choice(nodes) => {
            nodes.iter().any(|node| captures(node, is_one))
        }
    }
}

/// Joins adjacent characters to one comparison. Steps keep their positions for jumps. The first step compares all, and
/// the matcher skips the rest.
fn join_characters(program: &mut MatchProgram) {
    let mut targets: Vec<u32> = program.steps.iter().filter_map(target).collect();
    targets.sort_unstable();
    let mut at = 0;
    while at < program.steps.len() {
        let rest = &program.steps[at..];
        let row = rest.iter().zip(at..).take_while(|(step, place)| {
            matches!(step, Instruction::SingleChar(SingleChar::Char(_)))
                && (*place == at || targets.binary_search(&to_u32(*place)).is_err())
        });
        let chars = row.map(|(step, _)| {
            if let Instruction::SingleChar(SingleChar::Char(char)) = step { *char } else { NONE }
        });
        let from = program.text.len();
        program.text.extend(chars);
        let length = program.text.len() - from;
        if length > 1 {
            program.steps[at] = Instruction::Text { from: to_u32(from), length: to_u32(length) };
        } else {
            program.text.truncate(from);
        }
        at += length.max(1);
    }
}

/// Returns the target of a jump.
fn target(step: &Instruction) -> Option<u32> {
    match *step {
        Instruction::Branch { other: to }
        | Instruction::Jump { to }
        | Instruction::Until { exit: to, .. }
        | Instruction::LazyUntil { exit: to, .. }
        | Instruction::Look { exit: to, .. } => Some(to),
        _ => None,
    }
}

/// Stores the part behind each repetition of a character.
fn look_ahead(program: &mut MatchProgram) {
    for at in 0..program.steps.len() {
        let mut behind = at + 1;
        // A backward jump is the end of a repetition's body.
        while let Some(Instruction::Jump { to }) = program.steps.get(behind)
            && *to as usize > behind
        {
            behind = *to as usize;
        }
        let found = match program.steps.get(behind) {
            Some(Instruction::SingleChar(SingleChar::Char(char))) => FollowedBy::Char(*char),
            Some(Instruction::Text { from, .. }) => FollowedBy::Char(program.text[*from as usize]),
            Some(Instruction::Anchor(Anchor::End)) => FollowedBy::End,
            Some(Instruction::Anchor(Anchor::EndOrNewline)) => FollowedBy::EndOrNewline,
            _ => FollowedBy::Unknown,
        };
        if let Instruction::Run { next, .. } = &mut program.steps[at] {
            *next = found;
        }
    }
}

/// Limits a count to one that no repetition reaches.
fn count(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(NONE).min(NONE - 1)
}

/// A filter file has at most 1 MiB, so an index is far below the limit.
fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}
