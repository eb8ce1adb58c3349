//! Arguments of a launch that are given in one buffer: what `extra` lists.
#![expect(unsafe_code, reason = "reads the program's list, as the driver does")]

use std::{ffi::c_void, ptr, slice};

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`; the end of the list is null.
const BUFFER: *mut c_void = ptr::without_provenance_mut(1);
const SIZE: *mut c_void = ptr::without_provenance_mut(2);

/// Bytes in whole words, as the driver may read them; zeros at the end.
pub(crate) fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |part: &[u8]| {
        let mut whole = [0; 8];
        whole[..part.len()].copy_from_slice(part);
        u64::from_ne_bytes(whole)
    };
    bytes.chunks(8).map(word).collect()
}

/// The bytes that a list names, if it names some and nothing that is not known here.
///
/// # Safety
/// It is a launch's list: names and values up to a null, with as many bytes as it says.
pub(crate) unsafe fn read<'list>(extra: *const *mut c_void) -> Option<&'list [u8]> {
    let (mut start, mut size) = (ptr::null::<u8>(), 0_usize);
    for pair in 0..2 {
        // SAFETY: by the contract.
        let name = unsafe { extra.wrapping_add(2 * pair).read() };
        if name.is_null() {
            break;
        }
        // SAFETY: as above.
        let value = unsafe { extra.wrapping_add(2 * pair + 1).read() };
        match name {
            BUFFER => start = value.cast(),
            // SAFETY: the size stands where the value points to.
            SIZE if !value.is_null() => size = unsafe { value.cast::<usize>().read_unaligned() },
            _ => return None,
        }
    }
    // SAFETY: by the contract.
    (!start.is_null()).then(|| unsafe { slice::from_raw_parts(start, size) })
}

/// A buffer and the list that names it.
#[derive(Debug)]
pub(crate) struct Buffer {
    _words: Vec<u64>,
    _size: Box<usize>,
    list: Vec<*mut c_void>,
}

impl Buffer {
    /// With these bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut words = words(bytes);
        let mut size = Box::new(bytes.len());
        let list = vec![BUFFER, words.as_mut_ptr().cast(), SIZE, (&raw mut *size).cast(), ptr::null_mut()];
        Self { _words: words, _size: size, list }
    }

    /// What the driver is given while this lives.
    pub(crate) fn list(&self) -> *mut *mut c_void {
        self.list.as_ptr().cast_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::c_void, ptr};

    use super::{Buffer, read};

    #[test]
    fn a_list_names_the_bytes_that_it_was_made_of() {
        for length in [0, 1, 8, 13] {
            let bytes: Vec<u8> = (1..=length).collect();
            let buffer = Buffer::new(&bytes);
            // SAFETY: the list is whole.
            assert_eq!(unsafe { read(buffer.list()) }, Some(bytes.as_slice()));
        }
    }

    #[test]
    fn a_list_with_something_unknown_or_without_a_buffer_names_none() {
        let null = ptr::null_mut::<c_void>();
        for list in [[null; 2], [ptr::without_provenance_mut(3), null]] {
            // SAFETY: the list is whole.
            assert_eq!(unsafe { read(list.as_ptr()) }, None);
        }
    }
}
