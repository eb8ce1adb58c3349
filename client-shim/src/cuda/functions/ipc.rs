//! Handles for other processes, of the kind before virtual memory management.

macro_rules! ipc {
    ($then:ident) => {
        $then! {
            ipc: Ipc None;
            {
                fn cuIpcCloseMemHandle(dptr: CUdeviceptr) => kept::memory::ipc::close;
                fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) => kept::shared::export;
                fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, dptr: CUdeviceptr) => kept::memory::ipc::export;
                fn cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle) => kept::shared::open;
                fn cuIpcOpenMemHandle_v2(
                    pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint,
                ) => kept::memory::ipc::open;
            }
            elsewhere {
                fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint)
                    => kept::memory::ipc::open;
            }
        }
    };
}

ipc!(describe);
