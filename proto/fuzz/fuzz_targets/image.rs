#![no_main]
//! Images of GPU code: for one GPU an image has no more than for all.

use remps_gpu_code::{Contents, Gpus};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let all = Contents::of(data, &Gpus::default());
    for gpu in [80, 90, 100] {
        assert!(Contents::of(data, &Gpus::new(vec![gpu])).is_within(&all));
    }
});
