//! libkrb5 for the rest of this program: contexts, exchanges, tickets, keytabs and credential caches
//! that free themselves and give errors with the library's own words.
//!
//! The one module that calls it. A context is made of a text in the syntax of krb5.conf(5) that the
//! caller has, as a secure one: neither the environment nor a file of this host has a say. Nothing here
//! asks a user anything, and nothing bounds the time that a server may take: that is done by ending the
//! process ([`crate::serve`]).

#![allow(unsafe_code)]

use crate::sys;
use roster_krb5::file;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;
use zeroize::Zeroizing;

/// What libkrb5 says when something did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct Error {
    /// Its number, of <krb5.h>.
    pub code: i32,
    /// In words.
    pub words: String,
}

/// Longest text of a message that is taken from the library: it may hold what a server said.
const WORDS_BYTES_MAX: usize = 512;
/// Tickets that are read of one cache; keys of one keytab.
const ENTRIES_MAX: usize = 1024;

/// A library context.
#[derive(Debug)]
pub struct Context {
    raw: sys::krb5_context,
    /// Its configuration, which the library looks at again: a file without a name.
    _profile: OwnedFd,
}

impl Context {
    /// A context that goes by this text in the syntax of krb5.conf(5) alone.
    pub fn new(profile: &str) -> io::Result<Self> {
        let mut file = File::from(memfd_create("roster-krb5.conf", MemfdFlags::CLOEXEC)?);
        file.write_all(profile.as_bytes())?;
        let path = descriptor_path(&file)?;
        let mut parsed = ptr::null_mut();
        // SAFETY: a path that ends in NUL, and a place for the result.
        let failed = unsafe { sys::profile_init_path(path.as_ptr(), &raw mut parsed) };
        if failed != 0 {
            return Err(io::Error::other(format!(
                "libkrb5 does not take its configuration ({failed})"
            )));
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the profile is one, and copied before it is released; `raw` takes the result.
        let code = unsafe {
            let secure = sys::KRB5_INIT_CONTEXT_SECURE;
            let code = sys::krb5_init_context_profile(parsed, secure, &raw mut raw);
            sys::profile_release(parsed);
            code
        };
        if code != 0 {
            return Err(io::Error::other(format!("libkrb5 does not start ({code})")));
        }
        Ok(Self { raw, _profile: file.into() })
    }

    fn check(&self, code: sys::krb5_error_code) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(self.error(code)) }
    }

    fn error(&self, code: sys::krb5_error_code) -> Error {
        // SAFETY: the message is a string that ends in NUL until it is freed, and copied before.
        let words = unsafe {
            let message = sys::krb5_get_error_message(self.raw, code);
            let words = CStr::from_ptr(message).to_string_lossy().into_owned();
            sys::krb5_free_error_message(self.raw, message);
            words
        };
        Error { code, words: one_line(&words) }
    }

    /// The principal `name` in `realm`. The name is one component whatever is in it: with a slash it
    /// is nobody's rather than a service's.
    pub fn user(&self, name: &str, realm: &str) -> Result<Principal<'_>, Error> {
        let mut raw = ptr::null_mut();
        let length = |text: &str| c_uint::try_from(text.len()).unwrap_or(0);
        // SAFETY: lengths and bytes in turn, as the function wants, and a 0 in place of a further length.
        let code = unsafe {
            sys::krb5_build_principal_ext(
                self.raw,
                &raw mut raw,
                length(realm),
                realm.as_ptr().cast(),
                length(name),
                name.as_ptr().cast::<c_char>(),
                0 as c_uint,
            )
        };
        self.check(code)?;
        Ok(Principal { context: self, raw })
    }

    /// A principal as people write it, `alice@EXAMPLE.COM`.
    pub fn principal(&self, text: &str) -> Result<Principal<'_>, Error> {
        let text = c_string(text)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { sys::krb5_parse_name(self.raw, text.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Principal { context: self, raw })
    }

    /// What a password gets of the KDC: a ticket for `service`, the realm's ticket-granting service if
    /// none is named. The KDC is asked once; a wrong password does not go to a second one. With an `armor`,
    /// which holds a ticket of this host's, all that is said is under a key that the right KDC alone has
    /// (FAST, RFC 6113).
    pub fn log_in(
        &self,
        client: &Principal<'_>,
        password: &CStr,
        service: Option<&CStr>,
        wishes: &Wishes,
        armor: Option<&Cache<'_>>,
    ) -> Result<Granted<'_>, Error> {
        let options = Options::new(self, wishes)?;
        if let Some(armor) = armor {
            // SAFETY: options and cache are valid; the library takes the cache's name.
            unsafe {
                let (options, cache) = (options.raw, armor.raw);
                let code = sys::krb5_get_init_creds_opt_set_fast_ccache(self.raw, options, cache);
                self.check(code)?;
                let flags = sys::KRB5_FAST_REQUIRED;
                let code = sys::krb5_get_init_creds_opt_set_fast_flags(self.raw, options, flags);
                self.check(code)?;
            }
        }
        let mut expires = 0_u32;
        let place: *mut u32 = &raw mut expires;
        // SAFETY: `place` outlives the exchange below, the only one in which it is written.
        let code = unsafe {
            let callback = note_expiry;
            sys::krb5_get_init_creds_opt_set_expire_callback(
                self.raw,
                options.raw,
                callback,
                place.cast(),
            )
        };
        self.check(code)?;
        let exchange = Exchange::new(self, client, &options)?;
        // SAFETY: context, exchange and strings live until the calls return.
        unsafe {
            self.check(sys::krb5_init_creds_set_password(
                self.raw,
                exchange.raw,
                password.as_ptr(),
            ))?;
            if let Some(service) = service {
                let service = service.as_ptr();
                self.check(sys::krb5_init_creds_set_service(self.raw, exchange.raw, service))?;
            }
            self.check(sys::krb5_init_creds_get(self.raw, exchange.raw))?;
        }
        let mut tickets = Credentials::empty(self);
        // SAFETY: the place is for one set of credentials, and freed with it.
        let code =
            unsafe { sys::krb5_init_creds_get_creds(self.raw, exchange.raw, &raw mut tickets.raw) };
        self.check(code)?;
        drop(exchange);
        Ok(Granted { tickets, password_expires: expires })
    }

    /// A ticket of this host's own, by whichever of its keys the KDC takes, in a cache in memory.
    pub fn armor(&self, keytab: &Keytab<'_>) -> Result<Cache<'_>, Error> {
        let mut failed = Error { code: KT_NOTFOUND, words: "there is no key in the keytab".into() };
        for name in keytab.principals()? {
            let principal = self.principal(&name)?;
            match self.ticket_of(&principal, keytab) {
                Ok(ticket) => {
                    let cache = self.new_cache("MEMORY")?;
                    cache.fill(&principal, &mut [ticket])?;
                    return Ok(cache);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn ticket_of(
        &self,
        principal: &Principal<'_>,
        keytab: &Keytab<'_>,
    ) -> Result<Credentials<'_>, Error> {
        let options = Options::new(self, &Wishes::default())?;
        let mut tickets = Credentials::empty(self);
        // SAFETY: principal, keytab and options are valid; no service is the ticket-granting one.
        let code = unsafe {
            sys::krb5_get_init_creds_keytab(
                self.raw,
                &raw mut tickets.raw,
                principal.raw,
                keytab.raw,
                0,
                ptr::null(),
                options.raw,
            )
        };
        self.check(code)?;
        Ok(tickets)
    }

    /// Loads what the first exchange of a process would: modules for pre-authentication.
    pub fn warm_up(&self, realm: &str) -> Result<(), Error> {
        let nobody = self.user("nobody", realm)?;
        let options = Options::new(self, &Wishes::default())?;
        Exchange::new(self, &nobody, &options).map(drop)
    }

    /// Changes a password, with a ticket for `kadmin/changepw`.
    pub fn change_password(
        &self,
        tickets: &mut Credentials<'_>,
        new: &CStr,
    ) -> Result<Changed, Error> {
        let mut code = c_int::default();
        let (mut about, mut said) = (Data::empty(self), Data::empty(self));
        // SAFETY: every place outlives the call; what it puts there is freed with `Data`.
        let failed = unsafe {
            sys::krb5_change_password(
                self.raw,
                &raw mut tickets.raw,
                new.as_ptr(),
                &raw mut code,
                &raw mut about.raw,
                &raw mut said.raw,
            )
        };
        self.check(failed)?;
        if code == 0 {
            return Ok(Changed::Done);
        }
        let mut message = ptr::null_mut();
        // SAFETY: the server's words as they came; the message ends in NUL and is freed once copied.
        let words = unsafe {
            self.check(sys::krb5_chpw_message(self.raw, &raw const said.raw, &raw mut message))?;
            let words = CStr::from_ptr(message).to_string_lossy().into_owned();
            sys::krb5_free_string(self.raw, message);
            words
        };
        Ok(Changed::Refused { code, why: bounded(&words) })
    }

    /// The keys in the bytes of a keytab, as one that is in memory alone.
    pub fn keytab(&self, bytes: &[u8]) -> io::Result<Keytab<'_>> {
        let mut file = File::from(memfd_create("roster-keytab", MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        let path = descriptor_path(&file)?;
        let file = self.keytab_called(&path.to_string_lossy()).map_err(io::Error::other)?;
        let memory = self.keytab_called("MEMORY:roster").map_err(io::Error::other)?;
        let copied = file.copy_to(&memory).map_err(io::Error::other)?;
        if copied == 0 {
            return Err(io::Error::other("there is no key in it"));
        }
        Ok(memory)
    }

    fn keytab_called(&self, name: &str) -> Result<Keytab<'_>, Error> {
        let name = c_string(name)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { sys::krb5_kt_resolve(self.raw, name.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Keytab { context: self, raw })
    }

    /// The cache of that name, `FILE:/path` and the like.
    pub fn cache(&self, name: &str) -> Result<Cache<'_>, Error> {
        let name = c_string(name)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, and a place for the result.
        let code = unsafe { sys::krb5_cc_resolve(self.raw, name.as_ptr(), &raw mut raw) };
        self.check(code)?;
        Ok(Cache { context: self, raw })
    }

    /// A new cache in the collection that the context's `default_ccache_name` says.
    pub fn new_cache(&self, kind: &str) -> Result<Cache<'_>, Error> {
        let kind = c_string(kind)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a string that ends in NUL, no hint, and a place for the result.
        let code =
            unsafe { sys::krb5_cc_new_unique(self.raw, kind.as_ptr(), ptr::null(), &raw mut raw) };
        self.check(code)?;
        Ok(Cache { context: self, raw })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it is freed once; whatever was made of it borrows it, so is gone.
        unsafe { sys::krb5_free_context(self.raw) }
    }
}

/// Notes when the password will have expired, 0 for never.
///
/// # Safety
/// `data` is what [`Context::log_in`] gave.
unsafe extern "C" fn note_expiry(
    _: sys::krb5_context,
    data: *mut c_void,
    password_expiration: u32,
    _: u32,
    _: c_uint,
) {
    // SAFETY: a `u32` that lives until the exchange is over.
    unsafe { *data.cast::<u32>() = password_expiration }
}

/// What is asked for beyond a ticket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// For how long; the KDC's default when none.
    pub life: Option<Duration>,
    /// For how long the ticket may be renewed.
    pub renewable: Option<Duration>,
    /// Whether it may be handed on to another host.
    pub forwardable: bool,
}

/// What a log-in brought.
#[derive(Debug)]
pub struct Granted<'c> {
    /// The ticket.
    pub tickets: Credentials<'c>,
    /// When the password will have expired, in seconds since 1970; 0 when the KDC does not say.
    pub password_expires: u32,
}

/// What became of a change of password that the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is the new one.
    Done,
    /// It is still the old one.
    Refused {
        /// Of RFC 3244.
        code: i32,
        /// What the server said, for the user.
        why: String,
    },
}

/// Who a ticket is of, or for.
#[derive(Debug)]
pub struct Principal<'c> {
    context: &'c Context,
    raw: sys::krb5_principal,
}

impl Principal<'_> {
    /// As people write it.
    pub fn text(&self) -> Result<String, Error> {
        let mut name = ptr::null_mut();
        // SAFETY: the name ends in NUL until it is freed, and is copied before.
        unsafe {
            let code = sys::krb5_unparse_name(self.context.raw, self.raw, &raw mut name);
            self.context.check(code)?;
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            sys::krb5_free_unparsed_name(self.context.raw, name);
            Ok(text)
        }
    }
}

impl Drop for Principal<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { sys::krb5_free_principal(self.context.raw, self.raw) }
    }
}

/// Options of an exchange.
struct Options<'c> {
    context: &'c Context,
    raw: *mut sys::krb5_get_init_creds_opt,
}

impl<'c> Options<'c> {
    fn new(context: &'c Context, wishes: &Wishes) -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: a place for the result.
        context.check(unsafe { sys::krb5_get_init_creds_opt_alloc(context.raw, &raw mut raw) })?;
        let options = Self { context, raw };
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        // SAFETY: options that were made just now.
        unsafe {
            if let Some(life) = wishes.life {
                sys::krb5_get_init_creds_opt_set_tkt_life(raw, seconds(life));
            }
            sys::krb5_get_init_creds_opt_set_renew_life(raw, wishes.renewable.map_or(0, seconds));
            sys::krb5_get_init_creds_opt_set_forwardable(raw, wishes.forwardable.into());
            sys::krb5_get_init_creds_opt_set_proxiable(raw, 0);
        }
        Ok(options)
    }
}

impl Drop for Options<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { sys::krb5_get_init_creds_opt_free(self.context.raw, self.raw) }
    }
}

/// One exchange with a KDC. It reads its options and the client when it is made.
struct Exchange<'c> {
    context: &'c Context,
    raw: sys::krb5_init_creds_context,
    /// The library keeps a pointer to the options until the exchange is freed.
    _options: PhantomData<&'c Options<'c>>,
}

impl<'c> Exchange<'c> {
    fn new(
        context: &'c Context,
        client: &Principal<'_>,
        options: &'c Options<'_>,
    ) -> Result<Self, Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: client and options are valid, nobody is to be asked, and there is a place for the
        // result.
        let code = unsafe {
            sys::krb5_init_creds_init(
                context.raw,
                client.raw,
                None,
                ptr::null_mut(),
                0,
                options.raw,
                &raw mut raw,
            )
        };
        context.check(code)?;
        Ok(Self { context, raw, _options: PhantomData })
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { sys::krb5_init_creds_free(self.context.raw, self.raw) }
    }
}

/// A ticket with its session key.
#[derive(Debug)]
pub struct Credentials<'c> {
    context: &'c Context,
    raw: sys::krb5_creds,
}

impl std::fmt::Debug for sys::krb5_creds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Nothing of what is in it is for a log.
        f.write_str("krb5_creds")
    }
}

/// The times of a ticket, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From when on it holds.
    pub start: u32,
    /// Until when.
    pub end: u32,
    /// Until when it can be renewed; none when it cannot.
    pub renew_till: Option<u32>,
}

/// The KDC lets a ticket be renewed.
const RENEWABLE: i32 = 0x0080_0000;

impl<'c> Credentials<'c> {
    fn empty(context: &'c Context) -> Self {
        // SAFETY: numbers and pointers, of which all zero is the library's empty value.
        Self { context, raw: unsafe { std::mem::zeroed() } }
    }

    /// From when to when it holds.
    pub fn times(&self) -> Times {
        let times = &self.raw.times;
        let start = if times.starttime == 0 { times.authtime } else { times.starttime };
        let renewable = self.raw.ticket_flags & RENEWABLE != 0;
        Times { start, end: times.endtime, renew_till: renewable.then_some(times.renew_till) }
    }

    /// Whether it is for asking for other tickets.
    pub fn is_granting(&self) -> bool {
        // SAFETY: NULL or a principal that the library filled in.
        let server = unsafe { principal_parts(self.raw.server) };
        server.parts.first() == Some(&&b"krbtgt"[..])
    }

    /// Whether the KDC that gave it knows a key of this host.
    pub fn verify(&mut self, keytab: &Keytab<'_>) -> Result<(), Error> {
        // Whatever keeps it from being verified is a failure.
        let mut options = sys::krb5_verify_init_creds_opt { flags: 1, ap_req_nofail: 1 };
        // SAFETY: tickets and keytab are valid; any host key of the keytab will do; no cache is kept.
        let code = unsafe {
            sys::krb5_verify_init_creds(
                self.context.raw,
                &raw mut self.raw,
                ptr::null_mut(),
                keytab.raw,
                ptr::null_mut(),
                &raw mut options,
            )
        };
        self.context.check(code)
    }

    /// As a file of credentials, version 4, holding this ticket alone; see [`crate::file`].
    pub fn to_file(&self) -> Zeroizing<Vec<u8>> {
        let length = (self.raw.ticket.length as usize).saturating_add(file::OTHER_BYTES_USUAL);
        let mut out = Zeroizing::new(Vec::with_capacity(length));
        // SAFETY: the library filled the credentials in: each pointer leads to as many elements as
        // the length beside it says, and lists end in NULL.
        unsafe {
            let client = principal_parts(self.raw.client);
            let server = principal_parts(self.raw.server);
            let times = &self.raw.times;
            let ticket = file::Ticket {
                client: &client,
                server: &server,
                enctype: self.raw.keyblock.enctype,
                key: bytes(self.raw.keyblock.contents, self.raw.keyblock.length),
                times: [times.authtime, times.starttime, times.endtime, times.renew_till],
                is_skey: self.raw.is_skey != 0,
                flags: self.raw.ticket_flags,
                ticket: data(&self.raw.ticket),
                second_ticket: data(&self.raw.second_ticket),
            };
            file::write(&mut out, &ticket);
        }
        out
    }
}

impl Drop for Credentials<'_> {
    fn drop(&mut self) {
        // SAFETY: empty or filled in by the library, and freed once. It wipes the key.
        unsafe { sys::krb5_free_cred_contents(self.context.raw, &raw mut self.raw) }
    }
}

/// # Safety
/// `contents` leads to `length` bytes that outlive `'a`, or `length` is 0.
unsafe fn bytes<'a>(contents: *const u8, length: c_uint) -> &'a [u8] {
    if length == 0 || contents.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(contents, length as usize) }
}

/// # Safety
/// As of [`bytes`].
unsafe fn data<'a>(data: &sys::krb5_data) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { bytes(data.data.cast(), data.length) }
}

/// # Safety
/// `principal` is NULL or one of the library that outlives `'a`.
unsafe fn principal_parts<'a>(principal: *const sys::krb5_principal_data) -> file::Name<'a> {
    // SAFETY: the caller's promise; a principal has `length` components.
    unsafe {
        let Some(principal) = principal.as_ref() else {
            return file::Name { kind: 0, realm: &[], parts: Vec::new() };
        };
        let count = usize::try_from(principal.length).unwrap_or(0);
        let parts = (0..count).map(|at| data(&*principal.data.add(at))).collect();
        file::Name { kind: principal.kind, realm: data(&principal.realm), parts }
    }
}

/// A value that the library allocates.
struct Data<'c> {
    context: &'c Context,
    raw: sys::krb5_data,
}

impl<'c> Data<'c> {
    fn empty(context: &'c Context) -> Self {
        Self { context, raw: sys::krb5_data { magic: 0, length: 0, data: ptr::null_mut() } }
    }
}

impl Drop for Data<'_> {
    fn drop(&mut self) {
        // SAFETY: empty or filled in by the library, and freed once.
        unsafe { sys::krb5_free_data_contents(self.context.raw, &raw mut self.raw) }
    }
}

/// Keys of this host.
#[derive(Debug)]
pub struct Keytab<'c> {
    context: &'c Context,
    raw: sys::krb5_keytab,
}

impl Keytab<'_> {
    fn copy_to(&self, other: &Keytab<'_>) -> Result<usize, Error> {
        let context = self.context;
        let mut copied = 0;
        self.each(|entry| {
            copied += 1;
            // SAFETY: an entry that was filled in, which is copied.
            context.check(unsafe { sys::krb5_kt_add_entry(context.raw, other.raw, entry) })
        })?;
        Ok(copied)
    }

    /// Whose keys are in it, each once.
    fn principals(&self) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = Vec::new();
        self.each(|entry| {
            // Lent to it by the entry, which is the one that frees it.
            let principal =
                ManuallyDrop::new(Principal { context: self.context, raw: entry.principal });
            let name = principal.text()?;
            if !names.contains(&name) && names.len() < PRINCIPALS_MAX {
                names.push(name);
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// Shows each key, until one is no good.
    fn each(
        &self,
        mut show: impl FnMut(&mut sys::krb5_keytab_entry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = self.context;
        let mut cursor = ptr::null_mut();
        // SAFETY: a keytab, and a place for the cursor, which is ended below.
        let code = unsafe { sys::krb5_kt_start_seq_get(context.raw, self.raw, &raw mut cursor) };
        context.check(code)?;
        let mut shown = Ok(());
        for _ in 0..ENTRIES_MAX {
            // SAFETY: all zero is an empty entry; the library fills it in, or says that it did not.
            let (code, mut entry) = unsafe {
                let mut entry: sys::krb5_keytab_entry = std::mem::zeroed();
                let place = &raw mut entry;
                let code = sys::krb5_kt_next_entry(context.raw, self.raw, place, &raw mut cursor);
                (code, entry)
            };
            if code != 0 {
                if code != KT_END {
                    shown = Err(context.error(code));
                }
                break;
            }
            shown = show(&mut entry);
            // SAFETY: an entry that was filled in, freed once.
            unsafe { sys::krb5_free_keytab_entry_contents(context.raw, &raw mut entry) };
            if shown.is_err() {
                break;
            }
        }
        // SAFETY: the cursor of above, ended once.
        unsafe { sys::krb5_kt_end_seq_get(context.raw, self.raw, &raw mut cursor) };
        shown
    }
}

/// No more keys.
const KT_END: i32 = -1_765_328_202;
/// No such key.
const KT_NOTFOUND: i32 = -1_765_328_203;
/// Names that a host has in its keytab, and that are tried.
const PRINCIPALS_MAX: usize = 8;

impl Drop for Keytab<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and closed once.
        unsafe { sys::krb5_kt_close(self.context.raw, self.raw) };
    }
}

/// A credential cache.
#[derive(Debug)]
pub struct Cache<'c> {
    context: &'c Context,
    raw: sys::krb5_ccache,
}

impl<'c> Cache<'c> {
    /// As `KRB5CCNAME` has it.
    pub fn name(&self) -> Result<String, Error> {
        let context = self.context;
        let mut name = ptr::null_mut();
        // SAFETY: the name ends in NUL until it is freed, and is copied before.
        unsafe {
            context.check(sys::krb5_cc_get_full_name(context.raw, self.raw, &raw mut name))?;
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            sys::krb5_free_string(context.raw, name);
            Ok(text)
        }
    }

    /// Whose it is.
    pub fn principal(&self) -> Result<Principal<'c>, Error> {
        let context = self.context;
        let mut raw = ptr::null_mut();
        // SAFETY: a cache, and a place for the result.
        let code = unsafe { sys::krb5_cc_get_principal(context.raw, self.raw, &raw mut raw) };
        context.check(code)?;
        Ok(Principal { context, raw })
    }

    /// Its tickets. What is no ticket, as notes of the library, is among them.
    pub fn tickets(&self) -> Result<Vec<Credentials<'c>>, Error> {
        let context = self.context;
        let mut cursor = ptr::null_mut();
        // SAFETY: a cache, and a place for the cursor, which is ended below.
        let code = unsafe { sys::krb5_cc_start_seq_get(context.raw, self.raw, &raw mut cursor) };
        context.check(code)?;
        let mut all = Vec::new();
        while all.len() < ENTRIES_MAX {
            let mut tickets = Credentials::empty(context);
            // SAFETY: the library fills the place in, or says that it did not.
            let code = unsafe {
                sys::krb5_cc_next_cred(context.raw, self.raw, &raw mut cursor, &raw mut tickets.raw)
            };
            if code != 0 {
                break;
            }
            all.push(tickets);
        }
        // SAFETY: the cursor of above, ended once.
        unsafe { sys::krb5_cc_end_seq_get(context.raw, self.raw, &raw mut cursor) };
        Ok(all)
    }

    /// Empties it for a principal, and stores tickets.
    pub fn fill(
        &self,
        principal: &Principal<'_>,
        tickets: &mut [Credentials<'_>],
    ) -> Result<(), Error> {
        let context = self.context;
        // SAFETY: cache, principal and tickets are valid; the library copies them.
        unsafe {
            context.check(sys::krb5_cc_initialize(context.raw, self.raw, principal.raw))?;
            for ticket in tickets {
                let ticket = &raw mut ticket.raw;
                context.check(sys::krb5_cc_store_cred(context.raw, self.raw, ticket))?;
            }
        }
        Ok(())
    }

    /// Makes it the one of its collection that programs use which are not told of any.
    pub fn prefer(&self) -> Result<(), Error> {
        // SAFETY: a cache.
        self.context.check(unsafe { sys::krb5_cc_switch(self.context.raw, self.raw) })
    }

    /// Its ticket-granting ticket, renewed by the KDC.
    pub fn renewed(&self, principal: &Principal<'_>) -> Result<Credentials<'c>, Error> {
        let context = self.context;
        let mut tickets = Credentials::empty(context);
        // SAFETY: cache and principal are valid; no service is the ticket-granting one.
        let code = unsafe {
            sys::krb5_get_renewed_creds(
                context.raw,
                &raw mut tickets.raw,
                principal.raw,
                self.raw,
                ptr::null(),
            )
        };
        context.check(code)?;
        Ok(tickets)
    }

    /// Removes it with all that is in it.
    pub fn destroy(self) -> Result<(), Error> {
        let (context, raw) = (self.context, self.raw);
        std::mem::forget(self);
        // SAFETY: it is closed with this, and was forgotten.
        context.check(unsafe { sys::krb5_cc_destroy(context.raw, raw) })
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and closed once.
        unsafe { sys::krb5_cc_close(self.context.raw, self.raw) };
    }
}

/// A file without a name by a path that leads to it.
fn descriptor_path(file: &File) -> io::Result<CString> {
    Ok(CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?)
}

fn c_string(text: &str) -> Result<CString, Error> {
    let words = "there is a NUL in it".to_owned();
    CString::new(text).map_err(|_| Error { code: libc::EINVAL, words })
}

/// For a log: printable, and not longer than a line should be.
fn one_line(words: &str) -> String {
    let line = words.chars().map(|char| if char.is_control() { ' ' } else { char });
    bounded(&line.collect::<String>())
}

fn bounded(words: &str) -> String {
    words[..words.floor_char_boundary(WORDS_BYTES_MAX)].to_owned()
}
