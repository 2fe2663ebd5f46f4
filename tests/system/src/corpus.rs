// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts of passwd, group and shadow to compare services on: hand-picked ones, one for each quirk
//! of the format, and random ones that mix the quirks. The keys to look up are cut from the text
//! crudely, on purpose without the parser under test.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Keys of one kind beyond this number are thinned out, for large texts even more: `files` reads the whole text for
/// each.
const KEYS_MAX: usize = 150;
const KEYS_MAX_OF_LARGE: usize = 30;
const LARGE_BYTES: usize = 100_000;

/// One host's text files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corpus {
    /// The corpus's name in a failure.
    pub label: String,
    /// passwd(5)
    pub passwd: Vec<u8>,
    /// group(5)
    pub group: Vec<u8>,
    /// shadow(5)
    pub shadow: Vec<u8>,
}

impl Corpus {
    /// A corpus of the three texts.
    #[must_use]
    pub fn new(label: &str, passwd: &[u8], group: &[u8], shadow: &[u8]) -> Self {
        let label = label.to_owned();
        Self { label, passwd: passwd.into(), group: group.into(), shadow: shadow.into() }
    }

    /// The text of this machine's own /etc. Shadow is left empty if the caller may not read it.
    ///
    /// # Panics
    /// If /etc/passwd or /etc/group cannot be read.
    #[must_use]
    pub fn from_machine() -> Self {
        let passwd = fs::read("/etc/passwd").expect("read /etc/passwd");
        let group = fs::read("/etc/group").expect("read /etc/group");
        let shadow = fs::read("/etc/shadow").unwrap_or_default();
        Self { label: "this machine".to_owned(), passwd, group, shadow }
    }

    /// Writes `passwd`, `group` and `shadow` into a directory.
    ///
    /// # Panics
    /// If that fails.
    pub fn write(&self, folder: &Path) {
        for (name, text) in
            [("passwd", &self.passwd), ("group", &self.group), ("shadow", &self.shadow)]
        {
            let path = folder.join(name);
            fs::write(&path, text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        }
        let shadow = fs::Permissions::from_mode(0o640);
        fs::set_permissions(folder.join("shadow"), shadow).expect("chmod shadow");
    }

    /// Every name and number in the text, in and out of place, and some that the text lacks.
    #[must_use]
    pub fn keys(&self) -> LookupKeys {
        let texts = [&self.passwd, &self.group, &self.shadow];
        let mut first = BTreeSet::new();
        let mut other = BTreeSet::new();
        let mut ids = BTreeSet::from([0, 1, 65534, 65535, i32::MAX.cast_unsigned(), u32::MAX]);
        for line in texts.into_iter().flat_map(|text| text.split(|&byte| byte == b'\n')) {
            for (i, token) in line.split(|byte| matches!(byte, b':' | b',' | 0)).enumerate() {
                let trimmed = token.trim_ascii();
                let names = if i == 0 { &mut first } else { &mut other };
                names.insert(token.to_vec());
                names.insert(trimmed.to_vec());
                ids.extend(ids_in(trimmed));
            }
        }
        let large = texts.iter().any(|text| text.len() >= LARGE_BYTES);
        let most = if large { KEYS_MAX_OF_LARGE } else { KEYS_MAX };
        let unknown = ["", " ", "nobody here", "+", "-", "#", "root", "a:b", "\u{e9}", "-1", "0"];
        let mut names = thin_out(first, most);
        names.extend(thin_out(other, most));
        names.extend(unknown.map(|name| name.as_bytes().to_vec()));
        names.push(vec![b'x'; 5000]);
        LookupKeys { names, ids: thin_out(ids, most) }
    }
}

/// Keys of lookups.
#[derive(Clone, Debug)]
pub struct LookupKeys {
    /// Names of users, of groups, and of neither.
    pub names: Vec<Vec<u8>>,
    /// Ids.
    pub ids: Vec<u32>,
}

impl LookupKeys {
    /// As the probe reads them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for name in &self.names {
            text.push(b'n');
            text.extend(name);
            text.push(0);
        }
        for id in &self.ids {
            text.extend(format!("i{id}\0").bytes());
        }
        text
    }
}

/// A number and its neighbours, in the ways it could be read.
fn ids_in(token: &[u8]) -> Vec<u32> {
    let Ok(text) = str::from_utf8(token) else { return Vec::new() };
    let Ok(number) = text.parse::<i128>() else { return Vec::new() };
    let low = u32::try_from(number & 0xffff_ffff).unwrap_or(0);
    vec![low, low.wrapping_add(1), low.wrapping_neg()]
}

/// The first ones, the last one, and some evenly from between.
fn thin_out<T>(keys: BTreeSet<T>, most: usize) -> Vec<T> {
    let count = keys.len();
    let step = count.div_ceil(most).max(1);
    let keep = |i: usize| i < most / 3 || i.is_multiple_of(step) || i + 1 == count;
    keys.into_iter().enumerate().filter(|&(i, _)| keep(i)).map(|(_, key)| key).collect()
}

const USERS: &[u8] =
    b"root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000:Alice:/home/alice:/bin/sh\n\
                       bob:x:1001:1001::/home/bob:\n";
const GROUPS: &[u8] =
    b"root:x:0:\nalice:x:1000:\nbob:x:1001:\nstaff:x:50:alice,bob\nwheel:x:10:bob\n";
const SHADOW: &[u8] = b"root:*:19000:0:99999:7:::\nalice:$6$salt$hash:19500:0:99999:7:30:20000:\n";

/// A label, then the passwd, group and shadow text; an empty one stands for the plain text.
type Quirk = (&'static str, &'static [u8], &'static [u8], &'static [u8]);

/// Texts that each show one quirk in all three files, as far as it can be in them.
#[rustfmt::skip]
const QUIRKS: &[Quirk] = &[
    ("plain", b"", b"", b""),
    ("nothing but a newline", b"\n", b"\n", b"\n"),
    ("duplicate names and ids",
        b"a:1:1:1:first::\na:2:2:2:second::\nb:3:1:3:same uid::\na:4:1:4:third::\n",
        b"g:1:1:a\ng:2:2:b\nh:3:1:c,a\ng:4:1:a\n", b"a:1:1:1:1::::\na:2:2:2:2::::\n"),
    ("empty fields", b"a::1:1:::\n:x:2:2:::\nb::::::\nc:x:3::::\n::4:4:::\n",
        b"g::1:\n:x:2:a\nh:::\ni:x::a\n::3:a\n", b"a::::::::\n:*:::::::\nb:::::::\n"),
    ("missing last fields",
        b"a:x:1:1\nb:x:2:2:\nc:x:3:3:g\nd:x:4:4:g:/h\ne:x:5\nf:x\ng\n",
        b"g:x:1\nh:x:2:\ni:x\nj\nk:\nl::\n",
        b"a:*:1:2:3\nb:*:1:2:3:\nc:*:1:2:3:4\nd:*:1:2:3:4:5\ne:*:1:2:3:4:5:6\nf:*:1:2\ng:*\nh\ni:*:1:2:3:4:5:6:7\n"),
    ("too many fields", b"a:x:1:1:g:/h:/s:more:still\n", b"g:x:1:a:b:c\nh:x:2:a,b:c,a\n",
        b"a:*:1:2:3:4:5:6:7:8\nb:*:1:2:3:4:5:6:7:\n"),
    ("names of odd letters",
        b"a.b:x:1:1:::\na-b:x:2:2:::\nhost$:x:3:3:::\nj\xc3\xb6rg:x:4:4:J\xc3\xb6rg::\n\xff\xfe:x:5:5:::\nUP:x:6:6:::\na b:x:7:7:::\n_:x:8:8:::\na\\b:x:9:9:::\n12:x:10:10:::\n",
        b"a.b:x:1:a-b\na-b:x:2:host$\nhost$:x:3:j\xc3\xb6rg\n\xff:x:4:\xff\xfe\nUP:x:5:up,UP\na b:x:6:a b\n12:x:7:12\n",
        b"a.b:*:::::::\nhost$:*:::::::\nj\xc3\xb6rg:*:::::::\n"),
    ("comments", b"# a:x:1:1:::\n#b:x:2:2:::\nc:x:3:3:# no comment::\n ##\n", b"#g:x:5:alice\n# h:x:6:alice\n#\n  #i:x:7:alice\nj:x:8:#alice,alice\n",
        b"#a:*:1:1:1::::\nb:*:1:1:1::::\n"),
    ("leading white space", b" a:x:1:1:::\n\tb:x:2:2:::\n\x0b\x0c\r c:x:3:3:::\na :x:4:4:::\nd: x : 5: 6: g : h : s \n",
        b" g:x:1:alice\n\th:x:2: alice, bob\ni:x: 3:alice ,bob\nj:x:\t4:\talice\n g:x:9:alice\n",
        b" a:*:1:1:1::::\nb:*: 1: 2: 3: 4: 5: 6: 7\n"),
    ("only white space on a last line without newline", b"a:x:1:1:::\n   ", b"g:x:1:alice\n\t", b"a:*:1:1:1::::\n "),
    ("NIS lines",
        b"+\n-\n+alice\n-bob\n+::::::\n+alice:x:1:1:g:/h:/s\n-bob:::::::\n+@netgroup\n+:x\n+:x:5\n+:x:5:6\n+a:x::6\n+a:x:y:6\nplus+:x:7:7:::\n",
        b"+\n-\n+:::\n+g\n-h:x:5:alice\n+g:x:6:alice,bob\n+i:x\n+i:x:\n+i:x::alice\nstaff:x:50:alice\n+j:x:50:bob\n",
        b"+\n-\n+alice\n-bob:*:1:1:1::::\n+::::::::\n+x:*\n"),
    ("missing final newline", b"a:x:1:1:g:/h:/bin/sh", b"g:x:1:a,b", b"a:*:1:2:3:4:5:6:7"),
    ("carriage returns", b"a:x:1:1:g:/h:/bin/sh\r\nb:x:2:2:::\r\n\r\nc:x:3:3\r\nd:x:4\r\n", b"g:x:1:a,b\r\nh:x:2:\r\ni:x:3\r\n\r\n", b"a:*:1:2:3:4:5:6:7\r\nb:*:1:2:3\r\nc:*:1:2:3::::\r\n"),
    ("numbers that are none", b"a:x:one:1:::\nb:x:1x:1:::\nc:x:0x10:1:::\nd:x:1 :1:::\ne:x:1.0:1:::\nf:x:--1:1:::\ng:x:+:1:::\nh:x:-:1:::\ni:x:1:z:::\nj:x:1:1z:::\nk:x:1,2:3:::\n",
        b"g:x:one:a\nh:x:1x:a\ni:x:0x1:a\nj:x:1 :a\nk:x:+:a\nl:x:-:a\n", b"a:*:x:1:1::::\nb:*:1:x:1::::\nc:*:1:1:x::::\nd:*:1:1:1:x:::\ne:*:1:1:1::::x\n"),
    ("numbers at their limits",
        b"a:x:2147483647:2147483648:::\nb:x:4294967294:4294967295:::\nc:x:4294967296:4294967297:::\nd:x:-1:-2:::\ne:x:99999999999999999999:1:::\nf:x:-18446744073709551615:-18446744073709551614:::\ng:x:+5:0005:::\nh:x:18446744073709551615:18446744073709551616:::\ni:x:-4294967295:-4294967296:::\nj:x:-0:+0:::\n",
        b"g:x:4294967295:a\nh:x:4294967296:a\ni:x:-1:a\nj:x:-4294967295:a\nk:x:99999999999999999999:a\nl:x:007:a\nm:x:2147483648:a\n",
        b"a:*:2147483648:4294967295:4294967296::::\nb:*:-1:-2:-3:-4:-5:-6:-7\nc:*:99999999999999999999:0:0:::::\nd:*:1:1:1::::99999999999999999999\ne:*:1:1:1::::4294967296\n"),
    ("embedded NUL", b"a:x:1:1:g\0h:/h:/s\nb:x:2\0:2:::\n\0c:x:3:3:::\nd:x:4:4:::\0\n", b"g:x:1:a\0,b\nh\0:x:2:a\n\0i:x:3:a\nj:x:4:a,b\0\n", b"a:*\0:1:1:1::::\nb:*:1:1:1::::\n"),
    ("members that are no user, doubled, empty", b"", b"g:x:1:ghost,alice,ghost\nh:x:2:alice,alice,bob,alice\ni:x:3:,alice,,bob,\nj:x:4:,\nk:x:5: , ,\nl:x:6:alice,\n", b""),
    ("groups of one gid", b"", b"g:x:5:alice\nh:x:5:alice,bob\ni:x:6:bob\nj:x:5:ghost\nk:x:1000:alice\nl:x:1001:alice,bob\n", b""),
    ("a name with a colon only", b":\n::\n:::\n::::\n:::::::::\n", b":\n::\n:::\n::::\n", b":\n::\n::::::::\n"),
    ("tabs and other blanks inside", b"a\tb:x:1:1:g\th:/h\t:\t/s\t\n", b"g\th:x:1:a\tb,\tc\t\n", b"a\tb:*\t:1:1:1::::\n"),
    ("control bytes", b"a\x01:x:1:1:\x1b[31m::\n\x7f:x:2:2:::\n", b"g\x01:x:1:a\x01\n", b"a\x01:\x02:1:1:1::::\n"),
    ("empty lines everywhere", b"\n\na:x:1:1:::\n\n\nb:x:2:2:::\n\n", b"\n\ng:x:1:a\n\n", b"\na:*:1:1:1::::\n\n"),
    ("members with commas and blanks at the end", b"", b"g:x:1:alice \nh:x:2:alice , bob ,\ni:x:3:alice\t\nj:x:4:a b,c d\n", b""),
    ("shadow's old form", b"", b"", b"a:*:1:2:3\nb:*:1:2:3:\nc:*:1:2:3:   \nd:*:1:2:3: 4\ne:*:1:2: 3\nf:*:::: \n"),
    ("a user with the name of a comment", b"#alice:x:1:1:::\nalice:x:2:2:::\n", b"g:x:1:#alice,alice\n#g:x:2:alice,#alice\n #g:x:3:alice\n", b""),
];

/// The hand-picked corpora: the quirks, empty files, and the large ones.
#[must_use]
pub fn hand_picked() -> Vec<Corpus> {
    let or = |text: &[u8], plain: &[u8]| if text.is_empty() { plain.into() } else { text.to_vec() };
    let mut corpora: Vec<_> = QUIRKS
        .iter()
        .map(|&(label, passwd, group, shadow)| Corpus {
            label: label.to_owned(),
            passwd: or(passwd, USERS),
            group: or(group, GROUPS),
            shadow: or(shadow, SHADOW),
        })
        .collect();
    corpora.push(Corpus::new("empty files", b"", b"", b""));
    corpora.push(Corpus::new("no users", b"", GROUPS, b""));
    corpora.push(Corpus::new("no groups", USERS, b"", SHADOW));
    corpora.push(long_lines());
    corpora.push(large_memberships());
    corpora
}

/// Lines that outgrow every first buffer: 100 kB of GECOS, long names, a long password.
fn long_lines() -> Corpus {
    let gecos = "g".repeat(100_000);
    let name = "n".repeat(3000);
    let passwd = format!("a:x:1:1:{gecos}:/h:/s\n{name}:x:2:2:::\nb:x:3:3:g:/{gecos}:/s\n");
    let group = format!("{name}:x:1:a,{name},b\nh:{gecos}:2:a\n");
    let shadow = format!("a:{gecos}:1:1:1::::\n{name}:*:1:1:1::::\n");
    Corpus::new("long lines", passwd.as_bytes(), group.as_bytes(), shadow.as_bytes())
}

/// A group of 100,000 members, one user of 3,000 groups.
fn large_memberships() -> Corpus {
    let mut group = String::from("crowd:x:7:");
    for i in 0..100_000 {
        let _ = write!(group, "{}user{i:05}", if i == 0 { "" } else { "," });
    }
    group.push_str("\nsmall:x:8:user00001\n");
    for i in 0..3000 {
        let _ = writeln!(group, "g{i}:x:{}:busy", 10_000 + i);
    }
    let passwd = b"busy:x:1000:1000:::\nuser00001:x:1001:7:::\nuser99999:x:1002:8:::\n";
    Corpus::new("a group of 100,000 members", passwd, group.as_bytes(), b"")
}

/// splitmix64: a random corpus has to be the same on every machine and in every year.
struct SeededRandom(u64);

impl SeededRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a [u8]]) -> &'a [u8] {
        from[self.below(from.len())]
    }
}

const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"alice",
    b"bob",
    b"root",
    b"a.b",
    b"a-b",
    b"host$",
    b"j\xc3\xb6rg",
    b"\xff",
    b"A",
    b"",
    b"+",
    b"-",
    b"+a",
    b"-b",
    b"#a",
    b" a",
    b"a ",
    b"\ta",
    b"12",
    b"0",
    b"-1",
    b"+@n",
];
const NUMBERS: &[&[u8]] = &[
    b"0",
    b"1",
    b"2",
    b"3",
    b"5",
    b"1000",
    b"1001",
    b"1002",
    b"65534",
    b"2147483648",
    b"4294967294",
    b"4294967295",
    b"4294967296",
    b"-1",
    b"-2",
    b"+3",
    b" 5",
    b"\t5",
    b"5 ",
    b"007",
    b"",
    b"x",
    b"1x",
    b"99999999999999999999",
    b"-18446744073709551615",
    b"-",
    b"+",
    b"0x5",
];
const FIELDS: &[&[u8]] =
    &[b"", b"x", b"*", b"!", b"/h", b"/bin/sh", b" ", b"a b", b"\r", b"\xc3\xa9", b"#", b"x,y"];
const ENDS: &[&[u8]] =
    &[b"\n", b"\n", b"\n", b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b" \n", b":\n"];
const NOISE: &[u8] = b":::,,\n\n +-#x1\t\r\0";

/// The random corpus of a seed.
#[must_use]
pub fn random(seed: u64) -> Corpus {
    let mut dice = SeededRandom(seed);
    let passwd = random_text(&mut dice, random_user);
    let group = random_text(&mut dice, random_group);
    let shadow = random_text(&mut dice, random_shadow);
    Corpus { label: format!("seed {seed}"), passwd, group, shadow }
}

/// Up to 25 lines, then, in half of the texts, some bytes changed for noise.
fn random_text(dice: &mut SeededRandom, line: fn(&mut SeededRandom, &mut Vec<u8>)) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..dice.below(26) {
        line(dice, &mut text);
        text.extend(dice.pick(ENDS));
    }
    if dice.one_in(2) {
        for _ in 0..=dice.below(6) {
            let at = dice.below(text.len() + 1);
            let noise = NOISE[dice.below(NOISE.len())];
            match dice.below(3) {
                0 => text.insert(at, noise),
                1 if at < text.len() => text[at] = noise,
                _ if at < text.len() => drop(text.remove(at)),
                _ => text.push(noise),
            }
        }
    }
    if dice.one_in(4) {
        text.pop();
    }
    without_doubled_ends(&text)
}

/// `files` reads white space before an entry that no newline ends wrongly, and that is not copied
/// (see `roster_passwd_format::text`): such lines lose it.
fn without_doubled_ends(text: &[u8]) -> Vec<u8> {
    text.split_inclusive(|&byte| byte == b'\n')
        .flat_map(|line| {
            let ended = line.ends_with(b"\n") && !line.contains(&0);
            let blank = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
            let skip = if ended { 0 } else { line.iter().take_while(blank).count() };
            &line[skip..]
        })
        .copied()
        .collect()
}

/// Odd names and numbers are one in four, so that most lines are served and clash with others.
fn name(dice: &mut SeededRandom) -> &'static [u8] {
    if dice.one_in(4) { dice.pick(NAMES) } else { dice.pick(&NAMES[..8]) }
}

fn number(dice: &mut SeededRandom) -> &'static [u8] {
    if dice.one_in(4) { dice.pick(NUMBERS) } else { dice.pick(&NUMBERS[..10]) }
}

/// A line may end early, after any field.
fn fields(
    dice: &mut SeededRandom,
    text: &mut Vec<u8>,
    kinds: &[fn(&mut SeededRandom) -> &'static [u8]],
) {
    let count = if dice.one_in(8) { dice.below(kinds.len() + 1) } else { kinds.len() };
    for (i, kind) in kinds.iter().take(count).enumerate() {
        if i > 0 {
            text.push(b':');
        }
        text.extend(kind(dice));
    }
}

fn field(dice: &mut SeededRandom) -> &'static [u8] {
    dice.pick(FIELDS)
}

fn random_user(dice: &mut SeededRandom, text: &mut Vec<u8>) {
    fields(dice, text, &[name, field, number, number, field, field, field]);
}

fn random_group(dice: &mut SeededRandom, text: &mut Vec<u8>) {
    fields(dice, text, &[name, field, number]);
    if dice.one_in(12) {
        return;
    }
    text.push(b':');
    for i in 0..dice.below(7) {
        if i > 0 {
            text.extend(dice.pick(&[b",", b",", b",", b",,", b", ", b" ,"]));
        }
        text.extend(name(dice));
    }
}

fn random_shadow(dice: &mut SeededRandom, text: &mut Vec<u8>) {
    let day = number;
    fields(dice, text, &[name, field, day, day, day, day, day, day, day]);
}
