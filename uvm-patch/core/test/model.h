/* SPDX-License-Identifier: MIT */
#ifndef UVM_MPS_MODEL_H
#define UVM_MPS_MODEL_H

#include "uvm_mps_policy.h"

void model_decide(const struct uvm_mps_facts *f, struct uvm_mps_decision *d);

#endif
