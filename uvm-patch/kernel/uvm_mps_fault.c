// SPDX-License-Identifier: MIT
/*
 * A fatal fault: gather the facts, let the policy decide, perform, tell.
 * Runs in the bottom half of the GPU's fault interrupt.
 */
#include "uvm_mps_internal.h"

/* Where the fault is: held from the facts to the act, so that they stay true. */
struct place {
	uvm_va_range_t *va_range;
	struct uvm_mps_room room;
	uvm_ext_gpu_map_t *map;
	struct uvm_mps_sink_map *sink;	/* that covers the address */
	struct uvm_mps_whole *whole;	/* the same */
};

/* NV_PFAULT_CLIENT_GPC_GCC of every dev_fault.h from Volta to Blackwell; tools/check compares them. */
#define GPC_CLIENT_GCC	0x11

static u8 kind_of(const uvm_fault_buffer_entry_t *entry)
{
	switch (entry->fault_type) {
	case UVM_FAULT_TYPE_INVALID_PDE:
	case UVM_FAULT_TYPE_INVALID_PTE:
		return UVM_MPS_KIND_TRANSLATION;
	case UVM_FAULT_TYPE_ATOMIC:
	case UVM_FAULT_TYPE_WRITE:
	case UVM_FAULT_TYPE_READ:
		return UVM_MPS_KIND_PERMISSION;
	case UVM_FAULT_TYPE_VA_LIMIT_VIOLATION:
		return UVM_MPS_KIND_VA_LIMIT;
	case UVM_FAULT_TYPE_UNBOUND_INST_BLOCK:
		return UVM_MPS_KIND_UNBOUND;
	case UVM_FAULT_TYPE_POISONED:
		return UVM_MPS_KIND_POISON;
	default:
		return UVM_MPS_KIND_OTHER;
	}
}

static u8 reason_of(const uvm_fault_buffer_entry_t *entry)
{
	switch (entry->fatal_reason) {
	case UvmEventFatalReasonInvalidAddress:
		return UVM_MPS_REASON_ADDRESS;
	case UvmEventFatalReasonInvalidPermissions:
		return UVM_MPS_REASON_PERMISSIONS;
	case UvmEventFatalReasonInvalidFaultType:
		return UVM_MPS_REASON_FAULT_TYPE;
	default:
		return UVM_MPS_REASON_GLOBAL;
	}
}

/*
 * Under MPS the clients are subcontexts of one TSG. A TSG of one client has
 * nobody else to protect, and the driver's own error is the better answer.
 */
static bool tsg_is_shared(uvm_gpu_va_space_t *gpu_va_space, bool replayable, struct uvm_mps_record *rec)
{
	uvm_parent_gpu_t *parent = gpu_va_space->gpu->parent;
	uvm_user_channel_t *channel;
	bool shared = false;
	u32 i;

	uvm_spin_lock(&parent->instance_ptr_table_lock);
	list_for_each_entry(channel, &gpu_va_space->registered_channels, list_node) {
		if (!channel->in_subctx || !channel->subctx_info)
			continue;
		rec->tsg_id = channel->tsg.id;
		rec->runlist_id = channel->hw_runlist_id;
		rec->engine_type = (u8)channel->engine_type;
		/* A copy engine's fault has none. */
		rec->ve_id = replayable ? uvm_mps_ve_id(rec->ve_id, channel->smc_engine_ve_id_offset) :
			     channel->subctx_id;
		rec->flags |= UVM_MPS_F_SUBCONTEXT;
		for (i = 0; i < channel->tsg.max_subctx_count && !shared; i++) {
			uvm_va_space_t *other = uvm_mps_subctx_va_space(&channel->subctx_info->subctxs[i]);

			shared = other && other != gpu_va_space->va_space;
		}
		break;
	}
	uvm_spin_unlock(&parent->instance_ptr_table_lock);
	return shared;
}

static u8 external_range(struct place *place, uvm_gpu_va_space_t *gpu_va_space, u64 address)
{
	uvm_mps_external_t *external = uvm_mps_external(place->va_range);

	place->room = (struct uvm_mps_room) { external, place->va_range->node.start, place->va_range->node.end };
	uvm_mutex_lock(&uvm_ext_gpu_range_tree(external, gpu_va_space->gpu)->lock);
	place->map = uvm_ext_gpu_map_iter_first(external, gpu_va_space->gpu, address, address);
	if (!place->map)
		return UVM_MPS_RANGE_EXTERNAL_HOLE;
	return place->map->pt_range_vec.page_size < UVM_PAGE_SIZE_64K ?
	       UVM_MPS_RANGE_EXTERNAL_4K : UVM_MPS_RANGE_EXTERNAL_64K;
}

static u8 find_place(struct place *place, uvm_gpu_va_space_t *gpu_va_space, u64 address)
{
	uvm_va_space_t *va_space = gpu_va_space->va_space;
	uvm_va_block_t *hmm_block;

	place->room.end = ~0ull;
	place->va_range = uvm_va_range_find(va_space, address);
	if (!place->va_range) {
		if (uvm_hmm_is_enabled(va_space) && uvm_hmm_va_block_find(va_space, address, &hmm_block) == NV_OK)
			return UVM_MPS_RANGE_HMM;
		return UVM_MPS_RANGE_NONE;
	}
	switch (place->va_range->type) {
	case UVM_VA_RANGE_TYPE_EXTERNAL:
		return external_range(place, gpu_va_space, address);
	case UVM_VA_RANGE_TYPE_MANAGED:
		return uvm_va_range_is_managed_zombie(place->va_range) ? UVM_MPS_RANGE_ZOMBIE : UVM_MPS_RANGE_MANAGED;
	default:
		return UVM_MPS_RANGE_DRIVER;
	}
}

static void leave_place(struct place *place, uvm_gpu_t *gpu)
{
	if (place->room.external)
		uvm_mutex_unlock(&uvm_ext_gpu_range_tree(place->room.external, gpu)->lock);
}

/* Whether a sink of this size would meet nothing else of the client's. */
static bool window_is_free(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			   const struct place *place, u64 start, u64 size)
{
	u64 end = start + size - 1;

	/* HMM makes blocks of 2 MiB wherever the process has memory: stay small. */
	if (!place->room.external && uvm_hmm_is_enabled(gpu_va_space->va_space) && size > UVM_MPS_WINDOW_0)
		return false;
	return start >= place->room.start && end <= place->room.end &&
	       uvm_gpu_can_address(gpu_va_space->gpu, start, size) &&
	       !uvm_mps_obstacle(client, gpu_va_space, &place->room, &start, &end);
}

/* The levels whose window finds room: the largest needs only that of its entries which has the address. */
static u8 free_windows(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
		       const struct place *place, u64 address)
{
	unsigned int level;
	u8 free = 0;

	for (level = 0; level < 3; level++) {
		u64 size = uvm_mps_window(level);

		if (!window_is_free(client, gpu_va_space, place, UVM_ALIGN_DOWN(address, size), size))
			break; /* A larger one holds the smaller. */
		free |= 1u << level;
	}
	if (free & 2 && uvm_gpu_can_address(gpu_va_space->gpu, UVM_ALIGN_DOWN(address, (u64)UVM_MPS_WINDOW_3),
					    UVM_MPS_WINDOW_3))
		free |= 8;
	return free;
}

/* The caller holds client->lock if there is a client. */
static void gather(struct uvm_mps_facts *facts, struct place *place, struct uvm_mps_client *client,
		   uvm_gpu_va_space_t *gpu_va_space, const uvm_fault_buffer_entry_t *entry)
{
	u64 address = entry->fault_address;

	facts->kind = kind_of(entry);
	facts->reason = reason_of(entry);
	facts->prefetch = entry->fault_access_type == UVM_FAULT_ACCESS_TYPE_PREFETCH;
	facts->fetch = entry->fault_source.client_type == UVM_FAULT_CLIENT_TYPE_GPC &&
		       entry->fault_source.client_id == GPC_CLIENT_GCC;
	facts->ats = g_uvm_global.ats.enabled;
	facts->addressable = uvm_gpu_can_address(gpu_va_space->gpu, UVM_ALIGN_DOWN(address, UVM_PAGE_SIZE_4K),
						 UVM_PAGE_SIZE_4K);
	facts->range = find_place(place, gpu_va_space, address);
	if (!client)
		return;

	facts->condemned = test_bit(CLIENT_CONDEMNED, &client->state);
	facts->untried = uvm_mps_untried(client, gpu_va_space);
	facts->sinks = client->num_sinks;
	facts->retries = (u32)atomic_read(&client->retries);
	place->sink = place->map ? uvm_mps_sink_of_map(client, place->map) :
				   uvm_mps_sink_at(client, gpu_va_space, address);
	place->whole = uvm_mps_whole_of(client, gpu_va_space);
	facts->whole = place->whole != NULL;
	if (place->sink || !uvm_mps_whole_in(place->whole, address, address))
		place->whole = NULL;
	facts->covered = place->sink || place->whole;
	facts->hits = place->sink ? place->sink->hits : place->whole ? place->whole->hits : 0;
	if (!facts->covered && !place->map)
		facts->free_windows = free_windows(client, gpu_va_space, place, address);
}

/* An ordinary sink, or the last resort where that is decided or no memory is left for another. */
static NV_STATUS insert(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 address,
			const struct place *place, const struct uvm_mps_decision *decision, bool whole)
{
	NV_STATUS status = NV_ERR_NO_MEMORY;

	if (!whole)
		status = uvm_mps_sink_insert(client, gpu_va_space, &place->room, address, decision);
	if (status != NV_ERR_NO_MEMORY || place->room.external || uvm_mps_whole_of(client, gpu_va_space))
		return status;
	if (uvm_mps_whole_insert(client, gpu_va_space) == NV_OK &&
	    uvm_mps_whole_in(uvm_mps_whole_of(client, gpu_va_space), address, address))
		return NV_OK;
	return whole ? uvm_mps_sink_insert(client, gpu_va_space, &place->room, address, decision) : status;
}

static NV_STATUS perform(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 address,
			 struct place *place, const struct uvm_mps_decision *decision)
{
	switch (decision->action) {
	case UVM_MPS_ACT_RETRY:
		if (place->sink)
			place->sink->hits++;
		else
			uvm_mps_whole_hit(client, place->whole);
		return NV_OK;
	case UVM_MPS_ACT_INSERT:
	case UVM_MPS_ACT_WHOLE:
		return insert(client, gpu_va_space, address, place, decision, decision->action == UVM_MPS_ACT_WHOLE);
	case UVM_MPS_ACT_REMAP:
		atomic_inc(&client->retries);
		return uvm_mps_sink_remap(client, gpu_va_space, place->map, decision);
	default: /* PERMIT: uvm_mps_permits() counts when the driver asks. */
		return NV_OK;
	}
}

static void fault_record(struct uvm_mps_record *rec, struct uvm_mps_client *client,
			 uvm_gpu_t *gpu, const uvm_fault_buffer_entry_t *entry)
{
	uvm_mps_record_init(rec, UVM_MPS_FATAL_FAULT, client, gpu);
	rec->count = entry->num_instances;
	rec->gpu_time_ns = entry->timestamp;
	rec->address = entry->fault_address;
	rec->instance_ptr = entry->instance_ptr.address | (entry->instance_ptr.aperture == UVM_APERTURE_SYS);
	rec->ve_id = entry->fault_source.ve_id;
	rec->client_id = entry->fault_source.client_id;
	rec->gpc_id = entry->fault_source.gpc_id;
	rec->utlb_id = entry->fault_source.utlb_id;
	rec->mmu_engine_id = entry->fault_source.mmu_engine_id;
	rec->fault_type = (u8)entry->fault_type;
	rec->access_type = (u8)entry->fault_access_type;
	rec->fatal_reason = (u8)entry->fatal_reason;
}

/* Writes the record unless the client's share of the ring is used up. */
void uvm_mps_tell(struct uvm_mps_client *client, struct uvm_mps_record *rec, struct pid *pid)
{
	bool passed = rec->type == UVM_MPS_FATAL_FAULT && rec->verdict != UVM_MPS_ISOLATED &&
		      rec->verdict != UVM_MPS_REPEAT;
	struct uvm_mps_meter *meter = !client ? &uvm_mps.stray_meter :
				      &client->meters[passed ? METER_PASSED : METER_SURVIVED];
	struct uvm_mps_record gap;
	u32 suppressed = 0;
	bool room;

	spin_lock(&uvm_mps.lock);
	room = uvm_mps_meter_take(meter, rec->time_ns);
	if (room)
		suppressed = uvm_mps_meter_drain(meter);
	spin_unlock(&uvm_mps.lock);

	if (!room) {
		uvm_mps_count(STAT_SUPPRESSED);
		return;
	}
	if (suppressed) {
		uvm_mps_record_init(&gap, UVM_MPS_SUPPRESSED, client, NULL);
		gap.count = suppressed;
		uvm_mps_record_push(&gap, pid);
	}
	uvm_mps_record_push(rec, pid);
}

static bool fatal_fault(uvm_gpu_va_space_t *gpu_va_space, uvm_user_channel_t *channel, uvm_fault_buffer_entry_t *entry)
{
	struct uvm_mps_client *client;
	struct uvm_mps_decision decision;
	struct uvm_mps_facts facts = { 0 };
	struct uvm_mps_record rec;
	struct place place = { 0 };
	NV_STATUS status = NV_OK;

	if (!uvm_mps_feeding())
		return false;

	client = uvm_mps_client_find(gpu_va_space->va_space);
	fault_record(&rec, client, gpu_va_space->gpu, entry);
	facts.mode = (u8)uvm_mps_mode();
	facts.replayable = !channel;
	facts.known = client != NULL;
	facts.alone = !!(READ_ONCE(uvm_mps.policy.flags) & UVM_MPS_ALONE);
	facts.max_sinks = READ_ONCE(uvm_mps.policy.max_sinks);
	facts.shared = tsg_is_shared(gpu_va_space, facts.replayable, &rec);
	if (channel)
		rec.channel_id = channel->hw_channel_id;
	else
		rec.flags |= UVM_MPS_F_REPLAYABLE;

	if (client)
		mutex_lock(&client->lock);
	gather(&facts, &place, client, gpu_va_space, entry);
	uvm_mps_decide(&facts, &decision);
	if (decision.action != UVM_MPS_ACT_PASS)
		status = perform(client, gpu_va_space, entry->fault_address, &place, &decision);
	leave_place(&place, gpu_va_space->gpu);
	if (client)
		mutex_unlock(&client->lock);

	if (status != NV_OK) {
		decision.verdict = UVM_MPS_FAILED;
		decision.action = UVM_MPS_ACT_PASS;
		decision.sink = UVM_MPS_SINK_NONE;
	}
	if (decision.action != UVM_MPS_ACT_PASS) {
		uvm_mps_condemn(client);
		rec.flags |= UVM_MPS_F_CONDEMNED;
		uvm_mps_count(STAT_ISOLATED);
	} else {
		uvm_mps_count(STAT_PASSED);
	}

	rec.fault_class = decision.fault_class;
	rec.range_type = facts.range;
	rec.verdict = decision.verdict;
	rec.sink = decision.sink;
	rec.nv_status = decision.verdict == UVM_MPS_UNTRIED ? facts.untried : status;
	uvm_mps_count(STAT_FAULTS);
	uvm_mps_tell(client, &rec, client ? client->pid : NULL);
	return decision.action != UVM_MPS_ACT_PASS;
}

bool uvm_mps_replayable_fault(uvm_gpu_va_space_t *gpu_va_space, uvm_fault_buffer_entry_t *entry)
{
	return fatal_fault(gpu_va_space, NULL, entry);
}

bool uvm_mps_nonreplayable_fault(uvm_gpu_va_space_t *gpu_va_space,
				 uvm_user_channel_t *channel,
				 uvm_fault_buffer_entry_t *entry)
{
	if (!fatal_fault(gpu_va_space, channel, entry))
		return false;
	entry->is_fatal = false;
	return true;
}

/*
 * Called under the block's lock, so client->lock is not for here: a sink's
 * insertion may evict, and wait for a block, with client->lock held.
 */
bool uvm_mps_permits(uvm_fault_buffer_entry_t *entry)
{
	struct uvm_mps_client *client = uvm_mps_client_find(entry->va_space);
	uvm_va_range_t *va_range;

	if (!client || !test_bit(CLIENT_CONDEMNED, &client->state) || uvm_mps_mode() != UVM_MPS_ISOLATE)
		return false;
	if (entry->fault_access_type == UVM_FAULT_ACCESS_TYPE_PREFETCH)
		return false;
	va_range = uvm_va_range_find(entry->va_space, entry->fault_address);
	if (!va_range || va_range->type != UVM_VA_RANGE_TYPE_MANAGED || !uvm_va_range_is_managed_zombie(va_range))
		return false;
	return atomic_inc_return(&client->retries) <= UVM_MPS_MAX_RETRIES;
}

void uvm_mps_zombie_fault(uvm_fault_buffer_entry_t *entry)
{
	struct uvm_mps_record rec;
	struct pid *pid = NULL;

	if (!uvm_mps_feeding())
		return;
	fault_record(&rec, NULL, NULL, entry);
	rec.type = UVM_MPS_ZOMBIE_FAULT;
	rec.fault_class = 'P';
	rec.flags |= UVM_MPS_F_REPLAYABLE | UVM_MPS_F_SUBCONTEXT;
	uvm_mps_blame_grave(&rec, &pid);
	uvm_mps_count(STAT_ZOMBIES);
	uvm_mps_tell(NULL, &rec, pid);
	put_pid(pid);
}
