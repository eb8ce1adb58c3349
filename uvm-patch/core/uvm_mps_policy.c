// SPDX-License-Identifier: MIT
/*
 * The decision about one fatal fault, see uvm_mps_policy.h. The letters are
 * the fault classes of uvm-fault-isolation(4).
 */
#include "uvm_mps_policy.h"

__u32 uvm_mps_window(unsigned int level)
{
	static const __u32 sizes[UVM_MPS_LEVELS] = {
		UVM_MPS_WINDOW_0, UVM_MPS_WINDOW_1, UVM_MPS_WINDOW_2, UVM_MPS_WINDOW_3,
	};

	return sizes[level < UVM_MPS_LEVELS ? level : UVM_MPS_LEVELS - 1];
}

__u32 uvm_mps_ve_id(__u32 hardware, __u32 first_of_instance)
{
	return hardware >= first_of_instance ? hardware - first_of_instance : UVM_MPS_UNKNOWN;
}

/* Classes that the fault's own type or reason settles; 0 if none does. */
static __u8 class_by_type(const struct uvm_mps_facts *f)
{
	switch (f->kind) {
	case UVM_MPS_KIND_POISON:
		return 'J';
	case UVM_MPS_KIND_UNBOUND:
		return 'K';
	case UVM_MPS_KIND_VA_LIMIT:
		return 'H';
	case UVM_MPS_KIND_TRANSLATION:
	case UVM_MPS_KIND_PERMISSION:
		break;
	default:
		return 'I';
	}

	switch (f->reason) {
	case UVM_MPS_REASON_ADDRESS:
	case UVM_MPS_REASON_PERMISSIONS:
		break;
	case UVM_MPS_REASON_FAULT_TYPE:
		return 'I';
	default:
		return 'Q';
	}

	if (f->prefetch)
		return 'M';
	/* Zeros as instructions are illegal, and that ends everybody. */
	return f->fetch ? 'N' : 0;
}

static __u8 class_by_place(const struct uvm_mps_facts *f)
{
	if (f->ats)
		return 'F';
	if (!f->addressable)
		return 'G';

	switch (f->range) {
	case UVM_MPS_RANGE_NONE:
		return 'A';
	case UVM_MPS_RANGE_EXTERNAL_HOLE:
		return 'B';
	case UVM_MPS_RANGE_EXTERNAL_64K:
	case UVM_MPS_RANGE_EXTERNAL_4K:
		return 'C';
	case UVM_MPS_RANGE_MANAGED:
	case UVM_MPS_RANGE_ZOMBIE:
		return 'D';
	case UVM_MPS_RANGE_HMM:
		return 'E';
	default:
		return 'L';
	}
}

/* The largest free window that the client has earned, or a page. */
static void plan_insert(const struct uvm_mps_facts *f, struct uvm_mps_decision *d)
{
	unsigned int level = 0;

	if (f->sinks >= UVM_MPS_LEVEL_3_AFTER)
		level = 3;
	else if (f->sinks >= UVM_MPS_LEVEL_2_AFTER)
		level = 2;
	else if (f->sinks >= UVM_MPS_LEVEL_1_AFTER)
		level = 1;

	while (level > 0 && !(f->free_windows & (1u << level)))
		level--;

	d->action = UVM_MPS_ACT_INSERT;
	/* The last resort, be it because there may be no more sinks. */
	if (d->fault_class == 'A' && !f->whole &&
	    (f->sinks >= UVM_MPS_WHOLE_AFTER || f->sinks >= f->max_sinks))
		d->action = UVM_MPS_ACT_WHOLE;
	if (f->free_windows & (1u << level)) {
		d->size = uvm_mps_window(level);
		d->sink = UVM_MPS_SINK_SPARSE;
	} else {
		d->size = UVM_MPS_PAGE;
		d->sink = UVM_MPS_SINK_PAGE;
	}
}

/* Sets the action for a class; PASS if the class cannot be isolated. */
static void plan(const struct uvm_mps_facts *f, struct uvm_mps_decision *d)
{
	switch (d->fault_class) {
	case 'A':
	case 'B':
		plan_insert(f, d);
		break;
	case 'C':
		d->action = UVM_MPS_ACT_REMAP;
		d->sink = f->range == UVM_MPS_RANGE_EXTERNAL_4K ?
			  UVM_MPS_SINK_REMAP_PAGE : UVM_MPS_SINK_REMAP_SPARSE;
		break;
	case 'D':
		/* Only dead memory, and only where the driver asks again. */
		if (f->range == UVM_MPS_RANGE_ZOMBIE && f->replayable) {
			d->action = UVM_MPS_ACT_PERMIT;
			d->sink = UVM_MPS_SINK_PERMIT;
		}
		break;
	default:
		break;
	}
}

static int over_limit(const struct uvm_mps_facts *f, const struct uvm_mps_decision *d)
{
	switch (d->action) {
	case UVM_MPS_ACT_RETRY:
		return f->hits >= UVM_MPS_MAX_HITS;
	case UVM_MPS_ACT_INSERT:
		return f->sinks >= f->max_sinks;
	case UVM_MPS_ACT_WHOLE:
		return !f->max_sinks;
	default:
		return f->retries >= UVM_MPS_MAX_RETRIES;
	}
}

static void refuse(struct uvm_mps_decision *d, __u8 verdict)
{
	d->verdict = verdict;
	d->action = UVM_MPS_ACT_PASS;
	d->sink = UVM_MPS_SINK_NONE;
	d->size = 0;
}

void uvm_mps_decide(const struct uvm_mps_facts *f, struct uvm_mps_decision *d)
{
	refuse(d, UVM_MPS_CLASS);
	d->fault_class = class_by_type(f);
	if (!d->fault_class)
		d->fault_class = class_by_place(f);

	if (f->mode != UVM_MPS_ISOLATE) {
		d->verdict = UVM_MPS_PASSED;
		return;
	}
	if (!f->known) {
		d->verdict = UVM_MPS_STRANGER;
		return;
	}
	if (!f->shared && !f->alone) {
		d->verdict = UVM_MPS_NOT_SHARED;
		return;
	}

	plan(f, d);
	if (d->action == UVM_MPS_ACT_PASS)
		return;
	if (f->untried) {
		refuse(d, UVM_MPS_UNTRIED);
		return;
	}

	/* Several faults of one batch, or one on its way when the sink came. */
	if (f->covered && d->action != UVM_MPS_ACT_PERMIT) {
		refuse(d, UVM_MPS_REPEAT);
		d->action = UVM_MPS_ACT_RETRY;
	}

	if (over_limit(f, d))
		refuse(d, UVM_MPS_LIMIT);
	else
		d->verdict = f->condemned ? UVM_MPS_REPEAT : UVM_MPS_ISOLATED;
}
