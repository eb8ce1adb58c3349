//! Which GPU an index in a queue's entries means.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::uvm::{TABLE_LENGTH, processor_table};
use crate::sys::uvm_abi::{
    GET_PROCESSOR_UUID_TABLE, GET_PROCESSOR_UUID_TABLE_V2, GetProcessorTable, STATUS_OK, Uuid, VERSION_1, Version,
    gpu_name,
};

/// `NV_ERR_INVALID_ARGUMENT`: what 560 answers to a version 0.
const STATUS_INVALID_ARGUMENT: u32 = 0x1f;

/// The GPUs of one address space by index; 0 is the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Processors(Vec<Option<String>>);

impl Processors {
    /// Whether no GPU is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The GPUs' names.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().flatten().cloned().collect()
    }

    /// The GPU's name.
    pub(super) fn name_of(&self, index: u16) -> Option<&str> {
        self.0.get(usize::from(index))?.as_deref()
    }

    fn of_table(table: &[Uuid]) -> Self {
        let mut names: Vec<Option<String>> = table.iter().map(gpu_name).collect();
        // The CPU has a UUID as well.
        names[0] = None;
        let used = names.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        names.truncate(used);
        Self(names)
    }

    /// The same of a driver whose release nobody has asked for yet.
    pub(super) fn ask_any(space: BorrowedFd<'_>) -> io::Result<Self> {
        match Self::ask(space, Version::V2) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => {
                Self::ask(space, Version::V1)
            }
            result => result,
        }
    }

    /// Asks the driver about an address space. Blocks while the client changes it.
    pub(super) fn ask(space: BorrowedFd<'_>, version: Version) -> io::Result<Self> {
        let mut table: Box<[Uuid; TABLE_LENGTH]> =
            vec![Uuid::default(); TABLE_LENGTH].into_boxed_slice().try_into().expect("it is as long");
        let mut ask = |request, tail| {
            let mut call = GetProcessorTable { table: 0, tail };
            processor_table(space, request, &mut call, &mut table).map(|()| call.tail)
        };
        let status = match version {
            Version::V2 => ask(GET_PROCESSOR_UUID_TABLE_V2, [u32::MAX, 0, 0, 0])?[0],
            // The count 0 asks for the first version; 560 has the version there and knows none of that number.
            Version::V1 => match ask(GET_PROCESSOR_UUID_TABLE, [0, u32::MAX, 0, 0])?[1] {
                STATUS_INVALID_ARGUMENT => ask(GET_PROCESSOR_UUID_TABLE, [VERSION_1, u32::MAX, 0, 0])?[1],
                status => status,
            },
        };
        match status {
            STATUS_OK => Ok(Self::of_table(table.as_slice())),
            status => Err(io::Error::other(format!("GET_PROCESSOR_UUID_TABLE: the UVM driver answers {status:#x}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_gpus_and_not_the_cpu() {
        let mut table = [Uuid::default(); 33];
        table[0] = [0xc0; 16];
        assert!(Processors::of_table(&table).is_empty());
        table[2] = [0xab; 16];
        let found = Processors::of_table(&table);
        assert_eq!(found.name_of(2), Some("GPU-abababab-abab-abab-abab-abababababab"));
        assert_eq!(
            (found.name_of(0), found.name_of(1), found.name_of(3), found.name_of(4000)),
            (None, None, None, None)
        );
        assert!(!found.is_empty());
    }
}
