//! The first contexts of several devices, made side by side.
//!
//! Making a context is most of a recovery's time, and a process that has contexts on several GPUs needs one on each. The
//! driver makes the contexts of one GPU one after the other, whoever asks; those of different ones need not wait for each
//! other here. So each device but the first has a thread of this library's that asks for its context, and the thread that
//! recovers asks for the first one and waits for the others: nobody may be in the driver when it goes on.
//!
//! What comes of it is looked at in the order of devices, so it is the first one's error that counts, as if one had been made
//! after the other. With one device nothing is begun, nor for devices that the program has no context on.

use std::{collections::BTreeMap, sync::mpsc};

use super::memory::{Failed, MAKES_CONTEXT};
use crate::{
    cuda::{
        belongings, gate,
        result::CUresult,
        threads,
        types::{CUcontext, CUdevice},
    },
    process::{glibc, panics::unpanicked},
};

/// A device's first context, and how often its server was not ready.
pub(super) type First = (Result<CUcontext, Failed>, u32);

/// Makes the first context of each of these devices.
pub(super) fn first_contexts<F>(devices: &[CUdevice], make: F) -> BTreeMap<CUdevice, First>
where
    F: Fn(CUdevice) -> First + Copy + Send + 'static,
{
    let [own, others @ ..] = devices else { return BTreeMap::new() };
    let asked: Vec<_> = others.iter().map(|device| (*device, begun(*device, make))).collect();
    let first = make(*own);
    let mut made: BTreeMap<_, _> =
        asked.into_iter().map(|(device, told)| (device, outcome(device, told, make))).collect();
    made.insert(*own, first);
    made
}

/// Has a thread ask for a device's context; `None` if there can be none.
fn begun(device: CUdevice, make: impl Fn(CUdevice) -> First + Send + 'static) -> Option<mpsc::Receiver<First>> {
    let (tell, told) = mpsc::sync_channel(1);
    let ask = move || {
        let _as_long_as_it_takes = belongings::Ours::begin();
        let made = threads::here(|here| gate::behind(&here.passer, || make(device)));
        // Somebody waits for it.
        let _heard = tell.send(made);
    };
    let has_begun = glibc::detached_thread(Box::new(|| {
        let _ended = unpanicked(ask);
    }));
    has_begun.then_some(told)
}

/// What has come of it. Where there was no thread for it, it is done now.
fn outcome(device: CUdevice, told: Option<mpsc::Receiver<First>>, make: impl FnOnce(CUdevice) -> First) -> First {
    let lost = || (Err(Failed { call: MAKES_CONTEXT, answer: CUresult::CUDA_ERROR_UNKNOWN }), 0);
    told.map_or_else(|| make(device), |told| told.recv().unwrap_or_else(|_ended| lost()))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Condvar, Mutex},
        thread,
        time::Duration,
    };

    use super::*;

    /// How many are being made, and how many of them have met.
    static MEETING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

    /// A context that is made only while those of two other devices are.
    fn meets(device: CUdevice) -> First {
        let (count, changed) = &MEETING;
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let (_count, waited) = changed.wait_timeout_while(count, Duration::from_secs(60), |count| *count < 3).unwrap();
        assert!(!waited.timed_out(), "they are made one after the other");
        (Ok(CUcontext(100 + usize::try_from(device).unwrap())), u32::try_from(device).unwrap())
    }

    #[test]
    fn contexts_of_several_devices_are_made_at_the_same_time_and_told_by_device() {
        let made = first_contexts(&[0, 3, 5], meets);
        let told: Vec<_> = made.into_iter().map(|(device, (made, tries))| (device, made.unwrap().0, tries)).collect();
        assert_eq!(told, [(0, 100, 0), (3, 103, 3), (5, 105, 5)]);
    }

    #[test]
    fn one_device_needs_no_thread_and_none_nothing() {
        static MAKER: Mutex<Option<thread::ThreadId>> = Mutex::new(None);
        let make = |_| {
            *MAKER.lock().unwrap() = Some(thread::current().id());
            (Ok(CUcontext(1)), 0)
        };
        assert!(first_contexts(&[], make).is_empty() && MAKER.lock().unwrap().is_none());
        assert_eq!(first_contexts(&[4], make).len(), 1);
        assert_eq!(*MAKER.lock().unwrap(), Some(thread::current().id()));
    }

    #[test]
    fn a_thread_that_ends_without_a_word_has_made_nothing() {
        let failing = |device| if device == 1 { panic!("as if") } else { (Ok(CUcontext(1)), 0) };
        let made = first_contexts(&[0, 1], failing);
        assert!(made[&0].0.is_ok() && made[&1].0.is_err());
    }
}
