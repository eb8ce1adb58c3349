// SPDX-License-Identifier: MIT
// One line for a tree hooked with "apply --self-test": the driver's builtin
// tests, which uvm_enable_builtin_tests=1 allows, get one more.

@test@
statement S, T;
@@
 uvm_test_ioctl(...)
 {
 if (!uvm_enable_builtin_tests) S
+if (cmd == UVM_TEST_MPS_SELF) return uvm_mps_test_ioctl(filp, cmd, arg);
 T
 ...
 }

@include depends on test@
@@
 #include "uvm_test.h"
+#include "uvm_mps_test.h"
