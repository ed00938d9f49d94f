//! A small, fixed hash for decisions that must look random and yet be repeatable: jitter, sampling.
//!
//! Not for security. The mixing function is the finalizer of `SplitMix64` (Steele, Lea, Flood: "Fast splittable
//! pseudorandom number generators", OOPSLA 2014), whose output passes the usual statistical batteries.

/// Mixes two numbers into one that looks uniformly random over all 64-bit values.
#[must_use]
pub const fn mix(a: u64, b: u64) -> u64 {
    finalize(finalize(a).wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A fraction in `0.0..1.0` with 53 random bits, from [`mix`].
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64 exactly")]
pub const fn fraction(a: u64, b: u64) -> f64 {
    (mix(a, b) >> 11) as f64 / (1_u64 << 53) as f64
}

const fn finalize(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_outputs_are_those_of_splitmix64() {
        // The published reference generator, seeded with 0, gives these first two values.
        assert_eq!(finalize(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(finalize(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn fractions_fill_the_unit_interval_evenly() {
        let mut counts = [0_u32; 10];
        for n in 0..100_000 {
            let share = fraction(n, 3);
            assert!((0.0..1.0).contains(&share));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9")]
            let bucket = (share * 10.0) as usize;
            counts[bucket] += 1;
        }
        for count in counts {
            assert!((9_700..10_300).contains(&count), "{counts:?}");
        }
    }
}
