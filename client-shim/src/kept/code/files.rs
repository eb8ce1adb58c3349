//! Modules and libraries that the driver reads from files itself.
//!
//! By the time of a recovery a file may be another one, or gone: a compiler's cache overwrites and clears away. So its
//! bytes are kept. The driver has read the same ones if they were there before its call and after it. Of a file that has
//! changed meanwhile, that cannot be read or that is very long the name is kept, and the program is told after a recovery
//! that its module has begun anew.
#![expect(unsafe_code, reason = "reads what the program has given the driver, and what that has written")]

use std::{
    ffi::{CStr, CString, OsStr, c_char, c_uint, c_void},
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
};

use remps_gpu_code::{ELF, FAT};

use super::{libraries, modules};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::{library::cuLibraryLoadFromFile, module::cuModuleLoad},
        result::CUresult,
        types::{CUjit_option, CUlibrary, CUlibraryOption, CUmodule},
    },
    kept::objects::recipes::Image,
    process::settings,
};

/// Longest file whose bytes are kept, in bytes.
const LONGEST: u64 = 64 << 20;

/// A file before the driver reads it.
struct Before {
    path: CString,
    bytes: Option<Vec<u8>>,
}

impl Before {
    /// # Safety
    /// It is null or a C string.
    unsafe fn read(path: *const c_char) -> Result<Self, Bypass> {
        if !settings::is_recording() {
            return Err(Bypass::NotKeeping);
        }
        if path.is_null() {
            return Err(Bypass::ForTheDriver);
        }
        // SAFETY: by the contract.
        let path = unsafe { CStr::from_ptr(path) }.to_owned();
        Ok(Self { bytes: bytes_of(&path), path })
    }

    /// What the driver has read meanwhile.
    fn image(self) -> Image {
        let same = self.bytes.filter(|before| bytes_of(&self.path).is_some_and(|after| after == *before));
        match same {
            Some(mut bytes) => {
                if !bytes.starts_with(&ELF) && !bytes.starts_with(&FAT) {
                    // A text ends with a NUL where it is not in a file.
                    bytes.push(0);
                }
                Image::Bytes(bytes.into())
            }
            None => Image::File(self.path),
        }
    }
}

/// All bytes of a file that is not too long.
fn bytes_of(path: &CStr) -> Option<Vec<u8>> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        // The driver may wait for whoever writes to a pipe, and we may not take from it what is for the driver.
        let path = OsStr::from_bytes(path.to_bytes());
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes)?;
        let is_whole = u64::try_from(bytes.len()).is_ok_and(|length| length <= LONGEST);
        Ok(is_whole.then_some(bytes))
    };
    read().ok().flatten()
}

/// Logic of `cuModuleLoad`.
pub(crate) fn module(
    driver: &mut Driver<cuModuleLoad::Signature>,
    module: *mut CUmodule,
    path: *const c_char,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program gives it to the driver, which reads it as such.
    let before = unsafe { Before::read(path) }?;
    let answer = driver.pass();
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        modules::from_file(unsafe { module.read_unaligned() }, before.image())?;
    }
    Ok(answer)
}

/// Logic of `cuLibraryLoadFromFile`.
#[expect(clippy::too_many_arguments, reason = "the driver's")]
pub(crate) fn library(
    driver: &mut Driver<cuLibraryLoadFromFile::Signature>,
    library: *mut CUlibrary,
    path: *const c_char,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    library_options: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    library_count: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program gives it to the driver, which reads it as such.
    let before = unsafe { Before::read(path) }?;
    let answer = driver.pass();
    if answer.is_success() {
        // SAFETY: the driver has just written there.
        let library = unsafe { library.read_unaligned() };
        let (jit, own) =
            ((count, options.cast_const(), values.cast_const()), (library_count, library_options.cast_const()));
        libraries::library("cuLibraryLoadFromFile", library, Some(before.image()), jit, own)?;
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, fs, io::Write as _};

    use super::{Before, LONGEST, bytes_of};
    use crate::kept::objects::recipes::Image;

    /// What is kept of a file that has `bytes`, if `meanwhile` is done while the driver reads it.
    fn kept(bytes: &[u8], meanwhile: impl FnOnce(&std::path::Path)) -> Image {
        let file = tempfile::NamedTempFile::new().expect("a folder for temporary files");
        fs::write(file.path(), bytes).expect("the file is ours");
        let path = CString::new(file.path().as_os_str().as_encoded_bytes()).expect("it has no NUL");
        let before = Before { bytes: bytes_of(&path), path };
        meanwhile(file.path());
        before.image()
    }

    #[test]
    fn the_bytes_are_kept_of_a_file_that_stays_as_it_is() {
        let text = kept(b".version 8.0", |_| ());
        assert!(matches!(&text, Image::Bytes(code) if **code == *b".version 8.0\0"), "{text:?}");
        let cubin = kept(b"\x7fELF and more", |_| ());
        assert!(matches!(&cubin, Image::Bytes(code) if **code == *b"\x7fELF and more"), "{cubin:?}");
    }

    #[test]
    fn the_name_is_kept_of_a_file_that_changes_or_goes_or_is_very_long() {
        let changed = kept(b".version 8.0", |path| fs::write(path, b".version 8.1").expect("the file is ours"));
        assert!(matches!(changed, Image::File(_)), "{changed:?}");
        let replaced = kept(b".version 8.0", |path| {
            let mut next = tempfile::NamedTempFile::new_in(path.parent().expect("a folder")).expect("a file");
            next.write_all(b"\x7fELF").expect("the file is ours");
            next.persist(path).expect("it takes the name");
        });
        assert!(matches!(replaced, Image::File(_)), "{replaced:?}");
        let gone =
            kept(b".version 8.0", |path| fs::rename(path, path.with_extension("gone")).expect("the file is ours"));
        assert!(matches!(gone, Image::File(_)), "{gone:?}");
        let long = kept(b"", |path| {
            fs::File::options().write(true).open(path).and_then(|file| file.set_len(LONGEST + 1)).expect("it is ours");
        });
        assert!(matches!(long, Image::File(_)), "{long:?}");
    }
}
