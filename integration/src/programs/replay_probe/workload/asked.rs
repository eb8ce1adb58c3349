//! What the program has if it is asked for: each is used by rounds from then on, or is in a recovery's way.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{Workload, current};
use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::check;
use crate::programs::replay_probe::{
    arrays::Arrays,
    enumerated::Enumerated,
    failed,
    graphs::{Graphs, leave_a_graph_that_is_not_made_again},
    left,
    pinned::Pinned,
    pools::Pools,
    private::Private,
    settings::Settings,
    variables::Variables,
};
use cudarc::driver::sys;

impl Workload {
    /// Has every round call these private functions.
    pub(in crate::programs::replay_probe) fn ask_for_private_functions(
        &mut self,
        calls: &[String],
    ) -> Result<(), GpuError> {
        self.private = Some(Private::new(calls, self.streams[0], current())?);
        Ok(())
    }

    /// Has variables of a module and of a library.
    pub(in crate::programs::replay_probe) fn ask_for_variables(&mut self) -> Result<(), GpuError> {
        self.variables = Variables::both(self.increment)?;
        Ok(())
    }

    /// Has host memory of the driver's.
    pub(in crate::programs::replay_probe) fn ask_for_host_memory(&mut self) -> Result<(), GpuError> {
        self.pinned = Some(Pinned::new()?);
        Ok(())
    }

    /// Has arrays, textures and surfaces.
    pub(in crate::programs::replay_probe) fn ask_for_arrays(&mut self) -> Result<(), GpuError> {
        self.arrays = Some(Arrays::new()?);
        Ok(())
    }

    /// Has memory of pools.
    pub(in crate::programs::replay_probe) fn ask_for_pools(&mut self) -> Result<(), GpuError> {
        self.pools = Some(Pools::new()?);
        Ok(())
    }

    /// Has its context and streams set.
    pub(in crate::programs::replay_probe) fn ask_for_settings(&mut self) -> Result<(), GpuError> {
        self.settings = Some(Settings::new(self.streams)?);
        Ok(())
    }

    /// Has kernels and functions that it gets in lists.
    pub(in crate::programs::replay_probe) fn ask_for_lists(&mut self) -> Result<(), GpuError> {
        self.enumerated = Some(Enumerated::new()?);
        // What has ended is in nobody's way.
        left::end_a_linker()?;
        left::end_a_shared_event()
    }

    /// Has graphs.
    pub(in crate::programs::replay_probe) fn ask_for_graphs(&mut self) -> Result<(), GpuError> {
        self.graphs = Some(Graphs::new(&self.gpu, self.increment, self.streams)?);
        Ok(())
    }

    /// Has a graph that cannot be made again.
    #[expect(clippy::unused_self, reason = "a context is current once there is a workload")]
    pub(in crate::programs::replay_probe) fn ask_for_a_strange_graph(&self) -> Result<(), GpuError> {
        leave_a_graph_that_is_not_made_again()
    }

    /// Has a context that is not the primary one.
    pub(in crate::programs::replay_probe) fn ask_for_context(&self) -> Result<(), GpuError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the result is a variable of ours.
        check("cuCtxCreate", unsafe { sys::cuCtxCreate_v4(&raw mut context, std::ptr::null_mut(), 0, 0) })?;
        // SAFETY: as above. The one that was current before is so again.
        check("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&raw mut context) })
    }

    /// Starts a thread that waits in the driver for a function of the host's that does not end.
    pub(in crate::programs::replay_probe) fn leave_a_thread_in_the_driver(&self) -> Result<(), GpuError> {
        extern "C" fn wait(_data: *mut std::ffi::c_void) {
            loop {
                std::thread::park();
            }
        }
        let context = self.context();
        let (told, is_in) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let context: sys::CUcontext = std::ptr::with_exposed_provenance_mut(context);
            let mut stream = std::ptr::null_mut();
            // SAFETY: the primary context is retained until the process ends.
            let set = check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) });
            // SAFETY: the result is a variable of ours.
            let made = set.and_then(|()| check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, 1) }));
            // SAFETY: the function waits for ever and touches nothing.
            let answer = made.map(|()| unsafe { sys::cuLaunchHostFunc(stream, Some(wait), std::ptr::null_mut()) });
            // The other side waits for it.
            let _heard = told.send(answer.and_then(|answer| check("cuLaunchHostFunc", answer)));
            let mut priority = 0;
            // SAFETY: the result is a variable of ours. The simulated driver can be told to stay here.
            let _unused = unsafe { sys::cuStreamGetPriority(stream, &raw mut priority) };
            // SAFETY: the stream is this thread's.
            let _never = unsafe { sys::cuStreamSynchronize(stream) };
        });
        is_in.recv().map_err(|error| failed("thread", error))?
    }
}
