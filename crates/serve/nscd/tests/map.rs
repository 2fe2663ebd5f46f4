// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of maps: a client finds exactly the entries of the sources, added records until they expire, and notices of a
//! new map.

use parking_lot::Mutex;
use roster_messages::table::tools;
use roster_nscd::layout::{
    self, DATA_BYTES_MAX, HEADER_BYTES, PAGE_BYTES, RAISE_BYTES, RAISES_MAX, header,
};
use roster_nscd::live_map::{self, LiveMap, MapLookup, find};
use roster_nscd::map_builder::{MapError, MapOutput, MapPlan, MapSources, ServiceLayer};
use roster_nscd::nsswitch::{self, Service, ServiceLine};
use roster_nscd::protocol::{self, MapLookupKind, Table};
use roster_nscd::server::map_sources::BuildError;
use roster_nscd::{MapMemory, SharedMapping};
use roster_snapshot::{Floor, Snapshot};
use roster_snapshot_build::compile;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor};
use std::time::{Duration, Instant};

struct Bytes(Mutex<Vec<u8>>);

impl MapOutput for Bytes {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (mut all, offset) = (self.0.lock(), offset as usize);
        if all.len() < offset + bytes.len() {
            all.resize(offset + bytes.len(), 0xaa);
        }
        all[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// Compiles a snapshot from this text.
fn compiled(passwd: &str, group: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [users, groups] = ["passwd", "group"].map(|name| folder.path().join(name));
    std::fs::write(&users, passwd).unwrap();
    std::fs::write(&groups, group).unwrap();
    let image = compile::accounts(&users, &groups, &mut |_| {}).unwrap().image;
    let mut bytes = Cursor::new(Vec::new());
    image.write(&mut bytes, 1).unwrap();
    bytes.into_inner()
}

fn layers<'a>(
    line: &ServiceLine,
    files: &'a [u8],
    roster: &'a [u8],
    floor: Option<Floor>,
) -> Vec<ServiceLayer<'a>> {
    let layer = |&step: &nsswitch::ServiceStep| {
        let is_local = step.service == Service::Files;
        let mut accounts = Snapshot::open(if is_local { files } else { roster }).unwrap();
        if let Some(floor) = floor.filter(|_| !is_local) {
            accounts.set_floor(&floor);
        }
        ServiceLayer { step, accounts: Some(accounts) }
    };
    line.steps.iter().map(layer).collect()
}

/// Builds the map of a table from local files and a snapshot.
fn map(table: Table, lines: &str, files: &[u8], roster: &[u8]) -> Vec<u8> {
    map_above(None, table, lines, files, roster)
}

/// Builds a map from a snapshot with a floor.
fn map_above(
    floor: Option<Floor>,
    table: Table,
    lines: &str,
    files: &[u8],
    roster: &[u8],
) -> Vec<u8> {
    let lines = nsswitch::parse(lines.as_bytes());
    let line = if table == Table::Passwd { &lines.passwd } else { &lines.group };
    let entries = layers(line, files, roster, floor);
    let groups_of = layers(&lines.initgroups, files, roster, floor);
    let others_follow = lines.initgroups.others_follow;
    let sources = MapSources { entries: &entries, groups_of: &groups_of, others_follow };
    let plan = MapPlan::new(table, sources, 64 << 10).unwrap();
    let bytes = Bytes(Mutex::new(Vec::new()));
    plan.write(1_000_000, &bytes).unwrap();
    let bytes = bytes.0.into_inner();
    assert_eq!(bytes.len() as u64, plan.file_bytes());
    assert_eq!(
        live_map::bytes_needed(&bytes[..]).unwrap().next_multiple_of(PAGE_BYTES),
        bytes.len()
    );
    bytes
}

const BOTH: &str = "passwd: files roster\ngroup: files roster\n\
                    initgroups: files [SUCCESS=continue] roster\n";

fn user(map: &[u8], key: &str) -> MapLookup {
    let kind = if protocol::id(key.as_bytes()).is_some() {
        MapLookupKind::UserByUid
    } else {
        MapLookupKind::UserByName
    };
    find(map, kind, key.as_bytes())
}

fn an_answer(uid: u32, name: &str) -> MapLookup {
    MapLookup::Answer(protocol::user(uid, 7, [name.as_bytes(), b"x", b"", b"/", b""]))
}

#[test]
fn the_first_service_that_has_a_key_answers_it() {
    let files = compiled("a:x:1:7::/:\na:x:2:7::/:\n+nis\nb:x:1:7::/:\n", "");
    let roster = compiled("a:x:3:7::/:\nc:x:1:7::/:\nd:x:4:7::/:\n", "");
    let map = map(Table::Passwd, BOTH, &files, &roster);
    assert_eq!(user(&map, "a"), an_answer(1, "a"));
    assert_eq!(user(&map, "1"), an_answer(1, "a"));
    assert_eq!(user(&map, "2"), an_answer(2, "a"));
    assert_eq!(user(&map, "b"), an_answer(1, "b"));
    assert_eq!(user(&map, "3"), an_answer(3, "a"));
    assert_eq!(user(&map, "c"), an_answer(1, "c"));
    assert_eq!(user(&map, "4"), an_answer(4, "d"));
    for nobody in ["+nis", "0", "e", "", "5"] {
        assert_eq!(user(&map, nobody), MapLookup::NotInMap, "{nobody}");
    }
}

#[test]
fn map_leaves_out_what_floor_refuses() {
    let files = compiled("root:x:0:0::/:\n", "adm:x:4:\n");
    let users = "toor:$6$:0:0::/:\nlow:x:999:5000::/:\nadmin:x:5001:4::/:\nopen::5002:5000::/:\n\
                 a:$6$longer:5000:5000:A:/:/bin/sh\nguest:x:5003:100::/:\n";
    let groups = "roots:x:0:a,root\nadms:x:4:a\nstaff:$6$:6000:a,root\n";
    let roster = compiled(users, groups);
    let floor = Floor::new(1000, [100]);
    let map = |table| map_above(floor, table, BOTH, &files, &roster);
    let (users, groups) = (map(Table::Passwd), map(Table::Group));
    for key in ["toor", "low", "admin", "open", "999", "5001", "5002"] {
        assert_eq!(user(&users, key), MapLookup::NotInMap, "{key}");
    }
    let fields = [&b"a"[..], b"*", b"A", b"/", b"/bin/sh"];
    let answer = MapLookup::Answer(protocol::user(5000, 5000, fields));
    assert_eq!([user(&users, "a"), user(&users, "5000")], [answer.clone(), answer]);
    let guest = protocol::user(5003, 100, [&b"guest"[..], b"*", b"", b"/", b""]);
    assert_eq!(user(&users, "guest"), MapLookup::Answer(guest));
    let local = protocol::user(0, 0, [&b"root"[..], b"x", b"", b"/", b""]);
    assert_eq!(
        [user(&users, "root"), user(&users, "0")],
        [(); 2].map(|()| MapLookup::Answer(local.clone()))
    );
    for name in [&b"roots"[..], b"adms"] {
        assert_eq!(find(&groups[..], MapLookupKind::GroupByName, name), MapLookup::NotInMap);
    }
    let staff = MapLookup::Answer(protocol::group(6000, b"staff", b"*", &[b"a", b"root"]));
    assert_eq!(find(&groups[..], MapLookupKind::GroupByName, b"staff"), staff);
    for name in [&b"a"[..], b"root"] {
        let gids = MapLookup::Answer(protocol::groups(&[6000]));
        assert_eq!(find(&groups[..], MapLookupKind::GroupsOf, name), gids);
    }
}

#[test]
fn what_another_service_may_change_is_left_to_the_name_services() {
    let files = compiled("a:x:1:7::/:\n", "g:x:5:a\n");
    let roster = compiled("a:x:3:7::/:\nd:x:4:7::/:\n", "g:x:6:d\nh:x:7:a\n");
    let lines = "passwd: files [SUCCESS=continue] roster\ngroup: files [SUCCESS=merge] roster\n";
    let users = map(Table::Passwd, lines, &files, &roster);
    assert_eq!(user(&users, "a"), MapLookup::UseServices);
    assert_eq!(user(&users, "1"), MapLookup::UseServices);
    assert_eq!(user(&users, "d"), an_answer(4, "d"));
    let groups = map(Table::Group, lines, &files, &roster);
    assert_eq!(find(&groups[..], MapLookupKind::GroupByName, b"g"), MapLookup::UseServices);
    let answer = MapLookup::Answer(protocol::group(7, b"h", b"x", &[b"a"]));
    assert_eq!(find(&groups[..], MapLookupKind::GroupByName, b"h"), answer);
    assert_eq!(find(&groups[..], MapLookupKind::GroupByGid, b"7"), answer);
}

#[test]
fn groups_of_a_user_are_a_union_where_no_other_service_is_asked() {
    let files = compiled("a:x:1:7::/:\nz:x:9:7::/:\n", "g:x:5:a,a,stranger\nh:x:5:a\n#old:x:8:a\n");
    let roster = compiled("d:x:4:7::/:\n", "g:x:5:a\nk:x:6:a,d\n");
    let of = |lines: &str, name: &str| {
        let map = map(Table::Group, lines, &files, &roster);
        find(&map[..], MapLookupKind::GroupsOf, name.as_bytes())
    };
    let gids = |gids: &[u32]| MapLookup::Answer(protocol::groups(gids));
    assert_eq!(of(BOTH, "a"), gids(&[5, 5, 8, 6]));
    assert_eq!(of(BOTH, "d"), gids(&[6]));
    assert_eq!(of(BOTH, "z"), gids(&[]));
    assert_eq!(of(BOTH, "stranger"), gids(&[5]));
    assert_eq!(of(BOTH, "nobody"), MapLookup::NotInMap);
    // As in initgroups(3), `group:` continues after a success, and `initgroups:` does not.
    assert_eq!(of("group: files roster\n", "a"), gids(&[5, 5, 8, 6]));
    assert_eq!(of("group: files roster\ninitgroups: files roster\n", "a"), gids(&[5, 5, 8]));
    assert_eq!(of("group: files roster\ninitgroups: files roster\n", "d"), gids(&[6]));
    assert_eq!(of("group: files sss roster\n", "a"), MapLookup::NotInMap);
    // As in the C library, the last group replaces one that is known.
    let files = compiled("", "f:x:5:b\ng:x:8:b\n");
    let roster = compiled("", "f:x:5:b\nh:x:6:b\nk:x:7:b\ng:x:8:b\nm:x:9:b\n");
    let map = map(Table::Group, BOTH, &files, &roster);
    assert_eq!(find(&map[..], MapLookupKind::GroupsOf, b"b"), gids(&[5, 8, 9, 6, 7]));
    // Later services are queried only for a user that is not found.
    let stops = "group: files\ninitgroups: files sss\n";
    assert_eq!(of(stops, "a"), gids(&[5, 5, 8]));
    assert_eq!(of(stops, "z"), MapLookup::NotInMap);
}

#[test]
fn every_entry_of_a_large_corpus_is_found_with_its_own_bytes() {
    let mut passwd = String::new();
    let mut group = String::new();
    for i in 0..3000_u32 {
        passwd += &format!("user{i}:x:{}:7::/:\n", 10_000 + i * 7);
        let members: Vec<_> = (0..i % 40).map(|m| format!("user{}", (i * 31 + m) % 3000)).collect();
        group += &format!("group{i}:x:{}:{}\n", 50_000 + i, members.join(","));
    }
    let bytes = compiled(&passwd, &group);
    let snapshot = Snapshot::open(&bytes).unwrap();
    let users = map(Table::Passwd, "passwd: roster\n", &bytes, &bytes);
    let groups = map(Table::Group, "group: roster\n", &bytes, &bytes);
    for i in 0..3000_u32 {
        let (name, uid) = (format!("user{i}"), 10_000 + i * 7);
        assert_eq!(user(&users, &name), an_answer(uid, &name));
        assert_eq!(user(&users, &uid.to_string()), an_answer(uid, &name));
        let name = format!("group{i}");
        let own = snapshot.group_by_name(name.as_bytes()).unwrap().unwrap();
        let members: Vec<_> = own.members.iter().map(Result::unwrap).collect();
        let answer =
            MapLookup::Answer(protocol::group(50_000 + i, name.as_bytes(), b"x", &members));
        assert_eq!(find(&groups[..], MapLookupKind::GroupByName, name.as_bytes()), answer);
        let gid = (50_000 + i).to_string();
        assert_eq!(find(&groups[..], MapLookupKind::GroupByGid, gid.as_bytes()), answer);
        let name = format!("user{i}");
        let mut gids = Vec::new();
        let list = snapshot.supplementary(name.as_bytes()).unwrap().unwrap();
        list.each(|gid| gids.push(gid)).unwrap();
        let answer = MapLookup::Answer(protocol::groups(&gids));
        assert_eq!(find(&groups[..], MapLookupKind::GroupsOf, name.as_bytes()), answer);
    }
}

/// The free part has the maximum size. One more user makes the map too large, and no byte is written.
#[test]
fn a_table_that_clients_could_not_measure_is_no_map() {
    let local = compiled("root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n");
    let lines = nsswitch::parse(b"passwd: files\ngroup: files\n");
    let plan = |room| {
        let entries = layers(&lines.passwd, &local, b"", None);
        let sources = MapSources { entries: &entries, groups_of: &[], others_follow: false };
        MapPlan::new(Table::Passwd, sources, room).map(|plan| plan.file_bytes())
    };
    let small = plan(0).unwrap();
    let most = DATA_BYTES_MAX - usize::try_from(small).unwrap();
    assert!(plan(most).unwrap() < 1 << 31);
    for room in [DATA_BYTES_MAX, 2 << 30, 1 << 40] {
        let error = plan(room).unwrap_err();
        assert!(
            matches!(error, MapError::TooLarge { table: "passwd", bytes } if bytes > room as u64)
        );
        assert!(error.to_string().contains("clients read at most 2 GiB"), "{error}");
        assert_eq!(BuildError::from(error).message(), &tools::NSCD_MAP_TOO_LARGE);
    }
}

#[test]
fn a_damaged_snapshot_is_no_map() {
    let mut bytes = compiled("a:x:1:7::/:\nb:x:2:7::/:\n", "g:x:5:a,b\n");
    let middle = bytes.windows(2).rposition(|two| two == b"b\0").unwrap();
    bytes[middle] ^= 1;
    let lines = nsswitch::parse(b"group: roster\n");
    let entries = layers(&lines.group, &bytes, &bytes, None);
    let groups_of = layers(&lines.initgroups, &bytes, &bytes, None);
    let sources = MapSources { entries: &entries, groups_of: &groups_of, others_follow: false };
    let made = MapPlan::new(Table::Group, sources, 0)
        .and_then(|plan| plan.write(0, &Bytes(Mutex::new(Vec::new()))));
    assert!(matches!(made, Err(MapError::Damaged)), "{made:?}");
    let error = BuildError::from(made.unwrap_err());
    assert_eq!(error.message(), &tools::NSCD_SNAPSHOT_DAMAGED);
}

/// Output without space.
struct Full;

impl MapOutput for Full {
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn map_without_space_has_code() {
    let local = compiled("root:x:0:0:root:/root:/bin/sh\n", "");
    let entries = layers(&nsswitch::parse(b"passwd: files\n").passwd, &local, b"", None);
    let sources = MapSources { entries: &entries, groups_of: &[], others_follow: false };
    let plan = MapPlan::new(Table::Passwd, sources, 0).unwrap();
    let error = BuildError::from(plan.write(0, &Full).unwrap_err());
    assert_eq!(error.message(), &tools::NSCD_MAP_WRITE_FAILED);
    assert!(error.is_out_of_space(), "{error}");
}

fn in_use() -> (tempfile::TempDir, LiveMap) {
    let bytes = compiled("a:x:1:7::/:\n", "");
    let map = map(Table::Passwd, "passwd: roster\n", &bytes, &bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map");
    std::fs::write(&path, &map).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let shared = SharedMapping::new(&file, map.len()).unwrap();
    let free = shared.word(header::FIRST_FREE).unwrap() as usize;
    let data = shared.word(header::DATA_SIZE).unwrap() as usize;
    (folder, LiveMap::new(shared, free..data))
}

#[test]
fn what_is_added_is_found_until_it_is_over() {
    let (_folder, mut live) = in_use();
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let (nobody, packet) = (
        protocol::absent(MapLookupKind::UserByName),
        protocol::not_served(MapLookupKind::UserByUid),
    );
    assert!(live.add(MapLookupKind::UserByName, b"x", &nobody, true, start, second));
    assert!(live.add(MapLookupKind::UserByUid, b"9", &packet, false, start, 3 * second));
    assert_eq!(
        find(live.map(), MapLookupKind::UserByName, b"x"),
        MapLookup::Answer(nobody.clone())
    );
    assert_eq!(find(live.map(), MapLookupKind::UserByUid, b"9"), MapLookup::Answer(packet.clone()));
    assert_eq!(live.expire(start), Some(start + second));
    assert_eq!(live.expire(start + second), Some(start + 3 * second));
    assert_eq!(find(live.map(), MapLookupKind::UserByName, b"x"), MapLookup::NotInMap);
    assert_eq!(find(live.map(), MapLookupKind::UserByUid, b"9"), MapLookup::Answer(packet));
    // The same record again, which replaces itself.
    assert!(live.add(MapLookupKind::UserByName, b"x", &nobody, true, start, second));
    assert!(live.add(MapLookupKind::UserByName, b"x", &nobody, true, start, second));
    assert_eq!(live.added(), 2);
    live.empty(start);
    assert_eq!((live.added(), live.expire(start)), (0, None));
    assert_eq!(find(live.map(), MapLookupKind::UserByUid, b"9"), MapLookup::NotInMap);
    assert_eq!(find(live.map(), MapLookupKind::UserByName, b"a"), an_answer(1, "a"));
    assert_eq!(live.map().word(header::GC_CYCLE), Some(2));
}

/// A flood of unknown names clears the free part. No record is added while a client may still read there.
#[test]
fn a_full_room_is_emptied_and_rests_before_it_is_used_again() {
    let (_folder, mut live) = in_use();
    let (start, life) = (Instant::now(), Duration::from_secs(60));
    let nobody = protocol::absent(MapLookupKind::UserByName);
    let mut refused = 0;
    for i in 0..5000 {
        let name = format!("nobody{i}");
        refused += u32::from(!live.add(
            MapLookupKind::UserByName,
            name.as_bytes(),
            &nobody,
            true,
            start,
            life,
        ));
    }
    assert!(refused > 0);
    assert_eq!(live.map().word(header::GC_CYCLE), Some(2));
    assert_eq!(find(live.map(), MapLookupKind::UserByName, b"a"), an_answer(1, "a"));
    let later = start + Duration::from_secs(3);
    let early = later - Duration::from_millis(1);
    assert!(!live.add(MapLookupKind::UserByName, b"last", &nobody, true, early, life));
    assert!(live.add(MapLookupKind::UserByName, b"last", &nobody, true, later, life));
    assert_eq!(live.map().word(header::GC_CYCLE), Some(2));
    assert!(!live.add(MapLookupKind::UserByName, b"huge", &[0; 20_000], false, later, life));
}

/// Forged names can share a chain with another name. The chain stays short, and prebuilt records come first.
#[test]
fn a_chain_takes_few_records_more_and_behind_its_own() {
    let (_folder, mut live) = in_use();
    let (start, life) = (Instant::now(), Duration::from_secs(60));
    let nobody = protocol::absent(MapLookupKind::UserByName);
    let module = live.map().word(header::MODULE).unwrap();
    let chain = |name: &[u8]| layout::hash(&[name, b"\0"].concat()) % module;
    let head = HEADER_BYTES + chain(b"a") as usize * 4;
    let first = live.map().word(head);
    let names = (0..).map(|number| format!("x{number}").into_bytes());
    let names: Vec<_> = names.filter(|name| chain(name) == chain(b"a")).take(9).collect();
    let add = |live: &mut LiveMap, number: usize| {
        live.add(MapLookupKind::UserByName, &names[number], &nobody, true, start, life)
    };
    let added = (0..9).filter(|&number| add(&mut live, number)).count();
    assert_eq!(added, 8);
    assert_eq!(live.map().word(head), first, "its own are in front");
    assert_eq!(find(live.map(), MapLookupKind::UserByName, b"a"), an_answer(1, "a"));
    for name in &names[..8] {
        assert_eq!(
            find(live.map(), MapLookupKind::UserByName, name),
            MapLookup::Answer(nobody.clone())
        );
    }
    // Expired records free their places in the chain, and prebuilt records remain.
    live.expire(start + life);
    assert!(add(&mut live, 8) && live.added() == 1);
    assert_eq!(find(live.map(), MapLookupKind::UserByName, b"a"), an_answer(1, "a"));
    assert_eq!(find(live.map(), MapLookupKind::UserByName, &names[0]), MapLookup::NotInMap);
}

/// All notices fit into the last page: clients unmap their mapping, and a further page would remain.
#[test]
fn a_map_can_say_often_enough_that_there_is_another() {
    let (_folder, live) = in_use();
    let mut map = live.into_map();
    let (pages, data) = (map.len(), map.word(header::DATA_SIZE).unwrap());
    for times in 1..=RAISES_MAX as u32 {
        assert!(live_map::announce_replacement(&mut map), "{times}");
        assert_eq!(
            map.word(header::DATA_SIZE).unwrap(),
            data + times * RAISE_BYTES.cast_unsigned()
        );
        let needed = live_map::bytes_needed(&map).unwrap();
        assert_eq!(needed.next_multiple_of(PAGE_BYTES), pages);
    }
    while live_map::announce_replacement(&mut map) {}
    assert!(live_map::bytes_needed(&map).unwrap() <= pages);
    live_map::close(&mut map);
    assert_eq!(map.word(header::GC_CYCLE).unwrap() % 2, 1);
}

/// Lookups in arbitrary bytes never read beyond the file.
#[test]
fn any_bytes_are_safe_to_look_up_in() {
    let bytes = compiled("a:x:1:7::/:\nb:x:2:7::/:\n", "");
    let map = map(Table::Passwd, "passwd: roster\n", &bytes, &bytes);
    let mut state = 1_u32;
    for _ in 0..20_000 {
        let mut broken = map[..12 << 10].to_vec();
        for _ in 0..8 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let place = (state >> 8) as usize % broken.len();
            let place = if state.is_multiple_of(3) { place % HEADER_BYTES } else { place };
            broken[place] = state as u8;
        }
        let _ = find(&broken[..], MapLookupKind::UserByName, b"a");
        let _ = live_map::bytes_needed(&broken[..]);
    }
}

/// A chain with a loop, in a file that claims the maximum length.
#[test]
fn map_endless_chain_lookup_ends() {
    let mut bytes = vec![0; 4 << 10];
    bytes[header::MODULE..][..4].copy_from_slice(&1_i32.to_ne_bytes());
    bytes[header::DATA_SIZE..][..4].copy_from_slice(&i32::MAX.to_ne_bytes());
    for kind in MapLookupKind::ALL {
        let counted = Counted { bytes: &bytes, reads: Cell::new(0) };
        assert_eq!(find(&counted, kind, b"root"), MapLookup::NotInMap);
        // Each chain entry takes a few reads, and more than a byte.
        assert!(counted.reads.get() <= 2 * bytes.len(), "{kind:?}: {} reads", counted.reads.get());
    }
}

/// Memory that counts its reads.
struct Counted<'b> {
    bytes: &'b [u8],
    reads: Cell<usize>,
}

impl MapMemory for Counted<'_> {
    fn size(&self) -> usize {
        self.bytes.size()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        self.reads.set(self.reads.get() + 1);
        MapMemory::read(self.bytes, offset, out)
    }
}
