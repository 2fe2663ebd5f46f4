// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of libkrb5 that this program calls, as <krb5.h> and <profile.h> of MIT Kerberos 1.18 and later declare
//! them. Only [`crate::libkrb5`] calls them.

#![allow(unsafe_code, non_camel_case_types)]

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

/// An error code of com_err(3); 0 is success.
pub type krb5_error_code = i32;
pub type krb5_magic = i32;
pub type krb5_deltat = i32;

/// A type that is opaque outside of C.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _inside: [u8; 0],
        }
    )*};
}

opaque! {
    profile
    krb5_context_data
    krb5_init_creds_context_data
    krb5_get_init_creds_opt
    krb5_ccache_data
    krb5_keytab_data
}

pub type profile_t = *mut profile;
pub type krb5_context = *mut krb5_context_data;
pub type krb5_init_creds_context = *mut krb5_init_creds_context_data;
pub type krb5_ccache = *mut krb5_ccache_data;
pub type krb5_keytab = *mut krb5_keytab_data;
pub type krb5_cursor = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct krb5_data {
    pub magic: krb5_magic,
    pub length: c_uint,
    pub data: *mut c_char,
}

#[repr(C)]
pub struct krb5_principal_data {
    pub magic: krb5_magic,
    pub realm: krb5_data,
    pub data: *mut krb5_data,
    pub length: i32,
    pub kind: i32,
}

pub type krb5_principal = *mut krb5_principal_data;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct krb5_keyblock {
    pub magic: krb5_magic,
    pub enctype: i32,
    pub length: c_uint,
    pub contents: *mut u8,
}

/// Seconds since 1970, unsigned until the year 2106.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct krb5_ticket_times {
    pub authtime: u32,
    pub starttime: u32,
    pub endtime: u32,
    pub renew_till: u32,
}

#[repr(C)]
pub struct krb5_address {
    pub magic: krb5_magic,
    pub kind: i32,
    pub length: c_uint,
    pub contents: *mut u8,
}

#[repr(C)]
pub struct krb5_authdata {
    pub magic: krb5_magic,
    pub kind: i32,
    pub length: c_uint,
    pub contents: *mut u8,
}

#[repr(C)]
pub struct krb5_creds {
    pub magic: krb5_magic,
    pub client: krb5_principal,
    pub server: krb5_principal,
    pub keyblock: krb5_keyblock,
    pub times: krb5_ticket_times,
    pub is_skey: c_uint,
    pub ticket_flags: i32,
    pub addresses: *mut *mut krb5_address,
    pub ticket: krb5_data,
    pub second_ticket: krb5_data,
    pub authdata: *mut *mut krb5_authdata,
}

#[repr(C)]
pub struct krb5_keytab_entry {
    pub magic: krb5_magic,
    pub principal: krb5_principal,
    pub timestamp: u32,
    pub vno: c_uint,
    pub key: krb5_keyblock,
}

#[repr(C)]
pub struct krb5_verify_init_creds_opt {
    pub flags: i32,
    pub ap_req_nofail: c_int,
}

pub type krb5_expire_callback = unsafe extern "C" fn(
    context: krb5_context,
    data: *mut c_void,
    password_expiration: u32,
    account_expiration: u32,
    is_last_req: c_uint,
);

/// Prompts the user; this program passes none.
pub type krb5_prompter = Option<unsafe extern "C" fn()>;

pub const KRB5_INIT_CONTEXT_SECURE: i32 = 0x1;
pub const KRB5_FAST_REQUIRED: i32 = 0x1;

#[link(name = "krb5")]
unsafe extern "C" {
    pub fn profile_init_path(files: *const c_char, profile: *mut profile_t) -> c_long;
    pub fn profile_release(profile: profile_t);

    pub fn krb5_init_context_profile(
        profile: profile_t,
        flags: i32,
        context: *mut krb5_context,
    ) -> krb5_error_code;
    pub fn krb5_free_context(context: krb5_context);
    pub fn krb5_get_error_message(context: krb5_context, code: krb5_error_code) -> *const c_char;
    pub fn krb5_free_error_message(context: krb5_context, message: *const c_char);
    pub fn krb5_free_string(context: krb5_context, string: *mut c_char);
    pub fn krb5_free_data_contents(context: krb5_context, data: *mut krb5_data);

    pub fn krb5_build_principal_ext(
        context: krb5_context,
        principal: *mut krb5_principal,
        realm_length: c_uint,
        realm: *const c_char,
        ...
    ) -> krb5_error_code;
    pub fn krb5_parse_name(
        context: krb5_context,
        name: *const c_char,
        principal: *mut krb5_principal,
    ) -> krb5_error_code;
    pub fn krb5_unparse_name(
        context: krb5_context,
        principal: *const krb5_principal_data,
        name: *mut *mut c_char,
    ) -> krb5_error_code;
    pub fn krb5_free_unparsed_name(context: krb5_context, name: *mut c_char);
    pub fn krb5_free_principal(context: krb5_context, principal: krb5_principal);

    pub fn krb5_get_init_creds_opt_alloc(
        context: krb5_context,
        options: *mut *mut krb5_get_init_creds_opt,
    ) -> krb5_error_code;
    pub fn krb5_get_init_creds_opt_free(
        context: krb5_context,
        options: *mut krb5_get_init_creds_opt,
    );
    pub fn krb5_get_init_creds_opt_set_tkt_life(
        options: *mut krb5_get_init_creds_opt,
        life: krb5_deltat,
    );
    pub fn krb5_get_init_creds_opt_set_renew_life(
        options: *mut krb5_get_init_creds_opt,
        life: krb5_deltat,
    );
    pub fn krb5_get_init_creds_opt_set_forwardable(
        options: *mut krb5_get_init_creds_opt,
        forwardable: c_int,
    );
    pub fn krb5_get_init_creds_opt_set_proxiable(
        options: *mut krb5_get_init_creds_opt,
        proxiable: c_int,
    );
    pub fn krb5_get_init_creds_opt_set_expire_callback(
        context: krb5_context,
        options: *mut krb5_get_init_creds_opt,
        callback: krb5_expire_callback,
        data: *mut c_void,
    ) -> krb5_error_code;

    pub fn krb5_get_init_creds_opt_set_fast_ccache(
        context: krb5_context,
        options: *mut krb5_get_init_creds_opt,
        ccache: krb5_ccache,
    ) -> krb5_error_code;
    pub fn krb5_get_init_creds_opt_set_fast_flags(
        context: krb5_context,
        options: *mut krb5_get_init_creds_opt,
        flags: i32,
    ) -> krb5_error_code;
    pub fn krb5_get_init_creds_keytab(
        context: krb5_context,
        creds: *mut krb5_creds,
        client: krb5_principal,
        keytab: krb5_keytab,
        start_time: krb5_deltat,
        service: *const c_char,
        options: *mut krb5_get_init_creds_opt,
    ) -> krb5_error_code;

    pub fn krb5_init_creds_init(
        context: krb5_context,
        client: krb5_principal,
        prompter: krb5_prompter,
        data: *mut c_void,
        start_time: krb5_deltat,
        options: *mut krb5_get_init_creds_opt,
        exchange: *mut krb5_init_creds_context,
    ) -> krb5_error_code;
    pub fn krb5_init_creds_set_password(
        context: krb5_context,
        exchange: krb5_init_creds_context,
        password: *const c_char,
    ) -> krb5_error_code;
    pub fn krb5_init_creds_set_service(
        context: krb5_context,
        exchange: krb5_init_creds_context,
        service: *const c_char,
    ) -> krb5_error_code;
    pub fn krb5_init_creds_step(
        context: krb5_context,
        exchange: krb5_init_creds_context,
        received: *mut krb5_data,
        to_send: *mut krb5_data,
        realm: *mut krb5_data,
        flags: *mut c_uint,
    ) -> krb5_error_code;
    pub fn krb5_init_creds_get(
        context: krb5_context,
        exchange: krb5_init_creds_context,
    ) -> krb5_error_code;
    pub fn krb5_init_creds_get_creds(
        context: krb5_context,
        exchange: krb5_init_creds_context,
        creds: *mut krb5_creds,
    ) -> krb5_error_code;
    pub fn krb5_init_creds_free(context: krb5_context, exchange: krb5_init_creds_context);
    pub fn krb5_free_cred_contents(context: krb5_context, creds: *mut krb5_creds);

    pub fn krb5_verify_init_creds(
        context: krb5_context,
        creds: *mut krb5_creds,
        server: krb5_principal,
        keytab: krb5_keytab,
        ccache: *mut krb5_ccache,
        options: *mut krb5_verify_init_creds_opt,
    ) -> krb5_error_code;
    pub fn krb5_change_password(
        context: krb5_context,
        creds: *mut krb5_creds,
        new_password: *const c_char,
        result_code: *mut c_int,
        result_code_string: *mut krb5_data,
        result_string: *mut krb5_data,
    ) -> krb5_error_code;
    pub fn krb5_chpw_message(
        context: krb5_context,
        server_string: *const krb5_data,
        message: *mut *mut c_char,
    ) -> krb5_error_code;
    pub fn krb5_get_renewed_creds(
        context: krb5_context,
        creds: *mut krb5_creds,
        client: krb5_principal,
        ccache: krb5_ccache,
        service: *const c_char,
    ) -> krb5_error_code;

    pub fn krb5_kt_resolve(
        context: krb5_context,
        name: *const c_char,
        keytab: *mut krb5_keytab,
    ) -> krb5_error_code;
    pub fn krb5_kt_close(context: krb5_context, keytab: krb5_keytab) -> krb5_error_code;
    pub fn krb5_kt_start_seq_get(
        context: krb5_context,
        keytab: krb5_keytab,
        cursor: *mut krb5_cursor,
    ) -> krb5_error_code;
    pub fn krb5_kt_next_entry(
        context: krb5_context,
        keytab: krb5_keytab,
        entry: *mut krb5_keytab_entry,
        cursor: *mut krb5_cursor,
    ) -> krb5_error_code;
    pub fn krb5_kt_end_seq_get(
        context: krb5_context,
        keytab: krb5_keytab,
        cursor: *mut krb5_cursor,
    ) -> krb5_error_code;
    pub fn krb5_kt_add_entry(
        context: krb5_context,
        keytab: krb5_keytab,
        entry: *mut krb5_keytab_entry,
    ) -> krb5_error_code;
    pub fn krb5_free_keytab_entry_contents(
        context: krb5_context,
        entry: *mut krb5_keytab_entry,
    ) -> krb5_error_code;

    pub fn krb5_cc_resolve(
        context: krb5_context,
        name: *const c_char,
        ccache: *mut krb5_ccache,
    ) -> krb5_error_code;
    pub fn krb5_cc_new_unique(
        context: krb5_context,
        kind: *const c_char,
        hint: *const c_char,
        ccache: *mut krb5_ccache,
    ) -> krb5_error_code;
    pub fn krb5_cc_get_full_name(
        context: krb5_context,
        ccache: krb5_ccache,
        name: *mut *mut c_char,
    ) -> krb5_error_code;
    pub fn krb5_cc_get_principal(
        context: krb5_context,
        ccache: krb5_ccache,
        principal: *mut krb5_principal,
    ) -> krb5_error_code;
    pub fn krb5_cc_initialize(
        context: krb5_context,
        ccache: krb5_ccache,
        principal: krb5_principal,
    ) -> krb5_error_code;
    pub fn krb5_cc_store_cred(
        context: krb5_context,
        ccache: krb5_ccache,
        creds: *mut krb5_creds,
    ) -> krb5_error_code;
    pub fn krb5_cc_start_seq_get(
        context: krb5_context,
        ccache: krb5_ccache,
        cursor: *mut krb5_cursor,
    ) -> krb5_error_code;
    pub fn krb5_cc_next_cred(
        context: krb5_context,
        ccache: krb5_ccache,
        cursor: *mut krb5_cursor,
        creds: *mut krb5_creds,
    ) -> krb5_error_code;
    pub fn krb5_cc_end_seq_get(
        context: krb5_context,
        ccache: krb5_ccache,
        cursor: *mut krb5_cursor,
    ) -> krb5_error_code;
    pub fn krb5_cc_switch(context: krb5_context, ccache: krb5_ccache) -> krb5_error_code;
    pub fn krb5_cc_close(context: krb5_context, ccache: krb5_ccache) -> krb5_error_code;
    pub fn krb5_cc_destroy(context: krb5_context, ccache: krb5_ccache) -> krb5_error_code;
}
