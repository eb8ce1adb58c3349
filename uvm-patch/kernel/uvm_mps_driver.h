/* SPDX-License-Identifier: MIT */
/*
 * Everything that differs between the driver branches 535 to 595, in one
 * place. Two files are written by tools/apply: uvm_mps_build.h with
 * UVM_MPS_DRIVER, the major version, and uvm_mps_tested.h with UVM_MPS_TESTED,
 * whether the version is on the tested list.
 */
#ifndef UVM_MPS_DRIVER_H
#define UVM_MPS_DRIVER_H

#include "uvm_common.h"
#include "uvm_linux.h"
#include "uvm_global.h"
#include "uvm_gpu.h"
#include "uvm_hal.h"
#include "uvm_hmm.h"
#include "uvm_ioctl.h"
#include "uvm_linux_ioctl.h"
#include "uvm_map_external.h"
#include "uvm_mem.h"
#include "uvm_mmu.h"
#include "uvm_va_range.h"
#include "uvm_va_space.h"
#include "uvm_mps_build.h"

#if UVM_MPS_DRIVER < 550
#define uvm_mps_gpu_uuid(gpu)		(uvm_gpu_uuid(gpu))
#else
#define uvm_mps_gpu_uuid(gpu)		(&(gpu)->uuid)
#endif

#if UVM_MPS_DRIVER < 580
#define uvm_mps_pdb(tree)		(uvm_page_tree_pdb(tree)->addr)
#else
#define uvm_mps_pdb(tree)		(uvm_page_tree_pdb_address(tree))
#endif

#if UVM_MPS_DRIVER < 570
typedef uvm_va_range_t uvm_mps_external_t;
#define uvm_mps_external(va_range)	(va_range)
#define uvm_mps_subctx_va_space(subctx)	((subctx)->va_space)
#else
typedef uvm_va_range_external_t uvm_mps_external_t;
#define uvm_mps_external(va_range)	(uvm_va_range_to_external(va_range))
#define uvm_mps_subctx_va_space(subctx)	((subctx)->gpu_va_space ? (subctx)->gpu_va_space->va_space : NULL)
#endif

#endif
