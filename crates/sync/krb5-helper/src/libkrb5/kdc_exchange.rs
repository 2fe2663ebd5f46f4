// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchanges with a KDC: tickets by a password or by a key of this host, and changes of passwords. `auth_request` has
//! their order, and `kdc_errors` the meaning of their errors.

use super::keytab::KT_NOTFOUND;
use super::{Ccache, KerberosTicket, Keytab, LibraryContext, LibraryError, Principal, bounded};
use crate::ffi;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

impl LibraryContext {
    /// Requests a ticket for `service` with a password; without a name, for the realm's ticket-granting service. Only
    /// one KDC gets the request; a wrong password does not go to a second one. The `armor` holds a ticket of this host.
    /// With it, the exchange is encrypted with a key that only the right KDC has (FAST, RFC 6113).
    pub fn login(
        &self,
        client: &Principal<'_>,
        password: &CStr,
        service: Option<&CStr>,
        wishes: &TicketOptions,
        armor: Option<&Ccache<'_>>,
    ) -> Result<GrantedTicket<'_>, LibraryError> {
        let options = InitCredsOptions::new(self, wishes)?;
        if let Some(armor) = armor {
            // SAFETY: options and cache are valid; the library takes the cache's name.
            unsafe {
                let (options, cache) = (options.raw, armor.raw);
                let code = ffi::krb5_get_init_creds_opt_set_fast_ccache(self.raw, options, cache);
                self.check(code)?;
                let flags = ffi::KRB5_FAST_REQUIRED;
                let code = ffi::krb5_get_init_creds_opt_set_fast_flags(self.raw, options, flags);
                self.check(code)?;
            }
        }
        let mut expires = 0_u32;
        let place: *mut u32 = &raw mut expires;
        // SAFETY: `place` outlives the exchange below, the only one in which it is written.
        let code = unsafe {
            let callback = note_expiry;
            ffi::krb5_get_init_creds_opt_set_expire_callback(
                self.raw,
                options.raw,
                callback,
                place.cast(),
            )
        };
        self.check(code)?;
        let exchange = InitCredsExchange::new(self, client, &options)?;
        // SAFETY: context, exchange and strings live until the calls return.
        unsafe {
            self.check(ffi::krb5_init_creds_set_password(
                self.raw,
                exchange.raw,
                password.as_ptr(),
            ))?;
            if let Some(service) = service {
                let service = service.as_ptr();
                self.check(ffi::krb5_init_creds_set_service(self.raw, exchange.raw, service))?;
            }
            self.check(ffi::krb5_init_creds_get(self.raw, exchange.raw))?;
        }
        let mut tickets = KerberosTicket::empty(self);
        // SAFETY: the place is for one set of credentials, and freed with it.
        let code =
            unsafe { ffi::krb5_init_creds_get_creds(self.raw, exchange.raw, &raw mut tickets.raw) };
        self.check(code)?;
        drop(exchange);
        Ok(GrantedTicket { tickets, password_expires: expires })
    }

    /// Requests a ticket of this host with the first of its keys that the KDC accepts. Returns it in a cache in memory.
    pub fn fast_armor(&self, keytab: &Keytab<'_>) -> Result<Ccache<'_>, LibraryError> {
        let mut failed =
            LibraryError { code: KT_NOTFOUND, message: "the keytab has no key".into() };
        for name in keytab.principals()? {
            match self.keytab_cache(&name, keytab) {
                Ok(cache) => return Ok(cache),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Requests a ticket of a principal with its key. Returns it in a cache in memory.
    pub fn keytab_cache(
        &self,
        principal: &str,
        keytab: &Keytab<'_>,
    ) -> Result<Ccache<'_>, LibraryError> {
        let principal = self.parse_principal(principal)?;
        let ticket = self.keytab_ticket(&principal, keytab)?;
        let cache = self.new_cache("MEMORY")?;
        cache.fill(&principal, &mut [ticket])?;
        Ok(cache)
    }

    fn keytab_ticket(
        &self,
        principal: &Principal<'_>,
        keytab: &Keytab<'_>,
    ) -> Result<KerberosTicket<'_>, LibraryError> {
        let options = InitCredsOptions::new(self, &TicketOptions::default())?;
        let mut tickets = KerberosTicket::empty(self);
        // SAFETY: principal, keytab and options are valid; no service is the ticket-granting one.
        let code = unsafe {
            ffi::krb5_get_init_creds_keytab(
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

    /// Loads the libraries of a first exchange: modules for pre-authentication, and their library of ciphers. Sends no
    /// request.
    pub fn warm_up(&self, realm: &str) -> Result<(), LibraryError> {
        let nobody = self.user_principal("nobody", realm)?;
        let options = InitCredsOptions::new(self, &TicketOptions::default())?;
        let exchange = InitCredsExchange::new(self, &nobody, &options)?;
        let mut nothing = LibraryData::empty(self);
        let (mut request, mut of_realm) = (LibraryData::empty(self), LibraryData::empty(self));
        let mut flags = c_uint::default();
        // SAFETY: nothing was received yet; every place outlives the call, and its new content is freed with
        // `LibraryData`. The request is not sent.
        let code = unsafe {
            ffi::krb5_init_creds_step(
                self.raw,
                exchange.raw,
                &raw mut nothing.raw,
                &raw mut request.raw,
                &raw mut of_realm.raw,
                &raw mut flags,
            )
        };
        self.check(code)
    }

    /// Changes a password, with a ticket for `kadmin/changepw`.
    pub fn change_password(
        &self,
        tickets: &mut KerberosTicket<'_>,
        new: &CStr,
    ) -> Result<ChangeReply, LibraryError> {
        let mut code = c_int::default();
        let (mut about, mut said) = (LibraryData::empty(self), LibraryData::empty(self));
        // SAFETY: every place outlives the call; its new content is freed with `LibraryData`.
        let failed = unsafe {
            ffi::krb5_change_password(
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
            return Ok(ChangeReply::Done);
        }
        let mut message = ptr::null_mut();
        // SAFETY: the server's text as received; the message ends in NUL and is freed once copied.
        let words = unsafe {
            self.check(ffi::krb5_chpw_message(self.raw, &raw const said.raw, &raw mut message))?;
            let words = CStr::from_ptr(message).to_string_lossy().into_owned();
            ffi::krb5_free_string(self.raw, message);
            words
        };
        Ok(ChangeReply::Refused { code, why: bounded(&words) })
    }
}

/// Stores the expiry of the password, 0 for never.
///
/// # Safety
/// `data` is the pointer that [`LibraryContext::login`] passed.
unsafe extern "C" fn note_expiry(
    _: ffi::krb5_context,
    data: *mut c_void,
    password_expiration: u32,
    _: u32,
    _: c_uint,
) {
    // SAFETY: a `u32` that lives until the exchange has ended.
    unsafe { *data.cast::<u32>() = password_expiration }
}

/// Requested properties of a ticket.
#[derive(Clone, Copy, Debug, Default)]
pub struct TicketOptions {
    /// Lifetime; `None` means the KDC's default.
    pub life: Option<Duration>,
    /// Renewable lifetime.
    pub renewable: Option<Duration>,
    /// Whether the ticket may be forwarded to another host.
    pub forwardable: bool,
}

/// Result of a login.
#[derive(Debug)]
pub struct GrantedTicket<'c> {
    /// The ticket.
    pub tickets: KerberosTicket<'c>,
    /// Expiry of the password, in seconds since 1970; 0 if the KDC does not report it.
    pub password_expires: u32,
}

/// The server's reply to a password change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeReply {
    /// The password was changed.
    Done,
    /// The password was not changed.
    Refused {
        /// Result code of RFC 3244.
        code: i32,
        /// The server's text for the user.
        why: String,
    },
}

/// Options of an exchange.
struct InitCredsOptions<'c> {
    context: &'c LibraryContext,
    raw: *mut ffi::krb5_get_init_creds_opt,
}

impl<'c> InitCredsOptions<'c> {
    fn new(context: &'c LibraryContext, wishes: &TicketOptions) -> Result<Self, LibraryError> {
        let mut raw = ptr::null_mut();
        // SAFETY: a place for the result.
        context.check(unsafe { ffi::krb5_get_init_creds_opt_alloc(context.raw, &raw mut raw) })?;
        let options = Self { context, raw };
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        // SAFETY: options that were made just now.
        unsafe {
            if let Some(life) = wishes.life {
                ffi::krb5_get_init_creds_opt_set_tkt_life(raw, seconds(life));
            }
            ffi::krb5_get_init_creds_opt_set_renew_life(raw, wishes.renewable.map_or(0, seconds));
            ffi::krb5_get_init_creds_opt_set_forwardable(raw, wishes.forwardable.into());
            ffi::krb5_get_init_creds_opt_set_proxiable(raw, 0);
        }
        Ok(options)
    }
}

impl Drop for InitCredsOptions<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { ffi::krb5_get_init_creds_opt_free(self.context.raw, self.raw) }
    }
}

/// One exchange with a KDC. It reads its options and the client at its creation.
struct InitCredsExchange<'c> {
    context: &'c LibraryContext,
    raw: ffi::krb5_init_creds_context,
    /// The library retains a pointer to the options until the exchange is freed.
    _options: PhantomData<&'c InitCredsOptions<'c>>,
}

impl<'c> InitCredsExchange<'c> {
    fn new(
        context: &'c LibraryContext,
        client: &Principal<'_>,
        options: &'c InitCredsOptions<'_>,
    ) -> Result<Self, LibraryError> {
        let mut raw = ptr::null_mut();
        // SAFETY: client and options are valid, there is no prompter, and there is a place for the result.
        let code = unsafe {
            ffi::krb5_init_creds_init(
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

impl Drop for InitCredsExchange<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library for its owner, and freed once.
        unsafe { ffi::krb5_init_creds_free(self.context.raw, self.raw) }
    }
}

/// A value that the library allocates.
struct LibraryData<'c> {
    context: &'c LibraryContext,
    raw: ffi::krb5_data,
}

impl<'c> LibraryData<'c> {
    fn empty(context: &'c LibraryContext) -> Self {
        Self { context, raw: ffi::krb5_data { magic: 0, length: 0, data: ptr::null_mut() } }
    }
}

impl Drop for LibraryData<'_> {
    fn drop(&mut self) {
        // SAFETY: empty or filled in by the library, and freed once.
        unsafe { ffi::krb5_free_data_contents(self.context.raw, &raw mut self.raw) }
    }
}
