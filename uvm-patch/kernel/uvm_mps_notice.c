// SPDX-License-Identifier: MIT
/*
 * /dev/nvidia-uvm-mps: records in rings that a writer never waits for, a place
 * in them for each reader, a snapshot of what is alive before its first event,
 * and the ioctls for the policy.
 */
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include "uvm_mps_internal.h"
#include "uvm_mps_tested.h"

#define RING_RECORDS	4096u	/* of each ring */
#define KILL_MS		3000u
#define HOLD_MS		3000u
#define HOLD_MS_MAX	60000u	/* a dead client's memory is not kept longer */
#define SINKS_MAX	4096u

static unsigned int uvm_mps_mode_param = UVM_MPS_OBSERVE;
module_param_named(uvm_mps_mode, uvm_mps_mode_param, uint, 0444);
MODULE_PARM_DESC(uvm_mps_mode, "MPS clients' fatal faults: 0 off, 1 observe (default), 2 isolate");
static unsigned int uvm_mps_kill_ms = KILL_MS;
module_param(uvm_mps_kill_ms, uint, 0444);
MODULE_PARM_DESC(uvm_mps_kill_ms, "Kill a client this long after its first isolated fault (4294967295: never)");
static unsigned int uvm_mps_hold_ms = HOLD_MS;
module_param(uvm_mps_hold_ms, uint, 0444);
MODULE_PARM_DESC(uvm_mps_hold_ms, "Keep a suddenly dead client's page tables this long (0: do not)");
static unsigned int uvm_mps_max_sinks = UVM_MPS_DEFAULT_SINKS;
module_param(uvm_mps_max_sinks, uint, 0444);
MODULE_PARM_DESC(uvm_mps_max_sinks, "Sinks of one client before its faults are left to the driver");
unsigned int uvm_mps_untested;
module_param(uvm_mps_untested, uint, 0444);
MODULE_PARM_DESC(uvm_mps_untested, "Isolate where that was never tried: 1 driver version, 2 page tables, 4 GPUs, 8 MIG, 16 HMM");

struct slot {
	struct uvm_mps_record rec;
	struct pid *pid;
};

static DEFINE_SPINLOCK(ring_lock);
static DECLARE_WAIT_QUEUE_HEAD(ring_wait);
/*
 * Who comes and goes, as often as any user likes, and what happens to clients,
 * which is metered: nobody's coming and going pushes out a fault's record.
 */
enum { RING_STATE, RING_EVENTS, RINGS };
static struct {
	struct slot *slots;
	u64 head;		/* records so far */
} rings[RINGS];
static u64 next_seq;		/* of the next record in whichever ring; written under ring_lock */
static bool registered;

/* What one open file has still to be told. */
struct reader {
	struct mutex lock;
	u64 next;			/* the number of the record that is due */
	u64 at[RINGS];
	struct uvm_mps_record *state;	/* the snapshot, and the pids of its records */
	struct pid **pids;
	size_t state_len, state_next;
};

bool uvm_mps_feeding(void)
{
	return READ_ONCE(registered) && uvm_mps_mode() != UVM_MPS_OFF;
}

void uvm_mps_record_init(struct uvm_mps_record *rec, u32 type, const struct uvm_mps_client *client, uvm_gpu_t *gpu)
{
	memset(rec, 0, sizeof(*rec));
	rec->magic = UVM_MPS_MAGIC;
	rec->version = UVM_MPS_ABI_VERSION;
	rec->size = sizeof(*rec);
	rec->type = type;
	rec->time_ns = ktime_get_boottime_ns();
	rec->channel_id = UVM_MPS_UNKNOWN;
	rec->runlist_id = UVM_MPS_UNKNOWN;
	rec->tsg_id = UVM_MPS_UNKNOWN;
	rec->ve_id = UVM_MPS_UNKNOWN;
	if (client) {
		rec->va_space_id = client->id;
		if (test_bit(CLIENT_CONDEMNED, &client->state))
			rec->flags |= UVM_MPS_F_CONDEMNED;
		if (test_bit(CLIENT_KILLED, &client->state))
			rec->flags |= UVM_MPS_F_KILL_SENT;
		if (client->holds)
			rec->flags |= UVM_MPS_F_HELD;
	}
	if (gpu)
		memcpy(rec->gpu_uuid, uvm_mps_gpu_uuid(gpu), sizeof(rec->gpu_uuid));
}

static unsigned int ring_of(u32 type)
{
	return type >= UVM_MPS_CHANNEL_ADD && type <= UVM_MPS_VASPACE_DEL ? RING_STATE : RING_EVENTS;
}

static struct slot *slot_at(unsigned int ring, u64 n)
{
	return &rings[ring].slots[n % RING_RECORDS];
}

void uvm_mps_record_push(struct uvm_mps_record *rec, struct pid *pid)
{
	unsigned int ring = ring_of(rec->type);
	struct slot *slot;
	struct pid *old;

	spin_lock(&ring_lock);
	slot = slot_at(ring, rings[ring].head++);
	old = slot->pid;
	rec->seq = next_seq;
	slot->rec = *rec;
	slot->pid = get_pid(pid);
	WRITE_ONCE(next_seq, next_seq + 1);
	spin_unlock(&ring_lock);

	uvm_mps_count(STAT_RECORDS);
	put_pid(old);
	wake_up_interruptible(&ring_wait);
}

static void drop_snapshot(struct reader *reader)
{
	while (reader->state_next < reader->state_len)
		put_pid(reader->pids[reader->state_next++]);
	kvfree(reader->state);
	kvfree(reader->pids);
	reader->state = NULL;
	reader->pids = NULL;
	reader->state_len = 0;
	reader->state_next = 0;
}

/* What is alive now; events are told from this moment on. */
static int take_snapshot(struct reader *reader)
{
	size_t count, max, i;

	drop_snapshot(reader);
	spin_lock(&uvm_mps.lock);
	count = uvm_mps_state_count();
	spin_unlock(&uvm_mps.lock);

	for (;;) {
		max = count + 1;
		reader->state = kvcalloc(max, sizeof(*reader->state), GFP_KERNEL);
		reader->pids = kvcalloc(max, sizeof(*reader->pids), GFP_KERNEL);
		if (!reader->state || !reader->pids) {
			drop_snapshot(reader);
			return -ENOMEM;
		}
		spin_lock(&uvm_mps.lock);
		count = uvm_mps_state_count();
		if (count < max)
			break;
		spin_unlock(&uvm_mps.lock);
		drop_snapshot(reader);
	}
	count = uvm_mps_state_fill(reader->state, reader->pids, count);
	uvm_mps_record_init(&reader->state[count], UVM_MPS_SNAPSHOT_END, NULL, NULL);
	spin_lock(&ring_lock);
	reader->next = next_seq;
	for (i = 0; i < RINGS; i++)
		reader->at[i] = rings[i].head;
	spin_unlock(&ring_lock);
	spin_unlock(&uvm_mps.lock);

	reader->state_len = count + 1;
	for (i = 0; i < reader->state_len; i++) {
		reader->state[i].flags |= UVM_MPS_F_SNAPSHOT;
		reader->state[i].seq = reader->next;
	}
	return 0;
}

static int mps_open(struct inode *inode, struct file *filp)
{
	struct reader *reader = kzalloc(sizeof(*reader), GFP_KERNEL);
	int ret;

	if (!reader)
		return -ENOMEM;
	mutex_init(&reader->lock);
	ret = take_snapshot(reader);
	if (ret) {
		kfree(reader);
		return ret;
	}
	filp->private_data = reader;
	return nonseekable_open(inode, filp);
}

static int mps_release(struct inode *inode, struct file *filp)
{
	struct reader *reader = filp->private_data;

	drop_snapshot(reader);
	kfree(reader);
	return 0;
}

static void name_process(struct uvm_mps_record *rec, struct pid *pid)
{
	rec->tgid_init = pid_nr(pid);
	rec->tgid = pid_nr_ns(pid, task_active_pid_ns(current));
}

/* The next record for this reader, which stays the next until it is taken; false if there is none. */
static bool next_record(struct reader *reader, struct uvm_mps_record *rec)
{
	const struct slot *first = NULL;
	struct pid *pid = NULL;
	bool got = true;
	unsigned int i;
	u64 found;

	if (reader->state_next < reader->state_len) {
		*rec = reader->state[reader->state_next];
		name_process(rec, reader->pids[reader->state_next]);
		return true;
	}

	spin_lock(&ring_lock);
	for (i = 0; i < RINGS; i++) {
		reader->at[i] += uvm_mps_ring_lost(rings[i].head, reader->at[i], RING_RECORDS);
		if (reader->at[i] != rings[i].head && (!first || slot_at(i, reader->at[i])->rec.seq < first->rec.seq))
			first = slot_at(i, reader->at[i]);
	}
	/* A number that is in no ring any more is lost. */
	found = first ? first->rec.seq : next_seq;
	if (found != reader->next) {
		uvm_mps_record_init(rec, UVM_MPS_OVERRUN, NULL, NULL);
		rec->seq = reader->next;
		rec->count = (u32)min_t(u64, found - reader->next, U32_MAX);
	} else if (first) {
		*rec = first->rec;
		pid = get_pid(first->pid);
	} else {
		got = false;
	}
	spin_unlock(&ring_lock);

	if (got)
		name_process(rec, pid);
	put_pid(pid);
	return got;
}

/* The reader has it. */
static void take_record(struct reader *reader, const struct uvm_mps_record *rec)
{
	if (reader->state_next < reader->state_len) {
		put_pid(reader->pids[reader->state_next++]);
	} else if (rec->type == UVM_MPS_OVERRUN) {
		reader->next += rec->count;
		atomic64_add(rec->count, &uvm_mps.stats[STAT_LOST]);
	} else {
		reader->next = rec->seq + 1;
		reader->at[ring_of(rec->type)]++;
	}
}

static bool is_readable(struct reader *reader)
{
	return reader->state_next < reader->state_len || READ_ONCE(next_seq) != reader->next;
}

static ssize_t read_some(struct reader *reader, char __user *buf, size_t len)
{
	struct uvm_mps_record rec;
	size_t done = 0;

	while (len - done >= sizeof(rec) && next_record(reader, &rec)) {
		if (copy_to_user(buf + done, &rec, sizeof(rec)))
			return done ? (ssize_t)done : -EFAULT;
		take_record(reader, &rec);
		done += sizeof(rec);
		cond_resched();
	}
	return (ssize_t)done;
}

static ssize_t mps_read(struct file *filp, char __user *buf, size_t len, loff_t *off)
{
	struct reader *reader = filp->private_data;
	ssize_t done;
	int ret;

	if (len < sizeof(struct uvm_mps_record))
		return -EINVAL;

	for (;;) {
		ret = mutex_lock_interruptible(&reader->lock);
		if (ret)
			return ret;
		done = read_some(reader, buf, len);
		mutex_unlock(&reader->lock);
		if (done)
			return done;
		if (filp->f_flags & O_NONBLOCK)
			return -EAGAIN;
		ret = wait_event_interruptible(ring_wait, is_readable(reader));
		if (ret)
			return ret;
	}
}

static __poll_t mps_poll(struct file *filp, poll_table *wait)
{
	struct reader *reader = filp->private_data;

	poll_wait(filp, &ring_wait, wait);
	return is_readable(reader) ? EPOLLIN | EPOLLRDNORM : 0;
}

static bool isolation_allowed(void)
{
	return UVM_MPS_TESTED || uvm_mps_untested & UVM_MPS_UNTRIED_DRIVER;
}

static int set_policy(const struct uvm_mps_policy *policy)
{
	if (policy->version != UVM_MPS_ABI_VERSION || policy->mode > UVM_MPS_ISOLATE ||
	    policy->hold_ms > HOLD_MS_MAX || policy->max_sinks > SINKS_MAX || (policy->flags & ~UVM_MPS_ALONE))
		return -EINVAL;
	if (policy->mode == UVM_MPS_ISOLATE && !isolation_allowed())
		return -EOPNOTSUPP;

	spin_lock(&uvm_mps.lock);
	uvm_mps.policy.version = policy->version;
	WRITE_ONCE(uvm_mps.policy.kill_ms, policy->kill_ms);
	WRITE_ONCE(uvm_mps.policy.hold_ms, policy->hold_ms);
	WRITE_ONCE(uvm_mps.policy.max_sinks, policy->max_sinks);
	WRITE_ONCE(uvm_mps.policy.flags, policy->flags);
	WRITE_ONCE(uvm_mps.policy.mode, policy->mode);
	spin_unlock(&uvm_mps.lock);
	return 0;
}

static long ioctl_set_policy(void __user *arg)
{
	struct uvm_mps_policy policy;

	return copy_from_user(&policy, arg, sizeof(policy)) ? -EFAULT : set_policy(&policy);
}

static long ioctl_get_policy(void __user *arg)
{
	struct uvm_mps_policy policy;

	spin_lock(&uvm_mps.lock);
	policy = uvm_mps.policy;
	spin_unlock(&uvm_mps.lock);
	return copy_to_user(arg, &policy, sizeof(policy)) ? -EFAULT : 0;
}

static long ioctl_info(void __user *arg)
{
	struct uvm_mps_info info = {
		.version = UVM_MPS_ABI_VERSION,
		.record_size = UVM_MPS_RECORD_SIZE,
		.ring_records = RING_RECORDS,
		.tested = UVM_MPS_TESTED,
		.driver = NV_VERSION_STRING,
	};

	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long ioctl_stats(void __user *arg)
{
	u64 stats[STAT_COUNT];
	unsigned int i;

	for (i = 0; i < STAT_COUNT; i++)
		stats[i] = (u64)atomic64_read(&uvm_mps.stats[i]);
	return copy_to_user(arg, stats, sizeof(stats)) ? -EFAULT : 0;
}

static long ioctl_client(unsigned int cmd, void __user *arg)
{
	struct uvm_mps_claim claim;

	if (copy_from_user(&claim, arg, sizeof(claim)))
		return -EFAULT;
	if (claim.reserved)
		return -EINVAL;
	return cmd == UVM_MPS_IOC_CLAIM ? uvm_mps_claim(&claim) : uvm_mps_release(claim.va_space_id);
}

static long ioctl_snapshot(struct reader *reader)
{
	long ret;

	mutex_lock(&reader->lock);
	ret = take_snapshot(reader);
	mutex_unlock(&reader->lock);
	wake_up_interruptible(&ring_wait);
	return ret;
}

static long mps_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	void __user *p = (void __user *)arg;

	switch (cmd) {
	case UVM_MPS_IOC_SET_POLICY:
	case UVM_MPS_IOC_CLAIM:
	case UVM_MPS_IOC_RELEASE:
		if (!(filp->f_mode & FMODE_WRITE) || !capable(CAP_SYS_ADMIN))
			return -EPERM;
		break;
	default:
		break;
	}

	switch (cmd) {
	case UVM_MPS_IOC_INFO:
		return ioctl_info(p);
	case UVM_MPS_IOC_SET_POLICY:
		return ioctl_set_policy(p);
	case UVM_MPS_IOC_GET_POLICY:
		return ioctl_get_policy(p);
	case UVM_MPS_IOC_GET_STATS:
		return ioctl_stats(p);
	case UVM_MPS_IOC_SNAPSHOT:
		return ioctl_snapshot(filp->private_data);
	case UVM_MPS_IOC_CLAIM:
	case UVM_MPS_IOC_RELEASE:
		return ioctl_client(cmd, p);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations mps_fops = {
	.owner		= THIS_MODULE,
	.open		= mps_open,
	.release	= mps_release,
	.read		= mps_read,
	.poll		= mps_poll,
	.unlocked_ioctl	= mps_ioctl,
};

static struct miscdevice mps_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "nvidia-uvm-mps",
	.fops	= &mps_fops,
	.mode	= 0600,
};

static void apply_parameters(void)
{
	struct uvm_mps_policy policy = {
		.version = UVM_MPS_ABI_VERSION,
		.mode = min_t(u32, uvm_mps_mode_param, UVM_MPS_ISOLATE),
		.kill_ms = uvm_mps_kill_ms,
		.hold_ms = min_t(u32, uvm_mps_hold_ms, HOLD_MS_MAX),
		.max_sinks = min_t(u32, uvm_mps_max_sinks, SINKS_MAX),
	};

	if (set_policy(&policy) == 0)
		return;
	pr_warn("nvidia-uvm-mps: driver %s is not on the tested list: observing only\n", NV_VERSION_STRING);
	policy.mode = UVM_MPS_OBSERVE;
	(void)set_policy(&policy);
}

int uvm_mps_notice_init(void)
{
	struct slot *slots;
	int ret;

	BUILD_BUG_ON(sizeof(struct uvm_mps_record) != UVM_MPS_RECORD_SIZE);
	BUILD_BUG_ON(sizeof(struct uvm_mps_stats) != STAT_COUNT * sizeof(u64));

	slots = vzalloc(RINGS * RING_RECORDS * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	rings[RING_STATE].slots = slots;
	rings[RING_EVENTS].slots = slots + RING_RECORDS;
	ret = misc_register(&mps_misc);
	if (ret) {
		vfree(slots);
		return ret;
	}
	apply_parameters();
	WRITE_ONCE(registered, true);
	return 0;
}

void uvm_mps_notice_exit(void)
{
	struct slot *slots = rings[RING_STATE].slots;
	unsigned int i;

	WRITE_ONCE(registered, false);
	misc_deregister(&mps_misc);
	for (i = 0; i < RINGS * RING_RECORDS; i++)
		put_pid(slots[i].pid);
	vfree(slots);
}
