//! Numbers that a peer sends, as types that can hold any value.

/// Declares a number type with named constants that can hold every other value too.
///
/// A Rust `enum` made from a peer's number needs a check, and a check needs an answer for "none of these"; this type
/// simply keeps the number. `Display` prints the name, or the number where it has none.
#[macro_export]
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident: $repr:ty {
            $( $(#[$vmeta:meta])* $variant:ident = $value:expr, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        $vis struct $name(pub $repr);

        impl $name {
            $( $(#[$vmeta])* $vis const $variant: Self = Self($value); )+

            /// The constant's name, or `None` for a value that has none.
            #[must_use]
            $vis const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some(stringify!($variant)), )+
                    _ => None,
                }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    open_enum! {
        struct Sample: u32 {
            ONE = 1,
            TWO = 2,
        }
    }

    #[test]
    fn a_value_without_a_name_is_kept_and_printed_as_a_number() {
        assert_eq!(format!("{} {:?} {}", Sample::ONE, Sample::TWO, Sample(0x327)), "ONE Sample(TWO) 0x327");
        assert_eq!(Sample(9).0, 9);
        assert_eq!(Sample(9).name(), None);
    }
}
