//! Handles for other processes, of the kind before virtual memory management.

macro_rules! ipc {
    ($then:ident) => {
        $then! {
            ipc: Ipc None;
            {
                fn cuIpcCloseMemHandle(dptr: CUdeviceptr) gone(dptr);
                fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent);
                fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, dptr: CUdeviceptr) => kept::memory::pointers::ipc;
                fn cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle) made Ipc(event);
                fn cuIpcOpenMemHandle_v2(
                    pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint,
                ) made Ipc(pdptr);
            }
            elsewhere {
                fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) made Ipc(pdptr);
            }
        }
    };
}

ipc!(describe);
