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
	memcpy(emu.uuid.uuid, EMU_UUID, sizeof(emu.uuid.uuid));
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
