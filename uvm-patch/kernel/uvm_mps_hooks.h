/* SPDX-License-Identifier: MIT */
/*
 * What the hooks in nvidia-uvm call. Everything here is reached only on paths
 * that create, register, destroy or have already failed; the refusal test on
 * the ioctl and mmap paths is one load until some client has been condemned.
 */
#ifndef UVM_MPS_HOOKS_H
#define UVM_MPS_HOOKS_H

#include <linux/atomic.h>
#include <linux/fs.h>
#include "uvm_forward_decl.h"
#include "uvm_hal_types.h"
#include "uvm_user_channel.h"

int uvm_mps_init(void);
void uvm_mps_exit(void);

/* The feed. May sleep. */
void uvm_mps_va_space_add(uvm_va_space_t *va_space);
void uvm_mps_va_space_del(uvm_va_space_t *va_space);
void uvm_mps_channel_add(uvm_va_space_t *va_space, uvm_user_channel_t *channel);
void uvm_mps_channel_del(uvm_user_channel_t *channel);

/* Before the page tree of a dead GPU VA space is destroyed. */
void uvm_mps_gpu_va_space_fini(uvm_gpu_va_space_t *gpu_va_space);

/*
 * In place of a cancel, with the GPU's ISR service lock and the VA space lock
 * (read) held. True: do not cancel, the replay that follows anyway restarts
 * the warp on an address that translates by now.
 */
bool uvm_mps_replayable_fault(uvm_gpu_va_space_t *gpu_va_space, uvm_fault_buffer_entry_t *entry);

/*
 * In place of a channel kill, with the VA space lock (read) held. True: the
 * entry is no longer fatal, and the channel's faulted bit is to be cleared.
 */
bool uvm_mps_nonreplayable_fault(uvm_gpu_va_space_t *gpu_va_space,
				 uvm_user_channel_t *channel,
				 uvm_fault_buffer_entry_t *entry);

/* After the driver has denied an access. True: serve it nevertheless. */
bool uvm_mps_permits(uvm_fault_buffer_entry_t *entry);

/* A fault of a subcontext that has no VA space any more. */
void uvm_mps_zombie_fault(uvm_fault_buffer_entry_t *entry);

/* A descriptor is being closed. Keeps a suddenly dead client's page tables. */
int uvm_mps_flush(struct file *filp, fl_owner_t id);

extern atomic_t uvm_mps_condemned;	/* clients */
bool uvm_mps_refuses(struct file *filp, unsigned int cmd);

/* Whether the owner of the descriptor may map no more. cmd: the ioctl, 0 for mmap. */
static inline bool uvm_mps_refused(struct file *filp, unsigned int cmd)
{
	return unlikely(atomic_read(&uvm_mps_condemned)) && uvm_mps_refuses(filp, cmd);
}

#endif
