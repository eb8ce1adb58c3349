/* SPDX-License-Identifier: MIT */
/* A test is a function with a sentence for a name; CHECK reports and counts. */
#ifndef UVM_MPS_CHECK_H
#define UVM_MPS_CHECK_H

#include <stdio.h>

extern unsigned long checks, failures;

#define CHECK(cond) do {							\
	checks++;								\
	if (!(cond)) {								\
		failures++;							\
		fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);	\
	}									\
} while (0)

#define RUN(test) do {								\
	unsigned long before = failures;					\
	test();									\
	printf("%s %s\n", failures == before ? "ok  " : "FAIL", #test);		\
} while (0)

#endif
