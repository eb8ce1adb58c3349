// SPDX-License-Identifier: MIT
/*
 * Sinks: entries in the page tree of the client that faulted, and in no other,
 * that make its bad address translate. Sparse entries answer loads with 0 and
 * drop stores; where another range shares the 64 KiB, one private page does.
 */
#include <linux/slab.h>
#include "uvm_mps_internal.h"

struct uvm_mps_sink_map *uvm_mps_sink_at(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 address)
{
	struct uvm_mps_sink_map *sink;

	list_for_each_entry(sink, &client->sinks, node) {
		if (sink->gpu_va_space == gpu_va_space && address - sink->vec.start < sink->vec.size)
			return sink;
	}
	return NULL;
}

bool uvm_mps_sink_overlaps(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 start, u64 end)
{
	struct uvm_mps_sink_map *sink;

	list_for_each_entry(sink, &client->sinks, node) {
		if (sink->gpu_va_space == gpu_va_space &&
		    sink->vec.start <= end && sink->vec.start + sink->vec.size - 1 >= start)
			return true;
	}
	return false;
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
	params.zero = true;
	status = uvm_mem_alloc(&params, &page->mem);
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

NV_STATUS uvm_mps_sink_insert(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			      u64 address, const struct uvm_mps_decision *decision)
{
	bool sparse = decision->sink == UVM_MPS_SINK_SPARSE;
	struct uvm_mps_sink_map *sink = kzalloc(sizeof(*sink), GFP_KERNEL);
	NV_STATUS status;

	if (!sink)
		return NV_ERR_NO_MEMORY;

	sink->gpu_va_space = gpu_va_space;
	status = uvm_page_table_range_vec_init(&gpu_va_space->page_tables,
					       UVM_ALIGN_DOWN(address, (u64)decision->size),
					       decision->size,
					       sparse ? UVM_PAGE_SIZE_64K : UVM_PAGE_SIZE_4K,
					       UVM_PMM_ALLOC_FLAGS_EVICT,
					       &sink->vec);
	if (status != NV_OK) {
		kfree(sink);
		return status;
	}

	/* Listed even if the write fails: the page tables are ours to give back. */
	list_add(&sink->node, &client->sinks);
	client->num_sinks++;
	status = write_sink(client, gpu_va_space, &sink->vec, sparse, UVM_MEMBAR_NONE);
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
	NV_STATUS status = uvm_tracker_wait(&map->tracker);

	if (status != NV_OK)
		return status;
	return write_sink(client, gpu_va_space, &map->pt_range_vec,
			  decision->sink == UVM_MPS_SINK_REMAP_SPARSE, UVM_MEMBAR_SYS);
}

static void free_sink(struct uvm_mps_sink_map *sink)
{
	(void)uvm_page_table_range_vec_clear_ptes(&sink->vec, UVM_MEMBAR_SYS);
	uvm_page_table_range_vec_deinit(&sink->vec);
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
	mutex_unlock(&client->lock);

	list_for_each_entry_safe(sink, next_sink, &sinks, node)
		free_sink(sink);
	list_for_each_entry_safe(page, next_page, &pages, node) {
		uvm_mem_free(page->mem);
		kfree(page);
	}
}
