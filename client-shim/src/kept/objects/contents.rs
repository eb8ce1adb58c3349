//! An image as it is kept: its bytes, and what a module made of it may have that becomes another than in the image.
//!
//! That is looked for once, when it is first asked for, since parts of it may have to be unpacked.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

pub(crate) use remps_gpu_code::{Contents, Place};

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `…_MINOR`.
const MAJOR: u32 = 75;
const MINOR: u32 = 76;

#[derive(Debug)]
struct Kept {
    bytes: Arc<[u8]>,
    contents: OnceLock<Contents>,
}

/// An image. A clone is the same one.
#[derive(Clone, Debug)]
pub(crate) struct Code(Arc<Kept>);

impl<T: Into<Arc<[u8]>>> From<T> for Code {
    fn from(bytes: T) -> Self {
        Self(Arc::new(Kept { bytes: bytes.into(), contents: OnceLock::new() }))
    }
}

impl Deref for Code {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes == other.0.bytes
    }
}

impl Eq for Code {}

impl Code {
    /// What a module made of it may have.
    pub(crate) fn contents(&self) -> &Contents {
        self.0.contents.get_or_init(|| Contents::of(&self.0.bytes, gpus()))
    }
}

/// The GPUs of this process. One of which the driver does not tell its compute capability is any.
fn gpus() -> &'static remps_gpu_code::Gpus {
    static GPUS: OnceLock<remps_gpu_code::Gpus> = OnceLock::new();
    GPUS.get_or_init(|| {
        let mut count = 0;
        let counted = driver!(query::cuDeviceGetCount(&raw mut count)).is_success();
        let capability = |device| {
            let ask = |attribute| {
                let mut value = 0;
                let answer = driver!(query::cuDeviceGetAttribute(&raw mut value, attribute, device));
                u32::try_from(value).ok().filter(|value| answer.is_success() && *value > 0 || attribute == MINOR)
            };
            Some(ask(MAJOR)? * 10 + ask(MINOR)?)
        };
        let all: Option<Vec<u32>> = (0..count).map(capability).collect();
        remps_gpu_code::Gpus::new(all.filter(|_| counted).unwrap_or_default())
    })
}
