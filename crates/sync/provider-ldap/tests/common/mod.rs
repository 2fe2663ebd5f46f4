// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared parts of this crate's tests: a sink that records the reported entries, and a domain that is mirrored into it
//! from a real server.
#![allow(dead_code)] // each test binary uses a part

use parking_lot::Mutex;
use roster_config::{
    AccessConfig, AttributeNames, AuthConfig, AuthMethod, BindMethod, DirectorySchema,
    DomainConfig, DomainMode, DomainSecrets, HomeShellOverrides, IdMapping, LdapConfig as Keys,
    LdapServer as Address, MemberAttribute, MemberValues, NameCase, NameConfig,
    PasswordChangeConfig, ProviderConfig as Configured, SearchBase, SearchConfig, SecretFile,
    ServingConfig, WhenAway,
};
use roster_provider::account::Account;
use roster_provider::reason::Reason;
use roster_provider::{
    DirectoryEntry, DirectoryGroup, DirectoryUser, EntryId, EntrySink, LookupError,
    LookupKeys as Sought, LookupQuery, LookupScope, Member, Provider, SearchId, SyncCookie,
    UnlistedEntries, UnreadableEntry,
};
use roster_provider_ldap::LdapProvider;
use roster_system_tests as system;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub use roster_system_tests::wait::SOON;

/// A user as the tests compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    pub uid: u32,
    pub gid: u32,
    pub dir: String,
    pub shell: String,
}

#[derive(Clone, Debug, Default)]
struct State {
    users: HashMap<EntryId, DirectoryUser<'static>>,
    groups: HashMap<EntryId, DirectoryGroup<'static>>,
    of_part: HashMap<EntryId, SearchId>,
    rejected: BTreeMap<String, String>,
    rejected_ids: HashMap<EntryId, String>,
    /// Groups with invalidated members.
    taken_back: HashSet<EntryId>,
    refreshing: HashMap<SearchId, HashSet<EntryId>>,
    cookies: HashMap<SearchId, SyncCookie>,
    memberships: HashMap<EntryId, Vec<EntryId>>,
    ends: Vec<(SearchId, UnlistedEntries)>,
    online: Option<String>,
    offline: Option<String>,
    passed_over: String,
    puts: usize,
    flushes: usize,
}

impl State {
    fn forget(&mut self, id: EntryId) {
        self.users.remove(&id);
        self.groups.remove(&id);
        self.of_part.remove(&id);
        if let Some(name) = self.rejected_ids.remove(&id) {
            self.rejected.remove(&name);
        }
    }

    fn mention(&mut self, part: SearchId, id: EntryId) {
        self.of_part.insert(id, part);
        if let Some(mentioned) = self.refreshing.get_mut(&part) {
            mentioned.insert(id);
        }
    }
}

/// Records the reported entries. Readers see the state of the last flush.
#[derive(Default)]
pub struct Book {
    now: Mutex<State>,
    out: Mutex<State>,
    /// The sink has no capacity.
    pub full: AtomicBool,
}

impl Book {
    pub fn users(&self) -> BTreeMap<String, Person> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let person = |user: &DirectoryUser<'_>| {
            let (dir, shell) = (text(&user.dir), text(&user.shell));
            (text(&user.name), Person { uid: user.uid, gid: user.gid, dir, shell })
        };
        self.out.lock().users.values().map(person).collect()
    }

    /// Groups and the names of their members, in order.
    pub fn groups(&self) -> BTreeMap<String, (u32, BTreeSet<String>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let out = self.out.lock();
        let names: HashMap<String, String> = (out.users.values())
            .map(|user| (text(&user.reference), text(&user.name)))
            .chain(out.groups.values().map(|group| (text(&group.reference), text(&group.name))))
            .collect();
        let is_user = |name: &[u8]| out.users.values().any(|user| *user.name == *name);
        let name = |member: &Member<'static>| match member {
            Member::Name(name) if is_user(name) => text(name),
            Member::Name(name) => format!("?{}", text(name)),
            Member::Dn(dn) => {
                names.get(&text(dn)).cloned().unwrap_or_else(|| format!("?{}", text(dn)))
            }
        };
        let group = |group: &DirectoryGroup<'static>| {
            let members = group.members.iter().flatten().map(name).collect();
            (text(&group.name), (group.gid.unwrap_or_default(), members))
        };
        out.groups.values().map(group).collect()
    }

    /// Returns whether the group and its members are known.
    pub fn members_known(&self, group: &str) -> bool {
        let out = self.out.lock();
        out.groups.values().any(|one| *one.name == *group.as_bytes() && one.members.is_some())
    }

    /// Returns whether the group's members were reported as unknown.
    pub fn members_taken_back(&self, group: &str) -> bool {
        let id = self.id(group);
        id.is_some_and(|id| self.out.lock().taken_back.contains(&id))
    }

    pub fn rejected(&self) -> BTreeMap<String, String> {
        self.out.lock().rejected.clone()
    }

    pub fn cookies(&self) -> Vec<(SearchId, SyncCookie)> {
        self.out.lock().cookies.clone().into_iter().collect()
    }

    pub fn id(&self, name: &str) -> Option<EntryId> {
        let out = self.out.lock();
        let users = out.users.iter().map(|(id, user)| (id, &user.name));
        users
            .chain(out.groups.iter().map(|(id, group)| (id, &group.name)))
            .find(|(_, found)| &***found == name.as_bytes())
            .map(|(id, _)| *id)
    }

    /// Returns the DN by which member lists name a user.
    pub fn reference(&self, user: &str) -> Option<String> {
        let id = self.id(user)?;
        let out = self.out.lock();
        Some(String::from_utf8_lossy(&out.users.get(&id)?.reference).into_owned())
    }

    /// Returns the names of a user's groups, as a lookup found them.
    pub fn groups_found(&self, user: &str) -> Option<BTreeSet<String>> {
        let id = self.id(user)?;
        let out = self.out.lock();
        let name = |id: &EntryId| String::from_utf8_lossy(&out.groups[id].name).into_owned();
        Some(out.memberships.get(&id)?.iter().map(name).collect())
    }

    pub fn online(&self) -> Option<String> {
        self.now.lock().online.clone()
    }

    pub fn offline(&self) -> Option<String> {
        self.now.lock().offline.clone()
    }

    /// Returns the reasons that servers before the present one were not used.
    pub fn passed_over(&self) -> String {
        self.now.lock().passed_over.clone()
    }

    /// Returns the ends of refreshes, in order.
    pub fn ends(&self) -> Vec<UnlistedEntries> {
        self.now.lock().ends.iter().map(|(_, unmentioned)| *unmentioned).collect()
    }

    pub fn puts(&self) -> usize {
        self.now.lock().puts
    }

    pub fn flushes(&self) -> usize {
        self.now.lock().flushes
    }
}

fn owned(bytes: &[u8]) -> Cow<'static, [u8]> {
    Cow::Owned(bytes.to_vec())
}

impl EntrySink for Book {
    fn online(&self, server: &str, passed_over: Option<&Reason>) {
        let mut now = self.now.lock();
        (now.online, now.offline) = (Some(server.to_owned()), None);
        now.passed_over = passed_over.map(Reason::with_code).unwrap_or_default();
    }

    fn offline(&self, reason: &Reason) {
        let mut now = self.now.lock();
        (now.online, now.offline) = (None, Some(reason.with_code()));
    }

    fn refresh_began(&self, part: SearchId) {
        self.now.lock().refreshing.insert(part, HashSet::new());
    }

    fn put(&self, part: SearchId, id: EntryId, entry: DirectoryEntry<'_>) {
        let mut now = self.now.lock();
        now.forget(id);
        now.mention(part, id);
        now.puts += 1;
        match entry {
            DirectoryEntry::User(user) => {
                let DirectoryUser { name, uid, gid, gecos, dir, shell, reference, .. } = user;
                let [name, gecos, dir, shell, reference] =
                    [name, gecos, dir, shell, reference].map(|field| owned(&field));
                let account = Account::default();
                let user = DirectoryUser { name, uid, gid, gecos, dir, shell, reference, account };
                now.users.insert(id, user);
            }
            DirectoryEntry::Group(DirectoryGroup { name, gid, reference, members }) => {
                let members =
                    members.map(|members| members.into_iter().map(Member::into_owned).collect());
                let (name, reference) = (owned(&name), owned(&reference));
                now.groups.insert(id, DirectoryGroup { name, gid, reference, members });
            }
        }
    }

    fn present(&self, part: SearchId, id: EntryId) -> bool {
        let mut now = self.now.lock();
        let is_known = now.of_part.get(&id) == Some(&part);
        if is_known {
            now.mention(part, id);
        }
        is_known
    }

    fn removed(&self, part: SearchId, id: EntryId) {
        let mut now = self.now.lock();
        if now.of_part.get(&id) == Some(&part) {
            now.forget(id);
        }
    }

    fn rejected(&self, part: SearchId, id: EntryId, rejected: &UnreadableEntry<'_>) {
        let UnreadableEntry { name, reason, .. } = *rejected;
        let mut now = self.now.lock();
        now.forget(id);
        now.mention(part, id);
        now.rejected.insert(name.to_owned(), reason.with_code());
        now.rejected_ids.insert(id, name.to_owned());
    }

    fn refresh_ended(
        &self,
        part: SearchId,
        unmentioned: UnlistedEntries,
        cookie: Option<SyncCookie>,
    ) {
        let mut now = self.now.lock();
        let mentioned = now.refreshing.remove(&part).expect("it began");
        if unmentioned != UnlistedEntries::Unchanged {
            let gone: Vec<EntryId> = (now.of_part.iter())
                .filter(|(id, of)| **of == part && !mentioned.contains(id))
                .map(|(id, _)| *id)
                .collect();
            gone.into_iter().for_each(|id| now.forget(id));
        }
        now.ends.push((part, unmentioned));
        match cookie {
            Some(cookie) => now.cookies.insert(part, cookie),
            None => now.cookies.remove(&part),
        };
    }

    fn cookie(&self, part: SearchId, cookie: SyncCookie) {
        self.now.lock().cookies.insert(part, cookie);
    }

    fn user_groups(&self, user: EntryId, groups: &[EntryId]) {
        let mut now = self.now.lock();
        assert!(now.users.contains_key(&user), "the user was put before");
        assert!(groups.iter().all(|id| now.groups.contains_key(id)), "so was each group");
        now.memberships.insert(user, groups.to_vec());
    }

    fn members_unknown(&self, _part: SearchId, id: EntryId) {
        let mut now = self.now.lock();
        assert!(now.groups[&id].members.is_none(), "the group was put without them");
        now.taken_back.insert(id);
    }

    fn has_capacity(&self) -> bool {
        !self.full.load(Ordering::Relaxed)
    }

    fn knows(&self, members: &[&Member<'_>]) -> Vec<bool> {
        let now = self.now.lock();
        let knows = |member: &&Member<'_>| match member {
            Member::Name(name) => now.users.values().any(|user| user.name == *name),
            Member::Dn(dn) => {
                let user = now.users.values().any(|user| user.reference == *dn);
                let is_it = |group: &DirectoryGroup<'_>| group.reference == *dn;
                user || now.groups.values().any(|group| group.members.is_some() && is_it(group))
            }
        };
        members.iter().map(knows).collect()
    }

    fn flush(&self) {
        let mut now = self.now.lock();
        now.flushes += 1;
        *self.out.lock() = now.clone();
    }
}

/// An attribute in which groups name members.
pub fn member_attribute(name: &str, values: MemberValues) -> MemberAttribute {
    MemberAttribute { name: name.to_owned(), values }
}

/// A domain's configuration for a server.
pub fn domain(server: &impl system::DirectoryServer) -> DomainConfig {
    let base = server.base().to_owned();
    let keys = Keys {
        schema: DirectorySchema::default(),
        id_mapping: IdMapping::Posix,
        member_range: 1_500,
        servers: vec![address(&server.uri())],
        discover: None,
        controllers: None,
        users: SearchConfig {
            bases: vec![SearchBase::subtree(&base)],
            filter: "(objectClass=posixAccount)".to_owned(),
        },
        groups: SearchConfig {
            bases: vec![SearchBase::subtree(&base)],
            filter: "(objectClass=posixGroup)".to_owned(),
        },
        nested_group_filter: "(objectClass=groupOfNames)".to_owned(),
        bases: vec![SearchBase::subtree(&base)],
        attributes: AttributeNames {
            user_name: "uid".to_owned(),
            user_uid: "uidnumber".to_owned(),
            user_gid: "gidnumber".to_owned(),
            user_gecos: "gecos".to_owned(),
            user_home: "homedirectory".to_owned(),
            user_shell: "loginshell".to_owned(),
            group_name: "cn".to_owned(),
            group_gid: "gidnumber".to_owned(),
            ssh_key: "sshpublickey".to_owned(),
            shadow_last_change: "shadowlastchange".to_owned(),
            shadow_max: "shadowmax".to_owned(),
            shadow_warning: "shadowwarning".to_owned(),
            shadow_inactive: "shadowinactive".to_owned(),
            shadow_expire: "shadowexpire".to_owned(),
            locked_time: "pwdaccountlockedtime".to_owned(),
            password_reset: "pwdreset".to_owned(),
            account_lock: "nsaccountlock".to_owned(),
            role: "nsrole".to_owned(),
            account_control: "useraccountcontrol".to_owned(),
            account_expires: "accountexpires".to_owned(),
            account_control_computed: "msds-user-account-control-computed".to_owned(),
            lockout_time: "lockouttime".to_owned(),
            host: "host".to_owned(),
            authorized_service: "authorizedservice".to_owned(),
            rhost: "rhost".to_owned(),
            uuid: None,
        },
        member_attributes: vec![
            member_attribute("memberuid", MemberValues::Names),
            member_attribute("member", MemberValues::Dns),
            member_attribute("uniquemember", MemberValues::DnsWithUids),
        ],
        bind: BindMethod::Simple {
            dn: server.reader_dn(),
            password_file: SecretFile::Path("password".into()),
        },
        start_tls: false,
        tls_ca: None,
        client_certificate: None,
        allow_clear_password: true,
        allow_clear_identities: true,
        allow_clear_user_passwords: true,
        password_change: PasswordChangeConfig::default(),
        page_size: 500,
        connect_timeout: Duration::from_secs(5),
        search_timeout: Duration::from_secs(10),
        poll: Duration::from_millis(300),
        sweep: Duration::from_secs(15 * 60),
        full_refresh: Duration::ZERO,
        fail_back: Duration::from_secs(1),
        message_bytes_max: 64 << 20,
    };
    DomainConfig {
        names: NameConfig { case: NameCase::Insensitive, ..NameConfig::default() },
        name: "corp".to_owned(),
        min_id: 1000,
        max_id: 60_000,
        mode: DomainMode::Replicate,
        overrides: HomeShellOverrides::default(),
        serving: ServingConfig::default(),
        private_groups: roster_config::PrivateGroups::Off,
        local_overrides: roster_config::OverridesConfig::default(),
        mass_deletion: 0.5,
        refresh: Duration::from_secs(300),
        negative: Duration::from_secs(15),
        when_away: WhenAway::Wait,
        provider: Configured::Ldap(Box::new(keys)),
        access: AccessConfig::unconfigured(),
        auth: AuthConfig {
            method: AuthMethod::Ldap,
            timeout: Duration::from_secs(10),
            offline: None,
            krb5: None,
        },
    }
}

/// A server's address from a URI as the harness writes it.
pub fn address(uri: &str) -> Address {
    let (scheme, rest) = uri.split_once("://").expect("a URI");
    if scheme == "ldapi" {
        return Address::Ldapi { path: rest.replace("%2F", "/").into() };
    }
    let (host, port) = rest.rsplit_once(':').expect("with a port");
    let (host, port) = (host.to_owned(), port.parse().expect("a number"));
    if scheme == "ldaps" { Address::Ldaps { host, port } } else { Address::Ldap { host, port } }
}

/// The keys of the provider.
pub fn keys(domain: &mut DomainConfig) -> &mut Keys {
    match &mut domain.provider {
        Configured::Ldap(keys) => keys,
        Configured::Files(_) => unreachable!("made as LDAP"),
    }
}

/// The reader's secrets, with an authority when there is one.
pub fn secrets(authority: Option<&Path>) -> DomainSecrets {
    DomainSecrets {
        bind_password: Some(system::servers::READER_PASSWORD.to_owned()),
        tls_ca: authority.map(|path| std::fs::read_to_string(path).expect("read the authority")),
        ..DomainSecrets::default()
    }
}

/// A provider in a dedicated thread that mirrors into a book until it is dropped.
pub struct Mirror {
    pub book: Arc<Book>,
    pub ldap: Arc<LdapProvider>,
    /// The codes that its thread logged.
    pub logged: system::LoggedCodes,
    runtime: Option<tokio::runtime::Handle>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Mirror {
    pub fn start(domain: &DomainConfig, secrets: &DomainSecrets) -> Self {
        Self::resume(domain, secrets, Arc::default())
    }

    /// Continues with a book that has cookies.
    pub fn resume(domain: &DomainConfig, secrets: &DomainSecrets, book: Arc<Book>) -> Self {
        let sink: Arc<dyn EntrySink> = Arc::clone(&book) as _;
        let ldap = Arc::new(
            LdapProvider::new(domain, secrets, sink, None).expect("a domain that can be set up"),
        );
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (handle, handed) = std::sync::mpsc::channel();
        let (provider, cookies) = (Arc::clone(&ldap), book.cookies());
        let logged = system::LoggedCodes::default();
        let collected = logged.clone();
        let thread = thread::spawn(move || {
            let _collecting = collected.collect();
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
            handle.send(runtime.handle().clone()).expect("who waits for it");
            runtime.block_on(async {
                tokio::select! {
                    reason = provider.mirror(cookies) => panic!("the mirror ended: {reason}"),
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        let runtime = Some(handed.recv().expect("the thread runs"));
        Self { book, ldap, logged, runtime, stop: Some(stop), thread: Some(thread) }
    }

    /// Runs a lookup from another task of the same runtime.
    pub fn look_up(&self, what: LookupQuery) -> Result<bool, String> {
        self.run_query(move |ldap| async move { ldap.lookup(&what).await })
            .map_err(|error| error.into_reason().with_code())
    }

    /// Looks several names up at once.
    pub fn look_up_all(&self, of: LookupScope, names: &[&str]) -> Result<(), LookupError> {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        self.run_query(move |ldap| async move { ldap.lookup_all(of, Sought::Names(&names)).await })
    }

    /// Looks several ids up at once.
    pub fn look_up_ids(&self, of: LookupScope, ids: &[u32]) -> Result<(), LookupError> {
        let ids = ids.to_vec();
        self.run_query(move |ldap| async move { ldap.lookup_all(of, Sought::Ids(&ids)).await })
    }

    pub fn run_query<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        what: impl FnOnce(Arc<LdapProvider>) -> F,
    ) -> T {
        self.start_query(what).recv_timeout(SOON).expect("an answer in time")
    }

    /// Starts a query without waiting for its result.
    pub fn start_query<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        what: impl FnOnce(Arc<LdapProvider>) -> F,
    ) -> std::sync::mpsc::Receiver<T> {
        let (answer, answered) = std::sync::mpsc::channel();
        let asking = what(Arc::clone(&self.ldap));
        self.runtime.as_ref().expect("runs").spawn(async move {
            let _ = answer.send(asking.await);
        });
        answered
    }

    /// Stops the mirror and returns its book.
    pub fn stop(mut self) -> Arc<Book> {
        self.end();
        Arc::clone(&self.book)
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the mirror's thread panicked");
        }
    }

    /// Waits until `condition` holds of the book.
    #[track_caller]
    pub fn until(&self, what: &str, condition: impl Fn(&Book) -> bool) {
        self.within(SOON, what, condition);
    }

    /// Waits for longer than [`SOON`] until `condition` holds of the book.
    #[track_caller]
    pub fn within(&self, deadline: Duration, what: &str, condition: impl Fn(&Book) -> bool) {
        system::wait_for(deadline, || {
            if condition(&self.book) {
                return Ok(());
            }
            let (users, groups) = (self.book.users().len(), self.book.groups().len());
            let offline = self.book.offline();
            Err(format!("{what}; offline: {offline:?}, {users} users, {groups} groups"))
        });
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.end();
    }
}

/// A 389 Directory Server with these entries that offers persistent search only.
pub fn without_synchronization(ldif: &str) -> system::Ds389 {
    use system::DirectoryServer as _;
    let mut server = system::Ds389::serving(ldif);
    server.set(
        "cn=Content Synchronization,cn=plugins,cn=config",
        "nsslapd-pluginEnabled",
        &["off"],
    );
    server.stop();
    server.start();
    server
}
