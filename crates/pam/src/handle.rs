//! libpam's handle: items, the conversation, the log.
#![allow(unsafe_code)]

use crate::codes::Code;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::marker::PhantomData;
use core::ptr;
use roster_secret::{Secret, wipe};
use roster_wire::pam::{MESSAGE_BYTES_MAX, SECRET_BYTES_MAX};

/// libpam's own.
#[repr(C)]
pub struct PamHandle {
    private: [u8; 0],
}

#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct Response {
    text: *mut c_char,
    code: c_int,
}

#[repr(C)]
struct Conversation {
    hold: Option<
        unsafe extern "C" fn(
            c_int,
            *const *const Message,
            *mut *mut Response,
            *mut c_void,
        ) -> c_int,
    >,
    data: *mut c_void,
}

type Cleanup = unsafe extern "C" fn(*mut PamHandle, *mut c_void, c_int);

unsafe extern "C" {
    fn pam_get_user(pamh: *mut PamHandle, user: *mut *const c_char, prompt: *const c_char)
    -> c_int;
    fn pam_get_item(pamh: *const PamHandle, item: c_int, value: *mut *const c_void) -> c_int;
    fn pam_set_item(pamh: *mut PamHandle, item: c_int, value: *const c_void) -> c_int;
    fn pam_get_data(pamh: *const PamHandle, name: *const c_char, data: *mut *const c_void)
    -> c_int;
    fn pam_set_data(
        pamh: *mut PamHandle,
        name: *const c_char,
        data: *mut c_void,
        cleanup: Option<Cleanup>,
    ) -> c_int;
    fn pam_getenv(pamh: *mut PamHandle, name: *const c_char) -> *const c_char;
    fn pam_putenv(pamh: *mut PamHandle, name_value: *const c_char) -> c_int;
    fn pam_modutil_getpwnam(pamh: *mut PamHandle, user: *const c_char) -> *mut libc::passwd;
    fn pam_fail_delay(pamh: *mut PamHandle, microseconds: c_uint) -> c_int;
    fn pam_syslog(pamh: *const PamHandle, priority: c_int, format: *const c_char, ...);
}

/// What libpam keeps for the modules of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Item {
    /// The service.
    Service = 1,
    /// The terminal.
    Terminal = 3,
    /// Where the user comes from.
    RemoteHost = 4,
    /// How to talk to the user.
    Conversation = 5,
    /// The password.
    Password = 6,
    /// The password before its change.
    OldPassword = 7,
    /// Who asks.
    RemoteUser = 8,
}

/// How a text is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Style {
    /// The answer is not to be seen.
    Hidden = 1,
    /// Something went wrong.
    Error = 3,
    /// Something to know.
    Info = 4,
}

/// How much somebody should care about a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Priority {
    /// Somebody should.
    Error = libc::LOG_ERR,
    /// Who wants to know what happens.
    Debug = libc::LOG_DEBUG,
}

/// Wipes what [`Handle::keep`] kept.
///
/// # Safety
/// `data` is null or the place of one, which nobody uses after this.
unsafe extern "C" fn forget(_: *mut PamHandle, data: *mut c_void, _: c_int) {
    if !data.is_null() {
        // SAFETY: the caller's promise; the place is malloc(3)'s.
        unsafe {
            data.cast::<Secret>().drop_in_place();
            libc::free(data);
        }
    }
}

/// A call's handle.
pub struct Handle<'c> {
    pamh: *mut PamHandle,
    call: PhantomData<&'c ()>,
}

impl Handle<'_> {
    /// # Safety
    /// It is libpam's, and stays for as long as this does.
    pub unsafe fn new(pamh: *mut PamHandle) -> Self {
        Self { pamh, call: PhantomData }
    }

    /// Who logs in; the program is asked if it has not said.
    pub fn user(&self) -> Result<&CStr, Code> {
        let mut user = ptr::null();
        // SAFETY: libpam's handle; `user` has room for what the call writes, and no prompt means the usual one.
        match unsafe { pam_get_user(self.pamh, &raw mut user, ptr::null()) } {
            // SAFETY: a string of libpam's, which it keeps for as long as the name is not set anew, and
            // nothing here does that.
            0 if !user.is_null() => Ok(unsafe { CStr::from_ptr(user) }),
            0 => Err(Code::USER_UNKNOWN),
            code => Err(Code(code)),
        }
    }

    fn raw_item(&self, item: Item) -> *const c_void {
        let mut value = ptr::null();
        // SAFETY: libpam's handle; `value` has room for what the call writes.
        match unsafe { pam_get_item(self.pamh, item as c_int, &raw mut value) } {
            0 => value,
            _ => ptr::null(),
        }
    }

    /// A text; empty where there is none. Not for [`Item::Conversation`].
    fn text(&self, item: Item) -> Option<&CStr> {
        let value = self.raw_item(item).cast::<c_char>();
        // SAFETY: a string of libpam's; each use ends before anything here sets the item anew.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    }

    /// What the program says of the user, cut to that length.
    pub fn said(&self, item: Item, bytes_max: usize) -> &[u8] {
        let text = self.text(item).map_or(&b""[..], CStr::to_bytes);
        text.get(..bytes_max).unwrap_or(text)
    }

    /// A password that a module before this one put down; of one that is longer than any may be, so
    /// much that it is still too long.
    pub fn password(&self, item: Item) -> Option<Secret> {
        let bytes = self.text(item)?.to_bytes();
        Secret::copy_of(bytes.get(..=SECRET_BYTES_MAX).unwrap_or(bytes))
    }

    /// Puts a password down for other modules, and for the next call.
    pub fn set_password(&self, item: Item, password: &Secret) -> Result<(), Code> {
        let bytes = password.as_bytes();
        let room = bytes.len().saturating_add(1);
        let mut with_end = Secret::with_room(room).ok_or(Code::BUF_ERR)?;
        let put = with_end.extend(bytes).and_then(|()| with_end.extend(&[0]));
        put.ok_or(Code::BUF_ERR)?;
        let value = with_end.as_bytes().as_ptr().cast();
        // SAFETY: libpam copies the string, which ends with the NUL just put there.
        match unsafe { pam_set_item(self.pamh, item as c_int, value) } {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    /// Notes something for later calls with this handle, or that it is so no more.
    pub fn note(&self, name: &CStr, is_so: bool) {
        static SO: u8 = 1;
        let data = if is_so { (&raw const SO).cast_mut().cast() } else { ptr::null_mut() };
        // SAFETY: libpam copies the name; what `data` leads to lasts for ever, is never written to, and needs
        // no cleaning up. Where there is no memory for it, a password that must be changed is taken once more.
        unsafe { pam_set_data(self.pamh, name.as_ptr(), data, None) };
    }

    /// Whether that was noted.
    pub fn is_noted(&self, name: &CStr) -> bool {
        let mut data = ptr::null();
        // SAFETY: `name` ends with a NUL; `data` has room for what the call writes, and is not followed.
        let code = unsafe { pam_get_data(self.pamh, name.as_ptr(), &raw mut data) };
        code == 0 && !data.is_null()
    }

    /// Keeps bytes for later calls with this handle, until it ends.
    pub fn keep(&self, name: &CStr, bytes: Secret) {
        // SAFETY: malloc(3) gives room for one, aligned for anything.
        let place = unsafe { libc::malloc(size_of::<Secret>()) }.cast::<Secret>();
        if place.is_null() {
            return;
        }
        // SAFETY: the place of above, which holds nothing yet; libpam copies the name, and gives the place to
        // `forget` when the data is replaced or the handle ends, and nobody else uses that name.
        unsafe {
            place.write(bytes);
            if pam_set_data(self.pamh, name.as_ptr(), place.cast(), Some(forget)) != 0 {
                forget(self.pamh, place.cast(), 0);
            }
        }
    }

    /// A copy of what was kept by that name.
    pub fn kept(&self, name: &CStr) -> Option<Secret> {
        let mut data = ptr::null();
        // SAFETY: `name` ends with a NUL; `data` has room for what the call writes.
        let code = unsafe { pam_get_data(self.pamh, name.as_ptr(), &raw mut data) };
        if code != 0 || data.is_null() {
            return None;
        }
        // SAFETY: what `keep` put there, which stays until it is replaced, after this.
        Secret::copy_of(unsafe { &*data.cast::<Secret>() }.as_bytes())
    }

    /// Keeps it no longer.
    pub fn drop_kept(&self, name: &CStr) {
        // SAFETY: libpam copies the name, and gives what was kept to `forget`.
        unsafe { pam_set_data(self.pamh, name.as_ptr(), ptr::null_mut(), None) };
    }

    /// A variable that the session is to have.
    pub fn variable(&self, name: &CStr) -> Option<&CStr> {
        // SAFETY: a name that ends with a NUL; libpam keeps the value until the variable is set anew.
        let value = unsafe { pam_getenv(self.pamh, name.as_ptr()) };
        // SAFETY: a string of libpam's, if any.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    }

    /// Sets such a variable, `NAME=VALUE`, or takes it away, `NAME`.
    pub fn set_variable(&self, text: &CStr) {
        // SAFETY: libpam copies the text. Without memory the session does without.
        unsafe { pam_putenv(self.pamh, text.as_ptr()) };
    }

    /// User and group id of a user.
    pub fn ids(&self, user: &CStr) -> Option<(u32, u32)> {
        // SAFETY: a name that ends with a NUL; libpam keeps the record until the handle ends.
        let found = unsafe { pam_modutil_getpwnam(self.pamh, user.as_ptr()) };
        // SAFETY: a record of libpam's, if any.
        unsafe { found.as_ref() }.map(|found| (found.pw_uid, found.pw_gid))
    }

    /// Failures of the whole stack take at least about so long.
    pub fn delay_failure(&self, microseconds: u32) {
        // SAFETY: libpam's handle and a number.
        unsafe { pam_fail_delay(self.pamh, microseconds) };
    }

    /// A line in the log, with the user's name in it.
    pub fn log(&self, priority: Priority, text: &CStr, user: &CStr) {
        let format = c"%s: %s";
        // SAFETY: the format takes two strings, and is given them; both end with a NUL.
        unsafe {
            pam_syslog(self.pamh, priority as c_int, format.as_ptr(), text.as_ptr(), user.as_ptr());
        }
    }

    /// Shows a text, as far as the program can.
    pub fn show(&self, style: Style, text: &[u8]) {
        let mut room = [0_u8; MESSAGE_BYTES_MAX + 1];
        // The last byte stays the NUL that it is.
        for (to, from) in room.iter_mut().take(MESSAGE_BYTES_MAX).zip(text) {
            *to = *from;
        }
        if let Ok(text) = CStr::from_bytes_until_nul(&room) {
            let _ = self.converse(style, text);
        }
    }

    /// Asks for a password.
    pub fn prompt(&self, text: &CStr) -> Result<Secret, Code> {
        self.converse(Style::Hidden, text)?.ok_or(Code::CONV_ERR)
    }

    /// One message, and what is answered to it.
    fn converse(&self, style: Style, text: &CStr) -> Result<Option<Secret>, Code> {
        let conversation = self.raw_item(Item::Conversation).cast::<Conversation>();
        if conversation.is_null() {
            return Err(Code::CONV_ERR);
        }
        // SAFETY: libpam's item of that number leads to the program's conversation.
        let Conversation { hold: Some(hold), data } = (unsafe { conversation.read() }) else {
            return Err(Code::CONV_ERR);
        };
        let message = Message { style: style as c_int, text: text.as_ptr() };
        let messages = [&raw const message];
        let mut responses = ptr::null_mut::<Response>();
        // SAFETY: as pam_conv(3) has it: one message, with a text that ends with a NUL; `responses` has room
        // for what the call writes.
        let code = unsafe { hold(1, messages.as_ptr(), &raw mut responses, data) };
        if code != 0 {
            return Err(Code(code));
        }
        if responses.is_null() {
            return Ok(None);
        }
        // SAFETY: the program gives one response for one message, in memory of malloc(3)'s that is ours now.
        let response = unsafe { responses.read() };
        let mut answer = Ok(None);
        if !response.text.is_null() {
            // SAFETY: a string of malloc(3)'s that is ours now; nothing else refers to it.
            let bytes = unsafe {
                let length = libc::strlen(response.text);
                core::slice::from_raw_parts_mut(response.text.cast::<u8>(), length)
            };
            let kept = bytes.get(..=SECRET_BYTES_MAX).unwrap_or(bytes);
            answer = Secret::copy_of(kept).map(Some).ok_or(Code::BUF_ERR);
            wipe(bytes);
            // SAFETY: malloc(3)'s, and not used again.
            unsafe { libc::free(response.text.cast()) };
        }
        // SAFETY: malloc(3)'s, and not used again.
        unsafe { libc::free(responses.cast()) };
        answer
    }
}
