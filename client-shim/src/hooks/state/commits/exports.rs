//! `mps_state_…`, in C. The declarations are in `include/mps_shim.h`, which also says what each means.

use std::{
    ffi::{c_char, c_int, c_void},
    time::Duration,
};

use remps_proto::shim::{Answer, Ask, MAX_COMMIT_BYTES, MAX_LABEL_BYTES, MAX_RANGES, Range};

use super::{
    super::linked, CONSTANT, Code, Found, Recovery, SHADOWED, answered, code_of, commit, is_in_doubt, label_of,
    shadows, state, taking_over::succeed,
};
use crate::{daemon::link::Link, kept, process::settings::succession};

/// Takes what a predecessor left under the program's name, if there is anything.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mps_state_adopt(timeout_ms: u32) -> c_int {
    answered(|| succeed(timeout_ms, false))
}

/// The same, but waits while the name has another owner, or none yet.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mps_state_wait_for_activation(timeout_ms: u32) -> c_int {
    answered(|| succeed(timeout_ms, true))
}

/// Notes a range under a label, for the next commit.
///
/// # Safety
/// `label` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mps_state_register(label: *const c_char, address: u64, bytes: u64, flags: u32) -> c_int {
    answered(|| {
        linked().ok_or(Code::Off)?;
        // SAFETY: by the contract.
        let label = unsafe { label_of(label) }?;
        let is_known = matches!(flags, 0 | CONSTANT | SHADOWED);
        // A copy has a longer label.
        let is_too_long = flags == SHADOWED && label.len() >= MAX_LABEL_BYTES;
        if bytes == 0 || !is_known || is_too_long || !kept::is_kept(address, bytes) {
            return Err(Code::Invalid);
        }
        let mut state = state();
        if state.ranges.len() >= MAX_RANGES && !state.ranges.contains_key(&label) {
            return Err(Code::Invalid);
        }
        let range = Range { label: label.clone(), address, bytes, flags: flags.into() };
        let before = state.ranges.insert(label.clone(), range);
        drop(state);
        if before.is_some_and(|before| (before.bytes, before.flags) != (bytes, flags.into())) {
            shadows().retire(&label);
        }
        Ok(())
    })
}

/// Forgets a label, for the next commit.
///
/// # Safety
/// `label` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mps_state_unregister(label: *const c_char) -> c_int {
    answered(|| {
        linked().ok_or(Code::Off)?;
        // SAFETY: by the contract.
        let label = unsafe { label_of(label) }?;
        let removed = state().ranges.remove(&label);
        shadows().retire(&label);
        removed.map(drop).ok_or(Code::Nothing)
    })
}

/// Where the range of a label is.
///
/// # Safety
/// `label` is a C string; there is room for the result.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mps_state_find(label: *const c_char, found: *mut Found) -> c_int {
    answered(|| {
        linked().ok_or(Code::Off)?;
        // SAFETY: by the contract.
        let label = unsafe { label_of(label) }?;
        let state = state();
        let range = state.ranges.get(&label).ok_or(Code::Nothing)?;
        if !found.is_null() {
            let Range { address, bytes, flags, .. } = *range;
            let flags = u32::try_from(flags).unwrap_or(u32::MAX);
            // SAFETY: by the contract.
            unsafe { found.write_unaligned(Found { address, bytes, flags, is_in_doubt: is_in_doubt(range).into() }) };
        }
        Ok(())
    })
}

/// Notes how far the program has come.
///
/// # Safety
/// There are `size` bytes at `data`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mps_state_commit(generation: u64, data: *const c_void, size: usize, timeout_ms: u32) -> c_int {
    answered(|| {
        if size > MAX_COMMIT_BYTES || (data.is_null() && size > 0) {
            return Err(Code::Invalid);
        }
        let mut bytes = vec![0; size];
        if size > 0 {
            // SAFETY: by the contract, and the copy has as much room.
            unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), size) };
        }
        commit(generation, bytes, timeout_ms)
    })
}

/// Writes a shadowed range back as it was at the last commit.
///
/// # Safety
/// `label` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mps_state_restore(label: *const c_char) -> c_int {
    answered(|| {
        linked().ok_or(Code::Off)?;
        // SAFETY: by the contract.
        let label = unsafe { label_of(label) }?;
        let range = state().ranges.get(&label).cloned().ok_or(Code::Nothing)?;
        match shadows().restore(&range) {
            Some(true) => Ok(()),
            Some(false) => Err(Code::Driver),
            None => Err(Code::Nothing),
        }
    })
}

/// What this process has taken over; the last commit's bytes go to `data`.
///
/// # Safety
/// There is room for `size` bytes of the structure and `room` bytes of data.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mps_state_last_recovery(
    recovery: *mut Recovery,
    size: usize,
    data: *mut c_void,
    room: usize,
) -> c_int {
    answered(|| {
        linked().ok_or(Code::Off)?;
        let state = state();
        let found = state.recovery.as_ref().ok_or(Code::Nothing)?;
        if !recovery.is_null() {
            let size = size.min(size_of::<Recovery>());
            // SAFETY: by the contract, and no more than there is.
            unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(found).cast::<u8>(), recovery.cast(), size) };
        }
        if !data.is_null() {
            let size = room.min(state.data.len());
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(state.data.as_ptr(), data.cast(), size) };
        }
        Ok(())
    })
}

/// Forgets everything under the program's name that is its own or nobody's.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mps_state_discard(timeout_ms: u32) -> c_int {
    answered(|| {
        let link: &Link = linked().ok_or(Code::Off)?;
        let name = succession::name().ok_or(Code::Off)?;
        let limit = Duration::from_millis(timeout_ms.into());
        match link.ask(Ask::Discard { name }, limit).and_then(|mut told| told.pop()) {
            Some((Answer::Done { .. }, _)) => Ok(()),
            Some((Answer::Failed(failure), _)) => Err(code_of(failure)),
            _ => Err(Code::NoDaemon),
        }
    })
}

/// A code in words.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mps_state_text(code: c_int) -> *const c_char {
    let known = Code::ALL.iter().find(|(known, _)| *known as c_int == code);
    known.map_or(c"unknown", |(_, text)| *text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_everything_is_off() {
        assert_eq!(mps_state_adopt(0), Code::Off as c_int);
        assert_eq!(mps_state_wait_for_activation(0), Code::Off as c_int);
        assert_eq!(mps_state_discard(0), Code::Off as c_int);
        let mut found = Found { address: 0, bytes: 0, flags: 0, is_in_doubt: 0 };
        let label = c"a".as_ptr();
        // SAFETY: a C string.
        let registered = unsafe { mps_state_register(label, 1, 1, 0) };
        // SAFETY: as above.
        let unregistered = unsafe { mps_state_unregister(label) };
        // SAFETY: as above.
        let restored = unsafe { mps_state_restore(label) };
        // SAFETY: a C string, and room for the result.
        let looked_for = unsafe { mps_state_find(label, &raw mut found) };
        // SAFETY: no data.
        let committed = unsafe { mps_state_commit(1, std::ptr::null(), 0, 0) };
        // SAFETY: no room.
        let asked = unsafe { mps_state_last_recovery(std::ptr::null_mut(), 0, std::ptr::null_mut(), 0) };
        let codes = [registered, unregistered, restored, looked_for, committed, asked];
        assert_eq!(codes, [Code::Off as c_int; 6]);
        assert!(!mps_state_text(99).is_null());
    }
}
