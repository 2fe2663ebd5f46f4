// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matcher: it follows a program over a word, with its own stack and a count of steps. It matches as CPython's
//! engine. It enters look-around, possessive and atomic parts only once. No turn of a repetition begins at the position
//! of the optional turn before it. `program` compiles an expression.

use super::chars::is_in;
use super::parse::{Anchor, CharClass, Greediness};
use super::program::{FollowedBy, Instruction, MatchProgram, NONE, SingleChar};
use super::{MatchBudget, MatchLimit, STACK_MAX};

const NEWLINE: u32 = 10;

/// Characters of a word.
pub(super) trait MatchText {
    fn length(&self) -> u32;
    /// Returns a character. `None`: the end.
    fn at(&self, at: u32) -> Option<u32>;
}

/// A word of ASCII.
impl MatchText for [u8] {
    fn length(&self) -> u32 {
        // Longer words are refused before.
        u32::try_from(self.len()).unwrap_or(NONE)
    }

    #[inline]
    fn at(&self, at: u32) -> Option<u32> {
        self.get(at as usize).map(|&byte| byte.into())
    }
}

/// A word of any characters.
impl MatchText for [u32] {
    fn length(&self) -> u32 {
        u32::try_from(self.len()).unwrap_or(NONE)
    }

    #[inline]
    fn at(&self, at: u32) -> Option<u32> {
        self.get(at as usize).copied()
    }
}

/// A choice to which the matcher returns after a mismatch.
#[derive(Clone, Copy)]
enum BacktrackFrame {
    /// Continues at a step.
    Retry { step: u32, at: u32 },
    /// Ends a repetition and reverts its last turn.
    Leave { until: u32, at: u32, last: u32 },
    /// Releases one character of a run, down to the minimum.
    Fewer { run: u32, least: u32, at: u32 },
    /// Adds a character to a lazy run.
    More { run: u32, count: u32, at: u32 },
    /// Restores a register, and continues with the choice below.
    Restore { register: u32, value: u32 },
}

// docs/reference/rootwrap-differences.md names the size, and it bounds the memory of a match.
const _: () = assert!(size_of::<BacktrackFrame>() == 16);

/// Returns true if a program matches a word from its start.
pub(super) fn run<T: MatchText + ?Sized>(
    program: &MatchProgram,
    text: &T,
    work: &MatchBudget,
) -> Result<bool, MatchLimit> {
    let registers = vec![NONE; program.registers as usize];
    let (stack, length) = (Vec::new(), text.length());
    Matcher { program, text, length, work, registers, stack, step: 0, at: 0 }.run()
}

struct Matcher<'m, T: ?Sized> {
    program: &'m MatchProgram,
    text: &'m T,
    length: u32,
    work: &'m MatchBudget,
    registers: Vec<u32>,
    stack: Vec<BacktrackFrame>,
    step: u32,
    at: u32,
}

impl<T: MatchText + ?Sized> Matcher<'_, T> {
    fn run(mut self) -> Result<bool, MatchLimit> {
        while let Some(&step) = self.program.steps.get(self.step as usize) {
            self.work.spend_steps(1)?;
            let goes_on = match step {
                Instruction::SingleChar(one) => self.one(one),
                Instruction::Text { from, length } => self.same(from, length)?,
                Instruction::Anchor(at) => self.is_at(at) && self.go_to(self.step + 1),
                Instruction::Run { greed: Greediness::Greedy, .. } => self.greedy_run(step)?,
                Instruction::Run { one, min, max, greed, .. } => {
                    self.other_run(one, min, max, greed)?
                }
                Instruction::Branch { other } => {
                    self.push(BacktrackFrame::Retry { step: other, at: self.at })?;
                    self.go_to(self.step + 1)
                }
                Instruction::Jump { to } => self.go_to(to),
                Instruction::Match => return Ok(true),
                Instruction::Mark { register } => {
                    self.set(register, self.at)?;
                    self.go_to(self.step + 1)
                }
                Instruction::Reference { marks } => self.reference(marks)?,
                Instruction::Enter { .. }
                | Instruction::Until { .. }
                | Instruction::LazyUntil { .. } => self.repetition(step)?,
                Instruction::More { register } => {
                    self.begin_turn(register)?;
                    self.set(register + 1, self.at)?;
                    self.go_to(self.step + 1)
                }
                Instruction::Atomic { register } => {
                    self.registers[register as usize] = self.height();
                    self.go_to(self.step + 1)
                }
                Instruction::Commit { register } => {
                    self.commit(register)?;
                    self.go_to(self.step + 1)
                }
                Instruction::Look { register, behind, negated, exit } => {
                    self.look(register, behind, negated, exit)?
                }
                Instruction::LookEnd { register, negated } => self.end_look(register, negated)?,
            };
            if !goes_on && !self.go_back()? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Executes the next step. True: the program matched.
    #[inline]
    fn go_to(&mut self, step: u32) -> bool {
        self.step = step;
        true
    }

    #[inline]
    fn is(&self, one: SingleChar, at: u32) -> bool {
        match (self.text.at(at), one) {
            (Some(found), SingleChar::Char(char)) => found == char,
            (Some(found), SingleChar::Set(set)) => self.program.sets[set as usize].has(found),
            (None, _) => false,
        }
    }

    #[inline]
    fn one(&mut self, one: SingleChar) -> bool {
        if !self.is(one, self.at) {
            return false;
        }
        self.at += 1;
        self.go_to(self.step + 1)
    }

    fn same(&mut self, from: u32, length: u32) -> Result<bool, MatchLimit> {
        let wanted = &self.program.text[from as usize..(from + length) as usize];
        let mut at = self.at;
        for &char in wanted {
            self.work.spend_steps(1)?;
            if self.text.at(at) != Some(char) {
                return Ok(false);
            }
            at += 1;
        }
        self.at = at;
        Ok(self.go_to(self.step + length))
    }

    fn reference(&mut self, marks: u32) -> Result<bool, MatchLimit> {
        let [start, end] = [marks, marks + 1].map(|mark| self.registers[mark as usize]);
        if start == NONE || end == NONE || end < start {
            return Ok(false);
        }
        for from in start..end {
            self.work.spend_steps(1)?;
            if self.text.at(self.at) != self.text.at(from) {
                return Ok(false);
            }
            self.at += 1;
        }
        Ok(self.go_to(self.step + 1))
    }

    /// Counts the characters that match, up to a maximum.
    fn count(&mut self, one: SingleChar, max: u32) -> Result<u32, MatchLimit> {
        let most = max.min(self.length - self.at);
        let mut count = 0;
        while count < most && self.is(one, self.at + count) {
            count += 1;
        }
        self.work.spend_steps(count)?;
        Ok(count)
    }

    fn greedy_run(&mut self, step: Instruction) -> Result<bool, MatchLimit> {
        let Instruction::Run { one, min, max, next, .. } = step else { return Ok(false) };
        let count = self.count(one, max)?;
        if count < min {
            return Ok(false);
        }
        self.shorten(self.step, next, self.at + min, self.at + count)
    }

    /// Ends a run at the last position between `least` and `most` at which the next step may match.
    fn shorten(
        &mut self,
        run: u32,
        next: FollowedBy,
        least: u32,
        most: u32,
    ) -> Result<bool, MatchLimit> {
        let (mut least, mut at) = (least, most);
        match next {
            FollowedBy::Unknown => {}
            FollowedBy::Char(char) => {
                while self.text.at(at) != Some(char) {
                    if at == least {
                        return Ok(false);
                    }
                    self.work.spend_steps(1)?;
                    at -= 1;
                }
            }
            FollowedBy::End if at == self.length => least = at,
            FollowedBy::End => return Ok(false),
            FollowedBy::EndOrNewline => {
                let last = self.length.saturating_sub(1);
                least = least.max(last);
                if at < least {
                    return Ok(false);
                }
                if self.text.at(last) != Some(NEWLINE) {
                    least = at;
                }
            }
        }
        if at > least {
            self.push(BacktrackFrame::Fewer { run, least, at })?;
        }
        self.at = at;
        Ok(self.go_to(run + 1))
    }

    /// A run that is lazy or possessive.
    fn other_run(
        &mut self,
        one: SingleChar,
        min: u32,
        max: u32,
        greed: Greediness,
    ) -> Result<bool, MatchLimit> {
        let most = if greed == Greediness::Lazy { min } else { max };
        let count = self.count(one, most)?;
        if count < min {
            return Ok(false);
        }
        self.at += count;
        if greed == Greediness::Lazy && count < max {
            self.push(BacktrackFrame::More { run: self.step, count, at: self.at })?;
        }
        Ok(self.go_to(self.step + 1))
    }

    /// Adds a character to a lazy run.
    fn lengthen(&mut self, run: u32, count: u32, at: u32) -> Result<bool, MatchLimit> {
        let Some(&Instruction::Run { one, max, .. }) = self.program.steps.get(run as usize) else {
            return Ok(false);
        };
        if !self.is(one, at) {
            return Ok(false);
        }
        if count + 1 < max {
            self.push(BacktrackFrame::More { run, count: count + 1, at: at + 1 })?;
        }
        self.at = at + 1;
        Ok(self.go_to(run + 1))
    }

    fn repetition(&mut self, step: Instruction) -> Result<bool, MatchLimit> {
        match step {
            Instruction::Enter { register } => {
                self.set(register, 0)?;
                self.set(register + 1, NONE)?;
            }
            Instruction::Until { register, min, max, exit } => {
                let [count, last] = [register, register + 1].map(|at| self.registers[at as usize]);
                if count < min {
                    self.begin_turn(register)?;
                } else if count < max && self.at != last {
                    self.push(BacktrackFrame::Leave { until: self.step, at: self.at, last })?;
                    self.registers[register as usize] = count + 1;
                    self.registers[register as usize + 1] = self.at;
                } else {
                    return Ok(self.go_to(exit));
                }
            }
            Instruction::LazyUntil { register, min, max, exit } => {
                let [count, last] = [register, register + 1].map(|at| self.registers[at as usize]);
                if count < min {
                    self.begin_turn(register)?;
                    return Ok(self.go_to(self.step + 2));
                }
                if count < max && self.at != last {
                    self.push(BacktrackFrame::Retry { step: self.step + 1, at: self.at })?;
                }
                return Ok(self.go_to(exit));
            }
            _ => return Ok(false),
        }
        Ok(self.go_to(self.step + 1))
    }

    fn begin_turn(&mut self, register: u32) -> Result<(), MatchLimit> {
        self.set(register, self.registers[register as usize] + 1)
    }

    fn look(
        &mut self,
        register: u32,
        behind: u32,
        negated: bool,
        exit: u32,
    ) -> Result<bool, MatchLimit> {
        let Some(start) = self.at.checked_sub(behind) else {
            return Ok(negated && self.go_to(exit));
        };
        self.registers[register as usize] = self.height();
        self.registers[register as usize + 1] = self.at;
        if negated {
            self.push(BacktrackFrame::Retry { step: exit, at: self.at })?;
        }
        self.at = start;
        Ok(self.go_to(self.step + 1))
    }

    /// Ends a look-around that matched.
    fn end_look(&mut self, register: u32, negated: bool) -> Result<bool, MatchLimit> {
        if negated {
            let height = self.registers[register as usize];
            while self.height() > height {
                self.work.spend_steps(1)?;
                if let Some(BacktrackFrame::Restore { register, value }) = self.stack.pop() {
                    self.registers[register as usize] = value;
                }
            }
            return Ok(false);
        }
        self.commit(register)?;
        self.at = self.registers[register as usize + 1];
        Ok(self.go_to(self.step + 1))
    }

    /// Drops the choices above a height. The values of marks remain for earlier choices. Other registers belong to
    /// repetitions that have ended.
    fn commit(&mut self, register: u32) -> Result<(), MatchLimit> {
        let height = self.registers[register as usize] as usize;
        let marks = self.program.marks;
        if marks == 0 || height == 0 {
            self.stack.truncate(height);
            return Ok(());
        }
        let mut kept = height;
        for from in height..self.stack.len() {
            self.work.spend_steps(1)?;
            if let BacktrackFrame::Restore { register, .. } = self.stack[from]
                && register < marks
            {
                self.stack[kept] = self.stack[from];
                kept += 1;
            }
        }
        self.stack.truncate(kept);
        Ok(())
    }

    fn height(&self) -> u32 {
        u32::try_from(self.stack.len()).unwrap_or(NONE)
    }

    fn push(&mut self, frame: BacktrackFrame) -> Result<(), MatchLimit> {
        if self.stack.len() >= STACK_MAX {
            return Err(MatchLimit::Choices);
        }
        self.stack.push(frame);
        Ok(())
    }

    /// Sets a register, and adds its old value for earlier choices.
    fn set(&mut self, register: u32, value: u32) -> Result<(), MatchLimit> {
        let old = std::mem::replace(&mut self.registers[register as usize], value);
        if self.stack.is_empty() {
            return Ok(());
        }
        self.push(BacktrackFrame::Restore { register, value: old })
    }

    /// Returns to the latest choice. False: there is none.
    fn go_back(&mut self) -> Result<bool, MatchLimit> {
        while let Some(frame) = self.stack.pop() {
            self.work.spend_steps(1)?;
            match frame {
                BacktrackFrame::Retry { step, at } => {
                    self.at = at;
                    return Ok(self.go_to(step));
                }
                BacktrackFrame::Leave { until, at, last } => {
                    if let Some(&Instruction::Until { register, exit, .. }) =
                        self.program.steps.get(until as usize)
                    {
                        self.registers[register as usize] -= 1;
                        self.registers[register as usize + 1] = last;
                        self.at = at;
                        return Ok(self.go_to(exit));
                    }
                }
                BacktrackFrame::Fewer { run, least, at } => {
                    if let Some(&Instruction::Run { next, .. }) =
                        self.program.steps.get(run as usize)
                        && self.shorten(run, next, least, at - 1)?
                    {
                        return Ok(true);
                    }
                }
                BacktrackFrame::More { run, count, at } => {
                    if self.lengthen(run, count, at)? {
                        return Ok(true);
                    }
                }
                BacktrackFrame::Restore { register, value } => {
                    self.registers[register as usize] = value;
                }
            }
        }
        Ok(false)
    }

    fn is_at(&self, at: Anchor) -> bool {
        let is_newline = |at| self.text.at(at) == Some(NEWLINE);
        let before = |found: &dyn Fn(u32) -> bool| self.at.checked_sub(1).is_some_and(found);
        let is_edge = |ascii| {
            let is_word =
                |at| self.text.at(at).is_some_and(|char| is_in(CharClass::Word, ascii, char));
            before(&is_word) != is_word(self.at)
        };
        match at {
            Anchor::Start => self.at == 0,
            Anchor::End => self.at == self.length,
            Anchor::EndOrNewline => {
                self.at == self.length || self.at + 1 == self.length && is_newline(self.at)
            }
            Anchor::StartOfLine => self.at == 0 || before(&is_newline),
            Anchor::EndOfLine => self.at == self.length || is_newline(self.at),
            Anchor::Boundary { ascii } => is_edge(ascii),
            // CPython up to 3.13 finds none in an empty word.
            Anchor::NoBoundary { ascii } => self.length > 0 && !is_edge(ascii),
        }
    }
}
