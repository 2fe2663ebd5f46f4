// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of entries: two of them have one canonical form exactly when a server takes them for one name. The target
//! writes the names, each value in many spellings, and compares them by a model of the server's rule. Letters are
//! compared without case, one by one, and at most one space counts between others.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_provider_ldap::dn::{normalise, rdn_values};

/// An RDN: attributes with their values, in any order.
type Rdn = Vec<(u8, Vec<u8>)>;

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let first = input.name();
    let second = if input.byte() & 1 == 0 { input.varied(&first) } else { input.name() };
    let spelled = [input.spell(&first), input.spell(&second)];
    let canonical = spelled.each_ref().map(|dn| normalise(dn).into_owned());
    let told_apart = folded(&first) != folded(&second);
    let [one, other] = &spelled;
    assert_eq!(
        canonical[0] != canonical[1],
        told_apart,
        "{}\n{}",
        one.escape_ascii(),
        other.escape_ascii()
    );
    assert_eq!(normalise(&canonical[0]), canonical[0], "the canonical form is its own");
    for (attribute, value) in first.first().into_iter().flatten() {
        // Spaces that end a value may be returned as written or as they are compared.
        let values = rdn_values(&spelled[0], ATTRIBUTES[usize::from(*attribute)]);
        assert!(values.iter().any(|found| fold(found) == fold(value)));
    }
});

const ATTRIBUTES: [&str; 2] = ["cn", "uid"];

/// The form that a server compares.
fn folded(name: &[Rdn]) -> Vec<Rdn> {
    let fold_rdn = |rdn: &Rdn| {
        let mut rdn: Rdn = rdn.iter().map(|(kind, value)| (*kind, fold(value))).collect();
        rdn.sort_unstable();
        rdn
    };
    name.iter().map(fold_rdn).collect()
}

fn fold(value: &[u8]) -> Vec<u8> {
    let lower = match std::str::from_utf8(value) {
        Ok(text) => text.chars().flat_map(char::to_lowercase).collect::<String>().into_bytes(),
        Err(_) => value.to_ascii_lowercase(),
    };
    let words = lower.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    /// 0 at the end.
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn value(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte() % 8).min(self.0.len());
        let (value, rest) = self.0.split_at(length);
        self.0 = rest;
        value.to_vec()
    }

    fn name(&mut self) -> Vec<Rdn> {
        let rdns = 1 + self.byte() % 3;
        let rdn = |input: &mut Self| {
            let parts = 1 + input.byte() % 2;
            (0..parts).map(|_| (input.byte() % 2, input.value())).collect()
        };
        (0..rdns).map(|_| rdn(self)).collect()
    }

    /// The same name except for a byte of a value.
    fn varied(&mut self, name: &[Rdn]) -> Vec<Rdn> {
        let mut name = name.to_vec();
        let (place, byte) = (self.byte(), self.byte());
        if let Some((_, value)) = name.first_mut().and_then(|rdn| rdn.first_mut()) {
            let place = usize::from(place) % (value.len() + 1);
            match value.get_mut(place) {
                Some(there) if byte & 1 == 0 => *there = self.byte(),
                _ => value.insert(place, byte),
            }
        }
        name
    }

    fn spell(&mut self, name: &[Rdn]) -> Vec<u8> {
        let mut dn = Vec::new();
        for (place, rdn) in name.iter().enumerate() {
            if place > 0 {
                dn.extend_from_slice([&b","[..], b";", b" , "][usize::from(self.byte() % 3)]);
            }
            for (place, (attribute, value)) in rdn.iter().enumerate() {
                dn.extend_from_slice(if place > 0 { b"+" } else { b"" });
                let attribute = ATTRIBUTES[usize::from(*attribute)];
                match self.byte() & 1 {
                    0 => dn.extend_from_slice(attribute.as_bytes()),
                    _ => dn.extend_from_slice(attribute.to_ascii_uppercase().as_bytes()),
                }
                dn.push(b'=');
                self.spell_value(value, &mut dn);
            }
        }
        dn
    }

    fn spell_value(&mut self, value: &[u8], dn: &mut Vec<u8>) {
        let is_quoted = self.byte() % 4 == 1;
        dn.extend_from_slice(if is_quoted { b"\"" } else { b"" });
        for (place, &byte) in value.iter().enumerate() {
            let is_edge = place == 0 || place + 1 == value.len();
            let must_be_escaped = matches!(byte, b'\\' | b'"')
                || (!is_quoted && matches!(byte, b',' | b';' | b'+' | b'#'))
                || (is_edge && byte == b' ');
            let style = if must_be_escaped { self.byte() | 1 } else { self.byte() };
            match style % 4 {
                // A backslash before a hexadecimal digit would begin a pair of them.
                1 if !byte.is_ascii_hexdigit() => dn.extend_from_slice(&[b'\\', byte]),
                1 | 3 => dn.extend_from_slice(format!("\\{byte:02X}").as_bytes()),
                _ => dn.push(byte),
            }
        }
        dn.extend_from_slice(if is_quoted { b"\"" } else { b"" });
    }
}
