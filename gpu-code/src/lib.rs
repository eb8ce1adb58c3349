//! What a module made of an image of GPU code has that may become another than in the image: bytes in, values out.
//!
//! | an image is | looked into by |
//! |---|---|
//! | a cubin: compiled code, an ELF file of machine 190 | [`cubin`] |
//! | a fat binary: several cubins and texts, mostly compressed | [`fat`] |
//! | PTX: a text for the driver's compiler | [`text`] |
//!
//! Whoever keeps a program's state asks this before it trusts a module that was made again. So nothing is left out: what
//! cannot be looked into is said by name ([`Contents::unread`]), and counts as if it had been written.
//!
//! Sources: the layout of cubins, of fat binaries and of their parts is what `ptxas` and `fatbinary` of CUDA 13.5 make of
//! texts of ours, and what CUDA 12's libraries have.
#![forbid(unsafe_code)]

mod cubin;
pub mod fat;
#[cfg(test)]
mod made;
mod text;

use std::collections::{BTreeMap, BTreeSet};

pub use fat::Gpus;

/// First bytes of a cubin.
pub const ELF: [u8; 4] = *b"\x7fELF";
/// First bytes of a fat binary.
pub const FAT: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

/// What a kernel calls to have memory from the device's heap, which ends with its context.
const HEAP: &str = "alloc";
/// What compilers call the texts that they make for messages: nobody writes there.
const MESSAGES: [&str; 5] = ["$str", "_$_str", "__unnamed_", "assert", "printfFormat"];

/// What names of functions have by which kernels launch others: `cudaLaunchDevice`, `__cudaCDP2LaunchDeviceV2`.
const LAUNCHES: [&str; 3] = ["LaunchDevice", "ParameterBuffer", "CDP2"];

/// What a kernel needs of stack of which no compiler says how much it is.
pub const UNKNOWN_STACK: u32 = u32::MAX;

/// Who may write a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Constant memory: nobody who has not asked for its address.
    Constant,
    /// Any kernel of the module.
    Global,
    /// The same, and the host, in memory that moves between them.
    Managed,
}

/// What a module made of an image may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Variables by name: where they are.
    pub variables: BTreeMap<String, Place>,
    /// Bytes of all variables, the most that any part of the image has.
    pub bytes: u64,
    /// Whether kernels allocate from the device's heap.
    pub has_heap: bool,
    /// Kernels that need stack, by name: bytes for a thread, with all that they call, or [`UNKNOWN_STACK`]. Where kernels
    /// launch others it is unknown of all.
    pub stacks: BTreeMap<String, u32>,
    /// What could not be looked into, each by a name that says why.
    pub unread: BTreeSet<String>,
}

impl Contents {
    /// What a module made of this image may have, on one of these GPUs.
    #[must_use]
    pub fn of(image: &[u8], gpus: &Gpus) -> Self {
        if image.starts_with(&ELF) {
            cubin::contents(image)
        } else if image.starts_with(&FAT) {
            fat::contents(image, gpus)
        } else {
            text::contents(&String::from_utf8_lossy(image))
        }
    }

    /// Nothing is known of it.
    #[must_use]
    pub fn unread(why: impl Into<String>) -> Self {
        Self { unread: [why.into()].into(), ..Self::default() }
    }

    /// Whether it has nothing that anybody could write who has not asked for an address.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.unread.is_empty() && !self.has_heap && self.written().next().is_none()
    }

    /// Bytes of stack that a thread of this kernel needs, or [`UNKNOWN_STACK`].
    #[must_use]
    pub fn stack(&self, kernel: &str) -> u32 {
        let known = self.stacks.get(kernel).copied().unwrap_or_default();
        if self.unread.is_empty() { known } else { UNKNOWN_STACK }
    }

    /// Whether all of it is also among another one's.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let is_known = |(name, place): (&String, &Place)| other.variables.get(name).is_some_and(|of| of >= place);
        let is_enough = |(name, bytes): (&String, &u32)| other.stack(name) >= *bytes;
        self.variables.iter().all(is_known)
            && self.stacks.iter().all(is_enough)
            && self.bytes <= other.bytes
            && self.has_heap <= other.has_heap
            && self.unread.is_subset(&other.unread)
    }

    /// Names of the variables that kernels may write without asking for an address.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        let written = self.variables.iter().filter(|(_, place)| **place != Place::Constant);
        written.map(|(name, _)| name.as_str())
    }

    /// Takes in what another part of the same image has: nobody here knows which one the driver takes.
    fn merge(&mut self, other: Self) {
        for (name, place) in other.variables {
            let known = self.variables.entry(name).or_insert(place);
            *known = place.max(*known);
        }
        self.bytes = self.bytes.max(other.bytes);
        self.has_heap |= other.has_heap;
        for (name, bytes) in other.stacks {
            self.needs(&name, bytes);
        }
        self.unread.extend(other.unread);
    }

    /// A kernel needs so much stack.
    fn needs(&mut self, name: &str, bytes: u32) {
        if bytes > 0 {
            let known = self.stacks.entry(name.to_owned()).or_default();
            *known = bytes.max(*known);
        }
    }

    fn add(&mut self, name: &str, place: Place, bytes: u64) {
        let known = self.variables.entry(name.to_owned()).or_insert(place);
        *known = place.max(*known);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Whether a variable of this name that begins with a value and is no other module's is a text of the compiler's.
fn is_message(name: &str) -> bool {
    MESSAGES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a function that the driver provides gives memory of the device's heap.
fn is_heap(name: &str) -> bool {
    name.to_ascii_lowercase().contains(HEAP)
}

/// Whether kernels launch others by a function of this name that the driver provides. Nobody asks for those by their names.
fn is_launch(name: &str) -> bool {
    LAUNCHES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use crate::made::{BITS, FUNCTION, GLOBAL, NO_BITS, WRITABLE, cubin, fat, lz4, part};
    use crate::{Contents, Gpus};

    /// Whatever is changed in an image, looking into it ends, and for one GPU it has no more than for all.
    #[test]
    fn a_changed_byte_harms_nobody() {
        let sections = [(".nv.global", NO_BITS, WRITABLE, 4), (".nv.constant3", BITS, 2, 4)];
        let code = cubin(&sections, &[("a", GLOBAL, 0, 1, 0, 4), ("malloc", FUNCTION, 0, 0, 0, 0)]);
        let text = b".version 8.0\n.target sm_80\n.global .u32 a[2] = {1, 2};\n.entry k() { ret; }\n\0".to_vec();
        let whole = fat(&[
            part(2, 80, 0, &code, code.len()),
            part(2, 90, 0x2000, &lz4(&code), code.len()),
            part(1, 80, 0x2000, &lz4(&text), text.len()),
        ]);
        for image in [code, text, whole] {
            for at in 0..image.len() {
                for change in [1, 0x80, 0xff] {
                    let mut changed = image.clone();
                    changed[at] ^= change;
                    let all = Contents::of(&changed, &Gpus::default());
                    for gpu in [80, 90, 100] {
                        assert!(Contents::of(&changed, &Gpus::new(vec![gpu])).is_within(&all), "{at} {change}");
                    }
                }
            }
        }
    }
}
