//! The tree of an expression as a program for the matcher. Captures that no reference reads leave no trace in it,
//! and in strict mode the place of `$` is decided here.

use super::chars::Chars;
use super::parse::{At, Greed, Node, Set};
use crate::judge::Mode;

/// The value of a register before it is set, and the maximum of an unbounded repetition.
pub(super) const NONE: u32 = u32::MAX;

/// What the matcher follows. Positions in it are indices of `steps`.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) sets: Vec<Chars>,
    /// The characters of all [`Step::Text`].
    pub(super) text: Vec<u32>,
    pub(super) registers: u32,
    /// The first registers are marks: the start and end of each group that a reference reads.
    pub(super) marks: u32,
}

/// One character.
#[derive(Clone, Copy, Debug)]
pub(super) enum One {
    Char(u32),
    Set(u32),
}

/// What follows a repetition: where it cannot match, the repetition is not given up for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Unknown,
    Char(u32),
    End,
    EndOrNewline,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    One(One),
    Text {
        from: u32,
        length: u32,
    },
    At(At),
    /// A repetition of one character.
    Run {
        one: One,
        min: u32,
        max: u32,
        greed: Greed,
        next: Next,
    },
    /// Goes on with the next step, and failing that with another.
    Branch {
        other: u32,
    },
    Jump {
        to: u32,
    },
    /// The position into a register.
    Mark {
        register: u32,
    },
    /// The text between two marks.
    Reference {
        marks: u32,
    },
    /// Begins a repetition. Its registers: how often its body began, and where the last optional turn did.
    Enter {
        register: u32,
    },
    /// Decides on the next turn of a repetition. The body follows.
    Until {
        register: u32,
        min: u32,
        max: u32,
        exit: u32,
    },
    /// The same for a lazy one. [`Step::More`] follows, then the body.
    LazyUntil {
        register: u32,
        min: u32,
        max: u32,
        exit: u32,
    },
    More {
        register: u32,
    },
    /// Notes the height of the stack in a register.
    Atomic {
        register: u32,
    },
    /// Forgets all choices above the noted height.
    Commit {
        register: u32,
    },
    /// Begins a look-around. Its registers: the height of the stack, and the position.
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

/// Compat matches from the start and wherever the expression ends; strict the whole argument, and `$` is the end
/// and nothing else, except where that would let more through.
pub(super) fn compile(node: &Node, mode: Mode) -> Program {
    let mut groups = Vec::new();
    find_references(node, &mut groups);
    groups.sort_unstable();
    groups.dedup();
    let marks = to_u32(groups.len() * 2);
    let program = Program { marks, registers: marks, ..Program::default() };
    let mut compiler = Compiler { program, mode, groups, is_plain: true };
    compiler.node(node);
    if mode == Mode::Strict {
        compiler.push(Step::At(At::End));
    }
    compiler.push(Step::Match);
    join_characters(&mut compiler.program);
    look_ahead(&mut compiler.program);
    compiler.program
}

struct Compiler {
    program: Program,
    mode: Mode,
    /// The groups that a reference reads, by number.
    groups: Vec<usize>,
    /// Whether what is compiled matches where the whole does. That is not so in a negated look-around and in what
    /// is not given up again, for there a narrower meaning may let more through.
    is_plain: bool,
}

impl Compiler {
    fn node(&mut self, node: &Node) {
        match node {
            Node::Set(set) => {
                let one = self.one(set);
                self.push(Step::One(one));
            }
            Node::At(At::EndOrNewline) if self.mode == Mode::Strict && self.is_plain => {
                self.push(Step::At(At::End));
            }
            Node::At(at) => self.push(Step::At(*at)),
            Node::Capture(group, node) => self.capture(*group, node),
            Node::Sequence(nodes) => nodes.iter().for_each(|node| self.node(node)),
            Node::Choice(nodes) => self.choice(nodes),
            Node::Repeat { node, min, max, kind } => {
                let max = max.map_or(NONE, count);
                self.repeat(node, count(*min), max, *kind);
            }
            Node::Look { behind, negated, node } => self.look(*behind, *negated, node),
            Node::Atomic(node) => self.atomic(|compiler| compiler.node(node)),
            Node::Reference(group) => match self.marks(*group) {
                Some(marks) => self.push(Step::Reference { marks }),
                // Its group was found before.
                None => self.push(Step::One(One::Char(NONE))),
            },
        }
    }

    fn capture(&mut self, group: usize, node: &Node) {
        let Some(marks) = self.marks(group) else { return self.node(node) };
        self.push(Step::Mark { register: marks });
        self.node(node);
        self.push(Step::Mark { register: marks + 1 });
    }

    fn choice(&mut self, nodes: &[Node]) {
        let mut jumps = Vec::new();
        let Some((last, nodes)) = nodes.split_last() else { return };
        for node in nodes {
            let branch = self.here();
            self.push(Step::Branch { other: 0 });
            self.node(node);
            jumps.push(self.here());
            self.push(Step::Jump { to: 0 });
            self.set(branch, Step::Branch { other: self.here() });
        }
        self.node(last);
        for jump in jumps {
            self.set(jump, Step::Jump { to: self.here() });
        }
    }

    fn repeat(&mut self, node: &Node, min: u32, max: u32, greed: Greed) {
        if let Some(set) = self.single(node) {
            let one = self.one(set);
            return self.push(Step::Run { one, min, max, greed, next: Next::Unknown });
        }
        // The parser lets a single character alone be possessive.
        if greed == Greed::Possessive {
            return self.atomic(|compiler| compiler.repeat(node, min, max, Greed::Greedy));
        }
        let register = self.registers(2);
        self.push(Step::Enter { register });
        let until = self.here();
        self.push(Step::Match);
        if greed == Greed::Lazy {
            self.push(Step::More { register });
        }
        self.node(node);
        self.push(Step::Jump { to: until });
        let exit = self.here();
        let step = match greed {
            Greed::Lazy => Step::LazyUntil { register, min, max, exit },
            _ => Step::Until { register, min, max, exit },
        };
        self.set(until, step);
    }

    fn atomic(&mut self, compile: impl FnOnce(&mut Self)) {
        let register = self.registers(1);
        self.push(Step::Atomic { register });
        self.within(true, compile);
        self.push(Step::Commit { register });
    }

    fn look(&mut self, behind: Option<u64>, negated: bool, node: &Node) {
        let register = self.registers(2);
        let begin = self.here();
        self.push(Step::Match);
        // What a group holds depends on which way of matching comes first.
        let is_read = |group: usize| self.marks(group).is_some();
        let is_odd = negated || captures(node, &is_read);
        self.within(is_odd, |compiler| compiler.node(node));
        self.push(Step::LookEnd { register, negated });
        let behind = behind.map_or(0, count);
        self.set(begin, Step::Look { register, behind, negated, exit: self.here() });
    }

    /// The set, if an expression is a single character in whatever groups.
    fn single<'n>(&self, node: &'n Node) -> Option<&'n Set> {
        match node {
            Node::Set(set) => Some(set),
            Node::Capture(group, node) if self.marks(*group).is_none() => self.single(node),
            Node::Sequence(nodes) => match &nodes[..] {
                [node] => self.single(node),
                _ => None,
            },
            _ => None,
        }
    }

    fn one(&mut self, set: &Set) -> One {
        use super::parse::Item::Range;
        match &set.items[..] {
            [Range(low, high)] if low == high && !set.negated => One::Char(*low),
            _ => {
                self.program.sets.push(Chars::new(set));
                One::Set(to_u32(self.program.sets.len() - 1))
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

    fn push(&mut self, step: Step) {
        self.program.steps.push(step);
    }

    fn set(&mut self, at: u32, step: Step) {
        self.program.steps[at as usize] = step;
    }
}

fn find_references(node: &Node, groups: &mut Vec<usize>) {
    match node {
        Node::Reference(group) => groups.push(*group),
        Node::Set(_) | Node::At(_) => {}
        Node::Capture(_, node)
        | Node::Atomic(node)
        | Node::Repeat { node, .. }
        | Node::Look { node, .. } => find_references(node, groups),
        Node::Sequence(nodes) | Node::Choice(nodes) => {
            nodes.iter().for_each(|node| find_references(node, groups));
        }
    }
}

/// Whether an expression has one of some groups.
fn captures(node: &Node, is_one: &dyn Fn(usize) -> bool) -> bool {
    match node {
        Node::Capture(group, node) => is_one(*group) || captures(node, is_one),
        Node::Reference(_) | Node::Set(_) | Node::At(_) => false,
        Node::Atomic(node) | Node::Repeat { node, .. } | Node::Look { node, .. } => {
            captures(node, is_one)
        }
        Node::Sequence(nodes) | Node::Choice(nodes) => {
            nodes.iter().any(|node| captures(node, is_one))
        }
    }
}

/// Joins neighbours to one comparison. Steps keep their places, since others lead to them: the first of a row
/// compares all and the matcher steps over the rest.
fn join_characters(program: &mut Program) {
    let mut targets: Vec<u32> = program.steps.iter().filter_map(target).collect();
    targets.sort_unstable();
    let mut at = 0;
    while at < program.steps.len() {
        let rest = &program.steps[at..];
        let row = rest.iter().zip(at..).take_while(|(step, place)| {
            matches!(step, Step::One(One::Char(_)))
                && (*place == at || targets.binary_search(&to_u32(*place)).is_err())
        });
        let chars =
            row.map(|(step, _)| if let Step::One(One::Char(char)) = step { *char } else { NONE });
        let from = program.text.len();
        program.text.extend(chars);
        let length = program.text.len() - from;
        if length > 1 {
            program.steps[at] = Step::Text { from: to_u32(from), length: to_u32(length) };
        } else {
            program.text.truncate(from);
        }
        at += length.max(1);
    }
}

/// The step that another leads to besides the one behind it.
fn target(step: &Step) -> Option<u32> {
    match *step {
        Step::Branch { other: to }
        | Step::Jump { to }
        | Step::Until { exit: to, .. }
        | Step::LazyUntil { exit: to, .. }
        | Step::Look { exit: to, .. } => Some(to),
        _ => None,
    }
}

/// Tells each repetition of a character what follows it.
fn look_ahead(program: &mut Program) {
    for at in 0..program.steps.len() {
        let mut behind = at + 1;
        // A jump back is the end of a repetition's body.
        while let Some(Step::Jump { to }) = program.steps.get(behind)
            && *to as usize > behind
        {
            behind = *to as usize;
        }
        let found = match program.steps.get(behind) {
            Some(Step::One(One::Char(char))) => Next::Char(*char),
            Some(Step::Text { from, .. }) => Next::Char(program.text[*from as usize]),
            Some(Step::At(At::End)) => Next::End,
            Some(Step::At(At::EndOrNewline)) => Next::EndOrNewline,
            _ => Next::Unknown,
        };
        if let Step::Run { next, .. } = &mut program.steps[at] {
            *next = found;
        }
    }
}

/// A count that a repetition cannot reach stands for larger ones.
fn count(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(NONE).min(NONE - 1)
}

/// A filter file has at most 1 MiB, so no index of a program comes near the bound.
fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}
