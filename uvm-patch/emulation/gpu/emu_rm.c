// SPDX-License-Identifier: MIT
/* The part of nvidia.ko: the module, its thread, and what it tells UVM. */
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/pci.h>
#include "emu.h"

struct emu emu;

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

static int emu_thread(void *unused)
{
	while (!kthread_should_stop()) {
		struct emu_gpu *gpu;
		bool busy = false;

		for (gpu = emu.gpus; gpu < emu.gpus + EMU_GPUS; gpu++) {
			mutex_lock(&emu.lock);
			busy |= emu_run_channels(gpu);
			mutex_unlock(&emu.lock);
			busy |= emu_interrupt(gpu);
		}
		if (busy)
			cond_resched();
		else
			usleep_range(20, 40);
	}
	return 0;
}

static int gpu_init(struct emu_gpu *gpu, const char *uuid, struct pci_dev *after)
{
	INIT_LIST_HEAD(&gpu->mems);
	INIT_LIST_HEAD(&gpu->spaces);
	INIT_LIST_HEAD(&gpu->channels);
	INIT_LIST_HEAD(&gpu->user_channels);
	INIT_LIST_HEAD(&gpu->accesses);
	gpu->next_va = 64 << 20;
	gpu->next_chid = 1;
	gpu->pma.numPages2m = gpu->pma.numFreePages2m = (EMU_VIDMEM - EMU_USER_MEM) / EMU_CHUNK;
	memcpy(gpu->uuid.uuid, uuid, sizeof(gpu->uuid.uuid));
	gpu->pci = pci_get_device(0x1234, 0x11e8, after); /* QEMU's "edu" device */
	gpu->vidmem = vzalloc(EMU_VIDMEM);
	gpu->fb = vzalloc(EMU_FAULTS * EMU_PACKET);
	if (!gpu->pci || !gpu->vidmem || !gpu->fb)
		return -ENODEV;
	memset(gpu->vidmem, EMU_DIRT, EMU_VIDMEM);
	return dma_set_mask_and_coherent(&gpu->pci->dev, DMA_BIT_MASK(64));
}

static char *generation = "turing";
module_param_named(gpu, generation, charp, 0444);
MODULE_PARM_DESC(gpu, "which generation of GPUs this is: turing, ampere, hopper, blackwell");

static int __init emu_init(void)
{
	int ret;

	emu.kind = emu_find_kind(generation);
	if (!emu.kind) {
		pr_err("emu: this driver knows no GPU of the generation \"%s\"\n", generation);
		return -EINVAL;
	}

	mutex_init(&emu.lock);
	ret = gpu_init(&emu.gpus[0], EMU_UUID(0), NULL);
	if (!ret)
		/* The search gives back what it begins at. */
		ret = gpu_init(&emu.gpus[1], EMU_UUID(1), pci_dev_get(emu.gpus[0].pci));
	if (!ret)
		ret = emu_test_init();
	if (ret)
		return ret;
	emu.thread = kthread_run(emu_thread, NULL, "emu-gpu");
	return PTR_ERR_OR_ZERO(emu.thread);
}

static void __exit emu_exit(void)
{
	struct emu_gpu *gpu;

	kthread_stop(emu.thread);
	emu_test_exit();
	for (gpu = emu.gpus; gpu < emu.gpus + EMU_GPUS; gpu++) {
		pci_dev_put(gpu->pci);
		vfree(gpu->vidmem);
		vfree(gpu->fb);
	}
}

module_init(emu_init);
module_exit(emu_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Stand-in for nvidia.ko with two emulated GPUs, for tests only");
