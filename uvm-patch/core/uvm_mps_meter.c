// SPDX-License-Identifier: MIT
/* The arithmetic of the notice ring: the rate cap per client, and losses. */
#include "uvm_mps_policy.h"

void uvm_mps_meter_init(struct uvm_mps_meter *m, __u64 now_ns)
{
	m->filled_ns = now_ns;
	m->tokens = UVM_MPS_METER_BURST;
	m->suppressed = 0;
}

/* 1 if a record may be written now; 0, and counted, if not. */
unsigned int uvm_mps_meter_take(struct uvm_mps_meter *m, __u64 now_ns)
{
	/* A clock that steps back gives nothing and takes nothing. */
	__u64 steps = now_ns > m->filled_ns ? (now_ns - m->filled_ns) / UVM_MPS_METER_STEP_NS : 0;

	if (steps >= UVM_MPS_METER_BURST - m->tokens) {
		m->tokens = UVM_MPS_METER_BURST;
		if (steps)
			m->filled_ns = now_ns;
	} else {
		m->tokens += (__u32)steps;
		m->filled_ns += steps * UVM_MPS_METER_STEP_NS;
	}

	if (!m->tokens) {
		if (m->suppressed != 0xffffffffu)
			m->suppressed++;
		return 0;
	}
	m->tokens--;
	return 1;
}

/* How many were left out since the last call. */
__u32 uvm_mps_meter_drain(struct uvm_mps_meter *m)
{
	__u32 n = m->suppressed;

	m->suppressed = 0;
	return n;
}

__u64 uvm_mps_ring_lost(__u64 head, __u64 next, __u64 slots)
{
	return head - next > slots ? head - next - slots : 0;
}
