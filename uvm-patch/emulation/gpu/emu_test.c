// SPDX-License-Identifier: MIT
/* /dev/emu-gpu0, /dev/emu-gpu1: see emu_abi.h. */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include "emu.h"

#define MAX_COUNT	(2 * EMU_FAULTS)
#define TIMEOUT_MS	240000u	/* on a machine with much else to do */

static struct emu_access *new_access(struct emu_gpu *gpu, const struct emu_access_request *r, u32 n, struct completion *done)
{
	struct emu_access *access = kzalloc(sizeof(*access), GFP_KERNEL);
	struct emu_user_channel *channel;

	if (!access)
		return ERR_PTR(-ENOMEM);
	access->gpu = gpu;
	access->handle = r->handle;
	access->va = r->va + n * r->stride;
	access->type = r->type;
	access->force_type = r->force_type;
	access->host = r->host;
	access->until_ns = r->repeat_ms ? ktime_get_ns() + r->repeat_ms * 1000000ull : 0;
	access->done = done;

	mutex_lock(&emu.lock);
	channel = emu_user_channel(gpu, r->handle);
	if (!channel || !channel->bound) {
		mutex_unlock(&emu.lock);
		kfree(access);
		return ERR_PTR(-ENODEV);
	}
	access->space = channel->space;
	list_add_tail(&access->node, &gpu->accesses);
	gpu->status.running++;
	emu_try(access);
	mutex_unlock(&emu.lock);
	return access;
}

static bool ended(struct emu_access *access, u64 deadline_ns)
{
	u64 now = ktime_get_ns();

	return wait_for_completion_timeout(access->done, now < deadline_ns ?
					   nsecs_to_jiffies(deadline_ns - now) + 1 : 1);
}

static void collect(struct emu_access_request *r, struct emu_access *access, u64 deadline_ns)
{
	if (!ended(access, deadline_ns)) {
		mutex_lock(&emu.lock);
		if (!completion_done(access->done))
			emu_finish(access, EMU_TIMEOUT);
		mutex_unlock(&emu.lock);
	}
	r->results[access->result]++;
	r->faults += access->faults;
	r->value = access->value;
	if (access->first_fault_ns)
		r->total_ns += access->done_ns - access->first_fault_ns;
}

static long do_access(struct emu_gpu *gpu, void __user *arg)
{
	u64 deadline_ns = ktime_get_ns() + TIMEOUT_MS * 1000000ull;
	struct emu_access_request r;
	struct emu_access **accesses;
	struct completion *done;
	long ret = 0;
	u32 i, n;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	if (!r.count || r.count > MAX_COUNT || r.type > EMU_FETCH || r.host > 1)
		return -EINVAL;
	memset(r.results, 0, sizeof(r.results));
	r.faults = 0;
	r.total_ns = 0;
	if (r.repeat_ms)
		return PTR_ERR_OR_ZERO(new_access(gpu, &r, 0, NULL));

	accesses = kvcalloc(r.count, sizeof(*accesses), GFP_KERNEL);
	done = kvcalloc(r.count, sizeof(*done), GFP_KERNEL);
	for (n = 0; accesses && done && n < r.count; n++) {
		init_completion(&done[n]);
		accesses[n] = new_access(gpu, &r, n, &done[n]);
		if (IS_ERR(accesses[n])) {
			ret = PTR_ERR(accesses[n]);
			break;
		}
	}
	for (i = 0; i < n; i++) {
		collect(&r, accesses[i], deadline_ns);
		kfree(accesses[i]);
	}
	kvfree(accesses);
	kvfree(done);
	if (!ret && copy_to_user(arg, &r, sizeof(r)))
		ret = -EFAULT;
	return ret;
}

static long do_walk(struct emu_gpu *gpu, void __user *arg)
{
	struct emu_user_channel *channel;
	struct emu_walk_request r;
	struct emu_page page = { 0 };

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	mutex_lock(&emu.lock);
	channel = emu_user_channel(gpu, r.handle);
	r.result = channel ? emu_walk(channel->space, r.va, EMU_READ, &page) : ~0u;
	r.pte = page.pte;
	mutex_unlock(&emu.lock);
	return copy_to_user(arg, &r, sizeof(r)) ? -EFAULT : 0;
}

static struct miscdevice emu_misc[EMU_GPUS];

static struct emu_gpu *gpu_of(struct file *filp)
{
	return &emu.gpus[(struct miscdevice *)filp->private_data - emu_misc];
}

/* The system's open has put the device there; one without an open of its own would be left with nothing. */
static int emu_open(struct inode *inode, struct file *filp)
{
	return 0;
}

static long emu_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct emu_gpu *gpu = gpu_of(filp);
	struct emu_status status;

	switch (cmd) {
	case EMU_IOC_ACCESS:
		return do_access(gpu, (void __user *)arg);
	case EMU_IOC_WALK:
		return do_walk(gpu, (void __user *)arg);
	case EMU_IOC_STATUS:
		mutex_lock(&emu.lock);
		status = gpu->status;
		mutex_unlock(&emu.lock);
		return copy_to_user((void __user *)arg, &status, sizeof(status)) ? -EFAULT : 0;
	case EMU_IOC_STALL:
		mutex_lock(&emu.lock);
		gpu->stall = arg ? EMU_STOPS_AT_SINK : EMU_RUNS;
		gpu->status.stopped = 0;
		mutex_unlock(&emu.lock);
		return 0;
	case EMU_IOC_PAUSE:
		mutex_lock(&emu.lock);
		gpu->paused = arg;
		mutex_unlock(&emu.lock);
		return 0;
	case EMU_IOC_CHUNKS:
		mutex_lock(&emu.lock);
		gpu->no_chunks = !arg;
		mutex_unlock(&emu.lock);
		return 0;
	case EMU_IOC_REVIVE:
		mutex_lock(&emu.lock);
		memset(gpu->tsg_dead, 0, sizeof(gpu->tsg_dead));
		gpu->status.tsg_dead = 0;
		mutex_unlock(&emu.lock);
		return 0;
	default:
		return -ENOTTY;
	}
}

static const struct file_operations emu_fops = {
	.owner		= THIS_MODULE,
	.open		= emu_open,
	.unlocked_ioctl	= emu_ioctl,
};

#define DEVICE(path) { .minor = MISC_DYNAMIC_MINOR, .name = path, .fops = &emu_fops, .mode = 0666 }

static struct miscdevice emu_misc[EMU_GPUS] = { DEVICE("emu-gpu0"), DEVICE("emu-gpu1") };

int emu_test_init(void)
{
	int ret = misc_register(&emu_misc[0]);

	if (ret)
		return ret;
	ret = misc_register(&emu_misc[1]);
	if (ret)
		misc_deregister(&emu_misc[0]);
	return ret;
}

void emu_test_exit(void)
{
	misc_deregister(&emu_misc[0]);
	misc_deregister(&emu_misc[1]);
}
