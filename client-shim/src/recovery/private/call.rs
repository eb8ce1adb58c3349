//! One call of a private function of which nobody knows what it takes: looked at, translated, made, and looked at again.
//!
//! What stands in a register that the function does not use is taken for an argument, too. That does no harm where it is
//! translated, since nobody reads it, and where it is an address the judgement can only be worse than it has to be. On
//! the stack it is the rule: most functions have all arguments in registers, and their callers' variables follow. So what
//! lies there is translated, and of what it points to only what lies on the stack as well is looked at. For the same
//! reason a handle that is found behind an argument says nothing against a function: a caller's own structure lies behind
//! what is left in a register as often as behind an argument. It is translated where it lies, as long as the call lasts
//! ([`swapped`](super::swapped)).
#![expect(unsafe_code, reason = "functions found by their place in a table")]

use std::{ffi::c_void, ptr};

use super::{
    evidence::{self, Doubt},
    made::{self, Object},
    meaning::{self, Place},
    stubs,
    swapped::Swapped,
    watched::{Frame, REGISTERS},
};
use crate::{
    cuda::{library, result::CUresult},
    kept::{self, code::enumerated},
    process::{log, panics::unpanicked, peek},
    recovery,
};

/// Words on the stack that are looked at as arguments: the longest call that was seen has three there.
const ON_STACK: usize = 4;
const ARGUMENTS: usize = REGISTERS + ON_STACK;
/// Words behind an address that are looked at.
const BEHIND: usize = 16;
/// Words at the beginning of what was given back in which an allocator leaves its marks.
const MARKS: usize = 2;
/// Words behind an address elsewhere than on the stack that may be a result: further on lies what others work on.
const RESULTS: usize = 4;
/// How far above a call what is on its caller's stack may lie.
const REACH: u64 = 1 << 20;
/// What handles of modules are called.
const MODULES: &str = "modules";
/// Codes of the driver's are below.
const CODES: u64 = 1000;

/// What an argument points to.
#[derive(Clone, Copy, Debug)]
struct Behind {
    address: u64,
    words: [u64; BEHIND],
    count: usize,
    is_on_stack: bool,
}

impl Behind {
    fn found(&self) -> &[u64] {
        &self.words[..self.count]
    }

    fn address_of(&self, index: usize) -> u64 {
        self.address + (index * size_of::<u64>()) as u64
    }
}

/// A call as it was passed.
#[derive(Debug)]
struct Passed {
    arguments: [u64; ARGUMENTS],
    behind: Vec<Behind>,
    /// Modules among the arguments, by the program's names.
    modules: Vec<u64>,
    /// Objects among the arguments, with what they begin with.
    objects: Vec<(u64, [u64; MARKS])>,
    has_handle: bool,
}

/// What becomes of a call.
enum Way {
    /// It goes to the copy of this number, which lives or is dead.
    To(u64),
    /// It has what nobody living understands.
    Nowhere,
}

/// Makes the call of a frame.
pub(super) fn make(frame: &mut Frame) {
    let stub = usize::try_from(frame.stub).unwrap_or_default();
    let caller = frame.caller().expose_provenance() as u64;
    // The copy that has given the table out calls a function of its own; or nothing is kept yet, or this is a forked child,
    // which takes no lock of ours.
    if !kept::is_on() || meaning::is_drivers(caller) {
        // SAFETY: the copy has this function in the entry's place.
        return unsafe { frame.invoke(stubs::first(stub)) };
    }
    let name = || meaning::library_around(caller).unwrap_or_default();
    let is_looked_at = unpanicked(|| evidence::begins(stub, name)).unwrap_or(false) || library::generation() > 0;
    let arguments = (frame.registers, frame.stack);
    recovery::aside(&mut || {
        (frame.registers, frame.stack) = arguments;
        if is_looked_at {
            look_and_call(frame, stub);
        } else {
            blindly(frame, stub);
        }
        // A code has no more bits. What else there is was no answer that anything could be learned from.
        match frame.result[0] {
            code @ 0..CODES => CUresult(u32::try_from(code).unwrap_or_default()),
            _ => CUresult::CUDA_SUCCESS,
        }
    });
}

/// A call that nothing is learned from. Handles among the arguments are translated all the same.
fn blindly(frame: &mut Frame, stub: usize) {
    if library::generation() > 0 {
        translate(frame);
    }
    // SAFETY: the program has reached this stub, so it leads to the function that it wants.
    unsafe { frame.invoke(stubs::target(stub)) };
}

fn look_and_call(frame: &mut Frame, stub: usize) {
    let Some(passed) = unpanicked(|| look(frame, stub)).flatten() else {
        return blindly(frame, stub);
    };
    let living = library::generation();
    let Some(Way::To(generation)) = unpanicked(|| way(&passed)) else { return refuse(frame) };
    let (target, _stays_loaded) = if generation == living {
        (stubs::target(stub), None)
    } else {
        let Some(call) = made::Call::begin(generation, stub) else { return refuse(frame) };
        (ptr::with_exposed_provenance_mut::<c_void>(call.target), Some(call))
    };
    let swapped = if living > 0 && generation == living {
        translate(frame);
        unpanicked(|| swap(&passed)).unwrap_or_default()
    } else {
        Swapped::default()
    };
    // SAFETY: as above, or it is where this stub led when the copy lived that has made one of the arguments.
    unsafe { frame.invoke(target) };
    drop(swapped);
    let _learned = unpanicked(|| learn(frame, stub, &passed, generation));
}

/// The call cannot be made.
fn refuse(frame: &mut Frame) {
    log::complain(format_args!("a private function cannot be used after a recovery: CUDA_ERROR_NOT_SUPPORTED (801)"));
    frame.result = [u64::from(CUresult::CUDA_ERROR_NOT_SUPPORTED.0), 0];
}

/// Handles among the arguments become those of the living copy.
fn translate(frame: &mut Frame) {
    for word in frame.registers.iter_mut().chain(&mut frame.stack) {
        *word = meaning::to_driver(*word);
    }
}

/// What is passed; `None` if nobody may look.
fn look(frame: &Frame, stub: usize) -> Option<Passed> {
    let mut arguments = [0; ARGUMENTS];
    let given = frame.registers.iter().chain(&frame.stack);
    arguments.iter_mut().zip(given).for_each(|(argument, given)| *argument = *given);
    let mut passed = Passed {
        arguments,
        behind: Vec::with_capacity(ARGUMENTS),
        modules: Vec::new(),
        objects: Vec::new(),
        has_handle: false,
    };
    let above = frame.above();
    for (index, argument) in arguments.into_iter().enumerate() {
        let is_seen = passed.behind.iter().any(|behind| behind.address == argument);
        // Below the caller's frame is nobody's.
        let is_left = (above.saturating_sub(REACH)..above).contains(&argument);
        let is_on_stack = (above..above + REACH).contains(&argument);
        if let Some(kind) = meaning::handle(argument) {
            passed.has_handle |= index < REGISTERS;
            if kind == MODULES {
                passed.modules.push(argument);
            }
        } else if index < REGISTERS && made::at(argument).is_some() {
            let mut marks = [0; MARKS];
            let _left_empty = peek::read(argument, &mut marks);
            passed.objects.push((argument, marks));
        } else if !is_seen && !is_left && !meaning::is_drivers(argument) && (index < REGISTERS || is_on_stack) {
            let mut words = [0; BEHIND];
            match peek::read(argument, &mut words) {
                Ok(0) => {}
                Ok(count) => {
                    passed.behind.push(Behind { address: argument, words, count, is_on_stack });
                }
                Err(_) => {
                    evidence::is_doubtful(stub, Doubt::CannotLook);
                    return None;
                }
            }
        }
    }
    if passed.has_handle {
        evidence::has_handles(stub);
    }
    for behind in &passed.behind {
        if behind.found().iter().any(|word| meaning::handle(*word).is_some()) {
            evidence::has_handles(stub);
        }
    }
    Some(passed)
}

/// Which copy of the driver understands the call.
fn way(passed: &Passed) -> Way {
    let living = library::generation();
    let objects = passed.objects.iter().filter_map(|(object, _)| made::at(*object));
    let mut dead = objects.filter(|of| of.generation != living);
    let Some(first) = dead.next() else { return Way::To(living) };
    let is_of_one = dead.all(|of| of.generation == first.generation && of.is_hosts_alone());
    if first.is_hosts_alone() && is_of_one && !passed.has_handle { Way::To(first.generation) } else { Way::Nowhere }
}

/// Puts living handles in the place of names in what the arguments point to, until the result goes.
fn swap(passed: &Passed) -> Swapped {
    let mut swapped = Swapped::default();
    for behind in &passed.behind {
        for (index, name) in behind.found().iter().enumerate() {
            swapped.put(behind.address_of(index), *name, meaning::to_driver(*name));
        }
    }
    swapped
}

/// What the call has given.
fn learn(frame: &Frame, stub: usize, passed: &Passed, generation: u64) {
    let answer = frame.result[0];
    for (object, before) in &passed.objects {
        let mut marks = [0; MARKS];
        let is_there = matches!(peek::read(*object, &mut marks), Ok(1..));
        if !is_there || marks != *before {
            made::forget(*object);
        }
    }
    if answer >= CODES {
        evidence::is_doubtful(stub, Doubt::NoCode);
        return;
    }
    if answer == 0 && passed.arguments[..REGISTERS].iter().any(|argument| is_callers_function(*argument)) {
        evidence::is_doubtful(stub, Doubt::FunctionOfTheCaller);
    }
    for behind in &passed.behind {
        let mut now = [0; BEHIND];
        let count = peek::read(behind.address, &mut now).unwrap_or(0).min(behind.count);
        for (index, (before, after)) in behind.words.into_iter().zip(now).take(count).enumerate() {
            let known = meaning::to_driver(before);
            if before == after || known == after {
                // A place with the name of something that has ended may have got what has its handle now.
                if known != before && meaning::is_new(before, known) && is_function(known, passed) {
                    evidence::has_handles(stub);
                }
                continue;
            }
            let name = meaning::to_program(after);
            if name != after {
                let _named = peek::write(behind.address_of(index), name);
            }
            if meaning::is_new(name, after)
                && !is_on_stack(frame.above(), after)
                && (behind.is_on_stack || index < RESULTS)
            {
                given(stub, after, passed, generation);
            }
        }
    }
}

/// Whether an address lies on the stack that a call was made on, as far as that is known.
fn is_on_stack(above: u64, address: u64) -> bool {
    (above.saturating_sub(REACH)..above + REACH).contains(&address)
}

fn is_callers_function(word: u64) -> bool {
    let mut one = [0];
    matches!(peek::read(word, &mut one), Ok(1))
        && meaning::library_around(word).is_some()
        && meaning::place(word) == Place::Code
}

/// Whether a word is a function of a module that was passed: an object like any that was asked for by its name, which is
/// launched by public functions. It is noted.
fn is_function(word: u64, passed: &Passed) -> bool {
    let is_of = |module: &u64| enumerated::has_function(meaning::to_driver(*module), word).unwrap_or(false);
    passed.modules.iter().any(is_of)
}

/// A word has come that was not there before the call.
fn given(stub: usize, word: u64, passed: &Passed, generation: u64) {
    if is_function(word, passed) {
        evidence::has_handles(stub);
        return;
    }
    let mut words = [0; BEHIND];
    let Ok(count @ 1..) = peek::read(word, &mut words) else { return };
    match meaning::place(word) {
        Place::DriversCode | Place::DriversVariable | Place::Device => {
            evidence::is_doubtful(stub, Doubt::AddressOfTheDriver);
        }
        Place::Code | Place::Other | Place::Nothing => {}
        Place::Memory => {
            let holds_handle = words[..count].iter().any(|word| meaning::handle(*word).is_some());
            let object = Object { generation, is_of_handle: passed.has_handle, holds_handle };
            if !made::remember(word, object) {
                evidence::is_doubtful(stub, Doubt::TooManyObjects);
            }
        }
    }
}
