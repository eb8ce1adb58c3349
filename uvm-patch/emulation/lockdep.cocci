// SPDX-License-Identifier: MIT
// For the debug kernel only. UVM initialises all its locks in one place, so to
// lockdep they are all one class, and the first nesting ends the checking. One
// class for each of the driver's own lock orders makes lockdep check that order.
@mutex@
@@
 uvm_mutex_init(...)
 {
 <...
 mutex_init(&mutex->m);
+{ static struct lock_class_key mps_keys[64]; lockdep_set_class(&mutex->m, &mps_keys[lock_order]); }
 ...>
 }

@rwsem@
@@
 uvm_init_rwsem(...)
 {
 <...
 init_rwsem(&uvm_sem->sem);
+{ static struct lock_class_key mps_keys[64]; lockdep_set_class(&uvm_sem->sem, &mps_keys[lock_order]); }
 ...>
 }

@spin@
identifier fn;
@@
 fn(...)
 {
 <...
 spin_lock_init(&spinlock->lock);
+{ static struct lock_class_key mps_keys[64]; lockdep_set_class(&spinlock->lock, &mps_keys[lock_order]); }
 ...>
 }
