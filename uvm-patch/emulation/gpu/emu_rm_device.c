// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: which GPUs there are, and what they can do. */
#include "emu.h"

struct emu_gpu *emu_gpu_of(const NvProcessorUuid *uuid)
{
	struct emu_gpu *gpu;

	for (gpu = emu.gpus; gpu < emu.gpus + EMU_GPUS; gpu++) {
		if (!memcmp(uuid, &gpu->uuid, sizeof(gpu->uuid)))
			return gpu;
	}
	return NULL;
}

NV_STATUS nvUvmInterfaceRegisterGpu(const NvProcessorUuid *uuid, UvmGpuPlatformInfo *info)
{
	struct emu_gpu *gpu = emu_gpu_of(uuid);

	if (!gpu)
		return NV_ERR_GPU_UUID_NOT_FOUND;
	memset(info, 0, sizeof(*info));
	info->pci_dev = gpu->pci;
	info->dma_addressable_limit = ~0ull;
	return NV_OK;
}

void nvUvmInterfaceUnregisterGpu(const NvProcessorUuid *uuid)
{
}

NV_STATUS nvUvmInterfaceGetGpuInfo(const NvProcessorUuid *uuid, const UvmGpuClientInfo *client, UvmGpuInfo *info)
{
	if (!emu_gpu_of(uuid))
		return NV_ERR_GPU_UUID_NOT_FOUND;
	memset(info, 0, sizeof(*info));
	strscpy(info->name, "emulated", sizeof(info->name));
	info->uuid = *uuid;
	info->gpuArch = emu.kind->arch;
	info->hostClass = emu.kind->host_class;
	info->ceClass = emu.kind->ce_class;
	info->subdeviceCount = 1;
	info->gpcCount = info->maxGpcCount = 4;
	info->tpcCount = 8;
	info->maxTpcPerGpcCount = 5;
	info->sysmemLink = UVM_LINK_TYPE_PCIE;
	info->sysmemLinkRateMBps = 8000;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceDeviceCreate(uvmGpuSessionHandle session, const UvmGpuInfo *info, const NvProcessorUuid *uuid,
				     uvmGpuDeviceHandle *device, NvBool smc)
{
	*device = (void *)emu_gpu_of(uuid);
	return NV_OK;
}

void nvUvmInterfaceDeviceDestroy(uvmGpuDeviceHandle device)
{
}

NV_STATUS nvUvmInterfaceQueryCaps(uvmGpuDeviceHandle device, UvmGpuCaps *caps)
{
	memset(caps, 0, sizeof(*caps));
	return NV_OK;
}

NV_STATUS nvUvmInterfaceQueryCopyEnginesCaps(uvmGpuDeviceHandle device, UvmGpuCopyEnginesCaps *caps)
{
	unsigned int i;

	memset(caps, 0, sizeof(*caps));
	for (i = 0; i < 2; i++) {
		UvmGpuCopyEngineCaps *cap = &caps->copyEngineCaps[i];

		cap->supported = cap->sysmemRead = cap->sysmemWrite = cap->sysmem = cap->p2p = NV_TRUE;
		cap->cePceMask = 1u << i;
	}
	return NV_OK;
}

NV_STATUS nvUvmInterfaceGetFbInfo(uvmGpuDeviceHandle device, UvmGpuFbInfo *info)
{
	memset(info, 0, sizeof(*info));
	info->maxAllocatableAddress = EMU_VIDMEM - EMU_USER_MEM - 1;
	info->heapSize = (EMU_VIDMEM - EMU_USER_MEM) / 1024;
#ifdef EMU_FB_INFO_HAS_PAGE_SIZE
	info->maxVidmemPageSize = EMU_CHUNK;
#endif
	return NV_OK;
}

NV_STATUS nvUvmInterfaceGetEccInfo(uvmGpuDeviceHandle device, UvmGpuEccInfo *info)
{
	memset(info, 0, sizeof(*info));
	return NV_OK;
}
