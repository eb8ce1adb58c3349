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

// With HMM the stock driver does what lockdep reports, and stops at, in two
// places. The kernel says of the registration of a notifier that it might take
// the lock of the process's memory, with which the driver registers a block's: it
// does for a process's first one alone, and the driver has made that one before.
@notifier@
expression r;
expression list args;
@@
+lockdep_off();
 r = mmu_interval_notifier_insert(args);
+lockdep_on();

// And a block's notifier waits for the block's lock, and for memory, both of which
// may have to wait for a notifier when the system is short of memory.
@invalidate@
@@
 hmm_invalidate(...)
 {
+lockdep_off();
 <...
+lockdep_on();
 return ...;
 ...>
 }
