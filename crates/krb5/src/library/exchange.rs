//! Exchanges with a KDC: what a password or a key of this host gets of it, and changes of passwords.

use super::keytab::KT_NOTFOUND;
use super::{Cache, Context, Credentials, Error, Keytab, Principal, bounded};
use crate::sys;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

impl Context {
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

    /// Loads what the first exchange of a process would: modules for pre-authentication, and the library of
    /// ciphers that they bring. Nobody is asked anything.
    pub fn warm_up(&self, realm: &str) -> Result<(), Error> {
        let nobody = self.user("nobody", realm)?;
        let options = Options::new(self, &Wishes::default())?;
        let exchange = Exchange::new(self, &nobody, &options)?;
        let mut nothing = Data::empty(self);
        let (mut request, mut of_realm) = (Data::empty(self), Data::empty(self));
        let mut flags = c_uint::default();
        // SAFETY: nothing was received yet; every place outlives the call, and what it puts there is freed
        // with `Data`. The request is not sent.
        let code = unsafe {
            sys::krb5_init_creds_step(
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
