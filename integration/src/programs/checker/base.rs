//! What all programs of a process share: contexts, kernels, pages of words for kernels that wait.

use super::api::{self, Answer, Api, Failed};
use super::elsewhere::Elsewhere;
use super::machine::memory::{FOR_KERNELS, PAGE, page};
use super::machine::write_word;
use super::program::Program;
use std::ffi::CStr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

pub(in crate::programs) const KERNELS: &str = concat!(include_str!("kernels.ptx"), "\0");
/// Between two looks at the kernel's ticks, of 10 ms each.
const BETWEEN_TICKS: Duration = Duration::from_millis(2);
/// How often a call is made of which the error is none of a program's.
const TRIES: usize = 8;
/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.
const ALREADY_REGISTERED: u32 = 712;
/// Most devices that are used.
pub(super) const MOST_DEVICES: i32 = 2;

/// Functions of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    pub(super) mix: usize,
    /// Reads a texture, writes a surface.
    pub(super) look: usize,
    pub(super) paint: usize,
    pub(super) hold: usize,
    pub(super) oob: usize,
    pub(super) misaligned: usize,
    pub(super) trap: usize,
    neighbour: usize,
}

/// A device as it is used.
#[derive(Debug, Clone, Copy)]
struct Device {
    context: usize,
    kernels: Kernels,
    /// Where the simulated neighbour is waited for.
    fate: usize,
    /// Words of host memory. The page is never freed: who watches for a neighbour in a dead copy of the driver still does when
    /// its device is reset.
    page: usize,
    /// How often it was reset.
    resets: u32,
}

impl Device {
    /// A device's context, current from now on, and what all programs need there, with a page that is the device's already.
    fn new(api: &Api, ordinal: i32, page: usize) -> Answer<Self> {
        let (mut context, mut module, mut fate) = (0, 0, 0);
        api.cuDevicePrimaryCtxRetain(&raw mut context, ordinal)?;
        api.cuCtxSetCurrent(context)?;
        api.cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast())?;
        let function = |name: &CStr| {
            let mut function = 0;
            api.cuModuleGetFunction(&raw mut function, module, name.as_ptr()).map(|()| function)
        };
        let kernels = Kernels {
            mix: function(c"mix")?,
            look: function(c"look")?,
            paint: function(c"paint")?,
            hold: function(c"hold")?,
            oob: function(c"oob")?,
            misaligned: function(c"misaligned")?,
            trap: function(c"trap")?,
            neighbour: function(c"neighbour")?,
        };
        api.cuStreamCreate(&raw mut fate, 1)?;
        // Where this is tried again it may be done.
        let registered = api.cuMemHostRegister_v2(page, PAGE, FOR_KERNELS);
        registered.or_else(|failed| if failed.code == ALREADY_REGISTERED { Ok(()) } else { Err(failed) })?;
        (0..PAGE / 4).for_each(|word| write_word(page + word * 4, 0));
        Ok(Self { context, kernels, fate, page, resets: 0 })
    }
}

/// What all programs share.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) api: &'static Api,
    /// In their order. They change where a program resets one.
    devices: RwLock<Vec<Device>>,
    elsewhere: Elsewhere,
}

/// The kernel's ticks.
#[expect(unsafe_code, reason = "times has no safe wrapper")]
fn ticks() -> i64 {
    let mut times = libc::tms { tms_utime: 0, tms_stime: 0, tms_cutime: 0, tms_cstime: 0 };
    // SAFETY: the result is a variable of ours.
    unsafe { libc::times(&raw mut times) }
}

/// Until all threads that begin from now on have begun later for the kernel too, whose ticks tell the library who was
/// there when work was lost.
pub(super) fn pause() {
    let before = ticks();
    while ticks() <= before + 1 {
        std::thread::park_timeout(BETWEEN_TICKS);
    }
}

/// Makes a call until it succeeds.
pub(super) fn settled(mut call: impl FnMut() -> Answer) -> Answer {
    let mut answer = call();
    for _ in 1..TRIES {
        if answer.is_ok() {
            break;
        }
        answer = call();
    }
    answer
}

impl Base {
    /// With as many devices as there are, and as are asked for.
    pub(super) fn new(most: i32) -> Answer<Self> {
        let api = api::driver().ok_or(Failed { call: "there is no libcuda.so.1", code: 0 })?;
        api.cuInit(0)?;
        let elsewhere = Elsewhere::begin();
        let mut count = 0;
        api.cuDeviceGetCount(&raw mut count)?;
        let ordinals = 0..count.min(most).min(MOST_DEVICES);
        let devices = ordinals.map(|ordinal| Device::new(api, ordinal, page())).collect::<Answer<Vec<Device>>>()?;
        Ok(Self { api, devices: RwLock::new(devices), elsewhere })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Device>) -> T) -> T {
        work(&mut self.devices.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn device(&self, device: u8) -> Device {
        self.devices.read().unwrap_or_else(PoisonError::into_inner)[usize::from(device)]
    }

    /// Resets a device's context.
    pub(super) fn reset(&self, device: u8) -> Answer {
        let page = self.device(device).page;
        // As at any other end the error is dropped, and what is there is no longer of use to anybody.
        let _unregistered = self.api.cuMemHostUnregister(page);
        let answer = self.api.cuDevicePrimaryCtxReset_v2(device.into());
        if answer.is_err() {
            self.api.cuMemHostRegister_v2(page, PAGE, FOR_KERNELS)?;
        }
        answer
    }

    /// What all programs need on a device, after its context was reset.
    pub(super) fn make_again(&self, device: u8) -> Answer {
        let made = Device::new(self.api, device.into(), self.device(device).page)?;
        self.with(|devices| {
            let of = &mut devices[usize::from(device)];
            *of = Device { resets: of.resets + 1, ..made };
        });
        Ok(())
    }

    pub(super) fn devices(&self) -> u8 {
        self.with(|devices| u8::try_from(devices.len()).unwrap_or(1))
    }

    pub(super) fn context(&self, device: u8) -> usize {
        self.device(device).context
    }

    /// How often a device's context was reset.
    pub(super) fn resets(&self, device: u8) -> u32 {
        self.device(device).resets
    }

    pub(super) fn kernels(&self, device: u8) -> Kernels {
        self.device(device).kernels
    }

    /// Address on a device of the word that releases the hold with this index.
    pub(super) fn hold(&self, device: u8, at: usize) -> usize {
        self.device(device).page + at * 4
    }

    /// Releases the hold with this index, wherever it is.
    pub(super) fn release(&self, at: usize) {
        (0..self.devices()).for_each(|device| write_word(self.hold(device, at), 1));
    }

    /// Address of a device's three words for a neighbour.
    pub(super) fn words(&self, device: u8) -> usize {
        self.hold(device, Program::MOST)
    }

    /// Nothing is held, and no neighbour does wrong.
    pub(super) fn begin(&self) {
        for device in 0..self.devices() {
            (0..PAGE / 4).for_each(|word| write_word(self.hold(device, word), 0));
        }
    }

    /// Loads the kernel that fails an assertion, which needs a variable, into the current context: module and function.
    pub(super) fn load_asserting(&self) -> Answer<(usize, usize)> {
        let (mut module, mut function) = (0, 0);
        self.api.cuModuleLoadData(&raw mut module, crate::programs::gpu::KERNELS.as_ptr().cast())?;
        self.api.cuModuleGetFunction(&raw mut function, module, c"assert".as_ptr())?;
        Ok((module, function))
    }

    /// Waits on this thread until all is done and told.
    pub(super) fn settle(&self) -> Answer {
        (0..self.devices()).try_for_each(|device| {
            settled(|| {
                self.api.cuCtxSetCurrent(self.context(device))?;
                self.api.cuCtxSynchronize()
            })
        })
    }

    /// The same, and what is done then is past for all threads that begin from now on.
    pub(super) fn settle_for_good(&self) -> Answer {
        self.settle()?;
        pause();
        Ok(())
    }

    /// Puts a simulated neighbour beside a device. None of the program's threads has to do with it.
    pub(super) fn neighbour(&self, device: u8) -> Answer {
        let (api, word) = (self.api, self.words(device) as u64);
        let Device { context, kernels, fate, .. } = self.device(device);
        let beside = move || {
            api.cuCtxSetCurrent(context)?;
            let mut arguments = [std::ptr::from_ref(&word).cast_mut().cast()];
            let place = arguments.as_mut_ptr();
            api.cuLaunchKernel(kernels.neighbour, 1, 1, 1, 1, 1, 1, 0, fate, place, 0)?;
            api.cuStreamSynchronize(fate)
        };
        self.elsewhere.does(move || settled(beside))
    }
}
