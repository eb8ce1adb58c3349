// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: the buffers of faults and of access counters. */
#include "emu.h"

NV_STATUS nvUvmInterfaceOwnPageFaultIntr(uvmGpuDeviceHandle device, NvBool own)
{
	struct emu_gpu *gpu = (void *)device;

	WRITE_ONCE(gpu->own_intr, own);
	return NV_OK;
}

NV_STATUS nvUvmInterfaceInitFaultInfo(uvmGpuDeviceHandle device, UvmGpuFaultInfo *info)
{
	struct emu_gpu *gpu = (void *)device;

	memset(info, 0, sizeof(*info));
	info->replayable.pFaultBufferGet = &gpu->fb_get;
	info->replayable.pFaultBufferPut = &gpu->fb_put;
	info->replayable.pFaultBufferInfo = &gpu->fb_info;
	info->replayable.pPmcIntr = &gpu->intr;
	info->replayable.pPmcIntrEnSet = &gpu->intr_set;
	info->replayable.pPmcIntrEnClear = &gpu->intr_clear;
	info->replayable.pPrefetchCtrl = &gpu->prefetch;
	info->replayable.replayableFaultMask = 1;
	info->replayable.bufferAddress = gpu->fb;
	info->replayable.bufferSize = EMU_FAULTS * EMU_PACKET;
#ifdef EMU_FAULT_INFO_HAS_OWNER
	info->replayable.bUvmOwnsHwFaultBuffer = NV_TRUE;
#endif
	info->nonReplayable.bufferSize = EMU_FAULTS * EMU_PACKET;
	info->faultBufferHandle = 1 + (NvHandle)(gpu - emu.gpus);
	return NV_OK;
}

NV_STATUS nvUvmInterfaceDestroyFaultInfo(uvmGpuDeviceHandle device, UvmGpuFaultInfo *info)
{
	return NV_OK;
}

/* Of which GPU the driver does not say here. */
static struct emu_gpu *gpu_of_buffer(const UvmGpuFaultInfo *info)
{
	return &emu.gpus[info->faultBufferHandle - 1];
}

NV_STATUS nvUvmInterfaceHasPendingNonReplayableFaults(UvmGpuFaultInfo *info, NvBool *pending)
{
	*pending = READ_ONCE(gpu_of_buffer(info)->shadow_count) != 0;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceGetNonReplayableFaults(UvmGpuFaultInfo *info, void *buffer, NvU32 *count)
{
	struct emu_gpu *gpu = gpu_of_buffer(info);

	mutex_lock(&emu.lock);
	memcpy(buffer, gpu->shadow, (size_t)gpu->shadow_count * EMU_PACKET);
	*count = gpu->shadow_count;
	gpu->shadow_count = 0;
	mutex_unlock(&emu.lock);
	return NV_OK;
}

NV_STATUS nvUvmInterfaceReportNonReplayableFault(uvmGpuDeviceHandle device, const void *packet)
{
	mutex_lock(&emu.lock);
	emu_report_fault((void *)device, packet);
	mutex_unlock(&emu.lock);
	return NV_OK;
}

NV_STATUS nvUvmInterfaceInitAccessCntrInfo(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *info, NvU32 index)
{
	static struct { u32 get, put, full, intr, set, clear; u8 buffer[4096]; } counters[EMU_GPUS];
	typeof(counters[0]) *own = &counters[(struct emu_gpu *)device - emu.gpus];

	memset(info, 0, sizeof(*info));
	info->pAccessCntrBufferGet = &own->get;
	info->pAccessCntrBufferPut = &own->put;
	info->pAccessCntrBufferFull = &own->full;
	info->pHubIntr = &own->intr;
	info->pHubIntrEnSet = &own->set;
	info->pHubIntrEnClear = &own->clear;
	info->bufferAddress = own->buffer;
	info->bufferSize = sizeof(own->buffer);
	info->accessCntrBufferHandle = 1;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceDestroyAccessCntrInfo(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *info)
{
	return NV_OK;
}

NV_STATUS nvUvmInterfaceEnableAccessCntr(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *info,
#ifdef EMU_ACCESS_COUNTER_CONFIG_IS_CONST
					 const UvmGpuAccessCntrConfig *config)
#else
					 UvmGpuAccessCntrConfig *config)
#endif
{
	return NV_OK;
}

NV_STATUS nvUvmInterfaceDisableAccessCntr(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *info)
{
	return NV_OK;
}
