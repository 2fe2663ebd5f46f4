// SPDX-License-Identifier: MIT OR Apache-2.0
//! The script of bpftrace, and the lines of its output, one for each event. `bpftrace` runs the script.

use crate::coded::ensure_coded;
use anyhow::Result;
use std::collections::HashMap;
use std::fmt::Write;

/// Maximum number of numbers of an event.
pub const NUMBERS_MAX: usize = 4;
/// Maximum number of texts of an event.
pub const TEXTS_MAX: usize = 2;
/// Line that reports that all probes are attached.
pub const READY: &str = "ready";

/// A probe, and its used arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct Probe {
    pub name: &'static str,
    /// Positions of numbers among the arguments, at most [`NUMBERS_MAX`].
    pub numbers: &'static [u8],
    /// Positions of texts, at most [`TEXTS_MAX`].
    pub texts: &'static [u8],
}

/// Probes of one file.
#[derive(Debug)]
pub struct ProbeTarget {
    /// Path of the program or library, as this process reaches it.
    pub file: String,
    /// Provider of the probes.
    pub provider: &'static str,
    /// Probes to attach.
    pub probes: Vec<&'static Probe>,
}

/// An event of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeEvent {
    /// Name of the probe.
    pub probe: &'static str,
    /// Process of the event.
    pub pid: u32,
    /// Time in nanoseconds of a clock that all processes share.
    pub at: u64,
    /// Numbers; 0 for missing ones.
    pub numbers: [u64; NUMBERS_MAX],
    /// Texts by their number in [`EventTexts`].
    pub texts: [u32; TEXTS_MAX],
}

/// Distinct texts of events.
#[derive(Debug, Default)]
pub struct EventTexts {
    all: Vec<Box<str>>,
    places: HashMap<Box<str>, u32>,
}

impl EventTexts {
    #[must_use]
    pub fn get(&self, number: u32) -> &str {
        self.all.get(number as usize).map_or("", |text| text)
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.places.get(text) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(text.into());
        self.places.insert(text.into(), number);
        number
    }
}

/// Checks that a path can be part of a script.
pub fn ensure_plain(path: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    ensure_coded!(path.bytes().all(is_plain), PROBE_PATH, "{path:?}: unsupported characters");
    Ok(())
}

/// Returns the script, which ends after that time at the latest.
#[must_use]
pub fn script(targets: &[ProbeTarget], seconds_max: u64) -> String {
    // bpftrace runs BEGIN after it has attached all probes.
    let mut text = format!("BEGIN {{ printf(\"{READY}\\n\"); }}\n");
    for ProbeTarget { file, provider, probes } in targets {
        for Probe { name, numbers, texts } in probes {
            let mut format = format!("{name}\\t%d\\t%lld");
            let mut values = "pid, nsecs".to_owned();
            for place in *numbers {
                format += "\\t%lld";
                let _ = write!(values, ", arg{place}");
            }
            for place in *texts {
                format += "\\t%s";
                let _ = write!(values, ", str(arg{place})");
            }
            let _ = writeln!(
                text,
                "usdt:{file}:{provider}:{name} {{ printf(\"{format}\\n\", {values}); }}"
            );
        }
    }
    let _ = writeln!(text, "interval:s:{seconds_max} {{ exit(); }}");
    text
}

/// Parses a line. Returns `None` if it is not an event.
pub fn parse_event(
    line: &str,
    probes: &[&'static Probe],
    texts: &mut EventTexts,
) -> Option<ProbeEvent> {
    let mut words = line.split('\t');
    let name = words.next()?;
    let probe = probes.iter().find(|probe| probe.name == name)?;
    let pid = words.next()?.parse().ok()?;
    let at = words.next()?.parse().ok()?;
    let mut event =
        ProbeEvent { probe: probe.name, pid, at, numbers: [0; 4], texts: [u32::MAX; 2] };
    for number in event.numbers.iter_mut().take(probe.numbers.len()) {
        *number = words.next()?.parse::<i64>().ok()?.cast_unsigned();
    }
    for text in event.texts.iter_mut().take(probe.texts.len()) {
        *text = texts.number(words.next()?);
    }
    Some(event)
}

/// Parses the number of lost events from a line of bpftrace.
#[must_use]
pub fn lost_events(line: &str) -> Option<u64> {
    line.strip_prefix("Lost ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::table::lab;

    static PROBE: Probe = Probe { name: "asked", numbers: &[0, 2], texts: &[3] };

    #[test]
    fn trace_script_line_is_its_probe() {
        let target =
            ProbeTarget { file: "/p".to_owned(), provider: "roster", probes: vec![&PROBE] };
        let script = script(&[target], 9);
        let wanted = "usdt:/p:roster:asked { printf(\"asked\\t%d\\t%lld\\t%lld\\t%lld\\t%s\\n\", pid, \
                      nsecs, arg0, arg2, str(arg3)); }";
        assert!(script.lines().any(|line| line == wanted), "{script}");

        let mut texts = EventTexts::default();
        let event = parse_event("asked\t7\t1000\t5\t-1\ta domain", &[&PROBE], &mut texts).unwrap();
        assert_eq!((event.pid, event.at, event.numbers), (7, 1000, [5, u64::MAX, 0, 0]));
        assert_eq!(texts.get(event.texts[0]), "a domain");
        for line in
            ["", "asked", "asked\t7\t1000\t5\tx\ty", "asked\t7\t1000\t5\t6", "other\t7\t1\t2\t3\tx"]
        {
            assert_eq!(parse_event(line, &[&PROBE], &mut texts), None, "{line}");
        }
    }

    #[test]
    fn what_was_lost_is_counted() {
        assert_eq!(lost_events("Lost 17 events"), Some(17));
        assert_eq!(lost_events("Lost patience"), None);
    }

    #[test]
    fn a_path_is_no_script() {
        assert!(ensure_plain("/usr/lib/x86_64-linux-gnu/sssd/libsss_util.so").is_ok());
        for path in ["/a b", "/a:b", "/a\"b", "/a{b"] {
            let error = ensure_plain(path).unwrap_err().to_string();
            assert!(error.ends_with(&format!("[{}]", lab::PROBE_PATH.code)), "{error}");
        }
    }
}
