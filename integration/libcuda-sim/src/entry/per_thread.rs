//! The functions that mean the thread's own default stream where the others mean the legacy one: `_ptds` and `_ptsz`.

use super::stream::PER_THREAD;
use super::transfer::{Direction, copy_later, copy_now, fill};
use super::{event, execute, graph, launch, pool, rows, stream};
use crate::abi::{In, Out, entry_points};
use crate::stream::NULL_STREAM;
use std::ffi::{c_int, c_uchar, c_uint, c_void};

/// A function that is another one on another stream: what it takes, and what it is.
macro_rules! on_own_stream {
    ($( fn $name:ident( $($argument:ident: $type:ty),* ) = $what:expr; )+) => {
        entry_points! { $( fn $name($($argument: $type),*) { $what } )+ }
    };
}

/// The stream that is meant.
pub(super) fn own(stream: usize) -> usize {
    if stream == NULL_STREAM { PER_THREAD } else { stream }
}

on_own_stream! {
    fn cuMemcpy_ptds(destination: usize, source: usize, size: usize)
        = copy_now(Direction::Any, destination, source, size, PER_THREAD);
    fn cuMemcpyHtoD_v2_ptds(destination: usize, source: usize, size: usize)
        = copy_now(Direction::ToDevice, destination, source, size, PER_THREAD);
    fn cuMemcpyDtoH_v2_ptds(destination: usize, source: usize, size: usize)
        = copy_now(Direction::ToHost, destination, source, size, PER_THREAD);
    fn cuMemcpyDtoD_v2_ptds(destination: usize, source: usize, size: usize)
        = copy_now(Direction::OnDevice, destination, source, size, PER_THREAD);
    fn cuMemcpyAsync_ptsz(destination: usize, source: usize, size: usize, stream: usize)
        = copy_later(Direction::Any, destination, source, size, own(stream)).map(drop);
    fn cuMemcpyHtoDAsync_v2_ptsz(destination: usize, source: usize, size: usize, stream: usize)
        = copy_later(Direction::ToDevice, destination, source, size, own(stream)).map(drop);
    fn cuMemcpyDtoHAsync_v2_ptsz(destination: usize, source: usize, size: usize, stream: usize)
        = copy_later(Direction::ToHost, destination, source, size, own(stream)).map(drop);
    fn cuMemcpyDtoDAsync_v2_ptsz(destination: usize, source: usize, size: usize, stream: usize)
        = copy_later(Direction::OnDevice, destination, source, size, own(stream)).map(drop);
    fn cuMemcpy2D_v2_ptds(asked: In<[u64; 16]>) = rows::flat(&asked.get()?, PER_THREAD, true);
    fn cuMemcpy2DAsync_v2_ptsz(asked: In<[u64; 16]>, stream: usize) = rows::flat(&asked.get()?, own(stream), false);
    fn cuMemcpy3D_v2_ptds(asked: In<[u64; 25]>) = rows::solid(&asked.get()?, PER_THREAD, true);
    fn cuMemcpy3DAsync_v2_ptsz(asked: In<[u64; 25]>, stream: usize) = rows::solid(&asked.get()?, own(stream), false);
    fn cuMemsetD8_v2_ptds(destination: usize, value: c_uchar, count: usize)
        = fill(destination, vec![value], count, PER_THREAD, true);
    fn cuMemsetD32_v2_ptds(destination: usize, value: c_uint, count: usize)
        = fill(destination, value.to_le_bytes().to_vec(), count, PER_THREAD, true);
    fn cuMemsetD8Async_ptsz(destination: usize, value: c_uchar, count: usize, stream: usize)
        = fill(destination, vec![value], count, own(stream), false);
    fn cuMemsetD32Async_ptsz(destination: usize, value: c_uint, count: usize, stream: usize)
        = fill(destination, value.to_le_bytes().to_vec(), count, own(stream), false);
    fn cuMemAllocAsync_ptsz(address: Out<usize>, size: usize, stream: usize)
        = pool::cuMemAllocAsync(address, size, own(stream)).outcome();
    fn cuMemFreeAsync_ptsz(address: usize, stream: usize) = pool::cuMemFreeAsync(address, own(stream)).outcome();
    fn cuStreamSynchronize_ptsz(handle: usize) = stream::cuStreamSynchronize(own(handle)).outcome();
    fn cuStreamQuery_ptsz(handle: usize) = stream::cuStreamQuery(own(handle)).outcome();
    fn cuStreamWaitEvent_ptsz(handle: usize, event: usize, flags: c_uint)
        = stream::cuStreamWaitEvent(own(handle), event, flags).outcome();
    fn cuStreamGetCtx_ptsz(handle: usize, context: Out<usize>) = stream::cuStreamGetCtx(own(handle), context).outcome();
    fn cuStreamGetId_ptsz(handle: usize, id: Out<u64>) = stream::cuStreamGetId(own(handle), id).outcome();
    fn cuStreamGetFlags_ptsz(handle: usize, flags: Out<c_uint>)
        = stream::cuStreamGetFlags(own(handle), flags).outcome();
    fn cuStreamGetPriority_ptsz(handle: usize, priority: Out<c_int>)
        = stream::cuStreamGetPriority(own(handle), priority).outcome();
    fn cuStreamIsCapturing_ptsz(handle: usize, status: Out<c_int>)
        = graph::cuStreamIsCapturing(own(handle), status).outcome();
    fn cuStreamBeginCapture_v2_ptsz(handle: usize, mode: c_int)
        = execute::cuStreamBeginCapture_v2(own(handle), mode).outcome();
    fn cuStreamEndCapture_ptsz(handle: usize, place: Out<usize>)
        = execute::cuStreamEndCapture(own(handle), place).outcome();
    fn cuGraphLaunch_ptsz(executable: usize, handle: usize) = execute::cuGraphLaunch(executable, own(handle)).outcome();
    fn cuGraphUpload_ptsz(executable: usize, handle: usize) = execute::cuGraphUpload(executable, own(handle)).outcome();
    fn cuEventRecord_ptsz(handle: usize, stream: usize) = event::cuEventRecord(handle, own(stream)).outcome();
    fn cuEventRecordWithFlags_ptsz(handle: usize, stream: usize, flags: c_uint)
        = event::cuEventRecordWithFlags(handle, own(stream), flags).outcome();
    fn cuStreamAddCallback_ptsz(
        handle: usize, function: Option<extern "C" fn(usize, c_int, *mut c_void)>, data: usize, flags: c_uint
    ) = stream::cuStreamAddCallback(own(handle), function, data, flags).outcome();
    fn cuLaunchHostFunc_ptsz(handle: usize, function: Option<extern "C" fn(*mut c_void)>, data: usize)
        = stream::cuLaunchHostFunc(own(handle), function, data).outcome();
    fn cuLaunchKernel_ptsz(
        function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_memory: c_uint, handle: usize, arguments: In<*const u8>, extra: In<usize>
    ) = launch::cuLaunchKernel(
        function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_memory, own(handle), arguments, extra,
    ).outcome();
}
