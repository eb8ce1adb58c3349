// SPDX-License-Identifier: MIT
/*
 * The layout of the ABI, checked by the compiler here and printed for the
 * mirror in proto/src/notice.rs: one "name offset size" a line.
 */
#include <stddef.h>
#include <stdio.h>
#include "uvm_mps.h"

#define RECORD_FIELDS(X)							\
	X(magic, 0, 4) X(version, 4, 2) X(size, 6, 2) X(seq, 8, 8)		\
	X(time_ns, 16, 8) X(gpu_time_ns, 24, 8) X(type, 32, 4) X(count, 36, 4)	\
	X(tgid, 40, 4) X(tgid_init, 44, 4) X(va_space_id, 48, 8)		\
	X(gpu_uuid, 56, 16) X(address, 72, 8) X(instance_ptr, 80, 8)		\
	X(runlist_id, 88, 4) X(channel_id, 92, 4) X(tsg_id, 96, 4)		\
	X(ve_id, 100, 4) X(client_id, 104, 2) X(gpc_id, 106, 2)			\
	X(utlb_id, 108, 2) X(mmu_engine_id, 110, 2) X(fault_type, 112, 1)	\
	X(access_type, 113, 1) X(fault_class, 114, 1) X(fatal_reason, 115, 1)	\
	X(engine_type, 116, 1) X(range_type, 117, 1) X(verdict, 118, 1)		\
	X(sink, 119, 1) X(nv_status, 120, 4) X(flags, 124, 4)

#define AT(field, at, bytes)							\
	_Static_assert(offsetof(struct uvm_mps_record, field) == (at), #field);	\
	_Static_assert(sizeof(((struct uvm_mps_record *)0)->field) == (bytes), #field);
RECORD_FIELDS(AT)

_Static_assert(sizeof(struct uvm_mps_record) == UVM_MPS_RECORD_SIZE, "record");
_Static_assert(sizeof(struct uvm_mps_info) == 48, "info");
_Static_assert(sizeof(struct uvm_mps_policy) == 24, "policy");
_Static_assert(sizeof(struct uvm_mps_claim) == 16, "claim");
_Static_assert(sizeof(struct uvm_mps_stats) == 96, "stats");

#define SHOW_FIELD(field, at, bytes)						\
	printf("record.%s %zu %zu\n", #field, offsetof(struct uvm_mps_record, field),	\
	       sizeof(((struct uvm_mps_record *)0)->field));
#define SHOW(name) printf("%s %lu\n", #name, (unsigned long)(name));

int main(void)
{
	RECORD_FIELDS(SHOW_FIELD)
	SHOW(UVM_MPS_MAGIC) SHOW(UVM_MPS_ABI_VERSION) SHOW(UVM_MPS_RECORD_SIZE)
	SHOW(UVM_MPS_UNKNOWN) SHOW(UVM_MPS_NEVER)
	SHOW(UVM_MPS_OVERRUN) SHOW(UVM_MPS_CHANNEL_ADD) SHOW(UVM_MPS_CHANNEL_DEL)
	SHOW(UVM_MPS_VASPACE_ADD) SHOW(UVM_MPS_VASPACE_DEL) SHOW(UVM_MPS_FATAL_FAULT)
	SHOW(UVM_MPS_ZOMBIE_FAULT) SHOW(UVM_MPS_SNAPSHOT_END) SHOW(UVM_MPS_SUPPRESSED)
	SHOW(UVM_MPS_KILLED) SHOW(UVM_MPS_HELD) SHOW(UVM_MPS_HOLD_END) SHOW(UVM_MPS_REFUSED)
	SHOW(UVM_MPS_OFF) SHOW(UVM_MPS_OBSERVE) SHOW(UVM_MPS_ISOLATE)
	SHOW(UVM_MPS_PASSED) SHOW(UVM_MPS_ISOLATED) SHOW(UVM_MPS_REPEAT)
	SHOW(UVM_MPS_NOT_SHARED) SHOW(UVM_MPS_CLASS) SHOW(UVM_MPS_FAILED)
	SHOW(UVM_MPS_LIMIT) SHOW(UVM_MPS_STRANGER) SHOW(UVM_MPS_UNTRIED)
	SHOW(UVM_MPS_UNTRIED_DRIVER) SHOW(UVM_MPS_UNTRIED_FORMAT) SHOW(UVM_MPS_UNTRIED_GPUS)
	SHOW(UVM_MPS_UNTRIED_MIG) SHOW(UVM_MPS_UNTRIED_HMM)
	SHOW(UVM_MPS_SINK_NONE) SHOW(UVM_MPS_SINK_SPARSE) SHOW(UVM_MPS_SINK_PAGE)
	SHOW(UVM_MPS_SINK_REMAP_SPARSE) SHOW(UVM_MPS_SINK_REMAP_PAGE) SHOW(UVM_MPS_SINK_PERMIT)
	SHOW(UVM_MPS_F_REPLAYABLE) SHOW(UVM_MPS_F_SUBCONTEXT) SHOW(UVM_MPS_F_KILL_SENT)
	SHOW(UVM_MPS_F_SNAPSHOT) SHOW(UVM_MPS_F_CONDEMNED) SHOW(UVM_MPS_F_HELD)
	SHOW(UVM_MPS_ALONE)
	SHOW(UVM_MPS_IOC_INFO) SHOW(UVM_MPS_IOC_SET_POLICY) SHOW(UVM_MPS_IOC_GET_POLICY)
	SHOW(UVM_MPS_IOC_GET_STATS) SHOW(UVM_MPS_IOC_SNAPSHOT) SHOW(UVM_MPS_IOC_CLAIM)
	SHOW(UVM_MPS_IOC_RELEASE)
	return 0;
}
