//! The child process that lists the machine's GPUs: loads `libcuda.so.1`, prints a line of JSON a device, ends.
#![expect(unsafe_code, reason = "calls the CUDA driver library, which has only a C interface")]

use super::ProbedDevice;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Write;

const LIBRARY: &CStr = c"libcuda.so.1";
const NAME_LENGTH: c_int = 256;
const MULTIPROCESSOR_COUNT: c_int = 16;
const PCI_BUS_ID: c_int = 33;
const PCI_DEVICE_ID: c_int = 34;
const PCI_DOMAIN_ID: c_int = 50;
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type GetCount = unsafe extern "C" fn(*mut c_int) -> c_int;
type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type GetName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type GetUuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;

/// Why there is no list, with the exit status: the vendor's daemon ends with the low byte of the `CUresult`.
struct Failure {
    status: u8,
    text: String,
}

/// `CUDA_ERROR_NOT_INITIALIZED`-like low byte with which the vendor's daemon of release 580 ends without the library.
const NO_LIBRARY_STATUS: u8 = 244;

fn call(name: &str, result: c_int) -> Result<(), Failure> {
    if result == 0 {
        return Ok(());
    }
    let status = u8::try_from(result & 0xff).unwrap_or(u8::MAX);
    Err(Failure { status, text: format!("{name} failed with CUDA error {result}") })
}

/// The address of one of the driver's functions.
fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, Failure> {
    // SAFETY: `library` is a handle from dlopen that is never closed, and `name` is NUL-terminated.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        let text = format!("{} has no {}", LIBRARY.to_string_lossy(), name.to_string_lossy());
        return Err(Failure { status: NO_LIBRARY_STATUS, text });
    }
    Ok(address)
}

macro_rules! function {
    ($library:expr, $name:literal, $type:ty) => {{
        let address = symbol($library, $name)?;
        // SAFETY: the driver documents the function of this name with this signature, stable since CUDA 4.
        unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
    }};
}

fn devices() -> Result<Vec<ProbedDevice>, Failure> {
    // SAFETY: the name is NUL-terminated; the library's own constructors are the driver's business.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(Failure { status: NO_LIBRARY_STATUS, text: "libcuda.so.1 can't be loaded".to_owned() });
    }
    let init = function!(library, c"cuInit", Init);
    let get_count = function!(library, c"cuDeviceGetCount", GetCount);
    let get = function!(library, c"cuDeviceGet", Get);
    let get_attribute = function!(library, c"cuDeviceGetAttribute", GetAttribute);
    let get_name = function!(library, c"cuDeviceGetName", GetName);
    let get_uuid = function!(library, c"cuDeviceGetUuid", GetUuid);

    // SAFETY: cuInit takes flags, of which none exist.
    call("cuInit", unsafe { init(0) })?;
    let mut count = 0;
    // SAFETY: the pointer is to a local of the right type.
    call("cuDeviceGetCount", unsafe { get_count(&raw mut count) })?;
    let mut list = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: the pointer is to a local of the right type.
        call("cuDeviceGet", unsafe { get(&raw mut device, ordinal) })?;
        let attribute = |attribute: c_int| {
            let mut value = 0;
            // SAFETY: the pointer is to a local of the right type, and `device` comes from cuDeviceGet.
            call("cuDeviceGetAttribute", unsafe { get_attribute(&raw mut value, attribute, device) })?;
            Ok(u32::try_from(value).unwrap_or_default())
        };
        let mut name = [0 as c_char; NAME_LENGTH as usize];
        // SAFETY: the buffer has the length that is named.
        call("cuDeviceGetName", unsafe { get_name(name.as_mut_ptr(), NAME_LENGTH, device) })?;
        let mut uuid = [0; 16];
        // SAFETY: the pointer is to 16 bytes, the size of a CUuuid.
        call("cuDeviceGetUuid", unsafe { get_uuid(&raw mut uuid, device) })?;
        let name: Vec<u8> = name.iter().map(|&c| c.cast_unsigned()).take_while(|&byte| byte != 0).collect();
        list.push(ProbedDevice {
            ordinal: u32::try_from(ordinal).unwrap_or_default(),
            domain: attribute(PCI_DOMAIN_ID)?,
            bus: u8::try_from(attribute(PCI_BUS_ID)?).unwrap_or_default(),
            device: u8::try_from(attribute(PCI_DEVICE_ID)?).unwrap_or_default(),
            uuid: remps_proto::mps::device::DeviceUuid(uuid).to_string(),
            name: String::from_utf8_lossy(&name).into_owned(),
            multiprocessors: attribute(MULTIPROCESSOR_COUNT)?,
            major: attribute(COMPUTE_CAPABILITY_MAJOR)?,
        });
    }
    Ok(list)
}

/// Prints the list on standard output, or the reason why there is none on standard error; returns the exit status.
#[must_use]
pub(crate) fn run() -> u8 {
    match devices() {
        Ok(devices) => {
            let mut output = std::io::stdout().lock();
            for device in devices {
                let line = serde_json::to_string(&device).expect("plain data");
                if writeln!(output, "{line}").is_err() {
                    return 1;
                }
            }
            0
        }
        Err(Failure { status, text }) => {
            // A closed standard error leaves nobody to tell.
            let _ = writeln!(std::io::stderr(), "{text}");
            status
        }
    }
}
