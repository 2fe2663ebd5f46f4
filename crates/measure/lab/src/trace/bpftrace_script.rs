//! What bpftrace is told to look at, and the lines that it writes: one for each time that a probe is passed.

use anyhow::{Result, ensure};
use std::collections::HashMap;
use std::fmt::Write;

/// Numbers and texts that a probe's line may have.
pub const NUMBERS_MAX: usize = 4;
/// See there.
pub const TEXTS_MAX: usize = 2;
/// The line that says that all probes are looked at.
pub const READY: &str = "ready";

/// A probe, and which of what it carries is of use.
#[derive(Debug, PartialEq, Eq)]
pub struct Probe {
    pub name: &'static str,
    /// Places of numbers among its arguments, [`NUMBERS_MAX`] at the most.
    pub numbers: &'static [u8],
    /// Places of texts, [`TEXTS_MAX`] at the most.
    pub texts: &'static [u8],
}

/// Probes of one file.
#[derive(Debug)]
pub struct ProbeTarget {
    /// The program or library, by a path that is seen from here.
    pub file: String,
    /// What probes of one program have in common.
    pub provider: &'static str,
    /// Those that are looked at.
    pub probes: Vec<&'static Probe>,
}

/// A probe was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeEvent {
    /// Its name.
    pub probe: &'static str,
    /// By which process.
    pub pid: u32,
    /// When, in nanoseconds of a clock that all processes share.
    pub at: u64,
    /// What it carried; 0 for what it does not.
    pub numbers: [u64; NUMBERS_MAX],
    /// The same, by [`EventTexts`].
    pub texts: [u32; TEXTS_MAX],
}

/// Texts of events, each once.
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

/// A path may stand in a script.
pub fn ensure_plain(path: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    ensure!(
        path.bytes().all(is_plain),
        "{path:?}: bpftrace takes only paths of letters, digits and / . _ - +"
    );
    Ok(())
}

/// The script, which ends by itself after that time if nobody ends it before.
#[must_use]
pub fn script(targets: &[ProbeTarget], seconds_max: u64) -> String {
    // What is written here is read once all probes are in place.
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

/// What a line says; none if it is of no probe.
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

/// How many events bpftrace says that it could not keep.
#[must_use]
pub fn lost_events(line: &str) -> Option<u64> {
    line.strip_prefix("Lost ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(ensure_plain(path).is_err(), "{path}");
        }
    }
}
