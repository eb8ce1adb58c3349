//! Arrays and textures: on two devices, without what they were of, where memory is short, and in a forked child.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and so is a fork")]

use super::{GpuError, Stage, check, code, current, enter, second_context};
use crate::programs::gpu::{Gpu, Stream};
use crate::programs::memory_probe::{allocate, mapped::map_new};
use crate::programs::replay_probe::{
    arrays::{
        Arrays, SURFACE,
        calls::{Array, Object, Shape, array_resource, linear_resource, texture},
    },
    failed,
};
use cudarc::driver::sys::{self, CUlimit_enum::CU_LIMIT_PRINTF_FIFO_SIZE};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    ptr::null_mut,
    thread,
    time::{Duration, Instant},
};

/// An array of four MiB.
const LARGE: Shape = Shape { sides: [1024, 1024, 0], flags: 0, levels: 1 };
/// Arrays that are made and destroyed one after the other.
const MANY: usize = 100;
/// More of the large ones than any limit of a test leaves room for.
const TOO_MANY: usize = 10_000;

/// How long descriptors may stay that are open for a moment, and the time between two looks at them.
const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Numbers of the open descriptors and what they lead to, but for the driver's file and the copy of it that a thread of the
/// library's makes in advance, in a file without a name where that may be.
fn descriptors() -> BTreeSet<(OsString, PathBuf)> {
    let nameless = std::env::temp_dir().join("#");
    let is_of_the_driver = |link: &Path| {
        let link = link.as_os_str().as_encoded_bytes();
        link.starts_with(nameless.as_os_str().as_encoded_bytes()) || link.windows(7).any(|part| part == b"libcuda")
    };
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open = entries.filter_map(|entry| Some((entry.file_name(), fs::read_link(entry.path()).ok()?)));
    // What is in `/proc` is read just now, here or by a thread of the library's.
    open.filter(|(_, link)| !link.starts_with("/proc") && !is_of_the_driver(link)).collect()
}

/// How many descriptors are left that were not among these. What other threads have open for a moment goes.
fn left_since(before: &BTreeSet<(OsString, PathBuf)>) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = descriptors().difference(before).count();
        if left == 0 || Instant::now() >= deadline {
            return left;
        }
        thread::park_timeout(BETWEEN_LOOKS);
    }
}

/// Both devices have arrays, and textures of the same values, before a fault of one of them and after it.
pub(super) fn two_devices(stage: &Stage) -> Result<Value, GpuError> {
    let contexts = [current()?, second_context()?];
    let mut all = Vec::new();
    for context in contexts {
        enter(context)?;
        all.push(Arrays::new()?);
    }
    let mut round = |wrong: &mut Vec<String>| {
        for (context, arrays) in contexts.into_iter().zip(&mut all) {
            enter(context)?;
            arrays.round(&stage.gpu, Stream(null_mut()))?;
            wrong.extend(arrays.wrong()?);
            stage.gpu.synchronize()?;
        }
        Ok::<(), GpuError>(())
    };
    let mut wrong = Vec::new();
    round(&mut wrong)?;
    stage.wait()?;
    let told = stage.told();
    // Twice: what changes is destroyed and made again by what was recovered.
    round(&mut wrong)?;
    round(&mut wrong)?;
    Ok(json!({ "told": told, "wrong": wrong }))
}

fn values(objects: &[Object]) -> Vec<u64> {
    objects.iter().map(|object| object.value).collect()
}

/// Textures of an array that was destroyed and of memory that was freed, whole slabs of it, keep their values, and so do
/// those beside them. What is made later has others.
pub(super) fn without_arrays(stage: &Stage) -> Result<Value, GpuError> {
    let (gone, stays) = (Array::new(LARGE)?, Array::new(Shape { sides: [64, 2, 0], flags: SURFACE, levels: 1 })?);
    let memory = allocate(64 << 20)?;
    let first = texture(&array_resource(gone.first_level()))?;
    let hole = texture(&array_resource(stays.first_level()))?;
    let second = texture(&linear_resource(memory, 1 << 20, false))?;
    let third = texture(&array_resource(stays.first_level()))?;
    hole.destroy()?;
    gone.destroy()?;
    // SAFETY: nothing uses it.
    check("cuMemFree", unsafe { sys::cuMemFree_v2(memory) })?;
    stage.gpu.synchronize()?;
    stage.wait()?;
    let told = stage.told();
    let filled = texture(&array_resource(stays.first_level()))?;
    let new = texture(&array_resource(stays.first_level()))?;
    let before = values(&[first, second, third]);
    let is_of_the_same = third.array()? == stays.resource_handle();
    let ended = [first, second, third, filled, new].into_iter().try_for_each(Object::destroy);
    ended?;
    stays.destroy()?;
    Ok(json!({ "told": told, "before": before, "after": values(&[filled, new]), "is_of_the_same": is_of_the_same }))
}

/// Many arrays one after the other leave no descriptor, a forked child has none of them, and where there is no more memory
/// the driver's own answer comes, before a fault and after it.
pub(super) fn limits(stage: &Stage) -> Result<Value, GpuError> {
    let kept = Array::new(LARGE)?;
    let before = descriptors();
    for _ in 0..MANY {
        Array::new(Shape { sides: [64, 64, 0], flags: 0, levels: 3 })?.destroy()?;
        Array::new(Shape { sides: [64, 64, 0], flags: 0, levels: 1 })?.destroy()?;
    }
    let left = left_since(&before);
    let child = in_a_child()?;
    let filled = fill()?;
    stage.gpu.synchronize()?;
    stage.wait()?;
    let told = stage.told();
    let again = fill()?;
    kept.destroy()?;
    let more = fill()?;
    Ok(json!({ "left": left, "child": child, "filled": filled, "again": again, "more": more, "told": told }))
}

/// What a forked child is answered.
fn in_a_child() -> Result<i32, GpuError> {
    // SAFETY: the child makes calls of the driver, which it has not, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let made = Array::new(LARGE).map_or_else(|error| error.code, |_| 0);
        // SAFETY: ends the process.
        unsafe { libc::_exit(made.cast_signed()) };
    }
    if child < 0 {
        return Err(failed("fork", std::io::Error::last_os_error()));
    }
    match waitpid(Pid::from_raw(child), None) {
        Ok(WaitStatus::Exited(_, status)) => Ok(status),
        other => Err(failed("waitpid", format!("{other:?}"))),
    }
}

/// How many large arrays there is room for, and what the driver says to one more; all are destroyed.
fn fill() -> Result<[usize; 2], GpuError> {
    let mut all = Vec::new();
    let mut answer = 0;
    while all.len() < TOO_MANY {
        match Array::new(LARGE) {
            Ok(array) => all.push(array),
            Err(error) => {
                answer = error.code as usize;
                break;
            }
        }
    }
    let count = all.len();
    all.into_iter().try_for_each(Array::destroy)?;
    Ok([count, answer])
}

/// The limit of the buffer for what kernels print.
fn limit() -> Result<usize, GpuError> {
    let mut bytes = 0;
    // SAFETY: the result is a variable of ours.
    check("cuCtxGetLimit", unsafe { sys::cuCtxGetLimit(&raw mut bytes, CU_LIMIT_PRINTF_FIFO_SIZE) })?;
    Ok(bytes)
}

/// Makes no call until there is a file of this name, which a test makes when it has seen enough.
fn wait_for_the_word(stage: &Stage, file: &Path) -> Result<(), GpuError> {
    stage.report.say("before", json!({}));
    let deadline = Instant::now() + super::PATIENCE;
    while !file.exists() {
        if Instant::now() > deadline {
            return Err(failed("--scene", "no word has come in time"));
        }
        thread::park_timeout(BETWEEN_LOOKS);
    }
    Ok(())
}

/// A context that was reset has no arrays, textures and limits any longer. What is made then is made again, and no other.
pub(super) fn after_a_reset(stage: &Stage) -> Result<Value, GpuError> {
    let usual = limit()?;
    drop(Arrays::new()?);
    // SAFETY: sets a limit of the current context.
    check("cuCtxSetLimit", unsafe { sys::cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 * usual) })?;
    if let Some(file) = std::env::var_os("MPS_PROBE_WORD") {
        wait_for_the_word(stage, Path::new(&file))?;
    }
    let gpu = Gpu::reset(0)?;
    let reset = limit()?;
    let mut arrays = Arrays::new()?;
    arrays.round(&gpu, Stream(null_mut()))?;
    gpu.synchronize()?;
    stage.wait()?;
    let (told, recovered) = (stage.told(), limit()?);
    let mut wrong = arrays.wrong()?;
    for _ in 0..2 {
        arrays.round(&gpu, Stream(null_mut()))?;
        wrong.extend(arrays.wrong()?);
    }
    Ok(json!({ "told": told, "wrong": wrong, "are_usual": [reset == usual, recovered == usual] }))
}

/// An array is destroyed that has a new texture: that one keeps its value, and others have theirs.
pub(super) fn that_ends(stage: &Stage) -> Result<Value, GpuError> {
    let stays = Array::new(Shape { sides: [64, 2, 0], flags: SURFACE, levels: 1 })?;
    if let Some(file) = std::env::var_os("MPS_PROBE_WORD") {
        wait_for_the_word(stage, Path::new(&file))?;
    }
    let ends = Array::new(LARGE)?;
    let first = texture(&array_resource(ends.first_level()))?;
    ends.destroy()?;
    let second = texture(&array_resource(stays.first_level()))?;
    stage.gpu.synchronize()?;
    stage.wait()?;
    let told = stage.told();
    let third = texture(&array_resource(stays.first_level()))?;
    let is_of_the_same = second.array()? == stays.resource_handle();
    let all = values(&[first, second, third]);
    Ok(json!({ "told": told, "values": all, "is_of_the_same": is_of_the_same }))
}

/// Arrays of two descriptions are made and destroyed again and again: what one without memory is answered then.
pub(super) fn twins(stage: &Stage) -> Result<Value, GpuError> {
    const SIDES: [usize; 3] = [64, 64, 0];
    for _ in 0..MANY {
        Array::new(Shape { sides: SIDES, flags: 0, levels: 3 })?.destroy()?;
        Array::new(Shape { sides: SIDES, flags: 0, levels: 1 })?.destroy()?;
    }
    stage.gpu.synchronize()?;
    let flags = sys::CUDA_ARRAY3D_DEFERRED_MAPPING;
    let answer = Array::new(Shape { sides: SIDES, flags, levels: 1 }).map_or_else(|error| error.code, |_| 0);
    Ok(json!({ "without_memory": answer }))
}

/// Copies in a stream's order and a kernel that writes a surface are lost: the array is in doubt, and its program is told.
pub(super) fn lost(stage: &Stage) -> Result<Value, GpuError> {
    let array = Array::new(Shape { sides: [64, 2, 0], flags: 0, levels: 1 })?;
    let bytes = vec![7_u8; array.shape.level_bytes(0)];
    array.write(0, &vec![1_u8; bytes.len()])?;
    stage.gpu.synchronize()?;
    stage.leave(null_mut())?;
    let copied = array.write_in(&bytes, null_mut());
    stage.wait()?;
    let told = stage.told();
    array.write(0, &bytes)?;
    let is_usable = array.read(0)? == bytes;
    Ok(json!({ "told": told, "copied": code(copied), "is_usable": is_usable }))
}

/// A texture of memory that is not mapped where it was, and may be again.
pub(super) fn of_unmapped(stage: &Stage) -> Result<Value, GpuError> {
    const SIZE: usize = 2 << 20;
    let base = map_new(SIZE)?;
    texture(&linear_resource(base, SIZE, false))?;
    stage.gpu.synchronize()?;
    // SAFETY: nothing uses it.
    check("cuMemUnmap", unsafe { sys::cuMemUnmap(base, SIZE) })?;
    stage.report.say("pending", json!({}));
    Ok(json!(super::beside::fault(stage)?))
}

/// A graph with a copy into an array.
pub(super) fn in_a_graph(stage: &Stage) -> Result<Value, GpuError> {
    let array = Array::new(Shape { sides: [64, 2, 0], flags: 0, levels: 1 })?;
    let (mut graph, mut stream) = (null_mut(), null_mut());
    // SAFETY: the results are variables of ours.
    check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, 1) })?;
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: it is ours.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })?;
    let copied = array.write_in(&vec![1_u8; array.shape.level_bytes(0)], stream);
    check("cuMemcpy3DAsync", copied)?;
    // SAFETY: as above.
    check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) })?;
    stage.gpu.synchronize()?;
    stage.report.say("pending", json!({}));
    Ok(json!(super::beside::fault(stage)?))
}
