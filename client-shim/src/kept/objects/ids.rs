//! The numbers by which a program tells contexts and streams apart. The driver gives each its own, and none twice in a
//! process's life; but every copy of it counts from the beginning. So what a program was told of an object stays so, and
//! what it is told of one that it has not asked about before is larger than all that it was told.
#![expect(unsafe_code, reason = "reads and writes the driver's result parameters")]

use std::{collections::BTreeMap, ffi::c_ulonglong};

use super::{current::of_streams, objects};
use crate::{
    cuda::{call::Bypass, library, names, types::CUcontext},
    process::settings,
};

/// Of what a number is, by name. Contexts and streams have numbers of their own each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::kept) enum Object {
    Context(usize),
    /// A default stream is called as where its work is counted.
    Stream(usize),
}

/// What a program was told.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// By object, its number and the context that it ends with.
    told: BTreeMap<Object, (u64, usize)>,
    /// The largest of contexts, and of streams.
    most: [u64; 2],
}

impl Ids {
    /// What to tell of an object of which a copy of the driver, the first one or a later one, says this.
    fn tell(&mut self, object: Object, context: usize, said: u64, is_first_copy: bool) -> u64 {
        let most = &mut self.most[usize::from(matches!(object, Object::Stream(_)))];
        let told = self.told.get(&object).map(|(number, _)| *number).filter(|_| !is_first_copy);
        let number = told.unwrap_or(if is_first_copy { said } else { *most + 1 });
        *most = number.max(*most);
        self.told.insert(object, (number, context));
        number
    }

    /// A stream is gone, by name: another one with its handle is another one.
    pub(in crate::kept) fn forget_stream(&mut self, stream: usize) {
        self.told.remove(&Object::Stream(stream));
    }

    /// A context is gone, by name, and its streams.
    pub(in crate::kept) fn forget_context(&mut self, context: usize) {
        self.told.retain(|_, (_, of)| *of != context);
    }
}

/// After `cuCtxGetId`.
pub(crate) fn context_id(of: CUcontext, id: *mut c_ulonglong) -> Result<(), Bypass> {
    let handle = if of.0 == 0 { of_streams()? } else { of.0 };
    let name = names::name_of(handle);
    corrected(Object::Context(name), name, id)
}

/// What the driver has written of an object is what the program is to be told.
pub(in crate::kept) fn corrected(object: Object, context: usize, id: *mut c_ulonglong) -> Result<(), Bypass> {
    if id.is_null() || !settings::is_recording() {
        return Ok(());
    }
    // SAFETY: the driver has just written there.
    let said = unsafe { id.read_unaligned() };
    let told = objects(|objects| objects.ids.tell(object, context, said, library::generation() == 0))?;
    // SAFETY: as above.
    unsafe { id.write_unaligned(told) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Ids, Object};

    #[test]
    fn what_was_told_stays_and_nothing_else_equals_it() {
        let mut ids = Ids::default();
        let [first, second, third] = [0x10, 0x20, 0x30].map(Object::Stream);
        assert_eq!([(first, 7), (second, 9)].map(|(of, said)| ids.tell(of, 0xc0, said, true)), [7, 9]);
        assert_eq!(ids.tell(first, 0xc0, 12, true), 12, "its handle was given to another stream, unseen");
        assert_eq!(ids.tell(Object::Context(0x10), 0x10, 3, true), 3);
        // The next copy counts from one.
        assert_eq!(
            [(third, 1), (second, 2), (first, 3)].map(|(of, said)| ids.tell(of, 0xc0, said, false)),
            [13, 9, 12]
        );
        ids.forget_stream(0x10);
        assert_eq!(ids.tell(first, 0xc0, 3, false), 14);
        assert_eq!([0x10, 0x11].map(|of| ids.tell(Object::Context(of), of, 1, false)), [3, 4]);
        ids.forget_context(0xc0);
        assert_eq!(ids.told.keys().copied().collect::<Vec<_>>(), [0x10, 0x11].map(Object::Context));
    }
}
