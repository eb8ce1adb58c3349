// SPDX-License-Identifier: MIT
// Places the hooks of uvm_mps_hooks.h into nvidia-uvm: five files, fourteen
// places, one line each. Anchors are calls and statements, never line numbers;
// tools/apply counts what was placed and refuses a tree where a count differs.

// The fatal, replayable fault (SM): a sink in place of the cancel. Before the
// driver tells its tools queues of a fatal fault: an isolated one is none.
@replayable@
@@
 cancel_fault_precise_va(...)
 {
 <...
+if (uvm_mps_replayable_fault(gpu_va_space, fault_entry)) return NV_OK;
 uvm_tools_record_gpu_fatal_fault(...);
 ...>
 }

// Dead managed memory of a condemned client, after the driver has denied it.
@permit@
expression list A;
expression E;
@@
 check_fault_access_permissions(...)
 {
 ...
 perm_status = uvm_va_block_check_logical_permissions(A);
 if (perm_status == NV_OK)
     return E;
+if (uvm_mps_permits(fault_entry)) return fault_entry->fault_access_type;
 ...
 }

// The fault of a subcontext without a VA space: a notice only.
@zombie@
statement S;
@@
 translate_instance_ptrs(...)
 {
 <...
 if (status == NV_ERR_PAGE_TABLE_NOT_AVAIL)
 {
+    uvm_mps_zombie_fault(current_entry);
 ...
 } else S
 ...>
 }

// The fatal, non-replayable fault (copy engine, host): a sink in place of the
// channel's kill. The driver's own call that restarts the channel is repeated
// with its own arguments, which differ between branches.
@restart@
identifier fn;
expression list A;
@@
 fn(...)
 {
 <...
 status = clear_faulted_on_gpu(A);
 ...>
 }

@nonreplayable@
identifier restart.fn;
expression list restart.A;
@@
 fn(...)
 {
 <...
+if (fault_entry->is_fatal && uvm_mps_nonreplayable_fault(gpu_va_space, user_channel, fault_entry)) status = clear_faulted_on_gpu(A);
 if (fault_entry->is_fatal)
     uvm_tools_record_gpu_fatal_fault(...);
 ...>
 }

// The feed.
@channel_add@
@@
 uvm_register_channel(...)
 {
 <...
 status = bind_channel_resources(user_channel);
 if (status != NV_OK)
     goto error_under_read;
+uvm_mps_channel_add(va_space, user_channel);
 ...>
 }

@channel_del@
@@
 uvm_user_channel_detach(...)
 {
 <...
+uvm_mps_channel_del(user_channel);
 list_del(&user_channel->list_node);
 ...>
 }

@va_space_add@
@@
 uvm_va_space_create(...)
 {
 <...
+uvm_mps_va_space_add(va_space);
 *va_space_ptr = va_space;
 ...>
 }

@va_space_del@
@@
 uvm_va_space_destroy(...)
 {
 <...
+uvm_mps_va_space_del(va_space);
 uvm_kvfree(va_space->mapping);
 ...>
 }

// Sinks go before the page tree that they are part of.
@tree_fini@
@@
 destroy_gpu_va_space(...)
 {
 <...
+uvm_mps_gpu_va_space_fini(gpu_va_space);
 if (gpu_va_space->page_tables.root)
     uvm_page_tree_deinit(&gpu_va_space->page_tables);
 ...>
 }

// A condemned client maps nothing new.
@refuse_mmap@
@@
 uvm_mmap(...)
 {
 <...
 if (status != NV_OK)
     return -nv_status_to_errno(status);
+if (uvm_mps_refused(filp, 0)) return -EIO;
 ...>
 }

@refuse_ioctl@
statement S;
@@
 uvm_ioctl(...)
 {
+if (uvm_mps_refused(filp, cmd)) return -EIO;
 S
 ...
 }

// A client's descriptors at its death.
@flush@
identifier ops;
@@
 struct file_operations ops = {
     .open = uvm_open_entry,
+    .flush = uvm_mps_flush,
 };

// Module init and exit.
@init@
expression E;
statement S;
@@
 uvm_init(...)
 {
 <...
 ret = uvm_tools_init(E);
 if (ret != 0) S
+(void)uvm_mps_init();
 ...>
 }

@exit@
@@
 uvm_exit(...)
 {
 <...
+uvm_mps_exit();
 uvm_tools_exit();
 ...>
 }

// The include, in files that were hooked and only there.
@include1 depends on replayable || zombie || nonreplayable || channel_add || channel_del || va_space_add || va_space_del || tree_fini || init || exit@
@@
 #include "uvm_api.h"
+#include "uvm_mps_hooks.h"

@include2 depends on !include1 && (replayable || zombie || nonreplayable || channel_add || channel_del || va_space_add || va_space_del || tree_fini || init || exit)@
@@
 #include "uvm_tools.h"
+#include "uvm_mps_hooks.h"
