//! Launches: their configuration, their function, and its arguments.

use super::{Argument, Launched, Pointee, Stage, Untranslatable, is_of_stream, structures::WINDOW};
use crate::cuda::{
    arguments::Subject,
    moved, names,
    types::{CUfunction, CUlaunchAttribute, CUlaunchConfig, CUstream, Key as _, c_uint, c_void},
};

impl Argument for CUfunction {
    type Held = Self;

    fn hold(self, launched: &Launched) -> Result<Self, Untranslatable> {
        let current = names::current_of(self.0);
        launched.stage.set(Stage::Function(current));
        Ok(Self(current))
    }

    fn pass(held: &Self) -> Self {
        *held
    }
}

named!(CUfunction);

// With a function before them in a call they are its arguments, then a list with a buffer of them, then nothing.
impl Pointee for *mut c_void {
    type Copy = moved::Arguments;

    unsafe fn copy(pointer: *const Self, launched: &Launched) -> Result<Option<moved::Arguments>, Untranslatable> {
        Ok(match launched.stage.take() {
            Stage::Function(function) => {
                launched.stage.set(Stage::Arguments);
                // SAFETY: by the contract, as the functions with both arguments are the launches.
                unsafe { moved::arguments(function, pointer) }
            }
            // SAFETY: as above.
            Stage::Arguments => unsafe { moved::buffer(pointer) },
            Stage::None => None,
        })
    }

    fn original(copy: &moved::Arguments) -> *const Self {
        copy.list()
    }
}

/// Attributes with an event in them: `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT`, `…_LAUNCH_COMPLETION_EVENT`.
const WITH_EVENT: [c_uint; 2] = [7, 12];

/// A launch in today's handles.
#[derive(Debug)]
pub(crate) struct Launch {
    config: Box<CUlaunchConfig>,
    /// What the configuration points to.
    _attributes: Vec<CUlaunchAttribute>,
}

impl Pointee for CUlaunchConfig {
    type Copy = Launch;

    unsafe fn copy(pointer: *const Self, _launched: &Launched) -> Result<Option<Launch>, Untranslatable> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: by the contract.
        let mut config = Box::new(unsafe { pointer.read_unaligned() });
        let count = if config.attributes.is_null() { 0 } else { config.attribute_count };
        let mut attributes: Vec<CUlaunchAttribute> = (0..usize::try_from(count).unwrap_or_default())
            // SAFETY: the configuration says that there are so many.
            .map(|at| unsafe { config.attributes.wrapping_add(at).read_unaligned() })
            .collect();
        config.stream = CUstream(names::current_of(config.stream.0));
        let mut is_other = attributes.iter().any(|attribute| WITH_EVENT.contains(&attribute.id));
        for attribute in &mut attributes {
            let first = attribute.value[0];
            attribute.value[0] = match attribute.id {
                id if WITH_EVENT.contains(&id) => names::current_of(first),
                WINDOW => usize::try_from(moved::current_of(first.key())).unwrap_or(first),
                _ => first,
            };
            is_other |= attribute.value[0] != first;
        }
        // Else they stay where they are: the driver writes there which node a device may update.
        if is_other {
            config.attributes = attributes.as_ptr();
        }
        Ok(Some(Launch { config, _attributes: attributes }))
    }

    fn original(copy: &Launch) -> *const Self {
        &raw const *copy.config
    }

    unsafe fn describe(pointer: *const Self, subject: &mut Subject) {
        if !pointer.is_null() {
            // SAFETY: by the contract.
            let config = unsafe { pointer.read_unaligned() };
            is_of_stream(config.stream, subject);
            let count = if config.attributes.is_null() { 0 } else { config.attribute_count };
            for at in 0..usize::try_from(count).unwrap_or_default() {
                // SAFETY: the configuration says that there are so many.
                let attribute = unsafe { config.attributes.wrapping_add(at).read_unaligned() };
                if WITH_EVENT.contains(&attribute.id) {
                    (subject.earlier, subject.event) = (subject.event, attribute.value[0]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::CUlaunchAttributeID_enum::{
        CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
    };

    use super::{CUlaunchAttribute, CUlaunchConfig, Launched, Pointee as _, WITH_EVENT};

    #[test]
    fn events_are_in_the_attributes_in_which_the_header_has_them() {
        let of_the_header = [CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT];
        assert_eq!(of_the_header.map(|id| id as u32), WITH_EVENT);
    }

    /// The driver writes there which node a device may update.
    #[test]
    fn attributes_stay_where_the_program_has_them_where_no_event_is_among_them() {
        // SAFETY: zeros are a launch of nothing, and an attribute that is ignored.
        let (mut config, mut attribute) = unsafe { std::mem::zeroed::<(CUlaunchConfig, CUlaunchAttribute)>() };
        let updatable = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE as u32;
        for (id, stays) in [(updatable, true), (WITH_EVENT[0], false)] {
            attribute.id = id;
            let list = [attribute];
            (config.attributes, config.attribute_count) = (list.as_ptr(), 1);
            // SAFETY: it is such a structure.
            let copy = unsafe { CUlaunchConfig::copy(&raw const config, &Launched::default()) };
            let copy = copy.ok().flatten().expect("it can be translated");
            assert_eq!(copy.config.attributes == list.as_ptr(), stays, "{id}");
        }
    }
}
