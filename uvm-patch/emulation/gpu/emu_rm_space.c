// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: address spaces, and which page directory each has. */
#include <linux/kallsyms.h>
#include <linux/workqueue.h>
#include "emu.h"

static NV_STATUS new_space(struct emu_gpu *gpu, uvmGpuAddressSpaceHandle *handle, UvmGpuAddressSpaceInfo *info)
{
	struct emu_space *space = kzalloc(sizeof(*space), GFP_KERNEL);
	static u32 time_register[2];

	if (!space)
		return NV_ERR_NO_MEMORY;
	memset(info, 0, sizeof(*info));
	info->bigPageSize = 64 << 10;
	info->maxSubctxCount = EMU_SUBCONTEXTS;
	info->time0Offset = &time_register[0];
	info->time1Offset = &time_register[1];
	space->gpu = gpu;
	mutex_lock(&emu.lock);
	list_add(&space->node, &gpu->spaces);
	gpu->status.spaces++;
	mutex_unlock(&emu.lock);
	*handle = (void *)space;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceAddressSpaceCreate(uvmGpuDeviceHandle device, unsigned long long base, unsigned long long size,
#ifdef EMU_SPACE_CREATE_HAS_ATS
					   NvBool enable_ats,
#endif
					   uvmGpuAddressSpaceHandle *handle, UvmGpuAddressSpaceInfo *info)
{
	return new_space((void *)device, handle, info);
}

NV_STATUS nvUvmInterfaceDupAddressSpace(uvmGpuDeviceHandle device, NvHandle client, NvHandle user_space,
					uvmGpuAddressSpaceHandle *handle, UvmGpuAddressSpaceInfo *info)
{
	return new_space((void *)device, handle, info);
}

/* Whether the work that runs here is the system's, of closing files. */
static bool in_systems_work(void)
{
	struct work_struct *work = current_work();
	char name[KSYM_SYMBOL_LEN];

	if (!work)
		return false;
	sprint_symbol(name, (unsigned long)work->func);
	return !strncmp(name, "delayed_fput", 12);
}

void nvUvmInterfaceAddressSpaceDestroy(uvmGpuAddressSpaceHandle handle)
{
	struct emu_space *space = (void *)handle;
	struct emu_gpu *gpu = space->gpu;
	struct emu_access *access;

	mutex_lock(&emu.lock);
	list_del(&space->node);
	gpu->status.spaces--;
	gpu->status.torn_down_by_system += in_systems_work();
	/* Work of a dead client runs on, without an address space. */
	list_for_each_entry(access, &gpu->accesses, node) {
		if (access->space == space)
			access->space = NULL;
	}
	mutex_unlock(&emu.lock);
	kfree(space);
}

NV_STATUS nvUvmInterfaceSetPageDirectory(uvmGpuAddressSpaceHandle handle, NvU64 pdb, unsigned int entries, NvBool vid,
#ifdef EMU_PAGE_DIRECTORY_HAS_DMA_ADDRESS
					 NvU32 pasid, NvU64 *dma_address)
#else
					 NvU32 pasid)
#endif
{
	struct emu_space *space = (void *)handle;

#ifdef EMU_PAGE_DIRECTORY_HAS_DMA_ADDRESS
	*dma_address = pdb;
#endif
	mutex_lock(&emu.lock);
	space->pdb = pdb;
	space->pdb_vid = vid;
	space->pdb_set = true;
	emu_tlb_forget(space);
	mutex_unlock(&emu.lock);
	return NV_OK;
}

NV_STATUS nvUvmInterfaceUnsetPageDirectory(uvmGpuAddressSpaceHandle handle)
{
	struct emu_space *space = (void *)handle;

	mutex_lock(&emu.lock);
	space->pdb_set = false;
	emu_tlb_forget(space);
	space->gpu->status.unsets++;
	mutex_unlock(&emu.lock);
	return NV_OK;
}
