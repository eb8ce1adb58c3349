//! What the process has once `cuInit` has succeeded.

use crate::allocations::Ranges;
use crate::arrays::Arrays;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::copies;
use crate::endings;
use crate::entry::foreign::UserObjects;
use crate::entry::private::Ended;
use crate::graphs::Graphs;
use crate::mps::{self, Link};
use crate::pools::Pools;
use crate::ptx::Module;
use crate::stream::Event;
use crate::tables::{Keys, Table};
use crate::used::Used;
use crate::uvm::{self, Descriptor};
use crate::vmm::{self, Allocation};
use crate::wakers;
use remps_proto::mps::client::PROCESS_CONTEXT;
use sim_wire::fault;
use sim_wire::hardware::{self, Device};
use sim_wire::script::Script;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

static DRIVER: OnceLock<Driver> = OnceLock::new();
static INITIALISING: Mutex<()> = Mutex::new(());

/// A device's primary context.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// How often it is retained.
    pub(crate) count: usize,
    /// Flags for the next one.
    pub(crate) flags: u32,
}

/// A library: a module in each context that uses it.
#[derive(Debug)]
pub(crate) struct Library {
    /// Its text.
    pub(crate) image: Vec<u8>,
    /// Handles of its modules by context.
    pub(crate) modules: Table<usize, usize>,
}

/// Everything that has a handle, and the rest that changes.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Contexts by handle.
    pub(crate) contexts: Table<usize, Arc<Context>>,
    /// Primary contexts by device ordinal.
    pub(crate) primaries: Table<u32, Primary>,
    /// Modules by handle.
    pub(crate) modules: Table<usize, Arc<Module>>,
    /// Libraries by handle.
    pub(crate) libraries: Table<usize, Library>,
    /// Kernels of libraries by handle: library and name.
    pub(crate) kernels: Table<usize, (usize, String)>,
    /// Linkers that were begun and have not ended. They link nothing.
    pub(crate) linkers: Keys<usize>,
    /// Names of functions and kernels that were asked for, by handle.
    pub(crate) names: Table<usize, std::ffi::CString>,
    /// Graphs.
    pub(crate) graphs: Graphs,
    /// Their user objects.
    pub(crate) users: UserObjects,
    /// Functions by handle: module and name.
    pub(crate) functions: Table<usize, (Arc<Module>, String)>,
    /// Events by handle.
    pub(crate) events: Table<usize, Arc<Event>>,
    /// Streams' contexts by stream handle, kept after the context is gone.
    pub(crate) streams: Table<usize, usize>,
    /// Handles of functions of unloaded modules, of destroyed events and streams: a new one gets the latest, as from an allocator
    /// of objects.
    pub(crate) spare_functions: Vec<usize>,
    pub(crate) spare_events: Vec<usize>,
    pub(crate) spare_streams: Vec<usize>,
    /// Context-local storage by context and key: the value, and whom to call when the context ends.
    pub(crate) storage: Table<(usize, usize), (usize, Option<Ended>)>,
    /// Green contexts: the device, and the handle of what is a context of it.
    pub(crate) green: Table<usize, (u32, usize)>,
    /// How often contexts were attached and not detached since.
    pub(crate) attached: Table<usize, u32>,
    /// Limits that were set, by context and `CUlimit`.
    pub(crate) context_limits: Table<(usize, usize), usize>,
    /// Attributes that were set, by stream, or context for its default stream, and number.
    pub(crate) stream_attributes: Table<(usize, u32), [u64; 8]>,
    /// VMM allocations by handle.
    pub(crate) allocations: Table<usize, Allocation>,
    /// Reserved address ranges: start and length.
    pub(crate) reservations: Table<usize, usize>,
    /// Mapped memory.
    pub(crate) ranges: Ranges,
    /// Arrays, textures and surfaces.
    pub(crate) arrays: Arrays,
    /// Memory pools.
    pub(crate) pools: Pools,
    /// Which context has enabled access to the memory of which.
    pub(crate) peers: Keys<(usize, usize)>,
    /// Bytes in use by device.
    pub(crate) used: Used,
    /// Pinned memory limit by device, 0 for none.
    pub(crate) limits: Table<u32, u64>,
    /// What a new context gets instead, after an error that sticks to the process.
    forbidden: Option<Code>,
    /// What it will be if the server dies now.
    doomed: Option<Code>,
    next_context: u32,
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The process that called `cuInit`.
    process: u32,
    /// The GPUs.
    pub(crate) devices: Vec<Device>,
    /// From a fault to the culprit's own error.
    pub(crate) own_fault: Duration,
    /// The same of a trap, if nobody has told it by then.
    pub(crate) own_trap: Duration,
    /// From a memory fault to the culprit's own error, if nobody has told it by then.
    pub(crate) own_memory_fault: Duration,
    /// A FIFO that a kernel opens before it does wrong.
    pub(crate) fault_gate: Option<PathBuf>,
    /// How long a copy takes before it touches memory.
    pub(crate) copy_time: Duration,
    /// A FIFO that a kernel opens before it works on memory, while there is one. Meanwhile a file of the same name with
    /// `.here` behind is there.
    pub(crate) work_gate: Option<PathBuf>,
    /// From a memory fault to the tools device's event.
    pub(crate) fault_event: Duration,
    descriptor: Descriptor,
    /// The daemon's socket, under MPS.
    daemon: Option<PathBuf>,
    process_link: Mutex<Option<ProcessLink>>,
    tables: Mutex<Tables>,
    next_handle: AtomicUsize,
}

#[derive(Debug)]
struct ProcessLink {
    _link: Link,
    /// What its server has.
    devices: Vec<u32>,
    is_lost: Arc<AtomicBool>,
}

/// Handles look like pointers, so that a program that confuses them with small numbers is found out. Those of primary
/// contexts come first.
const FIRST_OTHER_HANDLE: usize = 0x10_0000;
const HANDLE_STEP: usize = 0x10;

extern "C" fn at_exit() {
    if let Some(driver) = DRIVER.get()
        && driver.process == std::process::id()
    {
        driver.stop_kernels();
    }
}

/// The driver, in the process that initialised it.
pub(crate) fn driver() -> Outcome<&'static Driver> {
    DRIVER.get().filter(|driver| driver.process == std::process::id()).ok_or(Code::NOT_INITIALIZED)
}

/// `cuInit`. A failed attempt may be repeated.
pub(crate) fn initialise() -> Outcome {
    let _guard = INITIALISING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        // A child of a process that had a driver can't have one.
        return if driver.process == std::process::id() { Ok(()) } else { Err(Code::NOT_INITIALIZED) };
    }
    let script = Script::load();
    copies::take_place()?;
    vmm::note_taken();
    let path = mps::control_path();
    let descriptor = Descriptor::open()?;
    let mut devices = hardware::devices(&script);
    // All that it sees, whether it will have contexts there or not.
    devices.iter().for_each(|device| descriptor.add_device(device.ordinal));
    let daemon = mps::probe(&path)?.then_some(path);
    let process_link = daemon.as_deref().map(|path| ProcessLink::connect(path, &descriptor)).transpose()?;
    if let Some(link) = &process_link {
        devices = hardware::devices_of_server(&script, &link.devices);
    }
    uvm::listen()?;
    wakers::open()?;
    endings::begin()?;
    let (own_trap, own_memory_fault) =
        if daemon.is_some() { (fault::OWN_TOLD, fault::OWN_TOLD) } else { (fault::OWN, fault::SPREAD) };
    let driver = Driver {
        process: std::process::id(),
        devices,
        own_fault: script.milliseconds("MPS_SIM_OWN_FAULT_MS", fault::OWN),
        own_trap: script.milliseconds("MPS_SIM_OWN_FAULT_MS", own_trap),
        own_memory_fault: script.milliseconds("MPS_SIM_OWN_MEMORY_FAULT_MS", own_memory_fault),
        copy_time: script.milliseconds("MPS_SIM_COPY_MS", Duration::ZERO),
        fault_gate: script.text("MPS_SIM_FAULT_GATE").map(PathBuf::from),
        work_gate: script.text("MPS_SIM_WORK_GATE").map(PathBuf::from),
        fault_event: script.number("MPS_SIM_UVM_EVENT_US").map_or(fault::EVENT, Duration::from_micros),
        tables: Mutex::new(Tables { used: Used::new(descriptor.space()), ..Tables::default() }),
        descriptor,
        daemon,
        process_link: Mutex::new(process_link),
        next_handle: AtomicUsize::new(copies::first_handle() + FIRST_OTHER_HANDLE),
    };
    if DRIVER.set(driver).is_ok() {
        register_exit();
    }
    Ok(())
}

#[expect(unsafe_code, reason = "atexit has no safe wrapper")]
fn register_exit() {
    // SAFETY: the handler takes no arguments, does not unwind and touches only a static.
    // A full table of handlers only means that an orderly exit in a kernel looks like a sudden death.
    unsafe { libc::atexit(at_exit) };
}

impl ProcessLink {
    fn connect(path: &std::path::Path, descriptor: &Descriptor) -> Outcome<Self> {
        let mut link = Link::connect(path, PROCESS_CONTEXT)?;
        link.lend(&descriptor.watcher().map_err(|_| Code::OPERATING_SYSTEM)?)?;
        let devices = link.devices()?;
        let is_lost = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_lost);
        link.listen(move |notice| {
            if notice.is_none() {
                flag.store(true, Ordering::SeqCst);
            }
        })?;
        Ok(Self { _link: link, devices, is_lost })
    }
}

impl Driver {
    /// The tables.
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has found a control daemon.
    pub(crate) fn is_under_mps(&self) -> bool {
        self.daemon.is_some()
    }

    /// A handle that nobody has.
    pub(crate) fn new_handle(&self) -> usize {
        self.next_handle.fetch_add(HANDLE_STEP, Ordering::Relaxed)
    }

    /// The device of an ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<&Device> {
        usize::try_from(ordinal).ok().and_then(|index| self.devices.get(index)).ok_or(Code::INVALID_DEVICE)
    }

    /// From now on no context can be made in this process.
    pub(crate) fn forbid_contexts(&self, code: Code) {
        self.tables().forbidden.get_or_insert(code);
    }

    /// A memory fault is on its way to this process.
    pub(crate) fn doom(&self, code: Code) {
        self.tables().doomed.get_or_insert(code);
    }

    /// The server died; if a memory fault was on its way it has arrived all the same.
    pub(crate) fn forbid_if_doomed(&self) {
        let mut tables = self.tables();
        if let Some(code) = tables.doomed {
            tables.forbidden.get_or_insert(code);
        }
    }

    /// Tells of a fatal memory fault on a device.
    pub(crate) fn tell_fault(&self, device: u32, access: uvm::WildAccess) {
        self.descriptor.tell(device, access);
    }

    /// Whether a context of it has failed, or its server has gone.
    pub(crate) fn has_failed(&self) -> bool {
        let contexts: Vec<_> = self.tables().contexts.values().cloned().collect();
        let is_lost = |link: &ProcessLink| link.is_lost.load(Ordering::SeqCst);
        contexts.iter().any(|context| context.check().is_err())
            || self.process_link.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(is_lost)
    }

    /// Notes that a kernel runs for so long.
    pub(crate) fn start_kernel(&self, time: Option<Duration>) -> uvm::Running<'_> {
        self.descriptor.start(time)
    }

    /// All kernels are stopped.
    pub(crate) fn stop_kernels(&self) {
        self.descriptor.stop();
    }

    /// Makes a context under this handle; under MPS it gets a connection of its own.
    pub(crate) fn make_context(&'static self, handle: usize, device: u32) -> Outcome<Arc<Context>> {
        if let Some(code) = self.tables().forbidden {
            return Err(code);
        }
        let Some(path) = &self.daemon else {
            return Ok(self.insert(Context::new(handle, device, 100.0, None)));
        };
        let number = {
            let mut process_link = self.process_link.lock().unwrap_or_else(PoisonError::into_inner);
            if process_link.as_ref().is_none_or(|link| link.is_lost.load(Ordering::SeqCst)) {
                *process_link = None;
                *process_link = Some(ProcessLink::connect(path, &self.descriptor)?);
            }
            let mut tables = self.tables();
            tables.next_context += 1;
            tables.next_context
        };
        let mut link = Link::connect(path, number)?;
        let attached = link.attach(device)?;
        self.tables().limits.insert(device, attached.pinned_limit);
        let weak_context: Arc<OnceLock<std::sync::Weak<Context>>> = Arc::default();
        let listener = Arc::clone(&weak_context);
        link.listen(move |notice| {
            if let Some(context) = listener.wait().upgrade() {
                context.hear(self, notice);
            }
        })?;
        let context = self.insert(Context::new(handle, device, attached.thread_percentage, Some(link)));
        weak_context.set(Arc::downgrade(&context)).expect("it is set only here");
        Ok(context)
    }

    /// It is there from now on.
    pub(crate) fn insert(&self, context: Context) -> Arc<Context> {
        let context = Arc::new(context);
        self.tables().contexts.insert(context.handle, Arc::clone(&context));
        context
    }
}
