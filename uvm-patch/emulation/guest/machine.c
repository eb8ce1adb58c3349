// SPDX-License-Identifier: MIT
/* The virtual machine: its modules, its device nodes, its command line. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "lab.h"

static bool load(const char *path, const char *parameters)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool loaded = fd >= 0 && !syscall(SYS_finit_module, fd, parameters, 0);

	if (!loaded) {
		printf("FATAL: %s: %s\n", path, strerror(errno));
		failures++;
	}
	close(fd);
	return loaded;
}

static void make_node(void)
{
	char name[64];
	unsigned int device;
	FILE *f = fopen("/proc/devices", "r");

	unlink("/dev/nvidia-uvm");	/* of an earlier load, whose number was another */
	unlink("/dev/nvidia-uvm-tools");
	while (f && fscanf(f, "%u %63s", &device, name) >= 0) {
		if (!strcmp(name, "nvidia-uvm")) {
			mknod("/dev/nvidia-uvm", S_IFCHR | 0666, makedev(device, 0));
			mknod("/dev/nvidia-uvm-tools", S_IFCHR | 0666, makedev(device, 1));
		}
		if (fgetc(f) == EOF)
			break;
	}
	if (f)
		fclose(f);
}

const struct emu_kind *gpu_kind(void)
{
	const char *value = option_value("mps.gpu=");

	return value ? emu_find_kind(value) : &emu_turing;
}

static bool load_driver(const char *path, const char *parameters)
{
	static bool stand_in;
	char all[512], generation[64];

	if (!stand_in) {
		snprintf(generation, sizeof(generation), "gpu=%s", gpu_kind() ? gpu_kind()->name : "none");
		stand_in = load("/nvidia.ko", generation);
	}
	/* The driver takes 64 chunks of memory at once for managed memory; this GPU has 40. */
	snprintf(all, sizeof(all), "uvm_perf_pma_batch_nonpinned_order=0 %s %s %s %s", parameters,
		 strstr(parameters, "uvm_disable_hmm=") ? "" : "uvm_disable_hmm=1",	/* as the README has it */
		 option("mps.debug") ? "uvm_debug_prints=1" : "",
		 patched && option("mps.untested") && !strstr(parameters, "uvm_mps_untested=") ? "uvm_mps_untested=1" : "");
	if (!load(path, all))
		return false;
	make_node();
	return true;
}

bool module_load(const char *parameters)
{
	return load_driver("/nvidia-uvm.ko", parameters);
}

bool module_load_unlisted(const char *parameters)
{
	return load_driver("/nvidia-uvm-unlisted.ko", parameters);
}

bool module_unload(void)
{
	notices_close();
	return !syscall(SYS_delete_module, "nvidia_uvm", O_NONBLOCK);
}

static const char *command_line(void)
{
	static char line[4096];
	FILE *f = line[0] ? NULL : fopen("/proc/cmdline", "r");

	if (f) {
		if (!fgets(line, sizeof(line), f))
			line[0] = '\0';
		fclose(f);
	}
	return line;
}

bool option(const char *name)
{
	return strstr(command_line(), name) != NULL;
}

const char *option_value(const char *name)
{
	static char value[256];
	const char *at = strstr(command_line(), name);

	if (!at)
		return NULL;
	snprintf(value, sizeof(value), "%s", at + strlen(name));
	value[strcspn(value, " \n")] = '\0';
	return value;
}
