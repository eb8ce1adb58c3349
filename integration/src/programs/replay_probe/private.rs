//! Calls of a private table's functions of which nobody knows what they take: the simulated driver's own table, with a
//! function for each thing that a program can pass.
#![expect(unsafe_code, reason = "functions without a public declaration")]

use super::failed;
use crate::programs::gpu::{GpuError, KERNELS, Stream};
use crate::programs::memory_probe::{allocate, check};
use cudarc::driver::sys;

/// The table's name.
const NAME: [u8; 16] = *b"\x57\x7a\x01\x9e\xd0\x3c\x4b\x66\x8e\x21\x0f\x5d\x93\xb8\x6a\xc4";
/// What objects are made with.
const NUMBER: u64 = 0x0b1e_c700;
/// What an object is made with that holds the context's handle.
const HOLDS_A_CONTEXT: u64 = 0x0b1e_c701;

/// Words behind an argument that are looked at, and more.
const BEHIND: usize = 32;
/// Words that the function which is found counts up.
const WORDS: u32 = 64;

/// Registers that a function does not use are given nothing, so that nothing that a compiler has left there is taken for
/// an argument.
type One<A> = extern "C" fn(A, usize, usize, usize, usize, usize) -> u32;
type Two<A, B> = extern "C" fn(A, B, usize, usize, usize, usize) -> u32;

/// The table.
#[repr(C)]
struct Table {
    bytes: usize,
    count: One<*mut u64>,
    stream: Two<usize, *mut u64>,
    described: Two<*const Described, *mut u64>,
    make: Two<*mut usize, u64>,
    use_made: Two<usize, *mut u64>,
    function: One<*mut usize>,
    weigh: extern "C" fn(u64, u64, u64, u64, u64, u64, u64, f64, u64) -> f64,
    context: One<*mut usize>,
    found: Two<usize, *mut usize>,
    end: One<usize>,
}

/// A structure with a handle in it.
#[repr(C)]
struct Described {
    size: usize,
    stream: usize,
}

/// Which of them a program calls in each round, and what it has from before.
pub(super) struct Private {
    table: &'static Table,
    calls: Vec<String>,
    stream: usize,
    context: usize,
    /// Where a structure lies that outlives calls.
    kept: Box<Described>,
    made: usize,
    /// A module, its function as a private function has given it, and the words that this counts up.
    module: usize,
    found: usize,
    words: u64,
}

impl Private {
    /// Known calls.
    pub(super) const CALLS: [&'static str; 15] = [
        "count",
        "stream",
        "described",
        "kept",
        "left",
        "make",
        "hold",
        "brief",
        "next",
        "asked",
        "function",
        "weigh",
        "context",
        "found",
        "anew",
    ];

    /// Makes none yet.
    pub(super) fn new(calls: &[String], stream: Stream, context: usize) -> Result<Self, GpuError> {
        let mut table = std::ptr::null();
        // SAFETY: the result is a variable of ours, the name has sixteen bytes.
        check("cuGetExportTable", unsafe { sys::cuGetExportTable(&raw mut table, NAME.as_ptr().cast()) })?;
        // SAFETY: the driver has just given the table of this name, which stays.
        let table = unsafe { &*table.cast::<Table>() };
        if table.bytes != size_of::<Table>() {
            return Err(failed("cuGetExportTable", "another table"));
        }
        let stream = stream.0.expose_provenance();
        let kept = Box::new(Described { size: size_of::<Described>(), stream });
        let (mut module, words) = (std::ptr::null_mut(), allocate(WORDS as usize * 4)?);
        // SAFETY: the result is a variable of ours, and the image ends with NUL.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast()) })?;
        let module = module.expose_provenance();
        Ok(Self { table, calls: calls.to_vec(), stream, context, kept, made: 0, module, found: 0, words })
    }

    /// All calls once; an answer that is not the right one is an error.
    pub(super) fn round(&mut self) -> Result<(), GpuError> {
        for call in self.calls.clone() {
            let found = self.call(&call);
            if found != (0, true) {
                return Err(failed("a private function", format_args!("{call}: {found:?}")));
            }
        }
        Ok(())
    }

    /// The answer, and whether the result is right.
    fn call(&mut self, call: &str) -> (u32, bool) {
        let table = self.table;
        // What lies behind a result on the stack is looked at, too: nothing else of this program's.
        let mut room = [0_u64; BEHIND];
        let (mut number, mut address) = (0, 0);
        match call {
            "count" => ((table.count)(room.as_mut_ptr(), 0, 0, 0, 0, 0), room[0] >= 100),
            "stream" => ((table.stream)(self.stream, &raw mut number, 0, 0, 0, 0), number == 1),
            "described" => {
                let described = Described { size: size_of::<Described>(), stream: self.stream };
                let answer = (table.described)(&raw const described, &raw mut number, 0, 0, 0, 0);
                // It is the program's own and still says the same.
                (answer, number == 1 && described.stream == self.stream)
            }
            "kept" => {
                let answer = (table.described)(&raw const *self.kept, &raw mut number, 0, 0, 0, 0);
                (answer, number == 1 && self.kept.stream == self.stream)
            }
            // What stands in a register that is no argument's may be a pointer to anything.
            "left" => {
                let left = (&raw const *self.kept).expose_provenance();
                let answer = (table.count)(&raw mut number, 0, 0, 0, left, left);
                (answer, number >= 100 && self.kept.stream == self.stream)
            }
            "make" => self.make_and_use(NUMBER),
            "hold" => self.make_and_use(HOLDS_A_CONTEXT),
            // An object for a moment, as compilers make them.
            "brief" => self.make_use_and_end(NUMBER),
            // The last one's end is the next one's beginning: the copy that has made it may be dead by then.
            "next" if self.made == 0 => self.make_and_use(NUMBER),
            "next" => {
                let ended = self.make_use_and_end(NUMBER);
                if ended == (0, true) { self.make_and_use(NUMBER) } else { ended }
            }
            // As cuBLAS asks for objects of a context: anew in each round, and never ended. It may read what it has got.
            "asked" => {
                let last = std::mem::take(&mut self.made);
                // SAFETY: an object's second word is its number, and whoever has got it may read there.
                let is_there = last == 0 || unsafe { number_of(last).read() } == HOLDS_A_CONTEXT;
                let (answer, is_right) = self.make_and_use(HOLDS_A_CONTEXT);
                (answer, is_right && is_there)
            }
            "function" => ((table.function)(&raw mut address, 0, 0, 0, 0, 0), address != 0),
            "weigh" => {
                let weight = (table.weigh)(1, 2, 3, 4, 5, 6, 7, 0.5, 8);
                (0, (weight - 12_345_678.5).abs() < 0.1)
            }
            "found" if self.found == 0 => self.find(),
            "found" => launched(self.found, self.words),
            // As cuFFT does after an error: the function of another module then, which may have the handle of the last one.
            "anew" => {
                let before = if self.found == 0 { (0, true) } else { launched(self.found, self.words) };
                if before != (0, true) {
                    return before;
                }
                let module = std::ptr::with_exposed_provenance_mut(self.module);
                // SAFETY: nobody else has the module or its function.
                let unloaded = unsafe { sys::cuModuleUnload(module) } as u32;
                let mut module = std::ptr::null_mut();
                // SAFETY: the result is a variable of ours, and the image ends with NUL.
                let loaded = unsafe { sys::cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast()) } as u32;
                self.module = module.expose_provenance();
                if unloaded.max(loaded) != 0 {
                    return (unloaded.max(loaded), false);
                }
                self.find()
            }
            "context" => ((table.context)(&raw mut address, 0, 0, 0, 0, 0), address == self.context),
            _ => (1, false),
        }
    }

    /// Asks for the function, and launches it.
    fn find(&mut self) -> (u32, bool) {
        let answer = (self.table.found)(self.module, &raw mut self.found, 0, 0, 0, 0);
        if answer == 0 { launched(self.found, self.words) } else { (answer, false) }
    }

    /// An object, made once, gives its number.
    fn make_and_use(&mut self, with: u64) -> (u32, bool) {
        let (table, mut number) = (self.table, 0);
        let answer = if self.made == 0 { (table.make)(&raw mut self.made, with, 0, 0, 0, 0) } else { 0 };
        let used = (table.use_made)(self.made, &raw mut number, 0, 0, 0, 0);
        (answer.max(used), number == with)
    }

    /// The same, and it is no more.
    fn make_use_and_end(&mut self, with: u64) -> (u32, bool) {
        let (answer, is_right) = self.make_and_use(with);
        let ended = (self.table.end)(std::mem::take(&mut self.made), 0, 0, 0, 0, 0);
        (answer.max(ended), is_right)
    }
}

/// Where an object's number lies.
fn number_of(object: usize) -> *const u64 {
    std::ptr::with_exposed_provenance(object + size_of::<usize>())
}

/// Counts words up by a function, from nothing; the worst answer, and whether each word is one.
fn launched(function: usize, address: u64) -> (u32, bool) {
    let (mut words, bytes) = ([0_u32; WORDS as usize], WORDS as usize * 4);
    // SAFETY: the driver checks the destination.
    let cleared = unsafe { sys::cuMemsetD8_v2(address, 0, bytes) };
    let (count, function) = (WORDS, std::ptr::with_exposed_provenance_mut(function));
    let mut places = [(&raw const address).cast_mut().cast(), (&raw const count).cast_mut().cast::<std::ffi::c_void>()];
    let (none, stream) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the kernel takes these arguments.
    let given = unsafe { sys::cuLaunchKernel(function, 1, 1, 1, WORDS, 1, 1, 0, stream, places.as_mut_ptr(), none) };
    // SAFETY: the destination is as long as the copy.
    let read = unsafe { sys::cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, bytes) };
    let worst = [cleared, given, read].into_iter().map(|answer| answer as u32).max().unwrap_or_default();
    (worst, words.iter().all(|word| *word == 1))
}
