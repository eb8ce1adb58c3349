/* SPDX-License-Identifier: MIT */
/*
 * The self test, in the form of the driver's builtin tests: an ioctl on a
 * /dev/nvidia-uvm descriptor that is answered only with the module parameter
 * uvm_enable_builtin_tests=1. It is in the module only if the source was
 * hooked with "tools/apply --self-test".
 */
#ifndef UVM_MPS_TEST_H
#define UVM_MPS_TEST_H

#include "uvm_test_ioctl.h"

/* Far from the driver's own tests, which count upwards from 200. */
#define UVM_TEST_MPS_SELF	UVM_TEST_IOCTL_BASE(0x4d50)
typedef struct {
	NvU32 checks;		/* out: how many were made */
	NvU32 failed;		/* out: the kernel log has the line of each */
	NvU32 gpus;		/* out: GPU address spaces of the caller that were tried */
	NV_STATUS rmStatus;	/* out: NV_ERR_INVALID_STATE unless faults of the caller may be isolated */
} UVM_TEST_MPS_SELF_PARAMS;

#ifdef __KERNEL__
long uvm_mps_test_ioctl(struct file *filp, unsigned int cmd, unsigned long arg);
#endif

#endif
