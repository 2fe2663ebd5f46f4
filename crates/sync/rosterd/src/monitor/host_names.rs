// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of this host, for access rules. They come from the kernel and from `/etc/hosts`, never from DNS: a forged
//! reply could give this host the name of another one. `process_plan` passes them to backends.

use rustix::system::uname;
use std::fs::File;
use std::io::Read;

/// File with the full name of the host, for a host name without a dot.
const HOSTS: &str = "/etc/hosts";
/// Limit of the bytes that are read of it.
const HOSTS_BYTES_MAX: u64 = 1 << 20;

/// Returns the names in lower case, the one of hostname(1) first. Empty if the host has no name.
pub fn read() -> Vec<String> {
    let mut hosts = Vec::new();
    // Without the file, the host has the name of the kernel alone.
    let _ = File::open(HOSTS).and_then(|file| file.take(HOSTS_BYTES_MAX).read_to_end(&mut hosts));
    names(&uname().nodename().to_string_lossy(), &String::from_utf8_lossy(&hosts))
}

fn names(node: &str, hosts: &str) -> Vec<String> {
    let folded = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let node = folded(node);
    if node.is_empty() || node == "(none)" {
        return Vec::new();
    }
    if let Some((short, _)) = node.split_once('.') {
        let short = short.to_owned();
        return vec![node, short];
    }
    let full = hosts.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        // The address comes first, then the full name.
        let mut fields = line.split_ascii_whitespace().skip(1).map(folded);
        let full = fields.next()?;
        let (short, _) = full.split_once('.')?;
        (short == node && fields.any(|other| other == node)).then_some(full)
    });
    [node].into_iter().chain(full).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_come_from_kernel_and_hosts() {
        let hosts = "127.0.0.1 localhost.localdomain localhost web1\n# 127.0.1.1 web1.old web1\n\
                     127.0.1.1\tWeb1.example.com web1 # this host\n192.0.2.1 web1.other web1\n";
        assert_eq!(names("WEB1", hosts), ["web1", "web1.example.com"]);
        assert_eq!(names("web1", ""), ["web1"]);
        assert_eq!(names("web2", hosts), ["web2"]);
        assert_eq!(names("web1.example.org.", hosts), ["web1.example.org", "web1"]);
        for none in ["", "(none)", "."] {
            assert_eq!(names(none, hosts), Vec::<String>::new(), "{none}");
        }
    }
}
