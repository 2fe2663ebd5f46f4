// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of Unicode characters, from the tables of `regex-syntax`. `pattern::chars` and `python_strings` use them as
//! CPython does.

use regex_syntax::hir::{Class, Hir, HirKind};
use std::sync::OnceLock;

/// Returns the code points of a class in the notation of `regex-syntax`, as sorted ranges.
pub(crate) fn ranges(class: &str) -> Vec<(u32, u32)> {
    match regex_syntax::parse(class).map(Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => {
            class.iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
        // The test of the tables then fails.
        _ => Vec::new(),
    }
}

/// Returns the decimal digits of all scripts, class Nd.
pub(crate) fn decimal_digits() -> &'static [(u32, u32)] {
    static DIGITS: OnceLock<Vec<(u32, u32)>> = OnceLock::new();
    DIGITS.get_or_init(|| ranges(r"\p{Nd}"))
}

/// Returns the value of a decimal digit. Each script has its ten digits in sequence, from zero.
pub(crate) fn decimal_value(char: char) -> Option<i64> {
    if let Some(value) = char.to_digit(10) {
        return Some(value.into());
    }
    let code = u32::from(char);
    let range = decimal_digits().iter().find(|&&(low, high)| (low..=high).contains(&code));
    range.map(|&(low, _)| i64::from((code - low) % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_digits_of_every_script_have_values() {
        let values = |text: &str| text.chars().map(decimal_value).collect::<Vec<_>>();
        for digits in ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗", "𝟶𝟷𝟸𝟹𝟺𝟻𝟼𝟽𝟾𝟿"]
        {
            assert_eq!(values(digits), (0..10).map(Some).collect::<Vec<_>>(), "{digits}");
        }
        assert_eq!(values("²½a"), [None; 3]);
        assert!(decimal_digits().iter().all(|&(low, high)| (high - low + 1) % 10 == 0));
    }
}
