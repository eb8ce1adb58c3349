//! Objects of which a fresh copy of the driver cannot be given the same, as far as a program sees them come and go: user
//! objects of graphs, multicast objects, texture references, resources of graphics.
//!
//! A user object is there as long as anybody has a reference to it: the program, a graph, what was cloned from it or made
//! executable. Then its function is called, by a thread of the driver's own, as documented. A multicast object is memory like
//! any other here, which any device may be added to. A resource of graphics is any number, since this
//! driver has no other interface to ask: what is registered is not looked at.

use crate::abi::{In, Out, Text, entry_points};
use crate::codes::{Code, Outcome};
use crate::contexts::current;
use crate::driver::{Tables, driver};
use crate::tables::Table;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// `CU_GRAPH_USER_OBJECT_MOVE`: the program's own references become the graph's.
const MOVE: c_uint = 1;

/// A user object.
#[derive(Debug, Clone, Copy)]
struct UserObject {
    destroy: extern "C" fn(*mut c_void),
    data: usize,
    references: u32,
}

/// All of them, and who holds how many references, by graph or executable graph and object.
#[derive(Debug, Default)]
pub(crate) struct UserObjects {
    objects: Table<usize, UserObject>,
    held: Table<(usize, usize), u32>,
}

impl UserObjects {
    fn change(&mut self, object: usize, change: impl FnOnce(u32) -> Option<u32>) -> Outcome {
        let found = self.objects.get_mut(&object).ok_or(Code::INVALID_VALUE)?;
        found.references = change(found.references).ok_or(Code::INVALID_VALUE)?;
        if found.references == 0 {
            let UserObject { destroy, data, .. } = *found;
            self.objects.remove(&object);
            std::thread::spawn(move || destroy(std::ptr::with_exposed_provenance_mut(data)));
        }
        Ok(())
    }

    /// What was made of a graph holds what the graph holds.
    pub(crate) fn hold_as(&mut self, holder: usize, original: usize) {
        let held: Vec<_> =
            self.held.iter().filter(|((of, _), _)| *of == original).map(|(at, held)| (*at, *held)).collect();
        for ((_, object), count) in held {
            self.held.insert((holder, object), count);
            // It is there, since it is held.
            let _ = self.change(object, |references| references.checked_add(count));
        }
    }

    /// A graph or an executable one has ended.
    pub(crate) fn let_go(&mut self, holder: usize) {
        let held: Vec<_> =
            self.held.iter().filter(|((of, _), _)| *of == holder).map(|(at, held)| (*at, *held)).collect();
        for (at, count) in held {
            self.held.remove(&at);
            // As above.
            let _ = self.change(at.1, |references| references.checked_sub(count));
        }
    }
}

/// `CUmulticastObjectProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Multicast {
    devices: c_uint,
    size: usize,
    handle_types: c_ulonglong,
    flags: c_ulonglong,
}

fn of_module(tables: &Tables, module: usize) -> Outcome {
    if tables.modules.contains_key(&module) { Ok(()) } else { Err(Code::INVALID_HANDLE) }
}

/// Registers something of another interface's, whatever it is.
fn register(resource: &Out<usize>) -> Outcome {
    let (driver, _) = current()?;
    resource.put(driver.new_handle())
}

entry_points! {
    fn cuUserObjectCreate(
        place: Out<usize>, data: usize, destroy: Option<extern "C" fn(*mut c_void)>, references: c_uint, _flags: c_uint,
    ) {
        let driver = driver()?;
        let object = UserObject { destroy: destroy.ok_or(Code::INVALID_VALUE)?, data, references };
        let handle = driver.new_handle();
        driver.tables().users.objects.insert(handle, object);
        place.put(handle)
    }

    fn cuUserObjectRetain(object: usize, count: c_uint) {
        driver()?.tables().users.change(object, |references| references.checked_add(count))
    }

    fn cuUserObjectRelease(object: usize, count: c_uint) {
        driver()?.tables().users.change(object, |references| references.checked_sub(count))
    }

    fn cuGraphRetainUserObject(graph: usize, object: usize, count: c_uint, flags: c_uint) {
        let mut tables = driver()?.tables();
        tables.graphs.graph(graph)?;
        let more = if flags & MOVE == 0 { count } else { 0 };
        tables.users.change(object, |references| references.checked_add(more))?;
        *tables.users.held.entry((graph, object)).or_default() += count;
        Ok(())
    }

    fn cuGraphReleaseUserObject(graph: usize, object: usize, count: c_uint) {
        let mut tables = driver()?.tables();
        let held = tables.users.held.get_mut(&(graph, object)).ok_or(Code::INVALID_VALUE)?;
        *held = held.checked_sub(count).ok_or(Code::INVALID_VALUE)?;
        tables.users.change(object, |references| references.checked_sub(count))
    }

    fn cuMulticastCreate(handle: Out<usize>, properties: In<Multicast>) {
        handle.put(super::virtual_memory::on_first_device(properties.get()?.size)?)
    }

    fn cuMulticastAddDevice(handle: usize, device: c_int) {
        let driver = driver()?;
        driver.device(device)?;
        if driver.tables().allocations.contains_key(&handle) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuModuleGetTexRef(reference: Out<usize>, module: usize, _name: Text) {
        let driver = driver()?;
        of_module(&driver.tables(), module)?;
        reference.put(driver.new_handle())
    }

    fn cuGraphicsGLRegisterBuffer(resource: Out<usize>, _buffer: c_uint, _flags: c_uint) {
        register(&resource)
    }

    fn cuGraphicsGLRegisterImage(resource: Out<usize>, _image: c_uint, _target: c_uint, _flags: c_uint) {
        register(&resource)
    }

    fn cuGraphicsEGLRegisterImage(resource: Out<usize>, _image: usize, _flags: c_uint) {
        register(&resource)
    }

    fn cuGraphicsVDPAURegisterVideoSurface(resource: Out<usize>, _surface: c_uint, _flags: c_uint) {
        register(&resource)
    }

    fn cuGraphicsVDPAURegisterOutputSurface(resource: Out<usize>, _surface: c_uint, _flags: c_uint) {
        register(&resource)
    }

    fn cuGraphicsMapResources(count: c_uint, resources: In<usize>, _stream: usize) {
        if count == 0 || resources.is_absent() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    fn cuGraphicsUnregisterResource(resource: usize) {
        if resource == 0 { Err(Code::INVALID_HANDLE) } else { Ok(()) }
    }
}
