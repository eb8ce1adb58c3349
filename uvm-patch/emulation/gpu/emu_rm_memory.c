// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: its own memory, the GPU's in chunks, and what programs have allocated. */
#include "emu.h"

static NV_STATUS new_mem(NvLength length, UvmGpuPointer *pointer)
{
	struct emu_mem *mem = kzalloc(sizeof(*mem), GFP_KERNEL);

	if (!mem)
		return NV_ERR_NO_MEMORY;
	mem->size = PAGE_ALIGN(length);
	mem->cpu = vzalloc(mem->size);
	if (!mem->cpu) {
		kfree(mem);
		return NV_ERR_NO_MEMORY;
	}
	mutex_lock(&emu.lock);
	mem->gpu_va = emu.next_va;
	emu.next_va += ALIGN(mem->size, 64 << 10);
	list_add(&mem->node, &emu.mems);
	emu.status.mems++;
	mutex_unlock(&emu.lock);
	*pointer = mem->gpu_va;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceMemoryAllocSys(uvmGpuAddressSpaceHandle space, NvLength length, UvmGpuPointer *pointer,
				       UvmGpuAllocInfo *info)
{
	return new_mem(length, pointer);
}

NV_STATUS nvUvmInterfaceMemoryAllocFB(uvmGpuAddressSpaceHandle space, NvLength length, UvmGpuPointer *pointer,
				      UvmGpuAllocInfo *info)
{
	return new_mem(length, pointer);
}

static struct emu_mem *find_mem(u64 gpu_va)
{
	struct emu_mem *mem;

	list_for_each_entry(mem, &emu.mems, node) {
		if (gpu_va - mem->gpu_va < mem->size)
			return mem;
	}
	return NULL;
}

/* The caller holds emu.lock. */
void *emu_rm_ptr(u64 gpu_va, size_t size)
{
	struct emu_mem *mem = find_mem(gpu_va);

	return mem && gpu_va - mem->gpu_va + size <= mem->size ? mem->cpu + (gpu_va - mem->gpu_va) : NULL;
}

NV_STATUS nvUvmInterfaceMemoryCpuMap(uvmGpuAddressSpaceHandle space, UvmGpuPointer pointer, NvLength length,
				     void **cpu, NvU64 page_size)
{
	mutex_lock(&emu.lock);
	*cpu = emu_rm_ptr(pointer, length);
	mutex_unlock(&emu.lock);
	return *cpu ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

void nvUvmInterfaceMemoryCpuUnMap(uvmGpuAddressSpaceHandle space, void *cpu)
{
}

void nvUvmInterfaceMemoryFree(uvmGpuAddressSpaceHandle space, UvmGpuPointer pointer)
{
	struct emu_mem *mem;

	mutex_lock(&emu.lock);
	mem = find_mem(pointer);
	if (mem) {
		list_del(&mem->node);
		emu.status.mems--;
	}
	mutex_unlock(&emu.lock);
	if (mem) {
		vfree(mem->cpu);
		kfree(mem);
	}
}

NV_STATUS nvUvmInterfaceGetPmaObject(uvmGpuDeviceHandle device, void **pma, const UvmPmaStatistics **stats)
{
	*pma = &emu;
	*stats = &emu.pma;
	return NV_OK;
}

NV_STATUS nvUvmInterfacePmaRegisterEvictionCallbacks(void *pma, uvmPmaEvictPagesCallback pages,
						     uvmPmaEvictRangeCallback range, void *data)
{
	return NV_OK;
}

void nvUvmInterfacePmaUnregisterEvictionCallbacks(void *pma)
{
}

NV_STATUS nvUvmInterfacePmaAllocPages(void *pma, NvLength count, NvU64 page_size, UvmPmaAllocationOptions *options,
				      NvU64 *pages)
{
	u64 chunks = (EMU_VIDMEM - EMU_USER_MEM) / EMU_CHUNK, got = 0, i;

	if (page_size != EMU_CHUNK)
		return NV_ERR_NOT_SUPPORTED;
	mutex_lock(&emu.lock);
	for (i = 0; i < chunks && got < count && !emu.no_chunks; i++) {
		if (emu.chunk_used & (1ull << i))
			continue;
		emu.chunk_used |= 1ull << i;
		pages[got++] = i * EMU_CHUNK;
	}
	if (got < count) {
		while (got)
			emu.chunk_used &= ~(1ull << (pages[--got] / EMU_CHUNK));
		mutex_unlock(&emu.lock);
		return NV_ERR_NO_MEMORY;
	}
	emu.status.chunks += got;
	emu.pma.numFreePages2m -= got;
	mutex_unlock(&emu.lock);
	options->numPagesAllocated = got;
	return NV_OK;
}

NV_STATUS nvUvmInterfacePmaPinPages(void *pma, NvU64 *pages, NvLength count, NvU64 page_size, NvU32 flags)
{
	return NV_OK;
}

void nvUvmInterfacePmaFreePages(void *pma, NvU64 *pages, NvLength count, NvU64 page_size, NvU32 flags)
{
	u64 i;

	mutex_lock(&emu.lock);
	for (i = 0; i < count; i++)
		emu.chunk_used &= ~(1ull << (pages[i] / EMU_CHUNK));
	emu.status.chunks -= count;
	emu.pma.numFreePages2m += count;
	mutex_unlock(&emu.lock);
}

/* External memory: a slice of the vidmem that is not UVM's, from its start. */
NV_STATUS nvUvmInterfaceDupMemory(uvmGpuDeviceHandle device, NvHandle client, NvHandle memory, NvHandle *dup,
				  UvmGpuMemoryInfo *info)
{
	memset(info, 0, sizeof(*info));
	info->deviceDescendant = NV_TRUE;
	info->pageSize = memory & 0x10000 ? 4096 : 64 << 10;
	info->contig = NV_TRUE;
	info->physAddr = EMU_VIDMEM - EMU_USER_MEM;
	info->size = (u64)(memory & 0xffff) << 16;
	info->uuid = emu.uuid;
	*dup = memory;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceFreeDupedHandle(uvmGpuDeviceHandle device, NvHandle handle)
{
	return NV_OK;
}

NV_STATUS nvUvmInterfaceGetExternalAllocPtes(uvmGpuAddressSpaceHandle space, NvHandle memory, NvU64 offset, NvU64 size,
					     UvmGpuExternalMappingInfo *info)
{
	u64 page = info->mappingPageSize ? info->mappingPageSize : memory & 0x10000 ? 4096 : 64 << 10;
	u64 room = info->pteBufferSize / 8, i;

	for (i = 0; i < room && i * page < size; i++) {
		u64 phys = EMU_VIDMEM - EMU_USER_MEM + (offset + i * page) % EMU_USER_MEM;

		info->pteBuffer[i] = emu_make_pte(phys, info->mappingType == UvmRmGpuMappingTypeReadOnly);
	}
	info->numWrittenPtes = i;
	info->numRemainingPtes = 0;
	info->pteSize = 8;
	return NV_OK;
}
