// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: objects, memory, channels, and module init. */
#include <linux/delay.h>
#include <linux/kallsyms.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/workqueue.h>
#include "emu.h"

struct emu emu;

static const NvU8 uuid_bytes[16] = { 'e', 'm', 'u', 'l', 'a', 't', 'e', 'd', '-', 'g', 'p', 'u', '-', '0', 0, 1 };

static bool is_ours(const NvProcessorUuid *uuid)
{
	return !memcmp(uuid->uuid, uuid_bytes, sizeof(uuid_bytes));
}

static NV_STATUS register_isr(uvmEventIsrTopHalf_t isr)
{
	emu.isr = isr;
	WRITE_ONCE(emu.have_isr, isr != NULL);
	return NV_OK;
}

#ifdef EMU_HAS_LINUX_EVENTS
NV_STATUS nvUvmInterfaceRegisterUvmEvents(struct UvmEventsLinux *events)
{
	return register_isr(events->isrTopHalf);
}

void nvUvmInterfaceDeRegisterUvmEvents(void)
{
	(void)register_isr(NULL);
}
#else
NV_STATUS nvUvmInterfaceRegisterUvmCallbacks(struct UvmOpsUvmEvents *ops)
{
	return register_isr(ops->isrTopHalf);
}

void nvUvmInterfaceDeRegisterUvmOps(void)
{
	(void)register_isr(NULL);
}
#endif

NV_STATUS nvUvmInterfaceSessionCreate(uvmGpuSessionHandle *session, UvmPlatformInfo *info)
{
	memset(info, 0, sizeof(*info));
	*session = (void *)&emu;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceSessionDestroy(uvmGpuSessionHandle session)
{
	return NV_OK;
}

NV_STATUS nvUvmInterfaceRegisterGpu(const NvProcessorUuid *uuid, UvmGpuPlatformInfo *info)
{
	if (!is_ours(uuid))
		return NV_ERR_GPU_UUID_NOT_FOUND;
	memset(info, 0, sizeof(*info));
	info->pci_dev = emu.pci;
	info->dma_addressable_limit = ~0ull;
	return NV_OK;
}

void nvUvmInterfaceUnregisterGpu(const NvProcessorUuid *uuid)
{
}

NV_STATUS nvUvmInterfaceGetGpuInfo(const NvProcessorUuid *uuid, const UvmGpuClientInfo *client, UvmGpuInfo *info)
{
	if (!is_ours(uuid))
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
	*device = (void *)&emu;
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

static NV_STATUS new_space(uvmGpuAddressSpaceHandle *handle, UvmGpuAddressSpaceInfo *info)
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
	mutex_lock(&emu.lock);
	list_add(&space->node, &emu.spaces);
	emu.status.spaces++;
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
	return new_space(handle, info);
}

NV_STATUS nvUvmInterfaceDupAddressSpace(uvmGpuDeviceHandle device, NvHandle client, NvHandle user_space,
					uvmGpuAddressSpaceHandle *handle, UvmGpuAddressSpaceInfo *info)
{
	return new_space(handle, info);
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
	struct emu_access *access;

	mutex_lock(&emu.lock);
	list_del(&space->node);
	emu.status.spaces--;
	emu.status.torn_down_by_system += in_systems_work();
	/* Work of a dead client runs on, without an address space. */
	list_for_each_entry(access, &emu.accesses, node) {
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
	emu.status.unsets++;
	mutex_unlock(&emu.lock);
	return NV_OK;
}

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

NV_STATUS nvUvmInterfaceTsgAllocate(uvmGpuAddressSpaceHandle space, const UvmGpuTsgAllocParams *params,
				    uvmGpuTsgHandle *tsg)
{
	*tsg = (void *)&emu;
	return NV_OK;
}

void nvUvmInterfaceTsgDestroy(uvmGpuTsgHandle tsg)
{
}

NV_STATUS nvUvmInterfaceChannelAllocate(const uvmGpuTsgHandle tsg, const UvmGpuChannelAllocParams *params,
					uvmGpuChannelHandle *handle, UvmGpuChannelInfo *info)
{
	struct emu_channel *channel = kzalloc(sizeof(*channel), GFP_KERNEL);

	if (!channel)
		return NV_ERR_NO_MEMORY;
	channel->entries = params->numGpFifoEntries;
	channel->gpfifo = kcalloc(channel->entries, sizeof(u64), GFP_KERNEL);
	if (!channel->gpfifo) {
		kfree(channel);
		return NV_ERR_NO_MEMORY;
	}
	memset(info, 0, sizeof(*info));
	info->gpGet = &channel->get;
	info->gpPut = &channel->put;
	info->gpFifoEntries = (void *)channel->gpfifo;
	info->numGpFifoEntries = channel->entries;
	info->channelClassNum = emu.kind->host_class;
	info->errorNotifier = &channel->notifier;
	info->workSubmissionOffset = &channel->doorbell;
	mutex_lock(&emu.lock);
	channel->id = info->hwChannelId = emu.next_chid++;
	list_add_tail(&channel->node, &emu.channels);
	mutex_unlock(&emu.lock);
	*handle = (void *)channel;
	return NV_OK;
}

void nvUvmInterfaceChannelDestroy(uvmGpuChannelHandle handle)
{
	struct emu_channel *channel = (void *)handle;

	mutex_lock(&emu.lock);
	list_del(&channel->node);
	mutex_unlock(&emu.lock);
	kfree(channel->gpfifo);
	kfree(channel);
}

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

/* The caller of this one holds emu.lock. */
struct emu_user_channel *emu_user_channel(u32 handle)
{
	struct emu_user_channel *channel;

	list_for_each_entry(channel, &emu.user_channels, node) {
		if (channel->handle == handle)
			return channel;
	}
	return NULL;
}

NV_STATUS nvUvmInterfaceRetainChannel(uvmGpuAddressSpaceHandle space, NvHandle client, NvHandle handle,
				      void **retained, UvmGpuChannelInstanceInfo *info)
{
	struct emu_user_channel *channel = kzalloc(sizeof(*channel), GFP_KERNEL);
	bool ce = EMU_CHANNEL_CE(handle);

	if (!channel)
		return NV_ERR_NO_MEMORY;
	mutex_lock(&emu.lock);
	channel->space = (void *)space;
	channel->handle = handle;
	channel->chid = emu.next_chid++;
	channel->instance = 0x40000000ull + channel->chid * 0x1000ull;
	list_add_tail(&channel->node, &emu.user_channels);
	emu.status.user_channels++;
	mutex_unlock(&emu.lock);

	info->base = channel->instance;
	info->runlistId = ce ? 1 : 0;
	info->chId = channel->chid;
	info->bInSubctx = !ce;
	info->subctxId = EMU_CHANNEL_VE(handle);
	info->smcEngineVeIdOffset = ce ? 0 : EMU_FIRST_VE(handle);
	info->bTsgChannel = NV_TRUE;
	info->tsgId = EMU_CHANNEL_TSG(handle);
	info->tsgMaxSubctxCount = ce ? 1 : EMU_SUBCONTEXTS;
	info->channelEngineType = ce ? UVM_GPU_CHANNEL_ENGINE_TYPE_CE : UVM_GPU_CHANNEL_ENGINE_TYPE_GR;
	info->clearFaultedToken = channel->chid;
	info->pChramChannelRegister = &channel->chram;
	info->EMU_DOORBELL = emu.runlist;
	*retained = channel;
	return NV_OK;
}

NV_STATUS nvUvmInterfaceBindChannelResources(void *retained, UvmGpuChannelResourceBindParams *params)
{
	((struct emu_user_channel *)retained)->bound = true;
	return NV_OK;
}

/* Under MPS stopping a channel does not stop the subcontext's running work. */
void nvUvmInterfaceStopChannel(void *retained, NvBool immediate)
{
	mutex_lock(&emu.lock);
	emu.status.stops++;
	((struct emu_user_channel *)retained)->bound = false;
	mutex_unlock(&emu.lock);
}

void nvUvmInterfaceReleaseChannel(void *retained)
{
	struct emu_user_channel *channel = retained;

	mutex_lock(&emu.lock);
	list_del(&channel->node);
	emu.status.user_channels--;
	mutex_unlock(&emu.lock);
	kfree(channel);
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
	memcpy(info->uuid.uuid, uuid_bytes, sizeof(uuid_bytes));
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

static int emu_thread(void *unused)
{
	while (!kthread_should_stop()) {
		bool busy;

		mutex_lock(&emu.lock);
		busy = emu_run_channels();
		mutex_unlock(&emu.lock);
		busy |= emu_interrupt();
		if (busy)
			cond_resched();
		else
			usleep_range(20, 40);
	}
	return 0;
}

static char *gpu = "turing";
module_param(gpu, charp, 0444);
MODULE_PARM_DESC(gpu, "which generation of GPUs this is: turing, ampere, hopper, blackwell");

static int __init emu_init(void)
{
	int ret;

	emu.kind = emu_find_kind(gpu);
	if (!emu.kind) {
		pr_err("emu: this driver knows no GPU of the generation \"%s\"\n", gpu);
		return -EINVAL;
	}

	mutex_init(&emu.lock);
	INIT_LIST_HEAD(&emu.mems);
	INIT_LIST_HEAD(&emu.spaces);
	INIT_LIST_HEAD(&emu.channels);
	INIT_LIST_HEAD(&emu.user_channels);
	INIT_LIST_HEAD(&emu.accesses);
	emu.next_va = 64 << 20;
	emu.next_chid = 1;
	emu.pma.numPages2m = emu.pma.numFreePages2m = (EMU_VIDMEM - EMU_USER_MEM) / EMU_CHUNK;
	memcpy(emu.uuid.uuid, uuid_bytes, sizeof(uuid_bytes));
	emu.pci = pci_get_device(0x1234, 0x11e8, NULL); /* QEMU's "edu" device */
	emu.vidmem = vzalloc(EMU_VIDMEM);
	emu.fb = vzalloc(EMU_FAULTS * EMU_PACKET);
	if (!emu.pci || !emu.vidmem || !emu.fb)
		return -ENODEV;
	memset(emu.vidmem, EMU_DIRT, EMU_VIDMEM);
	ret = dma_set_mask_and_coherent(&emu.pci->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	ret = emu_test_init();
	if (ret)
		return ret;
	emu.thread = kthread_run(emu_thread, NULL, "emu-gpu");
	return PTR_ERR_OR_ZERO(emu.thread);
}

static void __exit emu_exit(void)
{
	kthread_stop(emu.thread);
	emu_test_exit();
	pci_dev_put(emu.pci);
	vfree(emu.vidmem);
	vfree(emu.fb);
}

module_init(emu_init);
module_exit(emu_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Stand-in for nvidia.ko with an emulated GPU, for tests only");
