// SPDX-License-Identifier: MIT OR Apache-2.0
//! MurmurHash3 in its 32-bit form for x86, which chooses the slice of a domain. `slice_plan` uses it.

const BLOCK_FACTORS: [u32; 2] = [0xcc9e_2d51, 0x1b87_3593];

/// Returns the hash of a text. Blocks are little-endian.
pub(crate) fn murmur3_32(text: &[u8], seed: u32) -> u32 {
    let (blocks, rest) = text.as_chunks::<4>();
    let mut hash = seed;
    for block in blocks {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    // An empty rest is a block of zeros, which changes nothing.
    hash ^= scramble(u32::from_le_bytes(last));
    // The reference implementation has a length of 32 bits, too.
    hash ^= text.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

fn scramble(block: u32) -> u32 {
    let [first, second] = BLOCK_FACTORS;
    block.wrapping_mul(first).rotate_left(15).wrapping_mul(second)
}

#[cfg(test)]
mod tests {
    use super::murmur3_32;

    #[test]
    fn murmur3_equals_published_values() {
        for (text, seed, hash) in [
            ("", 0, 0),
            ("", 1, 0x514e_28b7),
            ("", 0xffff_ffff, 0x81f1_6f39),
            ("test", 0, 0xba6b_d213),
            ("test", 0x9747_b28c, 0x704b_81dc),
            ("Hello, world!", 0, 0xc036_3e43),
            ("Hello, world!", 0x9747_b28c, 0x2488_4cba),
            ("The quick brown fox jumps over the lazy dog", 0x9747_b28c, 0x2fa8_26cd),
        ] {
            assert_eq!(murmur3_32(text.as_bytes(), seed), hash, "{text} {seed:x}");
        }
    }
}
