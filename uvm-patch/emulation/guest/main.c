// SPDX-License-Identifier: MIT
/*
 * What the patched module must do and what the stock module does, in the same
 * emulated GPU. This program is the whole user space of the virtual machine.
 */
#include <sys/mount.h>
#include <sys/reboot.h>
#include <unistd.h>
#include "scene.h"

/* mps.only=WORD,WORD... runs the tests whose name has one of the words. */
static bool chosen(const char *test)
{
	const char *only = option_value("mps.only="), *word;
	char words[256];

	if (!only)
		return true;
	snprintf(words, sizeof(words), "%s", only);
	for (word = strtok(words, ","); word; word = strtok(NULL, ",")) {
		if (strstr(test, word))
			return true;
	}
	return false;
}

#define RUN(test) do {								\
	unsigned long was = failures;						\
	if (!chosen(#test))							\
		break;								\
	uint64_t began = now_ms();						\
	printf("run  %s\n", #test);						\
	skipped = NULL;								\
	test();									\
	if (skipped)								\
		printf("skip %s Skipped(%s)\n", #test, skipped);		\
	else									\
		printf("%s %s (%llu ms)\n", failures == was ? "ok  " : "FAIL", #test,	\
		       (unsigned long long)(now_ms() - began));			\
} while (0)

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	patched = option("mps.patched");
	long_run = option("mps.long");
	if (option("mps.slow"))
		slowness = 10;
	printf("== %s module\n", patched ? "patched" : "stock");
	module_load("");
	notices_open();
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);

	RUN(a_wild_store_ends_its_client_alone);
	RUN(class_b_the_unmapped_part_of_an_external_range);
	RUN(class_c_a_store_to_a_read_only_mapping);
	RUN(class_c_with_small_pages_gets_the_private_page);
	RUN(a_hole_beside_small_pages_gets_the_private_page);
	RUN(class_d_dead_managed_memory_is_served);
	RUN(a_prefetch_harms_nobody);
	RUN(class_o_a_copy_engine_fault_restarts_its_channel);
	RUN(class_o_a_host_fault_restarts_its_channel);
	RUN(classes_h_to_k_pass_through_with_a_notice);
	RUN(a_client_that_nobody_shares_with_is_left_to_the_driver);
	RUN(observing_changes_nothing_but_tells);
	RUN(a_private_page_holds_nothing_of_anybody);
	RUN(class_n_a_fetch_from_a_hole_is_left_to_the_driver);
	RUN(a_sweep_gets_larger_windows);
	RUN(a_wild_index_of_32_bits_ends_its_client_alone);
	RUN(a_wild_index_of_64_bits_ends_its_client_alone);
	RUN(at_the_limit_the_whole_address_space_becomes_the_sink);
	RUN(an_address_that_no_cpu_has_is_isolated_where_the_gpu_has_it);
	RUN(the_upper_half_of_the_addresses_is_isolated);
	RUN(the_last_resort_has_both_halves_of_the_addresses);
	RUN(memory_that_ends_in_the_middle_of_a_storm_harms_nobody);
	RUN(without_memory_for_a_private_page_the_verdict_is_failed);
	RUN(a_storm_on_one_mapping_rewrites_it_once);
	RUN(what_ends_everybody_is_told_after_any_storm);
	RUN(a_storm_is_survived_and_counted_exactly);
	RUN(a_condemned_client_maps_nothing_new);
	RUN(refusals_that_are_not_told_are_counted);
	RUN(the_kernel_kills_at_the_deadline_without_a_daemon);
	RUN(sudden_death_harms_nobody_while_the_tables_are_held);
	RUN(a_hold_says_what_it_keeps_and_ends_in_its_own_thread);
	RUN(one_client_does_not_take_the_graves_of_others);
	RUN(one_subcontext_does_not_take_the_graves_of_its_clients_others);
	RUN(a_zombie_fault_names_the_dead_client);
	RUN(teardown_in_every_order_leaves_nothing);
	RUN(the_device_keeps_its_promises);
	RUN(a_process_has_the_number_of_the_readers_namespace);
	RUN(from_packet_to_replay_takes_about_as_long_as_the_cancel);
	RUN(a_hundred_thousand_faults_leave_nothing);

	RUN(the_daemons_reader_sees_what_the_module_tells);
	RUN(the_daemon_names_and_ends_the_culprit);
	RUN(the_daemon_waits_until_nothing_is_left_of_the_culprit);
	RUN(the_daemon_replaces_the_server_when_the_fault_is_not_isolated);
	RUN(only_an_administrator_decides);
	RUN(a_record_that_could_not_be_handed_over_is_not_lost);
	RUN(a_flood_of_address_spaces_does_not_wash_a_fault_away);
	RUN(a_driver_on_no_list_only_observes);
	RUN(an_untested_driver_only_observes);
	RUN(several_gpus_are_left_to_the_driver_without_the_key);
	RUN(a_wild_store_on_one_gpu_is_isolated_there_alone);
	RUN(a_mapping_on_the_second_gpu_is_rewritten_there_alone);
	RUN(storms_on_two_gpus_at_once_are_isolated_on_both);
	RUN(a_gpu_that_a_condemned_client_gives_up_takes_its_sinks_along);
	RUN(sudden_death_on_two_gpus_harms_nobody);
	RUN(a_fault_waits_for_another_of_the_same_client);
	RUN(with_hmm_faults_are_left_to_the_driver_without_the_key);
	RUN(with_hmm_and_the_key_a_hole_is_isolated_in_small_sinks);
	RUN(with_hmm_faults_inside_its_blocks_are_left_to_the_driver);
	RUN(the_module_comes_back_after_an_unload);
	RUN(class_d_living_managed_memory_is_left_to_the_driver);
	RUN(the_self_test_passes);
	CHECK(module_unload());
	printf("== %s: %lu checks, %lu failed\n", patched ? "patched" : "stock", checks, failures);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
