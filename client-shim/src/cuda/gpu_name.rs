//! A GPU's name in the vault: `GPU-` and the UUID, as `nvidia-smi -L` has it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;

use crate::cuda::types::CUuuid;

/// The name of a device; empty when the driver does not tell.
pub(crate) fn name(device: c_int) -> String {
    // What a UUID is, which the type of the argument does not say.
    let mut uuid = [0_u8; 16];
    let place: *mut CUuuid = uuid.as_mut_ptr().cast();
    if !driver!(query::cuDeviceGetUuid_v2(place, device)).is_success()
        && !driver!(query::cuDeviceGetUuid(place, device)).is_success()
    {
        return String::new();
    }
    text(uuid)
}

/// The ordinal of the device with this name.
pub(crate) fn ordinal(wanted: &str) -> Option<c_int> {
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
