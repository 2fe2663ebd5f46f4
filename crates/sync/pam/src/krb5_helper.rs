// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `roster-krb5 session` and reads its output. The helper inherits no signal handlers or variables of the program,
//! and has 5 seconds.
//!
//! It closes all inherited descriptors first. This process cannot close them between fork and exec: posix_spawn(3) has
//! no such action before glibc 2.34, and other threads open and close descriptors at any time.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr;

/// Paths of the installed program.
const PROGRAMS: [&CStr; 2] =
    [c"/usr/libexec/roster/roster-krb5", c"/usr/local/libexec/roster/roster-krb5"];
/// Time limit from its start to its end.
const RUN_MS_MAX: u64 = 5_000;
/// Digits of an id, and a NUL.
const ID_BYTES: usize = 11;
/// The lowest descriptor that is not one of the three that every program has.
const FIRST_FREE_FD: c_int = 3;

/// The end of a pipe.
struct PipeEnd(c_int);

impl Drop for PipeEnd {
    fn drop(&mut self) {
        // SAFETY: close(2) takes a number; this module owns this descriptor.
        unsafe { libc::close(self.0) };
    }
}

/// Makes a pipe. Its ends are never one of the first three descriptors, which the program may have closed.
fn pipe() -> Option<(PipeEnd, PipeEnd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has space for two numbers.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return None;
    }
    let [reader, writer] = ends.map(PipeEnd);
    let higher = |end: PipeEnd| {
        // SAFETY: fcntl(2) of a descriptor of this module, with numbers.
        let number = unsafe { libc::fcntl(end.0, libc::F_DUPFD_CLOEXEC, FIRST_FREE_FD) };
        (number >= 0).then_some(PipeEnd(number))
    };
    Some((higher(reader)?, higher(writer)?))
}

/// Runs the helper for a user. Returns the length of its output, or `None` if it failed.
pub fn run(
    what: &CStr,
    uid: u32,
    gid: u32,
    name: Option<&CStr>,
    input: &[u8],
    output: &mut [u8],
) -> Option<usize> {
    let (their_input, our_input) = pipe()?;
    let (our_output, their_output) = pipe()?;
    // The pipe has capacity for all of it, and its read end is still open in this process.
    // SAFETY: the kernel reads `len` bytes of the input.
    let written = unsafe { libc::write(our_input.0, input.as_ptr().cast(), input.len()) };
    if usize::try_from(written).ok()? != input.len() {
        return None;
    }
    drop(our_input);
    let (uid, gid) = (digits(uid), digits(gid));
    let mut words = [ptr::null::<c_char>(); 7];
    let given = [c"roster-krb5".as_ptr(), c"session".as_ptr(), what.as_ptr(), uid.as_ptr().cast()];
    let given = given.into_iter().chain([gid.as_ptr().cast()]).chain(name.map(CStr::as_ptr));
    // The last stays null.
    for (to, from) in words.iter_mut().take(6).zip(given) {
        *to = from;
    }
    let child = spawn(&words, &their_input, &their_output)?;
    drop((their_input, their_output));
    let length = read_output(&our_output, output);
    let has_succeeded = wait_for_exit(child, length.is_none());
    length.filter(|_| has_succeeded)
}

fn digits(mut number: u32) -> [u8; ID_BYTES] {
    let mut text = [0; ID_BYTES];
    let mut count = 0_usize;
    // Digits in reverse order, which are reversed afterwards.
    for place in text.iter_mut().take(10) {
        *place = b'0'.wrapping_add((number % 10) as u8);
        count = count.saturating_add(1);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    if let Some(used) = text.get_mut(..count) {
        used.reverse();
    }
    text
}

/// Setup of the helper's process, for both paths.
struct SpawnSetup {
    files: MaybeUninit<libc::posix_spawn_file_actions_t>,
    attributes: MaybeUninit<libc::posix_spawnattr_t>,
}

impl SpawnSetup {
    fn new(input: &PipeEnd, output: &PipeEnd) -> Option<Self> {
        let mut start = Self { files: MaybeUninit::uninit(), attributes: MaybeUninit::uninit() };
        let (files, attributes) = (start.files.as_mut_ptr(), start.attributes.as_mut_ptr());
        // SAFETY: each init call fills in its place before any other use. It fails only without memory.
        unsafe {
            if libc::posix_spawn_file_actions_init(files) != 0 {
                return None;
            }
            if libc::posix_spawnattr_init(attributes) != 0 {
                libc::posix_spawn_file_actions_destroy(files);
                return None;
            }
        }
        // SAFETY: from here on both are initialized, and destroyed with `start`. A set of signals is filled in before
        // it is read.
        let is_set = unsafe {
            let (mut all, mut none) =
                (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
            libc::sigfillset(all.as_mut_ptr());
            libc::sigemptyset(none.as_mut_ptr());
            let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
            [
                libc::posix_spawn_file_actions_adddup2(files, input.0, 0),
                libc::posix_spawn_file_actions_adddup2(files, output.0, 1),
                libc::posix_spawn_file_actions_addopen(
                    files,
                    2,
                    c"/dev/null".as_ptr(),
                    libc::O_WRONLY,
                    0,
                ),
                libc::posix_spawnattr_setsigdefault(attributes, all.as_ptr()),
                libc::posix_spawnattr_setsigmask(attributes, none.as_ptr()),
                libc::posix_spawnattr_setflags(attributes, flags as _),
            ]
        };
        is_set.into_iter().all(|code| code == 0).then_some(start)
    }
}

impl Drop for SpawnSetup {
    fn drop(&mut self) {
        // SAFETY: a value of this type always has both initialized.
        unsafe {
            libc::posix_spawn_file_actions_destroy(self.files.as_mut_ptr());
            libc::posix_spawnattr_destroy(self.attributes.as_mut_ptr());
        }
    }
}

fn spawn(words: &[*const c_char; 7], input: &PipeEnd, output: &PipeEnd) -> Option<libc::pid_t> {
    let start = SpawnSetup::new(input, output)?;
    let nothing = [ptr::null_mut::<c_char>()];
    let mut pid = 0;
    PROGRAMS.into_iter().find_map(|program| {
        // SAFETY: all arguments are initialized and valid for the call; both lists end with a null, and posix_spawn(3)
        // does not write to the strings.
        let code = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                program.as_ptr(),
                start.files.as_ptr(),
                start.attributes.as_ptr(),
                words.as_ptr().cast(),
                nothing.as_ptr(),
            )
        };
        (code == 0).then_some(pid)
    })
}

/// Reads its output until it is closed. `None` if that takes too long, or if there is too much.
fn read_output(end: &PipeEnd, output: &mut [u8]) -> Option<usize> {
    let until = roster_module_sys::syscalls::exact_clock_ms().saturating_add(RUN_MS_MAX);
    let mut length = 0_usize;
    loop {
        let left = until.checked_sub(roster_module_sys::syscalls::exact_clock_ms())?;
        let mut polled = libc::pollfd { fd: end.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one record, and a time that fits.
        unsafe { libc::poll(&raw mut polled, 1, c_int::try_from(left).ok()?) };
        // If the buffer is full, only the end of the output may follow.
        let mut spare = [0_u8; 1];
        let free = output.get_mut(length..).filter(|free| !free.is_empty());
        let is_full = free.is_none();
        let free = free.unwrap_or(&mut spare);
        // SAFETY: the kernel writes at most `len` bytes.
        let read = unsafe { libc::read(end.0, free.as_mut_ptr().cast(), free.len()) };
        match usize::try_from(read) {
            Ok(0) => return Some(length),
            Ok(_) if is_full => return None,
            Ok(read) => length = length.saturating_add(read),
            Err(_) => match roster_module_sys::syscalls::error_number() {
                libc::EINTR | libc::EAGAIN => {}
                _ => return None,
            },
        }
    }
}

/// Waits for its end, after a kill if requested. Returns whether it succeeded. The program may reap all of its
/// children. The status is then lost, and the output decides.
fn wait_for_exit(child: libc::pid_t, is_to_be_killed: bool) -> bool {
    let mut status = 0;
    // SAFETY: a child of this process that this module has not waited for, and space for its status.
    unsafe {
        if is_to_be_killed {
            libc::kill(child, libc::SIGKILL);
        }
        loop {
            match libc::waitpid(child, &raw mut status, 0) {
                -1 if roster_module_sys::syscalls::error_number() == libc::EINTR => {}
                -1 => return true,
                _ => return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            }
        }
    }
}

/// Returns the process's own variable, except in a process with elevated rights.
pub fn process_ccache_name() -> Option<&'static CStr> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *const c_char;
    }
    // SAFETY: a name that ends with a NUL. The value stays valid until the variable is set, which programs do not do
    // during a login.
    unsafe {
        let value = secure_getenv(c"KRB5CCNAME".as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}
