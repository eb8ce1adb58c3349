//! Events.
#![expect(unsafe_code, reason = "C functions that are exported and that call the driver")]

use crate::keep::record;

hooks! {
    Event;
    {
        fn cuEventCreate(event: *mut CUevent, flags: c_uint) => record::event;
        fn cuEventDestroy_v2(event: CUevent) => record::event_ends;
        fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent);
        fn cuEventQuery(event: CUevent);
        fn cuEventRecord(event: CUevent, stream: CUstream);
        fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint);
        fn cuEventSynchronize(event: CUevent);
    }
    elsewhere {
        fn cuEventDestroy(event: CUevent) => record::event_ends;
        fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
        fn cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint);
        fn cuEventRecord_ptsz(event: CUevent, stream: CUstream);
    }
}
