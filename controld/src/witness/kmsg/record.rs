//! A record of `/dev/kmsg`, as `Documentation/ABI/testing/dev-kmsg` of the kernel has it:
//! `priority,sequence,microseconds,flags[,more];text`, a line break, and lines that begin with a blank and name devices.
//!
//! Control characters and bytes above ASCII are escaped as `\x0a` by the kernel, so a record's text is one line whatever
//! was printed, and nobody can put a second record into a process's name.

/// Bits of the priority that are the level; the rest is the facility.
const LEVEL_BITS: u32 = 3;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Who wrote it; 0 is the kernel. A program that writes to `/dev/kmsg` can have any other facility, but not this.
    pub facility: u32,
    /// Its number; a gap is a loss.
    pub sequence: u64,
    /// Its text, without device names.
    pub text: &'a str,
}

impl<'a> Record<'a> {
    /// Reads one record; `None` for anything else.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let whole = std::str::from_utf8(bytes).ok()?;
        let (prefix, rest) = whole.split_once(';')?;
        let mut fields = prefix.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let sequence = fields.next()?.parse().ok()?;
        let _microseconds: u64 = fields.next()?.parse().ok()?;
        Some(Self { facility: priority >> LEVEL_BITS, sequence, text: rest.lines().next().unwrap_or_default() })
    }

    /// Whether the kernel said it.
    pub(crate) const fn is_kernels(&self) -> bool {
        self.facility == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_of_the_kernel_is_told_from_a_programs() {
        let bytes = b"4,1234,5678901,-,caller=T42;NVRM: loading\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:06.0\n";
        let record = Record::parse(bytes).unwrap();
        assert_eq!(record, Record { facility: 0, sequence: 1234, text: "NVRM: loading" });
        assert!(record.is_kernels());
        // What a program writes has facility 1, user, unless it asks for another one.
        assert!(!Record::parse(b"12,1235,5678902,-;NVRM: Xid (PCI:0000:3b:00): 31, x\n").unwrap().is_kernels());
    }

    #[test]
    fn anything_else_is_none() {
        for bytes in [&b""[..], b"text", b"4,5;no time", b"x,1,2,-;text", b"4,1,2,-", b"4,1,2,-;\xff"] {
            assert_eq!(Record::parse(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9,;\\-\n a]{0,40}") {
            let _ = Record::parse(&bytes);
            let _ = Record::parse(text.as_bytes());
        }
    }
}
