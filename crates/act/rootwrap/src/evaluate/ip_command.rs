// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of ip(8) by which it would run a command or load a program. `filter_match` uses them for IpFilter.

use super::MismatchReason;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Returns true for abbreviations of `netns` that do not mean `neighbour`.
pub(super) fn is_netns(word: &OsStr) -> bool {
    word == "net" || word == "netn" || word == "netns"
}

/// Returns true for abbreviations of `exec`.
pub(super) fn is_exec(word: &OsStr) -> bool {
    is_short_for(word.as_bytes(), b"exec")
}

fn is_short_for(word: &[u8], whole: &[u8]) -> bool {
    !word.is_empty() && whole.starts_with(word)
}

/// Rejects a first `netns` with `exec` behind it.
pub(super) fn compat(words: &[&OsStr]) -> Result<(), MismatchReason> {
    let [first, rest @ ..] = words else { return Err(MismatchReason::OtherCommand) };
    if *first != "ip" {
        return Err(MismatchReason::OtherCommand);
    }
    let mut pairs = rest.windows(2);
    match pairs.find(|pair| is_netns(pair[0])) {
        Some(pair) if is_exec(pair[1]) => Err(MismatchReason::IpRuns),
        _ => Ok(()),
    }
}

/// Options without a value. ip(8) accepts abbreviations, and takes the first option in its order that fits.
const FLAG_OPTIONS: [&[u8]; 17] = [
    b"4",
    b"6",
    b"0",
    b"M",
    b"B",
    b"human-readable",
    b"iec",
    b"stats",
    b"statistics",
    b"details",
    b"resolve",
    b"oneline",
    b"timestamp",
    b"tshort",
    b"brief",
    b"json",
    b"pretty",
];
const MORE_FLAG_OPTIONS: [&[u8]; 7] =
    [b"color", b"Numeric", b"all", b"echo", b"force", b"Version", b"help"];
/// Options with a value in the next word, and their minimum length: `-r` is `-resolve`.
const VALUE_OPTIONS: [(&[u8], usize); 4] =
    [(b"loops", 1), (b"family", 1), (b"rcvbuf", 2), (b"netns", 1)];

/// Keywords of `ip link` before a program for a device.
const XDP_KEYWORDS: [&str; 4] = ["xdp", "xdpdrv", "xdpgeneric", "xdpoffload"];

/// Returns true if ip(8) would load a program into the kernel, for a device or a route. ip(8) also loads the program
/// that follows `endpoint` behind `seg6local`, with any action.
fn loads_program(words: &[&OsStr]) -> bool {
    let is_xdp = |word: &OsStr| XDP_KEYWORDS.iter().any(|xdp| word == *xdp);
    let is_encap = |pair: &[&OsStr], kind: &str| pair[0] == "encap" && pair[1] == kind;
    let mut pairs = words.windows(2);
    pairs.any(|pair| is_xdp(pair[0]) && pair[1] != "off" || is_encap(pair, "bpf"))
        || words.windows(2).any(|pair| is_encap(pair, "seg6local"))
            && words.iter().any(|word| *word == "endpoint")
}

/// Returns true for the name of a network namespace. ip(8) also accepts a path. It then mounts the files of
/// `/etc/netns/PATH` over those of `/etc`, and the C library loads code of the caller by them.
pub(super) fn is_namespace(word: &OsStr) -> bool {
    let name = word.as_bytes();
    !name.is_empty()
        && !name.starts_with(b"-")
        && !name.contains(&b'/')
        && name != b"."
        && name != b".."
}

/// Rejects all ways to run a command: a batch file, `netns exec` and `vrf exec` behind any options. It also rejects
/// namespaces by path.
pub(super) fn strict(words: &[&OsStr]) -> Result<(), MismatchReason> {
    let [first, rest @ ..] = words else { return Err(MismatchReason::OtherCommand) };
    if *first != "ip" {
        return Err(MismatchReason::OtherCommand);
    }
    if loads_program(rest) {
        return Err(MismatchReason::IpLoads);
    }
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        let Some(option) = word.as_bytes().strip_prefix(b"-") else {
            let action = rest.next();
            // The shortest forms mean other objects today, and those have no `exec`.
            let runs =
                is_short_for(word.as_bytes(), b"netns") || is_short_for(word.as_bytes(), b"vrf");
            let exec = action.is_some_and(|action| is_exec(action));
            return if runs && exec { Err(MismatchReason::IpRuns) } else { Ok(()) };
        };
        let option = option.strip_prefix(b"-").unwrap_or(option);
        if is_short_for(option, b"batch") {
            return Err(MismatchReason::IpRuns);
        }
        let colour = option.starts_with(b"c") && option.contains(&b'=');
        // `-f` and `-n` have values. Only longer forms are `-force` and `-Numeric`.
        let has_value =
            |&(whole, least): &(&[u8], usize)| option.len() >= least && is_short_for(option, whole);
        if let Some((whole, _)) = VALUE_OPTIONS.iter().find(|option| has_value(option)) {
            let value = rest.next();
            if *whole == b"netns" && value.is_some_and(|name| !is_namespace(name)) {
                return Err(MismatchReason::Namespace);
            }
        } else if !colour
            && !FLAG_OPTIONS
                .iter()
                .chain(&MORE_FLAG_OPTIONS)
                .any(|whole| is_short_for(option, whole))
        {
            return Err(MismatchReason::IpOption((*word).to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(line: &str) -> (bool, bool) {
        let words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
        (compat(&words).is_ok(), strict(&words).is_ok())
    }

    #[test]
    fn plain_uses_are_let_through() {
        for line in [
            "ip",
            "ip a",
            "ip -4 -o addr show dev eth0",
            "ip -n ns1 link set lo up",
            "ip netns add net",
            "ip net list",
            "ip -netns q link",
            "ip -s -d link",
            "ip -c=never a",
            "ip -family inet route list exec",
            "ip n show",
            "ip vrf show",
            "ip link add netns type dummy",
            "ip link set dev eth0 xdp off",
            "ip route add 10.0.0.0/8 encap mpls 1 via 10.0.0.1",
            "ip -6 route add fc00::/64 encap seg6local action End.X nh6 fc00::1 dev eth0",
            "ip link add vx0 type vxlan id 1 endpoint",
        ] {
            assert_eq!(judged(line), (true, true), "{line}");
        }
    }

    #[test]
    fn no_way_to_run_a_command_is_left() {
        for line in ["ip netns exec q sh", "ip net e q sh", "ip -4 netns ex q sh"] {
            assert_eq!(judged(line), (false, false), "{line}");
        }
        for line in [
            "ip -b file",
            "ip -batch file",
            "ip --bat file",
            "ip -force -batch file",
            "ip vrf exec q sh",
            "ip vr e q sh",
            "ip -n net netns exec q sh",
            "ip -n netns netns exec q sh",
            "ip -unknown x",
            "ip -f net netns exec q sh",
            "ip -4 -bat x",
            "ip -n net -r netns exec q sh",
            "ip link set dev eth0 xdp obj file",
            "ip l s eth0 xdpgeneric pinned /sys/fs/bpf/x",
            "ip link set xdp xdp obj off",
            "ip route add 10.0.0.0/8 encap bpf out obj file dev eth0",
            "ip -6 route add fc00::/64 encap seg6local action End.BPF endpoint obj file dev eth0",
            "ip -6 route add fc00::/64 encap seg6local endpoint obj file action End dev eth0",
            "ip nexthop add id 1 encap seg6local action End.BPF endpoint pinned file dev eth0",
            "ip -n ../../tmp/x -r addr",
            "ip -netn /tmp/x addr",
            "ip --net .. addr",
            "ip -4 -n . addr",
            "ip -n  addr",
        ] {
            assert_eq!(judged(line), (true, false), "{line}");
        }
    }
}
