//! Messages of an LDAP server: no bytes may crash their reading or the mapping of entries, and what
//! comes out is part of what went in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_config::{
    Access, Attributes, Auth, AuthMethod, Bind, Domain, Ldap, Mode, Overrides, Provider, Schema,
    Search,
};
use roster_provider_ldap::ber::{Frame, frame};
use roster_provider_ldap::dn;
use roster_provider_ldap::filter::Filter;
use roster_provider_ldap::message::{Operation, Response, SyncInfo};
use roster_provider_ldap::schema::{Mapping, entry_id, searches};
use std::sync::LazyLock;
use std::time::Duration;

const BYTES_MAX: usize = 1 << 20;

fn mapping(schema: Schema, case_sensitive: bool) -> (Mapping, Ldap) {
    let text = |text: &str| text.to_owned();
    let search =
        |class: &str| Search { base: text("dc=x"), filter: format!("(objectClass={class})") };
    let second = Duration::from_secs(1);
    let ldap = Ldap {
        servers: Vec::new(),
        discover: None,
        base: text("dc=x"),
        users: search("posixAccount"),
        groups: search("posixGroup"),
        attributes: Attributes {
            user_name: text("uid"),
            user_uid: text("uidnumber"),
            user_gid: text("gidnumber"),
            user_gecos: text("gecos"),
            user_home: text("homedirectory"),
            user_shell: text("loginshell"),
            group_name: text("cn"),
            group_gid: text("gidnumber"),
            group_member: text("member"),
            ssh_key: text("sshpublickey"),
            shadow_last_change: text("shadowlastchange"),
            shadow_max: text("shadowmax"),
            shadow_warning: text("shadowwarning"),
            shadow_inactive: text("shadowinactive"),
            shadow_expire: text("shadowexpire"),
            locked_time: text("pwdaccountlockedtime"),
            password_reset: text("pwdreset"),
            account_lock: text("nsaccountlock"),
            role: text("nsrole"),
            account_control: text("useraccountcontrol"),
            account_expires: text("accountexpires"),
            uuid: None,
        },
        schema,
        case_sensitive,
        bind: Bind::Anonymous,
        start_tls: false,
        tls_ca: None,
        allow_clear_password: false,
        allow_clear_user_passwords: false,
        page_size: 500,
        connect_timeout: second,
        search_timeout: second,
        poll: second,
        sweep: second,
        full_refresh: second,
        fail_back: second,
        message_bytes_max: 1 << 20,
    };
    let domain = Domain {
        name: text("fuzz"),
        min_id: 1000,
        max_id: 2000,
        mode: Mode::Replicate,
        overrides: Overrides { home: Some(text("/home/%d/%u%o%%")), ..Overrides::default() },
        mass_deletion: 0.5,
        refresh: second,
        negative: second,
        provider: Provider::Ldap(Box::new(ldap.clone())),
        auth: Auth { method: AuthMethod::None, timeout: second, offline: None },
        access: Access { enabled: true, ..Access::unconfigured() },
    };
    (Mapping::new(&domain, &ldap), ldap)
}

static MAPPINGS: LazyLock<[(Mapping, Ldap); 2]> =
    LazyLock::new(|| [mapping(Schema::Rfc2307, true), mapping(Schema::Rfc2307bis, false)]);

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Frame::Whole(length)) = frame(rest, BYTES_MAX) {
        assert!(length > 0 && length <= rest.len());
        let (message, after) = rest.split_at(length);
        rest = after;
        if let Ok(response) = Response::parse(message) {
            read(&response);
        }
    }
    let canonical = dn::normalise(bytes).into_owned();
    assert_eq!(dn::normalise(&canonical), canonical, "the canonical form is its own");
    let _ = (dn::first(bytes), dn::rdn_values(bytes, "uid"), entry_id(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Filter::parse(text);
    }
});

fn read(response: &Response<'_>) {
    let _ = (response.controls.page_cookie(), response.controls.change_type());
    let _ = response.controls.sync_state();
    match response.operation {
        Operation::Entry(entry) => {
            for attribute in entry.attributes().flatten() {
                let _ = attribute.1.flatten().map(entry_id).count();
            }
            for (mapping, ldap) in MAPPINGS.iter() {
                for search in searches(ldap).unwrap() {
                    let _ = search.classify(&entry, mapping);
                }
                if let Ok(Ok(user)) = mapping.user(&entry) {
                    assert!(!user.name.is_empty() && !user.dir.is_empty());
                }
                if let Ok(Ok(group)) = mapping.group(&entry, true) {
                    assert!(!group.name.is_empty());
                    assert!(group.members.unwrap().iter().all(|member| !member.is_empty()));
                }
            }
        }
        Operation::Intermediate(_, Some(value)) => {
            if let Ok(SyncInfo::Set { uuids, .. }) = SyncInfo::parse(value) {
                let _ = uuids.count();
            }
        }
        Operation::BindDone(outcome) | Operation::SearchDone(outcome) => {
            assert!(!outcome.to_string().contains('\n'));
        }
        _ => {}
    }
}
