//! The snapshot that is current, mapped, and the older ones that calls in flight still read.
//!
//! A look-up pins the current generation, reads, and unpins; it makes no system call but once in
//! [`CHECK_EVERY_MS`], when one thread looks whether another file has taken the published one's
//! place. A pin adds one to a counter of its slot and then sees that the slot is still current. A
//! slot that is not current and whose counters are all zero is read by nobody and can be read by
//! nobody: whoever adds to a counter of it now will see that it is not current. All of these
//! accesses are sequentially consistent, so "counters are zero after the switch" is final.
//!
//! Nobody waits for the first generation either: while one thread opens it, the others answer from
//! the file as they find it. That may be a newer one by then, so they count themselves where the
//! current slot will stand, and the first generation is installed only if it is still the published
//! one after the last of them: no thread ever goes back to an older generation.
//!
//! In a forked child the other threads, and so their pins, do not exist: the counters start anew
//! there, and a pin taken before the fork is not given back after it. A child made past fork(3) (a
//! raw clone(2), or any fork of a statically linked program, whose libc is not the module's) keeps
//! its parent's counts and marks: at the worst it keeps the memory of generations that were in use,
//! and sees the next one after [`REFRESH_MS_MAX`].
//!
//! A thread that is cancelled or jumps away in the middle of a call leaves its pin behind for ever. A
//! refresh cannot be cancelled, but be left by a signal handler that jumps: the mark that it goes on
//! stays then. Should either block a refresh, the whole [`State`] is left to itself and a fresh one
//! takes its place, at most [`STATES_MAX`] times in a process.
#![allow(unsafe_code)]

use crate::enumerate;
use crate::locate::{self, Location};
use crate::system::{self, Identity, Stat};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use libc::c_int;
use roster_snapshot::Snapshot;
use roster_snapshot::layout::Kind;

/// How often a process that looks things up asks the file system for a new generation. A new one
/// is to be seen within 100 ms, and the clock is up to 10 ms coarse.
const CHECK_EVERY_MS: u64 = 50;
/// Generations held at once: the current one and those that calls still read.
const SLOTS: usize = 8;
/// Counters of one slot, so that threads seldom share a cache line.
const STRIPES: usize = 8;
/// A refresh that lasts longer has been left by its thread.
const REFRESH_MS_MAX: u64 = 5_000;
/// Fresh starts in the life of a process.
const STATES_MAX: u32 = 16;
/// Looks whether the first generation is still the published one, before it is left to the next call.
const FIRST_TRIES: usize = 64;

/// One kind of snapshot, for the life of the process.
pub struct Source {
    kind: Kind,
    state: AtomicPtr<State>,
    states: AtomicU32,
}

/// Users and groups.
pub static ACCOUNTS: Source = Source::new(Kind::Accounts);
/// Shadow entries.
pub static SHADOW: Source = Source::new(Kind::Shadow);

/// Forks between the first process that loaded the module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Whether the C library knows [`start_anew_in_child`].
static REGISTERED: AtomicBool = AtomicBool::new(false);

struct State {
    location: Location,
    /// The number of the current slot; from [`SLOTS`] on there is none yet, and the number counts the calls
    /// that answered from a file of their own.
    current: AtomicUsize,
    /// Why none is current; 0: those who did not wait were quicker.
    failure: AtomicI32,
    checked_ms: AtomicU64,
    /// 0, or when the refresh that is going on began.
    refreshing_ms: AtomicU64,
    slots: [Slot; SLOTS],
}

#[repr(C, align(64))]
struct Counter(AtomicUsize);

struct Slot {
    pins: [Counter; STRIPES],
    in_use: AtomicBool,
    /// Written by the one refresher while the slot is not in use, read by pins of it.
    mapped: UnsafeCell<MaybeUninit<Mapped>>,
}

#[derive(Clone, Copy)]
struct Mapped {
    bytes: &'static [u8],
    identity: Identity,
    /// User id of the file's owner.
    owner: u32,
    snapshot: Snapshot<'static>,
    /// Another state may hold it too, so it is never unmapped.
    shared: bool,
}

/// A generation that stays while this lives.
pub struct Pin {
    state: &'static State,
    slot: usize,
    stripe: usize,
    forks: u32,
}

impl Pin {
    /// Nothing of the snapshot may be kept beyond the pin.
    #[inline]
    fn mapped(&self) -> &Mapped {
        // SAFETY: the slot was current while pinned, so it had been filled, and the pin keeps it
        // from being emptied or filled anew.
        unsafe { self.state.mapped_in(self.slot) }
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        if FORKS.load(SeqCst) == self.forks
            && let Some(counter) = self.state.counter(self.slot, self.stripe)
        {
            counter.fetch_sub(1, SeqCst);
        }
    }
}

/// A mapping that is nobody else's. What describes it lies in memory of its own.
pub struct Own(NonNull<Mapped>);

impl Own {
    #[cold]
    fn new(location: &Location, kind: Kind) -> Result<Self, c_int> {
        let place = NonNull::new(system::allocate::<Mapped>().ok_or(libc::ENOMEM)?);
        let place = place.ok_or(libc::ENOMEM)?;
        match load(location, kind) {
            Ok(mapped) => {
                // SAFETY: freshly allocated, and large enough.
                unsafe { place.write(mapped) };
                Ok(Self(place))
            }
            Err(error) => {
                // SAFETY: nobody has seen it.
                unsafe { system::free(place.as_ptr()) };
                Err(error)
            }
        }
    }

    /// The snapshot. Nothing of it may be kept beyond this.
    pub fn snapshot(&self) -> &Snapshot<'_> {
        &self.mapped().snapshot
    }

    fn mapped(&self) -> &Mapped {
        // SAFETY: written by `new`, and there as long as this lives.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Own {
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: written by `new`.
        let mapped = unsafe { self.0.read() };
        // SAFETY: both were given to nobody else, and what borrows from them is gone.
        unsafe {
            system::unmap(mapped.bytes);
            system::free(self.0.as_ptr());
        }
    }
}

/// What a call answers from: the current generation, or a file of its own before the first was open.
enum Held {
    Pinned(Pin),
    Own(Own),
}

impl Held {
    #[inline]
    fn mapped(&self) -> &Mapped {
        match self {
            Self::Pinned(pin) => pin.mapped(),
            Self::Own(own) => own.mapped(),
        }
    }
}

impl Source {
    const fn new(kind: Kind) -> Self {
        let (state, states) = (AtomicPtr::new(ptr::null_mut()), AtomicU32::new(0));
        Self { kind, state, states }
    }

    /// Gives the current generation, and the user id of its file's owner, to `answer`, after a look
    /// for a newer one if it is time. `answer` must not wait: as long as it runs, the generation's
    /// memory and slot cannot be given back. The error number is `ENOENT` when there is no snapshot, `EACCES` when this process may not read
    /// it, `EIO` when it is not to be believed.
    #[inline]
    pub fn with<R>(&self, answer: impl FnOnce(&Snapshot<'_>, u32) -> R) -> Result<R, c_int> {
        let held = self.hold()?;
        let mapped = held.mapped();
        Ok(answer(&mapped.snapshot, mapped.owner))
    }

    /// [`Source::with`] for calls that may take a little longer: shorter, as the module is in every process.
    pub fn with_apart<R>(&self, answer: impl FnOnce(&Snapshot<'_>, u32) -> R) -> Result<R, c_int> {
        let held = self.hold_apart()?;
        let mapped = held.mapped();
        Ok(answer(&mapped.snapshot, mapped.owner))
    }

    #[inline(never)]
    fn hold_apart(&self) -> Result<Held, c_int> {
        self.hold()
    }

    #[inline(always)]
    fn hold(&self) -> Result<Held, c_int> {
        let mut state = self.state()?;
        let now = system::clock_ms();
        if now.wrapping_sub(state.checked_ms.load(SeqCst)) >= CHECK_EVERY_MS {
            state = self.refresh(state, now);
        }
        match state.pin() {
            Some(pin) => Ok(Held::Pinned(pin)),
            None => state.first_or_own(self.kind),
        }
    }

    /// Opens the file for the caller alone, who may keep it.
    pub fn open(&self) -> Result<Own, c_int> {
        let state = self.state()?;
        let own = Own::new(&state.location, self.kind)?;
        if !state.count_own() {
            // Whoever is listed is to be found: the next look-up looks whether this file is a new one.
            state.checked_ms.store(system::clock_ms().wrapping_sub(CHECK_EVERY_MS), SeqCst);
        }
        Ok(own)
    }

    #[inline]
    fn state(&self) -> Result<&'static State, c_int> {
        let state = self.state.load(SeqCst);
        if state.is_null() {
            return self.start(ptr::null_mut());
        }
        // SAFETY: a state that was once published here is never freed.
        Ok(unsafe { &*state })
    }

    /// Puts a fresh state in the place of `old`, with `old`'s current generation. When another
    /// thread was quicker, its state serves.
    #[cold]
    fn start(&self, old: *mut State) -> Result<&'static State, c_int> {
        if !REGISTERED.swap(true, SeqCst) && !system::at_fork(start_anew_in_child) {
            REGISTERED.store(false, SeqCst);
        }
        let location = Location::find(self.kind)?;
        let state = system::allocate::<State>().ok_or(libc::ENOMEM)?;
        // SAFETY: freshly allocated and large enough. Zeros are valid for the rest: slots that are
        // not in use, counters at rest.
        unsafe {
            (&raw mut (*state).location).write(location);
            (*state).current.store(SLOTS, SeqCst);
            (*state).failure.store(libc::EIO, SeqCst);
            // Long ago, even where the clock has just started.
            (*state).checked_ms.store(0_u64.wrapping_sub(CHECK_EVERY_MS), SeqCst);
        }
        // SAFETY: it is whole now, and is freed only where nobody else can have seen it.
        let fresh = unsafe { &*state };
        // SAFETY: a state that was once published is never freed.
        if let Some(old) = unsafe { old.as_ref() } {
            fresh.inherit(old);
        }
        match self.state.compare_exchange(old, state, SeqCst, SeqCst) {
            Ok(_) => {
                self.states.fetch_add(1, SeqCst);
                Ok(fresh)
            }
            Err(theirs) => {
                // SAFETY: the exchange failed, so nobody has seen it.
                unsafe { system::free(state) };
                // SAFETY: a state that was once published is never freed.
                Ok(unsafe { &*theirs })
            }
        }
    }

    /// Looks for a new generation, unless another thread does. Gives the state to go on with.
    #[cold]
    fn refresh(&self, state: &'static State, now: u64) -> &'static State {
        let fresh = match state.refresh_alone(self.kind, now) {
            Refresh::Done | Refresh::Overtaken => return state,
            Refresh::TakenBy { since } if now.saturating_sub(since) <= REFRESH_MS_MAX => {
                return state;
            }
            Refresh::NoSlot | Refresh::TakenBy { .. } => self.start_anew(state),
        };
        fresh.refresh_alone(self.kind, now);
        fresh
    }

    fn start_anew(&self, blocked: &'static State) -> &'static State {
        if self.states.load(SeqCst) >= STATES_MAX {
            return blocked;
        }
        self.start(ptr::from_ref(blocked).cast_mut()).unwrap_or(blocked)
    }
}

/// How a refresh went.
enum Refresh {
    Done,
    /// There is a new generation and no slot for it.
    NoSlot,
    /// It would have been the first, and calls have answered from a newer one meanwhile.
    Overtaken,
    /// Another thread is at it, or was when it jumped away.
    TakenBy {
        since: u64,
    },
}

// SAFETY: everything that changes after `Source::start` is atomic, but for the slots' contents,
// whose rule stands there.
unsafe impl Sync for State {}

impl State {
    #[inline]
    fn counter(&self, slot: usize, stripe: usize) -> Option<&AtomicUsize> {
        self.slots.get(slot)?.pins.get(stripe).map(|counter| &counter.0)
    }

    /// # Safety
    /// The slot is in use and stays so while the result is used.
    #[inline]
    unsafe fn mapped_in(&self, slot: usize) -> &Mapped {
        // The mask changes nothing: a slot number is always below `SLOTS`.
        let cell = self.slots.get(slot & (SLOTS - 1)).map(|slot| slot.mapped.get());
        // SAFETY: the caller promises that the refresher has filled it and leaves it alone.
        unsafe { &*cell.unwrap_or(self.slots[0].mapped.get()).cast::<Mapped>() }
    }

    #[inline]
    fn pin(&'static self) -> Option<Pin> {
        let forks = FORKS.load(SeqCst);
        let stripe = stripe();
        loop {
            let slot = self.current.load(SeqCst);
            // `None` here means that no slot is current.
            let counter = self.counter(slot, stripe)?;
            counter.fetch_add(1, SeqCst);
            if self.current.load(SeqCst) == slot {
                return Some(Pin { state: self, slot, stripe, forks });
            }
            // A switch came in between; they come at most once in `CHECK_EVERY_MS`.
            counter.fetch_sub(1, SeqCst);
        }
    }

    /// [`State::refresh`] if no other thread is at it.
    fn refresh_alone(&'static self, kind: Kind, now: u64) -> Refresh {
        let _uncancelled = system::Uncancelled::new();
        let mark = now.max(1);
        if let Err(since) = self.refreshing_ms.compare_exchange(0, mark, SeqCst, SeqCst) {
            return Refresh::TakenBy { since };
        }
        let outcome = self.refresh(kind);
        if let Refresh::Overtaken = outcome {
            self.failure.store(0, SeqCst);
        } else {
            self.checked_ms.store(now, SeqCst);
        }
        // A child that was forked by a signal handler in here has no mark to take away.
        let _ = self.refreshing_ms.compare_exchange(mark, 0, SeqCst, SeqCst);
        outcome
    }

    /// Maps the published file if it is another than the current one, switches to it, and unmaps
    /// what nobody reads any more. Only one thread at a time.
    fn refresh(&'static self, kind: Kind) -> Refresh {
        self.sweep();
        if let Some(current) = self.current_mapped() {
            match self.location.stat() {
                Ok(stat) if stat.identity != current.identity => {}
                // The same, or none at all: the last good generation goes on.
                _ => return Refresh::Done,
            }
        }
        match load(&self.location, kind) {
            Ok(mapped) => self.install(mapped),
            Err(error) => {
                self.failure.store(error, SeqCst);
                Refresh::Done
            }
        }
    }

    fn current_mapped(&self) -> Option<Mapped> {
        let slot = self.current.load(SeqCst);
        // SAFETY: the current slot is in use, and only the caller, the one refresher, changes that.
        (slot < SLOTS).then(|| unsafe { *self.mapped_in(slot) })
    }

    /// Fills a free slot and makes it current.
    fn install(&self, mapped: Mapped) -> Refresh {
        let free = self
            .slots
            .iter()
            .enumerate()
            .find(|(_, slot)| !slot.in_use.load(SeqCst) && slot.is_at_rest());
        let Some((number, slot)) = free else {
            // SAFETY: nobody else has seen this mapping.
            unsafe { system::unmap(mapped.bytes) };
            return Refresh::NoSlot;
        };
        // SAFETY: the slot is not in use and not current, so no pin reads it, and there is only
        // one refresher.
        unsafe { (*slot.mapped.get()).write(mapped) };
        slot.in_use.store(true, SeqCst);
        let installed = self.make_current(number, mapped.identity);
        self.sweep();
        if installed { Refresh::Done } else { Refresh::Overtaken }
    }

    /// `false` when it would be the first and others have answered from a newer file.
    fn make_current(&self, number: usize, identity: Identity) -> bool {
        for _ in 0..FIRST_TRIES {
            let before = self.current.load(SeqCst);
            if before > SLOTS {
                match self.location.stat() {
                    Ok(stat) if stat.identity == identity => {}
                    _ => return false,
                }
            }
            // Whoever answered by now opened the file before the look at it.
            if self.current.compare_exchange(before, number, SeqCst, SeqCst).is_ok() {
                return true;
            }
        }
        false
    }

    /// Unmaps the generations that are neither current nor pinned.
    #[inline(never)]
    fn sweep(&self) {
        let current = self.current.load(SeqCst);
        for (number, slot) in self.slots.iter().enumerate() {
            if number == current || !slot.in_use.load(SeqCst) || !slot.is_at_rest() {
                continue;
            }
            // SAFETY: in use, and only the caller, the one refresher, changes that.
            let mapped = unsafe { *self.mapped_in(number) };
            slot.in_use.store(false, SeqCst);
            if !mapped.shared {
                // SAFETY: not current and at rest after that, so no pin reads it, see above.
                unsafe { system::unmap(mapped.bytes) };
            }
        }
    }

    /// Takes over the current generation of a state that is given up. Neither will unmap it.
    fn inherit(&self, old: &'static State) {
        let Some(pin) = old.pin() else { return };
        // SAFETY: pinned, and the pin is kept for ever by forgetting it.
        let mapped = unsafe { *old.mapped_in(pin.slot) };
        core::mem::forget(pin);
        self.install(Mapped { shared: true, ..mapped });
    }

    /// No generation is current. Another thread may be about to open the first, or this very one,
    /// interrupted by a signal whose handler asks: nobody waits, whoever comes opens the file for
    /// itself.
    #[cold]
    fn first_or_own(&'static self, kind: Kind) -> Result<Held, c_int> {
        if self.refreshing_ms.load(SeqCst) == 0 {
            if let Some(pin) = self.pin() {
                return Ok(Held::Pinned(pin));
            }
            match self.failure.load(SeqCst) {
                0 => {}
                error => return Err(error),
            }
        }
        let own = Own::new(&self.location, kind)?;
        if self.count_own() {
            return Ok(Held::Own(own));
        }
        // There is a current one now, which may be older than the file.
        self.pin().map(Held::Pinned).ok_or(libc::EIO)
    }

    /// Keeps the first generation from being an older one than a caller's own; `false` when there is
    /// one already.
    fn count_own(&self) -> bool {
        let none = |current: usize| (current >= SLOTS).then_some(current.saturating_add(1));
        self.current.fetch_update(SeqCst, SeqCst, none).is_ok()
    }
}

impl Slot {
    /// Whether nobody pins the slot. Each counter is looked at once: a pin goes back where it came
    /// from, so one that was zero after the switch stays so.
    fn is_at_rest(&self) -> bool {
        self.pins.iter().all(|counter| counter.0.load(SeqCst) == 0)
    }
}

/// Called in a forked child, whose only thread is the one that forked.
extern "C" fn start_anew_in_child() {
    FORKS.fetch_add(1, SeqCst);
    for list in [&enumerate::USERS, &enumerate::GROUPS, &enumerate::SHADOWS] {
        list.release_in_child();
    }
    for source in [&ACCOUNTS, &SHADOW] {
        // SAFETY: a state that was once published is never freed.
        let Some(state) = (unsafe { source.state.load(SeqCst).as_ref() }) else { continue };
        for counter in state.slots.iter().flat_map(|slot| &slot.pins) {
            counter.0.store(0, SeqCst);
        }
        state.refreshing_ms.store(0, SeqCst);
    }
}

/// Opens, maps and checks the file.
#[cold]
#[inline(never)]
fn load(location: &Location, kind: Kind) -> Result<Mapped, c_int> {
    let (file, stat) = location.open()?;
    let bytes = usize::try_from(stat.bytes).map_err(|_| libc::EIO)?;
    if bytes == 0 {
        return Err(libc::EIO);
    }
    let file = match location.copy_of(&stat) {
        Some(copy) => copy,
        // A page that cannot be read is an error here, and SIGBUS in the mapping.
        None => {
            system::read_through(&file)?;
            file
        }
    };
    let bytes = system::map(&file, bytes)?;
    let opened = match kind {
        Kind::Accounts => Snapshot::open(bytes),
        Kind::Shadow => Snapshot::open_shadow(bytes),
    };
    match opened {
        Ok(mut snapshot) => {
            if location.has_floor(&stat) {
                snapshot.set_floor(&locate::floor());
            }
            let Stat { identity, owner, .. } = stat;
            Ok(Mapped { bytes, identity, owner, snapshot, shared: false })
        }
        Err(_) => {
            // SAFETY: nobody else has seen this mapping, and opening kept nothing of it.
            unsafe { system::unmap(bytes) };
            Err(libc::EIO)
        }
    }
}

/// A number that threads seldom share: from the address of their stack.
#[inline]
fn stripe() -> usize {
    let here = 0_u8;
    let page = (&raw const here).addr() >> 12;
    (page.wrapping_mul(0x9E37_79B9) >> 16) % STRIPES
}
