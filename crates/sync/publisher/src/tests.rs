// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the publisher, from images of backends to the bytes of the snapshot.

use super::domain_model::{self, ImageRejection, NUMBERS_MAX};
use super::entry_counts::{EntryCounts, ServedCounts};
use super::last_snapshot::LastSnapshot;
use super::lookup_overlay::OverlayEntry;
use super::own::SnapshotIdentity;
use super::own_record;
use super::state::{ImageOutcome, Invalidation, PublisherState};
use super::{BackendClients, PublicationProgress, PublisherTasks, SnapshotCopies};
use crate::existing_snapshot::ExistingSnapshot;
use crate::role_config::{DomainRules, PublisherRoleConfig};
use parking_lot::Mutex;
use roster_admission::IdRanges;
use roster_admission::Locals;
use roster_bus::bus_names::RoleName;
use roster_bus::domain_image::{
    self, COMPLETE, CURRENT, ImageHeader, NO_REFERENCE, REMOVALS_JUDGED, Records,
};
use roster_bus::interfaces::RejectionCount;
use roster_config::{
    AdmissionExceptions, AllowedShells, DomainMode, HostConfig, NameConfig, PrivateGroups,
    ServingConfig, ShellRules, WhenAway,
};
use roster_messages::table::directory;
use roster_request::LookupKind as LookUp;
use roster_role::testing::TestBus;
use roster_snapshot::Snapshot;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{Notify, RwLock, watch};

/// An image as a backend encodes it.
pub(super) struct Image {
    pub(super) header: ImageHeader,
    bytes: Vec<u8>,
}

impl Image {
    pub(super) fn full() -> Self {
        let header = ImageHeader {
            flags: COMPLETE | CURRENT | REMOVALS_JUDGED,
            epoch: 1,
            since: 0,
            sequence: 1,
            records: 0,
        };
        Self { header, bytes: Vec::new() }
    }

    pub(super) fn changes(since: u64) -> Self {
        let image = Self::full();
        Self { header: ImageHeader { since, sequence: since + 1, ..image.header }, ..image }
    }

    /// Adds a user with its number as reference.
    pub(super) fn user(mut self, number: u32, name: &str, uid: u32, gid: u32) -> Self {
        self.bytes.extend(Self::record(number, number, name, uid, gid));
        self.counted()
    }

    /// Adds a user with another reference.
    pub(super) fn user_named_by(
        mut self,
        number: u32,
        reference: u32,
        name: &str,
        uid: u32,
    ) -> Self {
        self.bytes.extend(Self::record(number, reference, name, uid, uid));
        self.counted()
    }

    fn record(number: u32, reference: u32, name: &str, uid: u32, gid: u32) -> Vec<u8> {
        let user = domain_image::UserRecord {
            number,
            reference,
            by_name: NO_REFERENCE,
            uid,
            gid,
            name: name.as_bytes(),
            gecos: b"A user",
            dir: b"/home/user",
            shell: b"/bin/sh",
        };
        let mut record = Vec::new();
        domain_image::write_user(&mut record, &user).expect("fits");
        record
    }

    pub(super) fn group(mut self, number: u32, name: &str, gid: u32, members: &[u32]) -> Self {
        let written = domain_image::write_group(
            &mut self.bytes,
            number,
            number,
            Some(gid),
            name.as_bytes(),
            Some(members),
        );
        written.expect("fits");
        self.counted()
    }

    pub(super) fn gone(mut self, number: u32) -> Self {
        domain_image::write_removed(&mut self.bytes, number);
        self.counted()
    }

    /// Adds an entry with the largest memory need of a single entry: about a third of a domain's limit.
    pub(super) fn far(self) -> Self {
        self.user(NUMBERS_MAX - 1, "far", 5999, 5999)
    }

    /// Adds 50 users that are not served, with texts that count 37 MiB.
    pub(super) fn crowd(mut self, crowd: u32) -> Self {
        let text = [b'x'; u16::MAX as usize];
        for number in 50 * crowd..50 * (crowd + 1) {
            let [name, gecos, dir, shell] = [&text; 4];
            let (reference, by_name, uid, gid) = (number, NO_REFERENCE, 6000, 6000);
            let user = domain_image::UserRecord {
                number,
                reference,
                by_name,
                uid,
                gid,
                name,
                gecos,
                dir,
                shell,
            };
            domain_image::write_user(&mut self.bytes, &user).expect("fits");
            self = self.counted();
        }
        self
    }

    /// Adds a group without a member list.
    pub(super) fn unasked(mut self, number: u32, name: &str, gid: u32) -> Self {
        let name = name.as_bytes();
        domain_image::write_group(&mut self.bytes, number, number, Some(gid), name, None)
            .expect("fits");
        self.counted()
    }

    /// Adds a group without gid, which only nests.
    pub(super) fn nested(mut self, number: u32, name: &str, members: &[u32]) -> Self {
        let name = name.as_bytes();
        domain_image::write_group(&mut self.bytes, number, number, None, name, Some(members))
            .expect("fits");
        self.counted()
    }

    pub(super) fn groups_of(mut self, user: u32, groups: &[u32]) -> Self {
        domain_image::write_groups_of(&mut self.bytes, user, groups).expect("fits");
        self.counted()
    }

    /// Returns the records without a header, as in a reply to a lookup.
    pub(super) fn records(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the records as a reply to a lookup in that state.
    pub(super) fn found(self, sequence: u64) -> Arc<OverlayEntry> {
        Arc::new(OverlayEntry { epoch: self.header.epoch, sequence, records: self.bytes })
    }

    /// Sets another sequence number than the default.
    pub(super) fn leads_to(self, sequence: u64) -> Self {
        Self { header: ImageHeader { sequence, ..self.header }, ..self }
    }

    /// Sets another process than the default.
    pub(super) fn of_process(self, epoch: u64) -> Self {
        Self { header: ImageHeader { epoch, ..self.header }, ..self }
    }

    fn counted(mut self) -> Self {
        self.header.records += 1;
        self
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        [&self.header.to_bytes()[..], &self.bytes].concat()
    }
}

pub(super) fn config(domains: &[&str]) -> PublisherRoleConfig {
    let mode = |name: &str| match name {
        _ if name.starts_with("asked") => DomainMode::OnDemand,
        _ => DomainMode::Replicate,
    };
    let rules = |name: &&str| DomainRules {
        name: (*name).into(),
        min_id: 1000,
        max_id: 4_000_000_000,
        names: NameConfig::default(),
        overrides: roster_config::OverridesConfig::default(),
        rule_groups: Vec::new(),
        mode: mode(name),
        mass_deletion: 0.5,
        negative: Duration::from_secs(10),
        when_away: WhenAway::Wait,
        serving: ServingConfig::default(),
        private_groups: PrivateGroups::Off,
        refresh: Duration::from_secs(300),
    };
    PublisherRoleConfig {
        host: HostConfig {
            default_domain: None,
            min_id: 1000,
            max_id: 4_000_000_000,
            allowed_local_gids: vec![100],
            exceptions: AdmissionExceptions::default(),
            passwd: "/etc/passwd".into(),
            group: "/etc/group".into(),
            subuid: "/etc/subuid".into(),
            subgid: "/etc/subgid".into(),
        },
        publisher: roster_config::PublisherConfig { interval: Duration::ZERO },
        domains: domains.iter().map(rules).collect(),
    }
}

pub(super) fn locals(users: &[(&str, u32)], groups: &[(&str, u32)]) -> Locals {
    Locals {
        user_names: users.iter().map(|(name, _)| name.as_bytes().to_owned()).collect(),
        uids: users.iter().map(|(_, uid)| *uid).collect(),
        group_names: groups.iter().map(|(name, _)| name.as_bytes().to_owned()).collect(),
        gids: groups.iter().map(|(_, gid)| *gid).collect(),
        ..Locals::default()
    }
}

fn fresh(domains: &[&str], served: ServedCounts, previous: Option<Vec<u8>>) -> PublisherState {
    PublisherState::new(&config(domains), Path::new("/run/roster/nss"), served, previous)
}

/// Applies an image.
pub(super) fn apply_image(
    state: &mut PublisherState,
    domain: usize,
    image: Image,
) -> Result<ImageOutcome, ImageRejection> {
    apply_image_bytes(state, domain, &image.bytes())
}

fn apply_image_bytes(
    state: &mut PublisherState,
    domain: usize,
    image: &[u8],
) -> Result<ImageOutcome, ImageRejection> {
    let image = domain_model::DomainImage::read(image, state.private_groups(domain))?;
    state.apply(domain, image)
}

/// Applies an image's records as a reply to a lookup, newer than all fetched states.
pub(super) fn learn(
    state: &mut PublisherState,
    domain: usize,
    image: Image,
) -> Result<Option<Invalidation>, ImageRejection> {
    let (_, sequence) = state.position(domain);
    state.apply_lookup(domain, &image.found(sequence + 1))
}

/// Makes a host with the accounts that every host has. Domains with names that start with `asked` are on demand.
pub(super) fn host(domains: &[&str]) -> PublisherState {
    let mut state = fresh(domains, ServedCounts::new(), None);
    state.set_locals(locals(&[("root", 0), ("daemon", 1)], &[("root", 0), ("users", 100)]));
    state
}

/// Makes a publisher with a mirrored domain `corp` and its snapshot in `folder`.
pub(super) async fn tasks(folder: &Path, bus: &TestBus) -> Arc<PublisherTasks> {
    Arc::new(PublisherTasks {
        state: RwLock::new(host(&["corp"])),
        changed: Notify::new(),
        lookup_changed: Notify::new(),
        publications: PublicationProgress {
            attempts_begun: AtomicU64::new(0),
            attempts_ended: watch::channel(0).0,
            current: Mutex::default(),
            newest_generation: AtomicU64::new(0),
        },
        failures: Mutex::default(),
        copies: SnapshotCopies {
            dir: Some(folder.join("copies")),
            lock: Mutex::default(),
            disk_read_due: Notify::new(),
        },
        domain_wakeups: vec![Arc::default()],
        status: Mutex::default(),
        snapshot: folder.join("roster.v3.snap"),
        connection: bus.connect().await,
        object: RoleName::Publisher.path(),
        backends: BackendClients::new([None].into_iter()),
    })
}

/// Publishes into memory and calls `question` with the snapshot.
pub(super) fn published<T>(
    state: &mut PublisherState,
    question: impl FnOnce(&Snapshot<'_>) -> T,
) -> T {
    let made = state.snapshot_input().make().expect("an image");
    let mut bytes = Cursor::new(Vec::new());
    made.image.write(&mut bytes, 1).expect("write to memory");
    state.apply_published(made);
    let bytes = bytes.into_inner();
    roster_snapshot_build::verify::verify(&bytes, roster_snapshot::layout::SnapshotKind::Accounts)
        .expect("sound");
    question(&Snapshot::open(&bytes).expect("a snapshot"))
}

fn uid_of(snapshot: &Snapshot<'_>, name: &str) -> Option<u32> {
    snapshot.user_by_name(name.as_bytes()).expect("undamaged").map(|user| user.uid)
}

fn members_of(snapshot: &Snapshot<'_>, name: &str) -> Option<Vec<String>> {
    let group = snapshot.group_by_name(name.as_bytes()).expect("undamaged")?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    Some(group.members.iter().map(|member| text(member.expect("undamaged"))).collect())
}

fn gids_of(snapshot: &Snapshot<'_>, name: &str) -> Vec<u32> {
    let mut gids = Vec::new();
    if let Some(list) = snapshot.supplementary(name.as_bytes()).expect("undamaged") {
        list.each(|gid| gids.push(gid)).expect("undamaged");
    }
    gids
}

fn reasons(state: &PublisherState, domain: &str) -> Vec<String> {
    let rejected = state.rejected(domain, 0, 100).expect("a domain");
    rejected
        .into_iter()
        .map(|entry| format!("{} {}: {}", entry.kind, entry.name, entry.reason))
        .collect()
}

/// Returns the codes of rejected entries.
fn codes(state: &PublisherState, domain: &str) -> Vec<String> {
    let rejected = state.rejected(domain, 0, 100).expect("a domain");
    rejected.into_iter().map(|entry| entry.code).collect()
}

#[test]
fn ids_that_no_directory_may_give_out_are_refused_with_the_reason() {
    for (uid, gid, reason) in [
        (0, 5000, "uid 0 is reserved"),
        (1, 5000, "uid 1 is below min_id (1000)"),
        (65_534, 5000, "uid 65534 is reserved"),
        (65_535, 5000, "uid 65535 is reserved"),
        (u32::MAX, 5000, "uid 4294967295 is reserved"),
        (4_100_000_000, 5000, "uid 4100000000 is above max_id (4000000000)"),
        (5000, 0, "primary gid 0 is reserved"),
        (5000, 42, "primary gid 42 is below min_id (1000)"),
    ] {
        let mut state = host(&["corp"]);
        let image = Image::full().user(1, "mallory", uid, gid).bytes();
        apply_image_bytes(&mut state, 0, &image).expect("well formed");
        let served = published(&mut state, |snapshot| uid_of(snapshot, "mallory"));
        assert_eq!(served, None, "{uid} {gid}");
        assert_eq!(reasons(&state, "corp"), [format!("user mallory: {reason}")]);
    }
}

#[test]
fn names_that_could_be_taken_for_something_else_are_refused() {
    let long = "x".repeat(256);
    let names = [
        "",
        "a:b",
        "a\nb",
        "a\0b",
        "a/b",
        "a,b",
        ".",
        "..",
        "-a",
        "+",
        "+@all",
        "~a",
        "0",
        "1000",
        " a",
        "a ",
        "a\u{7f}",
        "a\u{85}",
        "al\u{200b}ice",
        "\u{202e}alice",
        "a\u{a0}b",
        &long,
    ];
    for name in names {
        let mut state = host(&["corp"]);
        let image = Image::full().user(1, name, 5000, 5000).group(2, name, 5000, &[]);
        apply_image(&mut state, 0, image).expect("well formed");
        published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 0, "{name:?}"));
        assert_eq!(reasons(&state, "corp").len(), 2, "{name:?}");
    }
    let invalid = domain_image::UserRecord {
        number: 1,
        reference: 1,
        by_name: NO_REFERENCE,
        uid: 5000,
        gid: 5000,
        name: b"a\xff",
        gecos: b"",
        dir: b"/",
        shell: b"",
    };
    let mut image = Image::full();
    domain_image::write_user(&mut image.bytes, &invalid).expect("fits");
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, image.counted()).expect("well formed");
    published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 0));
}

#[test]
fn names_of_real_directories_are_served() {
    for name in ["alice", "a.b-c_d", "alice@example.com", "müller", "u$", "a+b", "_"] {
        let mut state = host(&["corp"]);
        let image = Image::full().user(1, name, 5000, 5000).bytes();
        apply_image_bytes(&mut state, 0, &image).expect("well formed");
        assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, name)), Some(5000), "{name}");
    }
}

fn sorted_reasons(state: &PublisherState) -> Vec<String> {
    let mut reasons = reasons(state, "corp");
    reasons.sort();
    reasons
}

/// Makes a host with these exceptions and local accounts.
fn host_with(exceptions: AdmissionExceptions, locals: Locals) -> PublisherState {
    let mut config = config(&["corp"]);
    config.host.exceptions = exceptions;
    let mut state =
        PublisherState::new(&config, Path::new("/run/roster/nss"), ServedCounts::default(), None);
    state.set_locals(locals);
    state
}

#[test]
fn names_that_shells_take_apart_need_an_exception() {
    for (name, characters) in [
        ("domain users", " "),
        ("HQ\\alice", "\\"),
        ("*", "*"),
        ("x)(uid=*", ")(=*"),
        ("weird $(id)`x`", " $()`"),
        ("a$b", "$"),
        ("$", ""),
    ] {
        let served = |name_characters: &str| {
            let exceptions = AdmissionExceptions {
                name_characters: name_characters.to_owned(),
                ..AdmissionExceptions::default()
            };
            let mut state = host_with(exceptions, Locals::default());
            let image = Image::full().user(1, name, 5000, 5000).group(2, name, 5000, &[]);
            apply_image(&mut state, 0, image).expect("well formed");
            let served = published(&mut state, |snapshot| {
                uid_of(snapshot, name).is_some() && members_of(snapshot, name).is_some()
            });
            (served, reasons(&state, "corp"))
        };
        let (is_served, rejected) = served("");
        if characters.is_empty() {
            assert!(is_served, "{name}: a '$' at the end is usual");
            continue;
        }
        assert!(!is_served && rejected.len() == 2, "{name}");
        assert!(rejected[0].contains("has characters other than letters"), "{rejected:?}");
        assert_eq!(served(characters), (true, Vec::new()), "{name}");
    }
}

#[test]
fn names_of_privileged_accounts_need_an_exception() {
    for name in ["docker", "wheel", "Admin", "LXD", "systemd-resolve", "roster-publisher", "nobody"]
    {
        let image = || Image::full().user(1, name, 5000, 5000).group(2, name, 5000, &[1]);
        let mut state = host_with(AdmissionExceptions::default(), Locals::default());
        apply_image(&mut state, 0, image()).expect("well formed");
        published(&mut state, |snapshot| assert_eq!(uid_of(snapshot, name), None, "{name}"));
        let reason = "the name belongs to a privileged account";
        let expected = [format!("group {name}: {reason}"), format!("user {name}: {reason}")];
        assert_eq!(sorted_reasons(&state), expected);
        let exceptions =
            AdmissionExceptions { names: vec![name.to_owned()], ..AdmissionExceptions::default() };
        let mut state = host_with(exceptions, Locals::default());
        apply_image(&mut state, 0, image()).expect("well formed");
        published(&mut state, |snapshot| {
            assert_eq!(members_of(snapshot, name), Some(vec![name.to_owned()]), "{name}");
        });
    }
}

#[test]
fn gids_of_local_users_need_an_exception() {
    // bob's primary group has no line in the group file.
    let bob = || {
        let locals = locals(&[("root", 0), ("bob", 1500)], &[("root", 0)]);
        Locals { primary_gids: [0, 1500].into(), ..locals }
    };
    let image = || Image::full().user(1, "mallory", 5000, 1500).group(2, "bobsgroup", 1500, &[1]);
    let mut state = host_with(AdmissionExceptions::default(), bob());
    apply_image(&mut state, 0, image()).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "mallory"), None);
        assert_eq!(members_of(snapshot, "bobsgroup"), None);
    });
    assert_eq!(
        sorted_reasons(&state),
        [
            "group bobsgroup: gid 1500 is the primary gid of a local user",
            "user mallory: primary gid 1500 is the primary gid of a local user"
        ]
    );
    let exceptions =
        AdmissionExceptions { unnamed_gids: vec![1500], ..AdmissionExceptions::default() };
    let mut state = host_with(exceptions, bob());
    apply_image(&mut state, 0, image()).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "bobsgroup"), Some(vec!["mallory".to_owned()]));
    });
}

#[test]
fn subordinate_ids_need_an_exception() {
    let bob = || Locals {
        subuids: IdRanges::new(vec![(100_000, 165_535)]),
        subgids: IdRanges::new(vec![(200_000, 265_535)]),
        ..Locals::default()
    };
    let image = || {
        let image = Image::full().user(1, "victim", 100_500, 5000).user(2, "other", 5000, 200_000);
        image.group(3, "staff", 265_535, &[]).user(4, "beside", 165_536, 5000)
    };
    let mut state = host_with(AdmissionExceptions::default(), bob());
    apply_image(&mut state, 0, image()).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "beside"), Some(165_536));
        assert_eq!(snapshot.shape().users, 1);
    });
    assert_eq!(
        sorted_reasons(&state),
        [
            "group staff: gid 265535 is a subordinate id of a local user",
            "user other: primary gid 200000 is a subordinate id of a local user",
            "user victim: uid 100500 is a subordinate id of a local user"
        ]
    );
    let exceptions =
        AdmissionExceptions { subordinate_ids: true, ..AdmissionExceptions::default() };
    let mut state = host_with(exceptions, bob());
    apply_image(&mut state, 0, image()).expect("well formed");
    published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 3));
}

#[test]
fn gid_100_named_users_is_a_primary_gid() {
    let image = || Image::full().user(1, "alice", 5000, 100).group(2, "users", 100, &[1]);
    for (has_users_group, expected) in [(true, Some(5000)), (false, None)] {
        let locals = locals(&[("root", 0)], &[("root", 0), ("users", 100)]);
        let mut config = config(&["corp"]);
        config.host.allowed_local_gids.clear();
        let mut state = PublisherState::new(
            &config,
            Path::new("/run/roster/nss"),
            ServedCounts::default(),
            None,
        );
        state.set_locals(Locals { has_users_group, ..locals });
        apply_image(&mut state, 0, image()).expect("well formed");
        published(&mut state, |snapshot| {
            assert_eq!(uid_of(snapshot, "alice"), expected);
            assert_eq!(members_of(snapshot, "users"), None, "the host's own group is served");
        });
    }
}

#[test]
fn admission_low_primary_gid_needs_permission() {
    let mut state = host(&["corp"]);
    let image =
        Image::full().user(1, "a", 5001, 100).user(2, "b", 5002, 27).group(3, "users", 100, &[1]);
    apply_image(&mut state, 0, image).expect("well formed");
    let uids = published(&mut state, |s| (uid_of(s, "a"), uid_of(s, "b"), members_of(s, "users")));
    assert_eq!(uids, (Some(5001), None, None));
    let (a, b) = (
        "user b: primary gid 27 is below min_id (1000)",
        "group users: gid 100 is below min_id (1000)",
    );
    let mut said = reasons(&state, "corp");
    said.sort();
    assert_eq!(said, [b, a]);
}

#[test]
fn a_local_account_displaces_that_of_a_directory_and_its_memberships() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002).group(
        3,
        "staff",
        6000,
        &[1, 2],
    );
    apply_image(&mut state, 0, image).expect("well formed");
    let staff = published(&mut state, |snapshot| members_of(snapshot, "staff"));
    assert_eq!(staff.expect("there"), ["alice", "bob"]);
    assert!(state.set_locals(locals(&[("alice", 1000), ("carol", 5002)], &[])));
    published(&mut state, |snapshot| {
        assert_eq!((uid_of(snapshot, "alice"), uid_of(snapshot, "bob")), (None, None));
        assert_eq!(members_of(snapshot, "staff"), Some(vec![]));
        assert!(gids_of(snapshot, "alice").is_empty());
    });
    assert!(state.set_locals(locals(&[("root", 0)], &[("staff", 50), ("other", 5001)])));
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "staff"), None);
        assert_eq!(uid_of(snapshot, "alice"), None, "her primary group is a local one");
        assert_eq!(uid_of(snapshot, "bob"), Some(5002));
    });
}

#[test]
fn of_two_domains_the_first_wins_and_the_other_is_listed() {
    let mut state = host(&["corp", "lab"]);
    let corp = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
    let lab = Image::full()
        .user(1, "alice", 7001, 7001)
        .user(2, "bob", 5001, 7001)
        .user(3, "carol", 7003, 7001)
        .group(4, "staff", 8000, &[3])
        .group(5, "crew", 6000, &[3])
        .group(6, "lab", 8001, &[1, 3]);
    apply_image(&mut state, 0, corp).expect("well formed");
    apply_image(&mut state, 1, lab).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "alice"), Some(5001));
        assert_eq!(uid_of(snapshot, "bob"), None);
        assert_eq!(uid_of(snapshot, "carol"), Some(7003));
        let lab = members_of(snapshot, "lab").expect("there");
        assert_eq!(lab, ["alice@lab", "carol"], "not corp's alice");
        assert_eq!(members_of(snapshot, "staff@lab").expect("there"), ["carol"]);
        assert_eq!(gids_of(snapshot, "alice"), [6000]);
        assert_eq!(gids_of(snapshot, "alice@lab"), [8001]);
        for (name, uid) in [("alice@lab", 7001), ("LAB\\alice", 7001), ("alice@corp", 5001)] {
            assert_eq!(uid_of(snapshot, name), Some(uid), "{name}");
        }
    });
    assert_eq!(
        reasons(&state, "lab"),
        [
            "group crew: a higher-priority domain has gid 6000",
            "user bob: a higher-priority domain has uid 5001",
        ]
    );
}

#[test]
fn a_primary_group_of_another_domain_makes_nobody_its_member() {
    let mut state = host(&["first", "second"]);
    apply_image(&mut state, 0, Image::full().group(1, "riders", 6000, &[])).expect("well formed");
    apply_image(&mut state, 1, Image::full().user(1, "mallory", 7000, 6000)).expect("well formed");
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "mallory")), None);
    let reason = "user mallory: primary gid 6000 is a group of a higher-priority domain";
    assert_eq!(reasons(&state, "second"), [reason]);
    assert_eq!(codes(&state, "second"), [directory::GROUP_OF_HIGHER_DOMAIN.code]);

    // If a user would be a member of a group by its primary gid, the lower-priority entry is rejected.
    let mut state = host(&["first", "second"]);
    apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 6000)).expect("well formed");
    apply_image(&mut state, 1, Image::full().group(1, "evil", 6000, &[])).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "alice"), Some(5001));
        assert_eq!(members_of(snapshot, "evil"), None);
    });
    let reason = "group evil: gid 6000 is the primary gid of a higher-priority domain's user";
    assert_eq!(reasons(&state, "second"), [reason]);
    assert_eq!(codes(&state, "second"), [directory::GID_OF_HIGHER_DOMAIN_USERS.code]);
}

#[test]
fn a_later_domain_takes_no_user_from_an_earlier_one_by_a_group() {
    let mut state = host(&["corp", "lab"]);
    apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    let lab = Image::full().group(1, "evil", 5001, &[]).user(2, "alice", 9001, 7003);
    apply_image(&mut state, 1, lab).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(uid_of(snapshot, "alice"), Some(5001));
        assert_eq!(uid_of(snapshot, "alice@lab"), Some(9001));
        assert_eq!(members_of(snapshot, "evil"), None);
    });
}

#[test]
fn who_is_refused_leaves_the_name_to_nobody_of_a_later_domain() {
    let mut state = host(&["first", "corp", "lab"]);
    apply_image(&mut state, 0, Image::full().group(1, "riders", 6000, &[])).expect("well formed");
    apply_image(&mut state, 1, Image::full().user(1, "alice", 5001, 6000)).expect("well formed");
    apply_image(&mut state, 2, Image::full().user(1, "alice", 9001, 9001)).expect("well formed");
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "alice")), None);
    // The user has the name with its domain only.
    published(&mut state, |snapshot| assert_eq!(uid_of(snapshot, "alice@lab"), Some(9001)));
}

#[test]
fn precedence_taken_name_or_id_has_code() {
    let with_alice =
        |name, uid| Image::full().user(1, "alice", 5001, 9001).user(2, name, uid, 9001);
    let alone = |name, uid| Image::full().user(1, name, uid, 9001);
    let (same_name, other_name) =
        (&directory::NAME_OF_SAME_DOMAIN, &directory::NAME_OF_HIGHER_DOMAIN);
    let (same_id, other_id) = (&directory::ID_OF_SAME_DOMAIN, &directory::ID_OF_HIGHER_DOMAIN);
    // The name with its domain would be too long.
    let long = "a".repeat(255);
    for (corp, lab, taken) in [
        (with_alice("alice", 7001), alone("alice", 8001), vec![same_name]),
        (alone(&long, 7001), alone(&long, 8001), vec![other_name]),
        (with_alice("bob", 5001), alone("carol", 5001), vec![same_id, other_id]),
    ] {
        let mut state = host(&["corp", "lab"]);
        apply_image(&mut state, 0, corp).expect("well formed");
        apply_image(&mut state, 1, lab).expect("well formed");
        published(&mut state, |_| {});
        let refused = [codes(&state, "corp"), codes(&state, "lab")].concat();
        let expected: Vec<_> = taken.iter().map(|message| message.code).collect();
        assert_eq!(refused, expected);
    }
}

/// Groups without gid give their members to the groups around them, and do not appear themselves.
#[test]
fn members_through_groups_without_gid_are_served() {
    for domain in ["corp", "asked"] {
        let mut state = host(&[domain]);
        let image = Image::full()
            .user(1, "alice", 5001, 5001)
            .user(2, "bob", 5002, 5002)
            .group(3, "outer", 6003, &[4])
            .nested(4, "role", &[1, 5])
            .nested(5, "team", &[2, 4])
            .nested(6, "alice", &[]);
        apply_image(&mut state, 0, image).expect("well formed");
        published(&mut state, |snapshot| {
            assert_eq!(members_of(snapshot, "outer").expect("there"), ["alice", "bob"]);
            for name in ["role", "team", "alice"] {
                assert_eq!(members_of(snapshot, name), None, "{name}");
            }
            for gid in [0, u32::MAX] {
                assert!(snapshot.group_by_gid(gid).expect("undamaged").is_none(), "{gid}");
            }
            if domain == "corp" {
                assert_eq!(gids_of(snapshot, "bob"), [6003]);
            }
        });
        assert_eq!(codes(&state, domain), Vec::<String>::new(), "they are not rejected");
        let shown = state.show_entries(LookUp::GroupByName, b"role");
        assert_eq!(shown[0].refused_code, directory::GROUP_ONLY_NESTS.code);
        // The group gets a gid.
        apply_image(&mut state, 0, Image::changes(1).group(4, "role", 6004, &[1]))
            .expect("well formed");
        published(&mut state, |snapshot| {
            assert_eq!(members_of(snapshot, "role").expect("there"), ["alice"]);
            assert_eq!(members_of(snapshot, "outer").expect("there"), ["alice"]);
        });
    }
}

#[test]
fn members_user_with_own_group_is_user() {
    let mut state = host(&["corp"]);
    let mut image = Image::full().user(1, "alice", 5001, 5001).group(3, "staff", 6003, &[1]);
    domain_image::write_group(&mut image.bytes, 2, 1, Some(5001), b"alice", Some(&[]))
        .expect("fits");
    apply_image(&mut state, 0, image.counted()).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "staff").expect("there"), ["alice"]);
    });
}

#[test]
fn user_listed_twice_is_one_member() {
    let mut state = host(&["corp"]);
    let mut image = Image::full().group(3, "staff", 6003, &[11, 1]).group(4, "all", 6004, &[3, 11]);
    let alice = domain_image::UserRecord {
        number: 1,
        reference: 1,
        by_name: 11,
        uid: 5001,
        gid: 5001,
        name: b"alice",
        gecos: b"",
        dir: b"/",
        shell: b"",
    };
    domain_image::write_user(&mut image.bytes, &alice).expect("fits");
    apply_image(&mut state, 0, image.counted()).expect("well formed");
    published(&mut state, |snapshot| {
        for group in ["staff", "all"] {
            assert_eq!(members_of(snapshot, group), Some(vec!["alice".to_owned()]), "{group}");
        }
    });
    let shown = state.show_entries(LookUp::GroupByName, b"staff");
    assert_eq!(shown[0].related, ["alice"]);
    let shown = state.show_entries(LookUp::UserByName, b"alice");
    assert_eq!(shown[0].related, ["staff", "all"]);
}

#[test]
fn two_users_of_one_reference_get_nothing_by_it() {
    let mut state = host(&["corp"]);
    let mut image = Image::full().user(1, "alice", 5001, 5001).group(3, "staff", 6003, &[1]);
    let other = domain_image::UserRecord {
        number: 2,
        reference: 1,
        by_name: NO_REFERENCE,
        uid: 5002,
        gid: 5002,
        name: b"mallory",
        gecos: b"",
        dir: b"/",
        shell: b"",
    };
    domain_image::write_user(&mut image.bytes, &other).expect("fits");
    apply_image(&mut state, 0, image.counted()).expect("well formed");
    published(&mut state, |snapshot| assert_eq!(members_of(snapshot, "staff"), Some(vec![])));
}

#[test]
fn nested_groups_are_flat_and_circles_end() {
    let mut state = host(&["corp"]);
    let image = Image::full()
        .user(1, "alice", 5001, 5001)
        .user(2, "bob", 5002, 5001)
        .group(3, "outer", 6003, &[1, 4, 4, 99])
        .group(4, "inner", 6004, &[2, 1, 3])
        .group(5, "itself", 6005, &[5, 2]);
    apply_image(&mut state, 0, image).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "outer").expect("there"), ["alice", "bob"]);
        assert_eq!(members_of(snapshot, "inner").expect("there"), ["bob", "alice"]);
        assert_eq!(members_of(snapshot, "itself").expect("there"), ["bob"]);
        assert_eq!(gids_of(snapshot, "bob"), [6003, 6004, 6005]);
    });
}

#[test]
fn nested_primary_group_members_are_in_outer_group() {
    let image = || {
        Image::full()
            .user(1, "alice", 5001, 6004)
            .user(2, "bob", 5002, 6004)
            .user(3, "carol", 5003, 6003)
            .group(4, "outer", 6003, &[2, 5])
            .group(5, "inner", 6004, &[6])
            .group(6, "lone", 6005, &[4])
    };
    let served = |nests_primary_groups: bool| {
        let mut state = host(&["corp"]);
        state.domains[0].rules.serving.nests_primary_groups = nests_primary_groups;
        apply_image(&mut state, 0, image()).expect("well formed");
        published(&mut state, |snapshot| {
            let members =
                ["outer", "inner", "lone"].map(|name| members_of(snapshot, name).expect("there"));
            (members, ["alice", "carol"].map(|name| gids_of(snapshot, name)))
        })
    };
    let (members, gids) = served(true);
    // The primary group of a user has no line for it, as in a group file. A circle leads to it as well.
    assert_eq!(members[0], ["bob", "alice"]);
    assert_eq!(members[1], ["carol", "bob"]);
    assert_eq!(members[2], ["carol", "bob", "alice"]);
    assert_eq!(gids, [vec![6003, 6005], vec![6004, 6005]]);
    let (members, gids) = served(false);
    assert_eq!(members, [vec!["bob"], vec!["bob"], vec!["bob"]]);
    assert_eq!(gids.concat(), Vec::<u32>::new());
}

#[test]
fn changes_lead_on_from_where_they_start_and_nowhere_else() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5001);
    apply_image(&mut state, 0, image).expect("well formed");
    let gap = apply_image(&mut state, 0, Image::changes(7).gone(1));
    assert_eq!(gap.err(), Some(ImageRejection::Gap { since: 7, here: 1 }));
    let change = Image::changes(1).gone(1).user(2, "robert", 5002, 5001).bytes();
    let taken = apply_image_bytes(&mut state, 0, &change);
    let users = ["alice", "bob", "robert"].map(|name| name.as_bytes().to_owned());
    let forget = Invalidation { all: false, users: users.into(), groups: vec![] };
    assert_eq!(taken, Ok(ImageOutcome::Changed(forget)));
    published(&mut state, |snapshot| {
        let uids = ["alice", "bob", "robert"].map(|name| uid_of(snapshot, name));
        assert_eq!(uids, [None, None, Some(5002)]);
    });
}

#[test]
fn a_domain_of_the_last_snapshot_is_waited_for() {
    let served = ServedCounts::from([("corp".to_owned(), EntryCounts::default())]);
    let mut state = fresh(&["corp", "lab"], served, None);
    state.set_locals(Locals::default());
    apply_image(&mut state, 1, Image::full()).expect("well formed");
    assert_eq!(state.waiting_for().as_deref(), Some("domain corp can be read"));
    let mut nothing_yet = Image::full();
    nothing_yet.header.flags = 0;
    assert!(matches!(apply_image(&mut state, 0, nothing_yet), Ok(ImageOutcome::Deferred(_))));
    assert_eq!(state.waiting_for().as_deref(), Some("domain corp can be read"));
    apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    assert_eq!(state.waiting_for(), None);
}

#[test]
fn a_back_end_that_was_killed_takes_nothing_back() {
    let mut state = host(&["corp"]);
    let newest = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5001);
    apply_image(&mut state, 0, newest).expect("well formed");
    let mut stale = Image::full().user(1, "alice", 5001, 5001);
    (stale.header.flags, stale.header.epoch) = (COMPLETE, 2);
    assert!(matches!(apply_image(&mut state, 0, stale), Ok(ImageOutcome::Deferred(_))));
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "bob")), Some(5002));
    let mut caught_up = Image::full().user(1, "alice", 5001, 5001);
    caught_up.header.epoch = 2;
    let mut nothing_since = Image::changes(1);
    nothing_since.header.epoch = 2;
    let nothing_since = nothing_since.bytes();
    assert!(matches!(apply_image(&mut state, 0, caught_up), Ok(ImageOutcome::Changed(_))));
    assert_eq!(apply_image_bytes(&mut state, 0, &nothing_since), Ok(ImageOutcome::Unchanged));
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "bob")), None);
}

#[test]
fn publisher_stale_domain_wait_is_bounded() {
    let served = ServedCounts::from([("corp".to_owned(), EntryCounts::default())]);
    let mut state = fresh(&["corp"], served, None);
    state.set_locals(Locals::default());
    let stale = || {
        let mut stale = Image::full().user(1, "alice", 5001, 5001);
        stale.header.flags = COMPLETE;
        stale
    };
    apply_image(&mut state, 0, stale()).expect("well formed");
    assert!(state.may_be_outdated(0));
    assert_eq!(state.waiting_for().as_deref(), Some("domain corp can be read"));
    let mut impatient = fresh(&["corp"], state.served.clone(), None);
    impatient.set_locals(Locals::default());
    impatient.accept_stale_data(0);
    assert!(impatient.waiting_for().is_some(), "nothing was handed over");
    apply_image(&mut impatient, 0, stale()).expect("well formed");
    assert_eq!(impatient.waiting_for(), None);
    apply_image(&mut state, 0, Image::changes(1)).expect("leads on");
    assert!(!state.may_be_outdated(0));
    assert_eq!(state.waiting_for(), None);
}

#[test]
fn a_back_end_that_lost_its_cache_takes_nothing_away() {
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    let mut empty = Image::full();
    (empty.header.flags, empty.header.epoch) = (0, 2);
    assert!(matches!(apply_image(&mut state, 0, empty), Ok(ImageOutcome::Deferred(_))));
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "alice")), Some(5001));
}

/// Such a number is that of a private group.
#[test]
fn image_groups_beyond_limit_are_rejected() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, "alice", 5001, 5001).groups_of(1, &[NUMBERS_MAX]);
    assert_eq!(apply_image(&mut state, 0, image), Err(ImageRejection::Number(NUMBERS_MAX)));
}

/// The snapshot in place serves `alice@corp`, and the directory has `alice`.
#[test]
fn previous_user_with_domain_is_found() {
    let mut rules = config(&["corp"]);
    rules.domains[0].names.qualified = true;
    let path = Path::new("/run/roster/nss");
    let mut state = PublisherState::new(&rules, path, ServedCounts::new(), None);
    state.set_locals(locals(&[("root", 0)], &[("root", 0)]));
    apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    let made = state.snapshot_input().make().expect("an image");
    let mut bytes = Cursor::new(Vec::new());
    made.image.write(&mut bytes, 1).expect("write to memory");
    state.apply_published(made);
    let served = state.served.clone();
    let mut anew = PublisherState::new(&rules, path, served, Some(bytes.into_inner()));
    anew.set_locals(locals(&[("root", 0)], &[("root", 0)]));
    let found = anew.find_previously_served(0, b"alice@corp").expect("served by the snapshot");
    assert_eq!((&*found.directory_name, found.uid), (&b"alice"[..], 5001));
}

#[test]
fn an_image_that_is_refused_changes_nothing() {
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    let far = Image::changes(1).user(2, "bob", 5002, 5002).user(NUMBERS_MAX, "far", 5003, 5003);
    assert_eq!(apply_image(&mut state, 0, far), Err(ImageRejection::Number(NUMBERS_MAX)));
    let mut cut = Image::full().user(2, "bob", 5002, 5002).user(3, "carol", 5003, 5003).bytes();
    cut.truncate(cut.len() - 1);
    assert!(matches!(apply_image_bytes(&mut state, 0, &cut), Err(ImageRejection::Malformed(_))));
    let none = Image::full().user(NO_REFERENCE, "none", 5004, 5004);
    assert_eq!(apply_image(&mut state, 0, none), Err(ImageRejection::Number(NO_REFERENCE)));
    let users = state.domains[0].entries.users().map(|(number, _)| number);
    assert_eq!(users.collect::<Vec<_>>(), [1]);
}

/// Twenty users and groups without the first `gone` ones, from that backend process.
pub(super) fn twenty_without(gone: u32, epoch: u64) -> Image {
    let mut image = Image::full();
    image.header.epoch = epoch;
    (gone..20).fold(image, |image, i| {
        let image = image.user(i, &format!("u{i}"), 5000 + i, 5000);
        image.group(100 + i, &format!("g{i}"), 6000 + i, &[i])
    })
}

#[test]
fn a_back_end_that_began_anew_removes_much_only_after_a_confirmation() {
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    published(&mut state, |_| {});
    assert!(matches!(
        apply_image(&mut state, 0, twenty_without(10, 2)),
        Ok(ImageOutcome::Changed(_))
    ));
    published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 10, "half may go"));
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    published(&mut state, |_| {});
    for _ in 0..2 {
        assert!(matches!(
            apply_image(&mut state, 0, twenty_without(11, 2)),
            Ok(ImageOutcome::Deferred(_))
        ));
        assert_eq!(state.domain_counts()[0].held_removals, 22);
        published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 20));
    }
    assert_eq!(state.confirm("corp"), Some((0, 22)));
    assert_eq!(state.confirm("corp"), Some((0, 0)), "nothing waits any more");
    assert_eq!(state.confirm("lab"), None);
    assert!(
        matches!(apply_image(&mut state, 0, twenty_without(20, 3)), Ok(ImageOutcome::Deferred(_))),
        "more"
    );
    assert!(matches!(
        apply_image(&mut state, 0, twenty_without(11, 4)),
        Ok(ImageOutcome::Changed(_))
    ));
    published(&mut state, |snapshot| assert_eq!(snapshot.shape().users, 9));
    assert_eq!(state.domain_counts()[0].held_removals, 0);
}

/// The backend cannot distinguish a removed entry from one that its directory did not show.
#[test]
fn held_when_emptied_back_end_lacks_four() {
    for (gone, is_held) in [(3, false), (4, true)] {
        let mut state = host(&["corp"]);
        apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
        published(&mut state, |_| {});
        let mut image = twenty_without(gone, 2);
        image.header.flags &= !REMOVALS_JUDGED;
        let taken = apply_image(&mut state, 0, image);
        assert_eq!(matches!(taken, Ok(ImageOutcome::Deferred(_))), is_held, "{gone} of 20");
    }
}

#[test]
fn others_in_their_place_are_removals_too() {
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    published(&mut state, |_| {});
    let mut others = Image::full();
    others.header.epoch = 2;
    let others = (0..30).fold(others, |image, i| image.user(i, &format!("x{i}"), 5000 + i, 5000));
    assert!(matches!(apply_image(&mut state, 0, others), Ok(ImageOutcome::Deferred(_))));
}

#[test]
fn a_new_publisher_goes_by_the_snapshot_in_place() {
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (bytes, served) = bytes_of(&state);
    assert_eq!(served["corp"], EntryCounts { users: 20, groups: 20 });
    let mut anew = fresh(&["corp"], served, Some(bytes));
    anew.set_locals(Locals::default());
    assert!(matches!(
        apply_image(&mut anew, 0, twenty_without(11, 2)),
        Ok(ImageOutcome::Deferred(_))
    ));
    anew.accept_stale_data(0);
    let waits_for = anew.waiting_for().expect("the snapshot stays");
    assert!(waits_for.contains("roster domain approve-removals corp"), "{waits_for}");
    assert_eq!(anew.confirm("corp"), Some((0, 22)));
    assert!(matches!(
        apply_image(&mut anew, 0, twenty_without(11, 2)),
        Ok(ImageOutcome::Changed(_))
    ));
    assert_eq!(anew.waiting_for(), None);
}

/// Returns a snapshot in memory, and its entries of each domain.
fn bytes_of(state: &PublisherState) -> (Vec<u8>, ServedCounts) {
    let made = state.snapshot_input().make().expect("an image");
    let mut bytes = Cursor::new(Vec::new());
    made.image.write(&mut bytes, 1).expect("write to memory");
    (bytes.into_inner(), made.served)
}

/// Returns the state of the next process, which finds this state's snapshot.
pub(super) fn succeeded(state: &PublisherState, domains: &[&str]) -> PublisherState {
    let (bytes, served) = bytes_of(state);
    let mut anew = fresh(domains, served, Some(bytes));
    anew.set_locals(locals(&[("root", 0)], &[]));
    anew
}

#[test]
fn rejected_domain_keeps_last_snapshot() {
    let mut state = host(&["corp", "lab"]);
    let corp = || Image::full().user(1, "alice", 5001, 5001);
    let lab = || Image::full().user(1, "carol", 7001, 7001);
    apply_image(&mut state, 0, corp()).expect("well formed");
    apply_image(&mut state, 1, lab()).expect("well formed");
    let mut anew = succeeded(&state, &["corp", "lab"]);
    apply_image(&mut anew, 1, lab().user(2, "dave", 7002, 7002)).expect("well formed");
    let far = Image::full().user(NUMBERS_MAX, "far", 5003, 5003);
    assert_eq!(apply_image(&mut anew, 0, far), Err(ImageRejection::Number(NUMBERS_MAX)));
    anew.accept_stale_data(0);
    assert_eq!(anew.waiting_for().as_deref(), Some("domain corp can be read"));
    apply_image(&mut anew, 0, corp()).expect("well formed");
    assert_eq!(anew.waiting_for(), None);
}

#[test]
fn a_snapshot_that_cannot_be_read_is_not_missed() {
    let served = ServedCounts::from([("corp".to_owned(), EntryCounts { users: 20, groups: 20 })]);
    let mut state = fresh(&["corp"], served, Some(b"cut".to_vec()));
    state.set_locals(Locals::default());
    assert!(matches!(
        apply_image(&mut state, 0, twenty_without(20, 2)),
        Ok(ImageOutcome::Changed(_))
    ));
    assert_eq!(state.waiting_for(), None);
}

#[test]
fn entries_with_the_ids_of_others_do_not_count_as_kept() {
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    published(&mut state, |_| {});
    let mut others = Image::full();
    others.header.epoch = 2;
    let others = (0..20).fold(others, |image, i| {
        let image = image.user(i, &format!("u{i}"), 7000 + i, 5000);
        image.group(100 + i, &format!("g{i}"), 6000 + i, &[])
    });
    assert!(matches!(apply_image(&mut state, 0, others), Ok(ImageOutcome::Deferred(_))));
}

#[test]
fn before_the_first_publication_it_is_known_who_has_what() {
    for locals_first in [true, false] {
        let mut state = fresh(&["lab", "asked"], ServedCounts::new(), None);
        let accounts = Locals::default();
        if locals_first {
            state.set_locals(accounts.clone());
        }
        apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001))
            .expect("well formed");
        apply_image(&mut state, 1, Image::full()).expect("well formed");
        state.set_locals(accounts);
        assert_eq!(state.ownership.user_name_owner(None, b"alice"), Some((0, 1)));
        let mallory = Image::full().user(1, "mallory", 5001, 5001).records();
        state
            .change(1, &[1], |entries| entries.apply_lookup(Records::without_header(&mallory)))
            .expect("well formed");
        assert_eq!(state.ownership.uid_owner(5001), Some((0, 1)), "{locals_first}");
    }
}

#[test]
fn a_name_that_is_free_again_is_the_next_ones_at_once() {
    let mut state = host(&["asked", "lab"]);
    apply_image(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
    apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    published(&mut state, |_| {});
    assert_eq!(state.ownership.user_name_owner(None, b"alice"), Some((0, 1)));
    apply_image(&mut state, 0, Image::changes(1).gone(1)).expect("leads on");
    assert_eq!(state.ownership.user_name_owner(None, b"alice"), Some((1, 1)));
}

#[test]
fn behind_a_domain_that_was_never_read_nothing_is_served() {
    let mut state = host(&["corp", "lab"]);
    apply_image(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
    assert_eq!(state.waiting_for(), None, "there is nothing to be lost");
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "alice")), None);
    assert_eq!(state.domain_counts()[1].waits_for, "corp");
    let shown = state.show_entries(LookUp::UserByName, b"alice");
    assert_eq!(shown[0].refused, "the higher-priority domain corp was not read yet");
    assert_eq!(shown[0].refused_code, directory::DOMAIN_NOT_READ.code);
    apply_image(&mut state, 0, Image::full().user(1, "bob", 5001, 5001)).expect("well formed");
    assert_eq!(published(&mut state, |snapshot| uid_of(snapshot, "alice")), Some(7001));
    assert_eq!(state.domain_counts()[1].waits_for, "");
    assert_eq!(state.show_entries(LookUp::UserByName, b"alice")[0].refused, "");
    let lab = ServedCounts::from([("lab".to_owned(), EntryCounts::default())]);
    let mut state = fresh(&["corp", "lab"], lab, None);
    state.set_locals(Locals::default());
    apply_image(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
    state.accept_stale_data(0);
    assert_eq!(
        state.waiting_for().as_deref(),
        Some("domain corp can be read"),
        "alice would vanish"
    );
}

#[test]
fn nested_groups_too_large_are_refused_alone() {
    // Each holds the one after it: 12,000 entries, 144 million steps.
    let mut state = host(&["corp", "lab"]);
    let chain = (1..12_000)
        .fold(Image::full(), |image, i| image.group(i, &format!("g{i}"), 10_000 + i, &[i + 1]));
    let chain = chain.user(12_000, "alice", 5001, 5001).group(12_001, "flat", 6001, &[12_000]);
    apply_image(&mut state, 0, chain).expect("well formed");
    let lab = Image::full().user(1, "bob", 7001, 7001).group(2, "in", 7002, &[1]);
    apply_image(&mut state, 1, lab.group(3, "out", 7003, &[2])).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "flat").expect("there"), ["alice"]);
        assert_eq!(members_of(snapshot, "out").expect("there"), ["bob"]);
        assert_eq!(members_of(snapshot, "g1").expect("there"), ["alice"]);
    });
    let refused = &state.domain_counts()[0].refused;
    let [RejectionCount { reason, code, entries: count, .. }] = &refused[..] else {
        panic!("{refused:?}")
    };
    assert_eq!(*code, directory::GROUPS_NESTED_TOO_LARGE.code);
    assert_eq!(reason, "nested groups exceed the membership limit");
    assert_eq!(reasons(&state, "corp").len(), (*count).min(100) as usize);
    assert!((1..11_999).contains(count), "{count}");
}

#[test]
fn what_changed_while_a_snapshot_was_made_does_not_go_back_with_it() {
    let mut state = host(&["asked"]);
    let alice = Image::full().user(1, "alice", 5001, 5001).records();
    let found = |state: &mut PublisherState, records: &[u8]| {
        state
            .change(0, &[1, 2], |entries| entries.apply_lookup(Records::without_header(records)))
            .expect("well formed")
    };
    assert!(found(&mut state, &alice));
    assert!(!found(&mut state, &alice), "nothing new");
    let made = state.snapshot_input().make().expect("an image");
    let anew = Image::full().gone(1).user(2, "alice", 5001, 5001).records();
    assert!(found(&mut state, &anew));
    state.apply_published(made);
    assert_eq!(
        state.ownership.user_name_owner(None, b"alice"),
        Some((0, 2)),
        "not the one that is gone"
    );
}

#[test]
fn many_ids_with_one_fault_are_one_reason() {
    let mut state = host(&["corp"]);
    let image = (0..300).fold(Image::full(), |image, i| {
        image.user(i, &format!("u{i}"), 100 + i, 5000).group(1000 + i, &format!("g{i}"), 100, &[])
    });
    apply_image(&mut state, 0, image).expect("well formed");
    published(&mut state, |_| {});
    let refused = &state.domain_counts()[0].refused;
    let expected = ["gid 100 is below min_id (1000)", "uids below min_id (1000)"];
    let refused: Vec<_> = refused.iter().map(|one| (&*one.reason, one.entries)).collect();
    assert_eq!(refused, expected.map(|reason| (reason, 300)));
    assert_eq!(reasons(&state, "corp")[0], "group g0: gid 100 is below min_id (1000)");
}

/// As many crowds as fit beside `far`.
const CROWDS: u32 = 22;

#[test]
fn domain_too_large_is_refused_others_served() {
    let mut state = host(&["corp", "lab"]);
    let good = || Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6001, &[1]);
    apply_image(&mut state, 0, good()).expect("well formed");
    apply_image(&mut state, 1, Image::full().user(1, "bob", 7001, 7001)).expect("well formed");
    let crowds = |image: Image| (1..=1 + CROWDS).fold(image.far(), Image::crowd);
    for image in
        [crowds(Image::full()), crowds(Image::full()).of_process(2), crowds(Image::changes(1))]
    {
        assert_eq!(apply_image(&mut state, 0, image), Err(ImageRejection::TooMuch));
    }
    assert_eq!(state.position(0), (1, 1));
    let changes = Image::changes(1).user(3, "carol", 7003, 7003);
    apply_image(&mut state, 1, changes).expect("well formed");
    published(&mut state, |snapshot| {
        assert_eq!(members_of(snapshot, "staff").expect("there"), ["alice"]);
        for (name, uid) in [("alice", 5001), ("bob", 7001), ("carol", 7003)] {
            assert_eq!(uid_of(snapshot, name), Some(uid));
        }
    });
    apply_image(&mut state, 0, Image::changes(1).user(4, "dave", 5004, 5004))
        .expect("believed again");
}

#[test]
fn answers_that_add_up_to_too_much_are_refused() {
    let mut state = host(&["asked", "lab"]);
    apply_image(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
    apply_image(&mut state, 1, Image::full().user(1, "bob", 7001, 7001)).expect("well formed");
    learn(&mut state, 0, Image::full().far()).expect("room");
    for number in 0..CROWDS {
        learn(&mut state, 0, Image::full().crowd(1 + number)).expect("room");
    }
    let another = || Image::full().user(2, "mallory", 5002, 5002).crowd(1 + CROWDS);
    for _ in 0..3 {
        assert_eq!(learn(&mut state, 0, another()), Err(ImageRejection::TooMuch));
    }
    published(&mut state, |snapshot| {
        for (name, uid) in [("alice", Some(5001)), ("bob", Some(7001)), ("mallory", None)] {
            assert_eq!(uid_of(snapshot, name), uid, "{name}");
        }
    });
}

#[test]
fn memory_limit_ignores_replaced_entries_after_full_fetch() {
    let mut state = host(&["corp"]);
    let crowds = |image: Image| (1..1 + CROWDS).fold(image.far(), Image::crowd);
    apply_image(&mut state, 0, crowds(Image::full())).expect("room");
    let change = || Image::changes(1).crowd(1);
    assert_eq!(apply_image(&mut state, 0, change()), Err(ImageRejection::TooMuch));
    apply_image(&mut state, 0, crowds(Image::full()).leads_to(2)).expect("counted exactly");
    // Removed entries no longer count.
    apply_image(&mut state, 0, (50..100).fold(Image::changes(2), Image::gone))
        .expect("always room");
    apply_image(&mut state, 0, Image::changes(3).crowd(1)).expect("room");
}

#[test]
fn a_list_with_the_same_again_and_again_is_refused() {
    let mut state = host(&["corp"]);
    let list = vec![1; NUMBERS_MAX as usize + 1];
    let image = Image::full().group(1, "staff", 6001, &list);
    assert_eq!(apply_image(&mut state, 0, image), Err(ImageRejection::List(list.len())));
}

#[test]
fn names_in_reports_are_cut() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, &"x".repeat(60_000), 5000, 5000);
    apply_image(&mut state, 0, image).expect("well formed");
    published(&mut state, |_| {});
    let name = format!("user {}…: the name is longer than 255 bytes", "x".repeat(256));
    assert_eq!(reasons(&state, "corp"), [name]);
}

#[test]
fn duplicates_same_name_keep_memberships_of_served() {
    let mut state = host(&["asked"]);
    let other = domain_image::UserRecord {
        number: 2,
        reference: 1,
        by_name: NO_REFERENCE,
        uid: 5002,
        gid: 5002,
        name: b"alice",
        gecos: b"",
        dir: b"/",
        shell: b"",
    };
    let mut image = Image::full().user(1, "alice", 5001, 5001).group(3, "staff", 6003, &[1]);
    domain_image::write_user(&mut image.bytes, &other).expect("fits");
    apply_image(&mut state, 0, image.counted()).expect("well formed");
    let staff = &state.domains[0].entries;
    assert_eq!(staff.entries_referred(1).collect::<Vec<_>>(), [1, 2]);
    apply_image(&mut state, 0, Image::changes(1).gone(2)).expect("leads on");
    assert_eq!(state.domains[0].entries.entries_referred(1).collect::<Vec<_>>(), [1]);
    apply_image(&mut state, 0, Image::changes(2).gone(1)).expect("leads on");
    assert_eq!(state.domains[0].entries.entries_referred(1).count(), 0);
}

#[test]
fn names_in_reports_can_be_printed_and_sent() {
    let mut state = host(&["corp"]);
    let image = Image::full().user(1, "a\0b\u{1b}[2J", 5000, 5000).bytes();
    apply_image_bytes(&mut state, 0, &image).expect("well formed");
    published(&mut state, |_| {});
    assert_eq!(
        reasons(&state, "corp"),
        [r"user a\u{0}b\u{1b}[2J: the name has control characters"]
    );
}

#[test]
fn show_tells_every_domains_entry_and_which_is_served() {
    let mut state = host(&["corp", "lab"]);
    let corp = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
    apply_image(&mut state, 0, corp).expect("well formed");
    apply_image(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
    published(&mut state, |_| {});
    let shown = state.show_entries(LookUp::UserByName, b"alice");
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].refused.as_str(), &shown[0].related[..]), ("", &["staff".to_owned()][..]));
    assert_eq!((shown[1].name.as_str(), shown[1].refused.as_str()), ("alice@lab", ""));
    let shown = state.show_entries(LookUp::UserByName, b"alice@LAB");
    assert_eq!(shown.iter().map(|one| one.id).collect::<Vec<_>>(), [7001]);
}

/// Writes the snapshot of a state to a directory, with that generation.
pub(super) fn put(
    folder: &Path,
    state: &PublisherState,
    generation: u64,
) -> (Vec<u8>, SnapshotIdentity, ServedCounts) {
    let made = state.snapshot_input().make().expect("an image");
    let mut bytes = Cursor::new(Vec::new());
    made.image.write(&mut bytes, generation).expect("write to memory");
    let bytes = bytes.into_inner();
    std::fs::write(folder.join("roster.v3.snap"), &bytes).expect("write");
    let identity = SnapshotIdentity::from_bytes(&bytes).expect("a snapshot");
    (bytes, identity, made.served)
}

#[test]
fn snapshot_of_another_writer_counts_as_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (folder, snapshot) = (folder.path(), folder.path().join("roster.v3.snap"));
    let found = || ExistingSnapshot::read(folder, &snapshot, None, &config(&["corp"]));
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (own, identity, counts) = put(folder, &state, 7);

    // Without a record the snapshot may be this publisher's.
    let unknown = found();
    assert!(unknown.foreign.is_empty() && unknown.own.is_none() && unknown.previous.is_some());

    // The record has the present snapshot and the next one, whichever is in place.
    let next = SnapshotIdentity { generation: 8, checksum: 1 };
    own_record::write(folder, &[identity, next]).expect("written");
    let ours = found();
    assert_eq!((ours.served, ours.newest, &*ours.foreign), (counts.clone(), 8, ""));
    assert_eq!(ours.own.expect("it is known").identity, identity);

    // A damaged one was this publisher's own.
    own_record::write(folder, &[identity]).expect("written");
    let mut damaged = own.clone();
    let at = own.windows(3).position(|text| text == b"u19").expect("a name");
    damaged[at] ^= 1;
    std::fs::write(&snapshot, damaged).expect("write");
    let damaged = found();
    assert!(damaged.own.is_none() && damaged.foreign.is_empty());
    assert_eq!(damaged.served, counts);

    // Another host's snapshots: one of the same generation, an older one, and a newer one.
    let mut other = host(&["corp"]);
    apply_image(&mut other, 0, twenty_without(9, 2)).expect("well formed");
    for generation in [7, 3, 90] {
        put(folder, &other, generation);
        let foreign = found();
        assert!(foreign.foreign.contains(&format!("generation {generation}")), "{generation}");
        assert!(foreign.own.is_none() && foreign.previous.is_none());

        let mut anew = fresh(&["corp"], foreign.served, foreign.previous);
        anew.set_foreign();
        anew.set_locals(Locals::default());
        assert!(anew.waiting_for().is_some(), "the domain is waited for");
        assert!(matches!(
            apply_image(&mut anew, 0, twenty_without(0, 3)),
            Ok(ImageOutcome::Changed(_))
        ));
        assert_eq!(anew.waiting_for(), None, "nothing would go");
    }
    let mut impatient = fresh(&["corp"], found().served, None);
    impatient.set_foreign();
    impatient.set_locals(Locals::default());
    impatient.accept_stale_data(0);
    assert_eq!(impatient.waiting_for(), None, "it is not kept for a directory that is away");
}

#[test]
fn last_snapshot_lost_is_written_again() {
    let mut state = host(&["corp"]);
    apply_image(&mut state, 0, twenty_without(0, 1)).expect("well formed");
    let (bytes, served) = bytes_of(&state);
    let mut anew = fresh(&["corp"], served, Some(bytes));
    anew.set_locals(locals(&[("root", 0), ("u0", 1700)], &[("root", 0)]));
    assert!(anew.waiting_for().is_some());
    let last = anew.last_snapshot().expect("there is none yet that took its place");
    let mut again = Vec::new();
    last.write(&mut again, 9).expect("write to memory");
    let snapshot = Snapshot::open(&again).expect("a snapshot");
    assert_eq!(
        (Snapshot::generation(&again), snapshot.shape().users),
        (Some(9), 20),
        "it is as it was"
    );
    let cut = LastSnapshot::new(last.bytes[..last.bytes.len() - 1].to_vec());
    assert!(cut.write(&mut Vec::new(), 9).is_err(), "no damaged one is written");
    apply_image(&mut anew, 0, twenty_without(0, 2)).expect("well formed");
    assert_eq!(published(&mut anew, |snapshot| uid_of(snapshot, "u0")), None);
    assert!(anew.last_snapshot().is_none());
}

#[test]
fn refused_shell_is_replaced_after_locals_change() {
    for mode in ["corp", "asked"] {
        let mut state = host(&[mode]);
        state.domains[0].rules.serving.shells = ShellRules {
            allowed: AllowedShells::EtcShells,
            refused: Vec::new(),
            replacement: "/no".to_owned(),
            unlisted: "/no".to_owned(),
        };
        let image = Image::full().user(1, "alice", 5001, 5001);
        apply_image(&mut state, 0, image).expect("well formed");
        let shell = |state: &mut PublisherState| {
            let served = published(state, |snapshot| {
                let user = snapshot.user_by_uid(5001).expect("undamaged").expect("served");
                user.record().shell.unwrap_or_default().to_vec()
            });
            let shown = state.show_entries(LookUp::UserByName, b"alice");
            assert_eq!(shown[0].details[2].as_bytes(), served);
            assert_eq!(shown[0].details.len(), if served == b"/no" { 4 } else { 3 });
            served
        };
        assert_eq!(shell(&mut state), b"/no");
        let mut with_shell = state.locals.as_deref().expect("read").clone();
        with_shell.shells.insert(b"/bin/sh".to_vec());
        assert!(state.set_locals(with_shell));
        assert_eq!(shell(&mut state), b"/bin/sh");
    }
}

#[test]
fn unlisted_domain_has_flag_in_snapshot() {
    let mut state = host(&["corp", "lab"]);
    state.domains[1].rules.serving.enumerate = false;
    for (domain, uid) in [(0, 5001), (1, 7001)] {
        let image = Image::full().user(1, &format!("user{uid}"), uid, uid);
        apply_image(&mut state, domain, image).expect("well formed");
    }
    published(&mut state, |snapshot| {
        let listed =
            snapshot.domains().expect("domains").map(|one| one.expect("whole").is_listed());
        assert_eq!(listed.collect::<Vec<_>>(), [true, false]);
        assert_eq!(uid_of(snapshot, "user7001"), Some(7001));
    });
}
