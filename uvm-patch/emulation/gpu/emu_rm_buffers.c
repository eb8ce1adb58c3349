// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: the buffers of faults and of access counters. */
#include "emu.h"

NV_STATUS nvUvmInterfaceOwnPageFaultIntr(uvmGpuDeviceHandle device, NvBool own)
{
	WRITE_ONCE(emu.own_intr, own);
	return NV_OK;
}

NV_STATUS nvUvmInterfaceInitFaultInfo(uvmGpuDeviceHandle device, UvmGpuFaultInfo *info)
{
	memset(info, 0, sizeof(*info));
	info->replayable.pFaultBufferGet = &emu.fb_get;
	info->replayable.pFaultBufferPut = &emu.fb_put;
	info->replayable.pFaultBufferInfo = &emu.fb_info;
	info->replayable.pPmcIntr = &emu.intr;
	info->replayable.pPmcIntrEnSet = &emu.intr_set;
	info->replayable.pPmcIntrEnClear = &emu.intr_clear;
	info->replayable.pPrefetchCtrl = &emu.prefetch;
	info->replayable.replayableFaultMask = 1;
	info->replayable.bufferAddress = emu.fb;
	info->replayable.bufferSize = EMU_FAULTS * EMU_PACKET;
#ifdef EMU_FAULT_INFO_HAS_OWNER
	info->replayable.bUvmOwnsHwFaultBuffer = NV_TRUE;
#endif
	info->nonReplayable.bufferSize = EMU_FAULTS * EMU_PACKET;
	info->faultBufferHandle = 1;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceDestroyFaultInfo(uvmGpuDeviceHandle device, UvmGpuFaultInfo *info)
{
	return NV_OK;
}

NV_STATUS nvUvmInterfaceHasPendingNonReplayableFaults(UvmGpuFaultInfo *info, NvBool *pending)
{
	*pending = READ_ONCE(emu.shadow_count) != 0;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceGetNonReplayableFaults(UvmGpuFaultInfo *info, void *buffer, NvU32 *count)
{
	mutex_lock(&emu.lock);
	memcpy(buffer, emu.shadow, (size_t)emu.shadow_count * EMU_PACKET);
	*count = emu.shadow_count;
	emu.shadow_count = 0;
	mutex_unlock(&emu.lock);
	return NV_OK;
}

NV_STATUS nvUvmInterfaceReportNonReplayableFault(uvmGpuDeviceHandle device, const void *packet)
{
	mutex_lock(&emu.lock);
	emu_report_fault(packet);
	mutex_unlock(&emu.lock);
	return NV_OK;
}

NV_STATUS nvUvmInterfaceInitAccessCntrInfo(uvmGpuDeviceHandle device, UvmGpuAccessCntrInfo *info, NvU32 index)
{
	static u32 get, put, full, intr, set, clear;
	static u8 buffer[4096];

	memset(info, 0, sizeof(*info));
	info->pAccessCntrBufferGet = &get;
	info->pAccessCntrBufferPut = &put;
	info->pAccessCntrBufferFull = &full;
	info->pHubIntr = &intr;
	info->pHubIntrEnSet = &set;
	info->pHubIntrEnClear = &clear;
	info->bufferAddress = buffer;
	info->bufferSize = sizeof(buffer);
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
