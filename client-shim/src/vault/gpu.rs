//! A GPU's name in the vault: `GPU-` and the UUID, as `nvidia-smi -L` has it.
#![expect(unsafe_code, reason = "calls the driver and reads what it has written")]

use std::{ffi::c_int, mem::MaybeUninit};

use crate::api::types::CUuuid;

/// The name of a device; empty when the driver does not tell.
pub(super) fn name(device: c_int) -> String {
    let mut uuid = MaybeUninit::<CUuuid>::zeroed();
    if !driver!(query::cuDeviceGetUuid_v2(uuid.as_mut_ptr(), device)).is_success()
        && !driver!(query::cuDeviceGetUuid(uuid.as_mut_ptr(), device)).is_success()
    {
        return String::new();
    }
    // SAFETY: a UUID is 16 bytes, all of them written.
    let bytes = unsafe { uuid.as_ptr().cast::<[u8; 16]>().read_unaligned() };
    text(bytes)
}

/// The ordinal of the device with this name.
pub(super) fn ordinal(wanted: &str) -> Option<c_int> {
    let mut count = 0;
    let _none_if_refused = driver!(query::cuDeviceGetCount(&raw mut count));
    (0..count).find(|device| name(*device) == wanted)
}

fn text(bytes: [u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_is_written_as_nvidias_tools_do() {
        let bytes = [0x5e, 0x90, 0xf0, 0xd2, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x66];
        assert_eq!(super::text(bytes), "GPU-5e90f0d2-1111-2222-3333-444455556666");
    }
}
