// SPDX-License-Identifier: MIT
/*
 * Sudden death. A client that is killed in the middle of a kernel leaves work
 * on the GPU that outlives its page tables, and the first access after their
 * end takes every client of the TSG along. So the descriptors that keep them
 * alive are held for a while: the work drains, then everything is torn down
 * as usual. What an endless kernel does after that time is what it does today.
 */
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include "uvm_mps_internal.h"

struct uvm_mps_hold {
	struct list_head node;		/* uvm_mps.lock */
	struct delayed_work work;
	struct file *file;
	struct uvm_mps_client *client;	/* lives as long as its files */
};

/*
 * MiB of the process's memory on the host that are held, too: the driver keeps
 * an address space whole as long as it may have to look into it. None of a
 * client in the driver's mode for several processes, which is bound to none.
 */
static u32 host_memory(uvm_va_space_t *va_space)
{
	struct mm_struct *mm = uvm_va_space_mm_retain(va_space);
	u64 pages = mm ? get_mm_rss(mm) : 0;

	if (mm)
		uvm_va_space_mm_release(va_space);
	return (u32)((pages * PAGE_SIZE + (1u << 20) - 1) >> 20);
}

static void put_now(struct file *file)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
	__fput_sync(file);
#else
	fput(file);
#endif
}

/*
 * In the thread that ends the hold: the system's own work for it is everybody's,
 * and a teardown takes long. The descriptor of a process's address space holds
 * the one of its VA space, whose turn therefore comes afterwards.
 */
static void put_file(struct file *file)
{
	struct file *owner = NULL;
	void *ptr = NULL;

	if (uvm_fd_type(file, &ptr) == UVM_FD_MM)
		owner = get_file((struct file *)ptr);
	put_now(file);
	if (owner)
		put_now(owner);
}

static void push_hold(struct uvm_mps_client *client, u32 type, u32 count)
{
	struct uvm_mps_record rec;

	if (!uvm_mps_feeding())
		return;
	uvm_mps_record_init(&rec, type, client, NULL);
	rec.count = count;
	uvm_mps_record_push(&rec, client->pid);
}

static void hold_end(struct work_struct *work)
{
	struct uvm_mps_hold *hold = container_of(to_delayed_work(work), struct uvm_mps_hold, work);

	spin_lock(&uvm_mps.lock);
	list_del(&hold->node);
	if (--hold->client->holds == 0)
		push_hold(hold->client, UVM_MPS_HOLD_END, 0);
	spin_unlock(&uvm_mps.lock);

	put_file(hold->file);
	kfree(hold);
}

/* Ended by a signal, not by exit(): then nobody has waited for the GPU. */
static bool dies_suddenly(void)
{
	return (current->flags & PF_EXITING) && (current->signal->group_exit_code & 0x7f);
}

static bool has_shared_channel(const struct uvm_mps_client *client)
{
	struct uvm_mps_channel *channel;

	list_for_each_entry(channel, &client->channels, node) {
		if (channel->shared_tsg)
			return true;
	}
	return false;
}

static uvm_va_space_t *va_space_of(struct file *filp)
{
	void *ptr = NULL;

	switch (uvm_fd_type(filp, &ptr)) {
	case UVM_FD_VA_SPACE:
		return ptr;
	case UVM_FD_MM:
		return uvm_va_space_get(ptr);
	default:
		return NULL;
	}
}

int uvm_mps_flush(struct file *filp, fl_owner_t id)
{
	u32 hold_ms = READ_ONCE(uvm_mps.policy.hold_ms);
	struct uvm_mps_client *client;
	struct uvm_mps_hold *hold;
	uvm_va_space_t *va_space;
	u32 kept;

	if (!dies_suddenly() || uvm_mps_mode() != UVM_MPS_ISOLATE || !hold_ms)
		return 0;
	va_space = va_space_of(filp);
	client = va_space ? uvm_mps_client_find(va_space) : NULL;
	if (!client || client->pid != task_tgid(current))
		return 0;

	hold = kzalloc(sizeof(*hold), GFP_KERNEL);
	if (!hold)
		return 0;
	INIT_DELAYED_WORK(&hold->work, hold_end);
	hold->client = client;
	kept = host_memory(va_space);

	spin_lock(&uvm_mps.lock);
	if (!has_shared_channel(client)) {
		spin_unlock(&uvm_mps.lock);
		kfree(hold);
		return 0;
	}
	hold->file = get_file(filp);
	list_add_tail(&hold->node, &uvm_mps.holds);
	if (client->holds++ == 0) {
		uvm_mps_count(STAT_HELD);
		push_hold(client, UVM_MPS_HELD, kept);
	}
	queue_delayed_work(uvm_mps.queue, &hold->work, msecs_to_jiffies(hold_ms));
	spin_unlock(&uvm_mps.lock);
	return 0;
}

/* The work on the GPU is known to be over, or the memory is needed. */
int uvm_mps_release(u64 va_space_id)
{
	struct uvm_mps_hold *hold;
	int ret = -ESRCH;

	spin_lock(&uvm_mps.lock);
	list_for_each_entry(hold, &uvm_mps.holds, node) {
		if (hold->client->id != va_space_id)
			continue;
		ret = 0;
		/* One that is not pending is ending by itself right now. */
		if (cancel_delayed_work(&hold->work))
			queue_delayed_work(uvm_mps.queue, &hold->work, 0);
	}
	spin_unlock(&uvm_mps.lock);
	return ret;
}
