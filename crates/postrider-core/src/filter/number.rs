//! Comparing JSON numbers without rounding either of them.

use std::cmp::Ordering;

use serde_json::Number;

enum Exact {
    Integer(i128),
    Float(f64),
}

fn exact(number: &Number) -> Option<Exact> {
    if let Some(integer) = number.as_i64() {
        return Some(Exact::Integer(integer.into()));
    }
    if let Some(integer) = number.as_u64() {
        return Some(Exact::Integer(integer.into()));
    }
    number.as_f64().map(Exact::Float)
}

/// Which is greater, as mathematics has it: 2^53 + 1 differs from 2^53 also when one of them was written with a
/// decimal point. `None` only for what is not a number at all, which JSON cannot write.
pub(super) fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (exact(left)?, exact(right)?) {
        (Exact::Integer(left), Exact::Integer(right)) => Some(left.cmp(&right)),
        (Exact::Float(left), Exact::Float(right)) => left.partial_cmp(&right),
        (Exact::Integer(left), Exact::Float(right)) => compare_mixed(left, right),
        (Exact::Float(left), Exact::Integer(right)) => compare_mixed(right, left).map(Ordering::reverse),
    }
}

/// Compares an integer from -2^63 to 2^64-1 with a float.
fn compare_mixed(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates far outside the integers that occur"
    )]
    let whole = float.trunc() as i128;
    Some(
        integer
            .cmp(&whole)
            .then_with(|| 0.0_f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn integers_beyond_floating_point_are_exact() {
        let table = [
            ("9007199254740993", "9007199254740992", Ordering::Greater),
            ("9007199254740993", "9007199254740992.0", Ordering::Greater),
            ("9007199254740992", "9007199254740992.0", Ordering::Equal),
            ("18446744073709551615", "18446744073709551614", Ordering::Greater),
            ("18446744073709551615", "18446744073709551616", Ordering::Less),
            ("-9223372036854775808", "-9223372036854775807", Ordering::Less),
            ("-9223372036854775808", "18446744073709551615", Ordering::Less),
            ("1", "1.0", Ordering::Equal),
            ("1", "1.5", Ordering::Less),
            ("-1", "-1.5", Ordering::Greater),
            ("0", "-0", Ordering::Equal),
            ("0", "-0.5", Ordering::Greater),
            ("100", "1e2", Ordering::Equal),
            ("1", "1e300", Ordering::Less),
            ("1", "-1e300", Ordering::Greater),
        ];
        for (left, right, wanted) in table {
            assert_eq!(
                compare(&number(left), &number(right)),
                Some(wanted),
                "{left} and {right}"
            );
            assert_eq!(
                compare(&number(right), &number(left)),
                Some(wanted.reverse()),
                "{right} and {left}"
            );
        }
    }
}
