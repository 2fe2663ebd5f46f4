// SPDX-License-Identifier: MIT OR Apache-2.0
//! GeneralizedTime, the format of times in directories (RFC 4517, 3.3.13). `access` decides whether an account has
//! expired.

/// Parses a time to seconds since 1970, without fractions. Returns `None` for an invalid time.
#[must_use]
pub fn parse_generalized_time(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, mut rest) = text.split_at(digits);
    if !matches!(digits, 10 | 12 | 14) {
        return None;
    }
    let field = |at: usize, length: usize| number.get(at..at + length)?.parse::<i64>().ok();
    let (year, month, day) = (field(0, 4)?, field(4, 2)?, field(6, 2)?);
    let hour = field(8, 2)?;
    let minute = if digits > 10 { field(10, 2)? } else { 0 };
    let second = if digits > 12 { field(12, 2)? } else { 0 };
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    // A leap second counts as a second.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        rest = fraction.get(digits..).filter(|_| digits > 0)?;
    }
    let east = parse_offset(rest)?;
    let since_midnight = (hour * 60 + minute) * 60 + second;
    Some(days_from_1970(year, month, day) * 86_400 + since_midnight - east)
}

/// Parses `Z`, `+0130` or `-05` to seconds east of Greenwich.
fn parse_offset(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let (sign, number) = match text.split_at_checked(1)? {
        ("+", number) => (1, number),
        ("-", number) => (-1, number),
        _ => return None,
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = match number.len() {
        2 => (number.parse::<i64>().ok()?, 0),
        4 => (number.get(..2)?.parse::<i64>().ok()?, number.get(2..)?.parse::<i64>().ok()?),
        _ => return None,
    };
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes) * 60)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Years begin in March, so that the leap day is the last one.
fn days_from_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_calendar_has_them() {
        for (text, seconds) in [
            ("19700101000000Z", 0),
            ("20000229235959Z", 951_868_799),
            ("20260101120000Z", 1_767_268_800),
            ("202601011200Z", 1_767_268_800),
            ("2026010112Z", 1_767_268_800),
            ("20260101120000.25Z", 1_767_268_800),
            ("20260101130000+0100", 1_767_268_800),
            ("20260101070000-05", 1_767_268_800),
            ("19691231235959Z", -1),
            ("000001010000Z", -62_167_219_200),
        ] {
            assert_eq!(parse_generalized_time(text.as_bytes()), Some(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "Z",
            "20260101120000",
            "20261301120000Z",
            "20260229120000Z",
            "20260100120000Z",
            "20260101240000Z",
            "202601011260Z",
            "20260101120000.Z",
            "20260101120000+1",
            "20260101120000+0160",
            "2026-01-01T12:00:00Z",
            "20260101120000ZZ",
            "99999999999999999999Z",
        ] {
            assert_eq!(parse_generalized_time(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_generalized_time(&[0xff; 15]), None);
    }
}
