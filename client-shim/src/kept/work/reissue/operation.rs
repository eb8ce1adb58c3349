//! One piece of work that can be done again: what it was, by the call that gave it, and how it is done.
#![expect(unsafe_code, reason = "reads the source of a copy, and calls the driver")]

use std::{ffi::c_void, ptr};

use crate::cuda::{
    names,
    result::CUresult,
    types::{CUfunction, CUstream},
};

/// Most bytes of the host's in one copy.
const MOST_OF_A_COPY: usize = 64 << 10;

/// An address and a size.
pub(super) type Span = (u64, u64);

/// What is to be done again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// So many elements of so many bytes.
    Set { to: u64, value: u64, element: u64, count: u64 },
    /// From the device to the device.
    Copy { to: u64, from: u64, bytes: u64 },
    /// From the host.
    Write { to: u64, bytes: Vec<u8> },
    /// A kernel, by name of its function.
    Launch { function: usize, shape: [u32; 7], arguments: Vec<Vec<u8>> },
}

impl Operation {
    /// What the call of this name with these arguments does; `None` if it cannot be done again.
    pub(super) fn of(name: &[u8], numbers: &[u64], launch: impl FnOnce(&[u64]) -> Option<Self>) -> Option<Self> {
        // The variants with another default stream do the same.
        let name = [&b"_ptds"[..], b"_ptsz"].iter().find_map(|end| name.strip_suffix(*end)).unwrap_or(name);
        let set = |element| match *numbers {
            [to, value, count, ..] => Some(Self::Set { to, value, element, count }),
            _ => None,
        };
        match name {
            b"cuMemsetD8_v2" | b"cuMemsetD8Async" => set(1),
            b"cuMemsetD16_v2" | b"cuMemsetD16Async" => set(2),
            b"cuMemsetD32_v2" | b"cuMemsetD32Async" => set(4),
            b"cuMemcpyDtoD_v2" | b"cuMemcpyDtoDAsync_v2" => match *numbers {
                [to, from, bytes, ..] => Some(Self::Copy { to, from, bytes }),
                _ => None,
            },
            b"cuMemcpyHtoD_v2" | b"cuMemcpyHtoDAsync_v2" => match *numbers {
                [to, from, size, ..] => {
                    let size = usize::try_from(size).ok().filter(|size| *size <= MOST_OF_A_COPY)?;
                    let from: *const u8 = ptr::with_exposed_provenance(usize::try_from(from).ok()?);
                    // SAFETY: the driver has just been given this source, which the program must leave alone until the
                    // copy is done or the call is over, and this is still the call.
                    Some(Self::Write { to, bytes: unsafe { std::slice::from_raw_parts(from, size) }.to_vec() })
                }
                _ => None,
            },
            b"cuLaunchKernel" => launch(numbers),
            _ => None,
        }
    }

    /// What of the device it reads, and what it writes, as far as that can be known.
    pub(super) fn spans(&self) -> (Option<Span>, Option<Span>) {
        match self {
            Self::Set { to, element, count, .. } => (None, Some((*to, element.saturating_mul(*count)))),
            Self::Copy { to, from, bytes } => (Some((*from, *bytes)), Some((*to, *bytes))),
            Self::Write { to, bytes } => (None, Some((*to, bytes.len() as u64))),
            Self::Launch { .. } => (None, None),
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Self::Set { .. } | Self::Copy { .. } => 0,
            Self::Write { bytes, .. } => bytes.len(),
            Self::Launch { arguments, .. } => arguments.iter().map(Vec::len).sum(),
        }
    }

    /// Does it, on the default stream of the current context.
    pub(super) fn redo(&mut self) -> CUresult {
        let length = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        match self {
            Self::Set { to, value, element, count } => {
                let (to, count, value) = (*to, length(*count), *value);
                match element {
                    1 => driver!(copy::cuMemsetD8_v2(to, u8::try_from(value).unwrap_or_default(), count)),
                    2 => driver!(copy::cuMemsetD16_v2(to, u16::try_from(value).unwrap_or_default(), count)),
                    _ => driver!(copy::cuMemsetD32_v2(to, u32::try_from(value).unwrap_or_default(), count)),
                }
            }
            Self::Copy { to, from, bytes } => driver!(copy::cuMemcpyDtoD_v2(*to, *from, length(*bytes))),
            Self::Write { to, bytes } => driver!(copy::cuMemcpyHtoD_v2(*to, bytes.as_ptr().cast(), bytes.len())),
            Self::Launch { function, shape: [gx, gy, gz, bx, by, bz, shared], arguments } => {
                let mut places: Vec<*mut c_void> =
                    arguments.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
                let function = CUfunction(names::current_of(*function));
                let (list, none) = (places.as_mut_ptr(), ptr::null_mut());
                driver!(kernel::cuLaunchKernel(
                    function,
                    *gx,
                    *gy,
                    *gz,
                    *bx,
                    *by,
                    *bz,
                    *shared,
                    CUstream(0),
                    list,
                    none
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Operation;

    #[test]
    fn calls_are_read_by_their_names_and_arguments() {
        let of = |name: &[u8], numbers: &[u64]| Operation::of(name, numbers, |_| None);
        assert_eq!(
            of(b"cuMemsetD32Async_ptsz", &[64, 0, 9, 5]),
            Some(Operation::Set { to: 64, value: 0, element: 4, count: 9 })
        );
        assert_eq!(of(b"cuMemcpyDtoD_v2", &[1, 2, 3]), Some(Operation::Copy { to: 1, from: 2, bytes: 3 }));
        let source = [7_u8, 8, 9];
        let from = source.as_ptr().expose_provenance() as u64;
        assert_eq!(
            of(b"cuMemcpyHtoDAsync_v2", &[64, from, 3, 0]),
            Some(Operation::Write { to: 64, bytes: source.to_vec() })
        );
        for gap in [&b"cuMemcpyDtoHAsync_v2"[..], b"cuMemcpyAsync", b"cuGraphLaunch", b"cuMemsetD2D8_v2"] {
            assert_eq!(of(gap, &[1, 2, 3, 4, 5, 6]), None);
        }
        assert_eq!(of(b"cuMemcpyHtoD_v2", &[64, from, (64 << 10) + 1]), None, "too long to be kept");
        assert_eq!(of(b"cuMemsetD8_v2", &[1]), None);
    }
}
