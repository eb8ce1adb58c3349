// SPDX-License-Identifier: MIT
/*
 * Who is there: VA spaces (one per client process), their channels, and what
 * becomes of a client after its first isolated fault: it is condemned, may
 * map nothing more, and is killed at a deadline.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include "uvm_mps_internal.h"

#define GRAVES		64u	/* dead subcontexts remembered, to name them in zombie faults */
#define VA_BITS_PASCAL	49	/* page tables of GPUs up to Ada */
#define VA_BITS_HOPPER	57	/* those of Hopper and Blackwell */
#define GRAVES_EACH	4u	/* of one process, which cannot take everybody's */

/* Usable before uvm_mps_init(): the driver's device exists a little earlier. Mode is off until then. */
struct uvm_mps_state uvm_mps = {
	.lock = __SPIN_LOCK_UNLOCKED(uvm_mps.lock),
	.clients = LIST_HEAD_INIT(uvm_mps.clients),
	.holds = LIST_HEAD_INIT(uvm_mps.holds),
};
atomic_t uvm_mps_condemned = ATOMIC_INIT(0);

static struct {
	struct uvm_mps_record rec;
	struct pid *pid;
	u64 number;		/* in order of burial; 0: empty */
} graves[GRAVES];
static u64 buried;

static struct uvm_mps_client *find_locked(const uvm_va_space_t *va_space)
{
	struct uvm_mps_client *client;

	list_for_each_entry(client, &uvm_mps.clients, node) {
		if (client->va_space == va_space)
			return client;
	}
	return NULL;
}

struct uvm_mps_client *uvm_mps_client_find(uvm_va_space_t *va_space)
{
	struct uvm_mps_client *client;

	spin_lock(&uvm_mps.lock);
	client = find_locked(va_space);
	spin_unlock(&uvm_mps.lock);
	return client;
}

static void push_event(struct uvm_mps_client *client, u32 type)
{
	struct uvm_mps_record rec;

	if (!uvm_mps_feeding())
		return;
	uvm_mps_record_init(&rec, type, client, NULL);
	uvm_mps_record_push(&rec, client->pid);
}

static void kill_work(struct work_struct *work)
{
	struct uvm_mps_client *client = container_of(to_delayed_work(work), struct uvm_mps_client, kill_work);

	if (test_and_set_bit(CLIENT_KILLED, &client->state))
		return;
	uvm_mps_count(STAT_KILLED);
	push_event(client, UVM_MPS_KILLED);
	kill_pid(client->pid, SIGKILL, 1);
}

void uvm_mps_condemn(struct uvm_mps_client *client)
{
	u32 kill_ms = READ_ONCE(uvm_mps.policy.kill_ms);

	if (test_and_set_bit(CLIENT_CONDEMNED, &client->state))
		return;
	atomic_inc(&uvm_mps_condemned);
	if (kill_ms != UVM_MPS_NEVER)
		queue_delayed_work(uvm_mps.queue, &client->kill_work, msecs_to_jiffies(kill_ms));
}

void uvm_mps_va_space_add(uvm_va_space_t *va_space)
{
	struct uvm_mps_client *client = kzalloc(sizeof(*client), GFP_KERNEL);

	if (!client)
		return; /* A stranger: its faults are left to the driver. */

	INIT_LIST_HEAD(&client->channels);
	INIT_LIST_HEAD(&client->sinks);
	INIT_LIST_HEAD(&client->pages);
	INIT_LIST_HEAD(&client->wholes);
	mutex_init(&client->lock);
	INIT_DELAYED_WORK(&client->kill_work, kill_work);
	uvm_mps_meter_init(&client->meters[METER_SURVIVED], ktime_get_boottime_ns());
	client->meters[METER_PASSED] = client->meters[METER_SURVIVED];
	client->va_space = va_space;
	client->pid = get_task_pid(current, PIDTYPE_TGID);

	spin_lock(&uvm_mps.lock);
	client->id = ++uvm_mps.next_id;
	list_add_tail(&client->node, &uvm_mps.clients);
	uvm_mps_count(STAT_CLIENTS);
	push_event(client, UVM_MPS_VASPACE_ADD);
	spin_unlock(&uvm_mps.lock);
}

void uvm_mps_va_space_del(uvm_va_space_t *va_space)
{
	struct uvm_mps_channel *channel, *next;
	struct uvm_mps_client *client;
	struct uvm_mps_record rec;
	u32 suppressed;

	spin_lock(&uvm_mps.lock);
	client = find_locked(va_space);
	if (client)
		list_del(&client->node); /* No claim can find it and set a timer any more. */
	spin_unlock(&uvm_mps.lock);
	if (!client)
		return;

	cancel_delayed_work_sync(&client->kill_work);
	if (test_bit(CLIENT_CONDEMNED, &client->state))
		atomic_dec(&uvm_mps_condemned);
	WARN_ON(!list_empty(&client->sinks) || !list_empty(&client->pages) || !list_empty(&client->wholes));

	atomic64_dec(&uvm_mps.stats[STAT_CLIENTS]);
	suppressed = uvm_mps_meter_drain(&client->meters[METER_SURVIVED]) +
		     uvm_mps_meter_drain(&client->meters[METER_PASSED]);
	if (uvm_mps_feeding() && suppressed) {
		uvm_mps_record_init(&rec, UVM_MPS_SUPPRESSED, client, NULL);
		rec.count = suppressed;
		uvm_mps_record_push(&rec, client->pid);
	}
	push_event(client, UVM_MPS_VASPACE_DEL);

	list_for_each_entry_safe(channel, next, &client->channels, node)
		kfree(channel);
	put_pid(client->pid);
	kfree(client);
}

static void channel_record(struct uvm_mps_record *rec, const uvm_user_channel_t *channel)
{
	rec->instance_ptr = channel->instance_ptr.addr.address |
			    (channel->instance_ptr.addr.aperture == UVM_APERTURE_SYS);
	rec->runlist_id = channel->hw_runlist_id;
	rec->channel_id = channel->hw_channel_id;
	rec->engine_type = (u8)channel->engine_type;
	if (channel->tsg.valid)
		rec->tsg_id = channel->tsg.id;
	if (channel->in_subctx) {
		rec->ve_id = channel->subctx_id;
		rec->flags |= UVM_MPS_F_SUBCONTEXT;
	}
}

/* What the emulator has not, or not whole, by what the driver itself says; the version's own check is that of the mode. */
u8 uvm_mps_untried(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space)
{
	u32 va_bits = gpu_va_space->page_tables.hal->num_va_bits();
	const struct uvm_mps_channel *channel;
	u8 untried = 0;

	if (va_bits != VA_BITS_PASCAL && va_bits != VA_BITS_HOPPER)
		untried |= UVM_MPS_UNTRIED_FORMAT;
	if (gpu_va_space->gpu->parent->smc.enabled)
		untried |= UVM_MPS_UNTRIED_MIG;
	if (uvm_hmm_is_enabled(gpu_va_space->va_space))
		untried |= UVM_MPS_UNTRIED_HMM;
	spin_lock(&uvm_mps.lock);
	list_for_each_entry(channel, &client->channels, node) {
		if (memcmp(channel->rec.gpu_uuid, uvm_mps_gpu_uuid(gpu_va_space->gpu), sizeof(channel->rec.gpu_uuid)))
			untried |= UVM_MPS_UNTRIED_GPUS;
	}
	spin_unlock(&uvm_mps.lock);
	return untried & ~(u8)uvm_mps_untested;
}

/* Once for each: before the first fault. */
static void warn_of_untried(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space)
{
	static unsigned long warned;
	unsigned long untried = gpu_va_space && uvm_mps_mode() == UVM_MPS_ISOLATE ?
				uvm_mps_untried(client, gpu_va_space) : 0;

	if (!(untried & ~READ_ONCE(warned)))
		return;
	WRITE_ONCE(warned, warned | untried);
	pr_warn("nvidia-uvm-mps: not isolated, for want of a trial: clients like process %d; uvm_mps_untested=%lu allows it\n",
		pid_nr(client->pid), untried | uvm_mps_untested);
}

void uvm_mps_channel_add(uvm_va_space_t *va_space, uvm_user_channel_t *channel)
{
	struct uvm_mps_channel *entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	struct uvm_mps_client *client = uvm_mps_client_find(va_space);

	if (!client || !entry) {
		kfree(entry);
		return;
	}

	entry->key = channel;
	entry->first_ve_id = channel->smc_engine_ve_id_offset;
	entry->shared_tsg = channel->in_subctx && channel->subctx_info;
	uvm_mps_record_init(&entry->rec, UVM_MPS_CHANNEL_ADD, client, channel->gpu);
	channel_record(&entry->rec, channel);

	spin_lock(&uvm_mps.lock);
	list_add_tail(&entry->node, &client->channels);
	if (uvm_mps_feeding())
		uvm_mps_record_push(&entry->rec, client->pid);
	spin_unlock(&uvm_mps.lock);
	warn_of_untried(client, uvm_gpu_va_space_get(va_space, channel->gpu));
}

static bool same_tsg(const struct uvm_mps_record *a, const struct uvm_mps_record *b)
{
	return a->tsg_id == b->tsg_id && a->runlist_id == b->runlist_id &&
	       !memcmp(a->gpu_uuid, b->gpu_uuid, sizeof(a->gpu_uuid));
}

static bool same_subcontext(const struct uvm_mps_record *a, const struct uvm_mps_record *b)
{
	return same_tsg(a, b) && a->ve_id == b->ve_id;
}

/* In the process's own grave of this subcontext, else its oldest if it has its share, else in the oldest of all. */
static void bury(const struct uvm_mps_channel *channel, struct pid *pid)
{
	unsigned int oldest = 0, own = 0, owned = 0, slot;

	for (slot = 0; slot < GRAVES; slot++) {
		if (graves[slot].pid == pid) {
			if (same_subcontext(&graves[slot].rec, &channel->rec))
				goto found;
			if (!owned++ || graves[slot].number < graves[own].number)
				own = slot;
		}
		if (graves[slot].number < graves[oldest].number)
			oldest = slot;
	}
	slot = owned < GRAVES_EACH ? oldest : own;
found:
	put_pid(graves[slot].pid);
	graves[slot].rec = channel->rec;
	graves[slot].pid = get_pid(pid);
	graves[slot].number = ++buried;
}

void uvm_mps_channel_del(uvm_user_channel_t *channel)
{
	struct uvm_mps_channel *entry, *next;
	struct uvm_mps_client *client;

	spin_lock(&uvm_mps.lock);
	client = channel->gpu_va_space ? find_locked(channel->gpu_va_space->va_space) : NULL;
	if (!client)
		goto out;
	list_for_each_entry_safe(entry, next, &client->channels, node) {
		if (entry->key != channel)
			continue;
		list_del(&entry->node);
		if (entry->shared_tsg)
			bury(entry, client->pid);
		if (uvm_mps_feeding()) {
			entry->rec.type = UVM_MPS_CHANNEL_DEL;
			entry->rec.time_ns = ktime_get_boottime_ns();
			uvm_mps_record_push(&entry->rec, client->pid);
		}
		kfree(entry);
		break;
	}
out:
	spin_unlock(&uvm_mps.lock);
}

/* The living channel, of any client, that a fault's instance pointer belongs to. */
static const struct uvm_mps_channel *channel_by_instance(u64 instance_ptr)
{
	struct uvm_mps_channel *channel;
	struct uvm_mps_client *client;

	list_for_each_entry(client, &uvm_mps.clients, node) {
		list_for_each_entry(channel, &client->channels, node) {
			if (channel->rec.instance_ptr == instance_ptr)
				return channel;
		}
	}
	return NULL;
}

/*
 * A zombie fault names a living channel of the TSG and a dead VEID: the last
 * client that had this VEID in this TSG is the one that was buried too early.
 */
void uvm_mps_blame_grave(struct uvm_mps_record *rec, struct pid **pid)
{
	const struct uvm_mps_channel *alive;
	unsigned int i;
	u64 youngest = 0;

	spin_lock(&uvm_mps.lock);
	alive = channel_by_instance(rec->instance_ptr);
	if (alive) {
		rec->ve_id = uvm_mps_ve_id(rec->ve_id, alive->first_ve_id);
		rec->tsg_id = alive->rec.tsg_id;
		rec->runlist_id = alive->rec.runlist_id;
		memcpy(rec->gpu_uuid, alive->rec.gpu_uuid, sizeof(rec->gpu_uuid));
	}
	for (i = 0; alive && i < GRAVES; i++) {
		if (graves[i].number <= youngest || !same_subcontext(&graves[i].rec, rec))
			continue;
		youngest = graves[i].number;
		rec->va_space_id = graves[i].rec.va_space_id;
		*pid = graves[i].pid;
	}
	get_pid(*pid);
	spin_unlock(&uvm_mps.lock);
}

/* The caller of these two holds uvm_mps.lock. */
size_t uvm_mps_state_count(void)
{
	struct uvm_mps_client *client;
	struct list_head *node;
	size_t n = 0;

	list_for_each_entry(client, &uvm_mps.clients, node) {
		n++;
		list_for_each(node, &client->channels)
			n++;
	}
	return n;
}

size_t uvm_mps_state_fill(struct uvm_mps_record *recs, struct pid **pids, size_t max)
{
	struct uvm_mps_channel *channel;
	struct uvm_mps_client *client;
	size_t n = 0;

	list_for_each_entry(client, &uvm_mps.clients, node) {
		if (n == max)
			break;
		uvm_mps_record_init(&recs[n], UVM_MPS_VASPACE_ADD, client, NULL);
		pids[n++] = get_pid(client->pid);
		list_for_each_entry(channel, &client->channels, node) {
			if (n == max)
				break;
			recs[n] = channel->rec;
			pids[n++] = get_pid(client->pid);
		}
	}
	return n;
}

/* A mapping that a condemned client may not make any more. */
static bool is_mapping_command(unsigned int cmd)
{
	switch (cmd) {
	case 0: /* mmap */
	case UVM_CREATE_EXTERNAL_RANGE:
	case UVM_MAP_EXTERNAL_ALLOCATION:
	case UVM_MAP_EXTERNAL_SPARSE:
	case UVM_MAP_DYNAMIC_PARALLELISM_REGION:
	case UVM_ALLOC_SEMAPHORE_POOL:
	case UVM_REGISTER_GPU_VASPACE:
	case UVM_REGISTER_CHANNEL:
#ifdef UVM_ALLOC_DEVICE_P2P
	case UVM_ALLOC_DEVICE_P2P:
#endif
		return true;
	default:
		return false;
	}
}

bool uvm_mps_refuses(struct file *filp, unsigned int cmd)
{
	struct uvm_mps_client *client;
	struct uvm_mps_record rec;
	uvm_va_space_t *va_space;

	if (!is_mapping_command(cmd))
		return false;
	va_space = uvm_fd_va_space(filp);
	client = va_space ? uvm_mps_client_find(va_space) : NULL;
	if (!client || !test_bit(CLIENT_CONDEMNED, &client->state))
		return false;

	uvm_mps_count(STAT_REFUSED);
	if (uvm_mps_feeding()) {
		uvm_mps_record_init(&rec, UVM_MPS_REFUSED, client, NULL);
		rec.address = cmd;
		uvm_mps_tell(client, &rec, client->pid);
	}
	return true;
}

int uvm_mps_claim(const struct uvm_mps_claim *claim)
{
	struct uvm_mps_client *client;
	int ret = -ESRCH;

	spin_lock(&uvm_mps.lock);
	list_for_each_entry(client, &uvm_mps.clients, node) {
		if (client->id != claim->va_space_id)
			continue;
		if (!test_bit(CLIENT_CONDEMNED, &client->state)) {
			ret = -EINVAL;
			break;
		}
		ret = 0;
		if (claim->kill_ms == UVM_MPS_NEVER)
			cancel_delayed_work(&client->kill_work);
		else
			mod_delayed_work(uvm_mps.queue, &client->kill_work, msecs_to_jiffies(claim->kill_ms));
		break;
	}
	spin_unlock(&uvm_mps.lock);
	return ret;
}

int uvm_mps_init(void)
{
	int ret;

	uvm_mps.queue = alloc_workqueue("nvidia-uvm-mps", 0, 0);
	if (!uvm_mps.queue)
		return -ENOMEM;
	uvm_mps_meter_init(&uvm_mps.stray_meter, ktime_get_boottime_ns());
	ret = uvm_mps_notice_init();
	if (ret) {
		destroy_workqueue(uvm_mps.queue);
		uvm_mps.queue = NULL;
		pr_err("nvidia-uvm-mps: no notice device (%d), the driver works as without it\n", ret);
	}
	return ret;
}

void uvm_mps_exit(void)
{
	unsigned int i;

	if (!uvm_mps.queue)
		return;
	destroy_workqueue(uvm_mps.queue);
	uvm_mps_notice_exit();
	for (i = 0; i < GRAVES; i++)
		put_pid(graves[i].pid);
}
