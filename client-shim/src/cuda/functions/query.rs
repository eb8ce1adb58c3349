//! What a program may ask of the driver and its devices: nothing is made and nothing is used up.

macro_rules! query {
    ($then:ident) => {
        $then! {
            query: Query None;
            {
                fn cuDeviceCanAccessPeer(can_access_peer: *mut c_int, dev: CUdevice, peer_dev: CUdevice);
                fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice);
                fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
                fn cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice);
                fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pci_bus_id: *const c_char);
                fn cuDeviceGetCount(count: *mut c_int);
                fn cuDeviceGetExecAffinitySupport(pi: *mut c_int, type_: CUexecAffinityType, dev: CUdevice);
                fn cuDeviceGetHostAtomicCapabilities(
                    capabilities: *mut c_uint, operations: *const CUatomicOperation, count: c_uint, dev: CUdevice,
                );
                fn cuDeviceGetLuid(luid: *mut c_char, device_node_mask: *mut c_uint, dev: CUdevice);
                fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice);
                fn cuDeviceGetP2PAtomicCapabilities(
                    capabilities: *mut c_uint, operations: *const CUatomicOperation, count: c_uint,
                    src_device: CUdevice, dst_device: CUdevice,
                );
                fn cuDeviceGetP2PAttribute(
                    value: *mut c_int, attrib: CUdevice_P2PAttribute, src_device: CUdevice, dst_device: CUdevice,
                );
                fn cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: CUdevice);
                fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice);
                fn cuDeviceGetTexture1DLinearMaxWidth(
                    max_width_in_elements: *mut usize, format: CUarray_format, num_channels: c_uint, dev: CUdevice,
                );
                fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice);
                fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
                fn cuDriverGetVersion(driver_version: *mut c_int);
                fn cuFlushGPUDirectRDMAWrites(
                    target: CUflushGPUDirectRDMAWritesTarget, scope: CUflushGPUDirectRDMAWritesScope,
                );
                fn cuGetErrorName(error: CUresult, str: *mut *const c_char) then lasting!(str);
                fn cuGetErrorString(error: CUresult, str: *mut *const c_char) then lasting!(str);
                fn cuGetExportTable(
                    export_table: *mut *const c_void, export_table_id: *const CUuuid,
                ) => recovery::private::hand_out;
            }
            elsewhere {
                fn cuDeviceGetCliqueCount(count: *mut usize, dev: CUdevice);
                fn cuDeviceGetCliqueInfo(clique_info: *mut CUcliqueInfo, count: *mut usize, dev: CUdevice);
                fn cuDeviceGetFabricClusterUuid(uuid: *mut CUuuid, dev: CUdevice);
                fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice);
            }
        }
    };
}

query!(describe);
