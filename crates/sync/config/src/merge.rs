// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges the tables of several files.
//!
//! Tables merge. Any other value, also a list, is replaced completely. A value has the position in its file. A table
//! has the position in the first file that contains it. This module checks no names and no values: `load` does.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Positions and names that are a table in one file and a value in another.
pub(crate) type Conflicts = Vec<(Range<usize>, String)>;

/// Merges a later file, with positions from `offset` on, over earlier ones.
pub(crate) fn merge_table<'i>(
    into: &mut DeTable<'i>,
    later: DeTable<'i>,
    offset: usize,
    conflicts: &mut Conflicts,
) {
    for (key, value) in later {
        let name = key.get_ref().to_string();
        let key_place = shift(&key.span(), offset);
        let place = shift(&value.span(), offset);
        let value = match (into.get_mut(name.as_str()).map(Spanned::get_mut), value.into_inner()) {
            (Some(DeValue::Table(earlier)), DeValue::Table(later)) => {
                merge_table(earlier, later, offset, conflicts);
                continue;
            }
            (earlier, later) => {
                let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
                if earlier.is_some_and(|earlier| is_table(earlier) != is_table(&later)) {
                    conflicts.push((key_place.clone(), name.clone()));
                }
                shift_value(later, offset)
            }
        };
        // Otherwise the name would retain its position.
        into.remove(name.as_str());
        into.insert(Spanned::new(key_place, key.into_inner()), Spanned::new(place, value));
    }
}

fn shift_value(value: DeValue<'_>, offset: usize) -> DeValue<'_> {
    match value {
        DeValue::Table(table) => {
            let mut shifted = DeTable::new();
            merge_table(&mut shifted, table, offset, &mut Vec::new());
            DeValue::Table(shifted)
        }
        DeValue::Array(elements) => {
            let shifted = elements.into_iter().map(|element| {
                let place = shift(&element.span(), offset);
                Spanned::new(place, shift_value(element.into_inner(), offset))
            });
            DeValue::Array(shifted.collect())
        }
        other => other,
    }
}

/// Converts a position in one text to a position among all texts.
pub(crate) fn shift(place: &Range<usize>, offset: usize) -> Range<usize> {
    place.start + offset..place.end + offset
}
