//! Threads that are begun as after a loss, by the C library's own functions and in all the ways in which they may end.

use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    ptr,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use super::{Start, Work, create, entry, next};
use crate::cuda::{
    descent::Descent,
    threads::{Here, here},
};

/// Longer than any machine takes.
const LIMIT: Duration = Duration::from_secs(60);
/// The last recovery, which has lost work.
const LAST: u64 = 7;

unsafe extern "C-unwind" {
    // `libc` says of none that it may leave by unwinding.
    fn pthread_testcancel();
    fn pthread_exit(result: *mut c_void) -> !;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

fn descent() -> Option<Descent> {
    here(Here::descent)
}

fn begun(start: Start, argument: *mut c_void, attributes: *const libc::pthread_attr_t) -> libc::pthread_t {
    let descent = here(|here| here.begins_another(LAST));
    let next = next().expect("libc has one");
    let mut thread = 0;
    // SAFETY: the threads of these tests take the argument as it is given, and it outlives them.
    let failed = unsafe { create(next, &raw mut thread, attributes, Work { start, argument }, descent) };
    assert_eq!(failed, 0);
    thread
}

fn joined(thread: libc::pthread_t) -> usize {
    let mut result = ptr::null_mut();
    // SAFETY: a thread of the test, which nobody else joins.
    assert_eq!(unsafe { libc::pthread_join(thread, &raw mut result) }, 0);
    result.addr()
}

extern "C-unwind" fn twice(argument: *mut c_void) -> *mut c_void {
    let owes = descent().is_some_and(|descent| descent.owes(LAST));
    ptr::without_provenance_mut(argument.addr() * 2 + usize::from(owes))
}

#[test]
fn a_thread_has_its_argument_and_returns_its_result_and_knows_what_its_creator_knew() {
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(joined(begun(twice, ptr::without_provenance_mut(21), ptr::null())), 43));
        scope.spawn(|| {
            here(|here| here.tell(LAST, 0));
            assert_eq!(joined(begun(twice, ptr::without_provenance_mut(21), ptr::null())), 42);
        });
    });
}

#[test]
fn before_a_loss_a_thread_is_begun_as_if_nobody_looked() {
    extern "C-unwind" fn has_descent(argument: *mut c_void) -> *mut c_void {
        ptr::without_provenance_mut(argument.addr() + usize::from(descent().is_some()))
    }
    let mut thread = 0;
    // SAFETY: the function takes any argument.
    let failed = unsafe { entry(&raw mut thread, ptr::null(), has_descent, ptr::without_provenance_mut(8)) };
    assert_eq!((failed, joined(thread)), (0, 8));
}

#[test]
fn attributes_are_the_threads_own() {
    extern "C-unwind" fn stack(_argument: *mut c_void) -> *mut c_void {
        let mut attributes = MaybeUninit::zeroed();
        // SAFETY: asks for this thread.
        let own = unsafe { libc::pthread_self() };
        // SAFETY: it is this thread, and the attributes are written.
        assert_eq!(unsafe { libc::pthread_getattr_np(own, attributes.as_mut_ptr()) }, 0);
        let mut size = 0;
        // SAFETY: they have just been written.
        unsafe { libc::pthread_attr_getstacksize(attributes.as_ptr(), &raw mut size) };
        // SAFETY: as above.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        ptr::without_provenance_mut(size)
    }
    const SIZE: usize = 256 << 10;
    let mut attributes = MaybeUninit::zeroed();
    // SAFETY: writes them.
    unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
    // SAFETY: they have just been written.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), SIZE) };
    assert_eq!(joined(begun(stack, ptr::null_mut(), attributes.as_ptr())), SIZE);
    // A size that no thread can have: nothing is begun, and the error is the one of libc.
    // SAFETY: as above.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), (usize::MAX / 4) & !0xffff) };
    let next = next().expect("libc has one");
    let (mut thread, descent) = (0, here(|here| here.begins_another(LAST)));
    let work = Work { start: stack, argument: ptr::null_mut() };
    // SAFETY: the function takes any argument.
    let failed = unsafe { create(next, &raw mut thread, attributes.as_ptr(), work, descent) };
    assert!(matches!(failed, libc::EAGAIN | libc::ENOMEM), "{failed}");
}

#[test]
fn a_thread_may_leave_by_pthread_exit() {
    unsafe extern "C-unwind" fn leave(argument: *mut c_void) -> *mut c_void {
        // SAFETY: nothing on this stack has to be dropped.
        unsafe { pthread_exit(argument) }
    }
    assert_eq!(joined(begun(leave, ptr::without_provenance_mut(5), ptr::null())), 5);
}

#[test]
fn a_thread_may_be_cancelled() {
    unsafe extern "C-unwind" fn wait(argument: *mut c_void) -> *mut c_void {
        // SAFETY: the test's, which outlives this thread.
        unsafe { &*argument.cast::<Barrier>() }.wait();
        loop {
            // SAFETY: nothing on this stack has to be dropped.
            unsafe { pthread_testcancel() };
            std::thread::yield_now();
        }
    }
    let has_begun = Barrier::new(2);
    let thread = begun(wait, ptr::from_ref(&has_begun).cast_mut().cast(), ptr::null());
    has_begun.wait();
    // SAFETY: it has begun, and nobody has joined it.
    assert_eq!(unsafe { pthread_cancel(thread) }, 0);
    // `PTHREAD_CANCELED`.
    assert_eq!(joined(thread), usize::MAX);
}

#[test]
fn a_detached_thread_is_one() {
    extern "C-unwind" fn tell(argument: *mut c_void) -> *mut c_void {
        // SAFETY: the test's, given to this thread.
        let say = unsafe { Box::from_raw(argument.cast::<Sender<Option<Descent>>>()) };
        say.send(descent()).expect("the test listens");
        ptr::null_mut()
    }
    let (say, heard) = channel::<Option<Descent>>();
    let say = Box::into_raw(Box::new(say));
    let mut attributes = MaybeUninit::zeroed();
    // SAFETY: writes them.
    unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
    // SAFETY: they have just been written.
    unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
    begun(tell, say.cast(), attributes.as_ptr());
    let descent = heard.recv_timeout(LIMIT).expect("it begins");
    assert!(descent.is_some_and(|descent| descent.owes(LAST)));
}

#[test]
fn many_threads_at_once_have_each_their_own() {
    const CREATORS: usize = 8;
    const EACH: usize = 64;
    extern "C-unwind" fn tell(argument: *mut c_void) -> *mut c_void {
        // SAFETY: the test's, which outlives this thread.
        unsafe { &*argument.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
        ptr::without_provenance_mut(usize::from(descent().is_some_and(|descent| descent.owes(LAST))))
    }
    let arrived = AtomicUsize::new(0);
    let argument = &arrived;
    std::thread::scope(|scope| {
        for number in 0..CREATORS {
            scope.spawn(move || {
                let knows = number % 2 == 0;
                if knows {
                    here(|here| here.tell(LAST, 0));
                }
                let place = || ptr::from_ref(argument).cast_mut().cast();
                let threads: Vec<_> = (0..EACH).map(|_| begun(tell, place(), ptr::null())).collect();
                let owing: usize = threads.into_iter().map(joined).sum();
                assert_eq!(owing, if knows { 0 } else { EACH });
            });
        }
    });
    assert_eq!(arrived.into_inner(), CREATORS * EACH);
}
