// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of directories as text for reports.

/// Longest name in a report, in bytes. Longer names are rejected anyway, and 10,000 of them fit into one message.
const NAME_BYTES_MAX: usize = 256;

/// Converts any bytes to printable text. The bus carries no NUL, and a terminal must not receive an escape sequence.
pub fn printable(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(NAME_BYTES_MAX)];
    let mut text = String::with_capacity(cut.len());
    for chunk in cut.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.extend(byte.escape_ascii().map(char::from)));
    }
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}
