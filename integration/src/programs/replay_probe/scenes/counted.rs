//! What a recovery cannot make again, whether it is there at a fault or no longer.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, PATIENCE, Stage, beside, check, module};
use crate::programs::gpu::KERNELS;
use crate::programs::replay_probe::failed;
use crate::programs::replay_probe::graphs::instantiate;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::{CStr, c_uint, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::mpsc::{Sender, channel};

/// `CU_GRAPH_USER_OBJECT_MOVE`, `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`.
const MOVE: u32 = 1;
const NO_SYNC: u32 = 1;
/// Bytes of a multicast object.
const SIZE: usize = 2 << 20;

/// Functions that register something by its number.
const BUFFER: &CStr = c"cuGraphicsGLRegisterBuffer";
const VIDEO: &CStr = c"cuGraphicsVDPAURegisterVideoSurface";
const OUTPUT: &CStr = c"cuGraphicsVDPAURegisterOutputSurface";

/// Resources of graphics as the simulated driver takes them: any numbers.
const RESOURCES: [usize; 2] = [0x7700, 0x7800];

extern "C" fn destroyed(data: *mut c_void) {
    // SAFETY: it is what the user object was made with, and this is called once.
    let told = unsafe { Box::from_raw(data.cast::<Sender<()>>()) };
    // Nobody waits where it was not to be destroyed.
    let _ = told.send(());
}

/// A user object that a graph had, which is destroyed, and so is what was made executable of it if `ends`.
fn user_object(ends: bool) -> Result<(), GpuError> {
    let (say, told) = channel::<()>();
    let data = Box::into_raw(Box::new(say)).cast();
    let (mut object, mut graph) = (null_mut(), null_mut());
    // SAFETY: the results are variables of ours, here and below.
    let made = unsafe { sys::cuUserObjectCreate(&raw mut object, data, Some(destroyed), 2, NO_SYNC) };
    check("cuUserObjectCreate", made)?;
    // SAFETY: as above.
    check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
    // SAFETY: both are ours.
    check("cuGraphRetainUserObject", unsafe { sys::cuGraphRetainUserObject(graph, object, 1, MOVE) })?;
    // SAFETY: as above.
    check("cuUserObjectRelease", unsafe { sys::cuUserObjectRelease(object, 1) })?;
    let executable = instantiate(graph)?;
    // SAFETY: it is not used again.
    check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })?;
    if ends {
        // SAFETY: as above.
        check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(executable) })?;
        told.recv_timeout(PATIENCE).map_err(|error| failed("cuUserObjectCreate", error))?;
    }
    Ok(())
}

/// A multicast object whose handle is released, and which is mapped nowhere any more if `ends`.
fn multicast(ends: bool) -> Result<(), GpuError> {
    let (mut handle, mut address) = (0, 0);
    let prop = sys::CUmulticastObjectProp { numDevices: 1, size: SIZE, handleTypes: 1, flags: 0 };
    // SAFETY: the results are variables of ours.
    check("cuMulticastCreate", unsafe { sys::cuMulticastCreate(&raw mut handle, &raw const prop) })?;
    // SAFETY: as above.
    check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&raw mut address, SIZE, 0, 0, 0) })?;
    // SAFETY: both are ours.
    check("cuMemMap", unsafe { sys::cuMemMap(address, SIZE, 0, handle, 0) })?;
    if ends {
        // SAFETY: it is not used again.
        check("cuMemUnmap", unsafe { sys::cuMemUnmap(address, SIZE) })?;
    }
    // SAFETY: as above.
    check("cuMemRelease", unsafe { sys::cuMemRelease(handle) })
}

/// A multicast object that came by a descriptor, as from the process that has made it, and whose handle is released if `ends`.
fn imported_multicast(ends: bool) -> Result<(), GpuError> {
    let (mut made, mut handle, mut descriptor) = (0, 0, -1);
    let kind = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let prop = sys::CUmulticastObjectProp { numDevices: 1, size: SIZE, handleTypes: 1, flags: 0 };
    // SAFETY: the results are variables of ours, here and below.
    check("cuMulticastCreate", unsafe { sys::cuMulticastCreate(&raw mut made, &raw const prop) })?;
    let into = (&raw mut descriptor).cast();
    // SAFETY: as above.
    let exported = unsafe { sys::cuMemExportToShareableHandle(into, made, kind, 0) };
    check("cuMemExportToShareableHandle", exported)?;
    let from = without_provenance_mut(usize::try_from(descriptor).unwrap_or(usize::MAX));
    // SAFETY: as above.
    let imported = unsafe { sys::cuMemImportFromShareableHandle(&raw mut handle, from, kind) };
    check("cuMemImportFromShareableHandle", imported)?;
    // SAFETY: the driver has given it out, and nobody else closes it.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    // SAFETY: it is not used again.
    check("cuMemRelease", unsafe { sys::cuMemRelease(made) })?;
    // SAFETY: it is ours.
    check("cuMulticastAddDevice", unsafe { sys::cuMulticastAddDevice(handle, 0) })?;
    // SAFETY: it is not used again.
    if ends { check("cuMemRelease", unsafe { sys::cuMemRelease(handle) }) } else { Ok(()) }
}

/// A multicast object whose handle was released while it was mapped, and had again by the mapping, which is gone: that one is
/// released if `ends`.
fn retained_multicast(ends: bool) -> Result<(), GpuError> {
    let (mut made, mut handle, mut address) = (0, 0, 0);
    let prop = sys::CUmulticastObjectProp { numDevices: 1, size: SIZE, handleTypes: 1, flags: 0 };
    // SAFETY: the results are variables of ours, here and below.
    check("cuMulticastCreate", unsafe { sys::cuMulticastCreate(&raw mut made, &raw const prop) })?;
    // SAFETY: as above.
    check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&raw mut address, SIZE, 0, 0, 0) })?;
    // SAFETY: both are ours.
    check("cuMemMap", unsafe { sys::cuMemMap(address, SIZE, 0, made, 0) })?;
    // SAFETY: it is not used again.
    check("cuMemRelease", unsafe { sys::cuMemRelease(made) })?;
    let place = without_provenance_mut(usize::try_from(address).unwrap_or(0));
    // SAFETY: as above.
    let retained = unsafe { sys::cuMemRetainAllocationHandle(&raw mut handle, place) };
    check("cuMemRetainAllocationHandle", retained)?;
    // SAFETY: it is not used again.
    check("cuMemUnmap", unsafe { sys::cuMemUnmap(address, SIZE) })?;
    // SAFETY: as above.
    if ends { check("cuMemRelease", unsafe { sys::cuMemRelease(handle) }) } else { Ok(()) }
}

/// A texture reference of a module, which is unloaded if `ends`.
fn texture(ends: bool) -> Result<(), GpuError> {
    let (module, mut reference) = (module(KERNELS)?, null_mut());
    // SAFETY: the result is a variable of ours.
    check("cuModuleGetTexRef", unsafe { sys::cuModuleGetTexRef(&raw mut reference, module, c"any".as_ptr()) })?;
    // SAFETY: nothing of it is used again.
    if ends { check("cuModuleUnload", unsafe { sys::cuModuleUnload(module) }) } else { Ok(()) }
}

/// Two resources of graphics that are mapped by one call, of which the second one is given up if `ends`.
fn resources(ends: bool) -> Result<(), GpuError> {
    let mut list = RESOURCES.map(without_provenance_mut);
    let count = u32::try_from(list.len()).unwrap_or(0);
    // SAFETY: there are so many.
    check("cuGraphicsMapResources", unsafe { sys::cuGraphicsMapResources(count, list.as_mut_ptr(), null_mut()) })?;
    for resource in list.into_iter().take(if ends { list.len() } else { 1 }) {
        // SAFETY: the simulated driver does nothing with it.
        check("cuGraphicsUnregisterResource", unsafe { sys::cuGraphicsUnregisterResource(resource) })?;
    }
    Ok(())
}

/// A function as programs with pictures find it, through the driver's own lookup.
fn looked_up(name: &CStr) -> Result<*mut c_void, GpuError> {
    let mut found = null_mut();
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { sys::cuGetProcAddress_v2(name.as_ptr(), &raw mut found, 12000, 0, null_mut()) };
    check("cuGetProcAddress", answer)?;
    Ok(found)
}

/// Something that is registered in each way, all of which are unregistered but for one of these unless `ends`.
fn registered(of: usize, ends: bool) -> Result<(), GpuError> {
    type Named = unsafe extern "C" fn(*mut sys::CUgraphicsResource, c_uint, c_uint) -> sys::CUresult;
    type Image = unsafe extern "C" fn(*mut sys::CUgraphicsResource, c_uint, c_uint, c_uint) -> sys::CUresult;
    type OfEgl = unsafe extern "C" fn(*mut sys::CUgraphicsResource, *mut c_void, c_uint) -> sys::CUresult;
    let mut all = [null_mut(); 5];
    for (name, resource) in [BUFFER, VIDEO, OUTPUT].into_iter().zip(&mut all) {
        // SAFETY: the functions of these names have this type.
        let register: Named = unsafe { std::mem::transmute(looked_up(name)?) };
        // SAFETY: the result is a variable of ours, and the simulated driver looks at no object.
        check("cuGraphicsRegister", unsafe { register(resource, 1, 0) })?;
    }
    // SAFETY: the function of this name has this type.
    let register: Image = unsafe { std::mem::transmute(looked_up(c"cuGraphicsGLRegisterImage")?) };
    // SAFETY: as above.
    check("cuGraphicsRegister", unsafe { register(&raw mut all[3], 1, 0, 0) })?;
    // SAFETY: the function of this name has this type.
    let register: OfEgl = unsafe { std::mem::transmute(looked_up(c"cuGraphicsEGLRegisterImage")?) };
    // SAFETY: as above.
    check("cuGraphicsRegister", unsafe { register(&raw mut all[4], null_mut(), 0) })?;
    for (at, resource) in all.into_iter().enumerate().filter(|(at, _)| ends || *at != of) {
        // SAFETY: it is not used again.
        let answer = unsafe { sys::cuGraphicsUnregisterResource(resource) };
        check("cuGraphicsUnregisterResource", answer).map_err(|error| failed("--scene", format!("{at}: {error}")))?;
    }
    Ok(())
}

fn there(stage: &Stage, make: fn(bool) -> Result<(), GpuError>, ends: bool) -> Result<Value, GpuError> {
    make(ends)?;
    Ok(json!({ "found": beside::fault(stage)? }))
}

pub(super) fn with_resources(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, resources, false)
}

pub(super) fn after_resources(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, resources, true)
}

pub(super) fn with_buffer(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, |ends| registered(0, ends), false)
}

pub(super) fn with_video(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, |ends| registered(1, ends), false)
}

pub(super) fn with_output(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, |ends| registered(2, ends), false)
}

pub(super) fn with_image(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, |ends| registered(3, ends), false)
}

pub(super) fn with_image_of_egl(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, |ends| registered(4, ends), false)
}

pub(super) fn after_registrations(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, |ends| registered(0, ends), true)
}

pub(super) fn with_user_object(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, user_object, false)
}

pub(super) fn after_user_object(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, user_object, true)
}

pub(super) fn with_multicast(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, multicast, false)
}

pub(super) fn after_multicast(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, multicast, true)
}

pub(super) fn with_imported_multicast(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, imported_multicast, false)
}

pub(super) fn after_imported_multicast(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, imported_multicast, true)
}

pub(super) fn with_retained_multicast(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, retained_multicast, false)
}

pub(super) fn after_retained_multicast(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, retained_multicast, true)
}

pub(super) fn with_texture(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, texture, false)
}

pub(super) fn after_texture(stage: &Stage) -> Result<Value, GpuError> {
    there(stage, texture, true)
}
