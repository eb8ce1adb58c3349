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

// The kernel says of this function that it might take the lock of the process's
// memory, which the driver's blocks of HMM are made with. It does for the first
// notifier of a process alone, and the driver has made that one before.
@notifier@
expression r;
expression list args;
@@
+lockdep_off();
 r = mmu_interval_notifier_insert(args);
+lockdep_on();
