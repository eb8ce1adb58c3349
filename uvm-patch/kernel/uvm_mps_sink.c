// SPDX-License-Identifier: MIT
/*
 * Sinks: entries in the page tree of the client that faulted, and in no other,
 * that make its bad address translate. Sparse entries answer loads with 0 and
 * drop stores; where another range shares the 64 KiB, one private page does.
 */
#include <linux/slab.h>
#include "uvm_push.h"
#include "uvm_mps_internal.h"

struct uvm_mps_sink_map *uvm_mps_sink_at(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 address)
{
	struct uvm_mps_sink_map *sink;

	list_for_each_entry(sink, &client->sinks, node) {
		if (sink->gpu_va_space == gpu_va_space && !sink->map && address - sink->vec.start < sink->vec.size)
			return sink;
	}
	return NULL;
}

/* The mapping's entries have been rewritten. A condemned client makes no new one that could take its place. */
struct uvm_mps_sink_map *uvm_mps_sink_of_map(struct uvm_mps_client *client, const uvm_ext_gpu_map_t *map)
{
	struct uvm_mps_sink_map *sink;

	list_for_each_entry(sink, &client->sinks, node) {
		if (sink->map == map)
			return sink;
	}
	return NULL;
}

/* The first thing in [*start, *end] that the client or a sink of its has there: its bounds are put there. */
bool uvm_mps_obstacle(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, const struct uvm_mps_room *room,
		      u64 *start, u64 *end)
{
	struct uvm_mps_extent first = { .start = ~0ull };
	const struct uvm_mps_extent *covered = uvm_mps_whole_in(uvm_mps_whole_of(client, gpu_va_space), *start, *end);
	const struct uvm_mps_sink_map *sink;

	if (room->external) {
		uvm_ext_gpu_map_t *map = uvm_ext_gpu_map_iter_first(room->external, gpu_va_space->gpu, *start, *end);

		if (map)
			first = (struct uvm_mps_extent) { map->node.start, map->node.end };
	} else {
		uvm_va_range_t *va_range = uvm_va_space_iter_first(gpu_va_space->va_space, *start, *end);

		if (va_range)
			first = (struct uvm_mps_extent) { va_range->node.start, va_range->node.end };
	}
	if (covered && covered->start < first.start)
		first = *covered;
	list_for_each_entry(sink, &client->sinks, node) {
		u64 last = sink->vec.start + sink->vec.size - 1;

		if (sink->gpu_va_space == gpu_va_space && !sink->map && sink->vec.start <= *end && last >= *start &&
		    sink->vec.start < first.start)
			first = (struct uvm_mps_extent) { sink->vec.start, last };
	}
	if (first.start == ~0ull)
		return false;
	*start = first.start;
	*end = first.end;
	return true;
}

static NvU64 sparse_pte(uvm_page_table_range_vec_t *vec, NvU64 offset, void *data)
{
	return vec->tree->hal->make_sparse_pte();
}

static NvU64 page_pte(uvm_page_table_range_vec_t *vec, NvU64 offset, void *data)
{
	uvm_gpu_phys_address_t *page = data;

	return vec->tree->hal->make_pte(page->aperture, page->address,
					UVM_PROT_READ_WRITE_ATOMIC, UVM_MMU_PTE_FLAGS_CACHED);
}

/* The driver does not clear video memory that it hands out, whatever it is asked for. */
static NV_STATUS clear_page_of(uvm_gpu_t *gpu, uvm_mem_t *mem)
{
	uvm_gpu_phys_address_t where = uvm_mem_gpu_physical(mem, gpu, 0, UVM_PAGE_SIZE_4K);
	uvm_push_t push;
	NV_STATUS status = uvm_push_begin(gpu->channel_manager, UVM_CHANNEL_TYPE_MEMOPS, &push, "mps: clear a page");

	if (status != NV_OK)
		return status;
	gpu->parent->ce_hal->memset_8(&push, uvm_mmu_gpu_address(gpu, where), 0, UVM_PAGE_SIZE_4K);
	return uvm_push_end_and_wait(&push);
}

static NV_STATUS private_page(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			      uvm_gpu_phys_address_t *address)
{
	uvm_mem_alloc_params_t params = { 0 };
	struct uvm_mps_page *page;
	NV_STATUS status;

	list_for_each_entry(page, &client->pages, node) {
		if (page->gpu_va_space == gpu_va_space)
			goto found;
	}

	page = kzalloc(sizeof(*page), GFP_KERNEL);
	if (!page)
		return NV_ERR_NO_MEMORY;

	params.size = UVM_PAGE_SIZE_4K;
	params.backing_gpu = gpu_va_space->gpu;
	params.page_size = UVM_PAGE_SIZE_DEFAULT;
	status = uvm_mem_alloc(&params, &page->mem);
	if (status == NV_OK) {
		status = clear_page_of(gpu_va_space->gpu, page->mem);
		if (status != NV_OK)
			uvm_mem_free(page->mem);
	}
	if (status != NV_OK) {
		kfree(page);
		return status;
	}
	page->gpu_va_space = gpu_va_space;
	list_add(&page->node, &client->pages);
found:
	*address = uvm_mem_gpu_physical(page->mem, gpu_va_space->gpu, 0, UVM_PAGE_SIZE_4K);
	return NV_OK;
}

/* Writes, invalidates the TLB and waits; the replay that follows is the caller's. */
static NV_STATUS write_sink(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			    uvm_page_table_range_vec_t *vec, bool sparse, uvm_membar_t membar)
{
	uvm_gpu_phys_address_t page;
	NV_STATUS status;

	if (sparse)
		return uvm_page_table_range_vec_write_ptes(vec, membar, sparse_pte, NULL);

	status = private_page(client, gpu_va_space, &page);
	if (status != NV_OK)
		return status;
	return uvm_page_table_range_vec_write_ptes(vec, membar, page_pte, &page);
}

static NV_STATUS insert(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 start, u64 size,
			unsigned int page_size)
{
	struct uvm_mps_sink_map *sink = kzalloc(sizeof(*sink), GFP_KERNEL);
	NV_STATUS status;

	if (!sink)
		return NV_ERR_NO_MEMORY;

	sink->gpu_va_space = gpu_va_space;
	status = uvm_page_table_range_vec_init(&gpu_va_space->page_tables, start, size, page_size,
					       UVM_PMM_ALLOC_FLAGS_EVICT, &sink->vec);
	if (status != NV_OK) {
		kfree(sink);
		return status;
	}

	/* Listed even if the write fails: the page tables are ours to give back. */
	list_add(&sink->node, &client->sinks);
	return write_sink(client, gpu_va_space, &sink->vec, page_size != UVM_PAGE_SIZE_4K, UVM_MEMBAR_NONE);
}

/* What is free of a large window, between the client's ranges and smaller sinks. */
static NV_STATUS insert_gaps(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			     const struct uvm_mps_room *room, u64 address, u64 size)
{
	u64 at = max(UVM_ALIGN_DOWN(address, size), UVM_ALIGN_UP(room->start, UVM_PAGE_SIZE_2M));
	u64 end = min(UVM_ALIGN_DOWN(address, size) + size - 1, room->end), next, limit;
	NV_STATUS status = NV_ERR_INVALID_ADDRESS, this;

	for (; at < end; at = next) {
		u64 from = at, to = end;
		bool met = uvm_mps_obstacle(client, gpu_va_space, room, &from, &to);

		limit = UVM_ALIGN_DOWN(met ? from : end + 1, UVM_PAGE_SIZE_2M);
		next = met ? UVM_ALIGN_UP(to + 1, UVM_PAGE_SIZE_2M) : end;
		if (limit <= at)
			continue;
		this = insert(client, gpu_va_space, at, limit - at, UVM_PAGE_SIZE_2M);
		/* What else fits is a gain; that it does not is no failure. */
		if (address >= at && address < limit)
			status = this;
	}
	return status;
}

NV_STATUS uvm_mps_sink_insert(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			      const struct uvm_mps_room *room, u64 address, const struct uvm_mps_decision *decision)
{
	NV_STATUS status;

	if (decision->size == UVM_MPS_WINDOW_3)
		status = insert_gaps(client, gpu_va_space, room, address, decision->size);
	else
		status = insert(client, gpu_va_space, UVM_ALIGN_DOWN(address, (u64)decision->size), decision->size,
				decision->sink == UVM_MPS_SINK_SPARSE ? UVM_PAGE_SIZE_64K : UVM_PAGE_SIZE_4K);
	client->num_sinks++;
	if (status == NV_OK)
		uvm_mps_count(STAT_SINKS);
	return status;
}

/*
 * Every entry of an existing mapping is rewritten; its book-keeping stays, as
 * unmapping clears the same entries. The memory behind it is untouched.
 */
NV_STATUS uvm_mps_sink_remap(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			     uvm_ext_gpu_map_t *map, const struct uvm_mps_decision *decision)
{
	struct uvm_mps_sink_map *sink = kzalloc(sizeof(*sink), GFP_KERNEL);
	NV_STATUS status = sink ? uvm_tracker_wait(&map->tracker) : NV_ERR_NO_MEMORY;

	if (status == NV_OK)
		status = write_sink(client, gpu_va_space, &map->pt_range_vec,
				    decision->sink == UVM_MPS_SINK_REMAP_SPARSE, UVM_MEMBAR_SYS);
	if (status != NV_OK) {
		kfree(sink);
		return status;
	}
	sink->gpu_va_space = gpu_va_space;
	sink->map = map;
	list_add(&sink->node, &client->sinks);
	return NV_OK;
}

static void free_sink(struct uvm_mps_sink_map *sink)
{
	if (!sink->map) {
		(void)uvm_page_table_range_vec_clear_ptes(&sink->vec, UVM_MEMBAR_SYS);
		uvm_page_table_range_vec_deinit(&sink->vec);
	}
	kfree(sink);
}

void uvm_mps_gpu_va_space_fini(uvm_gpu_va_space_t *gpu_va_space)
{
	struct uvm_mps_client *client = uvm_mps_client_find(gpu_va_space->va_space);
	struct uvm_mps_sink_map *sink, *next_sink;
	struct uvm_mps_page *page, *next_page;
	LIST_HEAD(sinks);
	LIST_HEAD(pages);

	if (!client)
		return;

	mutex_lock(&client->lock);
	list_for_each_entry_safe(sink, next_sink, &client->sinks, node) {
		if (sink->gpu_va_space == gpu_va_space)
			list_move(&sink->node, &sinks);
	}
	list_for_each_entry_safe(page, next_page, &client->pages, node) {
		if (page->gpu_va_space == gpu_va_space)
			list_move(&page->node, &pages);
	}
	uvm_mps_whole_fini(client, gpu_va_space);
	mutex_unlock(&client->lock);

	list_for_each_entry_safe(sink, next_sink, &sinks, node)
		free_sink(sink);
	list_for_each_entry_safe(page, next_page, &pages, node) {
		uvm_mem_free(page->mem);
		kfree(page);
	}
}
