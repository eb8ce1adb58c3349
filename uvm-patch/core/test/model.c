// SPDX-License-Identifier: MIT
/*
 * The rules of uvm_mps_policy.c said a second time, as one ordered table of
 * conditions: the first row that holds decides. Slow, flat, and written from
 * the table of classes, not from the code under test.
 */
#include "model.h"

static char class_of(const struct uvm_mps_facts *f)
{
	const struct { int holds; char cls; } rows[] = {
		{ f->kind == UVM_MPS_KIND_POISON, 'J' },
		{ f->kind == UVM_MPS_KIND_UNBOUND, 'K' },
		{ f->kind == UVM_MPS_KIND_VA_LIMIT, 'H' },
		{ f->kind != UVM_MPS_KIND_TRANSLATION && f->kind != UVM_MPS_KIND_PERMISSION, 'I' },
		{ f->reason == UVM_MPS_REASON_FAULT_TYPE, 'I' },
		{ f->reason != UVM_MPS_REASON_ADDRESS && f->reason != UVM_MPS_REASON_PERMISSIONS, 'Q' },
		{ f->prefetch, 'M' },
		{ f->fetch, 'N' },
		{ f->ats, 'F' },
		{ !f->addressable, 'G' },
		{ f->range >= UVM_MPS_RANGE_DRIVER, 'L' },
		{ 1, "ADDBCCE"[f->range % 7] },
	};
	unsigned int i = 0;

	while (!rows[i].holds)
		i++;
	return rows[i].cls;
}

static __u32 size_of(const struct uvm_mps_facts *f)
{
	const int want = (f->sinks >= 8) + (f->sinks >= 32) + (f->sinks >= 64);
	const __u32 sizes[] = { 64u << 10, 2u << 20, 32u << 20, 1u << 30 };
	int level;

	for (level = want; level >= 0; level--)
		if (f->free_windows >> level & 1)
			return sizes[level];
	return 4096;
}

void model_decide(const struct uvm_mps_facts *f, struct uvm_mps_decision *d)
{
	const char cls = class_of(f);
	const int hole = cls == 'A' || cls == 'B';
	const int dead = cls == 'D' && f->range == UVM_MPS_RANGE_ZOMBIE && f->replayable;
	const int can = hole || cls == 'C' || dead;
	const int company = f->shared || f->alone;
	const int replay = (hole || cls == 'C') && f->covered;
	const int whole = cls == 'A' && !f->whole && (f->sinks >= 128 || f->sinks >= f->max_sinks);
	const int spent = replay ? f->hits >= 1 << 20 :
			  hole && whole ? f->max_sinks == 0 :
			  hole ? f->sinks >= f->max_sinks : f->retries >= 1 << 20;
	const int insert = hole && !replay;
	const int good = f->mode == UVM_MPS_ISOLATE && f->known && company && can && !f->untried && !spent;

	d->fault_class = (__u8)cls;
	d->verdict = f->mode != UVM_MPS_ISOLATE ? UVM_MPS_PASSED :
		     !f->known ? UVM_MPS_STRANGER :
		     !company ? UVM_MPS_NOT_SHARED :
		     !can ? UVM_MPS_CLASS :
		     f->untried ? UVM_MPS_UNTRIED :
		     spent ? UVM_MPS_LIMIT :
		     f->condemned ? UVM_MPS_REPEAT : UVM_MPS_ISOLATED;
	d->action = !good ? UVM_MPS_ACT_PASS :
		    replay ? UVM_MPS_ACT_RETRY :
		    hole ? (whole ? UVM_MPS_ACT_WHOLE : UVM_MPS_ACT_INSERT) :
		    cls == 'C' ? UVM_MPS_ACT_REMAP : UVM_MPS_ACT_PERMIT;
	d->size = good && insert ? size_of(f) : 0;
	d->sink = !good || replay ? UVM_MPS_SINK_NONE :
		  insert ? (d->size == 4096 ? UVM_MPS_SINK_PAGE : UVM_MPS_SINK_SPARSE) :
		  cls == 'D' ? UVM_MPS_SINK_PERMIT :
		  f->range == UVM_MPS_RANGE_EXTERNAL_4K ? UVM_MPS_SINK_REMAP_PAGE : UVM_MPS_SINK_REMAP_SPARSE;
}
