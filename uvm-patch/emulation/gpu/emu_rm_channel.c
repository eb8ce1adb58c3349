// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: UVM's own channels, and those of clients that it retains. */
#include "emu.h"

NV_STATUS nvUvmInterfaceTsgAllocate(uvmGpuAddressSpaceHandle space, const UvmGpuTsgAllocParams *params,
				    uvmGpuTsgHandle *tsg)
{
	*tsg = (void *)((struct emu_space *)space)->gpu;
	return NV_OK;
}

void nvUvmInterfaceTsgDestroy(uvmGpuTsgHandle tsg)
{
}

NV_STATUS nvUvmInterfaceChannelAllocate(const uvmGpuTsgHandle tsg, const UvmGpuChannelAllocParams *params,
					uvmGpuChannelHandle *handle, UvmGpuChannelInfo *info)
{
	struct emu_channel *channel = kzalloc(sizeof(*channel), GFP_KERNEL);
	struct emu_gpu *gpu = (void *)tsg;

	if (!channel)
		return NV_ERR_NO_MEMORY;
	channel->gpu = gpu;
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
	channel->id = info->hwChannelId = gpu->next_chid++;
	list_add_tail(&channel->node, &gpu->channels);
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

/* The caller of this one holds emu.lock. */
struct emu_user_channel *emu_user_channel(struct emu_gpu *gpu, u32 handle)
{
	struct emu_user_channel *channel;

	list_for_each_entry(channel, &gpu->user_channels, node) {
		if (channel->handle == handle)
			return channel;
	}
	return NULL;
}

NV_STATUS nvUvmInterfaceRetainChannel(uvmGpuAddressSpaceHandle space, NvHandle client, NvHandle handle,
				      void **retained, UvmGpuChannelInstanceInfo *info)
{
	struct emu_user_channel *channel = kzalloc(sizeof(*channel), GFP_KERNEL);
	struct emu_gpu *gpu = ((struct emu_space *)space)->gpu;
	bool ce = EMU_CHANNEL_CE(handle);

	if (!channel)
		return NV_ERR_NO_MEMORY;
	mutex_lock(&emu.lock);
	channel->gpu = gpu;
	channel->space = (void *)space;
	channel->handle = handle;
	channel->chid = gpu->next_chid++;
	channel->instance = 0x40000000ull + channel->chid * 0x1000ull;
	list_add_tail(&channel->node, &gpu->user_channels);
	gpu->status.user_channels++;
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
	info->EMU_DOORBELL = gpu->runlist;
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
	struct emu_user_channel *channel = retained;

	mutex_lock(&emu.lock);
	channel->gpu->status.stops++;
	channel->bound = false;
	mutex_unlock(&emu.lock);
}

void nvUvmInterfaceReleaseChannel(void *retained)
{
	struct emu_user_channel *channel = retained;

	mutex_lock(&emu.lock);
	list_del(&channel->node);
	channel->gpu->status.user_channels--;
	mutex_unlock(&emu.lock);
	kfree(channel);
}
