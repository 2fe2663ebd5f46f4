//! What ip(8) is asked to do, as far as it matters whether it would run a command.

use super::Why;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// `netns`, as far as it may be cut short without being `neighbour`.
pub(super) fn is_netns(word: &OsStr) -> bool {
    word == "net" || word == "netn" || word == "netns"
}

/// `exec`, however short.
pub(super) fn is_exec(word: &OsStr) -> bool {
    is_short_for(word.as_bytes(), b"exec")
}

fn is_short_for(word: &[u8], whole: &[u8]) -> bool {
    !word.is_empty() && whole.starts_with(word)
}

/// The first `netns` is not followed by `exec`.
pub(super) fn compat(words: &[&OsStr]) -> Result<(), Why> {
    let [first, rest @ ..] = words else { return Err(Why::OtherCommand) };
    if *first != "ip" {
        return Err(Why::OtherCommand);
    }
    let mut pairs = rest.windows(2);
    match pairs.find(|pair| is_netns(pair[0])) {
        Some(pair) if is_exec(pair[1]) => Err(Why::IpRuns),
        _ => Ok(()),
    }
}

/// Options that stand alone. ip(8) takes them cut short, the first in its own order that fits.
const ALONE: [&[u8]; 17] = [
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
const ALONE_TOO: [&[u8]; 7] =
    [b"color", b"Numeric", b"all", b"echo", b"force", b"Version", b"help"];
/// Options with a value in the next word, and how many letters they have at least: `-r` is `-resolve`.
const WITH_VALUE: [(&[u8], usize); 4] =
    [(b"loops", 1), (b"family", 1), (b"rcvbuf", 2), (b"netns", 1)];

/// Words behind which `ip link` takes a program for a device.
const XDP: [&str; 4] = ["xdp", "xdpdrv", "xdpgeneric", "xdpoffload"];

/// Whether ip(8) would load a program into the kernel: one for a device, or for a route.
fn loads_program(words: &[&OsStr]) -> bool {
    let is_xdp = |word: &OsStr| XDP.iter().any(|xdp| word == *xdp);
    words
        .windows(2)
        .any(|pair| is_xdp(pair[0]) && pair[1] != "off" || pair[0] == "encap" && pair[1] == "bpf")
}

/// No way to run a command: no file of commands, no `netns exec`, no `vrf exec`, wherever options
/// and their values stand.
pub(super) fn strict(words: &[&OsStr]) -> Result<(), Why> {
    let [first, rest @ ..] = words else { return Err(Why::OtherCommand) };
    if *first != "ip" {
        return Err(Why::OtherCommand);
    }
    if loads_program(rest) {
        return Err(Why::IpLoads);
    }
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        let Some(option) = word.as_bytes().strip_prefix(b"-") else {
            let action = rest.next();
            // The shortest forms are other objects today; they are none that has an `exec`.
            let runs =
                is_short_for(word.as_bytes(), b"netns") || is_short_for(word.as_bytes(), b"vrf");
            let exec = action.is_some_and(|action| is_exec(action));
            return if runs && exec { Err(Why::IpRuns) } else { Ok(()) };
        };
        let option = option.strip_prefix(b"-").unwrap_or(option);
        if is_short_for(option, b"batch") {
            return Err(Why::IpRuns);
        }
        let colour = option.starts_with(b"c") && option.contains(&b'=');
        // `-f` and `-n` have values; only longer forms are `-force` and, large, `-Numeric`.
        let has_value =
            |&(whole, least): &(&[u8], usize)| option.len() >= least && is_short_for(option, whole);
        if WITH_VALUE.iter().any(has_value) {
            rest.next();
        } else if !colour
            && !ALONE.iter().chain(&ALONE_TOO).any(|whole| is_short_for(option, whole))
        {
            return Err(Why::IpOption((*word).to_owned()));
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
        ] {
            assert_eq!(judged(line), (true, false), "{line}");
        }
    }
}
