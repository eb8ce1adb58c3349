//! Numbers as C reads them: the longest prefix that is a number counts, the rest is ignored.
//!
//! Measured on 535 and 550: `12abc` is 12, `0x10` is 0 as an integer and 16.0 as a percentage, and an integer that
//! does not fit wraps (`99999999999` is server 1215752191).

/// What C's `isspace` accepts in the "C" locale.
pub(crate) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// `strtol(word, &end, 10)`: `None` when no digit was found, saturated at the limits of 64 bits.
pub(crate) fn strtol(word: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(skip_spaces(word));
    let mut value: Option<i64> = None;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        let step = i64::from(digit - b'0');
        let shifted = value.unwrap_or(0).saturating_mul(10);
        value = Some(if negative { shifted.saturating_sub(step) } else { shifted.saturating_add(step) });
    }
    value
}

/// The low 32 bits of [`strtol`], as the vendor keeps process and user ids.
pub(crate) fn int_prefix(word: &[u8]) -> Option<i32> {
    #[expect(clippy::cast_possible_truncation, reason = "the vendor cuts to 32 bits, and prints what is left")]
    strtol(word).map(|value| value as i32)
}

/// C's `atoi`: 0 when there is no number.
pub(crate) fn atoi(word: &[u8]) -> i32 {
    int_prefix(word).unwrap_or(0)
}

/// `strtod(word, &end)`: `None` when there is no number; decimal, hexadecimal, `inf` and `nan` forms are known.
pub(crate) fn strtod(word: &[u8]) -> Option<f64> {
    let (negative, body) = split_sign(skip_spaces(word));
    let lower = body.to_ascii_lowercase();
    let value = if lower.starts_with(b"inf") {
        f64::INFINITY
    } else if lower.starts_with(b"nan") {
        f64::NAN
    } else if let Some(value) = lower.strip_prefix(b"0x").and_then(hexadecimal) {
        value
    } else {
        decimal(&lower)?
    };
    Some(if negative { -value } else { value })
}

fn skip_spaces(word: &[u8]) -> &[u8] {
    let start = word.iter().position(|byte| !is_space(*byte)).unwrap_or(word.len());
    &word[start..]
}

fn split_sign(word: &[u8]) -> (bool, &[u8]) {
    match word.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, word),
    }
}

fn decimal(text: &[u8]) -> Option<f64> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    let mut mantissa = whole;
    if text.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        mantissa += fraction;
        end += 1 + fraction;
    }
    if mantissa == 0 {
        return None;
    }
    if text.get(end) == Some(&b'e') {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits((end + 1 + sign).min(text.len()));
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    // The prefix holds only digits, one point and one exponent, all of which Rust's own grammar accepts.
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

fn hexadecimal(text: &[u8]) -> Option<f64> {
    const RADIX: f64 = 16.0;
    let mut value = 0.0;
    let mut digits = 0_usize;
    let mut scale: Option<f64> = None;
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let Some(digit) = char::from(byte).to_digit(16) else {
            if byte == b'.' && scale.is_none() {
                scale = Some(1.0);
                rest = tail;
                continue;
            }
            break;
        };
        digits += 1;
        rest = tail;
        match &mut scale {
            None => value = value * RADIX + f64::from(digit),
            Some(scale) => {
                *scale /= RADIX;
                value += f64::from(digit) * *scale;
            }
        }
    }
    if digits == 0 {
        return None;
    }
    if let Some(exponent) = rest.strip_prefix(b"p").and_then(strtol) {
        let exponent = exponent.clamp(i64::from(i16::MIN), i64::from(i16::MAX));
        value *= 2_f64.powi(i32::try_from(exponent).expect("clamped to 16 bits"));
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_atoi_reads_them() {
        for (text, want) in [
            ("0x10", 0),
            ("12abc", 12),
            ("+7", 7),
            ("-1", -1),
            ("99999999999", 1_215_752_191),
            ("4294967297", 1),
            ("2147483648", i32::MIN),
            ("010", 10),
            ("abc", 0),
            ("", 0),
            ("-", 0),
            ("\x0b6", 6),
            ("99999999999999999999", -1),
        ] {
            assert_eq!(atoi(text.as_bytes()), want, "{text:?}");
        }
        assert_eq!(int_prefix(b"-"), None);
        assert_eq!(int_prefix(b"0"), Some(0));
    }

    #[test]
    fn fractions_are_read_as_strtod_reads_them() {
        for (text, want) in [
            ("12abc", Some(12.0)),
            ("1e1", Some(10.0)),
            ("1e", Some(1.0)),
            ("0x20", Some(32.0)),
            ("0x.8p1", Some(1.0)),
            ("0xg", Some(0.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            (".", None),
            ("-5", Some(-5.0)),
            ("+44", Some(44.0)),
            ("inf", Some(f64::INFINITY)),
            ("abc", None),
            ("", None),
            ("1e-300", Some(1e-300)),
            ("50%", Some(50.0)),
        ] {
            assert_eq!(strtod(text.as_bytes()), want, "{text:?}");
        }
        assert!(strtod(b"nan").is_some_and(f64::is_nan));
    }
}
