// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls PAM (Linux-PAM's security/pam_appl.h) as login programs do. The library is loaded on demand, so the lab runs
//! on hosts without PAM. `blocking_engine` calls it for each request.
#![allow(unsafe_code)]

use crate::coded::Coded;
use crate::request_error::{CodeSource, RequestError};
use anyhow::Result;
use libc::{c_char, c_int, c_void};
use roster_messages::table::lab;
use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr};
use std::path::Path;
use std::ptr;

const SUCCESS: c_int = 0;
const BUFFER_ERROR: c_int = 5;
const CONVERSATION_ERROR: c_int = 19;
/// PAM_MAX_NUM_MSG.
const MESSAGES_MAX: c_int = 32;
const PROMPT_HIDDEN: c_int = 1;
const PROMPT_SHOWN: c_int = 2;
const ESTABLISH: c_int = 2;
const DELETE: c_int = 4;

/// Steps of a login, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum PamStep {
    /// Check the password
    Auth,
    /// Check that the account is valid
    Account,
    /// Establish the credentials, and delete them at the end
    Credentials,
    /// Open the session, and close it
    Session,
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

type Converse =
    extern "C" fn(c_int, *const *const PamMessage, *mut *mut PamResponse, *mut c_void) -> c_int;

#[repr(C)]
struct Conversation {
    converse: Converse,
    data: *mut c_void,
}

type PamHandle = *mut c_void;
type PamStart = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const Conversation,
    *const c_char,
    *mut PamHandle,
) -> c_int;
type PamCall = unsafe extern "C" fn(PamHandle, c_int) -> c_int;

/// The functions of the library.
#[derive(Clone, Copy, Debug)]
struct PamFunctions {
    start: PamStart,
    authenticate: PamCall,
    account: PamCall,
    credentials: PamCall,
    open: PamCall,
    close: PamCall,
    end: PamCall,
}

#[derive(Clone, Debug)]
pub struct PamService {
    functions: PamFunctions,
    service: CString,
    config_dir: Option<CString>,
    steps: Vec<PamStep>,
}

/// Replies of the conversation. They live as long as the login.
struct PamCredentials {
    user: CString,
    password: CString,
}

impl PamService {
    /// Loads the library. `folder` is the directory of services, instead of /etc/pam.d.
    pub fn load(service: &str, folder: Option<&Path>, steps: &[PamStep]) -> Result<Self> {
        let library = super::load(OsStr::new("libpam.so.0"))?;
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: a function of this name has this type, by security/pam_appl.h.
                let function = unsafe { library.get($name) };
                let missing = format_args!("libpam.so.0: no function {}", $name.escape_ascii());
                *function.coded(&lab::PAM_TOO_OLD, missing)?
            }};
        }
        let functions = PamFunctions {
            start: function!(b"pam_start_confdir"),
            authenticate: function!(b"pam_authenticate"),
            account: function!(b"pam_acct_mgmt"),
            credentials: function!(b"pam_setcred"),
            open: function!(b"pam_open_session"),
            close: function!(b"pam_close_session"),
            end: function!(b"pam_end"),
        };
        let folder = folder.map(|folder| CString::new(folder.as_os_str().as_encoded_bytes()));
        let mut steps = steps.to_vec();
        steps.sort_unstable();
        steps.dedup();
        Ok(Self {
            functions,
            service: CString::new(service).coded(&lab::NUL_IN_OPTION, "--service: NUL byte")?,
            config_dir: folder
                .transpose()
                .coded(&lab::NUL_IN_OPTION, "--config-folder: NUL byte")?,
            steps,
        })
    }

    /// Makes one login, from pam_start to pam_end.
    pub fn login(&self, user: &[u8], password: &[u8]) -> Result<(), RequestError> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| RequestError::NulByte("name or password"))
        };
        let answers = PamCredentials { user: text(user)?, password: text(password)? };
        let data = (&raw const answers).cast_mut().cast();
        let conversation = Conversation { converse, data };
        let mut handle: PamHandle = ptr::null_mut();
        let folder = self.config_dir.as_ref().map_or(ptr::null(), |folder| folder.as_ptr());
        let PamFunctions { start, end, .. } = self.functions;
        // SAFETY: names end with a NUL; the conversation and its data outlive the handle.
        let status = unsafe {
            let conversation = &raw const conversation;
            start(
                self.service.as_ptr(),
                answers.user.as_ptr(),
                conversation,
                folder,
                &raw mut handle,
            )
        };
        status_to_result(status)?;
        let status = self.run_steps(handle);
        // SAFETY: the handle was started, and is not used afterwards.
        let ended = unsafe { end(handle, status) };
        status_to_result(status).and(status_to_result(ended))
    }

    /// Performs the steps and undoes them. Returns the first status that is not success.
    fn run_steps(&self, handle: PamHandle) -> c_int {
        let PamFunctions { authenticate, account, credentials, open, close, .. } = self.functions;
        // SAFETY: the handle was started, and calls are sequential.
        let call = |function: PamCall, flags| unsafe { function(handle, flags) };
        let mut back: Vec<(PamCall, c_int)> = Vec::new();
        let mut status = SUCCESS;
        for step in &self.steps {
            status = match step {
                PamStep::Auth => call(authenticate, 0),
                PamStep::Account => call(account, 0),
                PamStep::Credentials => call(credentials, ESTABLISH),
                PamStep::Session => call(open, 0),
            };
            if status != SUCCESS {
                break;
            }
            match step {
                PamStep::Auth | PamStep::Account => {}
                PamStep::Credentials => back.push((credentials, DELETE)),
                PamStep::Session => back.push((close, 0)),
            }
        }
        for (function, flags) in back.into_iter().rev() {
            let undone = call(function, flags);
            status = if status == SUCCESS { undone } else { status };
        }
        status
    }
}

/// Replies to prompts of modules: to a hidden prompt with the password, to another with the name.
extern "C" fn converse(
    count: c_int,
    messages: *const *const PamMessage,
    responses: *mut *mut PamResponse,
    data: *mut c_void,
) -> c_int {
    let Some(size) = usize::try_from(count).ok().filter(|_| (1..=MESSAGES_MAX).contains(&count))
    else {
        return CONVERSATION_ERROR;
    };
    // SAFETY: `login` passes this pointer, and its target lives until pam_end.
    let answers = unsafe { &*data.cast::<PamCredentials>() };
    // SAFETY: the list has space for a response to each message, and PAM frees it.
    let list: *mut PamResponse = unsafe { libc::calloc(size, size_of::<PamResponse>()) }.cast();
    if list.is_null() {
        return BUFFER_ERROR;
    }
    for at in 0..size {
        // SAFETY: Linux-PAM passes an array of `count` pointers to messages.
        let style = unsafe { (**messages.add(at)).style };
        let answer: Option<&CStr> = match style {
            PROMPT_HIDDEN => Some(&answers.password),
            PROMPT_SHOWN => Some(&answers.user),
            _ => None,
        };
        if let Some(answer) = answer {
            // SAFETY: the list has space for the response; the copy is from malloc, and PAM frees it.
            unsafe { (*list.add(at)).text = libc::strdup(answer.as_ptr()) };
        }
    }
    // SAFETY: PAM passes a writable location for the list.
    unsafe { responses.write(list) };
    SUCCESS
}

fn status_to_result(status: c_int) -> Result<(), RequestError> {
    match u32::try_from(status) {
        Ok(0) => Ok(()),
        Ok(code) => Err(RequestError::ErrorCode(CodeSource::Pam, code, name(code))),
        Err(_) => Err(RequestError::Malformed("negative status of PAM")),
    }
}

/// Returns the name of a status.
fn name(code: u32) -> Cow<'static, str> {
    Cow::Borrowed(match code {
        1 => "PAM_OPEN_ERR",
        2 => "PAM_SYMBOL_ERR",
        3 => "PAM_SERVICE_ERR",
        4 => "PAM_SYSTEM_ERR",
        5 => "PAM_BUF_ERR",
        6 => "PAM_PERM_DENIED",
        7 => "PAM_AUTH_ERR",
        8 => "PAM_CRED_INSUFFICIENT",
        9 => "PAM_AUTHINFO_UNAVAIL",
        10 => "PAM_USER_UNKNOWN",
        11 => "PAM_MAXTRIES",
        12 => "PAM_NEW_AUTHTOK_REQD",
        13 => "PAM_ACCT_EXPIRED",
        14 => "PAM_SESSION_ERR",
        15 => "PAM_CRED_UNAVAIL",
        16 => "PAM_CRED_EXPIRED",
        17 => "PAM_CRED_ERR",
        19 => "PAM_CONV_ERR",
        20 => "PAM_AUTHTOK_ERR",
        26 => "PAM_ABORT",
        28 => "PAM_MODULE_UNKNOWN",
        _ => "",
    })
}
