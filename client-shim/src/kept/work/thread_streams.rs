//! The default streams of this thread, one in each context: what they are called here.
//!
//! The driver has no handle for them, and each is its thread's alone. So each gets a name of ours when its thread first
//! uses it, and ends with the thread; its work goes on, and its capture and its number do not.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::places::{self, PER_THREAD};
use crate::kept::{is_on, objects, objects::end_captures};

/// Contexts with the names of the thread's default streams there.
struct Own(Vec<(usize, usize)>);

thread_local! {
    static OWN: RefCell<Own> = const { RefCell::new(Own(Vec::new())) };
}

/// The name of this thread's default stream in a context. A thread that is ending gets another one each time, of which
/// nothing will be known.
pub(super) fn name(context: usize) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let next = || NEXT.fetch_add(1, Ordering::Relaxed) << 3 | PER_THREAD;
    let known = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        let known = own.0.iter().find(|(of, _)| *of == context).map(|(_, name)| *name);
        known.unwrap_or_else(|| {
            let name = next();
            own.0.push((context, name));
            name
        })
    });
    known.unwrap_or_else(|_| next())
}

impl Drop for Own {
    fn drop(&mut self) {
        // In a forked child another thread may have held the lock.
        if is_on() {
            self.0.iter().filter_map(|(_, name)| places::end(*name)).for_each(places::ended);
            let _not_kept = objects(|objects| self.0.iter().for_each(|(_, name)| objects.ids.forget_stream(*name)));
            let _not_kept = end_captures(|stream, _| self.0.iter().any(|(_, name)| *name == stream));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn each_thread_has_one_in_each_context() {
        let [first, second] = [0xc0, 0xd0].map(name);
        assert_ne!(first, second);
        assert_eq!([0xc0, 0xd0].map(name), [first, second]);
        let other = std::thread::spawn(|| name(0xc0)).join().unwrap();
        assert!(other != first && other != second);
        assert!([first, second, other].iter().all(|name| name & 7 == 2), "no name of anything else");
    }
}
