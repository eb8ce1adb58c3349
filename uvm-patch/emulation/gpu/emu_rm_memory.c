// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: its own memory, the GPU's in chunks, and what programs have allocated. */
#include "emu.h"

/* lent: of another GPU; NULL for memory of its own. */
static NV_STATUS new_mem(struct emu_gpu *gpu, NvLength length, void *lent, UvmGpuPointer *pointer)
{
	struct emu_mem *mem = kzalloc(sizeof(*mem), GFP_KERNEL);

	if (!mem)
		return NV_ERR_NO_MEMORY;
	mem->size = PAGE_ALIGN(length);
	mem->borrowed = lent;
	mem->cpu = lent ? lent : vzalloc(mem->size);
	if (!mem->cpu) {
		kfree(mem);
		return NV_ERR_NO_MEMORY;
	}
	mutex_lock(&emu.lock);
	mem->gpu_va = gpu->next_va;
	gpu->next_va += ALIGN(mem->size, 64 << 10);
	list_add(&mem->node, &gpu->mems);
	gpu->status.mems++;
	mutex_unlock(&emu.lock);
	*pointer = mem->gpu_va;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceMemoryAllocSys(uvmGpuAddressSpaceHandle space, NvLength length, UvmGpuPointer *pointer,
				       UvmGpuAllocInfo *info)
{
	return new_mem(((struct emu_space *)space)->gpu, length, NULL, pointer);
}

NV_STATUS nvUvmInterfaceMemoryAllocFB(uvmGpuAddressSpaceHandle space, NvLength length, UvmGpuPointer *pointer,
				      UvmGpuAllocInfo *info)
{
	return new_mem(((struct emu_space *)space)->gpu, length, NULL, pointer);
}

static struct emu_mem *find_mem(struct emu_gpu *gpu, u64 gpu_va)
{
	struct emu_mem *mem;

	list_for_each_entry(mem, &gpu->mems, node) {
		if (gpu_va - mem->gpu_va < mem->size)
			return mem;
	}
	return NULL;
}

/* The caller holds emu.lock. */
void *emu_rm_ptr(struct emu_gpu *gpu, u64 gpu_va, size_t size)
{
	struct emu_mem *mem = find_mem(gpu, gpu_va);

	return mem && gpu_va - mem->gpu_va + size <= mem->size ? mem->cpu + (gpu_va - mem->gpu_va) : NULL;
}

NV_STATUS nvUvmInterfaceDupAllocation(uvmGpuAddressSpaceHandle from, NvU64 address, uvmGpuAddressSpaceHandle to,
				      NvU64 alignment, NvU64 *pointer)
{
	struct emu_mem *mem;

	mutex_lock(&emu.lock);
	mem = find_mem(((struct emu_space *)from)->gpu, address);
	mutex_unlock(&emu.lock);
	/* Its owner gives it back last. */
	return mem ? new_mem(((struct emu_space *)to)->gpu, mem->size, mem->cpu, pointer) : NV_ERR_INVALID_ADDRESS;
}

NV_STATUS nvUvmInterfaceMemoryCpuMap(uvmGpuAddressSpaceHandle space, UvmGpuPointer pointer, NvLength length,
				     void **cpu, NvU64 page_size)
{
	mutex_lock(&emu.lock);
	*cpu = emu_rm_ptr(((struct emu_space *)space)->gpu, pointer, length);
	mutex_unlock(&emu.lock);
	return *cpu ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

void nvUvmInterfaceMemoryCpuUnMap(uvmGpuAddressSpaceHandle space, void *cpu)
{
}

void nvUvmInterfaceMemoryFree(uvmGpuAddressSpaceHandle space, UvmGpuPointer pointer)
{
	struct emu_gpu *gpu = ((struct emu_space *)space)->gpu;
	struct emu_mem *mem;

	mutex_lock(&emu.lock);
	mem = find_mem(gpu, pointer);
	if (mem) {
		list_del(&mem->node);
		gpu->status.mems--;
	}
	mutex_unlock(&emu.lock);
	if (mem) {
		if (!mem->borrowed)
			vfree(mem->cpu);
		kfree(mem);
	}
}

NV_STATUS nvUvmInterfaceGetPmaObject(uvmGpuDeviceHandle device, void **pma, const UvmPmaStatistics **stats)
{
	struct emu_gpu *gpu = (void *)device;

	*pma = gpu;
	*stats = &gpu->pma;
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
	struct emu_gpu *gpu = pma;
	u64 chunks = (EMU_VIDMEM - EMU_USER_MEM) / EMU_CHUNK, got = 0, i;

	if (page_size != EMU_CHUNK)
		return NV_ERR_NOT_SUPPORTED;
	mutex_lock(&emu.lock);
	for (i = 0; i < chunks && got < count && !gpu->no_chunks; i++) {
		if (gpu->chunk_used & (1ull << i))
			continue;
		gpu->chunk_used |= 1ull << i;
		pages[got++] = i * EMU_CHUNK;
	}
	if (got < count) {
		while (got)
			gpu->chunk_used &= ~(1ull << (pages[--got] / EMU_CHUNK));
		mutex_unlock(&emu.lock);
		return NV_ERR_NO_MEMORY;
	}
	gpu->status.chunks += got;
	gpu->pma.numFreePages2m -= got;
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
	struct emu_gpu *gpu = pma;
	u64 i;

	mutex_lock(&emu.lock);
	for (i = 0; i < count; i++)
		gpu->chunk_used &= ~(1ull << (pages[i] / EMU_CHUNK));
	gpu->status.chunks -= count;
	gpu->pma.numFreePages2m += count;
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
	info->uuid = ((struct emu_gpu *)device)->uuid;
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
