//! How a connection to the control daemon says that it is a spare copy's: by the name that its socket is bound to.
//!
//! The messages of MPS have no room for it, and the driver's own code sends them. So the library has the driver's socket
//! bound to a name of the abstract namespace before it connects, and the daemon reads the peer's address. NVIDIA's
//! daemon does not look at it.

use core::fmt;

/// What every such name begins with, after the NUL of the abstract namespace.
const PREFIX: &str = "remps-spare-";
/// A token's digits.
const DIGITS: usize = 16;

/// What a spare copy takes of its process, as the program has counted it; zeros where nobody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpareTakes {
    /// Threads.
    pub threads: u32,
    /// Bytes of the host's memory: of its file, its heap and what it has mapped, as far as they are in memory.
    pub host_bytes: u64,
}

/// The name of one connection of a spare copy, without the NUL that begins it: `remps-spare-`, the token as 16
/// hexadecimal digits in lower case, `-` and the number in decimal digits. It is written by [`Display`](fmt::Display).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpareName {
    /// The grant's, not 0.
    pub token: u64,
    /// Tells the connections of a process apart, as a name is one socket's.
    pub number: u32,
}

impl SpareName {
    /// Reads the bytes of an abstract name after its NUL; `None` for what is no such name, or not written as one is.
    #[must_use]
    pub fn read(name: &[u8]) -> Option<Self> {
        let rest = core::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
        let (token, number) = rest.split_once('-')?;
        let is_plain =
            |text: &str, radix| text.chars().all(|digit| digit.is_digit(radix) && !digit.is_ascii_uppercase());
        if token.len() != DIGITS || !is_plain(token, 16) || !is_plain(number, 10) {
            return None;
        }
        let name_of = Self { token: u64::from_str_radix(token, 16).ok()?, number: number.parse().ok()? };
        (name_of.token != 0 && name_of.to_string().as_bytes() == name).then_some(name_of)
    }
}

impl fmt::Display for SpareName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:0DIGITS$x}-{}", self.token, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_comes_back_as_it_went(token in 1..=u64::MAX, number in any::<u32>()) {
            let name = SpareName { token, number };
            prop_assert_eq!(SpareName::read(name.to_string().as_bytes()), Some(name));
        }

        #[test]
        fn any_bytes_are_a_name_or_none(bytes in prop::collection::vec(any::<u8>(), 0..108)) {
            if let Some(name) = SpareName::read(&bytes) {
                prop_assert_eq!(name.to_string().into_bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_name_is_written_in_one_way_only() {
        let name = SpareName { token: 0xab, number: 7 };
        assert_eq!(name.to_string(), "remps-spare-00000000000000ab-7");
        for odd in [
            "remps-spare-00000000000000AB-7",
            "remps-spare-ab-7",
            "remps-spare-+0000000000000ab-7",
            "remps-spare-00000000000000ab-07",
            "remps-spare-00000000000000ab-+7",
            "remps-spare-00000000000000ab-",
            "remps-spare-00000000000000ab-4294967296",
            "remps-spare-00000000000000ab-7\0",
            "remps-spare-0000000000000000-7",
            "remps-spare-00000000000000ab",
            "cuda-uvmfd-1-2",
            "",
        ] {
            assert_eq!(SpareName::read(odd.as_bytes()), None, "{odd:?}");
        }
    }
}
