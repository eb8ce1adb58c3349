#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| remps_proto_fuzz::join(data));
