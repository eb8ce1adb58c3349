//! Profiler, core dumps, logs.

macro_rules! other {
    ($then:ident) => {
        $then! {
            other: Other None;
            {
                fn cuCoredumpGetAttribute(attrib: CUcoredumpSettings, value: *mut c_void, size: *mut usize);
                fn cuCoredumpGetAttributeGlobal(attrib: CUcoredumpSettings, value: *mut c_void, size: *mut usize);
                fn cuCoredumpSetAttribute(attrib: CUcoredumpSettings, value: *mut c_void, size: *mut usize)
                    then kept::account::counted(name!(), kept::account::Reason::CoreDump, kept::account::number(attrib));
                fn cuCoredumpSetAttributeGlobal(attrib: CUcoredumpSettings, value: *mut c_void, size: *mut usize)
                    then kept::account::counted(name!(), kept::account::Reason::CoreDump, kept::account::number(attrib));
                fn cuDeviceRegisterAsyncNotification(
                    device: CUdevice, callback_func: CUasyncCallback, user_data: *mut c_void,
                    callback: *mut CUasyncCallbackHandle,
                ) made Callback(callback);
                fn cuDeviceUnregisterAsyncNotification(
                    device: CUdevice, callback: CUasyncCallbackHandle,
                ) gone(callback);
                fn cuLogsCurrent(iterator_out: *mut CUlogIterator, flags: c_uint);
                fn cuLogsDumpToFile(iterator: *mut CUlogIterator, path_to_file: *const c_char, flags: c_uint);
                fn cuLogsDumpToMemory(
                    iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint,
                );
                fn cuLogsRegisterCallback(
                    callback_func: CUlogsCallback, user_data: *mut c_void, callback_out: *mut CUlogsCallbackHandle,
                ) made Callback(callback_out);
                fn cuLogsUnregisterCallback(callback: CUlogsCallbackHandle) gone(callback);
                fn cuProfilerInitialize(
                    config_file: *const c_char, output_file: *const c_char, output_mode: CUoutput_mode,
                );
                fn cuProfilerStart();
                fn cuProfilerStop();
            }
            elsewhere {
                fn cuCoredumpDeregisterCompleteCallback(callback: CUcoredumpCallbackHandle) gone(callback);
                fn cuCoredumpDeregisterStartCallback(callback: CUcoredumpCallbackHandle) gone(callback);
                fn cuCoredumpRegisterCompleteCallback(
                    callback: CUcoredumpStatusCallback, user_data: *mut c_void,
                    callback_out: *mut CUcoredumpCallbackHandle,
                ) made Callback(callback_out);
                fn cuCoredumpRegisterStartCallback(
                    callback: CUcoredumpStatusCallback, user_data: *mut c_void,
                    callback_out: *mut CUcoredumpCallbackHandle,
                ) made Callback(callback_out);
            }
        }
    };
}

other!(describe);
