//! Events.

macro_rules! event {
    ($then:ident) => {
        $then! {
            event: Event None;
            {
                fn cuEventCreate(event: *mut CUevent, flags: c_uint)
                    then kept::streams::event(written!(event), flags);
                fn cuEventDestroy_v2(event: CUevent): EndsEvent => kept::objects::ends;
                fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent): ReadsEvents;
                fn cuEventQuery(event: CUevent): FinishesEvent;
                fn cuEventRecord(event: CUevent, stream: CUstream) / _ptsz: RecordsEvent;
                fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) / _ptsz: RecordsEvent;
                fn cuEventSynchronize(event: CUevent): FinishesEvent;
            }
            elsewhere {
                fn cuEventDestroy(event: CUevent): EndsEvent => kept::objects::ends;
                fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent): ReadsEvents;
            }
        }
    };
}

event!(describe);
