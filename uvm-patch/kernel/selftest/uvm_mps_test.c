// SPDX-License-Identifier: MIT
/*
 * See uvm_mps_test.h. Faults of the calling process are made up and go through
 * the functions that the hooks call, on every GPU on which the caller has an
 * address space; a copy engine reads the page-table entries back. The caller
 * is a condemned client afterwards, as after a real fault: it is to be a
 * process that has nothing else to do.
 */
#include "uvm_api.h"
#include "uvm_mps_internal.h"
#include "uvm_mps_test.h"
#include "uvm_push.h"

#define SEARCH_FROM	(1ull << 44)
#define SEARCH_STEP	(1ull << 30)
#define SEARCH_TRIES	1024u

#define CHECK(cond) do {								\
	params->checks++;								\
	if (!(cond)) {									\
		params->failed++;							\
		pr_err("nvidia-uvm-mps: self test: line %d: %s\n", __LINE__, #cond);	\
	}										\
} while (0)

/* The policy as this kernel's compiler has built it; all of it is tested in user space. */
static void policy(UVM_TEST_MPS_SELF_PARAMS *params)
{
	static const struct { u8 kind, reason, range, replayable, fault_class, action, sink; } rows[] = {
		{ UVM_MPS_KIND_TRANSLATION, UVM_MPS_REASON_ADDRESS, UVM_MPS_RANGE_NONE, 1,
		  'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE },
		{ UVM_MPS_KIND_TRANSLATION, UVM_MPS_REASON_ADDRESS, UVM_MPS_RANGE_EXTERNAL_HOLE, 0,
		  'B', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE },
		{ UVM_MPS_KIND_PERMISSION, UVM_MPS_REASON_PERMISSIONS, UVM_MPS_RANGE_EXTERNAL_64K, 1,
		  'C', UVM_MPS_ACT_REMAP, UVM_MPS_SINK_REMAP_SPARSE },
		{ UVM_MPS_KIND_PERMISSION, UVM_MPS_REASON_PERMISSIONS, UVM_MPS_RANGE_EXTERNAL_4K, 1,
		  'C', UVM_MPS_ACT_REMAP, UVM_MPS_SINK_REMAP_PAGE },
		{ UVM_MPS_KIND_TRANSLATION, UVM_MPS_REASON_ADDRESS, UVM_MPS_RANGE_ZOMBIE, 1,
		  'D', UVM_MPS_ACT_PERMIT, UVM_MPS_SINK_PERMIT },
		{ UVM_MPS_KIND_TRANSLATION, UVM_MPS_REASON_ADDRESS, UVM_MPS_RANGE_HMM, 1, 'E', UVM_MPS_ACT_PASS, 0 },
		{ UVM_MPS_KIND_VA_LIMIT, UVM_MPS_REASON_FAULT_TYPE, UVM_MPS_RANGE_NONE, 1, 'H', UVM_MPS_ACT_PASS, 0 },
		{ UVM_MPS_KIND_POISON, UVM_MPS_REASON_FAULT_TYPE, UVM_MPS_RANGE_NONE, 1, 'J', UVM_MPS_ACT_PASS, 0 },
		{ UVM_MPS_KIND_TRANSLATION, UVM_MPS_REASON_GLOBAL, UVM_MPS_RANGE_NONE, 1, 'Q', UVM_MPS_ACT_PASS, 0 },
	};
	struct uvm_mps_decision d;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uvm_mps_facts f = {
			.mode = UVM_MPS_ISOLATE, .known = 1, .shared = 1, .addressable = 1, .free_windows = 1,
			.max_sinks = 1, .kind = rows[i].kind, .reason = rows[i].reason, .range = rows[i].range,
			.replayable = rows[i].replayable,
		};

		uvm_mps_decide(&f, &d);
		CHECK(d.fault_class == rows[i].fault_class && d.action == rows[i].action && d.sink == rows[i].sink);
	}
}

/* What the feed has noted of the caller is what the driver has. */
static void feed(UVM_TEST_MPS_SELF_PARAMS *params, uvm_va_space_t *va_space, struct uvm_mps_client *client)
{
	uvm_gpu_va_space_t *gpu_va_space;
	struct uvm_mps_channel *entry;
	uvm_user_channel_t *channel;
	unsigned int noted = 0, found, registered = 0;

	CHECK(client->pid == task_tgid(current) && client->id && client->id <= uvm_mps.next_id);
	spin_lock(&uvm_mps.lock);
	list_for_each_entry(entry, &client->channels, node)
		noted++;
	for_each_gpu_va_space(gpu_va_space, va_space) {
		list_for_each_entry(channel, &gpu_va_space->registered_channels, list_node) {
			registered++;
			found = 0;
			list_for_each_entry(entry, &client->channels, node)
				found += entry->key == channel && entry->rec.channel_id == channel->hw_channel_id;
			CHECK(found == 1);
		}
	}
	spin_unlock(&uvm_mps.lock);
	CHECK(noted == registered);
}

/* Where the process has nothing, and a large window could grow. */
static u64 empty_place(uvm_gpu_va_space_t *gpu_va_space)
{
	u64 address = SEARCH_FROM;
	unsigned int i;

	for (i = 0; i < SEARCH_TRIES; i++, address += SEARCH_STEP) {
		if (uvm_gpu_can_address(gpu_va_space->gpu, address, SEARCH_STEP) &&
		    uvm_va_space_range_empty(gpu_va_space->va_space, address, address + SEARCH_STEP - 1))
			return address;
	}
	return 0;
}

/* The first entry of a sink, as the GPU has it; 0 if it cannot be read. */
static u64 entry_of(const struct uvm_mps_sink_map *sink)
{
	uvm_gpu_t *gpu = sink->gpu_va_space->gpu;
	uvm_gpu_phys_address_t where;
	uvm_push_t push;
	uvm_mem_t *mem;
	u64 entry = 0;

	if (uvm_mem_alloc_sysmem_and_map_cpu_kernel(PAGE_SIZE, current->mm, &mem) != NV_OK)
		return 0;
	if (uvm_mem_map_gpu_kernel(mem, gpu) != NV_OK)
		goto out;
	if (uvm_push_begin(gpu->channel_manager, UVM_CHANNEL_TYPE_GPU_TO_CPU, &push, "mps self test") != NV_OK)
		goto out;
	where = uvm_page_table_range_entry_address(sink->vec.tree, &sink->vec.ranges[0], 0);
	gpu->parent->ce_hal->memcopy(&push, uvm_mem_gpu_address_virtual_kernel(mem, gpu),
				     uvm_mmu_gpu_address(gpu, where), sizeof(entry));
	if (uvm_push_end_and_wait(&push) == NV_OK)
		entry = *(u64 *)uvm_mem_get_cpu_addr_kernel(mem);
out:
	uvm_mem_free(mem);
	return entry;
}

static uvm_fault_buffer_entry_t made_up(u64 address, uvm_fault_type_t type, uvm_fault_access_type_t access)
{
	uvm_fault_buffer_entry_t entry;

	memset(&entry, 0, sizeof(entry));
	entry.fault_address = address;
	entry.fault_type = type;
	entry.fault_access_type = access;
	entry.fatal_reason = UvmEventFatalReasonInvalidAddress;
	entry.is_fatal = true;
	entry.num_instances = 1;
	return entry;
}

static NvU32 more_va_bits(void)
{
	return 64;
}

/* A machine such as never was, by the driver's own words for it. */
static void untried(UVM_TEST_MPS_SELF_PARAMS *params, struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space)
{
	uvm_fault_buffer_entry_t entry = made_up(empty_place(gpu_va_space), UVM_FAULT_TYPE_INVALID_PTE,
						 UVM_FAULT_ACCESS_TYPE_WRITE);
	uvm_mmu_mode_hal_t *hal = gpu_va_space->page_tables.hal, newer = *hal;
	uvm_parent_gpu_t *parent = gpu_va_space->gpu->parent;
	struct uvm_mps_channel *channel = list_first_entry_or_null(&client->channels, struct uvm_mps_channel, node);
	unsigned int sinks = client->num_sinks, allowed = uvm_mps_untested;
	bool mig = parent->smc.enabled, ats = g_uvm_global.ats.enabled;

	uvm_mps_untested = UVM_MPS_UNTRIED_HMM;
	newer.num_va_bits = more_va_bits;
	gpu_va_space->page_tables.hal = &newer;
	CHECK(uvm_mps_untried(client, gpu_va_space) == UVM_MPS_UNTRIED_FORMAT);
	CHECK(!uvm_mps_replayable_fault(gpu_va_space, &entry));
	uvm_mps_untested |= UVM_MPS_UNTRIED_FORMAT;
	CHECK(!uvm_mps_untried(client, gpu_va_space));
	gpu_va_space->page_tables.hal = hal;

	parent->smc.enabled = true;
	CHECK(uvm_mps_untried(client, gpu_va_space) == UVM_MPS_UNTRIED_MIG);
	CHECK(!uvm_mps_replayable_fault(gpu_va_space, &entry));
	uvm_mps_untested |= UVM_MPS_UNTRIED_MIG;
	CHECK(!uvm_mps_untried(client, gpu_va_space));
	parent->smc.enabled = mig;

	if (channel) {
		channel->rec.gpu_uuid[0] ^= 1;
		CHECK(uvm_mps_untried(client, gpu_va_space) == UVM_MPS_UNTRIED_GPUS);
		CHECK(!uvm_mps_replayable_fault(gpu_va_space, &entry));
		uvm_mps_untested |= UVM_MPS_UNTRIED_GPUS;
		CHECK(!uvm_mps_untried(client, gpu_va_space));
		channel->rec.gpu_uuid[0] ^= 1;
	}
	/* No key opens this one: the GPU would ask the CPU's page tables. */
	g_uvm_global.ats.enabled = true;
	CHECK(!uvm_mps_replayable_fault(gpu_va_space, &entry));
	g_uvm_global.ats.enabled = ats;
	uvm_mps_untested = allowed;
	CHECK(client->num_sinks == sinks);
}

/* What is left to the driver stays so; the rest gets sinks in this page tree, once each. */
static void faults(UVM_TEST_MPS_SELF_PARAMS *params, struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space)
{
	u64 address = empty_place(gpu_va_space), told = (u64)atomic64_read(&uvm_mps.stats[STAT_RECORDS]);
	uvm_fault_buffer_entry_t entry = made_up(address, UVM_FAULT_TYPE_VA_LIMIT_VIOLATION, UVM_FAULT_ACCESS_TYPE_WRITE);
	unsigned int sinks = client->num_sinks;
	struct uvm_mps_sink_map *sink;
	uvm_user_channel_t *channel;

	CHECK(address);
	if (!address)
		return;
	CHECK(!uvm_mps_replayable_fault(gpu_va_space, &entry));
	entry = made_up(address, UVM_FAULT_TYPE_INVALID_PTE, UVM_FAULT_ACCESS_TYPE_PREFETCH);
	CHECK(!uvm_mps_replayable_fault(gpu_va_space, &entry));
	CHECK(client->num_sinks == sinks);

	entry = made_up(address + UVM_MPS_PAGE, UVM_FAULT_TYPE_INVALID_PTE, UVM_FAULT_ACCESS_TYPE_WRITE);
	CHECK(uvm_mps_replayable_fault(gpu_va_space, &entry));
	CHECK(client->num_sinks == sinks + 1 && test_bit(CLIENT_CONDEMNED, &client->state));
	sink = uvm_mps_sink_at(client, gpu_va_space, address);
	CHECK(sink && sink->vec.tree == &gpu_va_space->page_tables && sink->vec.start == address);
	CHECK(sink && sink->vec.page_size == UVM_PAGE_SIZE_64K);
	CHECK(sink && entry_of(sink) == sink->vec.tree->hal->make_sparse_pte());
	CHECK(uvm_mps_replayable_fault(gpu_va_space, &entry));
	CHECK(client->num_sinks == sinks + 1 && sink && sink->hits == 1);

	channel = list_first_entry_or_null(&gpu_va_space->registered_channels, uvm_user_channel_t, list_node);
	if (channel) {
		entry = made_up(address + UVM_MPS_WINDOW_1, UVM_FAULT_TYPE_INVALID_PDE, UVM_FAULT_ACCESS_TYPE_READ);
		CHECK(uvm_mps_nonreplayable_fault(gpu_va_space, channel, &entry) && !entry.is_fatal);
		CHECK(client->num_sinks == sinks + 2);
	}
	/* One record a fault, unless the meter of this client has run dry. */
	CHECK((u64)atomic64_read(&uvm_mps.stats[STAT_RECORDS]) > told);

	uvm_mps_gpu_va_space_fini(gpu_va_space);
	CHECK(!uvm_mps_sink_at(client, gpu_va_space, address));
	CHECK(!uvm_mps_sink_at(client, gpu_va_space, address + UVM_MPS_WINDOW_1));
}

static void refusals(UVM_TEST_MPS_SELF_PARAMS *params, struct file *filp)
{
	CHECK(uvm_mps_refuses(filp, 0));
	CHECK(uvm_mps_refuses(filp, UVM_CREATE_EXTERNAL_RANGE));
	CHECK(!uvm_mps_refuses(filp, UVM_FREE));
}

/* A fault of nobody: told, and blamed on nobody. */
static void zombies(UVM_TEST_MPS_SELF_PARAMS *params)
{
	uvm_fault_buffer_entry_t entry = made_up(0, UVM_FAULT_TYPE_INVALID_PDE, UVM_FAULT_ACCESS_TYPE_READ);
	u64 before = (u64)atomic64_read(&uvm_mps.stats[STAT_ZOMBIES]);

	entry.instance_ptr.address = ~0ull;
	uvm_mps_zombie_fault(&entry);
	CHECK((u64)atomic64_read(&uvm_mps.stats[STAT_ZOMBIES]) > before);
}

static NV_STATUS self_test(UVM_TEST_MPS_SELF_PARAMS *params, struct file *filp)
{
	uvm_va_space_t *va_space = uvm_va_space_get(filp);
	uvm_gpu_va_space_t *gpu_va_space;
	struct uvm_mps_client *client;

	params->checks = 0;
	params->failed = 0;
	params->gpus = 0;
	if (uvm_mps_mode() != UVM_MPS_ISOLATE || !(READ_ONCE(uvm_mps.policy.flags) & UVM_MPS_ALONE))
		return NV_ERR_INVALID_STATE;

	/* The locks under which the driver comes to the hooks. */
	uvm_down_read_mmap_lock(current->mm);
	uvm_va_space_down_read(va_space);
	client = uvm_mps_client_find(va_space);
	CHECK(client);
	policy(params);
	zombies(params);
	if (client) {
		feed(params, va_space, client);
		for_each_gpu_va_space(gpu_va_space, va_space) {
			untried(params, client, gpu_va_space);
			faults(params, client, gpu_va_space);
			params->gpus++;
		}
		if (params->gpus)
			refusals(params, filp);
	}
	uvm_va_space_up_read(va_space);
	uvm_up_read_mmap_lock(current->mm);
	return NV_OK;
}

long uvm_mps_test_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	UVM_ROUTE_CMD_STACK_INIT_CHECK(UVM_TEST_MPS_SELF, self_test);
	default:
		return -EINVAL;
	}
}
