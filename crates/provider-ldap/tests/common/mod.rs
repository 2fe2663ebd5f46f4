//! What the tests of this crate share: a sink that keeps what it is told, and a domain that is
//! mirrored into it from a real server.
#![allow(dead_code)] // each test binary uses a part

use roster_config::{
    Access, Attributes, Auth, AuthMethod, Bind, Domain, Ldap as Keys, MemberAttribute,
    MemberValues, Mode, Overrides, Provider as Configured, Search, Secrets, Server as Address,
};
use roster_provider::account::Account;
use roster_provider::{
    Cookie, Entry, EntryId, Group, Keys as Sought, LookUp, Member, Of, Part, Provider, Rejected,
    Sink, Unanswered, Unmentioned, User,
};
use roster_provider_ldap::Ldap;
use roster_system_tests as system;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
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
    users: HashMap<EntryId, User<'static>>,
    groups: HashMap<EntryId, Group<'static>>,
    of_part: HashMap<EntryId, Part>,
    rejected: BTreeMap<String, String>,
    rejected_ids: HashMap<EntryId, String>,
    /// Groups whose members are not known any more.
    taken_back: HashSet<EntryId>,
    refreshing: HashMap<Part, HashSet<EntryId>>,
    cookies: HashMap<Part, Cookie>,
    memberships: HashMap<EntryId, Vec<EntryId>>,
    ends: Vec<(Part, Unmentioned)>,
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

    fn mention(&mut self, part: Part, id: EntryId) {
        self.of_part.insert(id, part);
        if let Some(mentioned) = self.refreshing.get_mut(&part) {
            mentioned.insert(id);
        }
    }
}

/// Keeps what it is told; what is looked at is what the last flush let out.
#[derive(Default)]
pub struct Book {
    now: Mutex<State>,
    out: Mutex<State>,
    /// Nothing more is to be told.
    pub full: AtomicBool,
}

impl Book {
    pub fn users(&self) -> BTreeMap<String, Person> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let person = |user: &User<'_>| {
            let (dir, shell) = (text(&user.dir), text(&user.shell));
            (text(&user.name), Person { uid: user.uid, gid: user.gid, dir, shell })
        };
        self.out.lock().unwrap().users.values().map(person).collect()
    }

    /// Groups and the names of their members, in order.
    pub fn groups(&self) -> BTreeMap<String, (u32, BTreeSet<String>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let out = self.out.lock().unwrap();
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
        let group = |group: &Group<'static>| {
            let members = group.members.iter().flatten().map(name).collect();
            (text(&group.name), (group.gid, members))
        };
        out.groups.values().map(group).collect()
    }

    /// Whether the group is known and its members are.
    pub fn members_known(&self, group: &str) -> bool {
        let out = self.out.lock().unwrap();
        out.groups.values().any(|one| *one.name == *group.as_bytes() && one.members.is_some())
    }

    /// Whether it was told that the group's members are not known any more.
    pub fn members_taken_back(&self, group: &str) -> bool {
        let id = self.id(group);
        id.is_some_and(|id| self.out.lock().unwrap().taken_back.contains(&id))
    }

    pub fn rejected(&self) -> BTreeMap<String, String> {
        self.out.lock().unwrap().rejected.clone()
    }

    pub fn cookies(&self) -> Vec<(Part, Cookie)> {
        self.out.lock().unwrap().cookies.clone().into_iter().collect()
    }

    pub fn id(&self, name: &str) -> Option<EntryId> {
        let out = self.out.lock().unwrap();
        let users = out.users.iter().map(|(id, user)| (id, &user.name));
        users
            .chain(out.groups.iter().map(|(id, group)| (id, &group.name)))
            .find(|(_, found)| &***found == name.as_bytes())
            .map(|(id, _)| *id)
    }

    /// The DN by which member lists name a user.
    pub fn reference(&self, user: &str) -> Option<String> {
        let id = self.id(user)?;
        let out = self.out.lock().unwrap();
        Some(String::from_utf8_lossy(&out.users.get(&id)?.reference).into_owned())
    }

    /// Names of the groups of a user, as a look-up found them.
    pub fn groups_found(&self, user: &str) -> Option<BTreeSet<String>> {
        let id = self.id(user)?;
        let out = self.out.lock().unwrap();
        let name = |id: &EntryId| String::from_utf8_lossy(&out.groups[id].name).into_owned();
        Some(out.memberships.get(&id)?.iter().map(name).collect())
    }

    pub fn online(&self) -> Option<String> {
        self.now.lock().unwrap().online.clone()
    }

    pub fn offline(&self) -> Option<String> {
        self.now.lock().unwrap().offline.clone()
    }

    /// Why servers before the one in use were not taken.
    pub fn passed_over(&self) -> String {
        self.now.lock().unwrap().passed_over.clone()
    }

    /// How refreshes ended, in order.
    pub fn ends(&self) -> Vec<Unmentioned> {
        self.now.lock().unwrap().ends.iter().map(|(_, unmentioned)| *unmentioned).collect()
    }

    pub fn puts(&self) -> usize {
        self.now.lock().unwrap().puts
    }

    pub fn flushes(&self) -> usize {
        self.now.lock().unwrap().flushes
    }
}

fn owned(bytes: &[u8]) -> Cow<'static, [u8]> {
    Cow::Owned(bytes.to_vec())
}

impl Sink for Book {
    fn online(&self, server: &str, passed_over: &str) {
        let mut now = self.now.lock().unwrap();
        (now.online, now.offline) = (Some(server.to_owned()), None);
        now.passed_over = passed_over.to_owned();
    }

    fn offline(&self, reason: &str) {
        let mut now = self.now.lock().unwrap();
        (now.online, now.offline) = (None, Some(reason.to_owned()));
    }

    fn refresh_began(&self, part: Part) {
        self.now.lock().unwrap().refreshing.insert(part, HashSet::new());
    }

    fn put(&self, part: Part, id: EntryId, entry: Entry<'_>) {
        let mut now = self.now.lock().unwrap();
        now.forget(id);
        now.mention(part, id);
        now.puts += 1;
        match entry {
            Entry::User(user) => {
                let User { name, uid, gid, gecos, dir, shell, reference, .. } = user;
                let [name, gecos, dir, shell, reference] =
                    [name, gecos, dir, shell, reference].map(|field| owned(&field));
                let account = Account::default();
                let user = User { name, uid, gid, gecos, dir, shell, reference, account };
                now.users.insert(id, user);
            }
            Entry::Group(Group { name, gid, reference, members }) => {
                let members =
                    members.map(|members| members.into_iter().map(Member::into_owned).collect());
                let (name, reference) = (owned(&name), owned(&reference));
                now.groups.insert(id, Group { name, gid, reference, members });
            }
        }
    }

    fn present(&self, part: Part, id: EntryId) -> bool {
        let mut now = self.now.lock().unwrap();
        let is_known = now.of_part.contains_key(&id);
        if is_known {
            now.mention(part, id);
        }
        is_known
    }

    fn removed(&self, _part: Part, id: EntryId) {
        self.now.lock().unwrap().forget(id);
    }

    fn rejected(&self, part: Part, id: EntryId, rejected: &Rejected<'_>) {
        let Rejected { name, reason, .. } = *rejected;
        let mut now = self.now.lock().unwrap();
        now.forget(id);
        now.mention(part, id);
        now.rejected.insert(name.to_owned(), reason.to_owned());
        now.rejected_ids.insert(id, name.to_owned());
    }

    fn refresh_ended(&self, part: Part, unmentioned: Unmentioned, cookie: Option<Cookie>) {
        let mut now = self.now.lock().unwrap();
        let mentioned = now.refreshing.remove(&part).expect("it began");
        if unmentioned != Unmentioned::Kept {
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

    fn cookie(&self, part: Part, cookie: Cookie) {
        self.now.lock().unwrap().cookies.insert(part, cookie);
    }

    fn groups_of(&self, user: EntryId, groups: &[EntryId]) {
        let mut now = self.now.lock().unwrap();
        assert!(now.users.contains_key(&user), "the user was put before");
        assert!(groups.iter().all(|id| now.groups.contains_key(id)), "so was each group");
        now.memberships.insert(user, groups.to_vec());
    }

    fn members_unknown(&self, _part: Part, id: EntryId) {
        let mut now = self.now.lock().unwrap();
        assert!(now.groups[&id].members.is_none(), "the group was put without them");
        now.taken_back.insert(id);
    }

    fn has_room(&self) -> bool {
        !self.full.load(Ordering::Relaxed)
    }

    fn knows(&self, members: &[&Member<'_>]) -> Vec<bool> {
        let now = self.now.lock().unwrap();
        let knows = |member: &&Member<'_>| match member {
            Member::Name(name) => now.users.values().any(|user| user.name == *name),
            Member::Dn(dn) => {
                let user = now.users.values().any(|user| user.reference == *dn);
                let is_it = |group: &Group<'_>| group.reference == *dn;
                user || now.groups.values().any(|group| group.members.is_some() && is_it(group))
            }
        };
        members.iter().map(knows).collect()
    }

    fn flush(&self) {
        let mut now = self.now.lock().unwrap();
        now.flushes += 1;
        *self.out.lock().unwrap() = now.clone();
    }
}

/// An attribute in which groups name members.
pub fn member_attribute(name: &str, values: MemberValues) -> MemberAttribute {
    MemberAttribute { name: name.to_owned(), values }
}

/// A domain's configuration for a server.
pub fn domain(server: &impl system::Server) -> Domain {
    let base = server.base().to_owned();
    let keys = Keys {
        servers: vec![address(&server.uri())],
        discover: None,
        users: Search { base: base.clone(), filter: "(objectClass=posixAccount)".to_owned() },
        groups: Search { base: base.clone(), filter: "(objectClass=posixGroup)".to_owned() },
        base,
        attributes: Attributes {
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
            uuid: None,
        },
        member_attributes: vec![
            member_attribute("memberuid", MemberValues::Names),
            member_attribute("member", MemberValues::Dns),
            member_attribute("uniquemember", MemberValues::DnsWithUids),
        ],
        case_sensitive: false,
        bind: Bind::Simple { dn: server.reader(), password_file: "password".into() },
        start_tls: false,
        tls_ca: None,
        allow_clear_password: true,
        allow_clear_identities: true,
        allow_clear_user_passwords: true,
        page_size: 500,
        connect_timeout: Duration::from_secs(5),
        search_timeout: Duration::from_secs(10),
        poll: Duration::from_millis(300),
        sweep: Duration::from_secs(15 * 60),
        full_refresh: Duration::ZERO,
        fail_back: Duration::from_secs(1),
        message_bytes_max: 64 << 20,
    };
    Domain {
        name: "corp".to_owned(),
        min_id: 1000,
        max_id: 60_000,
        mode: Mode::Replicate,
        overrides: Overrides::default(),
        mass_deletion: 0.5,
        refresh: Duration::from_secs(300),
        negative: Duration::from_secs(15),
        provider: Configured::Ldap(Box::new(keys)),
        access: Access::unconfigured(),
        auth: Auth {
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
pub fn keys(domain: &mut Domain) -> &mut Keys {
    match &mut domain.provider {
        Configured::Ldap(keys) => keys,
        Configured::Files(_) => unreachable!("made as LDAP"),
    }
}

/// The reader's secrets, with an authority when there is one.
pub fn secrets(authority: Option<&Path>) -> Secrets {
    Secrets {
        bind_password: Some(system::servers::READER_PASSWORD.to_owned()),
        tls_ca: authority.map(|path| std::fs::read_to_string(path).expect("read the authority")),
        keytab: roster_config::Keytab::None,
    }
}

/// A provider that mirrors into a book in a thread of its own until it is dropped.
pub struct Mirror {
    pub book: Arc<Book>,
    pub ldap: Arc<Ldap>,
    runtime: Option<tokio::runtime::Handle>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Mirror {
    pub fn start(domain: &Domain, secrets: &Secrets) -> Self {
        Self::resume(domain, secrets, Arc::default())
    }

    /// Goes on with a book that has cookies.
    pub fn resume(domain: &Domain, secrets: &Secrets, book: Arc<Book>) -> Self {
        let sink: Arc<dyn Sink> = Arc::clone(&book) as _;
        let ldap = Arc::new(Ldap::new(domain, secrets, sink).expect("a domain that can be set up"));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (handle, handed) = std::sync::mpsc::channel();
        let (provider, cookies) = (Arc::clone(&ldap), book.cookies());
        let thread = thread::spawn(move || {
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
        Self { book, ldap, runtime, stop: Some(stop), thread: Some(thread) }
    }

    /// Asks from another task of the same runtime.
    pub fn look_up(&self, what: LookUp) -> Result<bool, String> {
        self.ask(move |ldap| async move { ldap.look_up(&what).await })
            .map_err(|error| error.to_string())
    }

    /// Asks for several at once.
    pub fn look_up_all(&self, of: Of, names: &[&str]) -> Result<(), Unanswered> {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        self.ask(move |ldap| async move { ldap.look_up_all(of, Sought::Names(&names)).await })
    }

    /// The same by their ids.
    pub fn look_up_ids(&self, of: Of, ids: &[u32]) -> Result<(), Unanswered> {
        let ids = ids.to_vec();
        self.ask(move |ldap| async move { ldap.look_up_all(of, Sought::Ids(&ids)).await })
    }

    pub fn ask<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        what: impl FnOnce(Arc<Ldap>) -> F,
    ) -> T {
        self.asked(what).recv_timeout(SOON).expect("an answer in time")
    }

    /// The same for who does not wait at once.
    pub fn asked<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        what: impl FnOnce(Arc<Ldap>) -> F,
    ) -> std::sync::mpsc::Receiver<T> {
        let (answer, answered) = std::sync::mpsc::channel();
        let asking = what(Arc::clone(&self.ldap));
        self.runtime.as_ref().expect("runs").spawn(async move {
            let _ = answer.send(asking.await);
        });
        answered
    }

    /// Stops it and returns its book.
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
