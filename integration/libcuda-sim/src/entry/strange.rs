//! A private table of which nobody outside knows what its functions take. NVIDIA's driver has about a hundred of them;
//! this one is ours alone, and has a function for each thing that a program can pass through such a call.
//!
//! Like two tables of NVIDIA's it lies among the library's variables, on a page that is written later.
#![expect(unsafe_code, reason = "tables of functions, and objects by their addresses")]

use super::launch::function_of;
use super::stream::find;
use crate::abi::{In, Out, enter};
use crate::codes::{Code, Outcome};
use crate::contexts::{current, current_handle};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The table's name.
pub(super) const NAME: &[u8; 16] = b"\x57\x7a\x01\x9e\xd0\x3c\x4b\x66\x8e\x21\x0f\x5d\x93\xb8\x6a\xc4";

/// With the length in front.
const WORDS: usize = 11;

/// The table and what is written beside it.
#[repr(C)]
struct Beside {
    words: [*const c_void; WORDS],
    calls: AtomicU64,
}

// SAFETY: addresses of functions, which never change, and an atomic.
unsafe impl Sync for Beside {}

static TABLE: Beside = Beside {
    words: [
        ptr::without_provenance(WORDS * size_of::<usize>()),
        count as *const c_void,
        stream as *const c_void,
        described as *const c_void,
        make as *const c_void,
        use_made as *const c_void,
        function as *const c_void,
        weigh as *const c_void,
        context as *const c_void,
        found as *const c_void,
        end as *const c_void,
    ],
    // Not zero, so that it lies among what is initialised.
    calls: AtomicU64::new(100),
};

/// Where it lies.
pub(super) fn table() -> *const c_void {
    ptr::from_ref(&TABLE.words).cast()
}

/// 1 for a stream of the current context.
fn is_stream(stream: usize) -> Outcome<u64> {
    let (_, context) = current()?;
    Ok(u64::from(find(&context, stream).is_ok()))
}

/// Words of what a program gets by its address. The library under test looks at as many of what it is given, so what
/// else lies on the heap must not be among them: a smaller object would be judged by its neighbour, whose place changes
/// from run to run.
const WORDS_OF_MADE: usize = 16;
/// An object with this number holds the current context's handle.
const HOLDS_A_CONTEXT: u64 = 0x0b1e_c701;

/// Something that a program gets by its address.
#[repr(C)]
struct Made {
    /// The copy of this library that has made it, by the address of its table.
    owner: usize,
    number: u64,
    /// A context's handle, or nothing.
    context: usize,
    rest: [usize; WORDS_OF_MADE - 3],
}

/// Writes a number that grows from call to call.
extern "C" fn count(number: Out<u64>) -> Code {
    enter("strange count", || number.put(TABLE.calls.fetch_add(1, Ordering::SeqCst)))
}

/// Writes whether a stream of the current context is one.
extern "C" fn stream(stream: usize, is_one: Out<u64>) -> Code {
    enter("strange stream", || is_one.put(is_stream(stream)?))
}

/// The same of a stream in a structure: its size, the stream.
extern "C" fn described(what: In<[usize; 2]>, is_one: Out<u64>) -> Code {
    enter("strange described", || {
        let [size, stream] = what.get()?;
        if size != 16 {
            return Err(Code::INVALID_VALUE);
        }
        is_one.put(is_stream(stream)?)
    })
}

/// Makes an object with a number.
extern "C" fn make(made: Out<usize>, number: u64) -> Code {
    enter("strange make", || {
        let owner = table().addr();
        let context = match number {
            HOLDS_A_CONTEXT => current_handle().ok_or(Code::INVALID_CONTEXT)?,
            _ => 0,
        };
        let object = Made { owner, number, context, rest: [0; WORDS_OF_MADE - 3] };
        made.put(Box::into_raw(Box::new(object)).expose_provenance())
    })
}

/// Writes the number of an object that this copy of the library has made.
extern "C" fn use_made(made: In<Made>, number: Out<u64>) -> Code {
    enter("strange use", || {
        let made = made.get_ref()?;
        if made.owner != table().addr() {
            return Err(Code::INVALID_HANDLE);
        }
        number.put(made.number)
    })
}

/// Ends an object that this copy of the library has made.
extern "C" fn end(made: In<Made>) -> Code {
    enter("strange end", || {
        let object = made.get_ref()?;
        if object.owner != table().addr() {
            return Err(Code::INVALID_HANDLE);
        }
        let place = ptr::from_ref(object).cast_mut();
        // SAFETY: it was made by this library, which nobody else gives back.
        drop(unsafe { Box::from_raw(place) });
        Ok(())
    })
}

/// Gives a function of this library's out.
extern "C" fn function(into: Out<usize>) -> Code {
    enter("strange function", || into.put((count as *const c_void).expose_provenance()))
}

/// Weighs arguments of every kind, in registers and on the stack.
extern "C" fn weigh(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: f64, i: u64) -> f64 {
    let digits = [a, b, c, d, e, f, g, i].into_iter().fold(0, |sum, digit| sum * 10 + digit);
    h + f64::from(u32::try_from(digits).unwrap_or(0))
}

/// Writes the current context's handle.
extern "C" fn context(handle: Out<usize>) -> Code {
    enter("strange context", || -> Outcome { handle.put(current_handle().ok_or(Code::INVALID_CONTEXT)?) })
}

/// Writes the function that counts up, of a module.
extern "C" fn found(module: usize, function: Out<usize>) -> Code {
    enter("strange found", || function.put(function_of(module, "increment")?))
}
