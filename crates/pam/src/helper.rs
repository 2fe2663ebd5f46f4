//! Starts `roster-krb5 session` and hears what it says. The program's signals, descriptors and variables
//! are none of its business, and it has five seconds.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr;

/// Where it is installed.
const PROGRAMS: [&CStr; 2] =
    [c"/usr/libexec/roster/roster-krb5", c"/usr/local/libexec/roster/roster-krb5"];
/// From its start to its end.
const RUN_MS_MAX: u64 = 5_000;
/// Digits of an id, and a NUL.
const ID_BYTES: usize = 11;
/// The lowest descriptor that is not one of the three that every program has.
const OTHERS: c_int = 3;

/// The end of a pipe.
struct End(c_int);

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: close(2) takes a number; this one is ours.
        unsafe { libc::close(self.0) };
    }
}

/// A pipe, neither end of which is one of the first three descriptors: a program may have closed those.
fn pipe() -> Option<(End, End)> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two numbers.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return None;
    }
    let [reader, writer] = ends.map(End);
    let higher = |end: End| {
        // SAFETY: fcntl(2) of a descriptor of ours, with numbers.
        let number = unsafe { libc::fcntl(end.0, libc::F_DUPFD_CLOEXEC, OTHERS) };
        (number >= 0).then_some(End(number))
    };
    Some((higher(reader)?, higher(writer)?))
}

/// Runs it for a user; gives how much it said, or none when it did not do what it was to do.
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
    // It has room for all of it, and nobody reads yet who could have gone away.
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
    let length = listen(&our_output, output);
    let has_succeeded = end(child, length.is_none());
    length.filter(|_| has_succeeded)
}

fn digits(mut number: u32) -> [u8; ID_BYTES] {
    let mut text = [0; ID_BYTES];
    let mut count = 0_usize;
    // From the last to the first, and then the other way round.
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

/// What the program is to have as it starts, whichever it is.
struct Start {
    files: MaybeUninit<libc::posix_spawn_file_actions_t>,
    attributes: MaybeUninit<libc::posix_spawnattr_t>,
}

impl Start {
    fn new(input: &End, output: &End) -> Option<Self> {
        let mut start = Self { files: MaybeUninit::uninit(), attributes: MaybeUninit::uninit() };
        let (files, attributes) = (start.files.as_mut_ptr(), start.attributes.as_mut_ptr());
        // SAFETY: both places are filled in by the first call for each, which fails without memory alone,
        // before anything else is done with them.
        unsafe {
            if libc::posix_spawn_file_actions_init(files) != 0 {
                return None;
            }
            if libc::posix_spawnattr_init(attributes) != 0 {
                libc::posix_spawn_file_actions_destroy(files);
                return None;
            }
        }
        // SAFETY: from here on both are whole, and destroyed with `start`. A set of signals is filled in
        // before it is read.
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
                libc::posix_spawn_file_actions_addclosefrom_np(files, OTHERS),
                libc::posix_spawnattr_setsigdefault(attributes, all.as_ptr()),
                libc::posix_spawnattr_setsigmask(attributes, none.as_ptr()),
                libc::posix_spawnattr_setflags(attributes, flags as _),
            ]
        };
        is_set.into_iter().all(|code| code == 0).then_some(start)
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        // SAFETY: there is none that is not whole.
        unsafe {
            libc::posix_spawn_file_actions_destroy(self.files.as_mut_ptr());
            libc::posix_spawnattr_destroy(self.attributes.as_mut_ptr());
        }
    }
}

fn spawn(words: &[*const c_char; 7], input: &End, output: &End) -> Option<libc::pid_t> {
    let start = Start::new(input, output)?;
    let nothing = [ptr::null_mut::<c_char>()];
    let mut pid = 0;
    PROGRAMS.into_iter().find_map(|program| {
        // SAFETY: all of it is whole and stays for the call; both lists end with a null, and posix_spawn(3)
        // does not write to the words.
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

/// Takes what it says until it closes its output; none when that takes too long, or there is too much.
fn listen(end: &End, output: &mut [u8]) -> Option<usize> {
    let until = roster_calls::system::exact_clock_ms().saturating_add(RUN_MS_MAX);
    let mut length = 0_usize;
    loop {
        let left = until.checked_sub(roster_calls::system::exact_clock_ms())?;
        let mut polled = libc::pollfd { fd: end.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one record, and a time that fits.
        unsafe { libc::poll(&raw mut polled, 1, c_int::try_from(left).ok()?) };
        // Where all of it is full nothing but the end may come.
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
            Err(_) => match roster_calls::system::error_number() {
                libc::EINTR | libc::EAGAIN => {}
                _ => return None,
            },
        }
    }
}

/// Waits for its end, at once if it is to be killed; whether it did what it was to do. Where the program
/// has taken its status away, as it does with its own children's, what it said has to do.
fn end(child: libc::pid_t, is_to_be_killed: bool) -> bool {
    let mut status = 0;
    // SAFETY: a child of this process that nobody here has waited for, and room for its status.
    unsafe {
        if is_to_be_killed {
            libc::kill(child, libc::SIGKILL);
        }
        loop {
            match libc::waitpid(child, &raw mut status, 0) {
                -1 if roster_calls::system::error_number() == libc::EINTR => {}
                -1 => return true,
                _ => return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            }
        }
    }
}

/// What this process goes by itself, unless somebody else's rights are in it.
pub fn cache_of_this_process() -> Option<&'static CStr> {
    unsafe extern "C" {
        fn secure_getenv(name: *const c_char) -> *const c_char;
    }
    // SAFETY: a name that ends with a NUL; the value stays until somebody sets the variable, which
    // programs do not do while they log somebody in.
    unsafe {
        let value = secure_getenv(c"KRB5CCNAME".as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}
