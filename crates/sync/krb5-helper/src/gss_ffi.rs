// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of libgssapi_krb5 that this program calls, as <gssapi/gssapi.h> and <gssapi/gssapi_ext.h> of MIT Kerberos
//! 1.18 and later declare them. Only [`crate::gss`] calls them.

#![allow(unsafe_code, non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

pub type OM_uint32 = u32;

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
    gss_name_struct
    gss_cred_id_struct
    gss_ctx_id_struct
}

pub type gss_name_t = *mut gss_name_struct;
pub type gss_cred_id_t = *mut gss_cred_id_struct;
pub type gss_ctx_id_t = *mut gss_ctx_id_struct;

#[repr(C)]
pub struct gss_buffer_desc {
    pub length: usize,
    pub value: *mut c_void,
}

#[repr(C)]
pub struct gss_OID_desc {
    pub length: OM_uint32,
    pub elements: *mut c_void,
}

#[repr(C)]
pub struct gss_OID_set_desc {
    pub count: usize,
    pub elements: *mut gss_OID_desc,
}

#[repr(C)]
pub struct gss_channel_bindings_struct {
    pub initiator_addrtype: OM_uint32,
    pub initiator_address: gss_buffer_desc,
    pub acceptor_addrtype: OM_uint32,
    pub acceptor_address: gss_buffer_desc,
    pub application_data: gss_buffer_desc,
}

#[repr(C)]
pub struct gss_key_value_element_desc {
    pub key: *const c_char,
    pub value: *const c_char,
}

#[repr(C)]
pub struct gss_key_value_set_desc {
    pub count: OM_uint32,
    pub elements: *mut gss_key_value_element_desc,
}

pub const GSS_S_COMPLETE: OM_uint32 = 0;
pub const GSS_S_CONTINUE_NEEDED: OM_uint32 = 1;

pub const GSS_C_INITIATE: c_int = 1;
pub const GSS_C_GSS_CODE: c_int = 1;
pub const GSS_C_MECH_CODE: c_int = 2;

pub const GSS_C_MUTUAL_FLAG: OM_uint32 = 2;
pub const GSS_C_REPLAY_FLAG: OM_uint32 = 4;
pub const GSS_C_SEQUENCE_FLAG: OM_uint32 = 8;
pub const GSS_C_CONF_FLAG: OM_uint32 = 16;
pub const GSS_C_INTEG_FLAG: OM_uint32 = 32;

#[link(name = "gssapi_krb5")]
unsafe extern "C" {
    pub fn gss_import_name(
        minor: *mut OM_uint32,
        text: *const gss_buffer_desc,
        kind: *const gss_OID_desc,
        name: *mut gss_name_t,
    ) -> OM_uint32;
    pub fn gss_release_name(minor: *mut OM_uint32, name: *mut gss_name_t) -> OM_uint32;

    pub fn gss_acquire_cred_from(
        minor: *mut OM_uint32,
        name: gss_name_t,
        seconds: OM_uint32,
        mechanisms: *const gss_OID_set_desc,
        usage: c_int,
        store: *const gss_key_value_set_desc,
        credential: *mut gss_cred_id_t,
        actual: *mut *mut gss_OID_set_desc,
        seconds_left: *mut OM_uint32,
    ) -> OM_uint32;
    pub fn gss_release_cred(minor: *mut OM_uint32, credential: *mut gss_cred_id_t) -> OM_uint32;

    pub fn gss_init_sec_context(
        minor: *mut OM_uint32,
        credential: gss_cred_id_t,
        context: *mut gss_ctx_id_t,
        target: gss_name_t,
        mechanism: *const gss_OID_desc,
        flags: OM_uint32,
        seconds: OM_uint32,
        bindings: *const gss_channel_bindings_struct,
        input: *const gss_buffer_desc,
        actual: *mut *const gss_OID_desc,
        output: *mut gss_buffer_desc,
        actual_flags: *mut OM_uint32,
        seconds_left: *mut OM_uint32,
    ) -> OM_uint32;
    pub fn gss_delete_sec_context(
        minor: *mut OM_uint32,
        context: *mut gss_ctx_id_t,
        output: *mut gss_buffer_desc,
    ) -> OM_uint32;

    pub fn gss_wrap(
        minor: *mut OM_uint32,
        context: gss_ctx_id_t,
        encrypts: c_int,
        quality: OM_uint32,
        input: *const gss_buffer_desc,
        encrypted: *mut c_int,
        output: *mut gss_buffer_desc,
    ) -> OM_uint32;
    pub fn gss_unwrap(
        minor: *mut OM_uint32,
        context: gss_ctx_id_t,
        input: *const gss_buffer_desc,
        output: *mut gss_buffer_desc,
        encrypted: *mut c_int,
        quality: *mut OM_uint32,
    ) -> OM_uint32;
    pub fn gss_wrap_size_limit(
        minor: *mut OM_uint32,
        context: gss_ctx_id_t,
        encrypts: c_int,
        quality: OM_uint32,
        output_max: OM_uint32,
        input_max: *mut OM_uint32,
    ) -> OM_uint32;

    pub fn gss_display_status(
        minor: *mut OM_uint32,
        value: OM_uint32,
        kind: c_int,
        mechanism: *const gss_OID_desc,
        position: *mut OM_uint32,
        text: *mut gss_buffer_desc,
    ) -> OM_uint32;
    pub fn gss_release_buffer(minor: *mut OM_uint32, buffer: *mut gss_buffer_desc) -> OM_uint32;
}
