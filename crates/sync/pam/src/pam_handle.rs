// SPDX-License-Identifier: MIT OR Apache-2.0
//! libpam's handle: items, the conversation, the log. This module decides nothing: `service_functions` calls it.
#![allow(unsafe_code)]

use crate::return_codes::PamCode;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::marker::PhantomData;
use core::ptr;
use roster_request::auth::{MESSAGE_BYTES_MAX, SECRET_BYTES_MAX};
use roster_secret::{Secret, wipe};

/// The type of libpam's handle.
#[repr(C)]
pub struct PamHandle {
    private: [u8; 0],
}

#[repr(C)]
struct PamMessage {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct PamResponse {
    text: *mut c_char,
    code: c_int,
}

#[repr(C)]
struct PamConversation {
    converse: Option<
        unsafe extern "C" fn(
            c_int,
            *const *const PamMessage,
            *mut *mut PamResponse,
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

/// Items that libpam stores for the modules of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum PamItem {
    /// The user.
    User = 2,
    /// The service.
    Service = 1,
    /// The terminal.
    Terminal = 3,
    /// The remote host.
    RemoteHost = 4,
    /// The conversation function.
    Conversation = 5,
    /// The password.
    Password = 6,
    /// The password before its change.
    OldPassword = 7,
    /// The requesting user.
    RemoteUser = 8,
}

/// Style of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum MessageStyle {
    /// A prompt with a hidden reply.
    Hidden = 1,
    /// An error.
    Error = 3,
    /// Information.
    Info = 4,
}

/// Priority of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum LogPriority {
    /// An error that needs attention.
    Error = libc::LOG_ERR,
    /// Detail for debugging.
    Debug = libc::LOG_DEBUG,
}

/// Wipes data of [`CallHandle::store_data`].
///
/// # Safety
/// `data` is null or the address of a `Secret`, which is not used after this.
unsafe extern "C" fn free_data(_: *mut PamHandle, data: *mut c_void, _: c_int) {
    if !data.is_null() {
        // SAFETY: the caller's promise; the memory is from malloc(3).
        unsafe {
            data.cast::<Secret>().drop_in_place();
            libc::free(data);
        }
    }
}

/// A call's handle.
pub struct CallHandle<'c> {
    pamh: *mut PamHandle,
    call: PhantomData<&'c ()>,
}

impl CallHandle<'_> {
    /// # Safety
    /// It is libpam's handle, and stays valid for the lifetime of this value.
    pub unsafe fn new(pamh: *mut PamHandle) -> Self {
        Self { pamh, call: PhantomData }
    }

    /// Returns the user of the login. libpam prompts for it if the program has not set it.
    pub fn user(&self) -> Result<&CStr, PamCode> {
        let mut user = ptr::null();
        // SAFETY: libpam's handle; the call writes a pointer to `user`, and no prompt means the default one.
        match unsafe { pam_get_user(self.pamh, &raw mut user, ptr::null()) } {
            // SAFETY: a string that libpam owns. It stays valid until the name is set again, which this module does
            // after its last use only.
            0 if !user.is_null() => Ok(unsafe { CStr::from_ptr(user) }),
            0 => Err(PamCode::USER_UNKNOWN),
            code => Err(PamCode(code)),
        }
    }

    fn raw_item(&self, item: PamItem) -> *const c_void {
        let mut value = ptr::null();
        // SAFETY: libpam's handle; the call writes a pointer to `value`.
        match unsafe { pam_get_item(self.pamh, item as c_int, &raw mut value) } {
            0 => value,
            _ => ptr::null(),
        }
    }

    /// Returns a text item, if it is set. Not for [`PamItem::Conversation`].
    fn text(&self, item: PamItem) -> Option<&CStr> {
        let value = self.raw_item(item).cast::<c_char>();
        // SAFETY: a string that libpam owns; each use ends before this module sets the item again.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    }

    /// Returns an item of the program, cut to that length.
    pub fn item_text(&self, item: PamItem, bytes_max: usize) -> &[u8] {
        let text = self.text(item).map_or(&b""[..], CStr::to_bytes);
        text.get(..bytes_max).unwrap_or(text)
    }

    /// Returns a password from an earlier module. A too long one is cut, but stays too long.
    pub fn password(&self, item: PamItem) -> Option<Secret> {
        let bytes = self.text(item)?.to_bytes();
        Secret::copy_of(bytes.get(..=SECRET_BYTES_MAX).unwrap_or(bytes))
    }

    /// Stores a password for other modules, and for the next call.
    pub fn set_password(&self, item: PamItem, password: &Secret) -> Result<(), PamCode> {
        let bytes = password.as_bytes();
        let room = bytes.len().saturating_add(1);
        let mut with_end = Secret::with_capacity(room).ok_or(PamCode::BUF_ERR)?;
        let put = with_end.extend(bytes).and_then(|()| with_end.extend(&[0]));
        put.ok_or(PamCode::BUF_ERR)?;
        let value = with_end.as_bytes().as_ptr().cast();
        // SAFETY: libpam copies the string, which ends with the NUL just put there.
        match unsafe { pam_set_item(self.pamh, item as c_int, value) } {
            0 => Ok(()),
            code => Err(PamCode(code)),
        }
    }

    /// Sets or clears a flag for later calls with this handle.
    pub fn set_flag(&self, name: &CStr, is_so: bool) {
        static SO: u8 = 1;
        let data = if is_so { (&raw const SO).cast_mut().cast() } else { ptr::null_mut() };
        // SAFETY: libpam copies the name; `data` points to a static that is never written to and needs no cleanup.
        // Without memory for it, a password that must be changed is accepted once more.
        unsafe { pam_set_data(self.pamh, name.as_ptr(), data, None) };
    }

    /// Whether the flag is set.
    pub fn has_flag(&self, name: &CStr) -> bool {
        let mut data = ptr::null();
        // SAFETY: `name` ends with a NUL; the call writes a pointer to `data`, which is not dereferenced.
        let code = unsafe { pam_get_data(self.pamh, name.as_ptr(), &raw mut data) };
        code == 0 && !data.is_null()
    }

    /// Stores bytes for later calls with this handle, until it ends.
    pub fn store_data(&self, name: &CStr, bytes: Secret) {
        // SAFETY: malloc(3) returns memory for one value, aligned for any type.
        let place = unsafe { libc::malloc(size_of::<Secret>()) }.cast::<Secret>();
        if place.is_null() {
            return;
        }
        // SAFETY: the memory from above, which holds no value yet. libpam copies the name, and passes the memory to
        // `free_data` when the data is replaced or the handle ends. No other code uses that name.
        unsafe {
            place.write(bytes);
            if pam_set_data(self.pamh, name.as_ptr(), place.cast(), Some(free_data)) != 0 {
                free_data(self.pamh, place.cast(), 0);
            }
        }
    }

    /// Returns a copy of the data stored under that name.
    pub fn stored_data(&self, name: &CStr) -> Option<Secret> {
        let mut data = ptr::null();
        // SAFETY: `name` ends with a NUL; the call writes a pointer to `data`.
        let code = unsafe { pam_get_data(self.pamh, name.as_ptr(), &raw mut data) };
        if code != 0 || data.is_null() {
            return None;
        }
        // SAFETY: a value of `store_data`, which stays valid until it is replaced, after this.
        Secret::copy_of(unsafe { &*data.cast::<Secret>() }.as_bytes())
    }

    /// Removes the data.
    pub fn remove_data(&self, name: &CStr) {
        // SAFETY: libpam copies the name, and passes the stored data to `free_data`.
        unsafe { pam_set_data(self.pamh, name.as_ptr(), ptr::null_mut(), None) };
    }

    /// Returns a variable of the session.
    pub fn variable(&self, name: &CStr) -> Option<&CStr> {
        // SAFETY: a name that ends with a NUL; the value stays valid until the variable is set again.
        let value = unsafe { pam_getenv(self.pamh, name.as_ptr()) };
        // SAFETY: a string that libpam owns, if any.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    }

    /// Sets such a variable, `NAME=VALUE`, or removes it, `NAME`.
    pub fn set_variable(&self, text: &CStr) {
        // SAFETY: libpam copies the text. Without memory the session lacks the variable.
        unsafe { pam_putenv(self.pamh, text.as_ptr()) };
    }

    /// Returns the name of a user in the databases of the host, which may differ from the name that found it.
    pub fn canonical_name(&self, user: &CStr) -> Option<&CStr> {
        // SAFETY: a name that ends with a NUL; libpam retains the record until the handle ends.
        let found = unsafe { pam_modutil_getpwnam(self.pamh, user.as_ptr()) };
        // SAFETY: a record that libpam owns, if any.
        let name = unsafe { found.as_ref() }?.pw_name;
        // SAFETY: a string of the record.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
    }

    /// Sets the user of the login.
    pub fn set_user(&self, user: &CStr) {
        // SAFETY: libpam copies the string. Without memory the old name stays.
        unsafe { pam_set_item(self.pamh, PamItem::User as c_int, user.as_ptr().cast()) };
    }

    /// Returns the user and group id of a user.
    pub fn ids(&self, user: &CStr) -> Option<(u32, u32)> {
        // SAFETY: a name that ends with a NUL; libpam retains the record until the handle ends.
        let found = unsafe { pam_modutil_getpwnam(self.pamh, user.as_ptr()) };
        // SAFETY: a record that libpam owns, if any.
        unsafe { found.as_ref() }.map(|found| (found.pw_uid, found.pw_gid))
    }

    /// Delays a failure of the whole stack by about this time.
    pub fn delay_failure(&self, microseconds: u32) {
        // SAFETY: libpam's handle and a number.
        unsafe { pam_fail_delay(self.pamh, microseconds) };
    }

    /// Writes a line to the log: the user's name and the text.
    pub fn log(&self, priority: LogPriority, user: &CStr, text: &CStr) {
        let format = c"%s: %s";
        // SAFETY: the format takes two strings, and gets them; both end with a NUL.
        unsafe {
            pam_syslog(self.pamh, priority as c_int, format.as_ptr(), user.as_ptr(), text.as_ptr());
        }
    }

    /// Shows a text, if the program can.
    pub fn show(&self, style: MessageStyle, text: &[u8]) {
        let mut room = [0_u8; MESSAGE_BYTES_MAX + 1];
        // The last byte stays NUL.
        for (to, from) in room.iter_mut().take(MESSAGE_BYTES_MAX).zip(text) {
            *to = *from;
        }
        if let Ok(text) = CStr::from_bytes_until_nul(&room) {
            let _ = self.converse(style, text);
        }
    }

    /// Prompts for a password.
    pub fn prompt(&self, text: &CStr) -> Result<Secret, PamCode> {
        self.converse(MessageStyle::Hidden, text)?.ok_or(PamCode::CONV_ERR)
    }

    /// Sends one message, and returns the reply.
    fn converse(&self, style: MessageStyle, text: &CStr) -> Result<Option<Secret>, PamCode> {
        let conversation = self.raw_item(PamItem::Conversation).cast::<PamConversation>();
        if conversation.is_null() {
            return Err(PamCode::CONV_ERR);
        }
        // SAFETY: libpam's item of that number points to the program's conversation.
        let PamConversation { converse: Some(hold), data } = (unsafe { conversation.read() })
        else {
            return Err(PamCode::CONV_ERR);
        };
        let message = PamMessage { style: style as c_int, text: text.as_ptr() };
        let messages = [&raw const message];
        let mut responses = ptr::null_mut::<PamResponse>();
        // SAFETY: as pam_conv(3) requires: one message, with a text that ends with a NUL; the call writes a pointer to
        // `responses`.
        let code = unsafe { hold(1, messages.as_ptr(), &raw mut responses, data) };
        if code != 0 {
            return Err(PamCode(code));
        }
        if responses.is_null() {
            return Ok(None);
        }
        // SAFETY: the program returns one response for one message, in memory from malloc(3) that this module owns now.
        let response = unsafe { responses.read() };
        let mut answer = Ok(None);
        if !response.text.is_null() {
            // SAFETY: a string from malloc(3) that this module owns now; nothing else refers to it.
            let bytes = unsafe {
                let length = libc::strlen(response.text);
                core::slice::from_raw_parts_mut(response.text.cast::<u8>(), length)
            };
            let kept = bytes.get(..=SECRET_BYTES_MAX).unwrap_or(bytes);
            answer = Secret::copy_of(kept).map(Some).ok_or(PamCode::BUF_ERR);
            wipe(bytes);
            // SAFETY: memory from malloc(3), not used again.
            unsafe { libc::free(response.text.cast()) };
        }
        // SAFETY: memory from malloc(3), not used again.
        unsafe { libc::free(responses.cast()) };
        answer
    }
}
